//! What a service exports: one [`Service`], and addresses that open it. The rest of the program knows no more of it.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use super::context::with_context;
use super::{Backend, Options};
use crate::lock::LockName;

/// A lock service that dlock can use. Each is one folder, which exports one of these (or several that share it).
#[derive(Debug)]
pub struct Service {
    /// Its name, as given to `--backend`.
    pub name: &'static str,
    /// What its addresses start with, in lower case.
    pub schemes: &'static [&'static str],
    /// Whether it has users, passwords and TLS, so whether it uses the options in [`LOGIN`].
    pub has_login: bool,
    /// The other connection options that it uses and not every service does.
    pub options: &'static [ServiceOption],
    /// Reads the connection options and connects to nothing. An error is one line without secrets.
    pub parse: fn(&Options) -> Result<Box<dyn Address>, String>,
    /// Its manual page `dlock-NAME(7)` in Markdown: `# WHAT IT OFFERS`, then the sections Endpoint, Data layout, Interoperability,
    /// Guarantees, Limitations, Permissions and Server settings, each `## TITLE` with paragraphs, terms (`**TERM**` on a line of
    /// its own and on the next lines what it means) and fenced lines to type.
    pub manual: &'static str,
}

/// A connection option that not every service uses.
#[derive(Debug)]
pub struct ServiceOption {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What makes it count, for whoever gave it to another service.
    pub remedy: &'static str,
}

/// The options for services with users, passwords and TLS.
pub const LOGIN: [ServiceOption; 6] = [
    login("user"),
    login("password-file"),
    login("cacert"),
    login("cert"),
    login("key"),
    login("tls-server-name"),
];

/// What makes an option count that belongs to another service.
pub const NAME_THE_SERVICE: &str = "say which service is meant with --backend or --endpoint";

const fn login(name: &'static str) -> ServiceOption {
    ServiceOption { name, remedy: NAME_THE_SERVICE }
}

/// Where a service is and how to get in: connection options that were understood. Nothing is connected yet.
pub trait Address: Debug + Send + Sync {
    /// The service.
    fn service(&self) -> &'static Service;

    /// A client of it, which connects when it is first used. Its errors do not say during what they happened; those of
    /// [`dyn Address::backend`] do.
    fn open(&self) -> Arc<dyn Backend>;

    /// Where that is, as people write it. Without secrets; opens nothing.
    fn place(&self) -> String;

    /// The options of the service that count at this address.
    fn options(&self) -> &'static [ServiceOption] {
        self.service().options
    }

    /// The directory and the file that `name` is the path of, where locks are files and another program on this host would
    /// take the name for that path.
    fn path_meant(&self, _name: &LockName) -> Option<(PathBuf, OsString)> {
        None
    }

    /// Each of the servers alone, where a run may meet any of several.
    fn each(&self) -> Vec<Box<dyn Address>> {
        Vec::new()
    }

    /// Each of the servers alone of which a run uses any one, so that all must show the same locks.
    fn alternatives(&self) -> Vec<Box<dyn Address>> {
        self.each()
    }

    /// The statements that make the tables, if the service has tables.
    fn schema(&self) -> Option<String> {
        None
    }
}

impl dyn Address {
    /// A client of the service, which connects when it is first used, and whose errors say during what they happened.
    pub fn backend(&self) -> Arc<dyn Backend> {
        with_context(self.open())
    }
}

//! The interface of a service: one [`Service`], and addresses that open it. The rest of the program knows nothing else
//! of it.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use super::context::with_context;
use super::{Backend, Options};
use crate::lock::LockName;

/// A lock service that dlock can use. Each is one directory, which exports one or several of these.
#[derive(Debug)]
pub struct Service {
    /// Its name, as given to `--backend`.
    pub name: &'static str,
    /// The prefixes of its addresses, in lower case.
    pub schemes: &'static [&'static str],
    /// Whether it has users, passwords and TLS, so that the options in [`LOGIN`] apply.
    pub has_login: bool,
    /// The other connection options that it uses and not every service does, without dashes.
    pub options: &'static [&'static str],
    /// Parses the connection options without connecting. An error is one line without secrets.
    pub parse: fn(&Options) -> Result<Box<dyn Address>, String>,
    /// Its manual page `dlock-NAME(7)`, made from the `manual.md` of its directory.
    pub manual: &'static str,
}

/// The options for services with users, passwords and TLS.
pub const LOGIN: [&str; 6] = ["user", "password-file", "cacert", "cert", "key", "tls-server-name"];

/// The place of a service and the login: parsed connection options, not yet connected.
pub trait Address: Debug + Send + Sync {
    /// The service.
    fn service(&self) -> &'static Service;

    /// Creates a client, which connects on first use. Its errors do not name the operation; those of [`dyn
    /// Address::backend`] do.
    fn open(&self) -> Arc<dyn Backend>;

    /// Returns the place as users write it, without secrets; opens nothing.
    fn place(&self) -> String;

    /// Returns the options of the service that apply at this address.
    fn options(&self) -> &'static [&'static str] {
        self.service().options
    }

    /// Returns the directory and the file name for a `name` that is a path, if locks are files and another program on
    /// this host would take the name for that path.
    fn path_meant(&self, _name: &LockName) -> Option<(PathBuf, OsString)> {
        None
    }

    /// Returns one address for each of the servers, if a run may use any of several.
    fn each(&self) -> Vec<Box<dyn Address>> {
        Vec::new()
    }

    /// Returns each of the servers alone of which a run uses any one, so that all must show the same locks.
    fn alternatives(&self) -> Vec<Box<dyn Address>> {
        self.each()
    }

    /// Returns the statements that create the tables, if the service has tables.
    fn schema(&self) -> Option<String> {
        None
    }
}

impl dyn Address {
    /// Creates a client, which connects on first use. Its errors name the operation.
    pub fn backend(&self) -> Arc<dyn Backend> {
        with_context(self.open())
    }
}

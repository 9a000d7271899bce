//! Passwords, certificates and keys, which are never shown.

use std::fmt;
use std::path::{Path, absolute};
use std::sync::Arc;

use super::fault::{Fault, FaultResult};

/// Directories with files that may be readable only once.
const ONCE: [&str; 2] = ["/dev", "/proc"];

/// A credential, which never appears in any output: a fixed value, or a file that is read anew for each use, because
/// files may be replaced while a command runs.
#[derive(Clone)]
pub struct Kept<T>(Arc<dyn Fn() -> Result<T, String> + Send + Sync>);

/// A password.
pub type Secret = Kept<String>;

/// One or more certificates, or a key, as the text of a PEM file. It is checked when a connection is opened with it.
pub type Pem = Kept<Vec<u8>>;

impl<T: Clone + Send + Sync + 'static> Kept<T> {
    /// Wraps a value.
    pub fn new(value: impl Into<T>) -> Self {
        let value = value.into();
        Self::read_by(move || Ok(value.clone()))
    }

    /// Calls `read` for each use.
    pub fn read_by(read: impl Fn() -> Result<T, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Reads the file at `path` with `read`, now and at each later use. A pipe, or a file in /dev or /proc, is read
    /// only now.
    ///
    /// Errors: those of `read`, now, which describe the fault and do not quote the file.
    pub fn in_file(path: &Path, read: fn(&Path) -> Result<T, String>) -> Result<Self, String> {
        let now = read(path)?;
        let lasts = |path: &Path| path.is_file() && !ONCE.iter().any(|place| path.starts_with(place));
        Ok(match absolute(path).ok().filter(|path| lasts(path)) {
            Some(path) => {
                Self::read_by(move || read(&path).map_err(|why| format!("the file {} {why}", path.display())))
            }
            None => Self::new(now),
        })
    }

    /// Returns the value, for the service alone.
    ///
    /// Errors: transient; the file cannot be read now, perhaps because it is being replaced.
    pub fn reveal(&self) -> FaultResult<T> {
        (self.0)().map_err(Fault::spent)
    }
}

impl<T: Clone + PartialEq + Send + Sync + 'static> PartialEq for Kept<T> {
    fn eq(&self, other: &Self) -> bool {
        self.reveal() == other.reveal()
    }
}

impl<T: Clone + Eq + Send + Sync + 'static> Eq for Kept<T> {}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A client certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate and the intermediate certificates up to the authority.
    certificate: Pem,
    /// Its private key.
    key: Pem,
}

impl Identity {
    /// Combines the two.
    ///
    /// Errors: why dlock cannot use the key, with the remedy, as the rest of a sentence about the key.
    pub fn new(certificate: Pem, key: Pem) -> Result<Self, String> {
        let text = key.reveal().map_err(|fault| fault.to_string())?;
        let has = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            let remedy = "write it without one: openssl pkey -in FILE -out NEW";
            return Err(format!("has a passphrase, which dlock cannot ask for; {remedy}"));
        }
        if !has(b"PRIVATE KEY-----") {
            return Err("is no private key: it has no line that ends with PRIVATE KEY-----".to_owned());
        }
        Ok(Self { certificate, key })
    }

    /// Returns the texts of the certificate and of its key.
    ///
    /// Errors: transient; one cannot be read now.
    pub fn texts(&self) -> FaultResult<(Vec<u8>, Vec<u8>)> {
        Ok((self.certificate.reveal()?, self.key.reveal()?))
    }
}

/// The settings of encryption, for addresses that ask for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// The authorities that sign servers' certificates; the system's if not given.
    pub authority: Option<Pem>,
    /// The certificate of this client.
    pub identity: Option<Identity>,
    /// The name that the server's certificate must have, if it is not that of the address.
    pub server_name: Option<String>,
}

impl Tls {
    /// Returns whether any setting of encryption was given.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

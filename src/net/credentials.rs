//! Passwords, certificates and keys, which are never shown.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, absolute};
use std::sync::Arc;

use super::fault::{Fault, FaultResult};

/// Directories with files that may be readable only once.
const ONCE: [&str; 2] = ["/dev", "/proc"];

/// A credential: a fixed value, or a file that is read anew for each use, because files may be replaced while a command
/// runs.
#[derive(Clone)]
enum Kept<T> {
    Given(T),
    Read(Arc<dyn Fn() -> Result<T, String> + Send + Sync>),
}

impl<T: Clone + 'static> Kept<T> {
    /// Reads the file at `path` with `read`, now and at each later use. A pipe, or a file under [`ONCE`], is read only
    /// now.
    ///
    /// Errors: those of `read`, now.
    fn in_file(path: &Path, read: fn(&Path) -> Result<T, String>) -> Result<Self, String> {
        let now = read(path)?;
        let lasts = |path: &Path| path.is_file() && !ONCE.iter().any(|place| path.starts_with(place));
        Ok(match absolute(path).ok().filter(|path| lasts(path)) {
            Some(path) => Self::Read(Arc::new(move || {
                read(&path).map_err(|why| format!("the file {} {why}", path.display()))
            })),
            None => Self::Given(now),
        })
    }

    /// Errors: transient; the file cannot be read now, perhaps because it is being replaced.
    fn get(&self) -> FaultResult<Cow<'_, T>> {
        match self {
            Self::Given(given) => Ok(Cow::Borrowed(given)),
            Self::Read(read) => read().map(Cow::Owned).map_err(Fault::spent),
        }
    }
}

/// A text that never appears in any output.
#[derive(Clone)]
pub struct Secret(Kept<String>);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Kept::Given(text.into()))
    }

    /// Reads the file at `path` with `read`, now and at each later use.
    ///
    /// Errors: those of `read`, which describe the fault and do not quote the file.
    pub fn in_file(path: &Path, read: fn(&Path) -> Result<String, String>) -> Result<Self, String> {
        Kept::in_file(path, read).map(Self)
    }

    /// Calls `read` for each use.
    pub fn read_by(read: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Kept::Read(Arc::new(read)))
    }

    /// Returns the text, for the service alone.
    ///
    /// Errors: transient; it cannot be read now.
    pub fn reveal(&self) -> FaultResult<Cow<'_, String>> {
        self.0.get()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.reveal() == other.reveal()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// One or more certificates, or a key, as the text of a PEM file.
#[derive(Clone)]
pub struct Pem(Kept<Vec<u8>>);

impl Pem {
    /// Wraps a text. It is checked when a connection is opened with it.
    pub fn new(text: Vec<u8>) -> Self {
        Self(Kept::Given(text))
    }

    /// Reads the file at `path` with `read`, now and at each later use.
    ///
    /// Errors: those of `read`.
    pub fn in_file(path: &Path, read: fn(&Path) -> Result<Vec<u8>, String>) -> Result<Self, String> {
        Kept::in_file(path, read).map(Self)
    }

    /// Returns the text.
    ///
    /// Errors: transient; it cannot be read now.
    pub fn bytes(&self) -> FaultResult<Cow<'_, Vec<u8>>> {
        self.0.get()
    }
}

impl PartialEq for Pem {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Pem {}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(PEM)")
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

/// How often the files are read again if they change between readings.
const CHANGES: usize = 3;

impl Identity {
    /// Combines the two.
    ///
    /// Errors: why dlock cannot use the key, with the remedy, as the rest of a sentence about the key.
    pub fn new(certificate: Pem, key: Pem) -> Result<Self, String> {
        let text = key.bytes().map_err(|fault| fault.to_string())?.into_owned();
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

    /// Returns the texts of the certificate and of its key. It reads them again if the files were replaced between the
    /// readings.
    ///
    /// Errors: transient; one cannot be read now.
    pub fn texts(&self) -> FaultResult<(Vec<u8>, Vec<u8>)> {
        let mut certificate = self.certificate.bytes()?;
        for _ in 0..CHANGES {
            let (key, again) = (self.key.bytes()?, self.certificate.bytes()?);
            if again == certificate {
                return Ok((certificate.into_owned(), key.into_owned()));
            }
            certificate = again;
        }
        Err(Fault::spent("the certificate and the key change again and again"))
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

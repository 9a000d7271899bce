//! Passwords, certificates and keys: what gets a client in, and is never shown.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, absolute};
use std::sync::Arc;

use super::fault::{Fault, FaultResult};

/// Places whose files may be there for one reading.
const ONCE: [&str; 2] = ["/dev", "/proc"];

/// Something that gets a client in: as it was given, or read anew each time that it is needed, since files are exchanged under a
/// command that runs.
#[derive(Clone)]
enum Kept<T> {
    Given(T),
    Read(Arc<dyn Fn() -> Result<T, String> + Send + Sync>),
}

impl<T: Clone + 'static> Kept<T> {
    /// What `read` makes of the file at `path`, which may be a pipe and be there only once.
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

    /// Errors: a file has nothing to read now; it may be about to be exchanged.
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
    /// Keeps `text` to itself.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Kept::Given(text.into()))
    }

    /// What `read` makes of the file at `path`, whenever it is needed.
    ///
    /// Errors: those of `read`, which say what is wrong with the file and not what is in it.
    pub fn in_file(path: &Path, read: fn(&Path) -> Result<String, String>) -> Result<Self, String> {
        Kept::in_file(path, read).map(Self)
    }

    /// What `read` comes to, whenever it is needed.
    pub fn read_by(read: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Kept::Read(Arc::new(read)))
    }

    /// The text, for the service alone.
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
    /// Takes a text; whoever opens a connection with it checks it.
    pub fn new(text: Vec<u8>) -> Self {
        Self(Kept::Given(text))
    }

    /// What `read` makes of the file at `path`, whenever it is needed.
    ///
    /// Errors: those of `read`.
    pub fn in_file(path: &Path, read: fn(&Path) -> Result<Vec<u8>, String>) -> Result<Self, String> {
        Kept::in_file(path, read).map(Self)
    }

    /// The text.
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

/// A certificate to show, and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate and those between it and the authority.
    certificate: Pem,
    /// Its private key.
    key: Pem,
}

/// How often a certificate and a key are read that change meanwhile.
const CHANGES: usize = 3;

impl Identity {
    /// The two together.
    ///
    /// Errors: what the key has that dlock cannot use, with the remedy, as the rest of a sentence about it.
    pub fn new(certificate: Pem, key: Pem) -> Result<Self, String> {
        let text = key.bytes().map_err(|fault| fault.to_string())?.into_owned();
        let has = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            let remedy = "write it without one: openssl pkey -in FILE -out NEW";
            return Err(format!("has a passphrase, which dlock has nobody to ask for; {remedy}"));
        }
        if !has(b"PRIVATE KEY-----") {
            return Err("is no private key: it has no line that ends with PRIVATE KEY-----".to_owned());
        }
        Ok(Self { certificate, key })
    }

    /// The texts of the certificate and of its key. Both files may be exchanged between the one reading and the other.
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

/// How a connection is encrypted, where the address says that it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// Whose servers are believed; the system's authorities if not given.
    pub authority: Option<Pem>,
    /// Who this client is.
    pub identity: Option<Identity>,
    /// The name that the server's certificate must have, if it is not that of the address.
    pub server_name: Option<String>,
}

impl Tls {
    /// Whether anything was said of encryption.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

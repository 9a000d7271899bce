//! Passwords, certificates and keys: what gets a client in, and is never shown.

use std::fmt;

/// A text that never appears in any output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` to itself.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the service alone.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// One or more certificates, or a key, as the text of a PEM file.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem(Vec<u8>);

impl Pem {
    /// Takes what a file contains; whoever opens a connection with it checks it.
    pub fn new(text: Vec<u8>) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(PEM)")
    }
}

/// A certificate to show, and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate and those between it and the authority.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
}

impl Identity {
    /// The two together.
    ///
    /// Errors: what the key has that dlock cannot use, with the remedy, as the rest of a sentence about it.
    pub fn new(certificate: Pem, key: Pem) -> Result<Self, String> {
        let has = |words: &[u8]| key.0.windows(words.len()).any(|window| window == words);
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            let remedy = "write it without one: openssl pkey -in FILE -out NEW";
            return Err(format!("has a passphrase, which dlock has nobody to ask for; {remedy}"));
        }
        if !has(b"PRIVATE KEY-----") {
            return Err("is no private key: it has no line that ends with PRIVATE KEY-----".to_owned());
        }
        Ok(Self { certificate, key })
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

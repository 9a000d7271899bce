//! Passwords, certificates and keys, from where people keep them.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Result, anyhow, bail};

use super::args::ConnectionArgs;
use super::exposure;
use super::layers::Layers;
use super::source::SourcedText;
use crate::net::credentials::{Identity, Pem, Secret, Tls};
use crate::output::sanitise;

/// The most bytes of a password, certificate or key. A device or a wrong path could have more.
const MOST_BYTES: u64 = 1 << 20;

/// Returns the password, or the first line of the password file: the one in the upper layer. Reads the file only if it
/// `is_needed`: a file that the service does not need may be unreadable.
pub(super) fn password(
    layers: &mut Layers,
    args: &ConnectionArgs,
    is_needed: bool,
) -> Result<Option<Secret>> {
    // A flag overrules the password of a lower layer.
    let file = layers.text("password-file", args.password_file.as_deref())?;
    if let Some(found) = layers.text("password", None)? {
        return Ok(Some(Secret::new(found.text)));
    }
    let Some(found) = file.filter(|_| is_needed) else { return Ok(None) };
    let path = Path::new(&found.text);
    let password = Secret::in_file(path, first_line).map_err(|why| fault(&found, &why))?;
    layers.doubts.extend(exposure::doubt("the password file has a password", path));
    Ok(Some(password))
}

fn first_line(path: &Path) -> Result<String, String> {
    let text = String::from_utf8(read(path)?).map_err(|_| "is not valid UTF-8")?;
    // Editors end a file with a line end, and may begin it with a byte order mark. Both are not part of the password.
    let line = text.trim_start_matches('\u{feff}').lines().next().filter(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| "has no password in its first line".to_owned())
}

/// Reads the files of TLS, if that `is_needed`. Their contents are checked when a connection is opened.
pub(super) fn tls(layers: &mut Layers, args: &ConnectionArgs, is_needed: bool) -> Result<Tls> {
    let authority = layers.text("cacert", args.cacert.as_deref())?;
    let certificate = layers.text("cert", args.cert.as_deref())?;
    let key = layers.text("key", args.key.as_deref())?;
    let server_name = layers.text("tls-server-name", args.tls_server_name.as_deref())?;
    if !is_needed {
        return Ok(Tls::default());
    }
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            layers.doubts.extend(exposure::doubt("the key file has a private key", Path::new(&key.text)));
            let (shown, own) = (pem(&certificate)?, pem(&key)?);
            Some(Identity::new(shown, own).map_err(|why| fault(&key, &why))?)
        }
        (Some(found), None) => {
            bail!("{}: a certificate needs its key; pass --key FILE", found.source);
        }
        (None, Some(found)) => {
            bail!("{}: a key needs its certificate; pass --cert FILE", found.source);
        }
    };
    let authority = authority.map(|found| pem(&found)).transpose()?;
    Ok(Tls { authority, identity, server_name: server_name.map(|found| found.text) })
}

fn pem(found: &SourcedText) -> Result<Pem> {
    Pem::in_file(Path::new(&found.text), pem_text).map_err(|why| fault(found, &why))
}

fn pem_text(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = read(path)?;
    let begins = b"-----BEGIN ";
    if !bytes.windows(begins.len()).any(|window| window == begins) {
        return Err("is not a PEM file: it has no line -----BEGIN".to_owned());
    }
    Ok(bytes)
}

/// Returns the bytes of the file.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err("is longer than a mebibyte".to_owned());
    }
    Ok(bytes)
}

fn fault(found: &SourcedText, what: &str) -> anyhow::Error {
    anyhow!("{}: the file {} {what}", found.source, sanitise::text(&found.text))
}

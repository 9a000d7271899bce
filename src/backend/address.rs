//! Addresses of servers as people write them.

use std::fmt;

use crate::lock::name::percent_decoded;

/// A host and its port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    /// A name or an address, an IPv6 one without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// That `text` is not the address of a server.
pub fn no_address(text: &str) -> String {
    format!("{text:?} is no HOST:PORT")
}

/// The host in `HOST`, `HOST:PORT` or `[IPV6]:PORT`, which may be empty, and the port if there is one.
pub fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let wrong = || no_address(text);
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = match rest.strip_prefix(':') {
        Some(number) => Some(number.parse().map_err(|_| wrong())?),
        None if rest.is_empty() => None,
        None => return Err(wrong()),
    };
    if host.contains(['?', '#', ' ']) { Err(wrong()) } else { Ok((host, port)) }
}

/// Several of them in a comma list; a host may be percent-encoded.
pub fn hosts_and_ports(text: &str) -> Result<Vec<(String, Option<u16>)>, String> {
    let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(host_and_port);
    hosts.map(|found| found.and_then(|(host, port)| Ok((decoded(host)?, port)))).collect()
}

/// Takes `%XX` for the byte that it stands for.
pub fn decoded(text: &str) -> Result<String, String> {
    let bytes = percent_decoded(text.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok());
    bytes.ok_or_else(|| "a % in an address is followed by two hexadecimal digits".to_owned())
}

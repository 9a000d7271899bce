//! Parsing of server addresses as users write them.

use std::fmt;
use std::path::Path;

use super::credentials::Secret;
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

/// The user and the password of an address.
#[derive(Default, Debug)]
pub struct Login {
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
}

/// Returns the reason for refusing a login that has a `user` but no password.
pub fn no_password_for(user: &str) -> String {
    format!(
        "there is no password for the user {user}; put it into DLOCK_PASSWORD or a file named by DLOCK_PASSWORD_FILE"
    )
}

/// Returns the rest of `text` after `scheme` at its beginning, which may be in any case.
pub fn after<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Takes `USER@` or `USER:PASSWORD@` off the front of `text` and returns the login, percent-decoded, and the rest. An
/// empty user or password counts as absent. The last `@` ends a password.
///
/// Errors: a `%` that two hexadecimal digits do not follow.
pub fn login(text: &str) -> Result<(Login, &str), String> {
    let Some((user, password, rest)) = taken_apart(text) else { return Ok((Login::default(), text)) };
    let said = |text: &str| if text.is_empty() { Ok(None) } else { decoded(text).map(Some) };
    Ok((Login { user: said(user)?, password: said(password)?.map(Secret::new) }, rest))
}

/// Returns the user, the password and the rest of `text`, still percent-encoded, if it has a login.
pub fn taken_apart(text: &str) -> Option<(&str, &str, &str)> {
    let (login, rest) = text.rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    Some((user, password, rest))
}

/// Returns `text` without user and password.
pub fn without_login(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, rest)| rest)
}

/// Returns the reason for refusing `text` as the address of a server.
pub fn no_address(text: &str) -> String {
    format!("{text:?} is not HOST:PORT")
}

/// Returns the host in `HOST`, `HOST:PORT` or `[IPV6]:PORT`, which may be empty, and the port if there is one.
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

/// Returns the hosts and ports in a comma-separated list. A host may be percent-encoded.
pub fn hosts_and_ports(text: &str) -> Result<Vec<(String, Option<u16>)>, String> {
    let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(host_and_port);
    hosts.map(|found| found.and_then(|(host, port)| Ok((decoded(host)?, port)))).collect()
}

/// Returns whether `endpoint` can only be a directory. `/3` or `/ops` may be a database.
pub fn is_directory(endpoint: &str) -> bool {
    let path = endpoint.split('?').next().unwrap_or(endpoint);
    let is_deep = path.strip_prefix('/').is_some_and(|rest| rest.contains('/'));
    path.starts_with("./")
        || path.starts_with("../")
        || is_deep
        || (path.starts_with('/') && Path::new(path).is_dir())
}

/// Returns `text` without its trailing line ends, which are not part of a secret in a file.
pub fn without_line_end(text: &str) -> &str {
    text.trim_end_matches(['\r', '\n'])
}

/// Joins `places` with commas in sorted order, so that their given order does not matter.
pub fn in_any_order(places: impl IntoIterator<Item = impl ToString>) -> String {
    let mut places: Vec<String> = places.into_iter().map(|place| place.to_string()).collect();
    places.sort();
    places.join(",")
}

/// Replaces each `%XX` in `text` with the byte that it encodes.
pub fn decoded(text: &str) -> Result<String, String> {
    let bytes = percent_decoded(text.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok());
    bytes.ok_or_else(|| {
        "a % in an address must be followed by two hexadecimal digits; write it as %25".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_taken_off_the_front() {
        for (text, user, password, rest) in [
            ("h:1/d", None, None, "h:1/d"),
            ("u@h", Some("u"), None, "h"),
            ("u:@h", Some("u"), None, "h"),
            (":p@h", None, Some("p"), "h"),
            ("u%40x:p%3A:/@y@h", Some("u@x"), Some("p::/@y"), "h"),
        ] {
            let (login, found) = login(text).expect(text);
            assert_eq!((login.user.as_deref(), found), (user, rest), "{text}");
            assert_eq!(login.password, password.map(Secret::new), "{text}");
            assert_eq!(without_login(text), rest);
        }
        assert!(login("u:%zz@h").is_err());
    }

    #[test]
    fn scheme_matches_in_any_case() {
        assert_eq!(after("ZK://h", "zk://"), Some("h"));
        for other in ["zk:/h", "zk", "", "zkü//h"] {
            assert_eq!(after(other, "zk://"), None, "{other}");
        }
    }
}

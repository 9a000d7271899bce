//! Addresses of servers as people write them.

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

/// Who logs in, as far as an address says.
#[derive(Default, Debug)]
pub struct Login {
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
}

/// Why a login with `user` and nothing else is none.
pub fn no_password_for(user: &str) -> String {
    format!(
        "there is no password for the user {user}; put it into DLOCK_PASSWORD or a file named by DLOCK_PASSWORD_FILE"
    )
}

/// What follows `scheme`, in whatever case, at the beginning of `text`.
pub fn after<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Takes `USER@` or `USER:PASSWORD@` off the front of `text`, percent-encoded, and returns the rest with it. What is empty is
/// not said; the last `@` ends a password.
pub fn login(text: &str) -> Result<(Login, &str), String> {
    let Some((user, password, rest)) = taken_apart(text) else { return Ok((Login::default(), text)) };
    let said = |text: &str| if text.is_empty() { Ok(None) } else { decoded(text).map(Some) };
    Ok((Login { user: said(user)?, password: said(password)?.map(Secret::new) }, rest))
}

/// The user, the password and the rest of `text` as they stand there, if it has a login.
pub fn taken_apart(text: &str) -> Option<(&str, &str, &str)> {
    let (login, rest) = text.rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    Some((user, password, rest))
}

/// `text` without user and password.
pub fn without_login(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, rest)| rest)
}

/// That `text` is not the address of a server.
pub fn no_address(text: &str) -> String {
    format!("{text:?} is not HOST:PORT")
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

/// Whether `endpoint` can only be a directory. `/3` or `/ops` may be a database.
pub fn is_directory(endpoint: &str) -> bool {
    let path = endpoint.split('?').next().unwrap_or(endpoint);
    let is_deep = path.strip_prefix('/').is_some_and(|rest| rest.contains('/'));
    path.starts_with("./")
        || path.starts_with("../")
        || is_deep
        || (path.starts_with('/') && Path::new(path).is_dir())
}

/// `text` without the line ends behind it: a file or a secret ends with one, which is no part of what it says.
pub fn without_line_end(text: &str) -> &str {
    text.trim_end_matches(['\r', '\n'])
}

/// All of `places` as one text, the same in whatever order they are given.
pub fn in_any_order(places: impl IntoIterator<Item = impl ToString>) -> String {
    let mut places: Vec<String> = places.into_iter().map(|place| place.to_string()).collect();
    places.sort();
    places.join(",")
}

/// Takes `%XX` for the byte that it stands for.
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
    fn a_scheme_is_known_in_whatever_case() {
        assert_eq!(after("ZK://h", "zk://"), Some("h"));
        for other in ["zk:/h", "zk", "", "zkü//h"] {
            assert_eq!(after(other, "zk://"), None, "{other}");
        }
    }
}

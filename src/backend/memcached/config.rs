//! Parsing addresses.

use crate::backend::Options;
use crate::net::address::{HostPort, after, host_and_port, login, no_address, without_login};
use crate::net::credentials::{Secret, Tls};
use crate::net::tls::stays_here;

/// The default port.
const PORT: u16 = 11_211;

/// The address of a memcached, and the login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemcachedConfig {
    /// The server.
    pub at: HostPort,
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The settings of encryption, if the connection is encrypted.
    pub tls: Option<Tls>,
    /// The prefix of keys.
    pub prefix: String,
    /// Whether names are escaped that cannot be keys.
    pub escapes: bool,
}

impl MemcachedConfig {
    /// Parses the connection options. An error is one line without secrets.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let endpoint = match options.endpoints.as_slice() {
            [] => "memcached://localhost",
            [one] if !one.contains(',') => one.as_str(),
            _ => {
                return Err("a lock is kept by one memcached, since several would not know of each other's \
                            claims; name one endpoint"
                    .to_owned());
            }
        };
        let encrypted = after(endpoint, "memcacheds://");
        let is_encrypted = encrypted.is_some();
        let rest = encrypted.or_else(|| after(endpoint, "memcached://")).unwrap_or(endpoint);
        if options.tls.is_given() && !is_encrypted {
            return Err(format!(
                "memcached://{} is not encrypted, and encryption was asked for; write memcacheds://",
                without_login(rest)
            ));
        }
        let (login, host) = login(rest)?;
        let config = Self {
            at: host_of(host.strip_suffix('/').unwrap_or(host))?,
            user: options.user.clone().or(login.user),
            password: options.password.clone().or(login.password),
            tls: is_encrypted.then(|| options.tls.clone()),
            prefix: options.prefix.clone().unwrap_or_default(),
            escapes: options.prefix.is_none(),
        };
        if config.user.is_some() != config.password.is_some() {
            return Err("a user and a password belong together; see --user and --password-file".to_owned());
        }
        if config.prefix.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control()) {
            return Err("a key of memcached has no whitespace; name another --prefix".to_owned());
        }
        Ok(config)
    }

    /// Returns the server, if it is another host and the password is sent to it unencrypted.
    pub(super) fn open_password(&self) -> Option<String> {
        self.password.as_ref().filter(|_| self.tls.is_none())?;
        (!stays_here(&self.at.host)).then(|| self.at.to_string())
    }

    /// Returns the service as text without secrets, equal for equal services.
    pub fn identity(&self) -> String {
        let scheme = if self.tls.is_some() { "memcacheds" } else { "memcached" };
        format!("{scheme}://{}", self.at)
    }
}

fn host_of(text: &str) -> Result<HostPort, String> {
    let (host, port) = host_and_port(text)?;
    if host.contains('/') {
        return Err(no_address(text));
    }
    let host = if host.is_empty() { "localhost" } else { host };
    Ok(HostPort { host: host.to_owned(), port: port.unwrap_or(PORT) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_refused;

    fn parse(endpoints: &[&str]) -> Result<MemcachedConfig, String> {
        MemcachedConfig::parse(&Options::at(endpoints))
    }

    #[test]
    fn addresses_are_understood() {
        for (endpoints, identity) in [
            (&[] as &[&str], "memcached://localhost:11211"),
            (&["memcached://h"], "memcached://h:11211"),
            (&["MEMCACHED://h:1/"], "memcached://h:1"),
            (&["h:1"], "memcached://h:1"),
            (&["memcacheds://[::1]:7"], "memcacheds://[::1]:7"),
            (&["memcached://u:p%40@h"], "memcached://h:11211"),
        ] {
            assert_eq!(parse(endpoints).map(|config| config.identity()), Ok(identity.to_owned()));
        }
        let config = parse(&["memcached://u:p%40@h"]).expect("valid");
        assert_eq!(config.user.as_deref(), Some("u"));
        assert_eq!(config.password, Some(Secret::new("p@")));
    }

    #[test]
    fn invalid_address_is_refused() {
        for (endpoints, part) in [
            (&["memcached://a", "memcached://b"] as &[&str], "name one endpoint"),
            (&["memcached://a,b"], "name one endpoint"),
            (&["memcached://h:x"], "is not HOST:PORT"),
            (&["memcached://h/3"], "is not HOST:PORT"),
            (&["memcached://u@h"], "belong together"),
        ] {
            assert_refused(parse(endpoints), part);
        }
        for prefix in ["a b", "a\r\nflush_all\r\n"] {
            let options = Options { prefix: Some(prefix.to_owned()), ..Options::default() };
            assert_refused(MemcachedConfig::parse(&options), "--prefix");
        }
    }
}

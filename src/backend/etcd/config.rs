//! The addresses of the servers, and the login.

use crate::backend::Options;
use crate::net::address::{self, HostPort, Login, host_and_port, in_any_order, no_password_for};
use crate::net::cause::Manner;
use crate::net::credentials::{Secret, Tls};
use crate::net::tls::stays_here_at;

/// etcd's default port for clients.
const PORT: u16 = 2379;
/// The default of etcdctl. Not `localhost`, which would need a lookup.
const DEFAULT_HOST: &str = "127.0.0.1";

/// How to recognise etcd: it answers the beginning of HTTP/2 with its settings.
pub(super) const MANNER: Manner = Manner {
    service: "etcd",
    encryption: "does it want https://?",
    hello: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    is_own: |answer| matches!(answer, [0, _, _, 4, ..]),
};

/// Returns `HOST:PORT` of a URL.
pub(super) fn place(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, place)| place)
}

/// The configuration of the `etcd` backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdConfig {
    /// The servers of one cluster: `http://HOST:PORT` or `https://HOST:PORT`, at least one.
    pub endpoints: Vec<String>,
    /// The prefix of keys.
    pub prefix: String,
    /// Whether names are percent-encoded, so that no lock's keys are inside another's. Other clients write raw names.
    pub encoded: bool,
    /// The user and the password.
    pub login: Option<(String, Secret)>,
    /// The settings of encryption, for `https` endpoints.
    pub tls: Tls,
}

impl EtcdConfig {
    /// Parses the connection options without connecting. An error is one line without secrets.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let texts = options.endpoints.iter().flat_map(|text| text.split(','));
        let texts: Vec<&str> = texts.map(str::trim).filter(|text| !text.is_empty()).collect();
        let encrypt = options.tls.is_given();
        let texts = if options.endpoints.is_empty() { vec![DEFAULT_HOST] } else { texts };
        let parsed = texts.iter().map(|t| endpoint(t, encrypt)).collect::<Result<Vec<_>, _>>()?;
        let (endpoints, logins): (Vec<String>, Vec<Login>) = parsed.into_iter().unzip();
        if endpoints.is_empty() {
            return Err("the address of the etcd server is empty; write HOST:PORT".to_owned());
        }
        if encrypt && let Some(url) = endpoints.iter().find(|url| url.starts_with("http:")) {
            return Err(format!("{url} is not encrypted, and encryption was asked for; write https://"));
        }
        let prefix = options.prefix.clone().unwrap_or_else(|| "dlock/".to_owned());
        let (encoded, tls) = (options.prefix.is_none(), options.tls.clone());
        Ok(Self { endpoints, prefix, encoded, login: login(options, &logins)?, tls })
    }

    /// Returns the servers as users write them, without user and password.
    pub(super) fn servers(&self) -> String {
        self.endpoints.join(",")
    }

    /// Returns a server on another host to which the password is sent unencrypted, if there is one.
    pub(super) fn open_password(&self) -> Option<String> {
        self.login.as_ref()?;
        let open = |url: &&String| url.strip_prefix("http://").is_some_and(|host| !stays_here_at(host));
        self.endpoints.iter().find(open).cloned()
    }

    /// Returns the cluster and the prefix as text, independent of the order of servers.
    pub(super) fn identity(&self) -> String {
        let hosts = in_any_order(self.endpoints.iter().map(|url| place(url)));
        format!("etcd:{hosts}|{}", self.prefix)
    }
}

/// Returns the login; options take precedence over addresses.
fn login(options: &Options, said: &[Login]) -> Result<Option<(String, Secret)>, String> {
    let said = said.iter().find(|login| login.user.is_some() || login.password.is_some());
    let user = options.user.clone().or_else(|| said?.user.clone());
    let password = options.password.clone().or_else(|| said?.password.clone());
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some((user, password))),
        (None, None) => Ok(None),
        (Some(user), None) => Err(no_password_for(&user)),
        (None, Some(_)) => {
            Err("there is a password and no user; add --user, or leave the password out".to_owned())
        }
    }
}

/// Returns the URL and the login in an address.
fn endpoint(text: &str, encrypt: bool) -> Result<(String, Login), String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "https" => "https",
        "" | "etcd" if encrypt => "https",
        "" | "etcd" | "http" => "http",
        _ => return Err(format!("etcd has no addresses with {scheme}://; write HOST:PORT")),
    };
    let (login, place) = address::login(rest)?;
    let place = place.strip_suffix('/').unwrap_or(place);
    let wrong = || format!("{place:?} is not the address of an etcd server; write HOST:PORT");
    let (host, port) = host_and_port(place).map_err(|_| wrong())?;
    let port = port.unwrap_or(PORT);
    if host.is_empty() || host.contains('/') || port == 0 {
        return Err(wrong());
    }
    let at = HostPort { host: host.to_owned(), port };
    Ok((format!("{scheme}://{at}"), login))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_refused;
    use crate::net::credentials::Pem;

    fn parse(endpoints: &[&str]) -> Result<EtcdConfig, String> {
        EtcdConfig::parse(&Options::at(endpoints))
    }

    #[test]
    fn addresses_as_documented() {
        for (texts, urls) in [
            (&[] as &[&str], &["http://127.0.0.1:2379"] as &[&str]),
            (&["h"], &["http://h:2379"]),
            (&["h:1"], &["http://h:1"]),
            (&["http://h:1/"], &["http://h:1"]),
            (&["HTTPS://h"], &["https://h:2379"]),
            (&["etcd://h:1"], &["http://h:1"]),
            (&["[::1]:7"], &["http://[::1]:7"]),
            (&["[::1]"], &["http://[::1]:2379"]),
            (&["a:1, b:2,", "c:3"], &["http://a:1", "http://b:2", "http://c:3"]),
        ] {
            assert_eq!(parse(texts).expect("fine").endpoints, urls, "{texts:?}");
        }
    }

    #[test]
    fn tls_options_without_encryption_are_refused() {
        let name = Tls { server_name: Some("n".to_owned()), ..Tls::default() };
        let authority = Tls { authority: Some(Pem::new(Vec::new())), ..name.clone() };
        for tls in [name, authority] {
            let refused = EtcdConfig::parse(&Options { tls, ..Options::at(&["http://h"]) });
            assert_refused(refused, "encryption was asked for");
        }
    }

    #[test]
    fn bad_addresses_say_why() {
        for (text, part) in [
            ("h:x", "write HOST:PORT"),
            ("h:0", "write HOST:PORT"),
            (",", "is empty"),
            ("http://", "write HOST:PORT"),
            ("h/path", "write HOST:PORT"),
            ("::1", "write HOST:PORT"),
            ("ftp://h", "ftp://"),
            ("u:%zz@h", "%25"),
            ("u@h", "no password for the user u"),
        ] {
            assert_refused(parse(&[text]), part);
        }
    }

    #[test]
    fn login_in_options_overrides_the_one_in_addresses() {
        let login = |user: Option<&str>, password: Option<&str>, endpoint: &str| {
            let options = Options {
                user: user.map(str::to_owned),
                password: password.map(Secret::new),
                ..Options::at(&[endpoint])
            };
            let login = EtcdConfig::parse(&options).expect("fine").login;
            login.map(|(user, password)| format!("{user} {}", password.reveal().expect("given")))
        };
        assert_eq!(login(None, None, "h"), None);
        assert_eq!(login(None, None, "http://u:p%40%3A@h"), Some("u p@:".to_owned()));
        assert_eq!(login(Some("v"), Some("q"), "http://u:p@h"), Some("v q".to_owned()));
        assert_eq!(login(None, Some("q"), "http://u@h"), Some("u q".to_owned()));
        let options = Options { password: Some(Secret::new("p")), ..Options::default() };
        assert_refused(EtcdConfig::parse(&options), "no user");
    }

    #[test]
    fn certificates_mean_encryption() {
        let tls = Tls { authority: Some(Pem::new(b"x".to_vec())), ..Tls::default() };
        let with = |text: &str| EtcdConfig::parse(&Options { tls: tls.clone(), ..Options::at(&[text]) });
        assert_eq!(with("h:1").expect("fine").endpoints, ["https://h:1"]);
        assert_refused(with("http://h:1"), "write https://");
    }

    #[test]
    fn the_order_of_servers_makes_no_other_cluster() {
        let identity = |texts: &[&str]| parse(texts).expect("fine").identity();
        assert_eq!(identity(&["a:1,b:2"]), identity(&["b:2", "a:1"]));
        assert_ne!(identity(&["a:1"]), identity(&["a:2"]));
    }
}

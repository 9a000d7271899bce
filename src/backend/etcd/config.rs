//! The addresses of the servers, and the login.

use super::keys::Layout;
use crate::backend::Options;
use crate::net::address::{self, HostPort, Login, host_and_port, in_any_order, no_password_for};
use crate::net::cause::Manner;
use crate::net::credentials::{Secret, Tls};

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

/// One parsed address.
struct Endpoint {
    url: String,
    secure: bool,
    login: Login,
}

impl EtcdConfig {
    /// Parses the connection options without connecting. An error is one line without secrets.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let texts = options.endpoints.iter().flat_map(|text| text.split(','));
        let texts: Vec<&str> = texts.map(str::trim).filter(|text| !text.is_empty()).collect();
        let encrypt = options.tls.is_given();
        let mut endpoints = texts.iter().map(|t| endpoint(t, encrypt)).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            if !options.endpoints.is_empty() {
                return Err("the address of the etcd server is empty; write HOST:PORT".to_owned());
            }
            endpoints.push(endpoint(DEFAULT_HOST, encrypt)?);
        }
        if encrypt && let Some(open) = endpoints.iter().find(|e| !e.secure) {
            let url = &open.url;
            let has_files = options.tls.authority.is_some() || options.tls.identity.is_some();
            let given = if has_files { "certificates are" } else { "the name in a certificate is" };
            return Err(format!("{url} is not encrypted, but {given} given; write https://"));
        }
        let login = login(options, endpoints.iter().map(|endpoint| &endpoint.login))?;
        let mut urls: Vec<String> = Vec::new();
        for endpoint in endpoints {
            if !urls.contains(&endpoint.url) {
                urls.push(endpoint.url);
            }
        }
        let prefix = options.prefix.clone().unwrap_or_else(|| "dlock/".to_owned());
        let (encoded, tls) = (options.prefix.is_none(), options.tls.clone());
        Ok(Self { endpoints: urls, prefix, encoded, login, tls })
    }

    /// Returns the servers as users write them, without user and password.
    pub(super) fn servers(&self) -> String {
        self.endpoints.join(",")
    }

    pub(super) fn layout(&self) -> Layout {
        Layout { prefix: self.prefix.clone(), encoded: self.encoded }
    }

    /// Returns the cluster and the prefix as text, independent of the order of servers.
    pub(super) fn identity(&self) -> String {
        let hosts = in_any_order(self.endpoints.iter().map(|url| place(url)));
        format!("etcd:{hosts}|{}", self.prefix)
    }
}

/// Returns the login; options take precedence over addresses.
fn login<'a>(
    options: &Options,
    mut said: impl Iterator<Item = &'a Login>,
) -> Result<Option<(String, Secret)>, String> {
    let said = said.find(|login| login.user.is_some() || login.password.is_some());
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

fn endpoint(text: &str, encrypt: bool) -> Result<Endpoint, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "" | "etcd" => encrypt,
        "http" => false,
        "https" => true,
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
    let scheme = if secure { "https" } else { "http" };
    Ok(Endpoint { url: format!("{scheme}://{at}"), secure, login })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::options::assert_refused;
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
            (&["a:1, b:2,a:1", "c:3"], &["http://a:1", "http://b:2", "http://c:3"]),
        ] {
            assert_eq!(parse(texts).expect("fine").endpoints, urls, "{texts:?}");
        }
    }

    #[test]
    fn tls_options_without_encryption_are_refused() {
        let name = Tls { server_name: Some("n".to_owned()), ..Tls::default() };
        let authority = Tls { authority: Some(Pem::new(Vec::new())), ..name.clone() };
        for (tls, part) in
            [(name, "the name in a certificate is given"), (authority, "certificates are given")]
        {
            let refused = EtcdConfig::parse(&Options { tls, ..Options::at(&["http://h"]) });
            assert_refused(refused, part);
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

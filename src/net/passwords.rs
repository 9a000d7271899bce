//! Finds the passwords in addresses, in every form that a service accepts.

use std::ops::Range;

use super::address::{after, host_and_port, is_directory, taken_apart};

/// Characters that end a list of hosts.
const BEHIND_HOSTS: [char; 3] = ['/', '?', '#'];

/// The settings of an address that hold a password, in the programs that know one.
const SETTINGS: [&str; 2] = ["password=", "sslpassword="];

/// Returns the addresses in `endpoint`.
pub fn apart(endpoint: &str) -> Vec<String> {
    addresses(endpoint).into_iter().map(|at| endpoint[at].trim().to_owned()).collect()
}

/// Returns the ranges of the addresses in `endpoint`. A comma with a scheme behind it ends one. Any other comma belongs to
/// a list of hosts, or to a password.
fn addresses(endpoint: &str) -> Vec<Range<usize>> {
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphabetic() || c == '+');
    let begins = |at: &usize| {
        let address = endpoint[*at..].trim_start().split_once("://");
        address.is_some_and(|(scheme, _)| is_scheme(scheme))
    };
    let starts = endpoint.match_indices(',').map(|(comma, _)| comma + 1).filter(begins);
    let ends = starts.chain([endpoint.len() + 1]);
    let mut start = 0;
    ends.map(|next| std::mem::replace(&mut start, next)..next - 1).collect()
}

/// Returns whether one of the addresses in `endpoint` contains a password.
pub fn has_password(endpoint: &str) -> bool {
    !passwords(endpoint).is_empty()
}

/// Returns the addresses in `endpoint` with `***` in the place of each password.
pub fn without_passwords(endpoint: &str) -> String {
    let mut shown = String::with_capacity(endpoint.len());
    let mut end = 0;
    for password in passwords(endpoint) {
        shown.push_str(&endpoint[end..password.start]);
        shown.push_str("***");
        end = password.end;
    }
    shown.push_str(&endpoint[end..]);
    shown
}

/// Returns whether `reason`, a service's refusal of `endpoint`, may quote a password or a fragment of one.
pub fn may_be_quoted(endpoint: &str, reason: &str) -> bool {
    let is_told = |piece: &str| !piece.is_empty() && reason.contains(piece);
    passwords(endpoint).into_iter().map(|at| &endpoint[at]).any(|password| {
        let mut pieces = password.split(|c: char| !c.is_ascii_alphanumeric());
        let may_be_cut = password.contains(',') || password.contains(BEHIND_HOSTS);
        SETTINGS.iter().any(|name| reason.contains(name))
            || (may_be_cut && (reason.contains('"') || pieces.any(is_told)))
    })
}

/// Returns the ranges of the passwords, in order.
fn passwords(endpoint: &str) -> Vec<Range<usize>> {
    if is_directory(endpoint) || is_path(endpoint, "file:") {
        return Vec::new();
    }
    let within = |at: Range<usize>| {
        let found = in_address(&endpoint[at.clone()]).into_iter();
        found.map(move |found| at.start + found.start..at.start + found.end)
    };
    addresses(endpoint).into_iter().flat_map(within).collect()
}

/// Returns the ranges of the passwords in one address.
fn in_address(address: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let rest = behind_scheme(address);
    let start = address.len() - rest.len();
    let mut behind = 0;
    // A setting may contain an @. A ? that does not follow a list of hosts belongs to a password.
    let before = rest.split_once('?').filter(|(hosts, query)| names_hosts(hosts) && query.contains('='));
    if let Some((user, password, _)) = taken_apart(before.map_or(rest, |(hosts, _)| hosts))
        && !password.is_empty()
    {
        behind = user.len() + 1 + password.len();
        found.push(start + user.len() + 1..start + behind);
    }
    if let Some(query) = rest[behind..].find('?') {
        let mut at = behind + query + 1;
        for pair in rest[at..].split('&') {
            let end = at + pair.len();
            let password = SETTINGS.iter().find_map(|name| pair.strip_prefix(name));
            if let Some(password) = password.filter(|password| !password.is_empty()) {
                found.push(start + end - password.len()..start + end);
            }
            at = end + 1;
        }
    }
    found
}

/// Returns whether `text` is hosts with optional ports, with or without a login before and a path behind them.
fn names_hosts(text: &str) -> bool {
    let (has_login, rest) = text.rsplit_once('@').map_or((false, text), |(_, rest)| (true, rest));
    let hosts = rest.split(BEHIND_HOSTS).next().unwrap_or_default();
    !(has_login && hosts.is_empty()) && hosts.split(',').all(|host| host_and_port(host.trim()).is_ok())
}

/// Returns the text after the scheme, if there is one. A colon in the supposed scheme means a user and a password. The
/// path of a socket, up to a comma, is left out.
fn behind_scheme(address: &str) -> &str {
    if is_path(address.trim_start(), "unix:") {
        return address.split_once(',').map_or("", |(_, rest)| rest);
    }
    match address.split_once("://") {
        Some((scheme, rest)) if !scheme.contains([':', '@', '/', '?', ',']) => rest,
        _ => address,
    }
}

/// Returns whether `address` is a path behind `scheme`, which may contain any character.
fn is_path(address: &str, scheme: &str) -> bool {
    let path = after(address, scheme);
    path.is_some_and(|path| !path.starts_with("//") || path.starts_with("///"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::net::address::{Login, login};

    #[test]
    fn addresses_are_told_from_hosts_and_passwords() {
        for (endpoint, addresses) in [
            ("postgres://u@h1:1,h2:2/db", &["postgres://u@h1:1,h2:2/db"] as &[&str]),
            ("postgres://u@h1/db, Postgres://u@h2/db", &["postgres://u@h1/db", "Postgres://u@h2/db"]),
            ("mysql://u:p,mysql:w@h/db", &["mysql://u:p,mysql:w@h/db"]),
            ("mysql://u:a,b@h1/db,mysql://u:c@h2/db", &["mysql://u:a,b@h1/db", "mysql://u:c@h2/db"]),
            ("zk://h1,zk://h2/x", &["zk://h1", "zk://h2/x"]),
            ("", &[""]),
            (",", &[","]),
        ] {
            assert_eq!(apart(endpoint), addresses, "{endpoint}");
        }
    }

    #[test]
    fn passwords_in_addresses_are_replaced_and_nothing_else() {
        for (url, shown) in [
            ("redis://u:p@h:1/0", "redis://u:***@h:1/0"),
            ("redis://:p@h", "redis://:***@h"),
            ("h:1,http://u:p@h", "h:1,http://u:***@h"),
            ("postgres://h/db?x=1&password=p&y=2", "postgres://h/db?x=1&password=***&y=2"),
            ("redis://u:p@ss@h", "redis://u:***@h"),
            ("unix:/run/x?db=2", "unix:/run/x?db=2"),
            ("/var/tmp/a:b@c", "/var/tmp/a:b@c"),
            ("redis://u:a/b@h/1", "redis://u:***@h/1"),
            ("postgres://u:a#b,c@h,i:2/d?user=x@y", "postgres://u:***@h,i:2/d?user=x@y"),
            ("http://u:a?b@h,http://v@i:1", "http://u:***@h,http://v@i:1"),
            ("redis://h/0?password=a@b", "redis://h/0?password=***"),
            ("unix:/run/x,redis://u:a,b@h,i", "unix:/run/x,redis://u:***@h,i"),
            ("redis+sentinel://u:a,b@h:1,i/m", "redis+sentinel://u:***@h:1,i/m"),
            ("zk://u:a/b@h:1", "zk://u:***@h:1"),
            ("zk://u:a@b/c@h:1", "zk://u:***@h:1"),
            ("u:a://b@h", "u:***@h"),
            ("postgres://h/d?sslpassword=p", "postgres://h/d?sslpassword=***"),
        ] {
            assert_eq!(without_passwords(url), shown);
            assert_eq!(has_password(url), shown != url, "{url}");
        }
    }

    #[test]
    fn addresses_without_a_password_are_told_from_others() {
        assert!(has_password("u:p@h:2379") && has_password("unix:/run/x,u:p@h"));
        assert!(has_password(".u:p@h") && has_password("file://u:p@h/x"));
        for url in [
            "redis://u@h:1",
            "/var/tmp/a:b@c",
            "../a:b@c",
            "file:/a:b@c,d:e@f",
            "file:///a:b@c",
            "unix:/run/x",
            "unix:///run/a:b@c?db=2",
            "h:2379",
            "redis://u:@h",
            "p?password=",
            "http://u@h:1,http://u@i:2",
            "postgres://h:5432,i:5433/d?user=a@b",
            "mysql://h:3306/d?socket=/run/a@b",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    proptest! {
        #[test]
        fn every_password_form_of_a_service_is_detected(
            scheme in select(&["redis://", "REDISS://", "http://", "memcached://", "", "postgres://",
                               "mariadb://", "zk://", "redis+sentinel://", "redis+cluster://"][..]),
            user in "[a-z.@]{0,3}",
            between in prop_oneof!["[0-9:/?#&=,.;%-]{0,6}", "[0-9:/#@&=.;%-]{0,6}"],
            rest in "(h|h:1|\\[::1\\]:7)(/d)?(\\?x=1)?",
        ) {
            let text = format!("{user}:hun{between}ter2@{rest}");
            if let Ok((Login { password: Some(_), .. }, found)) = login(&text) {
                prop_assert_eq!(found, &rest);
                let url = format!("{scheme}{text}");
                prop_assert!(has_password(&url), "{}", url);
                let shown = without_passwords(&url);
                prop_assert!(!shown.contains("hun") && !shown.contains("ter2"), "{} of {}", shown, url);
                prop_assert!(shown.ends_with(&rest), "{} of {}", shown, url);
            }
        }
    }
}

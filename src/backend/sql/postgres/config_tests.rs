//! The results of addresses and the environment.

use super::*;
use crate::backend::assert_refused;

fn alone() -> Environment {
    Environment { variable: |_| None, home: None, user: Some("me".into()) }
}

/// Returns the value of the variable `name` in `all`.
fn value(all: &[(&str, &str)], name: &str) -> Option<String> {
    all.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
}

fn parsed(endpoints: &[&str], around: &Environment) -> PgConfig {
    PgConfig::within(&Options::at(endpoints), around).expect("valid")
}

#[test]
fn addresses_are_read_as_documented() {
    for (endpoints, identity) in [
        (&["postgres://h"] as &[&str], "postgres://h:5432/me"),
        (&["postgresql://you@h:7/d"], "postgres://h:7/d"),
        (&["POSTGRES://you@h:7"], "postgres://h:7/you"),
        (&["h:7/d"], "postgres://h:7/d"),
        (&["postgres://b:2,a/d"], "postgres://a:5432,b:2/d"),
        (&["postgres://b:2/d", "postgres://a/d"], "postgres://a:5432,b:2/d"),
        (&["postgres://[::1]:7/d"], "postgres://[::1]:7/d"),
        (&["postgres://%2Frun%2Fpg:7/d"], "postgres:///run/pg/.s.PGSQL.7/d"),
        (&["postgres:///d?host=/run/pg&port=8"], "postgres:///run/pg/.s.PGSQL.8/d"),
    ] {
        assert_eq!(parsed(endpoints, &alone()).identity(), identity, "{endpoints:?}");
    }
}

#[test]
fn missing_settings_come_from_libpq_variables() {
    let variable = |name: &str| {
        let all = [
            ("PGHOST", "a,b"),
            ("PGPORT", "1,2"),
            ("PGUSER", "u"),
            ("PGDATABASE", "d"),
            ("PGPASSWORD", "p"),
            ("PGSSLMODE", "disable"),
        ];
        value(&all, name)
    };
    let around = Environment { variable, ..alone() };
    let config = parsed(&[], &around);
    assert_eq!((config.identity().as_str(), config.user.as_str()), ("postgres://a:1,b:2/d", "u"));
    assert_eq!(config.mode, PgMode::Disable);
    assert_eq!(config.places[1].password, Some(Secret::new("p")));
    let config = parsed(&["postgres://x@h:9/e?sslmode=require"], &around);
    assert_eq!((config.identity().as_str(), config.user.as_str()), ("postgres://h:9/e", "x"));
    assert_eq!(config.mode, PgMode::Require);
}

#[test]
fn numeric_addresses_belong_to_their_hosts() {
    let variable = |name: &str| value(&[("PGHOST", "a,b"), ("PGHOSTADDR", "127.0.0.1,")], name);
    let around = Environment { variable, ..alone() };
    let addresses: Vec<_> = parsed(&[], &around).places.iter().map(|place| place.address).collect();
    assert_eq!(addresses, [Some("127.0.0.1".parse().expect("an address")), None]);
    let one = PgConfig::within(&Options::at(&["postgres://h/d"]), &around);
    assert_refused(one, "hostaddr (PGHOSTADDR) has 2 addresses for 1 hosts");
    let config = parsed(&["postgres:///d?hostaddr=127.0.0.1&options=-c%20x.y=z"], &alone());
    assert_eq!(
        (config.identity().as_str(), config.options.as_deref()),
        ("postgres://127.0.0.1:5432/d", Some("-c x.y=z"))
    );
}

#[test]
fn a_login_is_taken_off_and_stays_secret() {
    let config = parsed(&["postgres://me:p%40ss@h/d"], &alone());
    assert_eq!(config.places[0].password, Some(Secret::new("p@ss")));
    assert!(!format!("{config:?}{}", config.identity()).contains("p@ss"));
    let given = Options { user: Some("you".into()), ..Options::at(&["postgres://me@h"]) };
    assert_eq!(PgConfig::within(&given, &alone()).expect("valid").user, "you");
}

#[test]
fn option_names_an_authority_and_enables_verification() {
    let tls = Tls { server_name: Some("x".into()), ..Tls::default() };
    let given = Options { tls, ..Options::at(&["postgres://h/d"]) };
    assert_eq!(PgConfig::within(&given, &alone()).expect("valid").mode, PgMode::VerifyFull);
    let contradiction = Options { tls: given.tls, ..Options::at(&["postgres://h/d?sslmode=disable"]) };
    assert_refused(PgConfig::within(&contradiction, &alone()), "not to encrypt");
    assert_eq!(parsed(&["postgres://h/d"], &alone()).mode, PgMode::Prefer);
}

#[test]
fn settings_of_libpq_are_obeyed_taken_or_refused() {
    let config =
        |settings: &str| PgConfig::within(&Options::at(&[&format!("postgres://h/d?{settings}")]), &alone());
    let taken = "application_name=ci&connect_timeout=10&keepalives_idle=30&gssencmode=prefer&sslcertmode=allow&\
                 target_session_attrs=read-write&requiressl=0&sslsni=1&max_protocol_version=latest&krbsrvname=";
    assert_eq!(config(taken).expect("taken"), config("").expect("plain"));
    assert_eq!(config("ssl=true").expect("JDBC").mode, PgMode::Require);
    assert_eq!(config("requiressl=1").expect("old").mode, PgMode::Require);
    assert_eq!(config("channel_binding=require").expect("obeyed").binding, ChannelBinding::Require);
    let password = config("password=s%20p").expect("obeyed").places[0].password.clone();
    assert_eq!(password, Some(Secret::new("s p")));
    for (settings, part) in [
        ("target_session_attrs=read-only", "target_session_attrs asks for something that dlock does not do"),
        ("gssencmode=require", "set it to disable or prefer"),
        ("require_auth=scram-sha-256", "leave it out"),
        ("sslpassword=secret", "sslpassword asks"),
        ("channel_binding=on", "disable, prefer and require"),
        ("sslcert=/dev/null", "without its key"),
        ("sslkey=/nonexistent", "sslkey"),
    ] {
        assert_refused(config(settings), part);
    }
}

#[test]
fn invalid_address_is_refused_with_reason() {
    for (endpoint, part) in [
        ("postgres://h:x", "not HOST:PORT"),
        ("postgres://h/d?sslmode=on", "not an sslmode"),
        ("postgres://h/d?slmode=disable", "no setting"),
        ("postgres://%zz@h", "hexadecimal"),
        ("postgres://[::1/d", "not HOST:PORT"),
    ] {
        assert_refused(PgConfig::within(&Options::at(&[endpoint]), &alone()), part);
    }
}

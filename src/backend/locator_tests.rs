//! The choice of the service, and refusals.

use super::*;

/// Returns the service and the place of the options.
fn said(backend: Option<&str>, endpoints: &[&str]) -> Result<(&'static str, String), String> {
    let endpoints: Vec<String> = endpoints.iter().map(|e| (*e).to_owned()).collect();
    let backend = backend.map(str::to_owned);
    match parse(&Options { backend, endpoints, ..Options::default() }) {
        Ok(address) => Ok((address.service().name, address.place())),
        Err(error) => Err(error),
    }
}

#[test]
fn a_scheme_or_a_name_leads_to_the_service() {
    for (backend, endpoints, service, place) in [
        (None, &["/run/locks"] as &[&str], "file", "/run/locks"),
        (None, &["FILE:///run/locks"], "file", "/run/locks"),
        (Some("file"), &["file:/run/locks"], "file", "/run/locks"),
        (None, &["https://h"], "etcd", "https://h:2379"),
        (Some("etcd"), &[], "etcd", "http://127.0.0.1:2379"),
        (Some("etcd"), &["a:1,b"], "etcd", "http://a:1,http://b:2379"),
        (None, &["REDIS://h/3"], "redis", "redis://h:6379/3"),
        (
            None,
            &["redis://a,redis://b", "redis://c"],
            "redis",
            "redis://a:6379/0,redis://b:6379/0,redis://c:6379/0",
        ),
        (None, &["zk://h:1"], "zk", "zk://h:1"),
        (Some("zk"), &["a,b/c"], "zk", "zk://a:2181,b:2181/c"),
        (Some("zk"), &[], "zk", "zk://localhost:2181"),
        (None, &["postgresql://u@h/d"], "postgres", "postgres://h:5432/d"),
        (Some("postgres"), &["u@h:7/d"], "postgres", "postgres://h:7/d"),
    ] {
        assert_eq!(said(backend, endpoints), Ok((service, place.to_owned())), "{endpoints:?}");
    }
    assert_eq!(said(None, &[]).map(|(service, _)| service), Ok("file"));
}

#[test]
fn schemes_of_other_programs_are_answered_with_the_one_to_write() {
    for (endpoint, near) in [
        ("postgresql+psycopg2://h/d", "did you mean postgresql?"),
        ("mysql+pymysql://h/d", "did you mean mysql?"),
    ] {
        let error = said(None, &[endpoint]).expect_err("refused");
        assert!(error.contains(near), "{error}");
    }
}

#[test]
fn omitted_service_is_named() {
    let error = refuse_left_out(|name, _| name == "etcd").expect_err("left out");
    assert_eq!(error, "this dlock was built without etcd: build it with the feature etcd");
}

#[test]
fn optional_services_match_their_directories() {
    let optional = OPTIONAL.iter().copied();
    assert!(SERVICES[1..].iter().map(|service| (service.name, service.schemes)).eq(optional));
}

#[test]
fn no_two_services_have_one_name_or_scheme() {
    let names: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
    let schemes: Vec<&str> = SERVICES.iter().flat_map(|service| service.schemes).copied().collect();
    for all in [names, schemes] {
        for (at, one) in all.iter().enumerate() {
            let clash = |other: &&str| other.starts_with(one) || one.starts_with(*other);
            assert!(!all[..at].iter().any(clash) && *one == one.to_ascii_lowercase(), "{one}");
        }
    }
}

#[test]
fn options_of_other_services_are_useless() {
    let names = |backend: &str, endpoints: &[&str]| -> Vec<&'static str> {
        let options = Options { backend: Some(backend.to_owned()), ..Options::at(endpoints) };
        let address = parse(&options).expect("an address");
        useless(&*address).collect()
    };
    let login = ["user", "password-file", "cacert", "cert", "key", "tls-server-name"];
    assert_eq!(names("file", &[]), [&login as &[_], &["max-ttl", "zk-layout"]].concat());
    assert_eq!(names("etcd", &[]), ["allow-network-fs", "max-ttl", "zk-layout"]);
    assert_eq!(names("redis", &[]), ["allow-network-fs", "max-ttl", "zk-layout"]);
    assert_eq!(names("redis", &["a,b,c"]), ["allow-network-fs", "zk-layout"]);
    assert_eq!(names("zk", &[]), ["allow-network-fs", "max-ttl"]);
    assert_eq!(names("mysql", &["h/d"]), ["allow-network-fs", "max-ttl", "zk-layout"]);
}

#[test]
fn possible_database_is_not_taken_for_a_directory() {
    assert_eq!(said(Some("redis"), &["/3"]), Ok(("redis", "redis://localhost:6379/3".to_owned())));
    for (endpoint, is) in
        [("/no-such-database", false), ("h/d", false), ("/d?host=/run", false), ("/a/b", true)]
    {
        assert_eq!(is_directory(endpoint), is, "{endpoint}");
    }
}

#[test]
fn every_address_in_the_readme_leads_to_a_service() {
    let text = include_str!("../../README.md");
    let in_table = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let in_table = in_table.filter_map(|row| row.split('`').next()).filter(|cell| cell.contains(':'));
    let exported = text.lines().filter_map(|line| line.strip_prefix("export DLOCK_ENDPOINT="));
    let exported =
        exported.flat_map(str::split_ascii_whitespace).map(|word| word.trim_end_matches([',', ';']));
    let exported = exported.filter(|word| word.contains(':') && !word.contains('…'));
    let said = text.split("--endpoint ").skip(1).filter_map(|rest| rest.split_ascii_whitespace().next());
    let said = said.filter(|word| word.contains([':', '/'])).map(|word| word.trim_end_matches(['`', '.']));
    let (in_table, exported, said): (Vec<_>, Vec<_>, Vec<_>) =
        (in_table.collect(), exported.collect(), said.collect());
    assert!(
        in_table.len() > 5 && !exported.is_empty() && said.len() > 1,
        "{in_table:?} {exported:?} {said:?}"
    );
    for address in [in_table, exported, said].concat() {
        let options = Options { endpoints_in: Some("the environment"), ..Options::at(&[address]) };
        assert_eq!(parse(&options).map(|_| ()), Ok(()), "{address}");
    }
}

#[test]
fn invalid_address_is_refused_with_reason() {
    for (backend, endpoints, part) in [
        (None, &["redis://h:x"] as &[&str], "not HOST:PORT"),
        (
            None,
            &["h:1"],
            "h:1 could be a server or a directory: name the service with --backend, or write ./h:1",
        ),
        (None, &["10.0.0.1:2379,10.0.0.2:2379"], "name the service with --backend"),
        (None, &["u:secret@h"], "h could be a server or a directory"),
        (Some("fil"), &[], "did you mean file?"),
        (Some("consul"), &[], "; the backends are file, etcd, redis, zk, mysql, postgres and memcached"),
        (Some("redis"), &["/run/locks"], "/run/locks is a directory, not an address of the backend redis"),
        (Some("etcd"), &["./locks"], "./locks is a directory"),
        (Some("mysql"), &["/"], "/ is a directory"),
        (None, &["redis://a,http://b"], "endpoints of two services are given, redis and etcd"),
        (None, &["zk://a", "b,mysql://b/d"], "endpoints of two services are given, zk and mysql"),
        (None, &["rediz://h"], "did you mean redis?"),
        (None, &["redis://h,rediz://h"], "no backend has addresses with rediz://"),
        (Some("file"), &["http://h:1"], "an address of etcd does not lead to the backend file"),
    ] {
        let error = said(backend, endpoints).expect_err("an error");
        assert!(error.contains(part) && !error.contains('\n') && !error.contains("secret"), "{error}");
    }
}

//! Addresses and the other sources of the configuration.

use super::*;
use crate::backend::assert_refused;
use crate::backend::sql::dialect::Dialect as _;
use crate::net::credentials::Tls;

/// A file that the test removes.
struct Cnf(PathBuf);

impl Cnf {
    fn new(text: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dlock-config-{}-{n}.cnf", std::process::id()));
        std::fs::write(&path, text).expect("writes");
        Self(path)
    }
}

impl Drop for Cnf {
    fn drop(&mut self) {
        // A file left behind does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn config_of(options: &Options, cnf: &str, variables: &[(&str, &str)]) -> Result<Database, String> {
    let file = Cnf::new(cnf);
    let variable = |name: &str| {
        let found = variables.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Mysql::within(options, std::slice::from_ref(&file.0), &variable).map(|mysql| mysql.0)
}

fn identity(database: &Database) -> String {
    Mysql(database.clone()).identity()
}

fn password(database: &Database) -> Option<Secret> {
    database.servers[0].password.clone()
}

fn config(endpoint: &str) -> Database {
    config_of(&Options::at(&[endpoint]), "", &[]).expect(endpoint)
}

#[test]
fn addresses_are_read_as_documented() {
    for (endpoint, found, user) in [
        ("mysql://u@h/d", "mysql://h:3306/d", "u"),
        ("MariaDB://u@h:7/d", "mysql://h:7/d", "u"),
        ("u@h/d", "mysql://h:3306/d", "u"),
        ("mysql://u@[::1]:7/d", "mysql://[::1]:7/d", "u"),
        ("mysql://u@b:1,a/d", "mysql://a:3306,b:1/d", "u"),
        ("mysql://u%40x:p%2Fq@h/d", "mysql://h:3306/d", "u@x"),
        ("mysql://u@localhost:3307/d", "mysql://localhost:3307/d", "u"),
        ("mysql://u@/d?socket=/run/x.sock", "mysql:///run/x.sock/d", "u"),
    ] {
        let config = config(endpoint);
        assert_eq!((identity(&config).as_str(), config.user.as_str()), (found, user), "{endpoint}");
    }
    let several = config_of(&Options::at(&["mysql://u@b/d", "mysql://u@a"]), "", &[]).expect("one database");
    assert_eq!(identity(&several), "mysql://a:3306,b:3306/d");
    assert_eq!(several.servers[0].place.to_string(), "b:3306", "tried in the order given");
}

const CNF: &str = "[client]\nuser=filed\npassword=from file\nhost=filehost\nport=3310\n\
                   socket=/run/file.sock\n[mysql]\ndatabase=filebase\n";

#[test]
fn missing_address_parts_come_from_option_files() {
    let found =
        config_of(&Options::default(), CNF, &[("MYSQL_HOST", "no"), ("MYSQL_PWD", "no")]).expect("valid");
    assert_eq!(identity(&found), "mysql://filehost:3310/filebase");
    assert_eq!(found.user, "filed");
    assert!(password(&found).is_some());
    // The address takes precedence, and a port in a file does not apply to the address's host alone.
    let said = Options::at(&["mysql://u:p@h:1/d"]);
    let found = config_of(&said, CNF, &[]).expect("valid");
    assert_eq!((identity(&found).as_str(), found.user.as_str()), ("mysql://h:1/d", "u"));
    assert_eq!(password(&found), Some(Secret::new("p")));
    let given = Options { user: Some("o".into()), password: Some(Secret::new("w")), ..said };
    let found = config_of(&given, CNF, &[]).expect("valid");
    assert_eq!((found.user.as_str(), password(&found)), ("o", Some(Secret::new("w"))));
}

#[test]
fn missing_settings_come_from_the_environment() {
    let variables =
        [("MYSQL_HOST", "e"), ("MYSQL_TCP_PORT", "9"), ("MYSQL_UNIX_PORT", "/e.sock"), ("MYSQL_PWD", "w")];
    let found = config_of(&Options::at(&["/d"]), "", &variables).expect("valid");
    assert_eq!(identity(&found), "mysql://e:9/d");
    assert_eq!(password(&found), Some(Secret::new("w")));
    let found = config_of(&Options::at(&["mysql://localhost/d"]), "", &variables).expect("valid");
    assert_eq!(found.servers[0].place, Place::Socket("/e.sock".into()));
}

#[test]
fn localhost_is_the_socket_unless_a_port_is_said() {
    let place = |endpoint: &str, cnf: &str| {
        config_of(&Options::at(&[endpoint]), cnf, &[]).expect(endpoint).servers[0].place.clone()
    };
    let socket = Place::Socket("/run/file.sock".into());
    let tcp = |port| Place::Tcp(HostPort { host: "localhost".into(), port });
    let file = "[client-server]\nsocket=/run/file.sock\nport=5\n";
    assert_eq!(place("mysql://localhost/d", file), socket);
    assert_eq!(place("/d", file), socket);
    assert_eq!(place("mysql://localhost:3306/d", file), tcp(3306));
    assert_eq!(place("/d", &format!("{file}protocol=TCP\n")), tcp(5));
}

#[test]
fn encryption_is_as_strict_as_it_was_said() {
    let mode = |endpoint: &str, cnf: &str| {
        let mode = config_of(&Options::at(&[endpoint]), cnf, &[]).expect(endpoint).mode;
        format!("{mode:?}")
    };
    assert_eq!(mode("mysql://127.0.0.1/d", ""), "Disabled");
    assert_eq!(mode("mysql://db.example/d", ""), "Preferred");
    assert_eq!(mode("mysql://u:p@127.0.0.1/d", ""), "Disabled");
    assert_eq!(mode("mysql://u:p@db.example/d", ""), "Required");
    assert_eq!(mode("mysql://u:p@db.example/d?ssl-mode=preferred", ""), "Preferred");
    assert_eq!(mode("mysql://db.example/d?ssl-mode=verify_ca", ""), "VerifyCa");
    assert_eq!(mode("mysql://db.example/d?ssl-mode=REQUIRED", "[client]\nskip-ssl\n"), "Required");
    assert_eq!(mode("mysql://db.example/d", "[client]\nskip-ssl\n"), "Disabled");
    assert_eq!(mode("mysql://h/d", "[client]\nssl-mode=VERIFY_IDENTITY\n"), "VerifyIdentity");
    for (value, found) in [
        ("", "VerifyIdentity"),
        ("=1", "VerifyIdentity"),
        ("=On", "VerifyIdentity"),
        ("=TRUE", "VerifyIdentity"),
        ("=0", "Preferred"),
        ("=False", "Preferred"),
    ] {
        let file = format!("[client]\nssl-verify-server-cert{value}\n");
        assert_eq!(mode("mysql://h/d", &file), found, "{value}");
    }
}

#[test]
fn invalid_address_is_refused_with_reason() {
    for (endpoints, cnf, part) in [
        (&["mysql://u@h"] as &[&str], "", "no database is named"),
        (&["mysql://u@h:x/d"], "", "not HOST:PORT"),
        (&["mysql://a@h/d", "mysql://b@i/d"], "", "different users"),
        (&["mysql://h/d", "mysql://i/e"], "", "different databases"),
        (&["mysql://h/d?sslmod=required"], "", "no setting \"sslmod\""),
        (&["mysql://h/d?ssl-mode=yes"], "", "not an ssl-mode"),
        (&["mysql://%zz@h/d"], "", "hexadecimal"),
        (&["mysql://u:secret@h/d"], "[client]\nssl-ca=/nonexistent\n", "/nonexistent"),
        (&["mysql://u:secret@h/d"], "[client]\nssl-cert=/dev/null\n", "without the other"),
        (&["mysql://u:secret@/d"], "[client]\nport=x\n", "is not a port"),
    ] {
        assert_refused(config_of(&Options::at(endpoints), cnf, &[]), part);
    }
    let tls = Tls { server_name: Some("x".into()), ..Tls::default() };
    assert_refused(
        config_of(&Options { tls, ..Options::at(&["mysql://h/d"]) }, "", &[]),
        "--tls-server-name",
    );
    let prefix = Some("ops.dlock_".to_owned());
    assert!(
        config_of(&Options { prefix, ..Options::at(&["mysql://h"]) }, "", &[]).is_ok(),
        "it names the database"
    );
}

#[test]
fn a_password_of_an_option_file_is_read_when_it_is_needed() {
    let file = Cnf::new("[client]\npassword=old\n");
    let found = Mysql::within(&Options::at(&["h/d"]), std::slice::from_ref(&file.0), &|_| None);
    let found = password(&found.expect("valid").0).expect("one");
    assert_eq!(found, Secret::new("old"));
    std::fs::write(&file.0, "[client]\npassword=new\n").expect("writes");
    assert_eq!(found, Secret::new("new"));
    std::fs::write(&file.0, "").expect("writes");
    assert!(found.reveal().is_err_and(|fault| fault.is_transient()));
}

#[test]
fn settings_of_applications_are_ignored() {
    let parsed = |query: &str| config_of(&Options::at(&[&format!("mysql://h/d?{query}")]), "", &[]);
    for query in
        ["charset=utf8mb4", "connection_limit=5&parseTime=true", "serverTimezone=UTC&ssl_mode=required"]
    {
        assert!(parsed(query).is_ok(), "{query}");
    }
    assert_refused(parsed("sslmod=required"), "has no setting");
}

//! One MariaDB: rights, encryption, and messages.

use std::path::Path;

use crate::servers::{Server, free_port, mariadb};
use crate::site::{looked, run_with};
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv};

pub(super) fn env_at(endpoint: String) -> TestEnv {
    TestEnv::on(Service { backend: "mysql", endpoint, prefix: None })
}

pub(super) fn env_on(server: &Server) -> TestEnv {
    env_at(mariadb::address(server.port()))
}

/// Creates a user with these rights on the test's database. Returns an environment with its address.
fn user(server: &Server, name: &str, password: &str, rights: &str) -> TestEnv {
    let base = mariadb::DATABASE;
    mariadb::ask(
        server,
        &format!(
            "CREATE USER {name}@'%' IDENTIFIED BY '{password}'; GRANT {rights} ON {base}.* TO {name}@'%'"
        ),
    );
    env_at(format!("mysql://{name}@127.0.0.1:{}/{base}", server.port()))
}

#[test]
fn missing_create_permission_error_shows_the_schema_command() {
    let server = mariadb::start();
    let env = user(&server, "poor", "", "SELECT, INSERT, UPDATE, DELETE");
    run_with(&env, &[]).failed(77, &["doctor --schema"]).said_one_line(&["denied"]);
    // `status` creates no tables.
    assert_eq!(env.status("x")["holders"].as_array().map(Vec::len), Some(0));
    let schema = env.finish(&mut env.verb("doctor", ["--schema"])).silently(0).text();
    mariadb::ask(&server, &format!("USE {};\n{schema}", mariadb::DATABASE));
    run_with(&env, &[]).silently(0);
    env.assert_free("x");
    // A user without rights on the tables is refused, too.
    mariadb::ask(
        &server,
        &format!("CREATE USER poorer@'%'; GRANT SELECT ON {}.dlock_lock TO poorer@'%'", mariadb::DATABASE),
    );
    let poorer = env_at(format!("mysql://poorer@127.0.0.1:{}/{}", server.port(), mariadb::DATABASE));
    run_with(&poorer, &[]).failed(77, &["doctor --schema"]);
    for line in schema.lines().filter_map(|line| line.split_once("GRANT ")) {
        let grant = line.1.replace("'USER'", "poorer");
        mariadb::ask(&server, &format!("USE {}; GRANT {grant}", mariadb::DATABASE));
    }
    run_with(&poorer, &[]).silently(0);
}

#[test]
fn unusable_tables_are_named_by_doctor() {
    let server = mariadb::start();
    let env = env_on(&server);
    run_with(&env, &[]).silently(0);
    let whole = looked(&env);
    assert!(!whole.contains("tables are") && !whole.contains("the engine of"), "{whole}");
    let base = mariadb::DATABASE;
    let rights = |table: &str| format!("GRANT SELECT, INSERT, UPDATE ON {base}.{table} TO poor@'%';");
    mariadb::ask(&server, &format!("CREATE USER poor@'%';{}{}", rights("dlock_lock"), rights("dlock_claim")));
    let said = looked(&env_at(format!("mysql://poor@127.0.0.1:{}/{base}", server.port())));
    assert!(said.contains("DELETE command denied") && said.contains("doctor --schema"), "{said}");
    mariadb::ask(&server, &format!("ALTER TABLE {base}.dlock_claim ENGINE = MyISAM"));
    let said = looked(&env);
    for part in ["the engine of dlock_claim is MyISAM", "two can hold one lock", "ENGINE = InnoDB"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("the engine of dlock_lock"), "{said}");
}

/// A server in the middle would receive the password, unless the user insists on encryption.
#[test]
fn password_is_not_sent_in_cleartext_over_a_network_by_default() {
    let server = mariadb::start();
    user(&server, "ci", "right", "ALL");
    // An address of this host that does not look like a loopback address.
    let at =
        |query: &str| env_at(format!("mysql://ci@0.0.0.0:{}/{}{query}", server.port(), mariadb::DATABASE));
    let password = [("DLOCK_PASSWORD", Path::new("right"))];
    run_with(&at(""), &password).failed(77, &["does not speak TLS", "?ssl-mode=preferred"]);
    run_with(&at("?ssl-mode=preferred"), &password).silently(0);
}

/// A Galera cluster of one.
fn galera() -> Server {
    let free = free_port();
    let listen =
        format!("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{free};pc.recovery=false");
    mariadb::start_with(&[
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-node-address=127.0.0.1",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        &listen,
    ])
}

#[test]
fn several_writable_servers_are_refused_and_one_is_not() {
    let node = galera();
    run_with(&env_on(&node), &[]).silently(0);
    let port = node.port();
    let several = env_at(format!("mysql://root@127.0.0.1:{port},localhost:{port}/locks"));
    run_with(&several, &[]).failed(64, &["Galera", "name one server"]);
}

#[test]
fn row_binary_log_is_accepted_and_statement_log_refused() {
    let server = mariadb::start_with(&["--log-bin=log", "--binlog-format=ROW"]);
    let env = env_on(&server);
    run_with(&env, &[]).silently(0);
    env.assert_free("x");
    mariadb::ask(&server, "SET GLOBAL binlog_format = STATEMENT");
    run_with(&env, &[]).failed(69, &["binlog_format = ROW"]);
}

#[test]
fn risky_settings_are_warned_of() {
    let server = mariadb::start_with(&["--innodb-flush-log-at-trx-commit=2"]);
    let env = env_on(&server);
    let holder = env.held(&["-v", "--name", "x"]);
    let setting = "innodb_flush_log_at_trx_commit";
    until_true("a warning", || holder.running.err_so_far().contains("innodb_flush_log_at_trx_commit = 1"));
    assert_eq!(holder.release().code(), Some(0));
    let said = looked(&env);
    for part in ["MariaDB 1", setting, "note: a claim counts on the database's clock"] {
        assert!(said.contains(part), "{said}");
    }
}

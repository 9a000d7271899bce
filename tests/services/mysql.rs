//! One MariaDB: rights, encryption, and messages.

use std::fs;
use std::path::Path;

use crate::servers::{Server, certificates, free_port, mariadb, shared_folder};
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
fn users_and_passwords_let_in_and_wrong_ones_do_not() {
    let server = mariadb::start();
    let env = user(&server, "ci", "right", "ALL");
    let refused = run_with(&env, &[]).failed(77, &["--password-file", "MYSQL_PWD", "~/.my.cnf"]);
    assert!(!refused.err.contains("right"), "{}", refused.err);
    run_with(&env, &[("DLOCK_PASSWORD", Path::new("right"))]).silently(0);
    run_with(&env, &[("MYSQL_PWD", Path::new("right"))]).silently(0);
    run_with(&env, &[("DLOCK_PASSWORD", Path::new("wr0ng")), ("MYSQL_PWD", Path::new("right"))])
        .failed(77, &["Access denied"])
        .said_one_line(&["mysql"]);
    // The directory of the environment is the home of its programs.
    env.write(".my.cnf", "[client]\npassword = \"right\" # not wr0ng\n");
    run_with(&env, &[("MYSQL_PWD", Path::new("wr0ng"))]).silently(0);
}

#[test]
fn defaults_come_from_my_cnf_and_mysql_variables() {
    let server = mariadb::start();
    let env = TestEnv::on(Service { backend: "mysql", endpoint: String::new(), prefix: None });
    let port = server.port().to_string();
    let with = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = env.dlock(words.iter().copied());
        env.finish(command.envs(variables.iter().copied()))
    };
    let run = ["run", "--backend", "mysql", "--name", "x", "--", "true"];
    with(&[], &run).failed(64, &["no database is named"]);
    let base = mariadb::DATABASE;
    env.write(".my.cnf", &format!("[mysql]\ndatabase={base}\n[client]\nuser=root\nprotocol=tcp\n"));
    let around = [("MYSQL_HOST", "127.0.0.1"), ("MYSQL_TCP_PORT", port.as_str())];
    with(&around, &run).silently(0);
    let seen = with(&around, &["doctor", "--backend", "mysql"]);
    assert!(seen.text().contains("MariaDB 1") && seen.text().contains(&port), "{}", seen.text());
    let socket = mariadb::socket(&server).display().to_string();
    env.write(".my.cnf", &format!("[client]\nuser=root\nsocket={socket}\n[mysqld]\nuser=nobody\n"));
    let mut local =
        env.dlock(["run", "--endpoint", &format!("mysql://localhost/{base}"), "--name", "x", "--", "true"]);
    env.finish(&mut local).silently(0);
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
    assert!(!whole.contains("tables are"), "{whole}");
    let base = mariadb::DATABASE;
    let rights = |table: &str| format!("GRANT SELECT, INSERT, UPDATE ON {base}.{table} TO poor@'%';");
    mariadb::ask(&server, &format!("CREATE USER poor@'%';{}{}", rights("dlock_lock"), rights("dlock_claim")));
    let said = looked(&env_at(format!("mysql://poor@127.0.0.1:{}/{base}", server.port())));
    assert!(said.contains("DELETE command denied") && said.contains("doctor --schema"), "{said}");
}

#[test]
fn encryption_with_a_private_authority_and_a_client_certificate() {
    let folder = certificates::folder();
    let file = |name: &str| folder.join(name);
    let option = |option: &str, name: &str| format!("--{option}={}", file(name).display());
    let options =
        [option("ssl-ca", "ca.pem"), option("ssl-cert", "server.pem"), option("ssl-key", "server.key")];
    let server = mariadb::start_with(&options.each_ref().map(String::as_str));
    mariadb::ask(&server, "CREATE USER tls@'%' REQUIRE X509; GRANT ALL ON locks.* TO tls@'%'");
    let at = |query: &str| env_at(format!("mysql://tls@127.0.0.1:{}/locks{query}", server.port()));
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let all = [("DLOCK_CACERT", ca.as_path()), ("DLOCK_CERT", &cert), ("DLOCK_KEY", &key)];
    let env = at("");
    run_with(&env, &all).silently(0);
    run_with(&env, &all[..1]).failed(77, &["Access denied"]);
    let named = [&all[..], &[("DLOCK_TLS_SERVER_NAME", Path::new("other.test"))]].concat();
    run_with(&env, &named).failed(64, &["--tls-server-name"]);
    run_with(&at("?ssl-mode=required"), &[]).failed(77, &["Access denied"]);
    env.write(
        ".my.cnf",
        &format!(
            "[client]\nssl-ca={}\nssl-cert={}\nssl-key={}\n",
            ca.display(),
            cert.display(),
            key.display()
        ),
    );
    run_with(&env, &[]).silently(0);
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

#[test]
fn read_only_server_is_passed_over() {
    let (server, other) = (mariadb::start(), mariadb::start());
    mariadb::ask(&server, "SET GLOBAL read_only = 1");
    // dlock does not write there even as a user that `read_only` does not bind.
    run_with(&env_on(&server), &[]).failed(69, &["is read-only"]);
    assert_eq!(mariadb::ask(&server, "SHOW TABLES IN locks"), "");
    let both = |first: &Server, second: &Server| {
        env_at(format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/locks", first.port(), second.port()))
    };
    for env in [both(&server, &other), both(&other, &server)] {
        run_with(&env, &[]).silently(0);
        env.assert_free("x");
    }
    assert_eq!(mariadb::ask(&server, "SHOW TABLES IN locks"), "");
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
fn a_full_server_is_waited_for() {
    let server = mariadb::start_with(&["--max-connections=10"]);
    let env = user(&server, "ci", "", "ALL");
    run_with(&env, &[]).silently(0);
    // A client that finds no room tries again.
    let script =
        "until mariadb --no-defaults --user=ci --host=127.0.0.1 --port=$0 --execute 'SELECT SLEEP(600)'
        do sleep 0.1; done";
    let port = server.port().to_string();
    let guest = || env.start(env.command("sh").args(["-c", script, &port]));
    let guests: Vec<_> = (0..10).map(|_| guest()).collect();
    let full =
        "SELECT COUNT(*) = 10 FROM information_schema.PROCESSLIST WHERE USER = 'ci' AND INFO LIKE '%SLEEP%'";
    until_true("a full server", || mariadb::ask(&server, full) == "1\n");
    run_with(&env, &[]).failed(69, &["Too many connections"]);
    let waiter = env.start(&mut env.run(["-q", "-w", "20s", "--name", "x", "--", "true"]));
    env.finish(&mut env.run(["-w", "1s", "--name", "x", "--", "true"])).failed(69, &["Too many connections"]);
    for guest in guests {
        guest.signal(rustix::process::Signal::KILL);
        guest.finish();
    }
    mariadb::ask(&server, "KILL USER ci");
    let ended = waiter.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
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

#[test]
fn missing_socket_is_an_error_with_its_path() {
    let missing = shared_folder("mysql").join("none.sock");
    let env = env_at(format!("mysql://me@/d?socket={}", missing.display()));
    run_with(&env, &[]).failed(69, &["none.sock"]);
    fs::remove_dir(missing.parent().expect("a directory")).expect("removes");
}

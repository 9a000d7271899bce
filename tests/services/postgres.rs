//! One PostgreSQL: rights, encodings, and messages.

use std::fs;
use std::path::Path;

use crate::causes::secure;
use crate::servers::postgres::{self, Postgres};
use crate::site::{looked, run_with};
use crate::support::wait::until_true;
use crate::support::{Finished, Service, TestEnv};

pub(super) fn env_at(endpoint: String) -> TestEnv {
    TestEnv::on(Service { backend: "postgres", endpoint, prefix: None })
}

pub(super) fn env_on(server: &Postgres) -> TestEnv {
    env_at(server.address())
}

/// Starts a server that gives no cause for a warning.
pub(super) fn start() -> Postgres {
    postgres::start_with(&["fsync=on"])
}

/// Makes `lines` the access rules. The superuser is admitted where they do not apply.
fn admit(server: &Postgres, lines: &str) {
    let all = format!("{lines}\nhost all all 127.0.0.1/32 trust\nlocal all all trust\n");
    fs::write(server.data().join("pg_hba.conf"), all).expect("writes");
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    let valid = "SELECT count(*) FROM pg_hba_file_rules WHERE error IS NOT NULL";
    assert_eq!(server.sql(valid), "0");
}

/// Waits until the server's processes have read the new rules.
fn await_refusal(env: &TestEnv) -> Finished {
    until_true("the new rules", || run_with(env, &[]).code() != Some(0));
    run_with(env, &[])
}

#[test]
fn users_and_passwords_let_in_and_wrong_ones_do_not() {
    let server = start();
    server.sql("CREATE ROLE ci LOGIN PASSWORD 'right'");
    server.sql("CREATE DATABASE ci OWNER ci");
    admit(&server, "host all ci 127.0.0.1/32 scram-sha-256");
    let env = env_at(format!("postgres://ci@127.0.0.1:{}/ci", server.port()));
    let refused = await_refusal(&env).failed(77, &["--password-file", "PGPASSWORD"]);
    assert!(!refused.err.contains("right"), "{}", refused.err);
    run_with(&env, &[("DLOCK_PASSWORD", Path::new("right"))]).silently(0);
    run_with(&env, &[("PGPASSWORD", Path::new("right"))]).silently(0);
    run_with(&env, &[("DLOCK_PASSWORD", Path::new("wr0ng")), ("PGPASSWORD", Path::new("right"))])
        .failed(77, &["password authentication failed"])
        .said_one_line(&["postgres"]);
    // The directory of the environment is the home of its programs.
    let file = env.write(".pgpass", &format!("other:*:*:*:no\n127.0.0.1:{}:ci:ci:right\n", server.port()));
    let mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("sets");
    };
    mode(0o644);
    run_with(&env, &[]).failed(77, &["--password-file", "~/.pgpass (mode 0600)"]);
    mode(0o600);
    run_with(&env, &[]).silently(0);
    let elsewhere = env.path("elsewhere");
    fs::rename(&file, &elsewhere).expect("moves");
    run_with(&env, &[("PGPASSFILE", &elsewhere)]).silently(0);
}

#[test]
fn libpq_variables_are_taken_and_services_refused() {
    let server = start();
    server.sql("CREATE SCHEMA ops");
    let env = TestEnv::on(Service { backend: "postgres", endpoint: String::new(), prefix: None });
    let port = server.port().to_string();
    let with = |variables: &[(&str, &str)]| {
        let mut command = env.dlock(["run", "--backend", "postgres", "-n", "--name", "x", "--", "true"]);
        let usual = [("PGPORT", port.as_str()), ("PGUSER", "postgres"), ("PGDATABASE", "postgres")];
        env.finish(command.envs(usual).envs(variables.iter().copied()))
    };
    // The name cannot be resolved, and dlock does not try.
    let there = [("PGHOST", "db.invalid"), ("PGHOSTADDR", "127.0.0.1")];
    with(&[&there[..], &[("PGOPTIONS", "-c search_path=ops")]].concat()).silently(0);
    assert_eq!(server.sql("SELECT count(*) FROM ops.dlock_lock"), "1");
    with(&[("PGSERVICE", "ops")]).failed(64, &["service=ops (PGSERVICE) asks for"]);
}

#[test]
fn a_socket_of_this_host_leads_to_the_same_locks() {
    let folder = crate::servers::shared_folder("postgres-socket");
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("sets");
    let directory = folder.to_str().expect("UTF-8");
    let server = postgres::start_with(&["fsync=on", &format!("unix_socket_directories={directory}")]);
    let port = server.port();
    let (tcp, unix) = (
        env_on(&server),
        env_at(format!("postgres://postgres@{}:{port}/postgres", directory.replace('/', "%2F"))),
    );
    let holder = unix.held(&["--name", "x"]);
    tcp.assert_busy("x");
    holder.release().silently(0);
    tcp.assert_free("x");
    fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn missing_create_permission_error_shows_the_schema_command() {
    let server = start();
    server.sql("CREATE ROLE poor LOGIN");
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let env = env_at(format!("postgres://poor@127.0.0.1:{}/postgres", server.port()));
    run_with(&env, &[]).failed(77, &["doctor --schema"]).said_one_line(&["permission denied"]);
    // `status` creates no tables.
    assert_eq!(env.status("x")["holders"].as_array().map(Vec::len), Some(0));
    let schema = env.finish(&mut env.verb("doctor", ["--schema"])).silently(0);
    let text = schema.text();
    let script = env.write("schema.sql", &text);
    server.script("postgres", &script);
    run_with(&env, &[]).failed(77, &["doctor --schema"]);
    let grant = text.lines().find_map(|line| line.split_once("GRANT ")).expect("the rights").1;
    server.sql(&format!("GRANT {}", grant.replace("USER", "poor")));
    run_with(&env, &[]).silently(0);
    env.assert_free("x");
}

#[test]
fn unusable_tables_are_named_by_doctor() {
    let server = start();
    let env = env_on(&server);
    run_with(&env, &[]).silently(0);
    assert!(!looked(&env).contains("tables are"), "{}", looked(&env));
    server.sql("CREATE ROLE poor LOGIN");
    server.sql("GRANT SELECT, INSERT, UPDATE ON dlock_lock, dlock_claim TO poor");
    let poor = env_at(format!("postgres://poor@127.0.0.1:{}/postgres", server.port()));
    let said = looked(&poor);
    assert!(said.contains("permission denied") && said.contains("doctor --schema"), "{said}");
}

#[test]
fn encryption_with_a_private_authority_and_a_client_certificate() {
    let file = |name: &str| secure::folder().join(name);
    let server = secure::tls_postgres("server");
    server.sql("CREATE ROLE client LOGIN SUPERUSER");
    admit(&server, "hostssl all client 127.0.0.1/32 cert\nhostnossl all client 127.0.0.1/32 reject");
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let all = [("DLOCK_CACERT", ca.as_path()), ("DLOCK_CERT", &cert), ("DLOCK_KEY", &key)];
    let env = env_at(format!("postgres://client@127.0.0.1:{}/postgres", server.port()));
    until_true("encryption", || run_with(&env, &all).code() == Some(0));
    let misnamed = [&all[..], &[("DLOCK_TLS_SERVER_NAME", Path::new("other.test"))]].concat();
    run_with(&env, &misnamed).failed(77, &["its certificate is for 127.0.0.1, not other.test"]);
    // The server does not admit a client without a certificate.
    run_with(&env, &all[..1]).failed(77, &["certificate"]);
    let as_psql = [
        ("PGSSLMODE", Path::new("verify-ca")),
        ("PGSSLROOTCERT", &ca),
        ("PGSSLCERT", &cert),
        ("PGSSLKEY", &key),
    ];
    run_with(&env, &as_psql).silently(0);
    // No setting mentions encryption. dlock uses it if the server can.
    run_with(&env, &as_psql[2..]).silently(0);
}

#[test]
fn another_encoding_and_a_locked_row_are_borne() {
    let server = start();
    server.sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'");
    let env = env_at(server.address_of("latin"));
    let name = "日本 \\' \"; x--";
    let holder = env.held(&["--name", name, "--label", "ü\\'日"]);
    let shown = env.status(name);
    assert_eq!((&shown["lock"], &shown["holders"][0]["label"]), (&name.into(), &"ü\\'日".into()));
    let mut waiter = env.hold(&["--name", name, "-q"]);
    env.await_waiters(name, 1);
    holder.release().silently(0);
    waiter.await_start();
    waiter.release().silently(0);
    // Longer than the limit of a session for waiting for a row, which is longer than the server's setting.
    let sleeper = "BEGIN; SELECT fence FROM dlock_lock FOR UPDATE; SELECT pg_sleep(7); COMMIT";
    let mut psql = env.command("psql");
    let sleeper = env.start(psql.args([&server.address_of("latin"), "-Xqc", sleeper]));
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    until_true("a lock on the row", || server.sql(asleep) == "1");
    // dlock may report that no server has answered yet.
    assert_eq!(env.finish(&mut env.run(["-w", "20s", "--name", name, "--", "true"])).code(), Some(0));
    sleeper.finish();
}

#[test]
fn risky_settings_are_warned_of() {
    let server = postgres::start();
    let env = env_on(&server);
    let holder = env.held(&["-v", "--name", "x"]);
    until_true("a warning", || holder.running.err_so_far().contains("fsync = on"));
    assert_eq!(holder.release().code(), Some(0));
    let said = looked(&env);
    for part in ["PostgreSQL 1", "fsync is off", "note: a claim counts on the database's clock"] {
        assert!(said.contains(part), "{said}");
    }
}

/// The planner takes a table for empty if it was empty when it was last vacuumed. Two indexes then look alike to it. It
/// once read the whole of the index that does not begin with the name, in each statement about one lock.
#[test]
fn a_step_does_not_read_the_entries_of_other_locks() {
    let server = postgres::start_with(&["autovacuum=off"]);
    let env = env_on(&server);
    env.finish(&mut env.run(["-q", "--name", "x", "--", "true"])).silently(0);
    let others = "INSERT INTO dlock_claim (name, seq, claim, mode, since, lease_until, about) \
                  SELECT 'other' || n, 1, lpad(n::text, 32, '0'), 'exclusive', 0, 9e18, '' \
                  FROM generate_series(1, 20000) n";
    server.sql(others);
    server.sql("DELETE FROM dlock_claim");
    // VACUUM does not truncate a table in use.
    server.sql("VACUUM (ANALYZE, TRUNCATE off) dlock_claim");
    server.sql(others);
    let sessions = "SELECT count(*) FROM pg_stat_activity \
                    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let counts = "SELECT sum(idx_scan), sum(idx_blks_hit + idx_blks_read) \
                  FROM pg_stat_user_indexes JOIN pg_statio_user_indexes USING (indexrelid) \
                  WHERE pg_stat_user_indexes.relname = 'dlock_claim'";
    let count = || {
        // A session reports its counts at its end, which is after that of its client.
        until_true("the end of the other sessions", || server.sql(sessions) == "0");
        let text = server.sql(counts);
        let (scans, pages) = text.split_once('|').expect("two numbers");
        (scans.parse::<u64>().expect("a number"), pages.parse::<u64>().expect("a number"))
    };
    let before = count();
    env.finish(&mut env.run(["-q", "--name", "x", "--", "true"])).silently(0);
    let after = count();
    assert!(after.0 >= before.0 + 3, "{} scans", after.0 - before.0);
    let read = after.1 - before.1;
    assert!(read < 100, "{read} pages of indexes were read for a run on a free lock");
}

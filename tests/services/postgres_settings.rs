//! The settings of a PostgreSQL server and of libpq: their effect on dlock, and their demands on a connection.

use std::path::Path;
use std::time::Duration;

use crate::causes::secure;
use crate::postgres::{env_at, env_on, start};
use crate::postgres_many::pooler;
use crate::servers::postgres::Postgres;
use crate::site::run_with;
use crate::sql_settings;
use crate::support::wait::let_pass;

#[test]
fn libpq_demands_are_obeyed_and_neutral_settings_accepted() {
    let server = secure::tls_postgres("first");
    server.sql("CREATE ROLE bound LOGIN SUPERUSER PASSWORD 'right'");
    secure::admit(&server, "hostssl all bound 127.0.0.1/32 scram-sha-256");
    let run = |user: &str, settings: &str, variables: &[(&'static str, &'static str)]| {
        let env = env_at(format!("postgres://{user}@127.0.0.1:{}/postgres?{settings}", server.port()));
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, Path::new(*value))).collect();
        run_with(&env, &variables)
    };
    let taken = "connect_timeout=10&application_name=ci&target_session_attrs=read-write";
    run("postgres", taken, &[("PGTARGETSESSIONATTRS", "any"), ("PGAPPNAME", "ci")]).silently(0);
    let right = [("PGPASSWORD", "right")];
    // The certificate is of X.509 version 1, and nothing checks it.
    for settings in ["", "sslmode=require", "channel_binding=prefer"] {
        run("bound", settings, &right).silently(0);
    }
    run("bound", "sslmode=disable", &right).failed(77, &[]);
    run("bound", "channel_binding=require", &right).failed(64, &["channel_binding=require", "leave it out"]);
    run("postgres", "", &[("PGREQUIREAUTH", "scram-sha-256")]).failed(64, &["PGREQUIREAUTH) asks for"]);
}

/// Settings that another program may want, for every session of a role.
const SETTINGS: [&str; 20] = [
    "statement_timeout = '1s'",
    "lock_timeout = '1s'",
    "idle_in_transaction_session_timeout = '1s'",
    "idle_session_timeout = '1s'",
    "default_transaction_read_only = on",
    "default_transaction_isolation = serializable",
    "default_transaction_deferrable = on",
    "exit_on_error = on",
    "standard_conforming_strings = off",
    "transform_null_equals = on",
    "synchronous_commit = off",
    "row_security = off",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = sql_standard",
    "timezone = 'Pacific/Auckland'",
    "bytea_output = escape",
    "client_min_messages = debug5",
    "extra_float_digits = -15",
    "quote_all_identifiers = on",
    "enable_indexscan = off",
];

/// Sets them for the database and for its superuser.
fn set_badly(server: &Postgres) {
    let all = SETTINGS.iter().map(|setting| format!("ALTER ROLE postgres SET {setting};"));
    let all = all.chain(SETTINGS.iter().map(|setting| format!("ALTER DATABASE postgres SET {setting};")));
    server.sql(&all.collect::<Vec<_>>().concat());
}

#[test]
fn settings_for_other_programs_change_nothing() {
    let server = start();
    let env = env_on(&server);
    let risks = sql_settings::risks(&env);
    set_badly(&server);
    sql_settings::assert_all_works(&env, || {
        let asked = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'dlock'";
        let before = server.sql(asked);
        let_pass(Duration::from_secs(4));
        assert_eq!(server.sql(asked), before, "a time limit ended a connection");
    });
    assert_eq!(sql_settings::risks(&env), risks);
    assert_eq!(server.sql("SELECT count(*) FROM dlock_claim WHERE name < '~'"), "0");
}

#[test]
fn settings_for_other_programs_change_nothing_behind_a_pooler() {
    let server = start();
    set_badly(&server);
    let pooler = pooler(&server);
    let env = env_at(format!("postgres://postgres@127.0.0.1:{}/postgres", pooler.port()));
    sql_settings::assert_all_works(&env, || let_pass(Duration::from_secs(2)));
    // The settings of a dlock session must not stay in a connection of the pool.
    let asked = env
        .command("psql")
        .args(["-XAtq", "-U", "postgres", "-h", "127.0.0.1", "-p", &pooler.port().to_string()])
        .args(["-c", "SHOW statement_timeout", "postgres"])
        .output()
        .expect("psql runs");
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "1s\n");
}

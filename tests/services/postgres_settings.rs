//! What libpq's settings demand of a connection to PostgreSQL, and what becomes of a login over TLS.

use std::path::Path;

use crate::causes::secure;
use crate::postgres::{env_at, run_with};

#[test]
fn what_libpq_demands_is_obeyed_and_what_changes_nothing_is_taken() {
    let [pem, key, ca] = ["server.pem", "server.key", "ca.pem"].map(secure::file);
    let server = secure::tls_postgres(&pem, &key, &ca);
    server.sql("CREATE ROLE bound LOGIN SUPERUSER PASSWORD 'right'");
    secure::admit(&server, "hostssl all bound 127.0.0.1/32 scram-sha-256");
    let run = |user: &str, settings: &str, variables: &[(&'static str, &'static str)]| {
        let env = env_at(format!("postgres://{user}@127.0.0.1:{}/postgres?{settings}", server.port()));
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, Path::new(*value))).collect();
        run_with(&env, &variables)
    };
    let taken = "connect_timeout=10&application_name=ci&target_session_attrs=read-write&keepalives_idle=30";
    run("postgres", taken, &[("PGTARGETSESSIONATTRS", "any"), ("PGAPPNAME", "ci")]).silently(0);
    let right = [("PGPASSWORD", "right")];
    for settings in ["channel_binding=require", "channel_binding=prefer", "channel_binding=disable"] {
        run("bound", settings, &right).silently(0);
    }
    run("bound", "sslmode=disable", &right).failed(77, &[]);
    run("bound", "sslmode=disable", &[right[0], ("PGREQUIRESSL", "1")]).failed(77, &[]);
    // Nobody asks postgres for a password, so nothing binds its login.
    for variables in
        [&[("PGCHANNELBINDING", "require")][..], &[("PGCHANNELBINDING", "require"), ("PGREQUIRESSL", "1")]]
    {
        run("postgres", "", variables)
            .failed(77, &["channel_binding=require asks for a login that is bound"]);
    }
    run("postgres", "", &[("PGREQUIREAUTH", "scram-sha-256")]).failed(64, &["PGREQUIREAUTH asks for"]);
}

#[test]
fn where_nobody_is_checked_a_certificate_of_version_one_is_taken_and_binds_no_login() {
    let [pem, key, ca] = ["first.pem", "server.key", "ca.pem"].map(secure::file);
    let server = secure::tls_postgres(&pem, &key, &ca);
    server.sql("CREATE ROLE bound LOGIN SUPERUSER PASSWORD 'right'");
    secure::admit(&server, "hostssl all bound 127.0.0.1/32 scram-sha-256");
    let at =
        |settings: &str| env_at(format!("postgres://bound@127.0.0.1:{}/postgres?{settings}", server.port()));
    let right = [("PGPASSWORD", Path::new("right"))];
    for settings in ["", "sslmode=require"] {
        run_with(&at(settings), &right).silently(0);
    }
    run_with(&at("channel_binding=require"), &right).failed(77, &["channel_binding=require asks for"]);
}

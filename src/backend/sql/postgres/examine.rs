//! The risks of this PostgreSQL.

use std::sync::Arc;

use super::config::PgConfig;
use crate::backend::Risk;
use crate::backend::facts::{Rule, risks, when, with};
use crate::backend::sql::dialect::Session;
use crate::backend::sql::examine::Facts;
use crate::backend::sql::rows::properties;
use crate::backend::sql::tables::Tables;
use crate::net::fault::{Fault, FaultResult};

/// The type of other users' processes is hidden from most users; those count as connections, too.
const QUESTION: &str = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'server_version_num', \
     'fsync', 'full_page_writes', 'max_connections', 'synchronous_standby_names') \
     UNION ALL SELECT 'read_only', CASE WHEN pg_is_in_recovery() THEN 'ON' ELSE 'OFF' END \
     UNION ALL SELECT 'free', (current_setting('max_connections')::int \
     - current_setting('superuser_reserved_connections')::int - count(*))::text \
     FROM pg_stat_activity WHERE datid IS NOT NULL \
     AND coalesce(backend_type, 'client backend') = 'client backend' \
     UNION ALL SELECT 'standbys', count(*)::text FROM pg_stat_replication;";

/// Returns a query for the schemas with such tables, if there are several and none was named.
fn schemas(tables: &Tables) -> String {
    let (None, [_, claim]) = tables.bare() else { return String::new() };
    format!(
        "SELECT 'schemas', string_agg(n.nspname, ' and ' ORDER BY n.nspname) FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relname = '{claim}' AND c.relkind IN ('r', 'p') HAVING count(*) > 1;"
    )
}

const RISKS: &[Rule<Facts>] = &[
    Rule::open_password(
        |f| with(f.open_password.as_ref()?),
        "set sslmode=verify-full, or require, in the address",
    ),
    Rule::warning(
        |f| when(f.server.is("fsync", "off")?),
        "fsync is off, so a crash of the database's host can give a lock twice",
        "set fsync = on",
    ),
    Rule::warning(
        |f| when(f.server.is("full_page_writes", "off")?),
        "full_page_writes is off, so a crash of the database's host can give a lock twice",
        "set full_page_writes = on",
    ),
    Rule::warning(
        |f| when(f.server.number("standbys")? > 0 && f.server.is("synchronous_standby_names", "")?),
        "its standbys are asynchronous, so a failover can give a lock twice and make tokens go backwards",
        "set synchronous_standby_names",
    ),
    Rule::warning(
        |f| with(f.server.text("schemas")?),
        "its schemas {0} have tables for locks: clients with different search paths use different locks",
        "name the schema, the same for all clients: --prefix SCHEMA.dlock_",
    ),
    Rule::warning(
        |f| when(!f.notifies),
        "a connection pooler in between cannot pass on messages, so waiters poll every 500 ms",
        "connect to the server itself",
    ),
];

/// Returns the facts about the server of `session`, and the risks of PostgreSQL alone.
pub(super) async fn examine(
    config: &PgConfig,
    session: &Arc<dyn Session>,
) -> FaultResult<(Facts, Vec<Risk>)> {
    let server = properties(session.run(&[QUESTION, &schemas(&config.tables)].concat()).await?);
    let version = server.text("server_version").ok_or_else(|| Fault::nonsense("no version"))?;
    let is_old = server.number("server_version_num").is_some_and(|number| number < 130_000);
    let facts = Facts {
        name: format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()),
        database: config.database.clone(),
        too_old: is_old.then_some("PostgreSQL 13"),
        free: server.number("free"),
        open_password: config.open_password().map(ToString::to_string),
        notifies: session.can_notify(),
        server,
    };
    let mut found = risks(RISKS, &facts);
    let ignored = config.ignored.iter();
    found.extend(ignored.map(|why| Risk::warning(why.clone(), "make it a plain file with the mode 0600")));
    Ok((facts, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing::{properties, warnings};

    #[test]
    fn each_risk_is_named_and_nothing_of_unknown_facts() {
        for (told, part) in [
            (&[] as &[(&str, &str)], ""),
            (&[("fsync", "on"), ("standbys", "0"), ("synchronous_standby_names", "")], ""),
            (&[("fsync", "off")], "fsync is off"),
            (&[("schemas", "a and b")], "its schemas a and b have"),
            (&[("full_page_writes", "off")], "full_page_writes is off"),
            (&[("standbys", "1"), ("synchronous_standby_names", "")], "asynchronous"),
            (&[("standbys", "1"), ("synchronous_standby_names", "a")], ""),
        ] {
            let facts = Facts { server: properties(told), notifies: true, ..Facts::default() };
            let found = warnings(RISKS, &facts);
            assert_eq!(found.len(), usize::from(!part.is_empty()), "{told:?}: {found:?}");
            assert!(found.iter().all(|what| what.contains(part)), "{told:?}: {found:?}");
        }
    }
}

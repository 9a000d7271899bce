//! The risks of this MySQL or MariaDB.

use std::sync::Arc;

use super::config::MysqlConfig;
use super::text;
use crate::backend::Risk;
use crate::backend::facts::{Properties, Rule, risks, version, when, with};
use crate::backend::sql::dialect::Session;
use crate::backend::sql::examine::Facts;
use crate::backend::sql::rows::properties;
use crate::backend::sql::tables::Tables;
use crate::net::fault::{Fault, FaultResult};

const QUESTION: &str = "SELECT 'own session', @dlock_session <=> CONNECTION_ID();\
     SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', 'wsrep_on', \
     'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'max_connections', \
     'group_replication_single_primary_mode', 'log_bin');\
     SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'Threads_connected', 'Slaves_connected', \
     'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients');";

/// Returns a query for the tables with an engine without transactions.
fn engines(tables: &Tables) -> String {
    let (schema, names) = tables.bare();
    let schema = schema.map_or_else(|| "DATABASE()".to_owned(), text);
    format!(
        "SELECT 'engine', GROUP_CONCAT(CONCAT(t.table_name, ' is ', t.engine) SEPARATOR ' and that of ') \
         FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine \
         WHERE t.table_schema = {schema} AND t.table_name IN ({}) AND NOT e.transactions <=> 'YES';",
        names.map(|name| text(&name)).join(", ")
    )
}

/// Returns whether a replica confirms what it receives; `None` if the server returned no counts at all. A server
/// without the plugin for semi-synchronous replication returns only other counts.
fn has_synchronous_replica(server: &Properties) -> Option<bool> {
    server.number("Threads_connected")?;
    let counts = ["Rpl_semi_sync_master_clients", "Rpl_semi_sync_source_clients"];
    Some(counts.iter().any(|name| server.number(name).is_some_and(|count| count > 0)))
}

const RISKS: &[Rule<Facts>] = &[
    Rule::warning(
        |f| when(!matches!(f.server.text("innodb_flush_log_at_trx_commit")?, "1" | "3")),
        "innodb_flush_log_at_trx_commit is not 1, so a crash of the database's host can give a lock twice",
        "set innodb_flush_log_at_trx_commit = 1",
    ),
    Rule::warning(
        |f| when(f.server.is("innodb_doublewrite", "OFF")?),
        "innodb_doublewrite is off, so a crash of the database's host can damage the tables",
        "set innodb_doublewrite = ON, unless the file system writes pages whole",
    ),
    Rule::warning(
        |f| when(f.server.is("wsrep_on", "ON")? && f.server.number("wsrep_cluster_size")? > 1),
        "it is a node of a Galera cluster: two of dlock's users at different nodes can hold one lock",
        "name the same single node everywhere, and let no proxy spread the connections",
    ),
    Rule::warning(
        |f| when(f.server.is("group_replication_single_primary_mode", "OFF")?),
        "every server of its group takes writes: two of dlock's users at different ones can hold one lock",
        "name the same single server everywhere, or use the single-primary mode",
    ),
    Rule::warning(
        |f| when(f.server.number("Slaves_connected")? > 0 && !has_synchronous_replica(&f.server)?),
        "its replicas are asynchronous, so a failover can give a lock twice and make tokens go backwards",
        "use semi-synchronous replication",
    ),
    Rule::note(
        |f| {
            let none_known = f.server.number("Slaves_connected").is_none_or(|count| count == 0);
            when(f.server.is("log_bin", "ON")? && none_known && !has_synchronous_replica(&f.server)?)
        },
        "a failover to an asynchronous replica can give a lock twice and make tokens go backwards",
    ),
    Rule::open_password(
        |f| with(f.open_password.as_ref()?),
        "set ssl-mode=verify_identity, or required, in the address",
    ),
    Rule::warning(
        |f| with(f.server.text("engine")?),
        "the engine of {0}, which has no transactions, so two can hold one lock",
        "ALTER TABLE ... ENGINE = InnoDB, while no lock is used",
    ),
    Rule::warning(
        |f| when(!f.notifies),
        "a proxy in between gives each statement another connection, so waiters poll every 500 ms",
        "connect to the server itself",
    ),
];

/// Returns the facts about the server of `session`, and the risks of MySQL and MariaDB alone.
pub(super) async fn examine(
    config: &MysqlConfig,
    session: &Arc<dyn Session>,
) -> FaultResult<(Facts, Vec<Risk>)> {
    let server = properties(session.run(&[QUESTION, &engines(&config.tables)].concat()).await?);
    let told = server.text("version").ok_or_else(|| Fault::nonsense("no version"))?;
    let plain = told.split('-').find(|part| part.contains('.') && *part != "5.5.5").unwrap_or(told);
    let (kind, oldest, least) = if told.contains("MariaDB") {
        ("MariaDB", "MariaDB 10.5", [10, 5, 0])
    } else {
        ("MySQL", "MySQL 8.0", [8, 0, 0])
    };
    let [all, taken] = ["max_connections", "Threads_connected"].map(|name| server.number(name));
    let facts = Facts {
        name: format!("{kind} {plain}"),
        database: config.database.as_deref().unwrap_or("named by the prefix").to_owned(),
        too_old: version(plain).filter(|known| *known < least).map(|_| oldest),
        free: all.zip(taken).map(|(all, taken)| all.saturating_sub(taken)),
        open_password: config.open_password().map(ToString::to_string),
        notifies: server.is("own session", "1") == Some(true),
        server,
    };
    let risks = risks(RISKS, &facts);
    Ok((facts, risks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing::{properties, warnings};

    #[test]
    fn each_risk_is_named_and_nothing_of_unknown_facts() {
        for (told, part) in [
            (&[] as &[(&str, &str)], ""),
            (&[("innodb_flush_log_at_trx_commit", "1"), ("wsrep_on", "ON"), ("wsrep_cluster_size", "1")], ""),
            (&[("innodb_flush_log_at_trx_commit", "2")], "trx_commit is not 1"),
            (&[("innodb_doublewrite", "OFF")], "doublewrite is off"),
            (&[("wsrep_on", "ON"), ("wsrep_cluster_size", "3")], "Galera"),
            (&[("group_replication_single_primary_mode", "OFF")], "every server of its group"),
            (&[("Slaves_connected", "1")], ""),
            (&[("Threads_connected", "2"), ("Slaves_connected", "1")], "asynchronous"),
            (
                &[
                    ("Threads_connected", "2"),
                    ("Slaves_connected", "1"),
                    ("Rpl_semi_sync_master_clients", "1"),
                ],
                "",
            ),
        ] {
            let facts = Facts { server: properties(told), notifies: true, ..Facts::default() };
            let found = warnings(RISKS, &facts);
            assert_eq!(found.len(), usize::from(!part.is_empty()), "{told:?}: {found:?}");
            assert!(found.iter().all(|what| what.contains(part)), "{told:?}: {found:?}");
        }
    }
}

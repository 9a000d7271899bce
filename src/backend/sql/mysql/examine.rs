//! The risks of this MySQL or MariaDB.

use crate::backend::facts::{Properties, Rule, version, when};
use crate::backend::sql::dialect::{Facts, Product};

pub(super) const QUESTION: &str = "SELECT 'own session', @dlock_session <=> CONNECTION_ID();\
     SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', 'wsrep_on', \
     'innodb_flush_log_at_trx_commit', 'group_replication_single_primary_mode');\
     SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'Slaves_connected', \
     'Rpl_semi_sync_master_clients');";

pub(super) const RISKS: &[Rule<Facts>] = &[
    Rule::warning(
        |f| when(!matches!(f.server.text("innodb_flush_log_at_trx_commit")?, "1" | "3")),
        "innodb_flush_log_at_trx_commit is not 1, so a crash of the database's host can give a lock twice",
        "set innodb_flush_log_at_trx_commit = 1",
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
    // MySQL does not report its replicas in this way.
    Rule::warning(
        |f| {
            when(
                f.server.number("Slaves_connected")? > 0
                    && f.server.number("Rpl_semi_sync_master_clients")? == 0,
            )
        },
        "its replicas are asynchronous, so a failover can give a lock twice and make tokens go backwards",
        "use semi-synchronous replication",
    ),
];

pub(super) fn product(server: &Properties) -> Option<Product> {
    let told = server.text("version")?;
    let plain = told.split('-').find(|part| part.contains('.') && *part != "5.5.5").unwrap_or(told);
    let (kind, oldest, least) = if told.contains("MariaDB") {
        ("MariaDB", "MariaDB 10.5", [10, 5, 0])
    } else {
        ("MySQL", "MySQL 8.0", [8, 0, 0])
    };
    Some((format!("{kind} {plain}"), version(plain).filter(|known| *known < least).map(|_| oldest)))
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
            (&[("wsrep_on", "ON"), ("wsrep_cluster_size", "3")], "Galera"),
            (&[("group_replication_single_primary_mode", "OFF")], "every server of its group"),
            (&[("Slaves_connected", "1")], ""),
            (&[("Slaves_connected", "1"), ("Rpl_semi_sync_master_clients", "0")], "asynchronous"),
            (&[("Slaves_connected", "1"), ("Rpl_semi_sync_master_clients", "1")], ""),
        ] {
            let facts = Facts { server: properties(told), ..Facts::default() };
            let found = warnings(RISKS, &facts);
            assert_eq!(found.len(), usize::from(!part.is_empty()), "{told:?}: {found:?}");
            assert!(found.iter().all(|what| what.contains(part)), "{told:?}: {found:?}");
        }
    }
}

//! The risks of this PostgreSQL.

use crate::backend::facts::{Properties, Rule, when};
use crate::backend::sql::dialect::{Facts, Product};

pub(super) const QUESTION: &str = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'server_version_num', \
     'fsync', 'synchronous_standby_names') \
     UNION ALL SELECT 'read_only', CASE WHEN pg_is_in_recovery() THEN 'ON' ELSE 'OFF' END \
     UNION ALL SELECT 'standbys', count(*)::text FROM pg_stat_replication;";

pub(super) const RISKS: &[Rule<Facts>] = &[
    Rule::warning(
        |f| when(f.server.is("fsync", "off")?),
        "fsync is off, so a crash of the database's host can give a lock twice",
        "set fsync = on",
    ),
    Rule::warning(
        |f| when(f.server.number("standbys")? > 0 && f.server.is("synchronous_standby_names", "")?),
        "its standbys are asynchronous, so a failover can give a lock twice and make tokens go backwards",
        "set synchronous_standby_names",
    ),
];

pub(super) fn product(server: &Properties) -> Option<Product> {
    let version = server.text("server_version")?.split(' ').next().unwrap_or_default();
    let is_old = server.number("server_version_num").is_some_and(|number| number < 130_000);
    Some((format!("PostgreSQL {version}"), is_old.then_some("PostgreSQL 13")))
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
            (&[("standbys", "1"), ("synchronous_standby_names", "")], "asynchronous"),
            (&[("standbys", "1"), ("synchronous_standby_names", "a")], ""),
        ] {
            let facts = Facts { server: properties(told), ..Facts::default() };
            let found = warnings(RISKS, &facts);
            assert_eq!(found.len(), usize::from(!part.is_empty()), "{told:?}: {found:?}");
            assert!(found.iter().all(|what| what.contains(part)), "{told:?}: {found:?}");
        }
    }
}

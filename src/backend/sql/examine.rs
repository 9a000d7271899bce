//! The risks of a database, for `doctor`.

use super::tables::Tables;
use crate::backend::Risk;
use crate::backend::facts::{Properties, Rule, risks, when, with};

/// The known facts about a database.
#[derive(Default)]
pub(super) struct Facts {
    /// Its product name, with the version.
    pub(super) name: String,
    pub(super) database: String,
    /// Properties that the server reports.
    pub(super) server: Properties,
    /// The oldest supported version, if this one is older.
    pub(super) too_old: Option<&'static str>,
    /// The number of further connections that the server can accept.
    pub(super) free: Option<u64>,
    pub(super) open_password: Option<String>,
    /// Whether it can notify this client of changes.
    pub(super) notifies: bool,
}

/// The number of free connections below which a queue of waiters may use them up.
const FEW: u64 = 20;

/// The rules for every kind of database.
const RISKS: &[Rule<Facts>] = &[
    Rule::always("a claim counts on the database's clock: a jump of it ends leases early or late"),
    Rule::warning(|f| with(f.too_old?), "it is older than {0}", "use {0} or newer"),
    Rule::warning(
        |f| when(f.server.is("read_only", "ON")?),
        "this server is read-only",
        "name the primary, or several servers of which one is the primary",
    ),
    Rule::warning(
        |f| {
            let free = f.free.filter(|free| *free < FEW)?;
            Some(vec![free.to_string(), f.server.text("max_connections")?.to_owned()])
        },
        "only {0} of its {1} connections are free, and each dlock needs one",
        "raise max_connections",
    ),
];

/// The rule for the low tokens of a restored backup.
const RISKS_OF_TABLES: &[Rule<Tables>] = &[Rule::backup(|tables| {
    with(format!("after it: UPDATE {}lock SET fence = fence + 1000000", tables.prefix))
})];

/// Returns the risks of every kind of database, for one with these facts and tables.
pub(super) fn shared_risks(facts: &Facts, tables: &Tables) -> Vec<Risk> {
    [risks(RISKS, facts), risks(RISKS_OF_TABLES, tables)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing::{properties, warnings};

    #[test]
    fn few_connections_are_a_warning_and_unknown_ones_are_not() {
        for (free, warned) in [(None, false), (Some(19), true), (Some(20), false)] {
            let facts = Facts { free, server: properties(&[("max_connections", "99")]), ..Facts::default() };
            assert_eq!(!warnings(RISKS, &facts).is_empty(), warned, "{free:?}");
        }
    }
}

//! What can go wrong with this MySQL or MariaDB.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::config::MysqlConfig;
use super::language::text;
use crate::backend::sql::dialect::Session;
use crate::backend::sql::examine::of_backup;
use crate::backend::sql::tables::Tables;
use crate::backend::{Examination, Risk};
use crate::net::fault::{Fault, FaultResult};

/// So few connections are left that a queue of waiters may use them up.
const FEW: u64 = 20;

const QUESTION: &str = "SELECT @@version, @dlock_session <=> CONNECTION_ID();\
     SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'wsrep_on', 'innodb_flush_log_at_trx_commit', \
     'innodb_doublewrite', 'max_connections', 'group_replication_single_primary_mode', 'log_bin');\
     SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'Threads_connected', 'Slaves_connected', \
     'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients');";

/// The engines of the tables that know no transactions, if there are any.
fn engines(tables: &Tables) -> String {
    let (schema, names) = tables.bare();
    let schema = schema.map_or_else(|| "DATABASE()".to_owned(), text);
    format!(
        "SELECT CONCAT('{ENGINE}', t.table_name), t.engine FROM information_schema.tables t \
         JOIN information_schema.engines e ON e.engine = t.engine \
         WHERE t.table_schema = {schema} AND t.table_name IN ({}) AND NOT e.transactions <=> 'YES';",
        names.map(|name| text(&name)).join(", ")
    )
}

/// What stands before the name of a table to say its engine.
const ENGINE: &str = "engine of ";

/// What the server says of itself.
struct Facts(HashMap<String, String>);

impl Facts {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}

pub(super) async fn examine(
    config: &MysqlConfig,
    session: &Arc<dyn Session>,
    round_trip: Duration,
) -> FaultResult<Examination> {
    let sets = session.run(&[QUESTION, &engines(&config.tables)].concat()).await?;
    let mut rows = sets.into_iter().flatten();
    let row = rows.next().unwrap_or_default();
    let [Some(version), direct] = &row[..] else { return Err(Fault::nonsense("no version")) };
    let pair = |row: Vec<Option<String>>| {
        let mut row = row.into_iter();
        Some((row.next()??, row.next()??))
    };
    let facts = Facts(rows.filter_map(pair).collect());
    let maria = version.contains("MariaDB");
    let kind = if maria { "MariaDB" } else { "MySQL" };
    let plain = version.split('-').find(|part| part.contains('.') && *part != "5.5.5").unwrap_or(version);
    let mut risks = risks(&facts);
    risks.push(of_backup(&config.tables));
    if let Some(open) = config.open_password() {
        let remedy = "set ssl-mode=verify_identity, or required, in the address";
        risks.push(Risk::of_open_password(&open.to_string(), remedy));
    }
    let (least, text) = if maria { ((10, 5), "MariaDB 10.5") } else { ((8, 0), "MySQL 8.0") };
    if of_version(plain) < least {
        risks.push(Risk::warning(format!("it is older than {text}"), format!("use {text} or newer")));
    }
    if direct.as_deref() != Some("1") {
        risks.push(Risk::warning(
            "a proxy in between gives each statement another connection, so waiters look every 500 ms",
            "connect to the server itself",
        ));
    }
    let database = config.database.as_deref().unwrap_or("named by the prefix");
    let reached = format!("{} (database {database})", session.peer());
    Ok(Examination { server: format!("{kind} {plain}"), reached, round_trip, risks })
}

fn of_version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn risks(facts: &Facts) -> Vec<Risk> {
    let mut risks =
        vec![Risk::note("a claim counts on the database's clock: a jump of it ends leases early or late")];
    if facts.text("read_only") == "ON" {
        risks.push(Risk::warning(
            "this server takes no writes",
            "name the primary, or several servers of which one is the primary",
        ));
    }
    if !matches!(facts.text("innodb_flush_log_at_trx_commit"), "1" | "3") {
        risks.push(Risk::warning(
            "innodb_flush_log_at_trx_commit is not 1, so a crash of the database's host can give a lock twice",
            "set innodb_flush_log_at_trx_commit = 1",
        ));
    }
    let without = facts.0.iter().filter_map(|(name, engine)| Some((name.strip_prefix(ENGINE)?, engine)));
    risks.extend(without.map(|(table, engine)| {
        Risk::warning(
            format!("the engine of {table} is {engine}, which has no transactions, so two can hold one lock"),
            format!("ALTER TABLE {table} ENGINE = InnoDB, while no lock is used"),
        )
    }));
    if facts.text("innodb_doublewrite") == "OFF" {
        risks.push(Risk::warning(
            "innodb_doublewrite is off, so a crash of the database's host can damage the tables",
            "set innodb_doublewrite = ON, unless the file system writes pages whole",
        ));
    }
    if facts.text("wsrep_on") == "ON" && facts.number("wsrep_cluster_size") > 1 {
        risks.push(Risk::warning(
            "it is a node of a Galera cluster: two of dlock's users at different nodes can hold one lock",
            "name the same single node everywhere, and let no proxy spread the connections",
        ));
    }
    if facts.text("group_replication_single_primary_mode") == "OFF" {
        risks.push(Risk::warning(
            "every server of its group takes writes: two of dlock's users at different ones can hold one lock",
            "name the same single server everywhere, or use the single-primary mode",
        ));
    }
    let synchronous =
        facts.number("Rpl_semi_sync_master_clients") + facts.number("Rpl_semi_sync_source_clients");
    if facts.number("Slaves_connected") > 0 && synchronous == 0 {
        risks.push(Risk::warning(
            "its replicas are asynchronous, so a failover can give a lock twice and make tokens go backwards",
            "use semi-synchronous replication",
        ));
    } else if facts.text("log_bin") == "ON" && synchronous == 0 {
        risks.push(Risk::note(
            "a failover to an asynchronous replica can give a lock twice and make tokens go backwards",
        ));
    }
    let free = facts.number("max_connections").saturating_sub(facts.number("Threads_connected"));
    if free < FEW {
        let all = facts.number("max_connections");
        risks.push(Risk::warning(
            format!("only {free} of its {all} connections are free, and each dlock needs one"),
            "raise max_connections",
        ));
    }
    risks
}

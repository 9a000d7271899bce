//! What can go wrong with this PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use super::config::PgConfig;
use crate::backend::sql::dialect::Session;
use crate::backend::sql::examine::of_backup;
use crate::backend::{Examination, Risk};
use crate::net::fault::{Fault, FaultResult};

/// The first version with everything that is used, as the server counts.
const LEAST: u64 = 130_000;
/// So few connections are left that a queue of waiters may use them up.
const FEW: u64 = 10;

const QUESTION: &str = "SELECT current_setting('server_version'), current_setting('server_version_num'), \
     pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'), \
     current_setting('max_connections'), (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
     (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), \
     current_setting('default_transaction_read_only'), current_setting('superuser_reserved_connections');";

pub(super) async fn examine(
    config: &PgConfig,
    session: &Arc<dyn Session>,
    round_trip: Duration,
) -> FaultResult<Examination> {
    let sets = session.run(QUESTION).await?;
    let row = sets.first().and_then(|set| set.first()).ok_or_else(|| Fault::nonsense("no facts"))?;
    let text = |n: usize| row.get(n).and_then(|value| value.as_deref()).unwrap_or_default();
    let number = |n: usize| text(n).parse::<u64>().unwrap_or(0);
    let mut risks =
        vec![Risk::note("a claim counts on the database's clock: a jump of it ends leases early or late")];
    if number(1) < LEAST {
        risks.push(Risk::warning("it is older than PostgreSQL 13", "use PostgreSQL 13 or newer"));
    }
    if let Some(open) = config.open_password() {
        let remedy = "set sslmode=verify-full, or require, in the address";
        risks.push(Risk::of_open_password(&open.to_string(), remedy));
    }
    risks.push(of_backup(&config.tables));
    if let Some(ignored) = &config.ignored {
        risks.push(Risk::warning(ignored.clone(), "make it a plain file with the mode 0600"));
    }
    if text(2) == "t" || text(9) == "on" {
        risks.push(Risk::warning(
            "this server takes no writes",
            "name the primary, or several servers of which one is the primary",
        ));
    }
    for (n, setting) in [(3, "fsync"), (4, "full_page_writes")] {
        if text(n) == "off" {
            risks.push(Risk::warning(
                format!("{setting} is off, so a crash of the database's host can give a lock twice"),
                format!("set {setting} = on"),
            ));
        }
    }
    if number(7) > 0 && text(8).is_empty() {
        risks.push(Risk::warning(
            "its standbys are asynchronous, so a failover can give a lock twice and make tokens go backwards",
            "set synchronous_standby_names",
        ));
    }
    let free = number(5).saturating_sub(number(6) + number(10));
    if free < FEW {
        risks.push(Risk::warning(
            format!("only {free} of its {} connections are free, and each dlock needs one", number(5)),
            "raise max_connections",
        ));
    }
    if !session.can_notify() {
        risks.push(Risk::warning(
            "a connection pooler in between cannot pass on messages, so waiters look every 500 ms",
            "connect to the server itself",
        ));
    }
    let server = format!("PostgreSQL {}", text(0).split(' ').next().unwrap_or_default());
    let reached = format!("{} (database {})", session.peer(), config.database);
    Ok(Examination { server, reached, round_trip, risks })
}

//! The risks of a database, for `doctor`.

use super::dialect::{Dialect, Facts, Session};
use super::rows::properties;
use crate::backend::Risk;
use crate::backend::facts::{Rule, risks, when, with};
use crate::net::fault::{Fault, FaultResult};

/// The rules for every kind of database.
const RISKS: &[Rule<Facts>] = &[
    Rule::always("a claim counts on the database's clock: a jump of it ends leases early or late"),
    Rule::always("a failover to an asynchronous replica can give a lock twice and make tokens go backwards"),
    Rule::backup(|f| with(format!("after it: UPDATE {}lock SET fence = fence + 1000000", f.prefix))),
    Rule::warning(|f| with(f.too_old?), "it is older than {0}", "use {0} or newer"),
    Rule::warning(
        |f| when(f.server.is("read_only", "ON")?),
        "this server is read-only",
        "name the primary, or several servers of which one is the primary",
    ),
    Rule::open_password(
        |f| with(f.open_password.as_ref()?),
        "set ssl-mode=verify_identity (MySQL) or sslmode=verify-full (PostgreSQL) in the address",
    ),
    Rule::warning(
        |f| when(!f.is_direct),
        "a pooler or proxy in between gives each statement another connection, so waiters poll every 500 ms",
        "connect to the server itself",
    ),
];

/// Returns the product with its version, and the risks of the database.
pub(super) async fn examine(
    dialect: &dyn Dialect,
    session: &dyn Session,
) -> FaultResult<(String, Vec<Risk>)> {
    let (kind, database) = (dialect.kind(), dialect.database());
    let server = properties(session.run(kind.question).await?);
    let (product, too_old) = (kind.product)(&server).ok_or_else(|| Fault::nonsense("no version"))?;
    let open_password = database.open_password().map(ToString::to_string);
    let is_direct = session.can_notify() || server.is("own session", "1") == Some(true);
    let prefix = database.tables.prefix.clone();
    let facts = Facts { prefix, server, too_old, open_password, is_direct };
    Ok((product, [risks(RISKS, &facts), risks(kind.risks, &facts)].concat()))
}

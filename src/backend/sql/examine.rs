//! The risks of this database.

use std::sync::Arc;

use super::dialect::{Dialect, Row, Session, Sets};
use super::facts::RISKS;
use super::sessions::Sessions;
use super::statements::plans;
use crate::backend::facts::{Properties, risks};
use crate::backend::{Examination, Risk, Weight};
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult, Retry};

/// Returns the properties in the rows of all sets, each a name and a value.
pub(super) fn properties(sets: Sets) -> Properties {
    let pair = |row: Row| {
        let mut row = row.into_iter();
        Some((row.next()??, row.next()??))
    };
    sets.into_iter().flatten().filter_map(pair).collect()
}

/// Returns why existing tables cannot be used. Missing ones are created on first use.
async fn of_tables(dialect: &dyn Dialect, session: &dyn Session) -> FaultResult<Option<Risk>> {
    for plan in plans(dialect) {
        match session.run(&plan).await {
            Ok(_) => {}
            Err(fault) if fault.retry == Retry::Making => return Ok(None),
            Err(fault) if matches!(fault.kind, ErrorKind::Denied | ErrorKind::Corrupt) => {
                let (what, remedy) = fault.reason.apart();
                return Ok(Some(Risk { weight: Weight::Warning, what, remedy }));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(None)
}

pub(super) async fn examine(service: &Sessions, deadline: Moment) -> FaultResult<Examination> {
    // The first exchange includes connecting.
    service.read(deadline, "SELECT 1;").await?;
    let begun = service.clock.now();
    let answer = service.read(deadline, "SELECT 1;").await?;
    let round_trip = service.clock.now().since(begun);
    let Some(answer) = answer else { return Err(Fault::nonsense("no answer")) };
    let session = Arc::clone(&answer.session);
    let found = async {
        let (facts, more) = service.dialect.examine(&session).await?;
        let mut risks = risks(RISKS, &facts);
        risks.extend(more);
        risks.extend(of_tables(&*service.dialect, &*session).await?);
        let reached = format!("{} (database {})", session.peer(), facts.database);
        Ok(Examination { server: facts.name, reached, round_trip, risks })
    };
    let late = || Err(Fault::spent(format!("{} did not answer by the deadline", session.peer())));
    service.clock.by(deadline, found).await.unwrap_or_else(late)
}

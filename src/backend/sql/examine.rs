//! What can go wrong with this database.

use std::sync::Arc;

use super::service::Service;
use super::tables::Tables;
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::{Examination, Risk};
use crate::lock::Moment;

/// What a restored backup does to these tables.
pub(super) fn of_backup(tables: &Tables) -> Risk {
    let prefix = &tables.prefix;
    Risk::of_backup(&format!("after it: UPDATE {prefix}lock SET fence = fence + 1000000"))
}

pub(super) async fn examine(service: &Service, deadline: Moment) -> FaultResult<Examination> {
    // The first exchange pays for the connection.
    service.read(deadline, "SELECT 1;").await?;
    let begun = service.clock.now();
    let answer = service.read(deadline, "SELECT 1;").await?;
    let round_trip = service.clock.now().since(begun);
    let Some(answer) = answer else { return Err(Fault::nonsense("no answer")) };
    let session = Arc::clone(&answer.session);
    let found = service.dialect.examine(&session, round_trip);
    tokio::select! {
        biased;
        found = found => found,
        () = service.clock.sleep_until(deadline) => {
            Err(Fault::spent(format!("{} did not answer by the deadline", session.peer())))
        }
    }
}

//! What can go wrong with this database.

use std::sync::Arc;

use super::fault::Outcome;
use super::service::Service;
use crate::backend::Examination;
use crate::lock::Moment;

pub(super) async fn examine(service: &Service, deadline: Moment) -> Outcome<Examination> {
    // The first exchange pays for the connection.
    service.read(deadline, "SELECT 1;").await?;
    let begun = service.clock.now();
    let answer = service.read(deadline, "SELECT 1;").await?;
    let round_trip = service.clock.now().since(begun);
    let Some(answer) = answer else { return Err(super::fault::Fault::nonsense("no answer")) };
    let session = Arc::clone(&answer.session);
    let found = service.dialect.examine(&session, round_trip);
    tokio::select! {
        biased;
        found = found => found,
        () = service.clock.sleep_until(deadline) => {
            Err(super::fault::Fault::spent(format!("{} did not answer by the deadline", session.peer())))
        }
    }
}

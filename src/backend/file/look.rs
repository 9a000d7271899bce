//! Looking at the queues of an own claim.

use super::entries::{Document, State, Stored};
use super::seat::{Place, Seat};
use super::view;
use crate::clock;
use crate::lock::Mode;
use crate::net::fault::FaultResult;
use crate::queue::store::{Note, Queue};

/// Looks at the queues of a claim, under their guards, and takes its lock files if it is its turn.
pub(super) fn look_under(seat: &mut Seat) -> FaultResult<(Vec<Queue>, Option<Note>)> {
    let mut documents =
        seat.places.iter().map(|place| place.queue.read()).collect::<FaultResult<Vec<_>>>()?;
    let mut note = None;
    for (place, document) in seat.places.iter().zip(&mut documents) {
        match document.at(place.token) {
            Some(own) if own.in_queue() => {
                note = note.or_else(|| own.details()?.asked.map(Note::Asked));
            }
            own => {
                let note = own.and_then(|own| removal(own));
                if seat.held_at.is_none() {
                    seat.give_up();
                }
                return Ok((Vec::new(), note));
            }
        }
    }
    let tidied = tidy(seat, &mut documents)?;
    Ok((settle(seat, &mut documents, &tidied, false)?, note))
}

/// Buries the dead among the entries that a decision needs. Returns the tokens of the living ones in each queue, and
/// whether there were dead ones.
pub(super) fn tidy(seat: &Seat, documents: &mut [Document]) -> FaultResult<Vec<(Vec<u64>, bool)>> {
    let each = seat.places.iter().zip(documents);
    each.map(|(place, document)| view::tidy(document, place, seat.mode)).collect()
}

/// Takes the lock files if it is the claim's turn, writes the queues that have changed, or all, and shows them.
pub(super) fn settle(
    seat: &mut Seat,
    documents: &mut [Document],
    tidied: &[(Vec<u64>, bool)],
    all: bool,
) -> FaultResult<Vec<Queue>> {
    let held = seat.held_at;
    let taken = seat.take(documents, clock::now())?;
    let write = |(place, (document, (_, changed))): (&Place, (&mut Document, &(_, bool)))| {
        if all || taken || *changed { place.queue.write(document) } else { Ok(()) }
    };
    let written = seat.places.iter().zip(documents.iter_mut().zip(tidied)).try_for_each(write);
    if written.is_err() && held.is_none() {
        seat.release();
    }
    written?;
    let each = || seat.places.iter().zip(&*documents);
    if taken && matches!(seat.mode, Mode::Slots(_)) {
        for (place, document) in each() {
            // The next claim is the first of the waiters now, and must watch every holder. After a failure it looks
            // again only when a claim that it watches ends.
            let waits = |entry: &&Stored| entry.token > place.token && entry.state != State::Held;
            let _ = place.queue.wake(document.queue().find(waits));
        }
    }
    each()
        .zip(tidied)
        .map(|((place, document), (living, _))| view::for_claim(document, place, seat, living))
        .collect()
}

/// Returns the notice that another process left in a removed entry.
pub(super) fn removal(own: &Stored) -> Option<Note> {
    let by = own.details().and_then(|details| details.by);
    match own.state {
        State::Superseded => by.map(Note::Superseded),
        State::Evicted => Some(Note::Evicted(by)),
        State::Waiting | State::Blocked | State::Held => None,
    }
}

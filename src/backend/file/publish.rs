//! What a holder proclaims.

use std::sync::Arc;

use super::directory::Directory;
use super::fault::Outcome;
use super::fifo::Life;
use super::line::{Mark, State, in_one_page, mark_line};
use super::storage::LineFile;
use crate::lock::{ClaimId, LockName, Moment};

/// As [`crate::backend::Backend::publish`]: a mark behind the record of a claim that has the lock file, whose owner lives.
pub(super) async fn publish(
    directory: &Arc<Directory>,
    lock: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> Outcome<bool> {
    let Some(file) = LineFile::open(directory, lock, true)? else { return Ok(false) };
    let _guard = file.guard(true, deadline).await?;
    let mut read = file.read(None)?;
    let own = read.image.records.iter().find(|r| r.fixed.id == id && r.fixed.state == State::Held);
    let Some(record) = own else { return Ok(false) };
    if let Life::Dead = file.life(&read, record)? {
        return Ok(false);
    }
    let label = serde_json::Value::from(value);
    let fits = read.image.mark(Mark::Label, id).and_then(|(at, length, _)| {
        let text = mark_line(Mark::Label, id, &label, length);
        (text.len() == length && in_one_page(at, length)).then_some((at, text))
    });
    if let Some((at, text)) = fits {
        return file.overwrite(at, &text).map(|()| true);
    }
    let length = mark_line(Mark::Label, id, &label, 0).len();
    let text = mark_line(Mark::Label, id, &label, length.next_power_of_two().max(256));
    file.append(&mut read, &text, text.len(), false).map(|_| true)
}

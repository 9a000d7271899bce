//! What is noted of a hold by whoever knows its id.

use std::sync::Arc;

use serde_json::Value;

use super::directory::Directory;
use super::fault::FaultResult;
use super::fifo::Life;
use super::queue::{Image, Mark, Record, State, in_one_page, mark_line};
use super::storage::QueueFile;
use crate::lock::{ClaimId, LockName, Moment};

/// As [`crate::backend::Backend::publish`].
pub(super) async fn publish(
    directory: &Arc<Directory>,
    lock: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    let label = Value::from(value);
    let length = mark_line(Mark::Label, id, &label, 0).len();
    let room = length.next_power_of_two().max(256);
    mark(directory, lock, id, deadline, |_, _| (Mark::Label, label, room)).await
}

/// Puts the mark that `content` makes, with room for a longer one, behind the record of the claim `id` if that has the lock
/// file and its owner lives; whether it does. One of the same kind is written over. A claim that was asked to leave is about
/// to, and is not renewed any more.
pub(super) async fn mark(
    directory: &Arc<Directory>,
    lock: &LockName,
    id: ClaimId,
    deadline: Moment,
    content: impl FnOnce(&Image, &Record) -> (Mark, Value, usize),
) -> FaultResult<bool> {
    let Some(file) = QueueFile::open(directory, lock, true)? else { return Ok(false) };
    let _guard = file.guard(deadline).await?;
    let mut read = file.read(None)?;
    let own = read.image.records.iter().find(|r| r.fixed.id == id && r.fixed.state == State::Held);
    let Some(record) = own else { return Ok(false) };
    if let Life::Dead = file.life(&read, record)? {
        return Ok(false);
    }
    let (kind, value, room) = content(&read.image, record);
    if kind == Mark::Renewed && record.fixed.asked {
        return Ok(false);
    }
    let fits = read.image.mark(kind, id).and_then(|(at, length, _)| {
        let text = mark_line(kind, id, &value, length);
        (text.len() == length && in_one_page(at, length)).then_some((at, text))
    });
    if let Some((at, text)) = fits {
        return file.overwrite(at, &text).map(|()| true);
    }
    let text = mark_line(kind, id, &value, room);
    file.append(&mut read, &text, text.len(), false).map(|_| true)
}

//! Publishing a value with a hold, by any process that knows the claim's id.

use std::sync::Arc;

use super::directory::Directory;
use super::fifo::Life;
use super::queue::{Mark, State, in_one_page, mark_line};
use super::storage::QueueFile;
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::FaultResult;

/// Implements [`crate::backend::Backend::publish`]. Puts a mark, with room for a longer label, behind the record of the
/// claim `id`. Does so only if that claim has the lock file and its owner lives. Overwrites an earlier mark if the new
/// one fits.
pub(super) async fn publish(
    directory: &Arc<Directory>,
    lock: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    let Some(file) = QueueFile::open(directory, lock, true)? else { return Ok(false) };
    let _guard = file.guard(deadline).await?;
    let mut read = file.read(None)?;
    let own = read.image.records.iter().find(|r| r.fixed.id == id && r.fixed.state == State::Held);
    let Some(record) = own else { return Ok(false) };
    if let Life::Dead = file.life(&read, record)? {
        return Ok(false);
    }
    let fits = read.image.mark(Mark::Label, id).and_then(|(at, length, _)| {
        let text = mark_line(Mark::Label, id, &value, length);
        (text.len() == length && in_one_page(at, length)).then_some((at, text))
    });
    if let Some((at, text)) = fits {
        return file.overwrite(at, &text).map(|()| true);
    }
    let length = mark_line(Mark::Label, id, &value, 0).len();
    let text = mark_line(Mark::Label, id, &value, length.next_power_of_two().max(256));
    file.append(&mut read, &text, text.len(), false).map(|_| true)
}

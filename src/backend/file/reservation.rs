//! The reservation of tokens, the only slow operation under the guards.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::fault;
use super::guard::Guard;
use super::storage::QueueFile;
use super::token;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult};

/// Reserves tokens in `queue`, in a thread, since it waits for the disk. The thread has the guards meanwhile.
pub(super) async fn reserve(
    queue: Arc<QueueFile>,
    guards: Vec<Guard>,
    deadline: Moment,
) -> FaultResult<Vec<Guard>> {
    let (done, result) = oneshot::channel();
    let path = queue.path();
    let work = move || {
        let reserved = queue.read().and_then(|mut read| {
            let before = read.header.clone();
            token::reserve(&mut read.header, queue.directory.boot());
            queue.sync_header(&read.header).inspect_err(|_| {
                // A header that may not be on the disk must not make other claims give its tokens.
                let _ = queue.write_header(&before);
            })
        });
        let _ = done.send(reserved.map(|()| guards));
    };
    std::thread::Builder::new().name("reserve".to_owned()).spawn(work).map_err(|e| {
        Fault::new(ErrorKind::System, format!("cannot start a thread that writes {}: {e}", path.display()))
    })?;
    match Clock::Boot.by(deadline, result).await {
        Some(done) => done.map_err(|_| Fault::new(ErrorKind::Internal, "a thread ended early"))?,
        None => Err(fault::silent_disk(&path)),
    }
}

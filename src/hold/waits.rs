//! What the driver waits for that may not be there.

use std::future::pending;

use tokio::task::yield_now;

/// Completes when the tasks that send what this one asked for have sent it: the service is at work then, and this
/// process is not.
pub(super) async fn others_had_their_turn() {
    for _ in 0..2 {
        yield_now().await;
    }
}

/// Takes the answer of a future that may be under way, and the future away with it.
pub(super) async fn taken<F: Future + Unpin>(under_way: &mut Option<F>) -> F::Output {
    let Some(future) = under_way else { return pending().await };
    let answer = future.await;
    *under_way = None;
    answer
}

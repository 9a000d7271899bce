//! What the driver waits for that may not be there.

use std::future::pending;

/// Takes the answer of a future that may be under way, and the future away with it.
pub(super) async fn taken<F: Future + Unpin>(under_way: &mut Option<F>) -> F::Output {
    let Some(future) = under_way else { return pending().await };
    let answer = future.await;
    *under_way = None;
    answer
}

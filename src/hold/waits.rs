//! Waiting for a future that may not exist.

use std::future::pending;

/// Waits for the future, then removes it. Waits for ever without one.
pub(super) async fn taken<F: Future + Unpin>(under_way: &mut Option<F>) -> F::Output {
    let Some(future) = under_way else { return pending().await };
    let answer = future.await;
    *under_way = None;
    answer
}

//! Waiting for a future that may not exist.

use std::future::pending;

/// Waits for the future. Waits for ever without one.
pub(super) async fn if_any<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Waits for the future, then removes it. Waits for ever without one.
pub(super) async fn taken<F: Future + Unpin>(under_way: &mut Option<F>) -> F::Output {
    let answer = if_any(under_way.as_mut()).await;
    *under_way = None;
    answer
}

//! The counters of fencing tokens.

use std::time::SystemTime;

use super::client::{Client, Commands};
use super::fault::nonsense;
use super::keys::Naming;
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// Draws a number greater than `above` from the counter of the lock with the key `lock`. A counter that the server has
/// dropped continues from the clock of this host, in milliseconds. The clock is ahead of the old counter unless it was
/// set back.
pub(super) async fn draw(client: &Client, lock: &[u8], above: u64, deadline: Moment) -> FaultResult<u64> {
    let key = Naming::token(lock);
    let mut step = 1;
    loop {
        let count = Commands::default().line("incr", &key, &step.to_string());
        match drawn(&client.call(deadline, count).await?.next()?.line()?)? {
            Some(number) if number > above => return Ok(number),
            Some(number) => step = above - number + 1,
            None => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let first = u64::try_from(since.as_millis()).unwrap_or(1).max(above + 1);
                let text = first.to_string();
                let rest = format!("0 0 {}", text.len());
                let begin = Commands::default().value("add", &key, &rest, text.as_bytes());
                if client.call(deadline, begin).await?.next()?.line()? == "STORED" {
                    return Ok(first);
                }
            }
        }
    }
}

/// Parses the answer to `incr`; `None` if there is no counter.
pub(super) fn drawn(line: &str) -> FaultResult<Option<u64>> {
    if line == "NOT_FOUND" {
        return Ok(None);
    }
    line.trim().parse().map(Some).map_err(|_| nonsense(line))
}

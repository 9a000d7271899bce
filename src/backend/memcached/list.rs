//! Which keys the server has.

use std::time::Duration;

use super::client::{Client, Commands};
use super::keys::Key;
use super::wire::Reply;
use crate::lock::name::percent_decoded;
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult};

/// Between two attempts while somebody else has the keys listed.
const PAUSE: Duration = Duration::from_millis(20);

/// All keys of the server, over a connection of its own: the list comes from a thread that takes the connection over.
///
/// Errors: `Unsupported` where that thread is switched off.
pub(super) async fn keys(client: &Client, deadline: Moment) -> FaultResult<Vec<Key>> {
    let client = client.apart();
    loop {
        let ask = Commands::default().line("lru_crawler metadump all", b"", "");
        match client.call(deadline, ask).await?.next()? {
            Reply::Keys(lines) => return Ok(lines.iter().filter_map(|line| key(line)).collect()),
            Reply::Items(_) => return Ok(Vec::new()),
            Reply::Line(line) if line.starts_with("BUSY") => {}
            Reply::Line(line) => {
                return Err(Fault::new(
                    ErrorKind::Unsupported,
                    format!("it does not list its keys ({line}); it does with -o lru_crawler"),
                ));
            }
            Reply::Stats(_) => return Err(super::fault::nonsense("STAT")),
        }
        let next = client.clock().now() + PAUSE;
        if next >= deadline {
            return Err(Fault::unavailable("it was busy until the deadline listing its keys for others"));
        }
        client.clock().sleep_until(next).await;
    }
}

/// The key in `key=NAME exp=…`, where it is escaped.
fn key(line: &str) -> Option<Key> {
    percent_decoded(line.strip_prefix("key=")?.split(' ').next()?.as_bytes())
}

//! Listing the keys of the server.

use std::time::Duration;

use super::client::{Client, Commands};
use super::keys::Key;
use super::wire::Reply;
use crate::lock::name::percent_decoded;
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult};

/// The pause between two attempts while another client lists the keys.
const PAUSE: Duration = Duration::from_millis(20);

/// Lists all keys of the server over a separate connection, because the server's lister thread takes over the
/// connection.
///
/// Errors: `Unsupported` if that thread is switched off; `Unavailable` if it is busy until the deadline.
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

/// Returns the unescaped key of a line `key=NAME exp=…`.
fn key(line: &str) -> Option<Key> {
    percent_decoded(line.strip_prefix("key=")?.split(' ').next()?.as_bytes())
}

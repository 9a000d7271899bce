//! `ZooKeeper`: every message follows its length. Four-letter words are the exception.
//!
//! Records and operation codes: `zookeeper.jute` and `ZooDefs.java` of Apache `ZooKeeper`.

use crate::servers::relay::fault::Way;
use crate::servers::relay::wire::{Unit, Wire, beginning, number};

/// The number of every ping and of its answer. A ping only shows that the connection is alive.
const PING: i32 = -2;

/// No message is as long as four letters are, read as a number.
const LONGEST: usize = 1 << 24;

/// A connection to `ZooKeeper`.
#[derive(Default)]
pub(crate) struct Zookeeper {
    /// Whether the session was requested, and whether the server has answered.
    has_begun: [bool; 2],
}

impl Wire for Zookeeper {
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit> {
        let body = number(bytes.get(..4)?);
        if body > LONGEST {
            return Some(Unit::message(bytes.len(), beginning(bytes)));
        }
        let length = 4 + body;
        if bytes.len() < length {
            return None;
        }
        if !std::mem::replace(&mut self.has_begun[way as usize], true) {
            return Some(Unit::message(length, "session"));
        }
        let field = |at: usize| {
            bytes.get(at..at + 4).map_or(0, |four| i32::from_be_bytes(four.try_into().expect("four")))
        };
        let what = match way {
            Way::Request => format!(
                "xid {} operation {} {}",
                field(4),
                field(8),
                beginning(&bytes[length.min(12)..length])
            ),
            Way::Answer => format!("xid {} error {}", field(4), field(16)),
        };
        if field(4) == PING {
            return Some(Unit::other(length));
        }
        Some(Unit::message(length, what))
    }
}

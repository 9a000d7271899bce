//! `MySQL`: a request is a packet. An answer has one or more packets; its first packet is the first one after a
//! request. The greeting is the first answer.
//!
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html>

use crate::servers::relay::fault::Way;
use crate::servers::relay::wire::{Unit, Wire, beginning};

const HEAD: usize = 4;

/// A connection to `MySQL`.
#[derive(Default)]
pub(crate) struct Mysql {
    /// Whether the answer to the last request has begun.
    is_answered: bool,
}

impl Wire for Mysql {
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit> {
        if bytes.len() < HEAD {
            return None;
        }
        let length =
            HEAD + usize::from(bytes[0]) + (usize::from(bytes[1]) << 8) + (usize::from(bytes[2]) << 16);
        if bytes.len() < length {
            return None;
        }
        let what = beginning(&bytes[HEAD..length]);
        if way == Way::Request {
            self.is_answered = false;
            // The command's number comes first.
            return Some(Unit::message(length, format!("{} {what}", bytes.get(HEAD).unwrap_or(&0))));
        }
        if std::mem::replace(&mut self.is_answered, true) {
            return Some(Unit::other(length));
        }
        Some(Unit::message(length, what))
    }
}

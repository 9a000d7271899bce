//! etcd: a gRPC message is a DATA frame, after the headers of its stream. If a stream has only headers in its answer,
//! the answer is an error.
//!
//! Frames: RFC 9113, section 4.1.

use std::collections::BTreeSet;

use crate::servers::relay::fault::Way;
use crate::servers::relay::wire::{Unit, Wire, number};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// `END_STREAM` of headers, `ACK` of settings.
const LAST: u8 = 1;

/// A connection to etcd.
#[derive(Default)]
pub(crate) struct Http2 {
    /// The streams that the server has answered.
    answered: BTreeSet<usize>,
}

impl Wire for Http2 {
    fn next(&mut self, way: Way, bytes: &[u8]) -> Option<Unit> {
        if bytes.starts_with(b"PRI ") {
            return (bytes.len() >= PREFACE.len()).then(|| Unit::other(PREFACE.len()));
        }
        if bytes.len() < HEAD {
            return None;
        }
        let (body, kind, flags) = (number(&bytes[..3]), bytes[3], bytes[4]);
        let stream = number(&bytes[5..HEAD]) & 0x7fff_ffff;
        let length = HEAD + body;
        if bytes.len() < length {
            return None;
        }
        let what = match kind {
            DATA if body > 0 => {
                if way == Way::Answer {
                    self.answered.insert(stream);
                }
                Some(format!("{body} bytes on stream {stream}"))
            }
            HEADERS if flags & LAST != 0 && !self.answered.contains(&stream) => {
                Some(format!("an error on stream {stream}"))
            }
            SETTINGS if flags & LAST == 0 => Some("settings".to_owned()),
            _ => None,
        };
        Some(Unit { length, message: what })
    }
}

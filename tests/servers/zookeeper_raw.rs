//! Requests that tests send to a ZooKeeper server themselves.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The part of the protocol that tests need.
///
/// Records and operation codes: `zookeeper.jute` and `ZooDefs.java` of Apache ZooKeeper.
pub(crate) struct Raw {
    stream: TcpStream,
}

const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const DELETE: i32 = 2;
const CLOSE: i32 = -11;

impl Raw {
    /// Connects in the session `session`. If that is zero, it opens a new session. Otherwise it sends the request to
    /// close in the same write, so that no other connection comes between.
    pub(crate) fn connect(port: u16, session: i64) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
        stream.set_nodelay(true).expect("sets");
        let mut body = Vec::new();
        body.extend(0i32.to_be_bytes());
        body.extend(0i64.to_be_bytes());
        body.extend(10_000i32.to_be_bytes());
        body.extend(session.to_be_bytes());
        body.extend(16i32.to_be_bytes());
        body.extend(if session == 0 { [0; 16] } else { password(session) });
        body.push(0);
        let mut raw = Self { stream };
        let mut bytes = framed(&body);
        if session != 0 {
            bytes.extend(framed(&request(1, CLOSE, &[])));
        }
        raw.stream.write_all(&bytes).expect("writes");
        // If the session was closed, the server may close the connection before it has answered the greeting.
        let greeted = raw.frame();
        assert!(session != 0 || greeted.is_ok(), "no session: {greeted:?}");
        raw
    }

    fn frame(&mut self) -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Returns the reply to a request: its error and the rest.
    fn ask(&mut self, code: i32, body: &[u8]) -> (i32, Vec<u8>) {
        self.stream.write_all(&framed(&request(1, code, body))).expect("writes");
        let reply = self.frame().expect("a reply");
        (i32::from_be_bytes(reply[12..16].try_into().expect("four")), reply[16..].to_vec())
    }

    pub(crate) fn children(&mut self, path: &str) -> Vec<String> {
        let (error, body) = self.ask(GET_CHILDREN, &[string(path), vec![0]].concat());
        if error != 0 {
            return Vec::new();
        }
        let number = |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().expect("four"));
        let mut at = 4;
        (0..number(0))
            .map(|_| {
                let length = usize::try_from(number(at)).expect("a length");
                at += 4 + length;
                String::from_utf8(body[at - length..at].to_vec()).expect("UTF-8")
            })
            .collect()
    }

    /// Returns the session that owns the node at `path`.
    pub(crate) fn owner(&mut self, path: &str) -> Option<i64> {
        let (error, body) = self.ask(GET_DATA, &[string(path), vec![0]].concat());
        // The stat is at the end: five fields of eight bytes, of which the owner is followed by two of four and one of
        // eight.
        let at = body.len().checked_sub(24).filter(|_| error == 0)?;
        Some(i64::from_be_bytes(body[at..at + 8].try_into().expect("eight")))
    }

    pub(crate) fn delete(&mut self, path: &str) {
        let (error, _) = self.ask(DELETE, &[string(path), (-1i32).to_be_bytes().to_vec()].concat());
        assert_eq!(error, 0, "{path} is removed");
    }

    /// Waits until the server has closed the session.
    pub(super) fn close(&mut self) {
        while self.frame().is_ok() {}
    }
}

fn request(xid: i32, code: i32, body: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len()).expect("short");
    [&length.to_be_bytes()[..], body].concat()
}

fn string(text: &str) -> Vec<u8> {
    framed(text.as_bytes())
}

/// Returns the password of a session. The server draws it from `java.util.Random`, seeded with the session's id and a
/// constant (`ZooKeeperServer.generatePasswd`).
fn password(session: i64) -> [u8; 16] {
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session.cast_unsigned() ^ 0xB341_5C00 ^ 0x5_DEEC_E66D) & MASK;
    let mut bytes = [0; 16];
    for four in bytes.chunks_mut(4) {
        state = state.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK;
        let number = u32::try_from((state >> 16) & 0xffff_ffff).expect("32 bits");
        four.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

//! A proxy that keeps keys on two servers, as Envoy does: it sends a script to the server of its first key.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use super::messages::Resp;
use crate::servers::relay::fault::Way;
use crate::servers::relay::wire::Wire as _;

/// Listens on a free port and returns it. Keys that end with an `a` are on the first of the servers at `ports`.
pub(crate) fn spread(ports: [u16; 2]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let own = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let servers =
                ports.map(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server"));
            thread::spawn(move || serve(client, servers));
        }
    });
    own
}

/// Answers one request after another.
fn serve(mut client: TcpStream, mut servers: [TcpStream; 2]) {
    let mut waiting = Vec::new();
    while let Some(request) = message(&mut client, Way::Request, &mut waiting) {
        let text = String::from_utf8_lossy(&request).into_owned();
        let words: Vec<&str> = text.split("\r\n").skip(2).step_by(2).collect();
        let key = match words.as_slice() {
            ["EVAL" | "EVALSHA", _, _, key, ..] | [_, key, ..] => key,
            _ => "",
        };
        let answer = if ["HELLO", "CLIENT"].contains(&words[0]) {
            format!("-unsupported command '{}'\r\n", words[0].to_lowercase()).into_bytes()
        } else {
            let server = &mut servers[usize::from(!key.ends_with('a'))];
            server.write_all(&request).expect("asks");
            message(server, Way::Answer, &mut Vec::new()).expect("an answer")
        };
        if client.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Returns the next whole message of `from`. `waiting` is the part that has arrived already.
fn message(from: &mut TcpStream, way: Way, waiting: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut buffer = [0; 16_384];
    loop {
        if let Some(unit) = Resp.next(way, waiting) {
            let rest = waiting.split_off(unit.length);
            return Some(std::mem::replace(waiting, rest));
        }
        match from.read(&mut buffer) {
            Ok(got @ 1..) => waiting.extend_from_slice(&buffer[..got]),
            _ => return None,
        }
    }
}

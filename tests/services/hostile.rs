//! Peers that do not speak the protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use crate::servers::free_port;

/// Returns a port that accepts connections and never answers.
pub(crate) fn mute() -> u16 {
    answering(None)
}

/// Returns a port that answers every request with nonsense.
pub(crate) fn babbling() -> u16 {
    answering(Some(b"\x00\x00\x00\x07nonsense\r\n+what?\r\n\xff\xff\xff\xff"))
}

/// Returns a port that answers every request with `words`.
pub(crate) fn answering(words: Option<&'static [u8]>) -> u16 {
    let port = free_port();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("listens");
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                // Until the client closes the connection.
                while let Ok(1..) = client.read(&mut buffer) {
                    if let Some(words) = words
                        && client.write_all(words).is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    port
}

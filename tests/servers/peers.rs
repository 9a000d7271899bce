//! Relays between the members of an etcd cluster. Each leads to one member and knows the sender of a connection. A test
//! can cut one member off from the others, in both directions, while clients still reach it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The connections that a relay no longer passes.
#[derive(Default)]
struct Cut {
    everybody: bool,
    /// Connections without the id of a sender. A member uses one to pass a client's request on to the leader.
    unnamed: bool,
    from: Vec<String>,
}

impl Cut {
    fn covers(&self, from: Option<&str>) -> bool {
        self.everybody || from.map_or(self.unnamed, |id| self.from.iter().any(|cut| cut == id))
    }
}

/// A relay to one member.
pub(crate) struct Relay {
    port: u16,
    cut: Arc<Mutex<Cut>>,
}

impl Relay {
    /// Starts a relay to the member that listens for its peers on `port`.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, super::free_port())).expect("listens");
        let own = listener.local_addr().expect("bound").port();
        let cut = Arc::new(Mutex::new(Cut::default()));
        let shared = Arc::clone(&cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let cut = Arc::clone(&shared);
                thread::spawn(move || serve(client, port, &cut));
            }
        });
        Self { port: own, cut }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn cut_all(&self) {
        self.cut.lock().expect("not poisoned").everybody = true;
    }

    /// Cuts the connections from the member with this id. If `unnamed` is true, also cuts those without the id of a
    /// sender.
    pub(crate) fn cut_from(&self, id: &str, unnamed: bool) {
        let mut cut = self.cut.lock().expect("not poisoned");
        cut.from.push(id.to_owned());
        cut.unnamed |= unnamed;
    }
}

fn serve(mut client: TcpStream, port: u16, cut: &Arc<Mutex<Cut>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(client.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let from = text.lines().find_map(|line| line.strip_prefix("x-server-from: ")).map(str::to_owned);
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    // Without this option a relay answers later than a member would.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    hold_up(cut, from.as_deref());
    if server.write_all(&head).is_err() {
        return;
    }
    let back = (server.try_clone().expect("a descriptor"), client.try_clone().expect("a descriptor"));
    let (also, sender) = (Arc::clone(cut), from.clone());
    thread::spawn(move || pass(back.0, back.1, &also, sender.as_deref()));
    pass(client, server, cut, from.as_deref());
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: &Mutex<Cut>, who: Option<&str>) {
    let mut buffer = [0; 16_384];
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        hold_up(cut, who);
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    // It may be closed already.
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Waits for ever if the connection is cut. It stays open, so neither side notices.
fn hold_up(cut: &Mutex<Cut>, who: Option<&str>) {
    while cut.lock().expect("not poisoned").covers(who) {
        thread::park();
    }
}

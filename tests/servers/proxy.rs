//! A relay between clients and a server. A test can make it fail.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Conduct {
    /// Passes everything on.
    #[default]
    Pass,
    /// Keeps connections open and passes nothing on, in either direction. Bytes that arrive meanwhile are passed on
    /// afterwards.
    Hole,
    /// Closes all connections, and new ones as soon as they are made.
    Refuse,
    /// Passes everything on. It closes a connection over which a client of Redis sends one of these commands.
    HangUpAt(&'static [&'static str]),
}

#[derive(Default)]
struct Present {
    conduct: Conduct,
    /// The number of connections so far.
    made: usize,
    /// The connections with a lower number are held up, whatever the others are.
    held_below: usize,
    connections: Vec<TcpStream>,
}

#[derive(Default)]
struct State {
    present: Mutex<Present>,
    changed: Condvar,
}

/// A relay on a free port.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Starts a relay to `port` of the loopback interface.
    pub(crate) fn to(port: u16) -> Self {
        // Another process may take a free port before this one.
        let listener = loop {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, super::free_port())) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => break bound.expect("listens"),
            }
        };
        Self::over(listener, port)
    }

    /// Starts a relay that takes connections from `listener`.
    pub(crate) fn over(listener: TcpListener, port: u16) -> Self {
        let own = listener.local_addr().expect("bound").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.present.lock().expect("not poisoned").conduct == Conduct::Refuse {
                    continue;
                }
                let Ok(server) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) else {
                    continue;
                };
                // Without this option a relay answers later than a server would.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                relay(&shared, &client, &server);
            }
        });
        Self { port: own, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets the behaviour from now on.
    pub(crate) fn set(&self, conduct: Conduct) {
        self.state.present.lock().expect("not poisoned").conduct = conduct;
        if conduct == Conduct::Refuse {
            self.reset();
        }
        self.state.changed.notify_all();
    }

    /// Returns the number of connections so far.
    pub(crate) fn made(&self) -> usize {
        self.state.present.lock().expect("not poisoned").made
    }

    /// From now on new connections pass, and the present ones stay held up.
    pub(crate) fn leave_behind(&self) {
        let mut present = self.state.present.lock().expect("not poisoned");
        present.held_below = present.made;
    }

    /// Closes the present connections.
    pub(crate) fn reset(&self) {
        for connection in self.state.present.lock().expect("not poisoned").connections.drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Conduct {
    fn hangs_up_at(self, bytes: &[u8]) -> bool {
        let Self::HangUpAt(words) = self else { return false };
        let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        parts.into_iter().any(|part| bytes.windows(part.len()).any(|window| window == part.as_bytes()))
    }
}

/// Passes on the bytes of a new connection in both directions.
fn relay(state: &Arc<State>, client: &TcpStream, server: &TcpStream) {
    let one_more = |socket: &TcpStream| socket.try_clone().expect("a descriptor");
    let mut present = state.present.lock().expect("not poisoned");
    let number = present.made;
    present.made += 1;
    for (from, to) in [(client, server), (server, client)] {
        let (mut from, mut to) = (one_more(from), one_more(to));
        present.connections.push(one_more(&from));
        let state = Arc::clone(state);
        thread::spawn(move || {
            let mut buffer = [0; 16_384];
            while let Ok(got @ 1..) = from.read(&mut buffer) {
                let present = state.present.lock().expect("not poisoned");
                let is_held_up =
                    |present: &mut Present| present.conduct == Conduct::Hole || number < present.held_below;
                let conduct = state.changed.wait_while(present, is_held_up).expect("not poisoned").conduct;
                if conduct.hangs_up_at(&buffer[..got]) {
                    let _ = from.shutdown(Shutdown::Both);
                    break;
                }
                if to.write_all(&buffer[..got]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

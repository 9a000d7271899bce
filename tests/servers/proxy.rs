//! A relay between clients and a server that can be told to fail.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What the relay does with what comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conduct {
    /// Passes everything on.
    Pass,
    /// Keeps connections open and passes nothing on, either way; what comes meanwhile is passed on afterwards.
    Hole,
    /// Closes connections as soon as they are made, and those that there are.
    Refuse,
}

struct State {
    conduct: Mutex<Conduct>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
}

/// A relay on a free port.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Relays to `port` of the loopback.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, super::free_port())).expect("listens");
        let own = listener.local_addr().expect("bound").port();
        let state = Arc::new(State {
            conduct: Mutex::new(Conduct::Pass),
            changed: Condvar::new(),
            connections: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if *shared.conduct.lock().expect("not poisoned") == Conduct::Refuse {
                    continue;
                }
                let Ok(server) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) else {
                    continue;
                };
                // Without these a relay answers later than a server would.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                relay(&shared, &client, &server);
                relay(&shared, &server, &client);
            }
        });
        Self { port: own, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Does so from now on.
    pub(crate) fn set(&self, conduct: Conduct) {
        *self.state.conduct.lock().expect("not poisoned") = conduct;
        if conduct == Conduct::Refuse {
            self.reset();
        }
        self.state.changed.notify_all();
    }

    /// Closes the connections that there are.
    pub(crate) fn reset(&self) {
        for connection in self.state.connections.lock().expect("not poisoned").drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn relay(state: &Arc<State>, from: &TcpStream, to: &TcpStream) {
    let mut from = from.try_clone().expect("a descriptor");
    let mut to = to.try_clone().expect("a descriptor");
    state.connections.lock().expect("not poisoned").push(from.try_clone().expect("a descriptor"));
    let state = Arc::clone(state);
    thread::spawn(move || {
        let mut buffer = [0; 16_384];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            let mut conduct = state.conduct.lock().expect("not poisoned");
            while *conduct == Conduct::Hole {
                conduct = state.changed.wait(conduct).expect("not poisoned");
            }
            drop(conduct);
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

//! A relay between clients and a server. A test can make it fail.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conduct {
    /// Passes everything on.
    Pass,
    /// Keeps connections open and passes nothing on, in either direction. Bytes that arrive meanwhile are passed on
    /// afterwards.
    Hole,
    /// Passes requests on, and keeps answers back.
    Mute,
    /// Passes everything on until a client sends this text in one piece. From then on it is mute.
    MuteFrom(&'static str),
    /// Passes everything on until a client sends this text in one piece. It drops that piece, closes the connection,
    /// and passes everything on again.
    LoseOnce(&'static str),
    /// Passes everything on. It closes a connection over which a client of Redis sends one of these commands.
    HangUpAt(&'static [&'static str]),
    /// Closes all connections, and new ones as soon as they are made.
    Refuse,
}

struct State {
    conduct: Mutex<Conduct>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
    /// The connections with a lower number are held up, whatever the others are.
    held_below: Mutex<usize>,
    /// The connections over which clients may still send.
    open: Mutex<BTreeSet<usize>>,
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
        let state = Arc::new(State {
            conduct: Mutex::new(Conduct::Pass),
            changed: Condvar::new(),
            connections: Mutex::default(),
            held_below: Mutex::default(),
            open: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if *shared.conduct.lock().expect("not poisoned") == Conduct::Refuse {
                    continue;
                }
                let Ok(server) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) else {
                    continue;
                };
                // Without this option a relay answers later than a server would.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                shared.open.lock().expect("not poisoned").insert(number);
                relay(&shared, number, true, &client, &server);
                relay(&shared, number, false, &server, &client);
            }
        });
        Self { port: own, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets the behaviour from now on.
    pub(crate) fn set(&self, conduct: Conduct) {
        *self.state.conduct.lock().expect("not poisoned") = conduct;
        if conduct == Conduct::Refuse {
            self.reset();
        }
        self.state.changed.notify_all();
    }

    pub(crate) fn conduct(&self) -> Conduct {
        *self.state.conduct.lock().expect("not poisoned")
    }

    /// Returns the number of connections up to the newest open one.
    pub(crate) fn made(&self) -> usize {
        self.state.open.lock().expect("not poisoned").last().map_or(0, |last| last + 1)
    }

    /// From now on new connections pass, and the present ones stay held up.
    pub(crate) fn leave_behind(&self) {
        *self.state.held_below.lock().expect("not poisoned") = self.made();
        self.set(Conduct::Pass);
    }

    /// Passes on the bytes of the connections that were left behind. Returns after all of them have passed.
    pub(crate) fn let_in(&self) {
        let below = std::mem::take(&mut *self.state.held_below.lock().expect("not poisoned"));
        // A waiting thread checks the condition under this lock, so it cannot miss the notification.
        drop(self.state.conduct.lock().expect("not poisoned"));
        self.state.changed.notify_all();
        while self.state.open.lock().expect("not poisoned").first().is_some_and(|first| *first < below) {
            thread::yield_now();
        }
    }

    /// Closes the present connections.
    pub(crate) fn reset(&self) {
        for connection in self.state.connections.lock().expect("not poisoned").drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn holds_up(&self, conduct: Conduct, number: usize, upwards: bool) -> bool {
        conduct == Conduct::Hole
            || (conduct == Conduct::Mute && !upwards)
            || number < *self.held_below.lock().expect("not poisoned")
    }
}

/// Returns whether `word` is in `bytes`, as it is or, as in requests to MySQL, in hexadecimal digits.
fn says(bytes: &[u8], word: &str) -> bool {
    let digits: String = word.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    [word, &digits].into_iter().any(|text| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

/// Returns whether one part of a Redis request in `bytes` is one of `words`.
fn has_one_of(bytes: &[u8], words: &[&str]) -> bool {
    let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    parts.into_iter().any(|part| bytes.windows(part.len()).any(|window| window == part.as_bytes()))
}

/// `upwards` means to the server.
fn relay(state: &Arc<State>, number: usize, upwards: bool, from: &TcpStream, to: &TcpStream) {
    let mut from = from.try_clone().expect("a descriptor");
    let mut to = to.try_clone().expect("a descriptor");
    state.connections.lock().expect("not poisoned").push(from.try_clone().expect("a descriptor"));
    let state = Arc::clone(state);
    thread::spawn(move || {
        let mut buffer = [0; 16_384];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            let mut conduct = state.conduct.lock().expect("not poisoned");
            if upwards && matches!(*conduct, Conduct::MuteFrom(word) if says(&buffer[..got], word)) {
                *conduct = Conduct::Mute;
            }
            if upwards && matches!(*conduct, Conduct::LoseOnce(word) if says(&buffer[..got], word)) {
                *conduct = Conduct::Pass;
                let _ = from.shutdown(Shutdown::Both);
                break;
            }
            if upwards && matches!(*conduct, Conduct::HangUpAt(words) if has_one_of(&buffer[..got], words)) {
                let _ = from.shutdown(Shutdown::Both);
                break;
            }
            while state.holds_up(*conduct, number, upwards) {
                conduct = state.changed.wait(conduct).expect("not poisoned");
            }
            drop(conduct);
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        if upwards {
            state.open.lock().expect("not poisoned").remove(&number);
        }
    });
}

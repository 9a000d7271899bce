//! A relay between clients and a server that can be told to fail.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What the relay does with what comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conduct {
    /// Passes everything on.
    Pass,
    /// Keeps connections open and passes nothing on, either way; what comes meanwhile is passed on afterwards.
    Hole,
    /// Passes on what clients say, and keeps back what the server answers.
    Mute,
    /// Passes everything on until a client says this, in one piece; is mute from then on.
    MuteFrom(&'static str),
    /// Passes everything on until a client says this, in one piece; loses that and closes its connection, and passes everything
    /// on from then on.
    LoseOnce(&'static str),
    /// Passes everything on, and closes a connection over which a client of Redis sends one of these commands.
    HangUpAt(&'static [&'static str]),
    /// Closes connections as soon as they are made, and those that there are.
    Refuse,
}

struct State {
    conduct: Mutex<Conduct>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
    /// The connections with a lower number are held up, whatever the others are.
    held_below: Mutex<usize>,
    /// Those over which clients may still say something.
    open: Mutex<BTreeSet<usize>>,
}

/// A relay on a free port.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Relays to `port` of the loopback.
    pub(crate) fn to(port: u16) -> Self {
        Self::at(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    }

    /// The same for those who come by the address `own`.
    pub(crate) fn at(own: IpAddr, port: u16) -> Self {
        // Somebody else may be given a free port before it is used.
        let listener = loop {
            match TcpListener::bind((own, super::free_port())) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => break bound.expect("listens"),
            }
        };
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
                // Without these a relay answers later than a server would.
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

    /// Does so from now on.
    pub(crate) fn set(&self, conduct: Conduct) {
        *self.state.conduct.lock().expect("not poisoned") = conduct;
        if conduct == Conduct::Refuse {
            self.reset();
        }
        self.state.changed.notify_all();
    }

    /// What it does now.
    pub(crate) fn conduct(&self) -> Conduct {
        *self.state.conduct.lock().expect("not poisoned")
    }

    /// How many connections have come.
    pub(crate) fn made(&self) -> usize {
        self.state.open.lock().expect("not poisoned").last().map_or(0, |last| last + 1)
    }

    /// From now on new connections pass, and those that there are stay held up.
    pub(crate) fn leave_behind(&self) {
        *self.state.held_below.lock().expect("not poisoned") = self.made();
        self.set(Conduct::Pass);
    }

    /// What was held up on connections that were left behind is passed on; returns when all of it is.
    pub(crate) fn let_in(&self) {
        let below = std::mem::take(&mut *self.state.held_below.lock().expect("not poisoned"));
        // Under the lock under which it is waited for.
        drop(self.state.conduct.lock().expect("not poisoned"));
        self.state.changed.notify_all();
        while self.state.open.lock().expect("not poisoned").first().is_some_and(|first| *first < below) {
            thread::yield_now();
        }
    }

    /// Closes the connections that there are.
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

/// Whether `word` is in `bytes`, as it is or, as in what goes to MySQL, in hexadecimal digits.
fn says(bytes: &[u8], word: &str) -> bool {
    let digits: String = word.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    [word, &digits].into_iter().any(|text| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

/// Whether `bytes` have a part of a request of Redis that is one of `words`.
fn has_one_of(bytes: &[u8], words: &[&str]) -> bool {
    let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    parts.into_iter().any(|part| bytes.windows(part.len()).any(|window| window == part.as_bytes()))
}

/// `upwards` is to the server.
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

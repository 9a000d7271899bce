//! A relay between a client and a service. It knows messages, and disturbs one of them or delays each.

pub(crate) mod fault;
pub(crate) mod tls;
pub(crate) mod wire;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fault::{BURST, Fault, Strike, TTL, Way};
use rustix::time::{ClockId, clock_gettime};
use wire::Wire;

/// Reads a connection of one protocol.
pub(crate) type Protocol = fn() -> Box<dyn Wire>;

/// Returns the delay of the next message.
pub(crate) type Delay = Box<dyn FnMut() -> Duration + Send>;

/// The time limit for a server to answer a late request.
const ANSWER: Duration = Duration::from_millis(500);

/// The progress of the life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Stage {
    #[default]
    Goes,
    /// The claim's dlock has ended.
    Ended,
    /// All the others too.
    Over,
}

/// The messages so far, and the fault.
#[derive(Default)]
struct State {
    /// The messages in each direction, in order.
    messages: [Vec<String>; 2],
    /// The message that the fault has met.
    met: Option<String>,
    /// The end of the burst.
    burst_until: Duration,
    /// The server that is silent from now on.
    silent: Option<usize>,
    /// A request is still kept back, or not answered yet.
    is_kept_back: bool,
    stage: Stage,
    sockets: Vec<TcpStream>,
}

struct Shared {
    strike: Option<Strike>,
    delay: Option<Mutex<Delay>>,
    protocol: Protocol,
    state: Mutex<State>,
    changed: Condvar,
}

/// A relay to a server, or to several that are one service. It counts the messages of all together.
pub(crate) struct Relay {
    ports: Vec<u16>,
    shared: Arc<Shared>,
}

impl Relay {
    /// Starts a relay to these ports of the loopback interface.
    pub(crate) fn to(ports: &[u16], protocol: Protocol, strike: Option<Strike>) -> Self {
        Self::start(ports, protocol, strike, None)
    }

    /// Starts a relay that delays each message by the result of `delay`. Messages of one connection stay in order.
    pub(crate) fn delaying(ports: &[u16], protocol: Protocol, delay: Delay) -> Self {
        Self::start(ports, protocol, None, Some(Mutex::new(delay)))
    }

    fn start(ports: &[u16], protocol: Protocol, strike: Option<Strike>, delay: Option<Mutex<Delay>>) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { strike, delay, protocol, state, changed });
        let ports = ports.iter().enumerate().map(|(server, port)| listen(&shared, server, *port));
        Self { ports: ports.collect(), shared }
    }

    /// Returns its ports, one for each server in the same order.
    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the messages in this direction so far.
    pub(crate) fn messages(&self, way: Way) -> Vec<String> {
        self.shared.state().messages[way as usize].clone()
    }

    /// Returns the message that the fault has met.
    pub(crate) fn met(&self) -> Option<String> {
        self.shared.state().met.clone()
    }

    /// Delivers the request that was kept back until the claim's dlock ended. Returns when the server has answered.
    pub(crate) fn end(&self) {
        let mut state = self.shared.state();
        state.stage = Stage::Ended;
        self.shared.changed.notify_all();
        if self.shared.strike.is_some_and(|strike| strike.fault == Fault::Ghost) {
            let wait = self.shared.changed.wait_timeout_while(state, ANSWER, |state| state.is_kept_back);
            drop(wait.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stage = Stage::Over;
        for socket in state.sockets.drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the threads that listen.
        for port in &self.ports {
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, *port));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `length`, or until `is_enough`. Returns false if the life is over.
    fn wait(&self, length: Duration, is_enough: impl Fn(&State) -> bool) -> bool {
        let goes_on = |state: &mut State| state.stage < Stage::Over && !is_enough(state);
        let wait = self.changed.wait_timeout_while(self.state(), length, goes_on);
        wait.unwrap_or_else(PoisonError::into_inner).0.stage < Stage::Over
    }

    /// Records the message and returns its fault, if it has one.
    fn judge(&self, server: usize, way: Way, message: &str) -> Option<Fault> {
        let now = Duration::try_from(clock_gettime(ClockId::Boottime)).expect("after the start");
        let mut state = self.state();
        state.messages[way as usize].push(format!("{:.3} {message}", now.as_secs_f64()));
        let number = state.messages[way as usize].len();
        if state.silent == Some(server) {
            return Some(Fault::Silence);
        }
        let strike = self.strike.filter(|strike| strike.way == way)?;
        if now < state.burst_until {
            return Some(strike.fault);
        }
        if strike.number != number {
            return None;
        }
        state.met = state.messages[way as usize].last().cloned();
        state.burst_until = if strike.fault == Fault::Burst { now + BURST } else { Duration::ZERO };
        state.silent = (strike.fault == Fault::Silence).then_some(server);
        state.is_kept_back = strike.fault.comes_late();
        Some(strike.fault)
    }

    /// Waits for the delay that every message has.
    fn delay(&self) {
        if let Some(delay) = &self.delay {
            let length = (*delay.lock().unwrap_or_else(PoisonError::into_inner))();
            self.wait(length, |_| false);
        }
    }

    /// Keeps a request back until its time. Returns false if the life is over first.
    fn keep_back(&self, fault: Fault) -> bool {
        match fault {
            // The life is over only after that.
            Fault::Ghost => self.wait(TTL * 100, |state| state.stage == Stage::Ended),
            _ => self.wait(TTL / 2, |_| false),
        }
    }
}

/// Accepts connections for the server at `port`. Returns the port of the relay.
fn listen(shared: &Arc<Shared>, server: usize, port: u16) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let own = listener.local_addr().expect("bound").port();
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if shared.state().stage == Stage::Over {
                return;
            }
            connect(&shared, &client, server, port);
        }
    });
    own
}

fn connect(shared: &Arc<Shared>, client: &TcpStream, number: usize, port: u16) {
    let one_more = |socket: &TcpStream| socket.try_clone().expect("a descriptor");
    shared.state().sockets.push(one_more(client));
    if shared.state().silent == Some(number) {
        // The connection stays open, and the relay does not read from it.
        return;
    }
    let Ok(server) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) else {
        let _ = client.shutdown(Shutdown::Both);
        return;
    };
    // Without this option a relay answers later than a server would.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    shared.state().sockets.push(one_more(&server));
    let wire = Arc::new(Mutex::new((shared.protocol)()));
    let is_late = Arc::new(AtomicBool::new(false));
    for way in Way::BOTH {
        let (from, to) = match way {
            Way::Request => (one_more(client), one_more(&server)),
            Way::Answer => (one_more(&server), one_more(client)),
        };
        let (shared, wire, is_late) = (Arc::clone(shared), Arc::clone(&wire), Arc::clone(&is_late));
        let direction = Direction { shared, wire, is_late, number, way, from, to };
        thread::spawn(move || direction.pass());
    }
}

/// One direction of one connection.
struct Direction {
    shared: Arc<Shared>,
    wire: Arc<Mutex<Box<dyn Wire>>>,
    /// The server has received the request that was kept back on this connection.
    is_late: Arc<AtomicBool>,
    /// The number of the server.
    number: usize,
    way: Way,
    from: TcpStream,
    to: TcpStream,
}

impl Direction {
    fn pass(mut self) {
        let (mut buffer, mut waiting) = (vec![0; 65_536], Vec::new());
        while let Ok(got @ 1..) = self.from.read(&mut buffer) {
            waiting.extend_from_slice(&buffer[..got]);
            if !self.pass_on(&mut waiting) {
                return;
            }
        }
        if self.shared.state().silent == Some(self.number) {
            // The end does not pass either.
            self.shared.wait(TTL * 100, |_| false);
            return;
        }
        // Passes on an incomplete message too: the receiver knows how to treat one.
        let _ = self.to.write_all(&waiting);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    /// Passes on whole messages. Returns false if nothing more is to pass.
    fn pass_on(&mut self, waiting: &mut Vec<u8>) -> bool {
        loop {
            let unit = self.wire.lock().unwrap_or_else(PoisonError::into_inner).next(self.way, waiting);
            let Some(unit) = unit else { return true };
            let silent = self.shared.state().silent == Some(self.number);
            let fault = match unit.message {
                Some(message) => self.shared.judge(self.number, self.way, &message),
                None => silent.then_some(Fault::Silence),
            };
            match fault {
                None => self.shared.delay(),
                // Neither side is notified.
                Some(Fault::Silence) => {
                    self.shared.wait(TTL * 100, |_| false);
                    return false;
                }
                Some(Fault::Lost) => {
                    let _ = (self.from.shutdown(Shutdown::Both), self.to.shutdown(Shutdown::Both));
                    return false;
                }
                Some(fault @ (Fault::Late | Fault::Burst | Fault::Ghost)) => {
                    self.deliver_late(fault, waiting);
                    return false;
                }
                Some(fault @ Fault::Delayed(_)) if self.shared.wait(fault.delay(), |_| false) => {}
                Some(Fault::Delayed(_)) => return false,
            }
            let rest = waiting.split_off(unit.length);
            let passed = self.to.write_all(waiting);
            *waiting = rest;
            if passed.is_err() {
                return self.drain();
            }
        }
    }

    /// Cuts the client's connection and delivers its request later.
    fn deliver_late(&mut self, fault: Fault, waiting: &[u8]) {
        let _ = self.from.shutdown(Shutdown::Both);
        if !self.shared.keep_back(fault) {
            return;
        }
        self.is_late.store(true, Ordering::SeqCst);
        if self.to.write_all(waiting).is_err() {
            // The server has closed the connection meanwhile.
            self.has_answered();
        }
        self.shared.wait(ANSWER, |state| !state.is_kept_back);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    /// Notes that the server has sent bytes. They may be the answer to the request that was kept back.
    fn has_answered(&self) {
        if self.is_late.load(Ordering::SeqCst) {
            self.shared.state().is_kept_back = false;
            self.shared.changed.notify_all();
        }
    }

    /// Reads the rest of the server's answers after the client is gone.
    fn drain(&mut self) -> bool {
        let mut buffer = vec![0; 65_536];
        while let Ok(1..) = self.from.read(&mut buffer) {
            self.has_answered();
        }
        self.has_answered();
        false
    }
}

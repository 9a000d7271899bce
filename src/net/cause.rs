//! Why a service cannot be reached: one list of causes, with their sentences and remedies, for all services.
//!
//! What a client library says of a server that is not there, or is something else, differs from one to the next and often says
//! nothing. So before anything has ever been answered, the server is looked at once more, by hand: is there a port, does it
//! answer, and as what? Encryption has its own part of the list, in [`super::tls`].

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::fault::{Fault, Retry};
use super::tcp::{self, STAGGER};
use crate::clock::Clock;
use crate::lock::reason::{About, Reason};
use crate::lock::{ErrorKind, Moment};

/// After how long a request that nobody answers is looked into.
const LONG: Duration = Duration::from_secs(1);
/// How long before its deadline that is at the latest.
pub const BEFORE: Duration = Duration::from_millis(1100);
/// And at the earliest, however near the deadline is.
const QUIET: Duration = Duration::from_millis(250);
/// How long a look waits for a connection and for an answer, both twice.
const STEP: Duration = Duration::from_millis(250);
/// What whoever reads lines answers to, or hangs up on.
const NUDGE: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

const RUNNING: &str = "is it running there?";
const PORT: &str = "is this the right port?";
const NO_TLS: &str = "does not speak TLS on this port";

/// How a service speaks without encryption, as far as it takes to tell it from others.
#[derive(Debug)]
pub struct Manner {
    /// Its name in sentences.
    pub service: &'static str,
    /// What may be missing where the server seems to want encryption: a question.
    pub encryption: &'static str,
    /// A request that changes nothing and that it answers; empty if it speaks first.
    pub hello: &'static [u8],
    /// Whether this is how its answer begins.
    pub is_own: fn(&[u8]) -> bool,
}

/// What a look at a server found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeResult {
    /// There is no connection, as the system puts it.
    Unreached(Reason),
    /// Nothing answers, not even to refuse.
    Away,
    /// It takes connections and says nothing.
    Silent,
    /// It speaks TLS, or hangs up on whoever does not.
    Closed,
    /// It is something else.
    Other,
    /// It is what was asked for; how its answer begins.
    Own(Vec<u8>),
}

/// Looks at the server at `at`, `HOST:PORT`, for a second at most.
pub async fn look(at: &str, manner: &Manner) -> ProbeResult {
    match try_with(at, manner, manner.hello).await {
        // What one service begins with can make another wait for more.
        ProbeResult::Silent => try_with(at, manner, NUDGE).await,
        found => found,
    }
}

/// Whether the server at `at` closes connections over which it has heard nothing yet.
pub async fn hangs_up(at: &str, manner: &Manner) -> bool {
    try_with(at, manner, b"").await == ProbeResult::Closed
}

/// What a new connection to `at` answers to `words`.
async fn try_with(at: &str, manner: &Manner, words: &[u8]) -> ProbeResult {
    let mut stream = match connect(at).await {
        Err(_) => return ProbeResult::Away,
        // It was accepted, and closed before the system had told.
        Ok(Err(error))
            if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
        {
            return ProbeResult::Closed;
        }
        Ok(Err(error)) => return ProbeResult::Unreached(explained(&error)),
        Ok(Ok(stream)) => stream,
    };
    if stream.write_all(words).await.is_err() {
        return ProbeResult::Closed;
    }
    let mut answer = vec![0; 512];
    match timeout(STEP, stream.read(&mut answer)).await {
        Err(_) => ProbeResult::Silent,
        Ok(Ok(0) | Err(_)) => ProbeResult::Closed,
        Ok(Ok(length)) => {
            answer.truncate(length);
            judge(answer, manner)
        }
    }
}

/// A connection to `at`; nothing in time is an error of its own. A name may have several addresses.
async fn connect(at: &str) -> Result<io::Result<TcpStream>, Elapsed> {
    let parts = at.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts else { return Ok(Err(io::ErrorKind::InvalidInput.into())) };
    let host = host.trim_matches(['[', ']']);
    let length = if host.parse::<IpAddr>().is_ok() { STEP } else { STEP + STAGGER };
    timeout(length, tcp::connect(host, port)).await
}

fn judge(answer: Vec<u8>, manner: &Manner) -> ProbeResult {
    match answer.as_slice() {
        // An alert of TLS.
        [0x15, 0x03, ..] => ProbeResult::Closed,
        bytes if (manner.is_own)(bytes) => ProbeResult::Own(answer),
        _ => ProbeResult::Other,
    }
}

/// What `found` at `at` means for a client that encrypts from the beginning, if `encrypts`; `None` if the server seems to be the
/// one that was meant.
pub fn complaint(at: &str, manner: &Manner, encrypts: bool, found: &ProbeResult) -> Option<Reason> {
    let of = |what: &str, about| Reason::of(&at, what).about(about);
    let foreign = || {
        let what = format!("accepts connections but does not answer as {} does", manner.service);
        of(&what, About::Stranger)
    };
    match found {
        ProbeResult::Unreached(why) => Some(why.clone().at(&at)),
        ProbeResult::Away => Some(of("does not answer", About::Service).asking(RUNNING)),
        ProbeResult::Silent => {
            Some(of("accepts connections but does not answer", About::Service).asking(PORT))
        }
        ProbeResult::Own(_) if encrypts => Some(no_tls(Reason::of(&at, NO_TLS))),
        ProbeResult::Own(_) => None,
        // What it says to a client that does encrypt is better.
        ProbeResult::Closed | ProbeResult::Other if encrypts => None,
        ProbeResult::Closed => Some(foreign().asking(manner.encryption)),
        ProbeResult::Other => Some(foreign().asking(PORT)),
    }
}

/// Why none of `servers`, each `HOST:PORT`, can be used; `None` if one seems to be what was meant. A server that answers without
/// encryption where that was asked for will do so again: `Denied`. Whatever else is `Unavailable`.
pub async fn of_all(servers: &[String], manner: &Manner, encrypts: bool) -> Option<Fault> {
    let looks = servers.iter().map(|at| async move {
        let found = look(at, manner).await;
        Some((complaint(at, manner, encrypts, &found)?, matches!(found, ProbeResult::Own(_))))
    });
    let found: Option<Vec<_>> = join_all(looks).await.into_iter().collect();
    let (reasons, own): (Vec<Reason>, Vec<bool>) =
        found.filter(|found| !found.is_empty())?.into_iter().unzip();
    let is_final = own.into_iter().all(|own| own);
    let kind = if is_final { ErrorKind::Denied } else { ErrorKind::Unavailable };
    Some(Fault::new(kind, Reason::joined(reasons)).helped_by(Retry::OtherConnection))
}

/// It does not speak TLS, and is to.
pub fn without_tls() -> Reason {
    no_tls(format!("it {NO_TLS}").into())
}

fn no_tls(reason: Reason) -> Reason {
    reason.advising("leave encryption out, or name another port")
}

/// It wants to know who asks, and nobody said; `places` are further places where a password may stand.
pub fn no_password(places: &str) -> Reason {
    Reason::from("it wants a user and a password").advising(format!("see --user, --password-file{places}"))
}

/// It does not let this user in, as it says itself.
pub fn wrong_password(said: &str, places: &str) -> Reason {
    let what = format!("it does not accept this user or password{}", aside(said));
    Reason::from(what).advising(format!("see --user, --password-file{places}"))
}

/// It asks nobody for a password, and one was given.
pub fn needless_password() -> Reason {
    Reason::from("it wants no password, and one was given").advising("leave out the user and the password")
}

/// It lets this user in, and not do that.
pub fn no_right(said: &str, remedy: &str) -> Reason {
    Reason::from(format!("it does not let this user do that{}", aside(said))).advising(remedy)
}

/// There is no such database.
pub fn no_database(said: &str, remedy: &str) -> Reason {
    let what = format!("it has no such database{}", aside(said));
    Reason::from(what).advising(format!("name another{remedy}"))
}

/// Nothing can be written there now.
pub fn read_only(said: &str) -> Reason {
    format!("it takes no writes{}", aside(said)).into()
}

/// There is no room for what is to be written.
pub fn full(of: &str, said: &str, remedy: &str) -> Reason {
    Reason::from(format!("it has no {of} left for another claim{}", aside(said))).advising(remedy)
}

/// ` (said)`, if something was.
fn aside(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

/// Why there is no connection to `at`, with what to look at.
pub fn unreached(at: &impl fmt::Display, error: &io::Error) -> Reason {
    explained(error).at(at)
}

/// What the system says of a connection, with what to look at.
pub fn explained(error: &io::Error) -> Reason {
    let why = said(error);
    if error.kind() == io::ErrorKind::ConnectionRefused { why.asking(RUNNING) } else { why }
}

/// `at` has not answered a request in time.
pub fn silent(at: &impl fmt::Display) -> Reason {
    Reason::of(at, "does not answer in time").about(About::Service)
}

/// `at` has not answered the login that was sent so long ago.
pub fn no_login(at: &impl fmt::Display, length: Duration) -> Reason {
    let seconds = length.as_secs_f64();
    let what =
        format!("accepts connections but does not answer in time: the login was sent {seconds:.1}s ago");
    Reason::of(at, what).about(About::Service)
}

/// `at` has not answered a request in time, and says itself why: `why`.
pub fn held_up(at: &impl fmt::Display, why: &str) -> Reason {
    Reason::of(at, format!("does not answer in time: {why}")).about(About::Service)
}

/// Whether `reason` is that servers accept connections and have answered nothing.
pub fn is_silence(reason: &Reason) -> bool {
    reason.question() == Some(PORT) && !reason.is_about_a_stranger()
}

/// The system's own words, as a fragment of a sentence.
pub fn said(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            return Reason::from("connection refused").about(About::Service);
        }
        io::ErrorKind::UnexpectedEof => return "the connection was closed".into(),
        _ => {}
    }
    let text = error.to_string();
    if text.starts_with("failed to lookup address") {
        return Reason::from("the host's name cannot be resolved").about(About::Service);
    }
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !text.starts_with("I/O") => {
            first.to_lowercase().chain(letters).collect::<String>().into()
        }
        _ => text.into(),
    }
}

/// Says that `backend` cannot be reached or used, if that is what `reason` is about: whatever was to be done there does not
/// matter then.
pub fn headline(backend: &str, reason: &Reason) -> Option<String> {
    let about = reason.is_about_the_service();
    about.then(|| match reason.server() {
        // The path of a socket is not said to be where a service is.
        Some(server) if server.contains(':') => format!("cannot reach {backend} at {reason}"),
        _ => format!("cannot use {backend}: {reason}"),
    })
}

/// Whether waiting for an answer is in vain: what is there is not the service, or not as it was meant.
fn settles(fault: &Fault) -> bool {
    fault.kind == ErrorKind::Denied || fault.reason.is_about_a_stranger()
}

/// Has `work` done by `deadline`. If that takes long, `look` finds out why, and the answer is what it found: at the deadline, or, for
/// whoever `gives_up`, as soon as it is known that there will be none.
///
/// `look` is not begun for work that is done in time.
pub async fn by<T, L>(
    clock: Clock,
    deadline: Moment,
    gives_up: bool,
    work: impl Future<Output = T>,
    look: impl FnOnce() -> L,
) -> Result<T, Option<Fault>>
where
    L: Future<Output = Option<Fault>>,
{
    let mut work = std::pin::pin!(work);
    let now = clock.now();
    let look_at = (now + LONG).min(deadline - BEFORE).max(now + QUIET).min(deadline);
    tokio::select! {
        biased;
        answer = &mut work => return Ok(answer),
        () = clock.sleep_until(look_at) => {}
    }
    // Few requests come this far, and each would carry it.
    let mut looking = Box::pin(look());
    let mut found = None;
    let mut looked = false;
    loop {
        tokio::select! {
            biased;
            answer = &mut work => return Ok(answer),
            cause = &mut looking, if !looked => {
                if gives_up && cause.as_ref().is_some_and(settles) {
                    return Err(cause);
                }
                (found, looked) = (cause, true);
            }
            () = clock.sleep_until(deadline) => return Err(found),
        }
    }
}

#[cfg(test)]
#[path = "cause_tests.rs"]
mod tests;

//! The causes for which a service cannot be reached: one list, with sentences and remedies, for all services.
//!
//! Client libraries report an absent or foreign server differently, and often not at all. So as long as no request has
//! ever been answered, dlock probes the server itself. It checks whether the port is open, whether the server answers,
//! and which protocol it speaks. The causes in encryption are in [`super::tls`].

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::address::host_and_port;
use super::fault::{Fault, Retry};
use super::socket::{self, STAGGER};
use crate::clock::Clock;
use crate::lock::reason::{About, Reason};
use crate::lock::{ErrorKind, Moment};

/// The time after which the cause of an unanswered request is looked for.
const LONG: Duration = Duration::from_secs(1);
/// The latest start of that search, as the time before the deadline.
const BEFORE: Duration = Duration::from_millis(1100);
/// The earliest start of that search, however near the deadline is.
const QUIET: Duration = Duration::from_millis(250);
/// The time that one probe waits for a connection, and again for an answer.
const STEP: Duration = Duration::from_millis(250);

const RUNNING: &str = "is it running there?";
const PORT: &str = "is this the right port?";
const NO_TLS: &str = "does not speak TLS on this port";

/// How to recognise a service that speaks without encryption.
#[derive(Debug)]
pub struct Manner {
    /// The service's name in sentences.
    pub service: &'static str,
    /// The question to ask if the server seems to want encryption.
    pub encryption: &'static str,
    /// A request that changes nothing and that the service answers; empty if the service speaks first.
    pub hello: &'static [u8],
    /// Returns whether the bytes are the beginning of the service's answer.
    pub is_own: fn(&[u8]) -> bool,
}

/// The result of probing a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeResult {
    /// The connection failed, with the system's reason.
    Unreached(Reason),
    /// The host did not answer, not even with a refusal.
    Away,
    /// The server accepts connections and sends nothing.
    Silent,
    /// The server speaks TLS, or closes connections that do not.
    Closed,
    /// Another service answered.
    Other,
    /// The expected service answered, with the beginning of its answer.
    Own(Vec<u8>),
}

/// Probes the server at `at`, `HOST:PORT`, for little more than a second at most.
pub async fn look(at: &str, manner: &Manner) -> ProbeResult {
    try_with(at, manner, manner.hello, STEP * 5 / 2).await
}

/// Returns whether the server at `at` closes connections over which it has received nothing yet.
pub async fn hangs_up(at: &str, manner: &Manner) -> bool {
    try_with(at, manner, b"", STEP).await == ProbeResult::Closed
}

/// Sends `words` over a new connection to `at`, waits up to `length` for the answer, and returns the result.
async fn try_with(at: &str, manner: &Manner, words: &[u8], length: Duration) -> ProbeResult {
    let mut stream = match connect(at).await {
        Err(_) => return ProbeResult::Away,
        // The server accepted the connection and closed it before the system reported it as open.
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
    let mut answer = [0; 512];
    match timeout(length, stream.read(&mut answer)).await {
        Err(_) => ProbeResult::Silent,
        Ok(Ok(0) | Err(_)) => ProbeResult::Closed,
        Ok(Ok(length)) => match &answer[..length] {
            // A TLS alert.
            [0x15, 0x03, ..] => ProbeResult::Closed,
            own if (manner.is_own)(own) => ProbeResult::Own(own.to_vec()),
            _ => ProbeResult::Other,
        },
    }
}

/// Connects to `at`; `Elapsed` if that takes too long. The name of a host may have several addresses.
async fn connect(at: &str) -> Result<io::Result<TcpStream>, Elapsed> {
    let Ok((host, Some(port))) = host_and_port(at) else {
        return Ok(Err(io::ErrorKind::InvalidInput.into()));
    };
    timeout(STEP + STAGGER, socket::connect(host, port)).await
}

/// Returns the meaning of `found` at `at`; `None` if the server seems to be the intended one. The client uses TLS from
/// the beginning if `encrypts`.
pub fn complaint(at: &str, manner: &Manner, encrypts: bool, found: &ProbeResult) -> Option<Reason> {
    let of = |what: &str, about| Reason::of(&at, what).about(about);
    let foreign = |about| {
        let what = format!("accepts connections but does not answer as {} does", manner.service);
        of(&what, about)
    };
    match found {
        ProbeResult::Unreached(why) => Some(why.clone().at(&at)),
        ProbeResult::Away => Some(of("does not answer", About::Service).asking(RUNNING)),
        // Some services wait for the rest of another one's hello.
        ProbeResult::Silent => Some(foreign(About::Service).asking(PORT)),
        ProbeResult::Own(_) if encrypts => Some(no_tls(Reason::of(&at, NO_TLS))),
        ProbeResult::Own(_) => None,
        // The error from the TLS handshake is more precise.
        ProbeResult::Closed | ProbeResult::Other if encrypts => None,
        ProbeResult::Closed => Some(foreign(About::Stranger).asking(manner.encryption)),
        ProbeResult::Other => Some(foreign(About::Stranger).asking(PORT)),
    }
}

/// Returns why all of `servers`, each `HOST:PORT`, are unusable; `None` if one seems to be the intended one.
///
/// The fault is `Denied` if all servers answer without encryption although `encrypts`: they will do so again. Otherwise
/// it is `Unavailable`.
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

/// The reason of a server that does not speak TLS although it should.
pub fn without_tls() -> Reason {
    no_tls(format!("it {NO_TLS}").into())
}

fn no_tls(reason: Reason) -> Reason {
    reason.advising("leave encryption out, or name another port")
}

/// The reason of a server that demands a login that was not given. `places` are further places that may hold a
/// password.
pub fn no_password(places: &str) -> Reason {
    Reason::from("it requires a user and a password").advising(format!("see --user, --password-file{places}"))
}

/// The reason of a server that refuses this user or password, with the server's words in `said`.
pub fn wrong_password(said: &str, places: &str) -> Reason {
    let what = format!("it does not accept this user or password{}", aside(said));
    Reason::from(what).advising(format!("see --user, --password-file{places}"))
}

/// The reason of a server that takes no password although one was given.
pub fn needless_password() -> Reason {
    Reason::from("it wants no password, and one was given").advising("leave out the user and the password")
}

/// The reason of a server that refuses this request to this user.
pub fn no_right(said: &str, remedy: &str) -> Reason {
    Reason::from(format!("it does not let this user do that{}", aside(said))).advising(remedy)
}

/// The reason of a server that lacks the database.
pub fn no_database(said: &str, remedy: &str) -> Reason {
    let what = format!("it has no such database{}", aside(said));
    Reason::from(what).advising(format!("name another{remedy}"))
}

/// The reason of a server that does not accept writes now.
pub fn read_only(said: &str) -> Reason {
    format!("it is read-only{}", aside(said)).into()
}

/// The reason of a server that has no space for another claim.
pub fn full(of: &str, said: &str, remedy: &str) -> Reason {
    Reason::from(format!("it has no {of} left for another claim{}", aside(said))).advising(remedy)
}

/// Returns ` (said)`, or nothing if `said` is empty.
fn aside(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

/// Returns why the connection to `at` failed, with a question to check.
pub fn unreached(at: &impl fmt::Display, error: &io::Error) -> Reason {
    explained(error).at(at)
}

/// Returns the system's reason for a failed connection, with a question to check.
pub fn explained(error: &io::Error) -> Reason {
    let why = said(error);
    if error.kind() == io::ErrorKind::ConnectionRefused { why.asking(RUNNING) } else { why }
}

/// The reason of a server that has not answered a request in time.
pub fn silent(at: &impl fmt::Display) -> Reason {
    Reason::of(at, "does not answer in time").about(About::Service)
}

/// Returns whether `reason` is about the port, and so is refuted by any answer of a server.
pub fn is_guess(reason: &Reason) -> bool {
    reason.question() == Some(PORT) || reason.is_about_a_stranger()
}

/// Returns the system's error text as a fragment of a sentence.
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

/// Returns the sentence that `backend` cannot be reached or used, if that is the content of `reason`. The operation
/// that failed is then irrelevant.
pub fn headline(backend: &str, reason: &Reason) -> Option<String> {
    let about = reason.is_about_the_service();
    about.then(|| match reason.server() {
        // The path of a socket is not the place of a service.
        Some(server) if server.contains(':') => format!("cannot reach {backend} at {reason}"),
        _ => format!("cannot use {backend}: {reason}"),
    })
}

/// Returns whether waiting for an answer is useless, because the server is another service or is configured otherwise.
fn settles(fault: &Fault) -> bool {
    fault.kind == ErrorKind::Denied || fault.reason.is_about_a_stranger()
}

/// Runs `work` until `deadline`. If it takes long, `look` finds out why, and its result is the error. The error is
/// returned at the deadline; if `gives_up`, as soon as `look` shows that no answer will come.
///
/// `look` does not start if `work` completes early.
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
    if let Some(answer) = clock.by(look_at, &mut work).await {
        return Ok(answer);
    }
    let found = tokio::select! {
        biased;
        answer = &mut work => return Ok(answer),
        // Boxed: few requests come this far, and each future would contain it.
        found = Box::pin(look()) => found,
        () = clock.sleep_until(deadline) => return Err(None),
    };
    if gives_up && found.as_ref().is_some_and(settles) {
        return Err(found);
    }
    clock.by(deadline, work).await.ok_or(found)
}

#[cfg(test)]
#[path = "cause_tests.rs"]
mod tests;

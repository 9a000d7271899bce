//! Starting sessions, and the causes of failures.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use spawns_core::{Spawn, Task};
use tokio::net::lookup_host;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use zookeeper_client::{
    Client, Error as ZkError, SessionInfo, SessionState, TlsCa, TlsCerts, TlsIdentity, TlsOptions,
};

use super::config::ZkConfig;
use super::fault::OVER;
use super::handshake::complaint;
use crate::lock::{ErrorKind, Reason};
use crate::net::credentials::Tls;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Stage};
use crate::net::socket::STAGGER;
use crate::sync::locked;

/// The most attempts in parallel.
const ATTEMPTS: usize = 8;
/// The time limit for starting a session, at first and at most. A server that is just starting may accept a connection
/// and then ignore it.
const BEGINNING: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// The time limit for resuming a session, at first. A connection that such a server ignores is one of its few, and
/// waiters must not take the others meanwhile.
const RESUMING: Duration = Duration::from_millis(100);

/// The time limit for starting a session that only reads.
pub(super) const PROBE: Duration = Duration::from_secs(3);

/// Returns how long a silent one of `servers` servers is tolerated. The client must still have time to renew at another
/// one. Among several servers, it may first try the silent one once more.
pub(super) fn silence(ttl: Duration, servers: usize) -> Duration {
    let part = if servers > 1 { ttl / 12 } else { ttl / 6 };
    part.clamp(Duration::from_millis(100), Duration::from_secs(4))
}

/// A session over one connection. It is closed when all handles of its client are dropped.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) service: Arc<Service>,
}

/// The client library's task for a session. By itself the library would replace a broken connection, and close the
/// session over the new one as soon as all handles of its client are dropped.
#[derive(Default, Debug)]
pub(super) struct Service {
    is_stopped: Arc<AtomicBool>,
    task: OnceLock<AbortHandle>,
}

impl Spawn for Service {
    fn spawn(&self, task: Task) {
        let (is_stopped, mut library) = (Arc::clone(&self.is_stopped), Box::into_pin(task.future));
        let until_stopped = poll_fn(move |context| {
            if is_stopped.load(Ordering::Relaxed) { Poll::Pending } else { library.as_mut().poll(context) }
        });
        let _ = self.task.set(tokio::spawn(until_stopped).abort_handle());
    }
}

impl Service {
    /// Stops the library: it sends nothing more, so that handles can be dropped without closing the session. To be
    /// followed by [`Service::end`].
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Closes the connection, if there is one, but not the session. Watchers of the client panic from then on.
    pub(super) fn end(&self) {
        self.stop();
        self.task.get().inspect(|task| task.abort());
    }
}

/// Starts sessions of one length, or resumes one.
pub(super) struct Dialer {
    config: ZkConfig,
    ttl: Duration,
    /// Stores the cause that probing the servers finds.
    cause: Arc<Mutex<Option<Reason>>>,
    /// The number of attempts without an answer since the last session.
    unanswered: AtomicU32,
    /// The session to resume.
    known: OnceLock<SessionInfo>,
    /// The user and the password of the session. Its nodes belong to them even after the password has changed.
    login: OnceLock<String>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dialer({})", self.config.address())
    }
}

/// For the client library an ensemble is one server: it chooses a server by itself, and changes servers within a
/// session.
impl Dial for Dialer {
    type Connection = Session;
    type Node = ();

    fn servers(&self, (): &()) -> usize {
        1
    }

    fn place(&self, (): &(), _: usize) -> String {
        self.config.address()
    }

    /// An abandoned attempt leaves nothing: the server ends a session that its client has closed. A server keeps only
    /// one of two connections of a session, so attempts to resume one are made one after another.
    async fn dial(&self, (): &(), _: usize, _: &Stage) -> FaultResult<Arc<Session>> {
        if self.known.get().is_some() {
            let servers = [self.config.servers.clone(), self.further_addresses().await].concat();
            return match self.in_time((RESUMING, BEGINNING.1), self.connect_once(&servers)).await {
                // The session is over, which other servers and time do not change.
                Err(fault) if fault.code == OVER => Err(Fault { kind: ErrorKind::Denied, ..fault }),
                session => session,
            };
        }
        self.in_time(BEGINNING, self.connect_to_any()).await
    }

    async fn is_usable(&self, session: &Session) -> bool {
        session.client.state() == SessionState::SyncConnected
    }

    fn peer(&self, _: &Session) -> String {
        self.config.address()
    }

    /// Names only the servers at fault.
    async fn look(&self) -> Option<Fault> {
        let servers = &self.config.servers;
        let looks = servers.iter().map(|server| complaint(server, self.config.tls.as_ref()));
        let faults: Vec<Fault> = join_all(looks).await.into_iter().flatten().collect();
        let found = faults.first().cloned().map(|first| {
            let is_first = |fault: &&Fault| (fault.kind, fault.retry) == (first.kind, first.retry);
            let all_agree = faults.iter().filter(is_first).count() == servers.len();
            let reason = Reason::joined(faults.into_iter().map(|fault| fault.reason).collect());
            // If servers differ, one of them may recover.
            if all_agree { Fault { reason, ..first } } else { Fault::unavailable(reason) }
        });
        let slow = || Reason::of(&self.config.address(), "takes too long to start a session");
        let reason = found.as_ref().map_or_else(slow, |found| found.reason.clone());
        *locked(&self.cause) = Some(reason);
        found
    }
}

impl Dialer {
    pub(super) fn new(config: &ZkConfig, ttl: Duration, cause: &Arc<Mutex<Option<Reason>>>) -> Self {
        let ttl = ttl.min(Duration::from_millis(i32::MAX.unsigned_abs().into()));
        let (cause, unanswered) = (Arc::clone(cause), AtomicU32::new(0));
        Self {
            config: config.clone(),
            ttl,
            cause,
            unanswered,
            known: OnceLock::new(),
            login: OnceLock::new(),
        }
    }

    /// Resumes `session` from now on.
    pub(super) fn go_on(&self, session: &SessionInfo) {
        self.known.get_or_init(|| session.clone());
    }

    /// Returns the session that `attempt` starts within a time limit: the first of the two, doubled for each attempt
    /// before that had no answer, up to the second.
    async fn in_time(
        &self,
        (first, longest): (Duration, Duration),
        attempt: impl Future<Output = FaultResult<Session>>,
    ) -> FaultResult<Arc<Session>> {
        let doublings = self.unanswered.load(Ordering::Relaxed).min(8);
        let answer = timeout((first * 2_u32.pow(doublings)).min(longest), attempt).await;
        match &answer {
            Ok(Ok(_)) => self.unanswered.store(0, Ordering::Relaxed),
            Ok(Err(_)) => {}
            Err(_) => self.unanswered.store(doublings + 1, Ordering::Relaxed),
        }
        answer.unwrap_or_else(|_| Err(ZkError::Timeout.into())).map(Arc::new)
    }

    /// Starts a session at the first server that answers. The client library tries the servers one after another in its
    /// own order, and tolerates an unreachable server as long as a silent one. So further attempts begin in parallel;
    /// which server each tries first is random.
    async fn connect_to_any(&self) -> FaultResult<Session> {
        let mut attempts = vec![Box::pin(self.attempt(0))];
        let mut begun = 1;
        let mut failure = None;
        loop {
            tokio::select! {
                biased;
                (answer, at, _) = select_all(&mut attempts) => match answer {
                    Ok(session) => return Ok(session),
                    Err(fault) => {
                        failure = failure.or(fault);
                        drop(attempts.swap_remove(at));
                        if attempts.is_empty() {
                            return Err(failure.unwrap_or(ZkError::Timeout.into()));
                        }
                    }
                },
                () = tokio::time::sleep(STAGGER), if begun < ATTEMPTS => {
                    attempts.push(Box::pin(self.attempt(begun)));
                    begun += 1;
                }
            }
        }
    }

    /// Makes the attempt of that number. A later attempt fails without a reason if there is no other server. Every
    /// second one leaves out a server, in turn, since the library might choose a silent one repeatedly.
    async fn attempt(&self, number: usize) -> std::result::Result<Session, Option<Fault>> {
        let mut servers = self.config.servers.clone();
        if number > 0 {
            servers.extend(self.further_addresses().await);
            if servers.len() < 2 {
                return Err(None);
            }
            if number % 2 == 1 {
                servers.remove(number / 2 % servers.len());
            }
        }
        self.connect_once(&servers).await.map_err(Some)
    }

    /// Returns the addresses of hosts with several, except the first one, which is the only one that the library uses.
    /// Not for encrypted connections, because certificates name the host.
    async fn further_addresses(&self) -> Vec<String> {
        let mut found = Vec::new();
        for server in self.config.servers.iter().filter(|_| self.config.tls.is_none()) {
            let addresses = lookup_host(server).await.into_iter().flatten();
            found.extend(addresses.skip(1).map(|address| address.to_string()));
        }
        found
    }

    async fn connect_once(&self, servers: &[String]) -> FaultResult<Session> {
        let mut connector = Client::connector()
            .with_session_timeout(self.ttl)
            .with_connection_timeout(silence(self.ttl, servers.len()))
            .with_fail_eagerly();
        if let Some(known) = self.known.get() {
            connector = connector.with_session(known.clone());
        }
        let login = match (self.login.get(), &self.config.user) {
            (None, Some((user, password))) => Some(format!("{user}:{}", password.reveal()?)),
            (login, _) => login.cloned(),
        };
        if let Some(login) = &login {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        let (servers, tls) = (servers.join(","), self.config.tls.as_ref());
        if let Some(tls) = tls {
            // Two providers are compiled in, and without a choice the first connection panics. It fails if one was
            // installed before.
            let _ = rustls::crypto::ring::default_provider().install_default();
            connector = connector.with_tls(TlsOptions::new().with_certs(certificates(tls)?));
        }
        let service = Arc::<Service>::default();
        let mut connecting = pin!(async {
            if tls.is_some() {
                connector.secure_connect(&servers).await
            } else {
                connector.connect(&servers).await
            }
        });
        let client = poll_fn(|context| {
            let _scope = spawns_core::enter(&*service);
            connecting.as_mut().poll(context)
        });
        let client = client.await?;
        login.map(|login| self.login.set(login));
        Ok(Session { client, service })
    }
}

/// Returns the authorities and the client certificate of `tls`.
fn certificates(tls: &Tls) -> FaultResult<TlsCerts> {
    let bad = |what: &str| Fault::new(ErrorKind::Invalid, format!("the {what} is not usable PEM text"));
    let text = |bytes: Vec<u8>, what: &str| String::from_utf8(bytes).map_err(|_| bad(what));
    let mut certificates = TlsCerts::builder();
    if let Some(authority) = &tls.authority {
        let pem = text(authority.reveal()?.into_owned(), "CA certificate")?;
        certificates = certificates.with_ca(TlsCa::from_pem(&pem).map_err(|_| bad("CA certificate"))?);
    }
    if let Some(identity) = &tls.identity {
        let (certificate, key) = identity.texts()?;
        let (certificate, key) = (text(certificate, "client certificate")?, text(key, "client key")?);
        let identity = TlsIdentity::from_pem(&certificate, &key);
        certificates =
            certificates.with_identity(identity.map_err(|_| bad("client certificate or its key"))?);
    }
    certificates.build().map_err(|_| bad("CA certificate"))
}

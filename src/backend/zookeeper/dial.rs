//! Starting and resuming sessions.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use spawns_core::{Spawn, Task};
use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::{
    Client, Error as ZkError, SessionInfo, SessionState, TlsCa, TlsCerts, TlsIdentity, TlsOptions,
};

use super::config::ZkConfig;
use super::fault::{OVER, complaint};
use crate::lock::{ErrorKind, Reason};
use crate::net::credentials::Tls;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Stage};
use crate::net::tls::client;
use crate::sync::locked;

/// The time limit for resuming a session, at first and at most. A server that is just starting may accept a connection
/// and then ignore it. Such a connection is one of its few, and waiters must not take the others meanwhile.
const RESUMING: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

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
pub(super) struct Service(Mutex<Option<JoinHandle<()>>>);

impl Spawn for Service {
    fn spawn(&self, task: Task) {
        *locked(&self.0) = Some(tokio::spawn(Box::into_pin(task.future)));
    }
}

impl Service {
    /// Closes the connection, if there is one, but not the session, if a handle of its client exists until this
    /// completes. Watchers of the client panic from then on.
    pub(super) async fn end(&self) {
        let task = locked(&self.0).take();
        if let Some(task) = task {
            task.abort();
            // It was aborted.
            let _ = task.await;
        }
    }
}

/// Starts sessions of one length, or resumes one.
pub(super) struct Dialer {
    config: ZkConfig,
    ttl: Duration,
    /// Stores the cause that probing the servers finds.
    cause: Arc<Mutex<Option<Reason>>>,
    /// The number of attempts to resume without an answer since the last connection.
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

    /// An abandoned attempt leaves nothing: the server ends a session that its client has closed.
    async fn dial(&self, (): &(), _: usize, _: &Stage) -> FaultResult<Arc<Session>> {
        let connecting = self.connect();
        if self.known.get().is_none() {
            return connecting.await.map(Arc::new);
        }
        let doublings = self.unanswered.load(Ordering::Relaxed).min(8);
        let length = (RESUMING.0 * 2_u32.pow(doublings)).min(RESUMING.1);
        let answer = timeout(length, connecting).await;
        self.unanswered.store(if answer.is_ok() { 0 } else { doublings + 1 }, Ordering::Relaxed);
        match answer.unwrap_or_else(|_| Err(ZkError::Timeout.into())) {
            // The session is over, which other servers and time do not change.
            Err(fault) if fault.code == OVER => Err(Fault { kind: ErrorKind::Denied, ..fault }),
            session => session.map(Arc::new),
        }
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
        Self {
            config: config.clone(),
            ttl,
            cause: Arc::clone(cause),
            unanswered: AtomicU32::new(0),
            known: OnceLock::new(),
            login: OnceLock::new(),
        }
    }

    /// Resumes `session` from now on.
    pub(super) fn go_on(&self, session: &SessionInfo) {
        self.known.get_or_init(|| session.clone());
    }

    /// Returns the addresses of all servers. With encryption these are the names, because certificates have them.
    async fn addresses(&self) -> Vec<String> {
        let servers = &self.config.servers;
        if self.config.tls.is_some() {
            return servers.clone();
        }
        let looked = join_all(servers.iter().map(lookup_host)).await;
        let found: Vec<_> =
            looked.into_iter().flatten().flatten().map(|address| address.to_string()).collect();
        if found.is_empty() { servers.clone() } else { found }
    }

    /// Starts or resumes a session. The client library tries the servers one after another in random order.
    async fn connect(&self) -> FaultResult<Session> {
        let servers = self.addresses().await;
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
    // The client library does not say what is wrong with them.
    client(tls)?;
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let mut certificates = TlsCerts::builder();
    if let Some(authority) = &tls.authority {
        certificates = certificates.with_ca(TlsCa::from_pem(&text(&authority.reveal()?))?);
    }
    if let Some(identity) = &tls.identity {
        let (certificate, key) = identity.texts()?;
        certificates = certificates.with_identity(TlsIdentity::from_pem(&text(&certificate), &text(&key))?);
    }
    Ok(certificates.build()?)
}

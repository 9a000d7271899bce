//! Sessions with whichever server of an ensemble answers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use tokio::net::lookup_host;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ZkError, TlsOptions};

use super::config::ZkConfig;
use super::handshake::{Complaint, complaint};
use super::paths::Paths;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Reason};
use crate::net::fault::{Fault, FaultResult};
use crate::net::tcp::STAGGER;

/// How many there may be beside each other.
const ATTEMPTS: usize = 8;

/// How long a session that only asks may take to begin.
pub(super) const PROBE: Duration = Duration::from_secs(3);

/// For how long one of so many servers that answers nothing is borne with. It is left for another one while there is time for a
/// renewal there; where there are several, the client may come to the silent one once more first.
pub(super) fn silence(ttl: Duration, servers: usize) -> Duration {
    let part = if servers > 1 { ttl / 12 } else { ttl / 6 };
    part.clamp(Duration::from_millis(100), Duration::from_secs(4))
}

/// How one ensemble is reached.
pub(super) struct Ensemble {
    pub(super) config: ZkConfig,
    pub(super) paths: Paths,
    pub(super) clock: Clock,
    /// A session was begun: what was asked for in it may have been done.
    connected: AtomicBool,
    /// Why the last attempt to connect failed.
    cause: Mutex<Option<Reason>>,
    /// Whoever asks goes on until the deadline, also if no server is there.
    persists: AtomicBool,
}

impl fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ensemble({})", self.config.address())
    }
}

impl Ensemble {
    pub(super) fn new(config: ZkConfig, clock: Clock) -> Self {
        let paths = Paths::new(&config.chroot, config.prefix.as_deref());
        let (connected, persists) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { config, paths, clock, connected, cause: Mutex::new(None), persists }
    }

    fn set_cause(&self, cause: Option<Reason>) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }

    pub(super) fn cause(&self) -> Option<Reason> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Goes on asking until the deadline from now on, as whoever has to remove something does.
    pub(super) fn persist(&self) {
        self.persists.store(true, Ordering::Relaxed);
    }

    /// Who may touch the nodes that are made: with a user this user alone.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.config.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    pub(super) fn ephemeral(&self) -> CreateOptions<'static> {
        CreateMode::EphemeralSequential.with_acls(self.acls())
    }

    /// A new session of about `ttl`; asks again and again until somebody answers, so the caller sets an end. Where no server is
    /// there at all that is an answer, unless somebody persists.
    /// Dropping the future leaves no more than a session without nodes.
    pub(super) async fn connect(&self, ttl: Duration) -> FaultResult<Client> {
        let mut pause = Duration::from_millis(50);
        let mut patience = Duration::from_secs(2);
        let mut diagnosed = false;
        loop {
            // A server that is just starting may take a connection and then forget it.
            let attempt = tokio::time::timeout(patience, self.connect_to_any(ttl)).await;
            patience = (patience * 2).min(Duration::from_secs(10));
            match attempt.unwrap_or(Err(ZkError::Timeout.into())) {
                Ok(client) => {
                    self.set_cause(None);
                    self.connected.store(true, Ordering::Relaxed);
                    return Ok(client);
                }
                Err(fault) if fault.code != 0 && fault.kind == ErrorKind::Unavailable => {
                    if !std::mem::replace(&mut diagnosed, true) {
                        let (verdict, cause) = self.diagnose().await;
                        self.set_cause(Some(cause.clone()));
                        match verdict {
                            // Time changes nothing about that.
                            Complaint::Refuses(kind) => return Err(Fault::new(kind, cause)),
                            Complaint::Absent if !self.persists.load(Ordering::Relaxed) => {
                                return Err(Fault::new(ErrorKind::Unavailable, cause));
                            }
                            Complaint::Absent | Complaint::Slow => {}
                        }
                    }
                }
                Err(fault) => return Err(fault),
            }
            self.clock.sleep_until(self.clock.now() + pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// A session from whichever server makes one first. The client tries the servers one after another, in an order of its
    /// own, and bears with one that is switched off for as long as with one that is silent; so while an attempt takes long
    /// others begin. Which server they try first is chance.
    async fn connect_to_any(&self, ttl: Duration) -> FaultResult<Client> {
        let mut attempts = vec![Box::pin(self.attempt(0, ttl))];
        let mut begun = 1;
        let mut failure = None;
        loop {
            tokio::select! {
                biased;
                (answer, at, _) = select_all(&mut attempts) => match answer {
                    Ok(client) => return Ok(client),
                    Err(fault) => {
                        failure = failure.or(fault);
                        drop(attempts.swap_remove(at));
                        if attempts.is_empty() {
                            return Err(failure.unwrap_or(ZkError::Timeout.into()));
                        }
                    }
                },
                () = tokio::time::sleep(STAGGER), if begun < ATTEMPTS => {
                    attempts.push(Box::pin(self.attempt(begun, ttl)));
                    begun += 1;
                }
            }
        }
    }

    /// The attempt of that number. A later one fails without a reason where there is nobody else to ask.
    async fn attempt(&self, number: usize, ttl: Duration) -> std::result::Result<Client, Option<Fault>> {
        let mut servers = self.config.servers.clone();
        if number > 0 {
            servers.extend(self.further_addresses().await);
            if servers.len() < 2 {
                return Err(None);
            }
        }
        self.connect_once(&servers, ttl).await.map_err(Some)
    }

    /// The addresses of hosts that have several, all but the first: the client stays with that. Not with encryption: the name is in the
    /// server's certificate.
    async fn further_addresses(&self) -> Vec<String> {
        let mut found = Vec::new();
        for server in self.config.servers.iter().filter(|_| self.config.tls.is_none()) {
            let addresses = lookup_host(server).await.into_iter().flatten();
            found.extend(addresses.skip(1).map(|address| address.to_string()));
        }
        found
    }

    /// The shortest session that any of the servers grants now to whoever asks for `ttl`; `None` if none answers.
    pub(super) async fn shortest_grant(&self, ttl: Duration) -> Option<Duration> {
        let mut servers = self.config.servers.clone();
        servers.extend(self.further_addresses().await);
        let asked = servers
            .iter()
            .map(|server| tokio::time::timeout(PROBE, self.connect_once(std::slice::from_ref(server), ttl)));
        let answers = join_all(asked).await.into_iter().flatten().flatten();
        answers.map(|session| session.session_timeout()).min()
    }

    async fn connect_once(&self, servers: &[String], ttl: Duration) -> FaultResult<Client> {
        let ttl = ttl.min(Duration::from_millis(i32::MAX.unsigned_abs().into()));
        let mut connector = Client::connector()
            .with_session_timeout(ttl)
            .with_connection_timeout(silence(ttl, servers.len()))
            .with_fail_eagerly();
        if let Some((user, password)) = &self.config.user {
            connector = connector.with_auth("digest", format!("{user}:{}", password.reveal()).as_bytes());
        }
        let servers = servers.join(",");
        match self.tls_options()? {
            None => Ok(connector.connect(&servers).await?),
            Some(tls) => Ok(connector.with_tls(tls).secure_connect(&servers).await?),
        }
    }

    fn tls_options(&self) -> FaultResult<Option<TlsOptions>> {
        let Some(tls) = &self.config.tls else { return Ok(None) };
        // Two providers are compiled in, and without a choice the first connection panics. Somebody else may
        // have chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bad = |what: &str| Fault::new(ErrorKind::Invalid, format!("the {what} is not usable PEM text"));
        let text = |pem: &crate::net::credentials::Pem| String::from_utf8(pem.as_bytes().to_vec());
        let mut options = TlsOptions::new();
        if let Some(authority) = &tls.authority {
            let pem = text(authority).map_err(|_| bad("CA certificate"))?;
            options = options.with_pem_ca(&pem).map_err(|_| bad("CA certificate"))?;
        }
        if let Some(identity) = &tls.identity {
            let certificate = text(&identity.certificate).map_err(|_| bad("client certificate"))?;
            let key = text(&identity.key).map_err(|_| bad("client key"))?;
            options = options
                .with_pem_identity(&certificate, &key)
                .map_err(|_| bad("client certificate or its key"))?;
        }
        Ok(Some(options))
    }

    /// Why no server of the list can be used, as far as a look at each tells. A server that serves is not named beside one that
    /// does not.
    async fn diagnose(&self) -> (Complaint, Reason) {
        let servers = &self.config.servers;
        let complaints =
            join_all(servers.iter().map(|server| complaint(server, self.config.tls.as_ref()))).await;
        let complaints: Vec<_> = complaints.into_iter().flatten().collect();
        let all = |of: Complaint| complaints.iter().filter(|(kind, _)| *kind == of).count() == servers.len();
        let verdict = [
            Complaint::Refuses(ErrorKind::Denied),
            Complaint::Refuses(ErrorKind::Invalid),
            Complaint::Absent,
        ];
        let verdict = verdict.into_iter().find(|kind| all(*kind)).unwrap_or(Complaint::Slow);
        if complaints.is_empty() {
            let slow = Reason::of(&self.config.address(), "takes too long to start a session");
            return (verdict, slow);
        }
        (verdict, Reason::joined(complaints.into_iter().map(|(_, reason)| reason).collect()))
    }

    /// Nobody has answered for so long as somebody would wait.
    pub(super) fn late(&self) -> Fault {
        let silent = || format!("no answer from {} in time", self.config.address()).into();
        Fault::spent(self.cause().unwrap_or_else(silent))
    }

    /// `fault`, with the ensemble if it is one of its words.
    pub(super) fn explain(&self, fault: Fault) -> Fault {
        if fault.code == 0 { fault } else { fault.at(&self.config.address()) }
    }
}

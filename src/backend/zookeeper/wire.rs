//! Sessions and single requests, by deadlines and with errors that people can read.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ZkError, Stat, TlsOptions};

use super::config::ZkConfig;
use super::grants;
use super::handshake::{Complaint, complaint};
use super::paths::Paths;
use crate::backend::{cause, fault};
use crate::clock::Clock;
use crate::lock::{Error, ErrorKind, LockName, Moment, Reason, Result};

/// The backend's name.
pub(super) const NAME: &str = "zk";

/// Why something did not come about.
#[derive(Debug)]
pub(super) enum Fault {
    /// The service said so, or did not answer.
    Service(ZkError),
    /// It was not to be.
    Refusal(ErrorKind, Reason),
}

impl From<ZkError> for Fault {
    fn from(error: ZkError) -> Self {
        Self::Service(error)
    }
}

pub(super) type FaultResult<T> = std::result::Result<T, Fault>;

/// Whether a request that ended so may have been carried out all the same, and may be repeated.
pub(super) fn is_ambiguous(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::ConnectionLoss | ZkError::Timeout | ZkError::Custom(_) | ZkError::UnmarshalError { .. }
    )
}

/// Whether the session is over.
pub(super) fn is_over(error: &ZkError) -> bool {
    matches!(error, ZkError::SessionExpired | ZkError::ClientClosed | ZkError::SessionMoved)
}

fn kind(error: &ZkError) -> ErrorKind {
    match error {
        ZkError::NoAuth | ZkError::AuthFailed | ZkError::InvalidAcl => ErrorKind::Denied,
        ZkError::BadArguments(_) => ErrorKind::Invalid,
        ZkError::Unimplemented => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    }
}

/// How long an attempt to begin a session may take before another begins beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// How many there may be beside each other.
const ATTEMPTS: usize = 8;

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

    fn cause(&self) -> Option<Reason> {
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

    /// Whether Curator's semaphores stand at the paths of locks: where names are written as foreign clients do it.
    pub(super) fn joins_semaphores(&self) -> bool {
        self.config.prefix.is_some()
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
            match attempt.unwrap_or(Err(Fault::Service(ZkError::Timeout))) {
                Ok(client) => {
                    self.set_cause(None);
                    self.connected.store(true, Ordering::Relaxed);
                    return Ok(client);
                }
                Err(Fault::Service(error)) if kind(&error) == ErrorKind::Unavailable => {
                    if !std::mem::replace(&mut diagnosed, true) {
                        let (verdict, cause) = self.diagnose().await;
                        self.set_cause(Some(cause.clone()));
                        match verdict {
                            // Time changes nothing about that.
                            Complaint::Refuses(kind) => return Err(Fault::Refusal(kind, cause)),
                            Complaint::Absent if !self.persists.load(Ordering::Relaxed) => {
                                return Err(Fault::Refusal(ErrorKind::Unavailable, cause));
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
        let mut attempts = vec![Box::pin(self.connect_once(ttl))];
        let mut begun = 1;
        loop {
            let more = self.config.servers.len() > 1 && begun < ATTEMPTS;
            tokio::select! {
                biased;
                (answer, at, _) = select_all(&mut attempts) => match answer {
                    Ok(client) => return Ok(client),
                    Err(fault) if attempts.len() == 1 => return Err(fault),
                    Err(_) => drop(attempts.swap_remove(at)),
                },
                () = tokio::time::sleep(STAGGER), if more => {
                    attempts.push(Box::pin(self.connect_once(ttl)));
                    begun += 1;
                }
            }
        }
    }

    async fn connect_once(&self, ttl: Duration) -> FaultResult<Client> {
        grants::listen();
        let ttl = ttl.min(Duration::from_millis(i32::MAX.unsigned_abs().into()));
        // A server that falls silent is left for another one while there is time for a renewal there.
        let silence = (ttl / 6).clamp(Duration::from_millis(100), Duration::from_secs(4));
        let mut connector = Client::connector()
            .with_session_timeout(ttl)
            .with_connection_timeout(silence)
            .with_fail_eagerly();
        if let Some((user, password)) = &self.config.user {
            connector = connector.with_auth("digest", format!("{user}:{}", password.reveal()).as_bytes());
        }
        let servers = self.config.servers.join(",");
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
        let bad = |what: &str| {
            Fault::Refusal(ErrorKind::Invalid, format!("the {what} is not usable PEM text").into())
        };
        let text = |pem: &crate::backend::options::Pem| String::from_utf8(pem.as_bytes().to_vec());
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

    fn reason(&self, error: &ZkError) -> Reason {
        let reason = match error {
            ZkError::NoAuth if self.config.user.is_none() => {
                cause::no_right("the path is not everybody's", "see --user, --password-file")
            }
            ZkError::NoAuth => cause::no_right("the path is another's", "see --user, --password-file"),
            ZkError::AuthFailed => cause::wrong_password("", ""),
            error => error.to_string().into(),
        };
        reason.at(&self.config.address())
    }

    fn explain(&self, fault: Fault) -> fault::Fault {
        match fault {
            Fault::Service(error) => match kind(&error) {
                ErrorKind::Unavailable => fault::Fault::spent(self.reason(&error)),
                kind => fault::Fault::new(kind, self.reason(&error)),
            },
            Fault::Refusal(kind, reason) => fault::Fault::new(kind, reason),
        }
    }
}

/// One call of a backend's or claim's method.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) ensemble: &'a Ensemble,
    pub(super) operation: &'static str,
    pub(super) lock: Option<&'a LockName>,
    pub(super) deadline: Moment,
}

impl Call<'_> {
    /// Does `work`, but not longer than the deadline.
    pub(super) async fn run<T>(&self, work: impl Future<Output = FaultResult<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = work => result.map_err(|fault| self.error(fault)),
            () = self.ensemble.clock.sleep_until(self.deadline) => Err(self.late()),
        }
    }

    pub(super) fn error(&self, fault: Fault) -> Error {
        self.named(self.ensemble.explain(fault))
    }

    pub(super) fn late(&self) -> Error {
        let silent = || format!("no answer from {} in time", self.ensemble.config.address()).into();
        self.named(fault::Fault::spent(self.ensemble.cause().unwrap_or_else(silent)))
    }

    fn named(&self, fault: fault::Fault) -> Error {
        fault.during(NAME, self.operation, self.lock)
    }
}

/// Completes when the session has a connection, and says whether it still lives.
pub(super) async fn connected(client: &Client) -> bool {
    let mut watcher = client.state_watcher();
    loop {
        let state = watcher.state();
        if state.is_terminated() {
            return false;
        }
        if state == zookeeper_client::SessionState::SyncConnected {
            return true;
        }
        watcher.changed().await;
    }
}

/// Completes when the session that `watcher` sees is over.
pub(super) async fn ended(mut watcher: zookeeper_client::StateWatcher) {
    while !watcher.state().is_terminated() {
        watcher.changed().await;
    }
}

/// Awaits `work`, and leaves it behind when cancelled.
///
/// A watch that is dropped is taken off at the server, and a session that is being closed waits for that exchange.
/// What only the end of its session cancels goes through here; what is left behind is small.
pub(super) async fn unto_the_end<T>(work: impl Future<Output = T>) -> T {
    let mut work = ManuallyDrop::new(Box::pin(work));
    let answer = work.as_mut().await;
    drop(ManuallyDrop::into_inner(work));
    answer
}

/// The children of `path`; none if it does not exist. Sent at once, whenever it is awaited.
pub(super) fn children<'a>(
    client: &'a Client,
    path: &str,
) -> impl Future<Output = std::result::Result<Vec<String>, ZkError>> + Send + use<'a> {
    let listed = client.list_children(path);
    async move {
        match listed.await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            other => other,
        }
    }
}

/// The data of each path, or `None` where nothing is; asked for in one exchange. What only another user may read has none.
pub(super) async fn data_of(client: &Client, paths: &[String]) -> FaultResult<Vec<Option<(Vec<u8>, Stat)>>> {
    let asked: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
    let mut found = Vec::with_capacity(asked.len());
    for (path, answer) in paths.iter().zip(asked) {
        found.push(match answer.await {
            Ok(data) => Some(data),
            Err(ZkError::NoNode) => None,
            Err(ZkError::NoAuth) => client.check_stat(path).await?.map(|stat| (Vec::new(), stat)),
            Err(error) => return Err(error.into()),
        });
    }
    Ok(found)
}

/// Makes `path` and what stands above it, in one exchange; what is there already is left as it is. Says whether the right to make one
/// of them was missing: it may be there all the same.
///
/// Containers, so that the server removes them when nobody uses them any more.
pub(super) async fn make_folders(client: &Client, acls: Acls<'static>, path: &str) -> FaultResult<bool> {
    let mut denied = false;
    for mode in [CreateMode::Container, CreateMode::Persistent] {
        let options = mode.with_acls(acls);
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
        let paths: Vec<&str> = ends.map(|end| &path[..end]).collect();
        let asked: Vec<_> = paths.iter().map(|path| client.create(path, b"", &options)).collect();
        let mut unknown = false;
        for answer in asked {
            match answer.await {
                // Who may not make a folder may still use it; whether it is there the next request tells.
                Err(ZkError::NoAuth) => denied = true,
                Ok(_) | Err(ZkError::NodeExists | ZkError::NoNode) => {}
                Err(ZkError::Unimplemented) => unknown = true,
                Err(error) => return Err(error.into()),
            }
        }
        if !unknown {
            break;
        }
    }
    Ok(denied)
}

//! An ensemble, and starting and resuming sessions with any of its servers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use spawns_core::{Spawn, Task};
use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, SessionState, TlsCa, TlsCerts, TlsIdentity, TlsOptions};

use super::config::ZkConfig;
use super::fault::complaint;
use crate::clock::Clock;
use crate::lock::{Moment, Reason};
use crate::net::cause;
use crate::net::credentials::{Secret, Tls};
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Link, Stage};
use crate::net::rank::Rank;
use crate::net::request::Patience;
use crate::net::tls::client;
use crate::sync::locked;

/// A client of one ensemble.
#[derive(Debug)]
pub(super) struct Ensemble {
    pub(super) config: ZkConfig,
    pub(super) clock: Clock,
    /// The purpose of the claims' connections.
    pub(super) rank: Mutex<Rank>,
}

impl Ensemble {
    pub(super) fn new(config: ZkConfig, clock: Clock) -> Self {
        Self { config, clock, rank: Mutex::default() }
    }

    /// Returns the access rights of created nodes: with a user, this user only.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.config.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// Starts a session of about `ttl`. It retries until a server answers. If no server is present at all, it fails at
    /// once. Dropping the future leaves at most a session without nodes.
    pub(super) async fn session(&self, ttl: Duration, deadline: Moment) -> FaultResult<Session> {
        let link = Link::new(Dialer { config: self.config.clone(), ttl }, self.clock);
        let opened = |session| async { Ok(session) };
        let session = link.call(deadline, Patience::Present, || (), opened).await;
        session.map(|session| Session::clone(&session)).map_err(|fault| self.explain(fault).coded(0))
    }

    /// Runs `work`, which uses a session, until the deadline.
    pub(super) async fn by<T>(
        &self,
        deadline: Moment,
        work: impl Future<Output = FaultResult<T>>,
    ) -> FaultResult<T> {
        let late = || Err(Fault::spent(cause::silent(&self.config.address())));
        self.clock.by(deadline, work).await.unwrap_or_else(late).map_err(|fault| self.explain(fault))
    }

    /// Returns `fault`, with the ensemble if the fault comes from it.
    pub(super) fn explain(&self, fault: Fault) -> Fault {
        if fault.code == 0 { fault } else { fault.at(&self.config.address()) }
    }
}

/// Returns how many servers the ensemble has.
pub(super) async fn servers(client: &Client) -> FaultResult<usize> {
    let (text, _) = client.get_config().await?;
    Ok(String::from_utf8_lossy(&text).lines().filter(|line| line.starts_with("server.")).count())
}

/// A session over one connection. It is closed when all handles of its client are dropped.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) service: Arc<Service>,
    /// The user and the password. Its nodes belong to them even after the password has changed.
    login: Option<Secret>,
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

/// Starts sessions of one length.
#[derive(Debug)]
struct Dialer {
    config: ZkConfig,
    ttl: Duration,
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
        connect(&self.config, self.ttl, None).await.map(Arc::new)
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
        let first = faults.first()?.clone();
        let alike =
            faults.iter().filter(|fault| (fault.kind, fault.retry) == (first.kind, first.retry)).count();
        let reason = Reason::joined(faults.into_iter().map(|fault| fault.reason).collect());
        // If servers differ, one of them may recover.
        Some(if alike == servers.len() { Fault { reason, ..first } } else { Fault::unavailable(reason) })
    }
}

/// Starts a session of about `ttl`, or resumes the `former` one. The client library tries the servers one after another
/// in random order.
pub(super) async fn connect(
    config: &ZkConfig,
    ttl: Duration,
    former: Option<&Session>,
) -> FaultResult<Session> {
    let servers = addresses(config).await;
    // A silent server is left while there is time to renew at another one. Among several servers, the silent one may be
    // tried once more before.
    let patience = if servers.len() > 1 { ttl / 12 } else { ttl / 6 };
    let mut connector = Client::connector()
        .with_session_timeout(ttl.min(Duration::from_millis(i32::MAX.unsigned_abs().into())))
        .with_connection_timeout(patience.clamp(Duration::from_millis(100), Duration::from_secs(4)))
        .with_fail_eagerly();
    let login = match (former, &config.user) {
        (Some(former), _) => {
            connector = connector.with_session(former.client.session().clone());
            former.login.clone()
        }
        (None, Some((user, password))) => Some(Secret::new(format!("{user}:{}", password.reveal()?))),
        (None, None) => None,
    };
    if let Some(login) = &login {
        connector = connector.with_auth("digest", login.reveal()?.as_bytes());
    }
    if let Some(tls) = &config.tls {
        // Two providers are compiled in, and without a choice the first connection panics. It fails if one was installed
        // before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        connector = connector.with_tls(TlsOptions::new().with_certs(certificates(tls)?));
    }
    let (service, servers) = (Arc::<Service>::default(), servers.join(","));
    let mut connecting = pin!(connector.connect(&servers));
    let client = poll_fn(|context| {
        let _scope = spawns_core::enter(&*service);
        connecting.as_mut().poll(context)
    });
    let client = client.await?;
    Ok(Session { client, service, login })
}

/// Returns the addresses of all servers. With encryption these are the names, because certificates have them.
async fn addresses(config: &ZkConfig) -> Vec<String> {
    if config.tls.is_some() {
        return config.servers.iter().map(|server| format!("tcp+tls://{server}")).collect();
    }
    let looked = join_all(config.servers.iter().map(lookup_host)).await;
    let found: Vec<_> = looked.into_iter().flatten().flatten().map(|address| address.to_string()).collect();
    if found.is_empty() { config.servers.clone() } else { found }
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

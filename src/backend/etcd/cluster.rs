//! Requests to a cluster over one connection. All of them may be repeated.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{
    Certificate, Channel, Client, ConnectOptions, GetOptions, GetResponse, Identity, TlsOptions, Txn,
    TxnResponse,
};
use tokio::sync::OnceCell;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{self, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::config::{EtcdConfig, MANNER, place};
use super::fault::{self, LEASE_GONE, LOGIN_REFUSED, STALE_TOKEN};
use super::keys::Layout;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Link, Stage};
use crate::net::request::Patience;
use crate::net::{cause, socket};

/// The time limit for connecting. It is less than a server's time to answer, to distinguish an absent server from a
/// slow one.
const CONNECT: Duration = Duration::from_millis(1400);
/// When a silent connection with an open stream is pinged, and the time for the answer. etcd closes connections of
/// clients that ping more often than every five seconds.
const PROBE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// The number of unanswered probes after which the kernel breaks a connection.
const PROBES: u32 = 2;

/// The answers of a proxy to a health check.
const REFUSALS: [Code; 3] = [Code::Unimplemented, Code::PermissionDenied, Code::Unauthenticated];

/// The locks in one cluster, and the connection of this process to it.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) link: Link<Dialer>,
    pub(super) layout: Layout,
    /// Whether requests continue until the deadline even if no server was ever present.
    persists: AtomicBool,
}

impl Cluster {
    /// Creates a client that connects with the first request.
    pub(super) fn new(config: &EtcdConfig) -> Self {
        Self {
            link: Link::new(Dialer { config: config.clone() }, Clock::Boot),
            layout: Layout { prefix: config.prefix.clone(), encoded: config.encoded },
            persists: AtomicBool::new(false),
        }
    }

    pub(super) fn config(&self) -> &EtcdConfig {
        &self.link.dial.config
    }

    /// Makes requests continue until the deadline from now on, for removals.
    pub(super) fn persist(&self) {
        self.persists.store(true, Ordering::Relaxed);
    }

    /// Sends `request` to any server and returns the answer; it may be executed more than once.
    ///
    /// Errors: the server's; `Denied` if no server and this client trust each other; `Unavailable` with the last reason
    /// at the deadline, or as soon as no server is present and none ever was.
    pub(super) async fn call<T, F, R>(&self, deadline: Moment, request: F) -> FaultResult<T>
    where
        F: Fn(Arc<Connection>) -> R + Send + Sync,
        R: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send,
    {
        let attempt = |connection: Arc<Connection>| {
            let asked = request(Arc::clone(&connection));
            let request = &request;
            async move {
                let mut answer = asked.await.map_err(Fault::from);
                if answer.as_ref().is_err_and(|fault| fault.code == STALE_TOKEN) {
                    answer = match connection.client.refresh_token().await {
                        Ok(()) => request(connection).await.map_err(Fault::from),
                        Err(error) => Err(error.into()),
                    };
                }
                match answer {
                    // This connection was accepted before, so the password has changed; a new one reads it again.
                    Err(fault) if fault.code == LOGIN_REFUSED => Err(Fault::spent(fault.reason)),
                    Err(fault) if fault.is_spent() => Err(fault),
                    // Any other error is the answer to the request.
                    answer => Ok(answer),
                }
            }
        };
        let persists = self.persists.load(Ordering::Relaxed);
        let patience = if persists { Patience::Deadline } else { Patience::Present };
        self.link.call(deadline, patience, || (), attempt).await?
    }

    /// Executes `txn` with the retries of [`Cluster::call`].
    pub(super) async fn txn(&self, txn: Txn, deadline: Moment) -> FaultResult<TxnResponse> {
        let txn = &txn;
        self.call(deadline, |c| async move { c.client.clone().txn(txn.clone()).await }).await
    }

    /// Reads a key, or with `options` several, with the retries of [`Cluster::call`].
    pub(super) async fn get(
        &self,
        key: impl Into<Vec<u8>>,
        options: GetOptions,
        deadline: Moment,
    ) -> FaultResult<GetResponse> {
        let (key, options) = (&key.into(), &options);
        let request = |c: Arc<Connection>| async move {
            c.client.clone().get(key.clone(), Some(options.clone())).await
        };
        self.call(deadline, request).await
    }

    /// Revokes a lease, which removes its keys; no error if it is gone.
    pub(super) async fn revoke(&self, lease: i64, deadline: Moment) -> FaultResult<()> {
        match self.call(deadline, |c| async move { c.client.clone().lease_revoke(lease).await }).await {
            Err(fault) if fault.code != LEASE_GONE => Err(fault),
            _ => Ok(()),
        }
    }
}

/// A connection to one server.
pub(super) struct Connection {
    pub(super) client: Client,
    place: String,
    channel: transport::Channel,
    proxied: OnceCell<bool>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.place)
    }
}

impl Connection {
    /// Returns whether the connection leads to etcd's grpc-proxy; asked once. A server answers every client's health
    /// check, which needs neither login nor rights. The proxy lacks that service, and does not forward the request.
    pub(super) async fn is_proxied(&self) -> Result<bool, Status> {
        let ask = async {
            let mut grpc = Grpc::new(self.channel.clone());
            grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
            let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
            match grpc.unary(Request::new(()), path, ProstCodec::<(), ()>::default()).await {
                Ok(_) => Ok(false),
                // Treating a server as a proxy is safe.
                Err(status) if REFUSALS.contains(&status.code()) => Ok(true),
                Err(status) => Err(status),
            }
        };
        self.proxied.get_or_try_init(|| Box::pin(ask)).await.copied()
    }
}

/// Connects to the servers of one cluster.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: EtcdConfig,
}

impl Dialer {
    async fn connect(&self, url: &str, stage: &Stage) -> FaultResult<Connection> {
        let channel = Box::pin(endpoint(url, &self.config)?.connect()).await;
        let channel = channel.map_err(|error| unreached(&error))?;
        stage.connected();
        // Without encryption the channel is there before the server has sent anything.
        if url.starts_with("https:") {
            stage.answered();
        }
        let mut options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
        if let Some((user, password)) = &self.config.login {
            options = options.with_user(user, password.reveal()?.as_str());
        }
        let client = Client::from_channel(Channel::Tonic(channel.clone()), Some(options));
        let client = Box::pin(client).await?;
        Ok(Connection { client, place: place(url).to_owned(), channel, proxied: OnceCell::new() })
    }
}

impl Dial for Dialer {
    type Connection = Connection;
    type Node = ();
    const ANSWERS_SOON: bool = true;

    fn servers(&self, (): &()) -> usize {
        self.config.endpoints.len()
    }

    fn place(&self, (): &(), server: usize) -> String {
        place(&self.config.endpoints[server]).to_owned()
    }

    async fn dial(&self, (): &(), server: usize, stage: &Stage) -> FaultResult<Arc<Connection>> {
        let connected = self.connect(&self.config.endpoints[server], stage).await;
        connected.map(Arc::new).map_err(|fault| fault.at(&self.place(&(), server)))
    }

    async fn is_usable(&self, _: &Connection) -> bool {
        // The channel detects failures by itself.
        true
    }

    async fn settled(&self, connection: &Connection) -> bool {
        // A dropped request is cancelled at the server, which processes that before it answers another request.
        connection.client.clone().status().await.is_ok()
    }

    fn peer(&self, connection: &Connection) -> String {
        connection.place.clone()
    }

    async fn look(&self) -> Option<Fault> {
        let endpoints = &self.config.endpoints;
        let encrypts = endpoints.iter().all(|url| url.starts_with("https:"));
        let servers: Vec<String> = endpoints.iter().map(|url| place(url).to_owned()).collect();
        cause::of_all(&servers, &MANNER, encrypts).await
    }
}

/// Returns the settings of a connection to the server at `url`.
fn endpoint(url: &str, config: &EtcdConfig) -> FaultResult<Endpoint> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| Fault::new(ErrorKind::Invalid, format!("{url} is not an address: {error}")))?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PROBE.0)
        .keep_alive_timeout(PROBE.1)
        .keep_alive_while_idle(false)
        .tcp_keepalive(Some(socket::PROBED_AFTER))
        .tcp_keepalive_interval(Some(socket::PROBED_EVERY))
        .tcp_keepalive_retries(Some(PROBES));
    if !url.starts_with("https:") {
        return Ok(endpoint);
    }
    let mut tls = match &config.tls.authority {
        Some(pem) => TlsOptions::new().ca_certificate(Certificate::from_pem(pem.reveal()?.as_slice())),
        None => TlsOptions::new().with_native_roots(),
    };
    if let Some(identity) = &config.tls.identity {
        let (certificate, key) = identity.texts()?;
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &config.tls.server_name {
        tls = tls.domain_name(name);
    }
    endpoint.tls_config(tls).map_err(|error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        Fault::new(ErrorKind::Invalid, format!("the certificates cannot be used: {reason}"))
    })
}

/// Returns the fault of a failed attempt to connect.
fn unreached(error: &transport::Error) -> Fault {
    if let Some(fault) = fault::of_encryption(error) {
        return fault;
    }
    let reason = fault::root(error);
    match reason.downcast_ref() {
        Some(error) => socket::unmade(cause::said(error), error),
        None => Fault::spent(reason.to_string()),
    }
}

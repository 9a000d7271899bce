//! Opening connections, and the causes of failures.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{Certificate, Channel, Client, ConnectOptions, Identity, TlsOptions};
use tokio::sync::OnceCell;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{self, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::config::{EtcdConfig, MANNER, place};
use super::fault;
use crate::lock::ErrorKind;
use crate::net::connector::unmade;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::{Dial, Stage};
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

/// The number of connections that this process has opened.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A connection, with its number within this process.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) number: u64,
    place: Arc<str>,
    channel: transport::Channel,
    proxied: Arc<OnceCell<bool>>,
}

impl Connection {
    /// Returns whether the connection leads to etcd's grpc-proxy; asked once. A server answers every client's health
    /// check. The proxy lacks that service, and does not forward the request.
    pub(super) async fn is_proxied(&self) -> Result<bool, Status> {
        let ask = Box::pin(async {
            match health(self.channel.clone()).await {
                Ok(()) => Ok(false),
                // Treating a server as a proxy is safe.
                Err(status) if REFUSALS.contains(&status.code()) => Ok(true),
                Err(status) => Err(status),
            }
        });
        self.proxied.get_or_try_init(|| ask).await.copied()
    }
}

/// Sends a health check over `channel`, which needs neither login nor rights.
async fn health(channel: transport::Channel) -> Result<(), Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    grpc.unary(Request::new(()), path, ProstCodec::<(), ()>::default()).await.map(|_| ())
}

/// Connects to the servers of one cluster.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: EtcdConfig,
}

impl Dialer {
    async fn connect(&self, url: &str, stage: &Stage) -> FaultResult<Connection> {
        let endpoint = endpoint(url, &self.config)?;
        let channel = Box::pin(endpoint.connect()).await.map_err(|error| unreached(&error))?;
        stage.connected();
        // Without encryption, and before a login, the channel is there before the server has said anything.
        if url.starts_with("https:") {
            stage.answered();
        }
        if self.config.login.is_some() {
            stage.logs_in();
        }
        let client = Client::from_channel(Channel::Tonic(channel.clone()), Some(options(&self.config)?));
        let client = Box::pin(client).await;
        let answered = match &client {
            Ok(_) => self.config.login.is_some(),
            // A failure of the connection has a source.
            Err(etcd_client::Error::GRpcStatus(status)) => status.source().is_none(),
            Err(_) => false,
        };
        if answered {
            stage.answered();
        }
        let client = client?;
        Ok(Connection {
            client,
            number: MADE.fetch_add(1, Ordering::Relaxed),
            place: place(url).into(),
            channel,
            proxied: Arc::default(),
        })
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
        connection.place.to_string()
    }

    async fn look(&self) -> Option<Fault> {
        let endpoints = &self.config.endpoints;
        let encrypts = endpoints.iter().all(|url| url.starts_with("https:"));
        let servers: Vec<String> = endpoints.iter().map(|url| place(url).to_owned()).collect();
        cause::of_all(&servers, &MANNER, encrypts).await
    }
}

/// Returns the login, and the options for all requests.
fn options(config: &EtcdConfig) -> FaultResult<ConnectOptions> {
    let options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
    Ok(match &config.login {
        Some((user, password)) => options.with_user(user, password.reveal()?.as_str()),
        None => options,
    })
}

/// Returns the settings of a connection to the server at `url`.
fn endpoint(url: &str, config: &EtcdConfig) -> FaultResult<Endpoint> {
    let unusable = |error: tonic::transport::Error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        Fault::new(ErrorKind::Invalid, format!("the certificates cannot be used: {reason}"))
    };
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
    endpoint.tls_config(tls).map_err(unusable)
}

/// Returns the fault of a failed connection. The reason is at the end of the chain of sources, from TLS or the system.
fn unreached(error: &tonic::transport::Error) -> Fault {
    if let Some(fault) = fault::of_encryption(error) {
        return fault;
    }
    let mut reason: &dyn Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    match reason.downcast_ref::<std::io::Error>() {
        Some(error) => unmade(cause::said(error), error),
        None => Fault::spent(reason.to_string()),
    }
}

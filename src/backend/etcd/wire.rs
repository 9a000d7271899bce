//! Requests to a cluster, all of which may be repeated.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etcd_client::{GetOptions, GetResponse, Txn, TxnResponse};

use super::config::EtcdConfig;
use super::dial::{Connection, Dialer};
use super::fault::{LEASE_GONE, LOGIN_REFUSED, STALE_TOKEN};
use crate::clock::Clock;
use crate::lock::Moment;
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::link::Link;
use crate::net::request::Patience;
use crate::net::tls::stays_here_at;

/// The connection of this process to a cluster.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) link: Link<Dialer>,
    /// Whether requests continue until the deadline even if no server was ever present.
    persists: AtomicBool,
}

/// Revokes a lease, which removes its keys; no error if it is gone.
pub(super) async fn revoke(wire: &Wire, lease: i64, deadline: Moment) -> FaultResult<()> {
    let revoked = wire.call(deadline, |mut c| async move { c.client.lease_revoke(lease).await });
    match revoked.await {
        Ok(_) => Ok(()),
        Err(fault) if fault.code == LEASE_GONE => Ok(()),
        Err(fault) => Err(fault),
    }
}

impl Wire {
    /// Creates a wire that connects with the first request.
    pub(super) fn new(config: &EtcdConfig) -> Self {
        Self {
            link: Link::new(Dialer { config: config.clone() }, Clock::Boot),
            persists: AtomicBool::new(false),
        }
    }

    fn config(&self) -> &EtcdConfig {
        &self.link.dial.config
    }

    /// Returns the servers as users write them, without user and password.
    pub(super) fn place(&self) -> String {
        self.config().servers()
    }

    /// Returns a server on another host to which the password is sent unencrypted, if there is one.
    pub(super) fn open_password(&self) -> Option<&str> {
        self.config().login.as_ref()?;
        let open = |url: &&String| url.strip_prefix("http://").is_some_and(|host| !stays_here_at(host));
        self.config().endpoints.iter().find(open).map(String::as_str)
    }

    /// Returns the server of the present or the next connection.
    pub(super) fn server(&self) -> String {
        self.config().endpoints[self.link.server(&())].clone()
    }

    /// Makes requests continue until the deadline from now on, for removals.
    pub(super) fn persist(&self) {
        self.persists.store(true, Ordering::Relaxed);
    }

    /// Returns a connection to any server.
    pub(super) async fn ready(&self, deadline: Moment) -> FaultResult<Arc<Connection>> {
        let there = |connection| async move { Ok(connection) };
        self.link.call(deadline, self.patience(), || (), there).await
    }

    fn patience(&self) -> Patience {
        if self.persists.load(Ordering::Relaxed) { Patience::Deadline } else { Patience::Present }
    }

    /// Sends `request` to any server and returns the answer; it may be executed more than once.
    ///
    /// Errors: the server's; `Denied` if no server and this client trust each other; `Unavailable` with the last reason
    /// at the deadline, or as soon as no server is present and none ever was.
    pub(super) async fn call<T, F, R>(&self, deadline: Moment, request: F) -> FaultResult<T>
    where
        F: Fn(Connection) -> R + Send + Sync,
        R: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send,
    {
        // This connection was accepted before, so the password has changed; a new connection reads it again.
        let spent = |fault: Fault| Fault::spent(fault.reason);
        let attempt = |connection: Arc<Connection>| {
            let asked = request(Connection::clone(&connection));
            let request = &request;
            async move {
                let mut answer = asked.await.map_err(Fault::from);
                if answer.as_ref().is_err_and(|fault| fault.code == STALE_TOKEN) {
                    // A request that was refused for an old token is sent again with a new one.
                    connection.client.refresh_token().await.map_err(Fault::from).map_err(spent)?;
                    answer = request(Connection::clone(&connection)).await.map_err(Fault::from);
                }
                match answer {
                    Err(fault) if fault.code == LOGIN_REFUSED => Err(spent(fault)),
                    Err(fault) if fault.code == STALE_TOKEN => Err(fault.helped_by(Retry::OtherConnection)),
                    Err(fault) if fault.is_spent() => Err(fault),
                    // Any other error is the answer to the request.
                    answer => Ok(answer),
                }
            }
        };
        self.link.call(deadline, self.patience(), || (), attempt).await?
    }

    /// Executes `txn` with the retries of [`Wire::call`].
    pub(super) async fn txn(&self, txn: Txn, deadline: Moment) -> FaultResult<TxnResponse> {
        self.call(deadline, |mut c| {
            let txn = txn.clone();
            async move { c.client.txn(txn).await }
        })
        .await
    }

    /// Reads a key, or with `options` several, with the retries of [`Wire::call`].
    pub(super) async fn get(
        &self,
        key: impl Into<Vec<u8>>,
        options: GetOptions,
        deadline: Moment,
    ) -> FaultResult<GetResponse> {
        let key = key.into();
        self.call(deadline, |mut c| {
            let (key, options) = (key.clone(), options.clone());
            async move { c.client.get(key, Some(options)).await }
        })
        .await
    }
}

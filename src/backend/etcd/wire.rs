//! Connections to a cluster: one server at a time, the next one when it fails.
//!
//! The client crate's own balancer neither looks whether a server lives nor tries again, so each connection here
//! has one server, and every request is made so that it may be repeated.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, GetOptions, GetResponse, Txn, TxnResponse};
use tokio::sync::{Mutex, watch};

use super::config::{EtcdConfig, MANNER, place};
use super::dial::{endpoint, options, unreached};
use super::fault::{self, LEASE_GONE, NOT_TRUSTED, STALE_TOKEN};
use crate::clock::{self, Clock};
use crate::lock::{ErrorKind, Moment, Reason};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};
use crate::net::tls::stays_here_at;

/// How long one server is given for an answer at first, if there are others.
const TRY_ONE_OF_SEVERAL: Duration = Duration::from_millis(1500);
/// How long the only server is given at first before the connection is made anew.
const TRY_THE_ONLY_ONE: Duration = Duration::from_secs(5);
/// How often that may double while no server answers in time.
const MOST_DOUBLINGS: u32 = 4;
/// A server that had less time than this says nothing about how long answers take.
const TELLING: Duration = Duration::from_millis(250);
/// Between two rounds over all servers, growing from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A connection, and which one it is.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// Greater for each new one.
    pub(super) number: u64,
}

/// The connection of this process to a cluster.
pub(super) struct Wire {
    config: EtcdConfig,
    options: ConnectOptions,
    /// The present connection; empty before the first request and after a failure.
    present: Mutex<Option<Connection>>,
    /// The number of the newest connection that failed. Connections are counted, and the server of a connection
    /// follows from its number.
    failed: watch::Sender<u64>,
    /// A connection was opened: what was sent over it may have been done.
    connected: AtomicBool,
    /// Some server has answered.
    answered: AtomicBool,
    /// Whoever asks goes on until the deadline, also if no server was ever there.
    persists: AtomicBool,
    /// How many servers have taken a connection and not answered in time since one was quick.
    slow: AtomicU32,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("endpoints", &self.config.endpoints).finish_non_exhaustive()
    }
}

/// What `work` comes to by `deadline`.
pub(super) async fn by<T>(deadline: Moment, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = work => Some(value),
        () = Clock::Boot.sleep_until(deadline) => None,
    }
}

/// Ends a lease and all that hangs on it; no error if it is gone.
pub(super) async fn revoke(wire: &Wire, lease: i64, deadline: Moment) -> FaultResult<()> {
    let revoked = wire.call(deadline, |mut c| async move { c.client.lease_revoke(lease).await });
    match revoked.await {
        Ok(_) => Ok(()),
        Err(fault) if fault.code == LEASE_GONE => Ok(()),
        Err(fault) => Err(fault),
    }
}

impl Wire {
    /// A wire that connects when it is first needed.
    pub(super) fn new(config: &EtcdConfig) -> Self {
        Self {
            config: config.clone(),
            options: options(config),
            present: Mutex::new(None),
            failed: watch::Sender::new(0),
            connected: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            persists: AtomicBool::new(false),
            slow: AtomicU32::new(0),
        }
    }

    /// The servers as people write them, without user and password.
    pub(super) fn place(&self) -> String {
        self.config.servers()
    }

    /// A server beyond this host to which the password goes unencrypted, if there is one.
    pub(super) fn open_password(&self) -> Option<&str> {
        self.config.login.as_ref()?;
        let open = |url: &&String| url.strip_prefix("http://").is_some_and(|host| !stays_here_at(host));
        self.config.endpoints.iter().find(open).map(String::as_str)
    }

    /// The server of a connection.
    pub(super) fn endpoint(&self, number: u64) -> &str {
        // The first connection has the number 1.
        let count = u64::try_from(self.config.endpoints.len()).unwrap_or(1);
        let at = usize::try_from(number.saturating_sub(1) % count).unwrap_or(0);
        &self.config.endpoints[at]
    }

    /// The server that is spoken to, or will be next.
    pub(super) async fn server(&self) -> String {
        let number =
            self.present.lock().await.as_ref().map_or_else(|| *self.failed.borrow() + 1, |c| c.number);
        self.endpoint(number).to_owned()
    }

    /// As [`crate::backend::Backend::has_connected`].
    pub(super) fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// A connection to some server, by `deadline`.
    pub(super) async fn ready(&self, deadline: Moment) -> FaultResult<Connection> {
        self.by(deadline, |connection| async move { Ok(connection) }).await
    }

    /// The present connection, made if there is none. It may take for ever: only [`Wire::call`] gives up.
    async fn connection(&self) -> FaultResult<Connection> {
        let mut present = self.present.lock().await;
        let failed = *self.failed.borrow();
        if let Some(connection) = present.as_ref().filter(|c| c.number > failed) {
            return Ok(connection.clone());
        }
        *present = None;
        let number = failed + 1;
        let endpoint = endpoint(self.endpoint(number), &self.config)?;
        let channel = Box::pin(endpoint.connect()).await.map_err(|error| unreached(&error))?;
        let client = Client::from_channel(Channel::Tonic(channel), Some(self.options.clone()));
        let client = Box::pin(client).await?;
        self.connected.store(true, Ordering::Relaxed);
        let connection = Connection { client, number };
        *present = Some(connection.clone());
        Ok(connection)
    }

    /// Notes that a connection is of no use, so that the next request goes to the next server.
    pub(super) fn give_up(&self, connection: &Connection) {
        self.give_up_number(connection.number);
    }

    /// As [`Wire::give_up`]; says whether nobody had before.
    fn give_up_number(&self, number: u64) -> bool {
        self.failed.send_if_modified(|failed| {
            let newer = number > *failed;
            *failed = number.max(*failed);
            newer
        })
    }

    /// Completes when the connection has been given up.
    pub(super) async fn given_up(&self, connection: &Connection) {
        let mut failed = self.failed.subscribe();
        // The sender is `self`, so this ends only with the wanted value.
        let _ = failed.wait_for(|failed| *failed >= connection.number).await;
    }

    /// How long the next of `left` servers of a round is given: its share of the time there is and no more than
    /// the usual, both doubled for each whole round in which nobody answered. A cluster may be slow.
    fn patience(&self, deadline: Moment, left: usize) -> Duration {
        let count = self.config.endpoints.len();
        let usual = self.usual();
        let remaining = deadline.since(clock::now());
        let share = remaining / u32::try_from(left).unwrap_or(u32::MAX).max(1);
        let rounds = self.slow.load(Ordering::Relaxed) / u32::try_from(count).unwrap_or(1).max(1);
        (usual.min(share) * 2_u32.pow(rounds.min(MOST_DOUBLINGS))).min(remaining)
    }

    /// How long one server is given at first.
    fn usual(&self) -> Duration {
        if self.config.endpoints.len() > 1 { TRY_ONE_OF_SEVERAL } else { TRY_THE_ONLY_ONE }
    }

    /// A server has taken so long for an answer. Only one that was quick shows that the cluster is not slow: after any
    /// other the next request would be given too little time once more.
    fn heard_after(&self, length: Duration) {
        if length <= self.usual() {
            self.slow.store(0, Ordering::Relaxed);
        }
    }

    /// Goes on asking until the deadline from now on, as whoever has to remove something does.
    pub(super) fn persist(&self) {
        self.persists.store(true, Ordering::Relaxed);
    }

    /// Why servers of which none ever answered do not; `None` if one has, or seems to be there.
    async fn why_silent(&self) -> Option<Fault> {
        if self.answered.load(Ordering::Relaxed) {
            return None;
        }
        let endpoints = &self.config.endpoints;
        let encrypts = endpoints.iter().all(|url| url.starts_with("https:"));
        let servers: Vec<String> = endpoints.iter().map(|url| place(url).to_owned()).collect();
        cause::of_all(&servers, &MANNER, encrypts).await
    }

    /// Has `request` answered by some server until `deadline`; it may be executed more than once.
    ///
    /// Errors: what the server says to it; `Denied` if no server and this client trust each other; `Unavailable` with the last
    /// reason at the deadline, or as soon as no server is there and none ever was.
    pub(super) async fn call<T, F, R>(&self, deadline: Moment, request: F) -> FaultResult<T>
    where
        F: Fn(Connection) -> R,
        R: Future<Output = Result<T, etcd_client::Error>>,
    {
        let timed = |connection| {
            let (begun, answer) = (clock::now(), request(connection));
            async move {
                let answer = answer.await;
                if answer.is_ok() {
                    self.heard_after(clock::now().since(begun));
                }
                answer
            }
        };
        let answer = self.by(deadline, timed).await;
        if !answer.as_ref().is_err_and(|fault| fault.is_spent() || fault.code == NOT_TRUSTED) {
            self.answered.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Has `txn` answered, as [`Wire::call`] does.
    pub(super) async fn txn(&self, txn: Txn, deadline: Moment) -> FaultResult<TxnResponse> {
        self.call(deadline, |mut c| {
            let txn = txn.clone();
            async move { c.client.txn(txn).await }
        })
        .await
    }

    /// Has a key read, or with `options` several, as [`Wire::call`] does.
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

    /// As [`Wire::call`]; that there is a connection is no answer yet.
    async fn by<T, F, R>(&self, deadline: Moment, request: F) -> FaultResult<T>
    where
        F: Fn(Connection) -> R,
        R: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut last = None;
        let asking = self.ask(deadline, request, &mut last);
        let gives_up = !self.persists.load(Ordering::Relaxed);
        match cause::by(Clock::Boot, deadline, gives_up, asking, || self.why_silent()).await {
            Ok(answer) => answer,
            Err(found) => {
                let silent = || cause::silent(&place(self.endpoint(*self.failed.borrow() + 1)));
                Err(found.map_or_else(|| Fault::spent(last.unwrap_or_else(silent)), fault::found))
            }
        }
    }

    /// As [`Wire::call`], which gives up.
    async fn ask<T, F, R>(&self, deadline: Moment, request: F, last: &mut Option<Reason>) -> FaultResult<T>
    where
        F: Fn(Connection) -> R,
        R: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut pause = PAUSE.0;
        let mut tries = 0;
        // How many servers one after the other were not trusted, or did not trust this client.
        let mut not_trusted = 0;
        let count = self.config.endpoints.len();
        while clock::now() < deadline {
            let number = *self.failed.borrow() + 1;
            let patience = self.patience(deadline, count - tries % count);
            // The client's futures are large, and every caller would hold one.
            let attempt = Box::pin(self.attempt(&request));
            let (reason, in_time) = match by(clock::now() + patience, attempt).await {
                Some(Err(fault)) if fault.code == NOT_TRUSTED => {
                    not_trusted += 1;
                    (fault.reason, true)
                }
                Some(Err(fault)) if fault.is_spent() || fault.code == STALE_TOKEN => {
                    not_trusted = 0;
                    (fault.reason, true)
                }
                Some(answer) => return answer,
                None => {
                    not_trusted = 0;
                    ("no answer in time".into(), false)
                }
            };
            let reason = reason.at(&place(self.endpoint(number)));
            if not_trusted == count {
                // Time changes nothing about that.
                return Err(Fault::new(ErrorKind::Denied, reason).coded(NOT_TRUSTED));
            }
            *last = Some(reason);
            let first = self.give_up_number(number);
            if first && !in_time && patience >= TELLING {
                self.slow.fetch_add(1, Ordering::Relaxed);
            }
            tries += 1;
            if tries == count
                && in_time
                && !self.persists.load(Ordering::Relaxed)
                && let Some(found) = self.why_silent().await
            {
                return Err(fault::found(found));
            }
            if tries % count == 0 {
                Clock::Boot.sleep_until(deadline.min(clock::now() + pause)).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
        // Whoever called knows better why.
        std::future::pending().await
    }

    /// One attempt to have `request` answered. What was refused for an old token is sent again with a new one.
    async fn attempt<T, F, R>(&self, request: &F) -> FaultResult<T>
    where
        F: Fn(Connection) -> R,
        R: Future<Output = Result<T, etcd_client::Error>>,
    {
        let connection = self.connection().await?;
        match request(connection.clone()).await.map_err(Fault::from) {
            Err(fault) if fault.code == STALE_TOKEN => {
                connection.client.refresh_token().await?;
                Ok(request(connection).await?)
            }
            answer => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Options;
    use crate::net::credentials::Secret;

    fn wire(endpoint: &str, password: Option<&str>) -> Wire {
        let options = Options {
            user: password.map(|_| "ci".to_owned()),
            password: password.map(Secret::new),
            ..Options::at(&[endpoint])
        };
        Wire::new(&EtcdConfig::parse(&options).expect("an address"))
    }

    #[test]
    fn a_password_is_open_beyond_this_host_without_encryption() {
        for (endpoint, password, open) in [
            ("http://h:1", Some("p"), Some("http://h:1")),
            ("http://127.0.0.1:1,http://h:1", Some("p"), Some("http://h:1")),
            ("http://h:1", None, None),
            ("https://h:1", Some("p"), None),
            ("localhost:1,[::1]:2,127.0.0.1:3", Some("p"), None),
        ] {
            assert_eq!(wire(endpoint, password).open_password(), open, "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_server_gets_its_share_of_the_time_and_more_after_rounds_without_an_answer() {
        let (one, two) = (wire("h:1", None), wire("h:1,h:2", None));
        let near = |wire: &Wire, deadline: u64, left: usize, wanted: u64| {
            let patience = wire.patience(clock::now() + Duration::from_millis(deadline), left).as_millis();
            let wanted = u128::from(wanted);
            assert!(patience <= wanted && patience + 50 > wanted, "{patience} for {wanted}");
        };
        near(&one, 60_000, 1, 5000);
        near(&one, 1000, 1, 1000);
        near(&two, 60_000, 2, 1500);
        near(&two, 1000, 2, 500);
        two.slow.store(1, Ordering::Relaxed);
        near(&two, 60_000, 2, 1500);
        two.slow.store(2, Ordering::Relaxed);
        near(&two, 60_000, 2, 3000);
        near(&two, 1000, 2, 1000);
        two.slow.store(1000, Ordering::Relaxed);
        near(&two, 60_000, 2, 24_000);
        two.heard_after(Duration::from_millis(2000));
        near(&two, 60_000, 2, 24_000);
        two.heard_after(Duration::from_millis(1000));
        near(&two, 60_000, 2, 1500);
    }
}

//! Opening connections, and executing a batch of statements over one.

use std::future::pending;
use std::net::IpAddr;

use futures_util::{FutureExt as _, TryStreamExt as _};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlSslMode};
use sqlx::{ConnectOptions as _, Connection as _, Either, Executor as _, Row as _};
use tokio::net::lookup_host;
use tokio::time::sleep;

use super::config::{MysqlConfig, MysqlPlace};
use super::fault;
use crate::backend::sql::dialect::{Row, Sets};
use crate::backend::sql::rows::properties;
use crate::lock::ErrorKind;
use crate::net::address::HostPort;
use crate::net::credentials::Secret;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;
use crate::net::socket::{STAGGER, first_of};
use crate::net::{cause, socket};

/// The variables to check on one of several servers, which must be the only one that accepts writes.
const FACTS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
     ('read_only', 'wsrep_on', 'group_replication_single_primary_mode');";

impl MysqlConfig {
    /// Opens a connection to the server of that number.
    async fn connect(&self, server: usize, stage: &Stage) -> FaultResult<MySqlConnection> {
        if !matches!(self.mode, MySqlSslMode::Disabled) {
            // One of sqlx's ways to check certificates needs it. It fails if one was installed before.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let place = &self.places[server];
        let options = self.options(place)?;
        let connected = tokio::select! {
            biased;
            connected = options.connect() => connected,
            connected = self.connect_to_addresses(place, &options) => connected,
        };
        socket::tend_all();
        if matches!(connected, Ok(_) | Err(sqlx::Error::Database(_))) {
            stage.answered();
        }
        connected.map_err(|error| fault::of(&error).at(place))
    }

    /// Connects to one of the further addresses of a host, after the first one has been silent for a while. By itself
    /// sqlx tries addresses one after another, with the system's timeout. Not used if the certificate must contain the
    /// host's name. Then, and if no address answers, it never completes.
    async fn connect_to_addresses(
        &self,
        place: &MysqlPlace,
        options: &MySqlConnectOptions,
    ) -> Result<MySqlConnection, sqlx::Error> {
        let MysqlPlace::Tcp(HostPort { host, port }) = place else { return pending().await };
        if matches!(self.mode, MySqlSslMode::VerifyIdentity) || host.parse::<IpAddr>().is_ok() {
            return pending().await;
        }
        sleep(STAGGER).await;
        let addresses: Vec<_> =
            lookup_host((host.as_str(), *port)).await.into_iter().flatten().skip(1).collect();
        let attempts = addresses.into_iter().map(|address| {
            let options = options.clone().host(&address.ip().to_string());
            async move { options.connect().await }
        });
        match first_of(attempts).await {
            Some(Ok(connection)) => Ok(connection),
            // The attempt by name reports the error.
            _ => pending().await,
        }
    }

    /// Connects, and checks that the server is the one of several that accepts writes.
    pub(super) async fn connect_to_writer(
        &self,
        server: usize,
        stage: &Stage,
    ) -> FaultResult<MySqlConnection> {
        let mut connection = self.connect(server, stage).await?;
        stage.connected();
        if self.places.len() > 1 {
            let facts = ask(&mut connection, FACTS).await;
            let facts = facts.map_err(|error| fault::of(&error).at(&self.places[server]))?;
            let facts = properties(facts);
            let is = |name: &str, value: &str| facts.is(name, value) == Some(true);
            if is("wsrep_on", "ON") || is("group_replication_single_primary_mode", "OFF") {
                return Err(Fault::new(
                    ErrorKind::Unsupported,
                    "several of these servers take writes at once (Galera or group replication), and dlock needs one \
                     that decides; name one server, the same on every host",
                ));
            }
            if is("read_only", "ON") {
                return Err(Fault::spent(cause::read_only("read_only")).at(&self.places[server]));
            }
        }
        Ok(connection)
    }

    fn options(&self, place: &MysqlPlace) -> FaultResult<MySqlConnectOptions> {
        // Options that would cost an exchange are not set; no statement depends on them.
        let mut options = MySqlConnectOptions::new()
            .username(&self.user)
            .ssl_mode(self.mode)
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None::<String>)
            .set_names(false)
            .statement_cache_capacity(0)
            .disable_statement_logging();
        options = match place {
            MysqlPlace::Tcp(HostPort { host, port }) => options.host(host).port(*port),
            MysqlPlace::Socket(path) => options.socket(path),
        };
        if let Some(database) = &self.database {
            options = options.database(database);
        }
        if let Some(password) = self.password.as_ref().map(Secret::reveal).transpose()? {
            options = options.password(&password);
        }
        if let Some(authority) = &self.authority {
            options = options.ssl_ca_from_pem(authority.reveal()?);
        }
        if let Some(identity) = &self.identity {
            let (certificate, key) = identity.texts()?;
            options = options.ssl_client_cert_from_pem(certificate).ssl_client_key_from_pem(key);
        }
        Ok(options)
    }
}

/// Executes `batch` and returns its results.
pub(super) async fn ask(connection: &mut MySqlConnection, batch: &str) -> Result<Sets, sqlx::Error> {
    let (mut sets, mut rows) = (Sets::new(), Vec::new());
    let mut replies = connection.fetch_many(sqlx::raw_sql(batch));
    while let Some(reply) = replies.try_next().await? {
        match reply {
            Either::Right(row) => rows.push(columns(&row)?),
            Either::Left(_) if rows.is_empty() => {}
            Either::Left(_) => sets.push(std::mem::take(&mut rows)),
        }
    }
    Ok(sets)
}

fn columns(row: &MySqlRow) -> Result<Row, sqlx::Error> {
    (0..row.len()).map(|n| row.try_get_unchecked::<Option<String>, _>(n)).collect()
}

/// Closes an idle connection in an orderly way, because servers log a warning for each that just ends.
pub(super) fn say_goodbye(connection: MySqlConnection) {
    // The few bytes are sent at once or not at all.
    drop(connection.close().now_or_never());
}

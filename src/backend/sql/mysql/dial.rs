//! Opening connections, and executing a batch of statements over one.

use std::future::pending;
use std::net::IpAddr;

use futures_util::{FutureExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlSslMode};
use sqlx::{ConnectOptions as _, Connection as _, Either, Executor as _, Row as _};
use tokio::net::lookup_host;
use tokio::time::sleep;

use super::config::{MysqlConfig, MysqlPlace, MysqlTls};
use super::fault;
use super::language::digits;
use crate::backend::sql::dialect::{Row, Sets};
use crate::lock::{ClaimId, ErrorKind};
use crate::net::credentials::Secret;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;
use crate::net::socket::{STAGGER, first_of};
use crate::net::{cause, socket};

/// The variables to check on one of several servers, which must be the only one that accepts writes.
const FACTS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
     ('read_only', 'wsrep_on', 'group_replication_single_primary_mode');";

/// Opens connections.
#[derive(Debug)]
pub(in crate::backend::sql) struct Dialer {
    pub(super) config: MysqlConfig,
    /// The beginning of the names of its user-level locks. They are global to the server, so a part identifies these
    /// tables.
    pub(super) locks: String,
}

impl Dialer {
    pub(in crate::backend::sql) fn new(config: MysqlConfig) -> Self {
        let database = config.database.as_deref().unwrap_or_default();
        let (database, prefix) =
            config.tables.prefix.split_once('.').unwrap_or((database, &config.tables.prefix));
        let digest = Sha256::digest([database.as_bytes(), &[0], prefix.as_bytes()].concat());
        let locks = ["dlock.", &digits(&digest[..6]).collect::<String>(), ".l."].concat();
        Self { config, locks }
    }

    /// Returns the name of the user-level lock that a claim's session holds while the claim is in the queue; with
    /// slots, while it waits. The end of this lock wakes claims that wait for this claim, even if the process dies.
    pub(super) fn presence(&self, claim: ClaimId) -> String {
        format!("{}{claim}", self.locks)
    }

    pub(super) fn peer(&self, server: usize) -> String {
        self.config.places[server].to_string()
    }

    /// Opens a connection to the server of that number.
    async fn connect(&self, server: usize, stage: &Stage) -> FaultResult<MySqlConnection> {
        if self.config.mode != MysqlTls::Disabled {
            // One of sqlx's ways to check certificates needs it. It fails if one was installed before.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let place = &self.config.places[server];
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
        connected.map_err(|error| fault::of(&error).at(&self.peer(server)))
    }

    /// Connects to one of the further addresses of a host, after the first one has been silent for a while. By itself
    /// sqlx tries addresses one after another, with the system's timeout. Not used if the certificate must contain the
    /// host's name. Then, and if no address answers, it never completes.
    async fn connect_to_addresses(
        &self,
        place: &MysqlPlace,
        options: &MySqlConnectOptions,
    ) -> Result<MySqlConnection, sqlx::Error> {
        let MysqlPlace::Tcp { host, port } = place else { return pending().await };
        if self.config.mode >= MysqlTls::VerifyIdentity || host.parse::<IpAddr>().is_ok() {
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
        if self.config.places.len() > 1 {
            let facts = ask(&mut connection, FACTS).await;
            let facts = facts.map_err(|error| fault::of(&error).at(&self.peer(server)))?;
            let is = |name: &str, value: &str| {
                let mut rows = facts.iter().flatten();
                rows.any(|row| row[0].as_deref() == Some(name) && row[1].as_deref() == Some(value))
            };
            if is("wsrep_on", "ON") || is("group_replication_single_primary_mode", "OFF") {
                return Err(Fault::new(
                    ErrorKind::Unsupported,
                    "several of these servers take writes at once (Galera or group replication), and dlock needs one \
                     that decides; name one server, the same on every host",
                ));
            }
            if is("read_only", "ON") {
                return Err(Fault::spent(cause::read_only("read_only")).at(&self.peer(server)));
            }
        }
        Ok(connection)
    }

    fn options(&self, place: &MysqlPlace) -> FaultResult<MySqlConnectOptions> {
        let config = &self.config;
        // Options that would cost an exchange are not set; no statement depends on them.
        let mut options = MySqlConnectOptions::new()
            .username(&config.user)
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None::<String>)
            .set_names(false)
            .statement_cache_capacity(0)
            .disable_statement_logging();
        let mode = match config.mode {
            MysqlTls::Disabled => MySqlSslMode::Disabled,
            MysqlTls::Preferred => MySqlSslMode::Preferred,
            MysqlTls::Required => MySqlSslMode::Required,
            MysqlTls::VerifyCa => MySqlSslMode::VerifyCa,
            MysqlTls::VerifyIdentity => MySqlSslMode::VerifyIdentity,
        };
        options = options.ssl_mode(mode);
        options = match place {
            // Resolving a name takes a thread.
            MysqlPlace::Tcp { host, port }
                if host == "localhost" && config.mode < MysqlTls::VerifyIdentity =>
            {
                options.host("127.0.0.1").port(*port)
            }
            MysqlPlace::Tcp { host, port } => options.host(host).port(*port),
            MysqlPlace::Socket(path) => options.socket(path),
        };
        if let Some(database) = &config.database {
            options = options.database(database);
        }
        if let Some(password) = config.password.as_ref().map(Secret::reveal).transpose()? {
            options = options.password(&password);
        }
        if let Some(authority) = &config.authority {
            options = options.ssl_ca_from_pem(authority.reveal()?.into_owned());
        }
        if let Some(identity) = &config.identity {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Options;

    #[test]
    fn names_of_locks_are_short_enough_and_these_tables_own() {
        let id = ClaimId::from_bytes([0xab; 16]);
        let presence = |database: &str, prefix: &str| {
            let at = format!("mysql://u@127.0.0.1:1/{database}");
            let options = Options { prefix: Some(prefix.to_owned()), ..Options::at(&[&at]) };
            Dialer::new(MysqlConfig::parse(&options).expect("valid")).presence(id)
        };
        let here = presence("ops", "dlock_");
        assert!(here.len() <= 64, "{here}");
        assert_eq!(here, presence("other", "ops.dlock_"));
        assert_ne!(here, presence("other", "dlock_"));
        assert_ne!(here, presence("ops", "x_"));
    }
}

//! From an address to an open connection.

use std::future::pending;
use std::net::IpAddr;

use sha2::{Digest as _, Sha256};
use sqlx::ConnectOptions as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use tokio::net::lookup_host;
use tokio::time::sleep;

use super::batch::ask;
use super::config::{MysqlConfig, MysqlPlace, MysqlTls};
use super::fault;
use super::language::digits;
use crate::backend::sql::tables::Tables;
use crate::lock::{ClaimId, ErrorKind};
use crate::net::credentials::Secret;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;
use crate::net::tcp::{STAGGER, first_of};
use crate::net::{cause, socket};

/// What is wrong with a server of several, which must take writes and be the only one that does.
const FACTS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
     ('read_only', 'wsrep_on', 'group_replication_single_primary_mode');";

/// Makes connections.
#[derive(Debug)]
pub(super) struct Dialer {
    config: MysqlConfig,
    /// What the names of its user-level locks begin with. They are the whole server's, so a part is these tables' own.
    locks: String,
}

impl Dialer {
    pub(super) fn new(config: MysqlConfig) -> Self {
        let database = config.database.as_deref().unwrap_or_default();
        let (database, prefix) =
            config.tables.prefix.split_once('.').unwrap_or((database, &config.tables.prefix));
        let digest = Sha256::digest([database.as_bytes(), &[0], prefix.as_bytes()].concat());
        let locks = ["dlock.", &digits(&digest[..6]).collect::<String>(), ".l."].concat();
        Self { config, locks }
    }

    pub(super) fn config(&self) -> &MysqlConfig {
        &self.config
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.config.tables
    }

    /// The name of the user-level lock that a claim's session has as long as the claim is in the queue, or with slots as long as it waits
    /// there. Its end wakes who waits for that claim, also if it is the end of a process.
    pub(super) fn presence(&self, claim: ClaimId) -> String {
        format!("{}{claim}", self.locks)
    }

    /// What comes before the claim in [`Dialer::presence`].
    pub(super) fn presence_start(&self) -> &str {
        &self.locks
    }

    pub(super) fn peer(&self, server: usize) -> String {
        self.config.places[server].to_string()
    }

    /// Opens a connection to the server of that number.
    pub(super) async fn connect(&self, server: usize) -> FaultResult<MySqlConnection> {
        if self.config.mode != MysqlTls::Disabled {
            // sqlx asks for it in one of its ways to check certificates; that it is there already is no failure.
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
        connected.map_err(|error| fault::of(&error).at(&self.peer(server)))
    }

    /// A connection by an address of a host that has several, begun when the first of them has been silent for a while: sqlx tries them
    /// one after another, for as long as the system does. Not where the name is to be in the server's certificate; there it never
    /// completes, nor if no address answers.
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
            // What the name comes to is the answer.
            _ => pending().await,
        }
    }

    /// As [`Dialer::connect`], and sees that the server is the one of several that takes writes.
    pub(super) async fn connect_to_writer(
        &self,
        server: usize,
        stage: &Stage,
    ) -> FaultResult<MySqlConnection> {
        let mut connection = self.connect(server).await?;
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
                     that decides; name one server, the same for everybody",
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
        // Nothing is set that would cost an exchange; no statement depends on it.
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
            // Asking for the addresses of a name takes a thread.
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
            options = options.ssl_ca_from_pem(authority.bytes()?.into_owned());
        }
        if let Some(identity) = &config.identity {
            let (certificate, key) = identity.texts()?;
            options = options.ssl_client_cert_from_pem(certificate).ssl_client_key_from_pem(key);
        }
        Ok(options)
    }
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

//! Opening connections.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::net::SocketAddr;

use tokio::net::UnixStream;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};

use super::config::{PgConfig, PgMode, PgPlace};
use super::fault;
use super::session::{MARK, PgSession};
use super::tls::Encryption;
use crate::backend::sql::dialect::Session;
use crate::lock::{ErrorKind, Reason};
use crate::net::connector::unmade;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;
use crate::net::{cause, tcp};

/// Opens a connection to the server at `place`, which must accept writes.
pub(super) async fn dial(config: &PgConfig, place: &PgPlace, stage: &Stage) -> FaultResult<PgSession> {
    let mark = mark();
    let session = match greet(config, place, Some(mark), stage).await {
        // A pooler refuses settings that it cannot forward.
        Err(Refusal::Mark) => greet(config, place, None, stage).await,
        other => other,
    };
    let session = session.map_err(|refusal| match refusal {
        Refusal::Fault(fault) => in_spite_of(fault, config).at(place),
        Refusal::Mark => Fault::spent(Reason::of(place, "refuses every greeting")),
    })?;
    stage.answered();
    Ok(session)
}

/// Adds to a refused login that a password file was ignored.
fn in_spite_of(fault: Fault, config: &PgConfig) -> Fault {
    match &config.ignored {
        Some(ignored) if fault.kind == ErrorKind::Denied => {
            Fault { reason: fault.reason.advising(ignored), ..fault }
        }
        _ => fault,
    }
}

enum Refusal {
    Fault(Fault),
    /// The setting that identifies this connection is refused.
    Mark,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Returns a unique name for a connection: the keys of hash tables are random.
fn mark() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

async fn greet(
    config: &PgConfig,
    place: &PgPlace,
    mark: Option<String>,
    stage: &Stage,
) -> Result<PgSession, Refusal> {
    let mut wanted = Config::new();
    wanted.user(&config.user).dbname(&config.database).application_name("dlock");
    wanted.channel_binding(config.binding);
    if let Some(password) = &place.password {
        wanted.password(password.reveal()?.as_str());
    }
    let mark_option = mark.as_ref().map(|mark| format!("-c {MARK}={mark}"));
    let startup: Vec<&str> = mark_option.as_deref().into_iter().chain(config.options.as_deref()).collect();
    if !startup.is_empty() {
        wanted.options(startup.join(" "));
    }
    if let Some(path) = place.socket() {
        let stream = UnixStream::connect(&path).await.map_err(|error| unreached(&error))?;
        stage.connected();
        stage.logs_in();
        wanted.ssl_mode(SslMode::Disable);
        let open = wanted.connect_raw(stream, NoTls).await;
        let (client, connection) = open.map_err(|error| refusal(&error, mark.is_some(), stage))?;
        let standby = standby(connection.parameter("in_hot_standby"))?;
        return finish(PgSession::over(client, connection, place.to_string(), mark), standby).await;
    }
    let stream = match place.address {
        Some(address) => tcp::connect_to(SocketAddr::new(address, place.port)).await,
        None => tcp::connect(&place.host, place.port).await,
    };
    let stream = stream.map_err(|error| unreached(&error))?;
    stage.connected();
    stage.logs_in();
    match config.mode {
        PgMode::Disable | PgMode::Allow => {
            wanted.ssl_mode(SslMode::Disable);
            let open = wanted.connect_raw(stream, NoTls).await;
            let (client, connection) = open.map_err(|error| refusal(&error, mark.is_some(), stage))?;
            let standby = standby(connection.parameter("in_hot_standby"))?;
            finish(PgSession::over(client, connection, place.to_string(), mark), standby).await
        }
        mode => {
            wanted.ssl_mode(if mode == PgMode::Prefer { SslMode::Prefer } else { SslMode::Require });
            let encryption = Encryption::new(mode, &config.tls, &place.host)?;
            let open = wanted.connect_raw(stream, encryption).await;
            let (client, connection) = open.map_err(|error| refusal(&error, mark.is_some(), stage))?;
            let standby = standby(connection.parameter("in_hot_standby"))?;
            finish(PgSession::over(client, connection, place.to_string(), mark), standby).await
        }
    }
}

/// Returns `Some(false)` if the server reports that it is not a standby, which versions from 14 on do; an error for a
/// standby.
fn standby(said: Option<&str>) -> FaultResult<Option<bool>> {
    match said {
        Some("on") => Err(read_only()),
        Some(_) => Ok(Some(false)),
        None => Ok(None),
    }
}

fn read_only() -> Fault {
    Fault::spent(cause::read_only("it is a standby"))
}

async fn finish(session: PgSession, standby: Option<bool>) -> Result<PgSession, Refusal> {
    if standby.is_none() {
        let sets = session.run("SELECT pg_is_in_recovery();").await?;
        let said = sets.first().and_then(|set| set.first()).and_then(|row| row.first()?.as_deref());
        if said == Some("t") {
            return Err(read_only().into());
        }
    }
    Ok(session)
}

fn refusal(error: &tokio_postgres::Error, marked: bool, stage: &Stage) -> Refusal {
    let said = error.as_db_error();
    if said.is_some() {
        stage.answered();
    }
    if let Some(said) = said
        && marked
        && (said.message().contains("startup parameter") || said.message().contains("options"))
    {
        return Refusal::Mark;
    }
    Refusal::Fault(fault::of(error))
}

fn unreached(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Refusal::Fault(Fault::new(ErrorKind::Denied, cause::said(error)));
    }
    // The caller adds the server.
    Refusal::Fault(unmade(cause::explained(error), error))
}

//! Opening connections.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;

use futures_util::FutureExt as _;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::config::{PgConfig, PgMode, PgPlace};
use super::fault;
use super::reach::{Canceller, reach};
use super::session::{MARK, PgSession};
use super::tls::Encryption;
use crate::backend::sql::dialect::Session;
use crate::lock::{ErrorKind, Reason};
use crate::net::cause;
use crate::net::connector::unmade;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;

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
    let stream = reach(place).await.map_err(|error| unreached(&error))?;
    stage.connected();
    stage.logs_in();
    let mode = if place.socket().is_some() { PgMode::Disable } else { config.mode };
    wanted.ssl_mode(match mode {
        PgMode::Disable | PgMode::Allow => SslMode::Disable,
        PgMode::Prefer => SslMode::Prefer,
        PgMode::Require | PgMode::VerifyCa | PgMode::VerifyFull => SslMode::Require,
    });
    let encryption = Encryption::new(mode, &config.tls, &place.host)?;
    let opened = wanted.connect_raw(stream, encryption).boxed().await;
    let (client, connection) = opened.map_err(|error| refusal(&error, mark.is_some(), stage))?;
    let standby = standby(connection.parameter("in_hot_standby"))?;
    let canceller =
        Canceller { token: client.cancel_token(), place: place.clone(), mode, tls: config.tls.clone() };
    finish(PgSession::over(client, connection, canceller, mark), standby).await
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

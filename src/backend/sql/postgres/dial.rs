//! Opening connections.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;

use futures_util::FutureExt as _;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::config::{PgConfig, PgMode, PgPlace};
use super::fault;
use super::session::{MARK, PgSession, reach};
use super::tls::Encryption;
use crate::backend::sql::dialect::Session;
use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;
use crate::net::socket::unmade;

/// The code of the refusal of the setting that identifies a connection.
const MARK_REFUSED: i32 = 1;

/// Opens a connection to the server at `place`, which must accept writes.
pub(super) async fn dial(config: &PgConfig, place: &PgPlace, stage: &Stage) -> FaultResult<PgSession> {
    let mark = mark();
    let session = match greet(config, place, Some(mark), stage).await {
        // A pooler refuses settings that it cannot forward.
        Err(fault) if fault.code == MARK_REFUSED => greet(config, place, None, stage).await,
        other => other,
    };
    let session = session.map_err(|fault| in_spite_of(fault, config).at(place))?;
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
) -> FaultResult<PgSession> {
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
    let mode = if place.socket().is_some() { PgMode::Disable } else { config.mode };
    wanted.ssl_mode(match mode {
        PgMode::Disable => SslMode::Disable,
        PgMode::Prefer => SslMode::Prefer,
        PgMode::Require | PgMode::VerifyCa | PgMode::VerifyFull => SslMode::Require,
    });
    let encryption = Encryption::new(mode, &config.tls, &place.host)?;
    let opened = wanted.connect_raw(stream, encryption.clone()).boxed().await;
    let (client, connection) = opened.map_err(|error| refusal(&error, mark.is_some(), stage))?;
    // Versions from 14 on report it.
    let standby = connection.parameter("in_hot_standby").map(|said| said == "on");
    let session = PgSession::over(client, connection, place, encryption, mark);
    let is_standby = if let Some(said) = standby {
        said
    } else {
        let sets = session.run("SELECT pg_is_in_recovery();").await?;
        sets.first().and_then(|set| set.first()?.first()?.as_deref()) == Some("t")
    };
    if is_standby { Err(Fault::spent(cause::read_only("it is a standby"))) } else { Ok(session) }
}

fn refusal(error: &tokio_postgres::Error, marked: bool, stage: &Stage) -> Fault {
    let said = error.as_db_error();
    if said.is_some() {
        stage.answered();
    }
    if let Some(said) = said
        && marked
        && (said.message().contains("startup parameter") || said.message().contains("options"))
    {
        return fault::of(error).coded(MARK_REFUSED);
    }
    fault::of(error)
}

fn unreached(error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Fault::new(ErrorKind::Denied, cause::said(error));
    }
    // The caller adds the server.
    unmade(cause::explained(error), error)
}

//! Opening connections.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use futures_util::FutureExt as _;
use tokio_postgres::{Config, NoTls};

use super::config::Postgres;
use super::fault;
use super::session::{MARK, PgSession, reach};
use crate::backend::sql::database::Server;
use crate::backend::sql::dialect::Session as _;
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Stage;

/// The code of the refusal of the setting that identifies a connection.
const MARK_REFUSED: i32 = 1;

/// Returns a unique name for a connection: the keys of hash tables are random.
fn mark() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

impl Postgres {
    /// Opens a connection to `server`, which must accept writes.
    pub(super) async fn connect(&self, server: &Server, stage: &Stage) -> FaultResult<PgSession> {
        let session = match self.greet(server, Some(mark()), stage).await {
            // A pooler refuses settings that it cannot forward.
            Err(fault) if fault.code == MARK_REFUSED => self.greet(server, None, stage).await?,
            other => other?,
        };
        stage.answered();
        Ok(session)
    }

    async fn greet(&self, server: &Server, mark: Option<String>, stage: &Stage) -> FaultResult<PgSession> {
        let mut wanted = Config::new();
        wanted.user(&self.database.user).dbname(&self.database.name).application_name("dlock");
        if let Some(password) = &server.password {
            wanted.password(password.reveal()?.as_str());
        }
        let mark_option = mark.as_ref().map(|mark| format!("-c {MARK}={mark}"));
        let startup: Vec<&str> = mark_option.as_deref().into_iter().chain(self.options.as_deref()).collect();
        if !startup.is_empty() {
            wanted.options(startup.join(" "));
        }
        let stream = reach(&self.database, &server.place, stage).await?;
        let opened = wanted.connect_raw(stream, NoTls).boxed().await;
        let (client, connection) = opened.map_err(|error| refusal(&error, mark.is_some(), stage))?;
        // Versions from 14 on report it.
        let standby = connection.parameter("in_hot_standby").map(|said| said == "on");
        let session = PgSession::over(client, connection, &self.database, &server.place, mark);
        let is_standby = if let Some(said) = standby {
            said
        } else {
            let sets = session.run("SELECT pg_is_in_recovery();").await?;
            sets.first().and_then(|set| set.first()?.first()?.as_deref()) == Some("t")
        };
        if is_standby { Err(Fault::spent(cause::read_only("it is a standby"))) } else { Ok(session) }
    }
}

fn refusal(error: &tokio_postgres::Error, marked: bool, stage: &Stage) -> Fault {
    let fault = fault::of(error);
    let Some(said) = error.as_db_error() else { return fault };
    stage.answered();
    let is_about_options = ["startup parameter", "options"].iter().any(|word| said.message().contains(word));
    if marked && is_about_options { fault.coded(MARK_REFUSED) } else { fault }
}

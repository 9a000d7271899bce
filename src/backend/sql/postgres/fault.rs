//! What PostgreSQL's errors mean.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::DbError;

use crate::backend::cause;
use crate::backend::fault::Fault;
use crate::backend::sql::fault::{again, no_right, no_tables};
use crate::backend::tls;
use crate::lock::ErrorKind;

/// What `error` means.
pub(super) fn of(error: &Error) -> Fault {
    match error.as_db_error() {
        Some(said) => of_server(said),
        None => of_client(error),
    }
}

fn of_server(said: &DbError) -> Fault {
    let text = match said.hint() {
        Some(hint) => format!("{} ({hint})", said.message()),
        None => said.message().to_owned(),
    };
    match said.code().code() {
        "42P01" => no_tables(text),
        "42501" => no_right(&text),
        "3F000" => no_right(&format!("{text}: there is no place for the tables")),
        "42703" => Fault::new(
            ErrorKind::Corrupt,
            format!("{text}; the tables are another program's, or another version's: use another --prefix"),
        ),
        // The transaction was undone for another's sake, or somebody has just made what this one was to make.
        "40001" | "40P01" | "23505" | "42P07" | "55P03" => again(text),
        "25006" => Fault::spent(cause::read_only(&text)),
        "28000" if text.contains("client certificate") => Fault::new(
            ErrorKind::Denied,
            format!("it wants a client certificate ({text}); give --cert and --key"),
        ),
        "28P01" | "28000" => {
            Fault::new(ErrorKind::Denied, cause::wrong_password(&text, ", PGPASSWORD and ~/.pgpass"))
        }
        "3D000" => Fault::new(ErrorKind::Corrupt, cause::no_database(&text, ", or make it with createdb")),
        code if code.starts_with("08") || code.starts_with("57P") || code.starts_with("25") => {
            Fault::spent(text)
        }
        "53300" => {
            Fault::new(ErrorKind::Full, cause::full("connection", &text, "raise max_connections or wait"))
        }
        "53100" => Fault::unavailable(cause::full("space", &text, "make room or wait")),
        // Out of memory or disk; cancelled by a time limit of the server's.
        code if code.starts_with("53") || code == "57014" => Fault::unavailable(text),
        code => Fault::new(ErrorKind::Corrupt, format!("{text} (SQLSTATE {code})")),
    }
}

fn of_client(error: &Error) -> Fault {
    let mut cause = error.source();
    while let Some(inner) = cause {
        let own = inner.downcast_ref::<Fault>().cloned();
        // A server refuses a client's certificate only after the client believes it is connected.
        if let Some(fault) =
            own.or_else(|| inner.downcast_ref::<std::io::Error>().and_then(|error| tls::refusal(error)))
        {
            return fault;
        }
        cause = inner.source();
    }
    let text = match error.source() {
        Some(inner) => format!("{error}: {inner}"),
        None => error.to_string(),
    };
    if text.contains("password missing") {
        return Fault::new(ErrorKind::Denied, cause::no_password(", PGPASSWORD and ~/.pgpass"));
    }
    if text.contains("authentication") {
        return Fault::new(ErrorKind::Denied, text);
    }
    if text.contains("server does not support TLS") {
        let reason = "it does not speak TLS on this port; turn on ssl in postgresql.conf, or say ?sslmode=prefer in the address";
        return Fault::new(ErrorKind::Denied, reason);
    }
    Fault::spent(text)
}

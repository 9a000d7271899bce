//! The meaning of PostgreSQL's errors.

use std::error::Error as _;

use tokio_postgres::Error;

use crate::backend::sql::dialect::{again, no_right, no_tables, other_tables};
use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::Fault;
use crate::net::tls;

/// The places that may have a password.
const PASSWORDS: &str = ", PGPASSWORD and ~/.pgpass (mode 0600)";

/// Returns the fault for `error`.
pub(super) fn of(error: &Error) -> Fault {
    match error.as_db_error() {
        Some(said) => {
            let text = match said.hint() {
                Some(hint) => format!("{} ({hint})", said.message()),
                None => said.message().to_owned(),
            };
            of_server(said.code().code(), text)
        }
        None => of_client(error),
    }
}

/// Returns the fault for the SQLSTATE `code`.
fn of_server(code: &str, text: String) -> Fault {
    match code {
        "42P01" => no_tables(text),
        "42501" => no_right(&text),
        "3F000" => no_right(&format!("{text}: there is no place for the tables")),
        // A column or a unique index is missing, or there is an unknown column.
        "42703" | "42P10" | "23502" => other_tables(&text),
        // The transaction was undone in favour of another one, or another client has just created the object.
        "23505" | "42P07" | "42710" | "55P03" => again(text),
        code if code.starts_with("40") => again(text),
        "25006" => Fault::spent(cause::read_only(&text)),
        "28000" if text.contains("client certificate") => Fault::new(
            ErrorKind::Denied,
            format!("it wants a client certificate ({text}); give --cert and --key"),
        ),
        "28P01" | "28000" => Fault::new(ErrorKind::Denied, cause::wrong_password(&text, PASSWORDS)),
        "3D000" => Fault::new(ErrorKind::Corrupt, cause::no_database(&text, ", or make it with createdb")),
        code if code.starts_with("08") || code.starts_with("57P") || code.starts_with("25") => {
            Fault::spent(text)
        }
        "53300" => {
            Fault::new(ErrorKind::Full, cause::full("connection", &text, "raise max_connections or wait"))
        }
        "53100" => Fault::unavailable(cause::full("space", &text, "make room or wait")),
        // The server is out of memory or disk, or cancelled the statement by a time limit.
        code if code.starts_with("53") || code == "57014" => Fault::unavailable(text),
        // A system call of the server failed; or any other failure of a server, or of a pooler without one.
        code if code.starts_with("58") || code == "XX000" => {
            Fault::unavailable(format!("{text} (SQLSTATE {code})"))
        }
        code => Fault::new(ErrorKind::Corrupt, format!("{text} (SQLSTATE {code})")),
    }
}

fn of_client(error: &Error) -> Fault {
    // A server refuses a client's certificate only after the client considers itself connected.
    if let Some(fault) = tls::refusal(error) {
        return fault;
    }
    let text = match error.source() {
        Some(inner) => format!("{error}: {inner}"),
        None => error.to_string(),
    };
    if text.contains("password missing") {
        return Fault::new(ErrorKind::Denied, cause::no_password(PASSWORDS));
    }
    if text.contains("authentication") {
        return Fault::new(ErrorKind::Denied, text);
    }
    Fault::spent(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::fault::Retry;

    #[test]
    fn failover_errors_are_retried_and_wrong_statements_are_not() {
        let cases = [
            ("40001", Retry::Again),
            ("40003", Retry::Again),
            ("40P01", Retry::Again),
            ("08006", Retry::OtherConnection),
            ("08P01", Retry::OtherConnection),
            ("25006", Retry::OtherConnection),
            ("57P01", Retry::OtherConnection),
            ("57P03", Retry::OtherConnection),
            ("53200", Retry::Nothing),
            ("58000", Retry::Nothing),
            ("58030", Retry::Nothing),
            ("XX000", Retry::Nothing),
        ];
        for (code, retry) in cases {
            let fault = of_server(code, "text".to_owned());
            assert_eq!((fault.kind, fault.retry), (ErrorKind::Unavailable, retry), "{code}");
        }
        for (code, retry) in [("42601", Retry::Nothing), ("22003", Retry::Nothing), ("XX001", Retry::Nothing)]
        {
            let fault = of_server(code, "text".to_owned());
            assert_eq!((fault.kind, fault.retry), (ErrorKind::Corrupt, retry), "{code}");
        }
        for code in ["42703", "42P10", "23502"] {
            let fault = of_server(code, "text".to_owned());
            assert_eq!((fault.kind, fault.retry), (ErrorKind::Corrupt, Retry::Nothing), "{code}");
            assert!(fault.reason.to_string().contains("another --prefix"), "{code}: {}", fault.reason);
        }
    }
}

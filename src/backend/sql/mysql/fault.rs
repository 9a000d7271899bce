//! The meaning of errors of MySQL and MariaDB.

use sqlx::Error;
use sqlx::mysql::MySqlDatabaseError;

use crate::backend::sql::dialect::{again, no_right, no_tables, other_tables};
use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::Fault;
use crate::net::socket::unmade;
use crate::net::tls;

const PLUGINS: &str = "dlock knows mysql_native_password, caching_sha2_password and sha256_password";

/// Returns the fault for `error`.
pub(super) fn of(error: &Error) -> Fault {
    match error {
        Error::Database(said) => match said.try_downcast_ref::<MySqlDatabaseError>() {
            Some(said) => of_server(said.number(), said.code().unwrap_or_default(), said.message()),
            None => Fault::nonsense(said.message()),
        },
        // A server refuses a client's certificate only after the client considers itself connected. The caller adds the
        // server.
        Error::Io(error) => tls::refusal(error).unwrap_or_else(|| unmade(cause::explained(error), error)),
        Error::Tls(error) if error.to_string().contains("does not support TLS") => Fault::new(
            ErrorKind::Denied,
            "it does not speak TLS on this port; turn on its TLS, or set ?ssl-mode=preferred in the address if \
             an attacker in between may get the password",
        ),
        Error::Tls(error) => Fault::new(
            ErrorKind::Denied,
            format!("no encrypted connection: {error}; see --cacert, --cert, --key and ?ssl-mode="),
        ),
        Error::Configuration(error) => {
            Fault::new(ErrorKind::Invalid, format!("the certificate or key cannot be used: {error}"))
        }
        Error::Protocol(text) if text.contains("authentication plugin") => {
            Fault::new(ErrorKind::Denied, format!("{text}; {PLUGINS}"))
        }
        other => {
            let fault = Fault::nonsense(other);
            Fault { reason: fault.reason.asking("is this a MySQL or MariaDB server?"), ..fault }
        }
    }
}

/// Returns the number of the server's error, if it is one.
pub(super) fn number(error: &Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// Returns the fault for an error of the server. For a number that is not listed, the class of the SQLSTATE `state`
/// decides whether it is transient.
fn of_server(number: u16, state: &str, text: &str) -> Fault {
    match number {
        1146 => no_tables(text),
        1044 | 1142 | 1143 | 1227 | 1370 => no_right(text),
        1045 | 1130 | 1698 | 1820 | 1862 | 3118 | 3159 | 3955 => {
            Fault::new(ErrorKind::Denied, cause::wrong_password(text, ", MYSQL_PWD and ~/.my.cnf"))
        }
        1049 | 1046 => {
            Fault::new(ErrorKind::Corrupt, cause::no_database(text, ", or create it with CREATE DATABASE"))
        }
        // The transaction was undone in favour of another one, or waited too long for a lock; a statement was killed;
        // or another client has just created the object.
        1205 | 1213 | 1317 | 3024 | 1969 | 1020 | 1062 | 1050 | 1412 | 1684 | 3101 => again(text),
        // dlock sends only one statement with this error: the one that checks for writes.
        1242 => Fault::spent(cause::read_only("read_only")),
        1290 | 1792 | 1836 | 1874 => Fault::spent(cause::read_only(text)),
        // No connection is free, in total or for this user.
        1040 | 1203 | 1226 => {
            Fault::new(ErrorKind::Full, cause::full("connection", text, "raise the limit or wait"))
        }
        // No space is left.
        1021 | 1114 => Fault::unavailable(cause::full("space", text, "make room or wait")),
        // The server is stopping, is not ready yet, or has ended this connection; the group of servers refused the commit;
        // or a proxy (ProxySQL) has no server.
        1047
        | 1053
        | 1077
        | 1079
        | 1152
        | 1158..=1161
        | 1180
        | 1184
        | 1927
        | 2013
        | 3032
        | 3100
        | 3169
        | 4031
        | 9000..=9999 => Fault::spent(text),
        1251 | 1524 => Fault::new(ErrorKind::Denied, format!("{text}; {PLUGINS}")),
        1048 | 1054 | 1136 | 1364 | 1366 | 1406 => other_tables(text),
        1665 => Fault::new(
            ErrorKind::Corrupt,
            "its binlog_format is STATEMENT, in which nothing can be decided about locks; set binlog_format = ROW",
        ),
        1064 | 1305 | 1193 | 1231 => {
            Fault::new(ErrorKind::Corrupt, format!("{text}; dlock needs MySQL 8.0, MariaDB 10.5 or newer"))
        }
        other => {
            let text = format!("{text} (error {other})");
            match state.get(..2) {
                Some("08") => Fault::spent(text),
                Some("40") => again(text),
                // Any other failure of a server or a proxy.
                Some("HY") | None => Fault::unavailable(text),
                Some(_) => Fault::new(ErrorKind::Corrupt, text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::fault::Retry;

    #[test]
    fn failover_errors_are_retried_and_wrong_statements_are_not() {
        let cases = [
            // Group replication.
            (3101, "40000", Retry::Again),
            (3100, "HY000", Retry::OtherConnection),
            (1180, "HY000", Retry::OtherConnection),
            // ProxySQL.
            (9000, "HY000", Retry::OtherConnection),
            (9001, "HY000", Retry::OtherConnection),
            // Not listed.
            (1030, "HY000", Retry::Nothing),
            (1105, "HY000", Retry::Nothing),
            (4_242, "HY000", Retry::Nothing),
            (4_242, "", Retry::Nothing),
            (4_242, "08S01", Retry::OtherConnection),
            (4_242, "40001", Retry::Again),
        ];
        for (number, state, retry) in cases {
            let fault = of_server(number, state, "text");
            assert_eq!((fault.kind, fault.retry), (ErrorKind::Unavailable, retry), "{number} {state}");
        }
        for (number, state) in [(4_242, "42000"), (4_242, "22001"), (1064, "42000"), (1364, "HY000")] {
            let fault = of_server(number, state, "text");
            assert_eq!((fault.kind, fault.retry), (ErrorKind::Corrupt, Retry::Nothing), "{number} {state}");
        }
        for (number, state) in [(1054, "42S22"), (1364, "HY000"), (1048, "23000")] {
            let fault = of_server(number, state, "text");
            assert!(fault.reason.to_string().contains("another --prefix"), "{number}: {}", fault.reason);
        }
        assert_eq!(of_server(1251, "08004", "text").kind, ErrorKind::Denied);
    }
}

//! MySQL from version 8.0, MariaDB from 10.5.

mod config;
mod dial;
mod dialect;
mod examine;
mod fault;
mod option_file;
mod session;

pub(super) use config::{Mysql, NAME, SCHEMES};

/// Fails on a server that does not accept writes, even for a user that `read_only` does not bind.
const TAKES_WRITES: &str =
    "SET @dlock_writes = (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE @@global.read_only);";

/// Returns a literal that does not depend on `sql_mode` and character sets.
fn text(text: &str) -> String {
    format!("x'{}'", digits(text.as_bytes()))
}

/// Returns the hexadecimal digits of `bytes`.
fn digits(bytes: &[u8]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(b"0123456789abcdef"[usize::from(half)])).collect()
}

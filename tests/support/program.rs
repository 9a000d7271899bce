//! The dlock under test.

use std::fs;
use std::sync::LazyLock;

/// Returns the dlock under test: the one built with the tests, or the one in `DLOCK_TEST_PROGRAM`. Tests recognize its
/// processes by the name `dlock`, so the file must have that name.
pub(crate) fn dlock() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let Some(named) = std::env::var_os("DLOCK_TEST_PROGRAM") else {
            return env!("CARGO_BIN_EXE_dlock").to_owned();
        };
        // Commands run in other directories.
        let path = fs::canonicalize(&named).unwrap_or_else(|error| panic!("DLOCK_TEST_PROGRAM: {error}"));
        path.into_os_string().into_string().expect("a path in UTF-8")
    });
    &PROGRAM
}

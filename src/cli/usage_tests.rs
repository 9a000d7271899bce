//! Messages about usual mistakes.

use std::ffi::OsString;

use crate::cli::exit_code::Failure;
use crate::cli::parse;

fn os(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

/// Returns the hint of a command line that does not parse.
fn hint(line: &str) -> String {
    let failure = Failure::from(&parse::parse(os(line)).expect_err(line));
    assert_eq!(failure.code.number(), 64);
    failure.message.hint().unwrap_or_default().to_owned()
}

#[test]
fn a_slip_in_a_command_or_option_is_recognised() {
    assert_eq!(hint("rnu --name x true"), "did you mean dlock run? see dlock --help");
    assert_eq!(hint("satus x"), "did you mean dlock status? see dlock --help");
    assert_eq!(hint("run --nmae x true"), "did you mean --name? see dlock run --help");
}

#[test]
fn a_command_without_its_subcommand_is_shown_where_it_belongs() {
    assert_eq!(hint("./x --flag"), "to run a command under a lock: dlock run --name NAME -- ./x");
}

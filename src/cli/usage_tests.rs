//! What is said to people who write what they are used to.

use super::*;
use crate::cli::parse;

fn os(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

/// The hint of a command line that does not parse.
fn hint(line: &str) -> String {
    let failure = parse::parse(os(line)).expect_err(line);
    assert_eq!(failure.code, 64);
    failure.message.hint().unwrap_or_default().to_owned()
}

#[test]
fn a_slip_in_a_command_or_option_is_recognised() {
    assert_eq!(hint("rnu --name x true"), "did you mean dlock run? see dlock --help");
    assert_eq!(hint("satus x"), "did you mean dlock status? see dlock --help");
    assert_eq!(hint("run --nmae x true"), "did you mean --name? see dlock run --help");
}

#[test]
fn options_of_other_tools_have_their_names_here() {
    for (line, meant) in [
        ("run --timeout 5 --name x true", "--wait"),
        ("run --nonblock --name x true", "--try"),
        ("run --kill-after 5 --name x true", "--grace"),
        ("run --lock x true", "--name"),
        ("run --file x true", "--name"),
        ("run --host h --name x true", "--endpoint"),
        ("status --host h x", "--endpoint"),
    ] {
        let program = format!("dlock {}", line.split(' ').next().unwrap_or_default());
        assert_eq!(hint(line), format!("did you mean {meant}? see {program} --help"), "{line}");
    }
    // Nothing is suggested that the command does not have.
    assert!(!hint("list --kill-after 5").contains("--grace"));
    assert!(habits_are_known());
}

fn habits_are_known() -> bool {
    ["--timeout", "--limit", "--lease", "--conflict-exit-code"]
        .iter()
        .all(|option| habits::option(option, "dlock run").is_some())
}

#[test]
fn a_name_before_the_command_is_shown_where_it_belongs() {
    assert_eq!(hint("backup ./x"), "did you mean dlock run --name backup -- ./x?");
    assert_eq!(hint("backup ./x --secret s"), "did you mean dlock run --name backup -- ./x ...?");
    assert_eq!(hint("./x --flag"), "to run a command under a lock: dlock run --name NAME -- ./x");
    assert_eq!(hint("unlock x"), "did you mean dlock break? see dlock --help");
    let missing = |line: &str| name_missing(&os(line)).message.hint().unwrap_or_default().to_owned();
    assert_eq!(missing("backup-of-tonight ./x"), "did you mean dlock run --name backup-of-tonight -- ./x?");
    assert_eq!(missing("./x backup"), "see dlock run --help");
    assert_eq!(missing("sh -c"), "see dlock run --help");
    assert_eq!(missing("sh script"), "see dlock run --help", "a program is no name");
}

#[test]
fn a_dash_of_a_word_processor_and_an_empty_variable_are_named() {
    let missing = name_missing(&os("—name x true"));
    let hint = missing.message.hint().unwrap_or_default();
    assert_eq!(hint, "—name begins with a long dash; write two hyphens, as in --name");
    let eaten = command_missing(Some(&"./x".into()));
    let hint = eaten.message.hint().unwrap_or_default();
    assert_eq!(hint, "./x was taken as the name; is a variable empty that stands before it?");
    assert!(
        command_missing(Some(&"deploy-everything".into()))
            .message
            .hint()
            .is_some_and(|h| h.contains("COMMAND"))
    );
}

//! Nonsense on the command line is 64, one line, and changes nothing.

use crate::support::Bed;

#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) {
    let bed = Bed::new();
    bed.finish(&mut bed.dlock(arguments)).failed(64, words);
    bed.await_no_process();
    assert!(!bed.exists("started"));
}

#[test]
fn nothing_to_do() {
    refused(&["run", "--name", "x"], &["COMMAND"]);
    refused(&["run", "--name", "x", "--"], &["COMMAND"]);
    refused(&["run", "--", "touch", "started"], &["--name"]);
    refused(&["run"], &[]);
}

#[test]
fn unknown_words() {
    refused(&["rnu", "--name", "x", "--", "touch", "started"], &["rnu"]);
    refused(&["run", "--nmae", "x", "--", "touch", "started"], &["--nmae"]);
    refused(&["run", "--backend", "nosuch", "--name", "x", "--", "touch", "started"], &["nosuch"]);
    refused(&["completions", "nosuchshell"], &["nosuchshell"]);
}

#[test]
fn no_arguments_at_all_is_a_usage_error_on_standard_error() {
    let bed = Bed::new();
    bed.finish(&mut bed.dlock::<&str>([])).failed(64, &["--help"]);
}

#[test]
fn contradictions() {
    refused(&["run", "--name", "x", "-c", "true", "touch", "started"], &["-c"]);
    refused(&["run", "--name", "x", "--try", "--wait", "5s", "--", "touch", "started"], &["--try", "--wait"]);
    refused(&["run", "--name", "x", "-s", "-x", "--", "touch", "started"], &[]);
    refused(&["run", "--name", "x", "-s", "--slots", "2", "--", "touch", "started"], &["--slots"]);
    refused(&["run", "--name", "x", "-x", "--slots", "2", "--", "touch", "started"], &["--slots"]);
}

#[test]
fn a_try_with_a_wait_of_nothing_is_no_contradiction() {
    let bed = Bed::new();
    bed.finish(&mut bed.run(["--name", "x", "--try", "--wait", "0", "--", "true"])).silently(0);
}

#[test]
fn values_that_make_no_sense() {
    for (option, value) in [
        ("--wait", "soon"),
        ("--wait", "-1"),
        ("--wait", ""),
        ("--wait", "5 parsecs"),
        ("--ttl", "999ms"),
        ("--ttl", "0"),
        ("--ttl", "x"),
        ("--grace", "-1s"),
        ("--max-run", "never"),
        ("--hold-at-least", "1x"),
        ("--once-per", "daily"),
        ("--slots", "0"),
        ("--slots", "-3"),
        ("--slots", "many"),
        ("--busy-exit-code", "256"),
        ("--busy-exit-code", "-1"),
        ("--busy-exit-code", "ok"),
        ("--log-format", "xml"),
    ] {
        let option = &format!("{option}={value}");
        refused(&["run", "--name", "x", option, "--", "touch", "started"], &[]);
    }
}

#[test]
fn names_that_are_none() {
    let long = "n".repeat(201);
    for name in ["", "a\nb", "tab\there", "bell\x07", "\x7f", "\u{85}", &long] {
        refused(&["run", "--name", name, "--", "touch", "started"], &["name"]);
    }
}

#[test]
fn a_name_that_is_no_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let bed = Bed::new();
    let mut command = bed.run(["--name"]);
    command.arg(OsStr::from_bytes(b"a\xffb")).args(["--", "touch", "started"]);
    bed.finish(&mut command).failed(64, &[]);
    assert!(!bed.exists("started"));
}

#[test]
fn a_service_that_this_build_does_not_know_is_said_so() {
    for (option, value) in [("--endpoint", "gopher://host/"), ("--backend", "chubby")] {
        refused(&["run", option, value, "--name", "x", "--", "touch", "started"], &[]);
    }
}

#[test]
fn a_password_on_the_command_line_is_refused_and_not_repeated() {
    let bed = Bed::new();
    let words = ["run", "--endpoint", "redis://user:s3cr3t@host/", "--name", "x", "--", "touch", "started"];
    let ended = bed.finish(&mut bed.dlock(words)).failed(64, &[]);
    assert!(!ended.err.contains("s3cr3t"), "{}", ended.err);
}

#[test]
fn an_option_that_the_file_backend_has_no_use_for_is_no_reason_to_start_wrongly() {
    for prefix in ["/etc", "../up"] {
        let bed = Bed::new();
        let ended = bed.finish(&mut bed.run(["--prefix", prefix, "--name", "x", "--", "true"]));
        if ended.code() != Some(0) {
            ended.failed(64, &[]);
        }
        assert!(!std::path::Path::new("/etc/x").exists());
    }
}

#[test]
fn unknown_keys_of_the_configuration_are_errors_with_the_nearest_known_one() {
    let bed = Bed::new();
    let file = bed.write("config.toml", "enpdoint = \"/tmp\"\n").display().to_string();
    let words = ["run", "--config", &file, "--name", "x", "--", "touch", "started"];
    bed.finish(&mut bed.dlock(words)).failed(64, &["enpdoint", "endpoint"]);
    bed.write("config.toml", "this is [no toml\n");
    bed.finish(&mut bed.dlock(words)).failed(64, &["config.toml"]);
    std::fs::remove_file(bed.path("config.toml")).expect("a file to remove");
    bed.finish(&mut bed.dlock(words)).failed(64, &["config.toml"]);
}

#[test]
fn options_end_at_the_first_operand() {
    let bed = Bed::new();
    // Without `--`: what follows the command is the command's.
    let ended = bed.finish(&mut bed.run(["--name", "x", "echo", "-n", "--name", "y", "--", "-w"]));
    assert_eq!(ended.silently(0).text(), "--name y -- -w");
    let ended = bed.finish(&mut bed.run(["--name", "x", "--", "echo", "--help", "--"]));
    assert_eq!(ended.silently(0).text(), "--help --\n");
    let ended = bed.finish(&mut bed.run(["--name", "x", "--", "--", "echo"]));
    ended.failed(127, &["--"]);
}

#[test]
fn help_and_version_are_data() {
    let bed = Bed::new();
    for words in [&["--help"][..], &["run", "--help"], &["--version"], &["man"], &["completions", "bash"]] {
        let shown = bed.finish(&mut bed.dlock(words)).silently(0);
        assert!(shown.text().contains("dlock"), "{words:?}: {}", shown.text());
    }
}

#[test]
fn completions_and_man_pages_are_those_in_the_repository() {
    let bed = Bed::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (shell, file) in [("bash", "dlock.bash"), ("zsh", "_dlock"), ("fish", "dlock.fish")] {
        let fresh = bed.finish(&mut bed.dlock(["completions", shell])).silently(0);
        let kept = std::fs::read_to_string(root.join("completions").join(file));
        assert_eq!(kept.unwrap_or_default(), fresh.text(), "completions/{file} is stale");
    }
}

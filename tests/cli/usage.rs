//! Wrong usage: dlock exits 64, prints one line and changes nothing.

use crate::support::TestEnv;

#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) {
    let env = TestEnv::new();
    env.finish(&mut env.dlock(arguments)).failed(64, words);
    env.await_no_process();
    assert!(!env.exists("started"));
}

#[test]
fn no_arguments_at_all_is_a_usage_error_on_standard_error() {
    let env = TestEnv::new();
    env.finish(&mut env.dlock::<&str>([])).failed(64, &["--help"]);
}

#[test]
fn prefix_of_the_file_backend_stays_in_its_directory() {
    for prefix in ["/etc", "../up"] {
        let env = TestEnv::new();
        let ended = env.finish(&mut env.run(["--prefix", prefix, "--name", "x", "--", "true"]));
        if ended.code() != Some(0) {
            ended.failed(64, &[]);
        }
        assert!(!std::path::Path::new("/etc/x").exists());
    }
}

#[test]
fn options_end_at_the_first_operand() {
    let env = TestEnv::new();
    // Without `--`, all arguments after the command belong to the command.
    let ended = env.finish(&mut env.run(["--name", "x", "echo", "-n", "--name", "y", "--", "-w"]));
    assert_eq!(ended.silently(0).text(), "--name y -- -w");
    let ended = env.finish(&mut env.run(["--name", "x", "--", "echo", "--help", "--"]));
    assert_eq!(ended.silently(0).text(), "--help --\n");
    let ended = env.finish(&mut env.run(["--name", "x", "--", "--", "echo"]));
    ended.failed(127, &["--"]);
}

#[test]
fn unstartable_command_error_states_the_missing_part() {
    let env = TestEnv::new();
    env.write("plain", "echo\n");
    for (words, code, says) in [
        (&["./plain"] as &[&str], 126, &["chmod +x ./plain"] as &[&str]),
        (&["/usr"], 126, &["/usr", "is a directory"]),
        (&["cd", "/"], 127, &["cannot find the command cd", "-c"]),
        (&["ls -l"], 127, &["cannot find the command ls -l", "-c"]),
        (&[""], 127, &["the command is empty"]),
        (&["--wait", "5"], 127, &["cannot find the command --wait"]),
    ] {
        let ended = env.finish(env.run(["--name", "x", "--"]).args(words)).failed(code, says);
        assert!(!ended.err.contains("os error"), "{}", ended.err);
    }
    env.assert_free("x");
}

#[test]
fn syntax_of_other_tools_is_answered_with_a_hint() {
    refused(&["rnu", "--name", "x", "true"], &["did you mean dlock run?"]);
    refused(&["backup-of-tonight", "./x"], &["dlock run --name NAME -- backup-of-tonight"]);
    refused(&["run", "--config", "/usr", "--name", "x", "true"], &["/usr is a directory"]);
}

/// The short help has the common options on one screen, the long one has all options.
#[test]
fn short_help_shows_a_dozen_options_and_the_long_one_all() {
    let env = TestEnv::new();
    let shown = |word| env.finish(&mut env.dlock(["run", word])).silently(0).text();
    let (short, long) = (shown("-h"), shown("--help"));
    for option in ["--name", "--try", "--wait", "--slots", "--ttl", "--backend", "--once-per", "--quiet"] {
        assert!(short.contains(option) && long.contains(option), "{option}\n{short}");
    }
    for option in ["--cacert", "--zk-layout", "--metrics-file", "--log-format", "--no-nest"] {
        assert!(!short.contains(option) && long.contains(option), "{option}\n{short}");
    }
    let options = short.lines().filter(|line| line.trim_start().starts_with('-')).count();
    assert!((10..=18).contains(&options), "{options}\n{short}");
}

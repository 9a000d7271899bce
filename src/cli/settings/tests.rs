//! Settings from flags, environment and files.

use super::*;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use std::time::Duration;

use crate::cli::args::Invocation;
use crate::cli::exit_code::Failure;
use crate::cli::layers::Environment;
use crate::cli::parse;
use crate::cli::source::Source;
use crate::hold::Wait;
use crate::lock::{LockName, Mode, Moment};
use crate::output::file::tests::Folder;
use crate::output::{LogFormat, Verbosity};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;

fn around(variables: &[(&str, &str)]) -> Environment {
    let variables: std::collections::HashMap<String, OsString> =
        variables.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v))).collect();
    Environment {
        variable: Box::new(move |name| variables.get(name).cloned()),
        system_file: "/nonexistent/config.toml".into(),
        uid: rustix::process::geteuid().as_raw(),
        printer: std::cell::Cell::default(),
    }
}

fn os(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn run_in(words: &[&str], around: &Environment) -> Result<RunSettings, Failure> {
    let invocation = parse::parse(os(words)).map_err(|error| Failure::from(&error))?;
    let Invocation::Run(args) = invocation else { panic!("{invocation:?}") };
    RunSettings::resolve(*args, around, Moment::from_nanos(0)).map_err(|error| Failure::from(&error))
}

fn run(line: &str) -> Result<RunSettings, Failure> {
    run_in(&line.split(' ').collect::<Vec<_>>(), &around(&[]))
}

#[test]
fn every_option_reaches_its_setting() {
    let options = [
        "run --name a --name b --slots 3 -w 10m -E 0 --ttl 20s --grace 1.5s --max-run 1h --hold-at-least 2 --signal int",
        "--once-per 1d --supersede --whole-tree --no-nest --label text --report r --metrics-file m",
        "--backend file --endpoint /x --prefix p --allow-network-fs -v --log-format json -c exit",
    ];
    let around = around(&[]);
    let all = run_in(&options.join(" ").split(' ').collect::<Vec<_>>(), &around).expect("valid");
    let (printer, plan) = (around.printer.get(), all.plan);
    let s = Duration::from_secs;
    assert_eq!(all.names().iter().map(LockName::as_str).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(all.mode.to_string(), "slots:3");
    assert_eq!((plan.wait, all.busy()), (Wait::AtMost(s(600)), ExitStatus::Exited(0)));
    assert_eq!((plan.ttl, plan.grace), (s(20), Duration::from_millis(1500)));
    assert_eq!((plan.max_run, plan.hold_at_least, all.once_per()), (Some(s(3600)), s(2), Some(s(86_400))));
    assert_eq!(plan.signal, Signal::named("INT").expect("exists"));
    assert!(plan.supersede && plan.whole_tree && all.args.no_nest && all.connection.options.allow_network_fs);
    assert_eq!((all.label.as_deref(), all.first_word.as_str()), (Some("text"), "sh -c"));
    assert_eq!((printer.verbosity, printer.log_format), (Verbosity::Verbose, LogFormat::Json));
    assert_eq!(all.connection.options.endpoints, ["/x"]);
    assert_eq!(all.args.report, std::path::absolute("r").ok());
}

#[test]
fn defaults_as_documented() {
    let plain = run("run --name x true").expect("valid");
    assert_eq!(
        (plain.mode, plain.plan.wait, plain.busy()),
        (Mode::Exclusive, Wait::Forever, ExitStatus::Exited(75))
    );
    assert_eq!((plain.plan.ttl, plain.plan.grace), (Duration::from_secs(30), Duration::from_secs(5)));
    assert_eq!(
        (plain.plan.max_run, plain.once_per(), plain.plan.hold_at_least),
        (None, None, Duration::ZERO)
    );
    assert_eq!(plain.connection, Connection::default());
    assert_eq!(run("run --name x --wait 0 true").expect("valid").plan.wait, Wait::Once);
    assert_eq!(run("run --name x --try --wait 0 true").expect("valid").plan.wait, Wait::Once);
    assert_eq!(run("run --name x --max-run 0 true").expect("valid").plan.max_run, None);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_usage_error_is_one_clear_line() {
    for (line, error) in [
        ("run --name x", "COMMAND is missing"),
        ("run true", "--name is missing"),
        ("run --name x -c a b", "the argument '--command <STRING>' cannot be used with '[COMMAND]...'"),
        (
            "run --name x --try --wait 3 true",
            "--try does not wait, so it cannot be together with --wait; choose one of them",
        ),
        ("run --name x -s -x true", "the argument '--shared' cannot be used with '--exclusive'"),
        ("run --name x --slots 2 -s true", "the argument '--slots <N>' cannot be used with '--shared'"),
        ("run --name x --slots 0 true", "--slots: \"0\" is not a number of slots; write 1 or more"),
        ("run --name x --name x true", "--name x is given twice"),
        ("run --name x -E 300 true", "--busy-exit-code: 300 is not between 0 and 255"),
        ("acquire --name x", "--for-pid or --detach is missing"),
        (
            "run --name x --wait 5x true",
            "--wait: \"5x\" is not a duration; write 500ms, 1.5s, 30s, 5m, 1h30m, 2d, 1w or a number of seconds",
        ),
        (
            "run --name x --wait -5 true",
            "--wait: \"-5\" is not a duration; write 500ms, 1.5s, 30s, 5m, 1h30m, 2d, 1w or a number of seconds",
        ),
        ("run --name x --slots --try true", "--slots: \"--try\" is not a number of slots; write 1 or more"),
        ("run --name x --replace -s true", "--replace is for exclusive locks"),
        ("run --name x --replace --slots 2 true", "--replace is for exclusive locks"),
        (
            "run --name x --replace --try true",
            "--replace waits until the command that it replaces has ended, and --try does not wait",
        ),
        (
            "run --name x --signal 0 true",
            "--signal: \"0\" is not a signal; write a name such as INT, or 1 to 64",
        ),
        ("run --name x --ttl 500ms true", "--ttl: 500ms is too short; the least is 1s"),
        ("run --name= true", "--name: a lock name cannot be empty"),
        ("run --name a\nb true", "--name: a lock name cannot contain the control character \\n"),
        (
            "run --name x --label a\tb true",
            "--label: a text for others cannot contain the control character \\t",
        ),
        ("run --name x -q -v true", "the argument '--quiet' cannot be used with '--verbose'"),
        ("run --name x --report= true", "--report needs a value"),
        ("run --nmae x true", "unknown option --nmae"),
        ("run --name", "--name needs a value"),
        ("run --name x --log-format xml true", "--log-format: \"xml\" is not one of human, json"),
        ("run --name x --shared=yes true", "--shared takes no value, but \"yes\" was given"),
        (
            "run --name x --endpoint redis://u:p@h true",
            "--endpoint: a password on the command line can be read by every user of this host",
        ),
        ("run --name x --config /nonexistent/c true", "--config: there is no file /nonexistent/c"),
        ("run --name x --profile ci true", "--profile: no configuration file has a profile ci"),
        ("run --name x --profile= true", "--profile: no configuration file has a profile without a name"),
        ("break x --all --claim abcdef01", "the argument '--all' cannot be used with '--claim <ID>'"),
        (
            "break x --claim abc",
            "--claim: \"abc\" is not a claim id; write the 8 or more digits that dlock status NAME shows",
        ),
        ("list a b", "unexpected argument b"),
        ("completions tcsh", "SHELL: \"tcsh\" is not one of bash, zsh, fish"),
        ("runn --name x true", "unknown command runn"),
        ("--backend file run", "unknown option --backend"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let result = parse::parse(os(&words)).and_then(|invocation| match invocation {
            Invocation::Run(args) => {
                RunSettings::resolve(*args, &around(&[]), Moment::from_nanos(0)).map(drop)
            }
            _ => Ok(()),
        });
        let failure = Failure::from(&result.expect_err(line));
        assert_eq!((failure.code.number(), failure.to_string().as_str()), (64, error), "{line}");
    }
    let long = format!("run --name x --label {} true", "é".repeat(101));
    assert_eq!(
        run(&long).expect_err("too long").to_string(),
        "--label: a text for others has at most 200 bytes, this one has 202"
    );
    let folder = Folder::new("profiles");
    let file = folder.0.join("c.toml").display().to_string();
    std::fs::write(&file, "[profile.prod]\nttl = 9\n[profile.ci]\nttl = 9\n").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
    for (profile, hint) in [("pord", "did you mean prod?"), ("xyzzy", "the known ones are ci, prod")] {
        let failure =
            run(&format!("run --name x --config {file} --profile {profile} true")).expect_err("none");
        assert_eq!(failure.message.hint(), Some(hint));
    }
    let hint = run("run --nmae x true").expect_err("unknown").message.hint().map(str::to_owned);
    assert_eq!(hint.as_deref(), Some("did you mean --name? see dlock run --help"));
}

#[test]
fn non_unicode_text_is_an_error_or_passes_unchanged() {
    let bad = || OsStr::from_bytes(b"a\xff").to_owned();
    let resolved = |words: Vec<OsString>, around: &Environment| {
        parse::parse(words).and_then(|invocation| match invocation {
            Invocation::Run(args) => RunSettings::resolve(*args, around, Moment::from_nanos(0)),
            other => panic!("{other:?}"),
        })
    };
    let words = [os(&["run", "--name", "x"]), vec![bad()]].concat();
    let settings = resolved(words, &around(&[])).expect("valid");
    assert_eq!(settings.argv, [bad()]);
    assert_eq!(settings.first_word, "a\\xff");
    for (option, said) in [
        ("--name", "an argument is not valid UTF-8"),
        ("--label", "--label is not valid UTF-8"),
        ("--wait", "--wait is not valid UTF-8"),
        ("--endpoint", "--endpoint is not valid UTF-8"),
    ] {
        let words = [os(&["run", option]), vec![bad()], os(&["--name", "y", "true"])].concat();
        let error = resolved(words, &around(&[])).expect_err("refused");
        assert_eq!(Failure::from(&error).to_string(), said);
    }
    let odd = Environment {
        variable: Box::new(|name| (name == "DLOCK_TTL").then(|| OsStr::from_bytes(b"\xff").to_owned())),
        ..around(&[])
    };
    let failure = run_in(&["run", "--name", "x", "true"], &odd).expect_err("refused");
    assert_eq!(failure.to_string(), "DLOCK_TTL is not valid UTF-8");
}

#[test]
fn settings_rank_flag_environment_user_file_system_file() {
    let folder = Folder::new("settings-layers");
    let user = folder.0.join("dlock/config.toml");
    let system = folder.0.join("system.toml");
    std::fs::create_dir(folder.0.join("dlock")).expect("made");
    let write = |path: &std::path::Path, text: &str| {
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("set");
    };
    write(
        &system,
        "ttl = 11\ngrace = 1\nwait = 7\nlabel = 'system'\nquiet = true\n[profile.ci]\nprefix = 'sys'\n",
    );
    write(&user, "ttl = 12\ngrace = 2\nendpoint = ['a', 'b']\n[profile.ci]\nttl = 13\nquiet = false\n");
    let home = folder.0.to_str().expect("text").to_owned();
    let surroundings = |variables: &[(&str, &str)]| {
        let mut all = vec![("XDG_CONFIG_HOME", home.as_str())];
        all.extend(variables);
        Environment { system_file: system.clone(), ..around(&all) }
    };
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    let unset = surroundings(&[]);
    let plain = run_in(&words("run --name x true"), &unset).expect("valid");
    assert_eq!((plain.plan.ttl.as_secs(), plain.plan.grace.as_secs()), (12, 2));
    assert_eq!(
        (plain.plan.wait, plain.label.as_deref()),
        (Wait::AtMost(Duration::from_secs(7)), Some("system"))
    );
    assert_eq!((unset.printer.get().verbosity, plain.connection.options.prefix), (Verbosity::Quiet, None));
    assert_eq!(plain.connection.options.endpoints, ["a", "b"]);

    let profile = surroundings(&[("DLOCK_PROFILE", "ci"), ("DLOCK_GRACE", "3s"), ("DLOCK_NAME", "other")]);
    let chosen = run_in(&words("run --name x --try -v true"), &profile).expect("valid");
    assert_eq!(
        (chosen.plan.ttl.as_secs(), chosen.plan.grace.as_secs(), chosen.plan.wait),
        (13, 3, Wait::Once)
    );
    assert_eq!(
        (profile.printer.get().verbosity, chosen.connection.options.prefix.as_deref()),
        (Verbosity::Verbose, Some("sys"))
    );
    assert_eq!(chosen.connection.sources.of("grace"), &Source::Environment("DLOCK_GRACE".into()));
    assert_eq!(
        chosen.connection.sources.of("ttl").to_string(),
        format!("{}:5: ttl of profile ci", user.display())
    );
    assert_eq!(chosen.connection.sources.of("backend"), &Source::Default);

    let flags = run_in(&words("run --name x --ttl 14 --grace 4 --endpoint c true"), &profile).expect("valid");
    assert_eq!((flags.plan.ttl.as_secs(), flags.plan.grace.as_secs()), (14, 4));
    assert_eq!(flags.connection.options.endpoints, ["c"]);

    let failure = run_in(&words("run --name x --profile cii true"), &surroundings(&[])).expect_err("unknown");
    assert_eq!(failure.message.hint(), Some("did you mean ci?"));
    write(&user, "ttl = '5x'");
    let failure = run_in(&words("run --name x true"), &surroundings(&[])).expect_err("no duration");
    assert!(failure.to_string().starts_with(&format!("{}:1: ttl: \"5x\" is not a duration", user.display())));
    let empty = folder.0.join("empty.toml").display().to_string();
    write(empty.as_ref(), "");
    let other = surroundings(&[("DLOCK_CONFIG", &empty)]);
    let other = run_in(&words("run --name x true"), &other).expect("valid");
    assert_eq!(other.plan.ttl.as_secs(), 11, "--config stands for the user's file alone");
    write(&system, "what is in it does not matter");
    for variables in [&[][..], &[("DLOCK_CONFIG", "/dev/null\n")]] {
        let line =
            if variables.is_empty() { "run --name x --config /dev/null true" } else { "run --name x true" };
        let none = run_in(&words(line), &surroundings(variables)).expect("valid");
        assert_eq!(none.plan.ttl.as_secs(), 30, "/dev/null leaves every file out");
    }
}

#[test]
fn trailing_line_end_is_no_part_of_a_variable() {
    let all = [
        ("DLOCK_BACKEND", "redis"),
        ("DLOCK_ENDPOINT", "redis://h"),
        ("DLOCK_PREFIX", "p:"),
        ("DLOCK_USER", "u"),
        ("DLOCK_PASSWORD", "secret"),
        ("DLOCK_TLS_SERVER_NAME", "n"),
        ("DLOCK_ZK_LAYOUT", "kazoo"),
        ("DLOCK_MAX_TTL", "9s"),
        ("DLOCK_TTL", "8s"),
        ("DLOCK_GRACE", "1s"),
        ("DLOCK_LOG_FORMAT", "json"),
    ];
    let words = ["run", "--name", "x", "true"];
    let plain = run_in(&words, &around(&all)).expect("valid");
    for end in ["\n", "\r\n", "\r", "\n\n"] {
        let ended: Vec<(&str, String)> =
            all.iter().map(|(name, value)| (*name, format!("{value}{end}"))).collect();
        let variables: Vec<(&str, &str)> =
            ended.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(run_in(&words, &around(&variables)).expect("valid"), plain, "{end:?}");
        assert_eq!(
            run_in(&words, &around(&[("DLOCK_ENDPOINT", end)])).expect("valid"),
            run_in(&words, &around(&[])).expect("valid")
        );
    }
    let failure = run_in(&words, &around(&[("DLOCK_PREFIX", "a\nb")])).expect_err("refused");
    assert_eq!(failure.to_string(), "DLOCK_PREFIX has a line break in it");
    let password = run_in(&words, &around(&[("DLOCK_BACKEND", "redis"), ("DLOCK_PASSWORD", "a\nb")]));
    assert!(
        password
            .expect("valid")
            .connection
            .options
            .password
            .is_some_and(|p| p == crate::net::credentials::Secret::new("a\nb"))
    );
}

#[test]
fn quiet_or_verbose_follows_the_stronger_file() {
    let folder = Folder::new("settings-verbosity");
    let (user, system) = (folder.0.join("user.toml"), folder.0.join("system.toml"));
    let config = format!("--config={}", user.display());
    for (of_user, of_system, verbosity) in [
        ("verbose = true", "quiet = true", Verbosity::Verbose),
        ("quiet = true", "verbose = true", Verbosity::Quiet),
        ("verbose = true\nquiet = true", "", Verbosity::Quiet),
        ("[profile.p]\nverbose = true", "quiet = true\n[profile.p]", Verbosity::Verbose),
        ("quiet = true\n[profile.p]\nverbose = true", "", Verbosity::Verbose),
        ("quiet = false", "verbose = true", Verbosity::Verbose),
        ("verbose = false", "quiet = true", Verbosity::Quiet),
    ] {
        for (path, text) in [(&user, of_user), (&system, of_system)] {
            std::fs::write(path, text).expect("written");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("set");
        }
        let around = Environment { system_file: system.clone(), ..around(&[]) };
        let mut words = vec!["run", &config, "--name", "x"];
        words.extend(of_user.contains("profile").then_some("--profile=p"));
        words.push("true");
        run_in(&words, &around).expect("valid");
        assert_eq!(around.printer.get().verbosity, verbosity, "{of_user} over {of_system}");
    }
}

#[test]
fn unrelated_variables_are_ignored() {
    let kubernetes = around(&[
        ("DLOCK_PORT", "tcp://192.0.2.1:80"),
        ("DLOCK_SERVICE_HOST", "192.0.2.1"),
        ("DLOCK_NAME", "x"),
        ("DLOCK_MODE", "shared"),
        ("DLOCK_WAIT", "5"),
        ("DLOCK_TTL", ""),
        ("HOME", "relative"),
    ]);
    let words = ["run", "--name", "x", "true"];
    assert_eq!(run_in(&words, &kubernetes), run_in(&words, &around(&[])));
}

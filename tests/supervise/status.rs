//! The exit status is the command's.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::support::quiet;
use crate::support::wait::until_true;
use crate::support::{TestEnv, process};

#[test]
fn every_status_passes_through() {
    let _load = quiet::loading();
    let env = TestEnv::new();
    for status in 0..=255 {
        let script = format!("exit {status}");
        let ended = env.finish(&mut env.run(["--name", "x", "--", "sh", "-c", &script]));
        ended.silently(status);
    }
    env.assert_free("x");
}

#[test]
fn death_by_signal_passes_through_without_a_core_of_dlock() {
    let env = TestEnv::new();
    // All signals that kill a process, including real-time signals.
    let ending =
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31, 34, 50, 64];
    for signal in ending {
        // dlock has a core limit and the command has none, so a core can only be dlock's.
        let script = format!("ulimit -S -c 0; kill -{signal} $$");
        let front =
            r#"ulimit -Sc "$(ulimit -Hc)"; exec "$dlock" run --endpoint "$locks" --name x -- sh -c "$0""#;
        let mut command = env.bash(front);
        let ended = env.finish(command.arg(&script));
        assert_eq!((ended.signal(), ended.err.as_str()), (Some(signal), ""));
        assert!(!ended.status.core_dumped(), "dlock dumped core for signal {signal}");
    }
    let cores = std::fs::read_dir(env.root()).expect("a directory").flatten();
    let cores: Vec<_> = cores.filter(|e| e.file_name().to_string_lossy().starts_with("core")).collect();
    assert!(cores.is_empty(), "{cores:?}");
    env.assert_free("x");
}

#[test]
fn a_script_without_a_first_line_runs_as_a_shell_would_run_it() {
    // execvp(3), and so every shell and flock(1), runs such a file with /bin/sh.
    use std::os::unix::fs::PermissionsExt;
    let env = TestEnv::new();
    let folders = ["first", "second"].map(|folder| env.path(folder));
    for (folder, mode) in folders.iter().zip([0o644, 0o755]) {
        std::fs::create_dir(folder).expect("a directory");
        let script = folder.join("script");
        std::fs::write(&script, "echo \"$0,$1,$#\"; exit 9\n").expect("a file");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let script = folders[1].join("script").display().to_string();
    let usual = std::env::var("PATH").expect("a PATH");
    let path = format!("{}:{}:{usual}", folders[0].display(), folders[1].display());
    // By its path, and by its name: a file that cannot be executed is skipped.
    for word in [script.as_str(), "script"] {
        let ended = env.finish(env.run(["--name", "x", "--", word, "a b", "c"]).env("PATH", &path));
        assert_eq!((ended.code(), ended.text()), (Some(9), format!("{script},a b,2\n")), "{}", ended.err);
    }
    let first = folders[0].join("script").display().to_string();
    env.finish(&mut env.run(["--name", "x", "--", &first])).failed(126, &["is not executable", "chmod +x"]);
}

#[test]
fn self_stopping_command_stops_and_resumes_with_dlock() {
    let env = TestEnv::new();
    let script = "echo $$ >pid; kill -STOP $$; exit 7";
    let running = env.start(&mut env.run(["--name", "x", "--", "sh", "-c", script]));
    until_true("a stopped dlock", || process::is_stopped(running.pid()));
    let command = env.await_line("pid").parse().expect("a pid");
    assert!(process::is_stopped(command));
    env.assert_busy("x");
    running.signal(Signal::CONT);
    running.finish().silently(7);
}

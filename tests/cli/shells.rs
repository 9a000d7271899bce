//! The output of `acquire`, evaluated by the common shells.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{TestEnv, quiet, within};

/// A name with every character that a shell might interpret.
const NAME: &str = r#"it's "a" \b \\ $HOME `id` !x *"#;

/// The shells, and how each evaluates the output of a command and stops if it failed.
const SHELLS: [(&str, &str); 4] = [
    ("dash", r#"eval "$("$dlock" acquire WORDS)" || exit"#),
    ("bash", r#"eval "$("$dlock" acquire WORDS)" || exit"#),
    ("zsh", r#"eval "$("$dlock" acquire WORDS)" || exit"#),
    ("fish", "$dlock acquire WORDS | source; or exit"),
];

/// Returns the arguments that lock [`NAME`] for the shell itself.
fn words(shell: &str) -> String {
    let pid = if shell == "fish" { "$fish_pid" } else { "$$" };
    format!(r#"--endpoint "$locks" --name "$name" --for-pid {pid}"#)
}

/// Returns the command line with which `shell` acquires the lock.
fn taking(shell: &str, evaluated: &str) -> String {
    evaluated.replace("WORDS", &words(shell))
}

#[test]
fn every_shell_reads_any_name_and_a_killed_one_leaves_nothing() {
    let _alone = quiet::measuring();
    for (shell, evaluated) in SHELLS {
        let env = TestEnv::new();
        let _gate = env.gate("gate");
        let text = format!(
            "{}\nprintf '%s\\n' \"$DLOCK_NAME\" \"$DLOCK_MODE\" \"$DLOCK_NAMES\" \"$DLOCK_HELD\" >seen\n\
             sleep 1000 &\necho up >up\nread line <gate\n",
            taking(shell, evaluated)
        );
        let path = env.write("script", &text);
        let running = env.start(env.command(shell).arg(path).env("name", NAME));
        env.await_line("up");
        let seen = env.read("seen");
        let lines: Vec<&str> = seen.lines().collect();
        assert_eq!(&lines[..3], [NAME, "exclusive", NAME], "{shell}");
        let held: serde_json::Value = serde_json::from_str(lines[3]).expect("JSON");
        assert_eq!(held[0]["names"][0], NAME, "{shell}");
        assert_eq!(env.holders(NAME), 1, "{shell}");
        let begun = Instant::now();
        running.signal(Signal::KILL);
        env.await_no_process();
        within(begun.elapsed(), Duration::from_secs(1));
        assert_eq!(env.holders(NAME), 0, "{shell}");
        assert_eq!(running.finish().signal(), Some(9), "{shell}");
    }
}

#[test]
fn every_shell_stops_where_the_lock_is_busy() {
    for (shell, evaluated) in SHELLS {
        let env = TestEnv::new();
        let holder = env.held(&["--name", NAME]);
        let taking = taking(shell, evaluated).replace("acquire", "acquire -n");
        let path = env.write("script", &format!("{taking}\necho on >on\n"));
        let ended = env.finish(env.command(shell).arg(path).env("name", NAME));
        assert_eq!(ended.code(), Some(75), "{shell}: {}", ended.err);
        assert!(!env.exists("on"), "{shell}");
        holder.release().silently(0);
    }
}

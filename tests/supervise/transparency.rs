//! The command finds everything as it would without dlock.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::wait::until_true;
use crate::support::{TestEnv, process};

/// Prints all properties that a process inherits.
const PROBE: &str = r"
grep -E '^(Sig(Blk|Ign)|ShdPnd|Umask|Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Cpus_allowed):' /proc/self/status
cat /proc/self/limits /proc/self/oom_score_adj /proc/self/timerslack_ns
nice
pwd
readlink /proc/$$/fd/0
readlink /proc/$$/fd/2
for word; do echo $word; done
env | grep -v -e ^DLOCK_ -e ^LVM_SUPPRESS_FD_WARNINGS= -e ^_= | sort
";

/// Runs the probe without and with dlock after the shell words `before`. Expects the same output.
#[track_caller]
fn alike(before: &str) {
    let env = TestEnv::new();
    let probe = env.write("probe.sh", PROBE);
    let see = |front: &str| {
        let script = format!("{before}\nexec {front} sh \"$0\" one 'two  words' '' --three");
        let mut command = env.command("bash");
        command.args(["-c", &script]).arg(&probe);
        let output = command.stderr(Stdio::null()).output().expect("a probe that runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("Max open files"), "{before}: {text}");
        text
    };
    assert_eq!(see(""), see(r#""$dlock" run --endpoint "$locks" --name x --"#), "after {before:?}");
}

#[test]
fn inherited_properties_are_as_without_dlock() {
    for before in [
        "",
        "umask 0137; mkdir -p deep/er; cd deep/er; renice -n 5 $$ >/dev/null",
        "ulimit -Sn 64; ulimit -Hn 512; ulimit -Sc 0; ulimit -Ss 4096; ulimit -Sf 100000; ulimit -Sv 8000000",
        "trap '' PIPE HUP; exec() { builtin exec env --default-signal=PIPE \"$@\"; }",
        "export A=' spaced  out ' B=$'two\\nlines' C= dlock_lower=1 DLOCKS=2",
    ] {
        alike(before);
    }
}

#[test]
fn ignored_and_blocked_signals_are_as_without_dlock() {
    let ignored = ["HUP", "PIPE", "CHLD", "INT,QUIT", "TERM", "TSTP,TTIN,TTOU", "USR1,USR2,WINCH,ALRM"];
    let blocked = ["USR1,WINCH", "TERM,INT,CHLD", "ALRM,PIPE,CONT"];
    let ignored = ignored.map(|signals| format!("--ignore-signal={signals}"));
    let blocked = blocked.map(|signals| format!("--block-signal={signals}"));
    for option in ignored.iter().chain(&blocked) {
        alike(&format!("exec() {{ builtin exec env {option} \"$@\"; }}"));
    }
}

/// LVM's programs name each descriptor that they inherit, and the lock's is one.
#[test]
fn lvm_ignores_the_lock_descriptor_unless_set_otherwise() {
    let env = TestEnv::new();
    let mut run = env.run(["--name", "x", "--", "sh", "-c", "echo $LVM_SUPPRESS_FD_WARNINGS"]);
    assert_eq!(env.finish(&mut run).silently(0).text(), "1\n");
    assert_eq!(env.finish(run.env("LVM_SUPPRESS_FD_WARNINGS", "0")).silently(0).text(), "0\n");
}

#[test]
fn the_environment_gains_the_documented_variables_only() {
    let env = TestEnv::new();
    let script = "env | grep -a ^DLOCK_ | cut -d= -f1 | sort";
    let mut command = env.run(["--name", "x", "--slots", "2", "--", "sh", "-c", script]);
    command.env("DLOCK_TTL", "20s").env("DLOCK_PORT", "tcp://10.0.0.1:80");
    let seen = env.finish(&mut command).silently(0);
    let expected = "DLOCK_CLAIM DLOCK_HELD DLOCK_MODE DLOCK_NAME DLOCK_NAMES DLOCK_PORT DLOCK_SLOT \
                    DLOCK_TOKEN DLOCK_TOKENS DLOCK_TTL";
    assert_eq!(seen.text().split_ascii_whitespace().collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn non_text_variable_passes_through() {
    let env = TestEnv::new();
    let script = r#"V=$'a\xffb' run --name x -- sh -c 'printf %s "$V" | od -An -tx1'"#;
    assert_eq!(env.finish(&mut env.bash(script)).silently(0).text().trim(), "61 ff 62");
}

#[test]
fn the_standard_streams_are_the_very_same() {
    let env = TestEnv::new();
    let script = r#"
        show() { readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 >&9; }
        exec 9>"$TMPDIR/links"
        echo text >"$TMPDIR/in"
        exec <"$TMPDIR/in" >"$TMPDIR/out" 2>"$TMPDIR/err"
        show
        exec "$dlock" run --endpoint "$locks" --name x -- sh -c '
            (exec readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 >>"$TMPDIR/links")
            read line; echo "$line"'
    "#;
    env.finish(&mut env.bash(script)).silently(0);
    let links = env.read("links");
    let seen: Vec<&str> = links.lines().collect();
    assert_eq!(seen.len(), 6, "{links}");
    assert_eq!(seen[..3], seen[3..]);
    assert_eq!(env.read("out"), "text\n");
}

#[test]
fn a_closed_stream_stays_closed() {
    let env = TestEnv::new();
    for (closing, open) in [("<&-", "1 2"), (">&-", "0 2"), ("2>&-", "0 1"), ("<&- >&- 2>&-", "")] {
        let script = format!(
            "run --name x -- sh -c 'for f in 0 1 2; do test -e /proc/$$/fd/$f && o=\"$o $f\"; done; \
             exec 1>\"$TMPDIR/open\"; echo $o' {closing}"
        );
        let ended = env.finish(&mut env.bash(&script));
        assert_eq!(ended.code(), Some(0), "{closing}: {}", ended.err);
        assert_eq!(env.read("open").trim(), open, "with {closing}");
    }
}

#[test]
fn no_descriptor_below_ten_and_none_but_the_locks_is_added() {
    let env = TestEnv::new();
    // Descriptors that this process inherited are there without dlock too.
    let numbers = |command: &mut Command| -> BTreeSet<u32> {
        let listed = env.finish(command.args(["sh", "-c", "ls /proc/$$/fd"])).silently(0);
        listed.text().lines().map(|line| line.parse().expect("a descriptor")).collect()
    };
    let without = numbers(&mut env.command("env"));
    let with = numbers(&mut env.run(["--name", "x", "--"]));
    let added: Vec<_> = with.difference(&without).collect();
    assert!(without.is_subset(&with), "{without:?} {with:?}");
    assert!(added.len() <= 1 && added.iter().all(|n| **n >= 10), "added: {added:?}");
}

#[test]
fn command_closing_its_input_cuts_off_the_writer() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = r#"(yes; echo "$?" >writer) | run --name x -- sh -c 'exec <&-; read _ <gate'"#;
    let running = env.start(&mut env.bash(script));
    assert_eq!(env.await_line("writer"), "141");
    env.assert_busy("x");
    gate.open();
    running.finish().silently(0);
}

#[test]
fn command_closing_its_output_ends_the_reader() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = r"run --name x -- sh -c 'echo last; exec >&-; read _ <gate' | (cat; echo end) >reader";
    let running = env.start(&mut env.bash(script));
    until_true("the reader's end", || env.read("reader") == "last\nend\n");
    env.assert_busy("x");
    gate.open();
    running.finish().silently(0);
}

#[test]
fn under_nohup_a_hang_up_ends_neither_dlock_nor_the_command() {
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = r#"exec nohup "$dlock" run --endpoint "$locks" --name x -- sh -c 'echo $$ >pid; read _ <gate; exit 4'"#;
    let running = env.start(&mut env.bash(script));
    let command: i32 = env.await_line("pid").parse().expect("a pid");
    process::signal(running.pid(), Signal::HUP);
    process::signal(command, Signal::HUP);
    gate.open();
    assert_eq!(running.finish().code(), Some(4));
}

#[test]
fn parent_blocking_every_signal_gets_the_commands_status() {
    let env = TestEnv::new();
    // TERM stays blocked and pending in the command, as without dlock.
    let script = r#"exec env --block-signal "$dlock" run --endpoint "$locks" --name x -- bash -c 'kill -TERM $$; exit 3'"#;
    env.finish(&mut env.bash(script)).silently(3);
    env.assert_free("x");
}

#[test]
fn command_without_a_terminal_has_its_own_group_in_the_session() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let (front, command) = (holder.running.pid(), holder.command());
    let (front, command) =
        (process::look(front).expect("a front"), process::look(command).expect("a command"));
    assert_eq!(front.session, command.session);
    assert_eq!(command.group, command.pid);
    let keeper = process::look(holder.running.keeper()).expect("a keeper");
    assert_eq!((keeper.session, keeper.group), (front.session, keeper.pid));
    holder.release().silently(0);
}

#[test]
fn inherited_files_are_not_held_open_by_dlock() {
    // A deleted directory or a full pipe of the caller must not depend on the processes around the command.
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    for pid in [holder.running.pid(), holder.running.keeper()] {
        for fd in [0, 1] {
            // dlock does not delay the command for this, so the command may run a moment before.
            let stream = format!("/proc/{pid}/fd/{fd}");
            until_true(&format!("/dev/null as {stream}"), || {
                fs::read_link(&stream).is_ok_and(|link| link == Path::new("/dev/null"))
            });
        }
    }
    holder.release().silently(0);
}

#[test]
fn no_environment_directory_or_spare_descriptors_are_needed() {
    let env = TestEnv::new();
    let script = r#"
        env -i "$dlock" run --endpoint "$locks" --name x -- /bin/echo bare
        mkdir gone; cd gone; rmdir ../gone
        "$dlock" run --endpoint "$locks" --name x -- echo homeless
        ulimit -n 24; "$dlock" run --endpoint "$locks" --name x -- echo poor"#;
    assert_eq!(env.finish(&mut env.bash(script)).silently(0).text(), "bare\nhomeless\npoor\n");
}

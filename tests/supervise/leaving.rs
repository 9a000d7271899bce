//! After dlock has ended, its caller finds no zombie and no lock of it.

use crate::support::TestEnv;

#[test]
fn process_1_reaping_only_its_children_gets_no_zombie() {
    let env = TestEnv::new();
    let script = r#"
        for i in 1 2 3 4 5 6 7 8 9 10; do "$dlock" run --endpoint "$locks" --name x -- true; done
        cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z ""#;
    let init = r#"import os, sys
pid = os.fork()
if pid == 0:
    os.execvp("bash", ["bash", "-c", sys.argv[1]])
os.waitpid(pid, 0)
"#;
    let mut command = env.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", TestEnv::python(), "-c", init, script]);
    assert_eq!(env.finish(&mut command).text(), "0\n");
}

#[test]
fn descriptor_locked_by_the_caller_is_free_after_dlock() {
    let env = TestEnv::new();
    let script = r#"
        for i in $(seq 100); do
            (flock 9; exec "$dlock" run --endpoint "$locks" --name x -- true) 9>callers
            flock -n callers true || echo busy
        done"#;
    assert_eq!(env.finish(&mut env.bash(script)).silently(0).text(), "");
}

#[test]
fn the_callers_directory_can_be_unmounted_when_dlock_has_ended() {
    let env = TestEnv::new();
    let script = r#"
        mkdir there
        for i in $(seq 30); do
            mount -t tmpfs none there
            (cd there; exec "$dlock" run --endpoint "$locks" --name x -- true)
            umount there || { echo busy; exit; }
        done"#;
    let mut command = env.command("unshare");
    command.args(["--mount", "bash", "-c", script]);
    assert_eq!(env.finish(&mut command).silently(0).text(), "");
}

#[test]
fn reader_of_an_extra_descriptor_sees_the_commands_close() {
    let env = TestEnv::new();
    let script = r#"
        mkfifo pipe
        (exec 3>pipe; exec "$dlock" run --endpoint "$locks" --name x -- sh -c 'echo said >&3; exec 3>&-; read _ <gate') &
        cat pipe
        echo seen"#;
    let gate = env.gate("gate");
    let mut command = env.bash(&format!("{script}\necho >gate\nwait"));
    assert_eq!(env.finish(&mut command).silently(0).text(), "said\nseen\n");
    drop(gate);
}

#[test]
fn report_goes_to_an_extra_descriptor_or_the_start_directory() {
    let env = TestEnv::new();
    let script = r#"
        mkdir here; cd here
        "$dlock" run --endpoint "$locks" --name x --report /dev/fd/7 --metrics-file metrics.prom -- true 7>report
        grep -c '"outcome":"ran"' report; ls"#;
    assert_eq!(env.finish(&mut env.bash(script)).silently(0).text(), "1\nmetrics.prom\nreport\n");
}

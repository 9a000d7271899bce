//! A default lock directory with programs that clean up, private mounts and read-only file systems.

use crate::directory::{UID, as_nobody};
use crate::support::{Finished, TestEnv};

/// Runs `script` in a mount namespace. `user` is dlock as a user without a home, `own` is dlock as root, `$default` is
/// the user's default directory. Returns `None` if the test cannot mount.
fn among_mounts(env: &TestEnv, script: &str) -> Option<Finished> {
    as_nobody(env, &[])?;
    let dlock = env.path("dlock");
    let prelude = format!(
        "unset DLOCK_ENDPOINT; mount -t tmpfs -o mode=1777 t /var/tmp && mount -t tmpfs -o mode=755 t /var/lib || exit 99
        user() {{ setpriv --reuid {UID} --regid {UID} --clear-groups -- {dlock} \"$@\"; }}
        own() {{ {dlock} \"$@\"; }}
        default=/var/tmp/dlock-{UID}",
        dlock = dlock.display()
    );
    let mut command = env.command("unshare");
    command.args(["--mount", "bash", "-c", &format!("{prelude}\n{script}")]).env("HOME", "/nonexistent");
    let ended = env.finish(&mut command);
    if ended.code() == Some(99) {
        eprintln!("skipped: no mount may be made here: {}", ended.err);
        return None;
    }
    Some(ended)
}

#[test]
fn a_directory_in_use_is_locked_against_systemd_tmpfiles() {
    let env = TestEnv::new();
    // systemd-tmpfiles skips a directory that it cannot lock exclusively.
    let script = r#"user run --name x -- flock -n "$default" true && echo swept
        flock -n "$default" true && echo swept afterwards
        flock "$default" sleep 0.2 & sleep 0.1; user run --name x -- true && echo after the sweeper"#;
    let Some(ended) = among_mounts(&env, script) else { return };
    assert_eq!(ended.text(), "swept afterwards\nafter the sweeper\n", "{}", ended.err);
}

#[test]
fn run_status_and_doctor_name_a_private_place() {
    let env = TestEnv::new();
    let script =
        "private=/var/tmp/systemd-private-0123-x.service-45/tmp; mkdir -p $private; chmod 1777 $private
        mount --bind $private /var/tmp || exit 99
        user doctor; user status x
        user run -v --name x -- sh -c 'until grep -q unit said; do sleep 0.01; done' 2>said; code=$?; cat said >&2; exit $code";
    let Some(ended) = among_mounts(&env, script) else { return };
    let text = ended.text();
    assert!(text.contains("exclude only processes of this unit"), "{text}");
    assert!(text.contains("in a private /var/tmp"), "{text}");
    assert!(
        ended.code() == Some(0) && ended.err.contains("exclude only processes of this unit"),
        "{}",
        ended.err
    );
}

/// With layers on several file systems, stat(2) reports another device for a file than /proc/locks, as on btrfs.
#[test]
fn list_and_status_show_a_hold_of_flock_on_overlayfs() {
    let env = TestEnv::new();
    let script = r#"cd /var/lib; mkdir upper work merged; export DLOCK_ENDPOINT=/var/lib/merged
        mount -t overlay -o lowerdir=/var/tmp,upperdir=upper,workdir=work none merged || exit 99
        for mode in -x -s; do
            exec 9>merged/x; flock $mode 9
            own list --json | grep -o '"foreign":true'; own status --exit-code x >/dev/null; echo $?
            exec 9>&-
        done
        own status --exit-code x >/dev/null; echo $?; own run --name x -- "$dlock" list --json | grep -o '"foreign":[a-z]*'"#;
    let Some(ended) = among_mounts(&env, script) else { return };
    let shown = "\"foreign\":true\n75\n";
    assert_eq!(ended.text(), format!("{shown}{shown}0\n\"foreign\":false\n"), "{}", ended.err);
}

/// A private /etc with root's configuration file.
const SYSTEM_FILE: &str = r#"mkdir /var/lib/upper /var/lib/work
    mount -t overlay -o lowerdir=/etc,upperdir=/var/lib/upper,workdir=/var/lib/work none /etc || exit 99
    rm -rf /etc/dlock; mkdir -m 755 /etc/dlock; echo 'ttl = "21s"' >/etc/dlock/config.toml; chmod 644 /etc/dlock/config.toml"#;

#[test]
fn unreadable_system_file_is_an_error_and_can_be_replaced() {
    let env = TestEnv::new();
    let script = "chmod 640 /etc/dlock/config.toml; user run --name x -- true; echo $?
        user run --config /dev/null --name x -- echo in; user doctor; echo $?";
    let Some(ended) = among_mounts(&env, &format!("{SYSTEM_FILE}\n{script}")) else { return };
    let text = ended.text();
    assert!(text.starts_with("64\nin\n") && text.contains("endpoint") && text.ends_with("64\n"), "{text}");
    let words = "/etc/dlock/config.toml may be read only by uid 0";
    assert_eq!(ended.err.matches(words).count(), 2, "{}", ended.err);
}

#[test]
fn protected_system_file_counts_in_a_user_namespace() {
    let env = TestEnv::new();
    let dlock = env.path("dlock");
    let script = format!(
        "inside() {{ setpriv --reuid {UID} --regid {UID} --clear-groups unshare --user --map-current-user {} \"$@\"; }}
        inside doctor | grep -o 'ttl *21s'; chmod 666 /etc/dlock/config.toml; inside run --name x -- true; echo $?",
        dlock.display()
    );
    let Some(ended) = among_mounts(&env, &format!("{SYSTEM_FILE}\n{script}")) else { return };
    let text = ended.text();
    assert!(text.starts_with("ttl") && text.ends_with("21s\n64\n"), "{text}{}", ended.err);
}

#[test]
fn status_warns_of_a_place_losing_its_files() {
    let env = TestEnv::new();
    let dlock = env.path("dlock");
    let script = format!(
        "mount -t tmpfs t /dev/shm || exit 99; install -d -m 700 -o {UID} /dev/shm/l; export DLOCK_ENDPOINT=/dev/shm/l
        user run --name x -- true; user status x; user run --name x -- {dlock} status x
        unset DLOCK_ENDPOINT; user run --name x -- true; user status x",
        dlock = dlock.display()
    );
    let Some(ended) = among_mounts(&env, &script) else { return };
    let text = ended.text();
    assert!(text.contains("x: free (file /dev/shm/l, where old files are removed)\n"), "{text}");
    assert!(text.contains("x: held (file /dev/shm/l, where old files are removed)\n"), "{text}");
    assert!(text.ends_with(&format!("x: free (file /var/tmp/dlock-{UID})\n")), "{text} {}", ended.err);
}

#[test]
fn the_default_directory_of_root_may_be_readable_by_all() {
    let env = TestEnv::new();
    let script =
        "install -d -m 755 /var/lib/dlock; own run --name x -- true && stat -c %a /var/lib/dlock/x; echo $?
        chmod 775 /var/lib/dlock; own run --name x -- true; echo $?";
    let Some(ended) = among_mounts(&env, script) else { return };
    assert_eq!(ended.text(), "600\n0\n73\n", "{}", ended.err);
    assert!(ended.err.contains("its mode is 775"), "{}", ended.err);
}

#[test]
fn a_read_only_default_directory_names_the_setting_of_its_unit() {
    let env = TestEnv::new();
    let script = "mount -o remount,ro /var/lib || exit 99; own run --name x -- true; echo $?
        mount -o remount,rw /var/lib; install -d -m 700 /var/lib/dlock; mount -o remount,ro /var/lib; own doctor";
    let Some(ended) = among_mounts(&env, script) else { return };
    let text = ended.text();
    assert!(text.starts_with("73\n") && ended.err.contains("StateDirectory=dlock"), "{text} {}", ended.err);
    assert!(
        text.contains("is on a read-only file system") && text.contains("StateDirectory=dlock"),
        "{text}"
    );
    assert!(!text.contains("chgrp it to a group"), "{text}");
}

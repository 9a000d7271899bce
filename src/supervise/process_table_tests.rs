//! Scans of real processes.

use super::*;
use std::process::Command;

/// A child that is killed when it is dropped.
struct Child(std::process::Child);

impl Child {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("a command"))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a pid")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.0.kill().expect("a child");
        self.0.wait().expect("a status");
    }
}

fn table() -> ProcessTable {
    ProcessTable::open().expect("descriptors").expect("a /proc of this namespace")
}

#[test]
fn this_process_is_found_in_its_own_table() {
    let me = table().look(sys::own_pid()).expect("a readable table").expect("this process");
    assert_eq!(me.pid, sys::own_pid());
    assert!(!me.is_stopped() && !me.has_ended());
    assert_eq!(table().look(i32::MAX), Ok(None));
}

#[test]
fn children_and_theirs_are_members_unless_they_are_outside() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 100 & echo $!; wait"]).stdout(std::process::Stdio::piped());
    let mut child = Child::start(&mut shell);
    let mut line = String::new();
    let out = child.0.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a pid");
    let (parent, grandchild) = (child.pid(), line.trim().parse().expect("a pid"));
    let mut table = table();
    assert!(table.find_members(&[]));
    let pids: Vec<i32> = table.members().map(|p| p.pid).collect();
    let at = |pid| pids.iter().position(|p| *p == pid).expect("a member");
    assert!(at(parent) < at(grandchild));
    table.find_members(&[parent]);
    assert!(table.members().all(|p| p.pid != parent && p.pid != grandchild));
    let member = table.look(grandchild).expect("readable").expect("alive");
    let killed = table.with_handle(member, |handle| {
        rustix::process::pidfd_send_signal(handle.expect("a handle"), rustix::process::Signal::KILL)
    });
    assert_eq!(killed, Ok(Some(Ok(()))));
}

#[test]
fn member_missed_by_an_incomplete_look_stays_a_member() {
    let child = Child::start(Command::new("sleep").arg("100"));
    let pid = child.pid();
    let mut table = table();
    let found = |table: &ProcessTable| table.members().filter(|p| p.pid == pid).count();
    assert!(table.find_members(&[]));
    for _ in 0..2 {
        assert!(!table.find(&[], |_, _, _| Err(Errno::IO)));
        assert_eq!(found(&table), 1);
    }
    assert!(!table.find(&[pid], |_, _, _| Err(Errno::IO)));
    assert_eq!(found(&table), 0);
}

const fn descent(claim: u128) -> Descent {
    Descent { claim, session: None, reaper: None }
}

#[test]
fn members_are_found_by_their_claim_or_their_parents() {
    const DESCENT: &Descent = &descent(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let claim = format!("{:032x}", DESCENT.claim);
    let start = |claim: &str| Child::start(Command::new("sleep").arg("100").env("DLOCK_CLAIM", claim));
    let (carrier, stranger) = (start(&claim), start(&claim.replace('0', "1")));
    let (carrier_pid, stranger_pid) = (carrier.pid(), stranger.pid());
    let mut table = table();
    let found = |table: &ProcessTable| table.members().map(|p| p.pid).collect::<Vec<_>>();
    // Other tests start and end processes, so a scan may be incomplete.
    while !table.find_adopted(None, DESCENT, &[]) {}
    assert_eq!(found(&table), [carrier_pid]);
    while !table.find_adopted(Some(stranger_pid), DESCENT, &[carrier_pid]) {}
    assert_eq!(found(&table), [stranger_pid]);
    assert!(table.has_found_more());
    assert!(table.find_descendants(Some(stranger_pid), &[]));
    assert_eq!(found(&table), [stranger_pid]);
    assert!(!table.has_found_more());
    assert!(table.find_descendants(None, &[]));
    assert_eq!(found(&table), [0; 0]);
}

#[test]
fn process_in_exec_without_environment_is_not_overlooked() {
    const DESCENT: &Descent = &descent(0x0e0e_0e0e_0e0e_0e0e_abab_abab_abab_abab);
    let claim = format!("{:032x}", DESCENT.claim);
    let mut table = table();
    for _ in 0..5 {
        // With so many words an exec takes long, and the parent is notified earlier. The command executes twice.
        let mut command = Command::new("sh");
        command.args(["-c", "exec sh -c 'exec sleep 100' \"$@\"", "sh"]).args(vec![""; 200_000]);
        let carrier = Child::start(command.env("DLOCK_CLAIM", &claim));
        let overlooked = (0..40).find(|_| {
            table.find_adopted(None, DESCENT, &[]) && table.members().all(|p| p.pid != carrier.pid())
        });
        assert_eq!(overlooked, None);
    }
}

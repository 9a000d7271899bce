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

//! The ancestors of this process.

use std::fs;

use super::proc_files::{Process, number, parse};

/// How many generations to follow: more than nested shells have.
const GENERATIONS: u32 = 4_096;

/// Returns when `pid` started, in clock ticks since boot; `None` if that cannot be read.
pub fn born(pid: u32) -> Option<u64> {
    Some(look(i32::try_from(pid).ok()?)?.born)
}

/// Returns whether this process is known to descend from the process `pid` that started at `born`, in clock ticks since
/// boot.
pub fn descends_from(pid: u32, born: u64) -> bool {
    let own = std::process::id();
    // In the /proc of another PID namespace these numbers mean other processes.
    let is_own_namespace = fs::read_link("/proc/self")
        .is_ok_and(|link| number::<u32>(link.as_os_str().as_encoded_bytes()) == Some(own));
    let mut at = i32::try_from(own).ok().filter(|_| is_own_namespace).and_then(look);
    for _ in 0..GENERATIONS {
        let Some(parent) = at.and_then(|process| look(process.parent)) else { return false };
        if u32::try_from(parent.pid) == Ok(pid) && parent.born == born {
            return true;
        }
        at = Some(parent);
    }
    false
}

fn look(pid: i32) -> Option<Process> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_an_ancestor_and_this_process_is_not() {
        let parent = std::os::unix::process::parent_id();
        let born_then = born(parent).expect("a parent");
        assert!(descends_from(parent, born_then));
        assert!(!descends_from(parent, born_then + 1), "another one of its number");
        let own = std::process::id();
        assert!(!descends_from(own, born(own).expect("this process")));
    }
}

//! The processes that this one descends from.

use std::fs;

use super::proc_files::{Process, number, parse};

/// How many generations are looked at: more than a shell has in its depths.
const GENERATIONS: u32 = 4_096;

/// When `pid` was born, in ticks after the boot; `None` if that cannot be read.
pub fn born(pid: u32) -> Option<u64> {
    Some(look(i32::try_from(pid).ok()?)?.born)
}

/// Whether this process descends from `pid` that was born then, as far as it can be seen.
pub fn descends_from(pid: u32, born: u64) -> bool {
    let own = std::process::id();
    // A /proc of another PID namespace shows other processes by these numbers.
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

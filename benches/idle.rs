//! The cost of one waiter while it waits: memory, CPU time, wake-ups.
//!
//! Two waiters run, so that memory shared by processes counts half. `SECONDS` sets how long they are watched (10).
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod support;

use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

use support::{Holder, Scratch, Tool, line, setting, until_waiting};

fn main() {
    support::main(measure);
}

fn measure(scratch: &Scratch) {
    let seconds = setting("SECONDS", 10);
    println!("one waiter at rest, all its processes, over {seconds} s");
    for tool in Tool::BOTH {
        let holder = Holder::start(tool, scratch, "idle");
        let waiters: Vec<Child> = (1..=2)
            .map(|count| {
                let child = tool.command(scratch, "idle", &["true"]).spawn().expect("a waiter");
                until_waiting(tool, scratch, "idle", count);
                child
            })
            .collect();
        let processes = descendants(waiters[0].id());
        // Both are in the queue, but they may not sleep yet.
        thread::sleep(Duration::from_secs(1));
        let before = Cost::of(&processes);
        thread::sleep(Duration::from_secs(u64::try_from(seconds).expect("a short time")));
        let after = Cost::of(&processes);
        let figures = [
            ("processes", processes.len().to_string()),
            ("PSS KiB", after.pss.to_string()),
            ("CPU ticks", (after.ticks - before.ticks).to_string()),
            ("wake-ups", (after.switches - before.switches).to_string()),
        ];
        println!("{}", line(tool.name(), &figures));
        holder.release();
        for mut waiter in waiters {
            assert!(waiter.wait().expect("its end").success(), "a waiter failed");
        }
    }
}

/// Returns `pid` and all processes below it.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        at += 1;
        let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        found.extend(list.expect("a process").split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
    }
    found
}

/// The resources that processes have used so far.
struct Cost {
    /// Proportional set size, KiB.
    pss: u64,
    ticks: u64,
    /// Voluntary context switches: each is a wake-up.
    switches: u64,
}

impl Cost {
    fn of(processes: &[u32]) -> Self {
        let mut sum = Self { pss: 0, ticks: 0, switches: 0 };
        for pid in processes {
            sum.pss += field(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
            let (_, fields) = stat.rsplit_once(") ").expect("a name");
            // Fields 14 and 15; the one after the name is the third.
            let times = fields.split(' ').skip(11).take(2).filter_map(|n| n.parse::<u64>().ok());
            sum.ticks += times.sum::<u64>();
            for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten() {
                let status = thread.path().join("status");
                sum.switches += field(status.to_str().expect("a path in UTF-8"), "voluntary_ctxt_switches:");
            }
        }
        sum
    }
}

/// Returns the number after `name` in a file of /proc.
fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).expect("a process");
    let value = text.lines().find_map(|line| line.strip_prefix(name)).expect("the field");
    value.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
}

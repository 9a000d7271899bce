//! The whole run of `true`: bare, under `flock`, under `dlock run`, with a fresh lock and with a used one.
//!
//! `N` sets the rounds; the tools take turns within each.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod support;

use std::process::{Command, Stdio};
use std::time::Instant;

use support::{Scratch, Tool, line, median, quantile, setting};

const CASES: [(&str, Option<Tool>, bool); 5] = [
    ("bare", None, false),
    ("flock, fresh lock", Some(Tool::Flock), true),
    ("dlock, fresh lock", Some(Tool::Dlock), true),
    ("flock, same lock", Some(Tool::Flock), false),
    ("dlock, same lock", Some(Tool::Dlock), false),
];

fn main() {
    support::main(measure);
}

fn measure(scratch: &Scratch) {
    let rounds = setting("N", 300);
    let mut times = [const { Vec::new() }; CASES.len()];
    for round in 0..=rounds {
        for turn in 0..CASES.len() {
            // The rounds begin with different tools, so that none always follows the same one.
            let case = (round + turn) % CASES.len();
            let time = once(scratch, case, round);
            // The first round fills caches.
            if round > 0 {
                times[case].push(time);
            }
        }
    }
    println!("whole run of true, {rounds} rounds, ms");
    for ((title, ..), times) in CASES.iter().zip(&times) {
        let figure = |value: f64| format!("{value:.2}");
        let figures = [
            ("median", figure(median(times))),
            ("min", figure(quantile(times, 0.0))),
            ("p90", figure(quantile(times, 0.9))),
        ];
        println!("{}", line(title, &figures));
    }
    for (what, flock, dlock) in [("fresh", 1, 2), ("same", 3, 4)] {
        println!("dlock / flock, {what} lock: {:.2}", median(&times[dlock]) / median(&times[flock]));
    }
}

/// Runs one cycle. Returns its time in ms.
fn once(scratch: &Scratch, case: usize, round: usize) -> f64 {
    let (title, tool, fresh) = CASES[case];
    let name = if fresh { format!("fresh{round}") } else { "same".to_owned() };
    let mut command = match tool {
        Some(tool) => tool.command(scratch, &name, &["true"]),
        None => Command::new("true"),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let status = command.status().expect("a run");
    let length = began.elapsed();
    assert!(status.success(), "{title} ended with {status}");
    length.as_secs_f64() * 1e3
}

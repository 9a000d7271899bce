//! The hand-over: from the end of one waiter's command to the start of the next one's.
//!
//! `WAITERS` sets the numbers of waiters, separated by commas (20), `ROUNDS` how often the tools take turns (5).
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod support;

use std::env;
use std::time::Duration;

use support::{Handover, Scratch, Tool, hand_over, line, median, quantile, setting};

const STAY: Duration = Duration::from_millis(2);

fn main() {
    support::main(measure);
}

fn measure(scratch: &Scratch) {
    let sizes = env::var("WAITERS").unwrap_or_else(|_| "20".to_owned());
    for size in sizes.split(',') {
        hand_overs(scratch, size.trim().parse().expect("WAITERS is a list of numbers"));
    }
}

fn hand_overs(scratch: &Scratch, waiters: usize) {
    let rounds = setting("ROUNDS", 5);
    let mut all = [Handover::default(), Handover::default()];
    for round in 0..rounds {
        for (tool, sum) in Tool::BOTH.into_iter().zip(&mut all) {
            sum.add(hand_over(tool, scratch, &format!("line{waiters}-{round}"), waiters, STAY));
        }
    }
    println!("hand-over, {waiters} waiters, {rounds} rounds, ms");
    for (tool, sum) in Tool::BOTH.into_iter().zip(&all) {
        let figure = |part| format!("{:.2}", quantile(&sum.gaps, part));
        let figures = [
            ("median", figure(0.5)),
            ("p90", figure(0.9)),
            ("max", figure(1.0)),
            ("ran", sum.ran.to_string()),
            ("overlaps", sum.overlaps.to_string()),
            ("out of order", sum.out_of_order.to_string()),
        ];
        println!("{}", line(tool.name(), &figures));
    }
    println!("dlock / flock: {:.2}", median(&all[1].gaps) / median(&all[0].gaps));
}

//! The hand-over: from the end of one waiter's command to the start of the next one's.
//!
//! `N` sets the waiters (20), `ROUNDS` how often the tools take turns (5).
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod support;

use std::time::Duration;

use support::{Handover, Scratch, Tool, hand_over, line, median, quantile, setting};

const STAY: Duration = Duration::from_millis(2);

fn main() {
    support::main(measure);
}

fn measure(scratch: &Scratch) {
    let (waiters, rounds) = (setting("N", 20), setting("ROUNDS", 5));
    let mut all = [Handover::default(), Handover::default()];
    for round in 0..rounds {
        for (tool, sum) in Tool::BOTH.into_iter().zip(&mut all) {
            sum.add(hand_over(tool, scratch, &format!("line{round}"), waiters, STAY));
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

//! Long queues: 10, 100 and 1,000 waiters behind one holder. All run in order. It prints the cost of one hand-over.
//!
//! `WAITERS` sets other numbers, separated by commas.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod support;

use std::env;
use std::time::{Duration, Instant};

use support::{Scratch, Tool, hand_over, line, quantile};

const STAY: Duration = Duration::from_millis(1);

fn main() {
    support::main(measure);
}

fn measure(scratch: &Scratch) {
    let sizes = env::var("WAITERS").unwrap_or_else(|_| "10,100,1000".to_owned());
    println!("gaps between sections in long lines, ms");
    for size in
        sizes.split(',').map(|size| size.trim().parse::<usize>().expect("WAITERS is a list of numbers"))
    {
        for tool in Tool::BOTH {
            let began = Instant::now();
            let done = hand_over(tool, scratch, &format!("herd{size}"), size, STAY);
            assert_eq!(done.ran, size, "a waiter did not run");
            let figure = |part| format!("{:.2}", quantile(&done.gaps, part));
            let figures = [
                ("ran", done.ran.to_string()),
                ("median", figure(0.5)),
                ("p99", figure(0.99)),
                ("overlaps", done.overlaps.to_string()),
                ("out of order", done.out_of_order.to_string()),
                ("all s", format!("{:.1}", began.elapsed().as_secs_f64())),
            ];
            println!("{}", line(&format!("{}, {size} waiters", tool.name()), &figures));
        }
    }
}

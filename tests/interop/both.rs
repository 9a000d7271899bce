//! What is the same whoever else is in the line.

use crate::support::Bed;
use crate::support::running::finish_all;

/// The options of each way to hold.
pub(crate) const MODES: [&[&str]; 3] = [&["-x"], &["-s"], &["--slots", "2"]];

/// The lock x is somebody else's, and that in every mode.
#[track_caller]
pub(crate) fn assert_foreign(bed: &Bed) {
    assert_eq!(bed.status("x")["holders"][0]["foreign"], true);
    for mode in MODES {
        let mut command = bed.run(["-n", "--name", "x"]);
        command.args(mode).args(["--", "true"]);
        bed.finish(&mut command).failed(75, &["x"]);
    }
}

/// Counts up to `pairs` times what both sides add: the client's program `peer` adds one to the number in FILE so often, given
/// FILE and TIMES as its last words, and dlock as often with a lock each time.
#[track_caller]
pub(crate) fn count(bed: &Bed, pairs: u32, peer: &[&str], times: u32) {
    let file = bed.write("count", "0\n");
    let mut all = Vec::new();
    for _ in 0..pairs {
        let mut command = bed.command(peer[0]);
        command.args(&peer[1..]).arg(&file).arg(times.to_string());
        all.push(bed.start(&mut command));
        let add = "read n <count; echo $((n+1)) >count";
        let script = format!("for _ in {{1..{times}}}; do run -q --name x -- sh -c '{add}' || exit; done");
        all.push(bed.start(&mut bed.bash(&script)));
    }
    finish_all(all);
    assert_eq!(bed.await_line("count"), (2 * pairs * times).to_string());
}

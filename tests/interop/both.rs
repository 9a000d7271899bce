//! What is the same whoever else is in the line.

use crate::support::Bed;

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

//! Services that keep no lease without a process.

use crate::support::Bed;

#[test]
fn a_lease_without_a_process_is_refused() {
    let bed = Bed::new();
    let acquired = bed.finish(&mut bed.verb("acquire", ["--detach", "--name", "x", "--format", "json"]));
    acquired.failed(64, &["--detach", "keeps no lease", "--for-pid"]);
    bed.assert_free("x");
}

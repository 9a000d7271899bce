//! Leases of nobody's process that the service itself lets end.

use super::detached::acquire;
use crate::support::Bed;

#[test]
fn no_process_stays_behind() {
    let bed = Bed::new();
    acquire(&bed, "4s", &[]).silently(0);
    bed.await_no_process();
    bed.assert_busy("x");
}

#[test]
fn a_broken_lease_is_removed_at_once_and_that_is_said() {
    let bed = Bed::new();
    acquire(&bed, "4s", &["--shared"]).silently(0);
    acquire(&bed, "4s", &["--shared"]).silently(0);
    let broken = bed.finish(&mut bed.verb("break", ["x", "--all", "--yes"])).silently(0).text();
    assert_eq!(broken.matches("a lease without a process").count(), 2, "{broken}");
    bed.assert_free("x");
}

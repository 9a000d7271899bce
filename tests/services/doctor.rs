//! The findings of `dlock doctor` on each service.

use crate::site::looked;
use crate::support::TestEnv;

#[test]
fn a_restored_backup_is_named() {
    let text = looked(&TestEnv::new());
    assert!(text.contains("restore from a backup"), "{text}");
}

#[test]
fn a_lock_is_taken_at_each_server_and_forgotten() {
    let env = TestEnv::new();
    let text = looked(&env);
    assert!(!text.contains("no lock could be taken"), "{text}");
    let listed = env.finish(&mut env.verb("list", ["--json"])).silently(0).text();
    assert!(!listed.contains("dlock-doctor"), "{listed}");
}

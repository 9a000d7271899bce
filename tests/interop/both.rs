//! Checks that are the same for every foreign client.

use crate::support::TestEnv;

/// The options of each way to hold.
const MODES: [&[&str]; 3] = [&["-x"], &["-s"], &["--slots", "2"]];

/// Returns the ways that the service offers.
pub(crate) fn modes(env: &TestEnv) -> impl Iterator<Item = &'static [&'static str]> {
    let has_shared = !env.is_redlock();
    MODES.into_iter().filter(move |mode| has_shared || *mode != ["-s"])
}

/// Expects that the lock x belongs to a foreign client, and that dlock respects that in every mode.
#[track_caller]
pub(crate) fn assert_foreign(env: &TestEnv) {
    assert_eq!(env.status("x")["holders"][0]["foreign"], true);
    for mode in modes(env) {
        let mut command = env.run(["-n", "--name", "x"]);
        command.args(mode).args(["--", "true"]);
        env.finish(&mut command).failed(75, &["x"]);
    }
}

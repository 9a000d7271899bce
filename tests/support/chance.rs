//! Chance that can be repeated.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::time::Duration;

/// A small generator. The printed seed is its whole state.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }

    /// Returns one of several, if there is any.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }
}

/// Returns a new seed and prints it; `DLOCK_TEST_FAULTS_SEED` overrides it.
#[expect(clippy::print_stderr, reason = "a seed that is not seen cannot be given again")]
pub(crate) fn seed() -> u64 {
    let given = std::env::var("DLOCK_TEST_FAULTS_SEED").ok().and_then(|s| s.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let seed = given.unwrap_or(u64::from(now.subsec_nanos()) ^ now.as_secs() << 20);
    eprintln!("seed: DLOCK_TEST_FAULTS_SEED={seed}");
    seed
}

/// Returns the number of rounds: `usual`, or that in `DLOCK_TEST_ROUNDS`.
pub(crate) fn rounds(usual: usize) -> usize {
    std::env::var("DLOCK_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Returns the same seed each time unless the environment sets one, so that a failure of an ordinary run is due to a
/// change.
pub(crate) fn usual_seed() -> u64 {
    if std::env::var_os("DLOCK_TEST_FAULTS_SEED").is_some() { seed() } else { 1 }
}

/// Returns the length of a run: `default`, or the seconds in `DLOCK_TEST_FAULTS_SECONDS`.
pub(crate) fn length(default: Duration) -> Duration {
    let given = std::env::var("DLOCK_TEST_FAULTS_SECONDS").ok().and_then(|s| s.parse().ok());
    given.map_or(default, Duration::from_secs)
}

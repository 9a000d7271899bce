//! What tells who descends from a process, whoever its parent is by now.

/// What tells who descends from an adopted process, whoever its parent is by now.
#[derive(Clone, Copy, Debug)]
pub struct Descent {
    /// The claim, written as 32 digits, in the environment.
    pub claim: [u8; 32],
    /// The session of the adopted process.
    pub session: Option<i32>,
    /// The process that orphans of the adopted one become children of, if that is known.
    pub reaper: Option<i32>,
}

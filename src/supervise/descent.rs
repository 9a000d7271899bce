//! How to recognise descendants of an adopted process.

/// Properties that a descendant of an adopted process keeps after its parent has died.
#[derive(Clone, Copy, Debug)]
pub struct Descent {
    /// The claim in the environment, written as 32 digits.
    pub claim: [u8; 32],
    /// The session of the adopted process.
    pub session: Option<i32>,
    /// The process that adopts orphans of the adopted one, if known.
    pub reaper: Option<i32>,
}

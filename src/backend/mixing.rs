//! The sentence for claims of kinds that do not mix.

use crate::lock::{LockName, Mode};

/// How a claim uses a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// In this mode.
    Mode(Mode),
    /// In a mode that this version does not know.
    Unknown,
}

impl From<Option<Mode>> for Use {
    fn from(mode: Option<Mode>) -> Self {
        mode.map_or(Self::Unknown, Self::Mode)
    }
}

/// Returns why a claim on `name` in the mode `wanted` is refused, with the remedy: `owner` uses the lock as `used`. An
/// unknown name or owner is `None`.
pub fn mismatch(name: Option<&LockName>, owner: Option<&str>, used: Use, wanted: Mode) -> String {
    let owner = owner.unwrap_or("another claim");
    let name = name.map_or("it", LockName::as_str);
    let (how, remedy) = match used {
        Use::Mode(mode @ Mode::Slots(n)) => {
            (format!("as {}", kind(mode)), format!("use --slots {n} too, or another name"))
        }
        Use::Mode(mode) => {
            (format!("as {}", kind(mode)), "leave out --slots, or use another name".to_owned())
        }
        Use::Unknown => {
            ("as another kind of lock".to_owned(), "use the same kind, or another name".to_owned())
        }
    };
    format!("{owner} uses {name} {how}, which does not mix with {}; {remedy}", kind(wanted))
}

fn kind(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "an exclusive lock".to_owned(),
        Mode::Shared => "a shared lock".to_owned(),
        Mode::Slots(n) if n.get() == 1 => "a lock with 1 slot".to_owned(),
        Mode::Slots(n) => format!("a lock with {n} slots"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[test]
    fn mismatch_shows_holder_mode_and_remedy() {
        let slots = |n| Mode::Slots(NonZeroU32::new(n).expect("positive"));
        let name = LockName::new("x").expect("valid");
        let of = |used, wanted| mismatch(Some(&name), Some("ci@h pid 4 (./x)"), used, wanted);
        assert_eq!(
            of(Use::Mode(slots(3)), Mode::Exclusive),
            "ci@h pid 4 (./x) uses x as a lock with 3 slots, which does not mix with an exclusive lock; \
             use --slots 3 too, or another name"
        );
        assert_eq!(
            of(Use::Mode(Mode::Shared), slots(1)),
            "ci@h pid 4 (./x) uses x as a shared lock, which does not mix with a lock with 1 slot; \
             leave out --slots, or use another name"
        );
        assert_eq!(
            mismatch(None, None, None.into(), Mode::Shared),
            "another claim uses it as another kind of lock, which does not mix with a shared lock; \
             use the same kind, or another name"
        );
    }
}

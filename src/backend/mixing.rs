//! The sentence for claims of kinds that do not mix.

use crate::lock::{LockName, Mode};

/// Returns why a claim on `name` in the mode `wanted` is refused, with the remedy: `owner` uses the lock as `used`. An
/// unknown owner, or a mode that this version does not know, is `None`.
pub fn mismatch(name: &LockName, owner: Option<&str>, used: Option<Mode>, wanted: Mode) -> String {
    let owner = owner.unwrap_or("another claim");
    let (how, remedy) = match used {
        Some(mode @ Mode::Slots(n)) => {
            (format!("as {}", kind(mode)), format!("use --slots {n} too, or another name"))
        }
        Some(mode) => (format!("as {}", kind(mode)), "leave out --slots, or use another name".to_owned()),
        None => ("as another kind of lock".to_owned(), "use the same kind, or another name".to_owned()),
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
        let of = |used, wanted| mismatch(&name, Some("ci@h pid 4 (./x)"), used, wanted);
        assert_eq!(
            of(Some(slots(3)), Mode::Exclusive),
            "ci@h pid 4 (./x) uses x as a lock with 3 slots, which does not mix with an exclusive lock; \
             use --slots 3 too, or another name"
        );
        assert_eq!(
            of(Some(Mode::Shared), slots(1)),
            "ci@h pid 4 (./x) uses x as a shared lock, which does not mix with a lock with 1 slot; \
             leave out --slots, or use another name"
        );
        assert_eq!(
            mismatch(&name, None, None, Mode::Shared),
            "another claim uses x as another kind of lock, which does not mix with a shared lock; \
             use the same kind, or another name"
        );
    }
}

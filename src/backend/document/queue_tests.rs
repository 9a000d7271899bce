//! The steps that change a queue, and its stored form.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

fn id(n: u8) -> ClaimId {
    ClaimId::from_bytes([n; 16])
}

fn request(n: u8, mode: Mode) -> Request {
    Request {
        names: vec!["a".parse().expect("valid")],
        id: id(n),
        mode,
        ttl: Duration::from_secs(30),
        holder: Holder { host: format!("h{n}"), user: "u".into(), ..Holder::default() },
        ancestors: Vec::new(),
        supersede: false,
    }
}

fn enter(document: &mut Document, request: &Request) -> Result<Vec<ClaimId>, Mismatch> {
    let about = Record::of(request, request.ttl);
    document.enter(request, about, document.highest_token() + 1, 5)
}

fn queue_of(modes: &[Mode]) -> Document {
    let mut document = Document::empty(&"a".parse().expect("valid"), id(0));
    for (n, mode) in modes.iter().enumerate() {
        let n = u8::try_from(n + 1).expect("few");
        enter(&mut document, &request(n, *mode)).expect("enters");
    }
    document
}

fn slots(n: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(n).expect("positive"))
}

/// Returns whether exactly the claims that may hold do hold.
fn is_settled(document: &Document) -> bool {
    let modes: Vec<Mode> = document.claims.iter().map(QueueEntry::mode).collect();
    let holds = document.claims.iter().take_while(|place| place.held.is_some()).count();
    let any_later = document.claims[holds..].iter().any(|place| place.held.is_some());
    holds == queue::held(&modes) && !any_later
}

proptest! {
    #[test]
    fn holds_follow_the_grant_rule_through_entries_and_exits(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u8..20), 0..60)
    ) {
        let mut document = queue_of(&[]);
        for (comes, shared, n) in steps {
            let mode = if shared { Mode::Shared } else { Mode::Exclusive };
            if comes {
                enter(&mut document, &request(n, mode)).expect("mixes");
            } else {
                document.remove(id(n), 6);
            }
            prop_assert!(is_settled(&document));
        }
    }

    #[test]
    fn slots_are_all_different(steps in prop::collection::vec((any::<bool>(), 0u8..8), 0..60)) {
        let mut document = queue_of(&[]);
        for (comes, n) in steps {
            if comes {
                enter(&mut document, &request(n, slots(3))).expect("mixes");
            } else {
                document.remove(id(n), 6);
            }
            let mut taken: Vec<u32> =
                document.claims.iter().filter_map(|place| place.held?.slot).collect();
            taken.sort_unstable();
            taken.dedup();
            prop_assert_eq!(taken.len(), document.claims.len().min(3));
            prop_assert!(is_settled(&document));
        }
    }
}

#[test]
fn written_form_reads_back() {
    let document = queue_of(&[Mode::Shared, Mode::Exclusive]);
    assert_eq!(Content::parse(&document.to_bytes()), Content::Queue(document));
}

#[test]
fn content_of_other_programs_is_foreign() {
    for text in ["", "1", "{}", "dlock", "[1,\"a\",\"b\",[]]", "{\"dlock\":\"x\"}", "[1]", "{\"claims\":[]}"]
    {
        assert_eq!(Content::parse(text.as_bytes()), Content::Foreign, "{text}");
    }
    let newer = String::from_utf8(queue_of(&[Mode::Shared]).to_bytes()).expect("text").replace(":1,", ":2,");
    for text in ["{\"dlock\":2}", "{\"dlock\":1,\"claims\":7}", &newer] {
        assert_eq!(Content::parse(text.as_bytes()), Content::Foreign, "{text}");
    }
}

#[test]
fn entering_again_is_one_entry_and_another_ttl() {
    let mut document = queue_of(&[Mode::Exclusive]);
    enter(&mut document, &request(1, Mode::Exclusive)).expect("enters");
    assert_eq!((document.claims.len(), document.claims[0].beat), (1, 1));
}

#[test]
fn kinds_do_not_mix_and_nothing_is_changed() {
    let mut document = queue_of(&[slots(2)]);
    let before = document.clone();
    for mode in [Mode::Exclusive, Mode::Shared, slots(3)] {
        let Mismatch(why) = enter(&mut document, &request(9, mode)).expect_err("does not mix");
        assert!(why.contains("u@h1") && why.contains("uses a as a lock with 2 slots"), "{why}");
    }
    assert_eq!(document, before);
}

#[test]
fn claim_unchanged_for_longer_than_its_ttl_is_dead() {
    let margin = Duration::from_secs(6);
    let mut document = queue_of(&[Mode::Shared, Mode::Shared, Mode::Exclusive]);
    let observe = |document: &mut Document, now| document.observe(id(9), now, margin);
    assert_eq!(observe(&mut document, 1_000), []);
    assert_eq!(observe(&mut document, 20_000), []);
    document.renew(id(2));
    assert_eq!(observe(&mut document, 36_999), []);
    assert_eq!(observe(&mut document, 37_000), [id(1)]);
    assert_eq!(observe(&mut document, 72_998), [id(1)]);
    assert_eq!(observe(&mut document, 72_999), [id(1), id(2)]);
    assert_eq!(document.observe(id(2), 72_999, margin), [id(1)], "itself it is not");
    // A clock that was set back proves nothing.
    assert_eq!(observe(&mut document, 0), []);
}

#[test]
fn superseding_spares_holders_and_ordinary_waiters() {
    let mut document = queue_of(&[]);
    let newest = |n| Request { supersede: true, ..request(n, Mode::Exclusive) };
    enter(&mut document, &newest(1)).expect("enters");
    enter(&mut document, &request(2, Mode::Exclusive)).expect("enters");
    enter(&mut document, &newest(3)).expect("enters");
    assert_eq!(enter(&mut document, &newest(4)), Ok(vec![id(3)]));
    let left: Vec<_> = document.claims.iter().filter_map(QueueEntry::id).collect();
    assert_eq!(left, [id(1), id(2), id(4)]);
}

#[test]
fn a_thousand_waiters_fit_into_a_mebibyte() {
    let mut document = queue_of(&[]);
    for n in 0..2000u128 {
        let mut request = request(1, Mode::Exclusive);
        request.id = ClaimId::from_number(n);
        request.holder = Holder {
            host: "worker-17.eu-central.example.org".into(),
            pid: 4_194_303,
            user: "deploy".into(),
            command: "/usr/local/bin/backup.sh".into(),
            ..Holder::default()
        };
        enter(&mut document, &request).expect("enters");
    }
    assert!(document.to_bytes().len() < 900_000, "{}", document.to_bytes().len());
}

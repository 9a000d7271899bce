//! The steps that change a queue, and its stored form.

use super::*;
use crate::lock::Request;

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

fn enter(document: &mut Document, request: &Request) {
    let about = Record::of(request, request.ttl);
    document.enter(request.id, about, document.highest_token() + 1, 5);
}

fn queue_of(modes: &[Mode]) -> Document {
    let mut document = Document::empty(&"a".parse().expect("valid"), id(0));
    for (n, mode) in modes.iter().enumerate() {
        let n = u8::try_from(n + 1).expect("few");
        enter(&mut document, &request(n, *mode));
    }
    document
}

#[test]
fn content_of_other_programs_is_foreign() {
    for text in ["", "1", "{}", "dlock", "[1,\"a\",\"b\",[]]", "{\"dlock\":\"x\"}", "[1]", "{\"claims\":[]}"]
    {
        assert_eq!(Document::parse(text.as_bytes()), None, "{text}");
    }
    let newer = String::from_utf8(queue_of(&[Mode::Shared]).to_bytes()).expect("text").replace(":1,", ":2,");
    for text in ["{\"dlock\":2}", "{\"dlock\":1,\"claims\":7}", &newer] {
        assert_eq!(Document::parse(text.as_bytes()), None, "{text}");
    }
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
        enter(&mut document, &request);
    }
    assert!(document.to_bytes().len() < 900_000, "{}", document.to_bytes().len());
}

//! The proofs that the enumeration finds faults: a wrapper that is known to be careless, and invented lives.

use std::time::Duration;

use libtest_mimic::Failed;

use crate::enumeration::command::OWN;
use crate::life::{self, Ended, Seen};
use crate::scene::Claimant;
use crate::servers::relay::fault::{Fault, Strike, Way};
use crate::service::Service;
use crate::shape::Shape;
use crate::trials::undisturbed;

/// A wrapper that sets a key and deletes it leaves the key behind when the request comes late. An enumeration that
/// misses that proves nothing.
pub(crate) fn careless() -> Result<(), Failed> {
    let strike = Strike { way: Way::Request, number: 1, fault: Fault::Ghost };
    let seen =
        undisturbed(|| life::live(service("redis"), shape("exclusive"), Some(strike), Claimant::Careless));
    let found = seen.complaints();
    // Leases are not judged on a machine that always stands still.
    if seen.stood_still.is_some() {
        return Ok(());
    }
    if found.iter().any(|complaint| complaint.starts_with("comes back: newcomer")) {
        return Ok(());
    }
    Err(format!("{}\n{}", seen.facts().join("\n"), found.join("\n")).into())
}

fn service(name: &str) -> Service {
    Service::named(name).expect("a service of that name")
}

fn shape(name: &str) -> &'static Shape {
    Shape::named(name).expect("a shape of that name")
}

/// A life whose only fault is a lost request; the times are milliseconds.
fn good() -> Seen {
    let at = Duration::from_millis;
    let ended = |time: u64, code: i32| {
        Some(Ended { at: at(time), code: Some(code), signal: None, said: String::new() })
    };
    let log = [
        "start before 1000000 1 10 0 exclusive",
        "end before 4000000",
        "start claim 4010000 2 11 0 exclusive",
        "end claim 6500000",
        "start behind 6520000 3 12 0 exclusive",
        "end behind 7400000",
        "start newcomer 7410000 4 13 0 exclusive",
        "end newcomer 7420000",
    ];
    Seen {
        service: service("etcd"),
        shape: shape("exclusive"),
        strike: Some(Strike { way: Way::Request, number: 1, fault: Fault::Lost }),
        met: Some("a request".to_owned()),
        messages: [Vec::new(), Vec::new()],
        log: log.map(str::to_owned).to_vec(),
        was_queued: true,
        released: at(4000),
        claim: ended(6510, OWN),
        others: vec![("before", ended(4005, 0)), ("behind", ended(7405, 0)), ("newcomer", ended(7425, 0))],
        came: at(6512),
        remains: Vec::new(),
        stood_still: None,
    }
}

/// Such a life of a candidate that campaigns again.
fn good_terms() -> Seen {
    let mut seen = Seen { shape: shape("elect-forever"), ..good() };
    let log = ["start claim 7405000 5 13 0 exclusive", "event 8900000"];
    seen.log.splice(6.., log.map(str::to_owned));
    let newcomer = ["start newcomer 8930000 4 14 0 exclusive", "end newcomer 8940000"];
    seen.log.extend(newcomer.map(str::to_owned));
    let ended = claim(&mut seen);
    (ended.at, ended.code, ended.signal) = (Duration::from_millis(8920), None, Some(libc::SIGTERM));
    seen.came = ended.at;
    seen
}

/// Such a life of a script with its own lease.
fn good_lease() -> Seen {
    let mut seen = Seen { shape: shape("detach"), ..good() };
    let told = [
        "renew 0 4000000 4010000 holds",
        "renew-again 0 5000000 7900000 holds",
        "release 0 6500000 6510000 gone",
    ];
    seen.log.extend(told.map(str::to_owned));
    seen
}

/// A change that makes a life wrong, and the beginning of the complaint about it.
type Wrong = (&'static str, fn(&mut Seen));

/// A life without complaints, and the changes that make it wrong.
type Spoilt = (fn() -> Seen, &'static [Wrong]);

const WRONG: &[Wrong] = &[
    ("overlap ", |seen| seen.log.push("overlap behind began beside claim".to_owned())),
    ("token: ", |seen| "start behind 6520000 3 11 0 exclusive".clone_into(&mut seen.log[4])),
    ("slot: ", |seen| "start behind 6520000 3 12 3 semaphore".clone_into(&mut seen.log[4])),
    ("started twice: ", |seen| seen.log.push("start claim 7500000 5 14 0 exclusive".to_owned())),
    ("order: the one behind", |seen| "start behind 4005000 3 12 0 exclusive".clone_into(&mut seen.log[4])),
    ("order: the claim was not", |seen| seen.was_queued = false),
    ("no end: the claim", |seen| seen.claim = None),
    ("status: 70", |seen| claim(seen).code = Some(70)),
    ("lost: status 76", |seen| claim(seen).code = Some(76)),
    ("status: the command's own", |seen| drop(seen.log.remove(3))),
    ("status: 75 is not", |seen| claim(seen).code = Some(75)),
    ("silent: ", |seen| claim(seen).code = Some(76)),
    ("release: ", |seen| "dlock: cannot release x".clone_into(&mut claim(seen).said)),
    ("words: ", |seen| "a line of an unknown process".clone_into(&mut claim(seen).said)),
    ("slow: ", |seen| claim(seen).at = Duration::from_secs(12)),
    ("comes back: behind", |seen| "start behind 8000000 3 12 0 exclusive".clone_into(&mut seen.log[4])),
    ("comes back: newcomer", |seen| "start newcomer 9000000 4 13 0 exclusive".clone_into(&mut seen.log[6])),
    ("stuck: newcomer", |seen| seen.log.truncate(6)),
    ("newcomer: ended with", |seen| seen.others[2].1 = None.or(seen.claim.take())),
    ("no end: newcomer", |seen| seen.others[2].1 = None),
    ("overlap ", |seen| {
        seen.log.push("overlap behind began beside claim".to_owned());
        seen.stood_still = Some(Duration::from_secs(1));
    }),
    ("left: ", |seen| seen.remains.push("a key".to_owned())),
];

/// The changes to a candidate that campaigns again.
const WRONG_TERMS: &[Wrong] = &[
    ("lost: it had ended before", |seen| drop(seen.log.remove(7))),
    ("stuck: the claim held 1 times of 2", |seen| drop(seen.log.remove(6))),
    ("lost: a term", |seen| drop(seen.log.remove(3))),
    ("status: the signal", |seen| claim(seen).signal = Some(libc::SIGKILL)),
];

/// The changes to a lease.
const WRONG_LEASE: &[Wrong] = &[
    ("false: renew answered 0", |seen| "renew 0 4000000 4010000 gone".clone_into(&mut seen.log[8])),
    ("false: renew-again answered 0", |seen| {
        "renew-again 0 5000000 7900000 gone".clone_into(&mut seen.log[9]);
    }),
    ("false: renew answered 76", |seen| "renew 76 4000000 4010000 holds".clone_into(&mut seen.log[8])),
    ("false: release answered 0", |seen| "release 0 6500000 6510000 holds".clone_into(&mut seen.log[10])),
    ("false: release answered 76", |seen| "release 76 6500000 6510000 holds".clone_into(&mut seen.log[10])),
    ("status: the signal", |seen| {
        claim(seen).code = None;
        claim(seen).signal = Some(libc::SIGTERM);
    }),
    ("words: nothing kept it", |seen| "dlock: it still holds x".clone_into(&mut claim(seen).said)),
];

fn claim(seen: &mut Seen) -> &mut Ended {
    seen.claim.as_mut().expect("it ended")
}

pub(crate) fn fabricated() -> Result<(), Failed> {
    let all: [Spoilt; 3] = [(good, WRONG), (good_terms, WRONG_TERMS), (good_lease, WRONG_LEASE)];
    for (good, wrong) in all {
        let found = good().complaints();
        if !found.is_empty() {
            return Err(format!("nothing is wrong, but {found:?}").into());
        }
        for (what, spoil) in wrong {
            let mut seen = good();
            spoil(&mut seen);
            let found = seen.complaints();
            if !found.iter().any(|complaint| complaint.starts_with(what)) {
                return Err(format!("no {what:?} in {found:?}").into());
            }
        }
    }
    Ok(())
}

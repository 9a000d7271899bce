//! The proofs that the enumeration finds what it should: a wrapper that is known to be careless, and lives that were made
//! up.

use std::time::Duration;

use libtest_mimic::Failed;

use crate::command::OWN;
use crate::life::{self, Claimant, Ended, Seen};
use crate::point::Kind;
use crate::relay::fault::{Fault, Strike, Way};
use crate::service::Service;
use crate::trials::undisturbed;

/// What sets a key and deletes it has its key back when the request comes late: an enumeration that does not see that
/// sees nothing.
pub(crate) fn careless() -> Result<(), Failed> {
    let strike = Strike { way: Way::Request, number: 1, fault: Fault::Ghost };
    let seen = undisturbed(|| life::live(Service::Redis, Kind::Exclusive, Some(strike), Claimant::Careless));
    let found = seen.complaints();
    // What depends on a lease is not judged on a machine that never stops standing still.
    if seen.stood_still.is_some() {
        return Ok(());
    }
    if found.iter().any(|complaint| complaint.starts_with("comes back: newcomer")) {
        return Ok(());
    }
    Err(format!("{}\n{}", seen.facts().join("\n"), found.join("\n")).into())
}

/// A life in which nothing goes wrong but that a request is lost; the times are milliseconds.
fn good() -> Seen {
    let at = Duration::from_millis;
    let ended = |time: u64, code: i32| Some(Ended { at: at(time), code: Some(code), said: String::new() });
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
        service: Service::Etcd,
        kind: Kind::Exclusive,
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

/// One thing that is wrong with a life, and how the complaint about it begins.
type Wrong = (&'static str, fn(&mut Seen));

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
    ("words: ", |seen| "a line of nobody".clone_into(&mut claim(seen).said)),
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

fn claim(seen: &mut Seen) -> &mut Ended {
    seen.claim.as_mut().expect("it ended")
}

pub(crate) fn fabricated() -> Result<(), Failed> {
    let found = good().complaints();
    if !found.is_empty() {
        return Err(format!("nothing is wrong, but {found:?}").into());
    }
    for (what, spoil) in WRONG {
        let mut seen = good();
        spoil(&mut seen);
        let found = seen.complaints();
        if !found.iter().any(|complaint| complaint.starts_with(what)) {
            return Err(format!("no {what:?} in {found:?}").into());
        }
    }
    Ok(())
}

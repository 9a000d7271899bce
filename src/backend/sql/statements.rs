//! The batches: each is one exchange and at most one transaction, so that no transaction ever waits for a client.
//!
//! A step that decides about a queue first increments the counter in the row of its lock, which locks that row until the
//! commit. Several locks are locked in the order of their names, and their rows before those of entries. Later
//! statements see all earlier commits. A leaver and a renewal decide about no other claim, and lock their own entries
//! alone. An entry found expired is deleted in the same step, so that a claim judged expired is never revived.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use super::dialect::{Dialect, NOTE, ascii, micros};
use super::tables::Tables;
use crate::backend::record::Record;
use crate::backend::success;
use crate::lock::{ClaimId, LockName, Mode, Request};
use crate::net::socket;
use crate::queue::store::{Change, Key, Note, Own, Target};

/// How long a claim that is absent, but may be in flight, is barred from entering: a session that is given up is
/// closed. A client that does not learn why its claim is gone reads at its next renewal.
const KEEP_OUT: Duration = socket::LATE;

/// The number of expired notes that one step removes: more than it adds, and few.
const FORGET: u32 = 20;

/// The first word of the row that tells whether a step was made.
pub(super) const DONE: &str = "done";
/// The first word of the row that tells whether the watched entries are unchanged.
pub(super) const UNCHANGED: &str = "unchanged";

/// One claim and the locks that the step concerns.
#[derive(Clone, Debug)]
pub(super) struct Statements<'a> {
    dialect: &'a dyn Dialect,
    fences: &'a str,
    claims: &'a str,
    /// Literals, in the order in which they are locked.
    locks: Vec<String>,
    /// A literal.
    claim: String,
    id: ClaimId,
    mode: Mode,
}

/// Returns names in the order in which they are locked: by the bytes of their stored form.
fn in_order(names: &[LockName]) -> Vec<String> {
    let mut stored: Vec<String> = names.iter().map(LockName::percent_encoded).collect();
    stored.sort();
    stored
}

/// Returns the columns of an entry `m`, for [`super::rows`]; `ahead` is that of the number of entries ahead.
fn entry(dialect: &dyn Dialect, ahead: &str) -> String {
    format!(
        "SELECT m.seq, m.name, m.claim, m.mode, m.about, m.label, m.slot, m.held, m.since, m.asked, \
         m.lease_until - {}, {ahead}",
        dialect.kind().now
    )
}

/// Returns the batch that reads the live entries of these queues, or with `None` of all; it changes nothing.
pub(super) fn whole(dialect: &dyn Dialect, names: Option<&[LockName]>) -> String {
    let (claims, now) = (&dialect.database().tables.claim, dialect.kind().now);
    let entry = entry(dialect, "ROW_NUMBER() OVER (PARTITION BY m.name ORDER BY m.seq) - 1");
    // A note does not have the name of a lock.
    let only = match names {
        Some(names) => {
            let names: Vec<String> = in_order(names).iter().map(|name| dialect.text(name)).collect();
            format!("m.name IN ({})", names.join(", "))
        }
        None => format!("m.name < '{NOTE}'"),
    };
    format!("{entry} FROM {claims} m WHERE {only} AND m.lease_until > {now} ORDER BY m.name, m.seq;")
}

/// Reads the present time, and when the last successful run acquired.
pub(super) fn last_success(dialect: &dyn Dialect, name: &LockName) -> String {
    let (locks, name) = (&dialect.database().tables.lock, dialect.text(&name.percent_encoded()));
    format!("SELECT {}, l.success FROM {locks} l WHERE l.name = {name};", dialect.kind().now)
}

/// Returns the statement that removes the row of a lock that no claim will use again.
pub(super) fn forget(dialect: &dyn Dialect, name: &LockName) -> String {
    let (locks, name) = (&dialect.database().tables.lock, dialect.text(&name.percent_encoded()));
    format!("DELETE FROM {locks} WHERE name = {name};")
}

impl<'a> Statements<'a> {
    pub(super) fn new(dialect: &'a dyn Dialect, names: &[LockName], id: ClaimId, mode: Mode) -> Self {
        let Tables { lock, claim, .. } = &dialect.database().tables;
        let locks = in_order(names).iter().map(|name| dialect.text(name)).collect();
        Self { dialect, fences: lock, claims: claim, locks, claim: dialect.text(&id.to_string()), id, mode }
    }

    fn all(&self) -> String {
        self.locks.join(", ")
    }

    /// Returns a statement for each lock, in order.
    fn each(&self, statement: impl Fn(&str) -> String) -> String {
        self.locks.iter().map(|lock| statement(lock)).collect()
    }

    /// Returns the condition for the entries of the claim.
    fn own(&self) -> String {
        format!("claim = {} AND name IN ({})", self.claim, self.all())
    }

    /// Returns the condition that there are entries of other claims.
    fn others(&self) -> String {
        let Self { claims, claim, .. } = self;
        format!("EXISTS (SELECT 1 FROM {claims} c WHERE c.name IN ({}) AND c.claim <> {claim})", self.all())
    }

    /// Begins, and locks the rows of the locks.
    fn begin(&self) -> String {
        [self.dialect.kind().begin, &self.bump()].concat()
    }

    fn bump(&self) -> String {
        self.each(|lock| format!("UPDATE {} SET fence = fence + 1 WHERE name = {lock};", self.fences))
    }

    /// Removes expired entries, under the rows of the locks.
    fn buried(&self) -> String {
        let (claims, now) = (self.claims, self.dialect.kind().now);
        self.each(|lock| format!("DELETE FROM {claims} WHERE name = {lock} AND lease_until <= {now};"))
    }

    fn wake_watchers(&self) -> String {
        self.each(|lock| self.dialect.wake_watchers(lock))
    }

    /// Reads what a decision on the claim needs, and commits data that clients will rely on.
    fn show_and_commit(&self) -> String {
        [&self.show(), "COMMIT;", self.dialect.kind().still_takes_writes].concat()
    }

    /// Reads the queues as far as decisions on the claim need them; changes nothing.
    pub(super) fn show(&self) -> String {
        let Self { claims, claim, mode, .. } = self;
        let first = if let Mode::Slots(n) = mode { n.get() } else { 1 };
        self.each(|lock| {
            let own = format!("SELECT o.seq FROM {claims} o WHERE o.name = {lock} AND o.claim = {claim}");
            let last = |of: &str| {
                format!(
                    "UNION SELECT b.seq FROM (SELECT p.seq FROM {claims} p WHERE p.name = {lock} AND p.seq < ({own}) \
                     {of} ORDER BY p.seq DESC LIMIT 1) b"
                )
            };
            // For a shared claim, only entries that are not shared must end.
            let other = if *mode == Mode::Shared { last("AND p.mode <> 'shared'") } else { String::new() };
            let ahead = format!("(SELECT COUNT(*) FROM {claims} p WHERE p.name = {lock} AND p.seq < m.seq)");
            format!(
                "{entry} FROM (SELECT f.seq FROM (SELECT c.seq FROM {claims} c WHERE c.name = {lock} ORDER BY c.seq \
                 LIMIT {first}) f UNION {own} {last} {other}) w JOIN {claims} m ON m.name = {lock} AND m.seq = w.seq \
                 ORDER BY m.seq;",
                entry = entry(self.dialect, &ahead),
                last = last(""),
            )
        })
    }

    /// Joins the queues at the end, unless the claim is barred. If it is there already because an answer was lost, it
    /// is renewed.
    pub(super) fn append(&self, request: &Request) -> String {
        let Self { claims, fences, claim, .. } = self;
        let insert = format!(
            "INSERT INTO {claims} (name, seq, claim, mode, since, lease_until, about) \
             SELECT l.name, l.fence, {claim}, {mode}, n.now, n.now + {ttl}, {record} \
             FROM {fences} l CROSS JOIN (SELECT {now} AS now) n WHERE l.name IN ({all}) \
             AND NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim} AND g.name > '{NOTE}') {again}",
            mode = self.dialect.text(&self.mode.to_string()),
            ttl = micros(request.ttl),
            record = self.dialect.text(&ascii(&Record::of(request, request.ttl).to_text())),
            now = self.dialect.kind().now,
            all = self.all(),
            again = self.dialect.kind().or_renew,
        );
        [
            self.dialect.kind().begin,
            &self.each(|lock| self.dialect.make(lock)),
            &self.buried(),
            &self.dialect.arrive(self.id),
            &insert,
            &self.wake_watchers(),
            &self.show_and_commit(),
        ]
        .concat()
    }

    /// Removes expired entries.
    pub(super) fn bury(&self) -> String {
        [self.begin(), self.buried(), self.wake_watchers(), self.show_and_commit()].concat()
    }

    /// Renews the claim by `ttl`, unless it has expired. `waits` is whether it does not hold.
    pub(super) fn renew(&self, ttl: Duration, waits: bool) -> String {
        let (claims, now, own, ttl) = (self.claims, self.dialect.kind().now, self.own(), micros(ttl));
        let is_present = waits || !matches!(self.mode, Mode::Slots(_));
        let arrive = if is_present { self.dialect.arrive(self.id) } else { String::new() };
        let renew = format!(
            "DELETE FROM {claims} WHERE {own} AND lease_until <= {now};\
             UPDATE {claims} SET lease_until = {now} + {ttl} WHERE {own};"
        );
        [self.dialect.kind().begin, &arrive, &renew, &self.show_and_commit()].concat()
    }

    /// Returns the statement that locks these entries, and the condition that all of them are present and `having`.
    /// Aggregates are in derived tables, because MySQL changes no table that a subquery reads directly.
    fn require(&self, keys: &[(LockName, Key)], having: &str) -> (String, String) {
        if keys.is_empty() {
            return (String::new(), "1 = 1".to_owned());
        }
        let mut rows: Vec<(String, u64)> =
            keys.iter().map(|(name, key)| (name.percent_encoded(), key.order)).collect();
        rows.sort();
        rows.dedup();
        let list: Vec<String> =
            rows.iter().map(|(name, seq)| format!("({}, {seq})", self.dialect.text(name))).collect();
        let those = format!("FROM {} k WHERE (k.name, k.seq) IN ({})", self.claims, list.join(", "));
        (
            format!("SELECT k.seq {those} ORDER BY k.name, k.seq FOR UPDATE;"),
            format!("(SELECT t.n FROM (SELECT COUNT(*) AS n {those} {having}) t) = {}", rows.len()),
        )
    }

    /// Returns the step that makes `change`, which returns statements from the condition that the entries `keys` are
    /// present and `having`. The last of them alone changes one of these entries.
    fn step(&self, keys: &[(LockName, Key)], having: &str, change: impl FnOnce(&str) -> String) -> String {
        let (lock, condition) = self.require(keys, having);
        let tell = format!("SELECT '{DONE}', CASE WHEN {condition} THEN 1 ELSE 0 END;");
        [self.begin(), self.buried(), lock, tell, change(&condition), self.wake_watchers()].concat()
    }

    /// Takes the slots, one of each name in order, if all are free and the entries `keys` have none.
    pub(super) fn hold(&self, keys: &[(LockName, Key)], slots: &[Option<u32>]) -> String {
        let claims = self.claims;
        let slots = keys.iter().zip(slots).filter_map(|((name, _), slot)| {
            let lock = self.dialect.text(&name.percent_encoded());
            slot.map(|slot| (format!("({lock}, {slot})"), format!("WHEN {lock} THEN {slot}")))
        });
        let (taken, cases): (Vec<String>, Vec<String>) = slots.unzip();
        let (taken, cases) = (taken.join(", "), cases.join(" "));
        let free = format!(
            "AND k.slot IS NULL AND NOT EXISTS (SELECT 1 FROM {claims} v WHERE (v.name, v.slot) IN ({taken}))"
        );
        let take = |condition: &str| {
            let own = self.own();
            format!("UPDATE {claims} SET slot = CASE name {cases} END WHERE {own} AND {condition};")
        };
        // A claim that slept on it while it waited is the next one now.
        let wake = self.dialect.wake(&self.claim, Some(&self.others()));
        let step = self.step(keys, &free, take);
        [step, wake, self.show_and_commit(), self.dialect.depart(self.id)].concat()
    }

    /// Leaves the queues. The commit is waited for only if others remain, because a crash of the database would only
    /// restore the rest of the lease. `bar` is whether an earlier request may still arrive. `held_for` is how long ago a
    /// successful run acquired.
    pub(super) fn leave(&self, held_for: Option<Duration>, bar: bool) -> String {
        let others = self.others();
        [
            self.dialect.kind().begin,
            &held_for.map(|held_for| self.succeed(held_for)).unwrap_or_default(),
            &if bar { self.bump() + &self.note("left", "''", "1 = 1") } else { String::new() },
            &format!("DELETE FROM {} WHERE {};", self.claims, self.own()),
            &self.dialect.lazily(&format!("NOT {others}")),
            "COMMIT;",
            &self.dialect.depart(self.id),
            // A claim that arrived before the commit is among the others now, and one that arrives later reads it.
            &self.dialect.wake(&self.claim, Some(&others)),
            &self.wake_watchers(),
        ]
        .concat()
    }

    /// Records a success, unless a later one is recorded. One that is dated in the future is ignored.
    fn succeed(&self, held_for: Duration) -> String {
        let Self { claims, fences, claim, .. } = self;
        let (now, ahead, held_for) = (self.dialect.kind().now, success::AHEAD.as_micros(), micros(held_for));
        self.each(|lock| {
            format!(
                "UPDATE {fences} SET success = GREATEST(CASE WHEN success <= {now} + {ahead} THEN success ELSE 0 END, \
                 {now} - {held_for}) WHERE name = {lock} \
                 AND EXISTS (SELECT 1 FROM {claims} c WHERE c.name = {lock} AND c.claim = {claim});"
            )
        })
    }

    /// Records that the claim must not (re)appear for a while, and why, if `condition` holds. Without a second note, and
    /// not while it is in other queues.
    fn note(&self, why: &str, by: &str, condition: &str) -> String {
        let (Self { claims, claim, .. }, all) = (self, self.all());
        let (now, length) = (self.dialect.kind().now, micros(KEEP_OUT));
        format!(
            "{forget}INSERT INTO {claims} (name, seq, claim, mode, since, lease_until, about) \
             SELECT CONCAT('{NOTE}', n.until, '.', {claim}), 0, {claim}, '{why}', n.until - {length}, n.until, {by} \
             FROM (SELECT {now} + {length} AS until) n WHERE {condition} \
             AND NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim} AND g.name NOT IN ({all}));",
            forget = self.dialect.forget(FORGET),
        )
    }

    /// Removes the claim while the entries in `when` are present.
    pub(super) fn remove(&self, when: &[(LockName, Key)], note: &Note) -> String {
        let (why, by) = note.stored().unwrap_or(("evicted", None));
        let by = by.map_or_else(|| "''".to_owned(), |by| self.json(by));
        let remove = |condition: &str| {
            let note = self.note(why, &by, condition);
            format!("{note}DELETE FROM {} WHERE {} AND {condition};", self.claims, self.own())
        };
        [&self.step(when, "", remove), &self.dialect.wake(&self.claim, None), "COMMIT;"].concat()
    }

    /// Changes the entry `key`, the only one of these statements, if it is there.
    pub(super) fn change(&self, key: &(LockName, Key), change: &Change) -> String {
        let set = match change {
            Change::Asked(by) => format!("asked = {}", self.json(by)),
            // As a JSON string, so that it is ASCII.
            Change::Label(text) => format!("label = {}", self.json(text)),
            Change::HeldFor(length) => format!("held = {} - {}", self.dialect.kind().now, micros(*length)),
        };
        let seq = key.1.order;
        let update =
            |_: &str| format!("UPDATE {} SET {set} WHERE {} AND seq = {seq};", self.claims, self.own());
        let step = self.step(std::slice::from_ref(key), "", update);
        [&step, &self.dialect.wake(&self.claim, None), "COMMIT;"].concat()
    }

    fn json(&self, value: &impl Serialize) -> String {
        self.dialect.text(&ascii(&serde_json::to_string(value).unwrap_or_default()))
    }

    /// Reads why the claim is gone. Claims that sleep on it are woken.
    pub(super) fn why_gone(&self) -> String {
        let Self { claims, claim, .. } = self;
        format!(
            "SELECT g.mode, g.about FROM {claims} g WHERE g.claim = {claim} AND g.name > '{NOTE}';{}",
            self.dialect.depart(self.id)
        )
    }

    /// Requests notifications for the claim and its targets. Then tells whether they are as they were seen, and how many
    /// connections the server has left.
    pub(super) fn listen(&self, own: &Own, on: &[Target]) -> String {
        let keys = own.keys.iter().chain(on.iter().map(|target| &target.key));
        let ids: BTreeSet<&str> = keys.map(|key| &*key.text).collect();
        let entry = |target: &Target| (own.names[target.name].clone(), target.key.clone());
        let (soft, firm): (Vec<_>, Vec<_>) = on.iter().partition(|target| target.or_holds);
        let firm: Vec<_> = own.entries().chain(firm.into_iter().map(entry)).collect();
        let soft: Vec<_> = soft.into_iter().map(entry).collect();
        let (_, present) = self.require(&firm, "AND k.asked IS NULL");
        let (_, waiting) = self.require(&soft, "AND k.asked IS NULL AND k.slot IS NULL");
        format!(
            "{}{}SELECT '{UNCHANGED}', CASE WHEN {present} AND {waiting} THEN 1 ELSE 0 END;",
            self.dialect.listen(&ids.into_iter().collect::<Vec<_>>()),
            if on.is_empty() { "" } else { self.dialect.kind().few_left },
        )
    }
}

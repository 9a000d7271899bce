//! The batches: each is one exchange and one transaction, so that no transaction ever waits for a client.
//!
//! Every step that decides about a queue counts up the row of its lock first, which locks that row until the commit,
//! and reads the queue in later statements, which see what was committed before. What is found expired under that row
//! lock is deleted in the same transaction, so that nothing that somebody has judged expired is ever revived. Several
//! locks are locked in the order of their names. A renewal decides about nobody else, and locks its own entries alone.

use std::fmt::Write as _;
use std::time::Duration;

use super::dialect::{Dialect, NOTE, ascii, micros, stored};
use crate::backend::Evict;
use crate::backend::record::Record;
use crate::lock::{ClaimId, Holder, LockName, Mode, Request};
use crate::net::tcp;

/// For how long a claim that is not there, but may be on its way, is kept out: a session that is given up is closed. A client
/// that is not told why it is gone looks at its next renewal.
const KEEP_OUT: Duration = tcp::LATE;

/// How many notes that have served their time one step removes: more than it adds, and few.
const FORGET: u32 = 20;

/// One claim and the locks that it is about.
#[derive(Clone, Debug)]
pub(super) struct Steps<'a> {
    dialect: &'a dyn Dialect,
    /// As literals, in the order in which they are locked.
    locks: Vec<String>,
    /// As a literal.
    claim: String,
    id: ClaimId,
    /// Whether it is asked besides whether the server has few connections left, before the rows of the locks.
    pub(super) counts: bool,
}

/// The kind of a queue: claims of different kinds do not mix.
pub(super) fn kind(mode: Mode) -> String {
    if let Mode::Slots(_) = mode { mode.to_string() } else { String::new() }
}

/// How many may hold at once, each with a slot; zero where it is not counted.
fn slots(mode: Mode) -> u32 {
    if let Mode::Slots(slots) = mode { slots.get() } else { 0 }
}

/// Names in the order in which they are locked: that of their bytes as they are kept.
pub(super) fn in_order(names: &[LockName]) -> Vec<String> {
    let mut stored: Vec<String> = names.iter().map(stored).collect();
    stored.sort();
    stored
}

/// Removes the row of a lock that no claim will ask for again.
pub(super) fn forget(dialect: &dyn Dialect, name: &LockName) -> String {
    format!("DELETE FROM {} WHERE name = {};", dialect.tables().lock, dialect.text(&stored(name)))
}

impl<'a> Steps<'a> {
    pub(super) fn new(dialect: &'a dyn Dialect, names: &[LockName], id: ClaimId) -> Self {
        let locks = in_order(names).iter().map(|name| dialect.text(name)).collect();
        Self { dialect, locks, claim: dialect.text(&id.to_string()), id, counts: false }
    }

    /// Begins, and locks and cleans the queues.
    fn begin(&self) -> String {
        self.begin_with(|lock| self.dialect.bump(lock, None))
    }

    fn begin_with(&self, count: impl Fn(&str) -> String) -> String {
        let (claims, now) = (&self.dialect.tables().claim, self.dialect.now());
        let mut sql = self.dialect.begin(true).to_owned();
        for lock in &self.locks {
            sql.push_str(&count(lock));
        }
        for lock in &self.locks {
            let _ = write!(sql, "DELETE FROM {claims} WHERE name = {lock} AND lease_until <= {now};");
        }
        sql
    }

    /// Joins the queues at the end; holds at once if nobody else is in any of them. If it stands there already, since an
    /// answer was lost, it gets another ttl. Ends with a row for each lock whose queue it is in, which
    /// [`super::position::Standing::own`] reads: how those ahead stand is asked by whoever has to wait.
    pub(super) fn enter(&self, request: &Request) -> String {
        let mut sql = self.begin_with(|lock| self.dialect.make(lock));
        sql.push_str(&self.dialect.arrive(self.id));
        if request.supersede {
            self.supersede(&mut sql, request);
        }
        self.insert(&mut sql, request);
        self.wake_watchers(&mut sql);
        self.commit(&mut sql);
        sql
    }

    /// Commits what somebody will rely on.
    fn commit(&self, sql: &mut String) {
        sql.push_str("COMMIT;");
        sql.push_str(self.dialect.still_takes_writes());
    }

    /// Ends with what [`super::position::Standing::own`] reads. No table is joined for each name: the servers join 61.
    fn insert(&self, sql: &mut String, request: &Request) {
        let tables = self.dialect.tables();
        let (claims, locks, now) = (&tables.claim, &tables.lock, self.dialect.now());
        let text = |text: &str| self.dialect.text(text);
        let record = text(&ascii(&Record::of(request, request.ttl).to_text()));
        let (mode, kind) = (text(&request.mode.to_string()), text(&kind(request.mode)));
        let newest = i32::from(request.supersede);
        let (claim, ttl, all) = (&self.claim, micros(request.ttl), self.locks.join(", "));
        let slot = match request.mode {
            Mode::Slots(_) => "CASE WHEN o.queues = 0 THEN 1 END",
            Mode::Exclusive | Mode::Shared => "NULL",
        };
        // Any other one of each queue shows the kind of all in it, and whether there is any.
        let _ = write!(
            sql,
            "INSERT INTO {claims} (name, seq, claim, mode, kind, since, lease_until, about, newest, \
             fence, held, slot) \
             SELECT l.name, l.fence, {claim}, {mode}, {kind}, n.now, n.now + {ttl}, {record}, {newest}, \
             CASE WHEN o.queues = 0 THEN l.fence END, CASE WHEN o.queues = 0 THEN n.now END, {slot} \
             FROM {locks} l CROSS JOIN (SELECT {now} AS now) n CROSS JOIN \
             (SELECT COUNT(p.kind) AS queues, COUNT(NULLIF(p.kind, {kind})) AS of_other_kinds FROM \
             (SELECT (SELECT c.kind FROM {claims} c WHERE c.name = q.name AND c.claim <> {claim} LIMIT 1) AS kind \
             FROM {locks} q WHERE q.name IN ({all})) p) o \
             WHERE l.name IN ({all}) AND o.of_other_kinds = 0 AND {unnoted} {again}",
            unnoted = self.unnoted(claim),
            again = self.dialect.or_renew(
                &all,
                claim,
                // It has the whole ttl, whether it is new or was there.
                &format!("name, seq, fence, slot, asked, {ttl}")
            ),
        );
    }

    /// Takes older waiters that say so too out of the queues. Who was given no fence has not started a command, also if
    /// the queue would let it hold by now.
    fn supersede(&self, sql: &mut String, request: &Request) {
        let claims = &self.dialect.tables().claim;
        let by = self.dialect.text(&ascii(&serde_json::to_string(&request.holder).unwrap_or_default()));
        let (claim, all) = (&self.claim, self.locks.join(", "));
        let kind = self.dialect.text(&kind(request.mode));
        let older = format!(
            "c.name IN ({all}) AND c.newest = 1 AND c.fence IS NULL AND c.claim <> {claim} AND c.kind = {kind}"
        );
        sql.push_str(&self.dialect.wake(&older));
        let unnoted = self.unnoted("c.claim");
        let whose =
            format!("CROSS JOIN (SELECT DISTINCT c.claim FROM {claims} c WHERE {older} AND {unnoted}) o");
        self.note(sql, "superseded", &by, "o.claim", &whose);
        sql.push_str(&self.dialect.remove_superseded(&older));
    }

    /// That no note keeps out the claim that the expression `claim` gives.
    fn unnoted(&self, claim: &str) -> String {
        let claims = &self.dialect.tables().claim;
        format!("NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim} AND g.name > '{NOTE}')")
    }

    /// Writes that `claim`, in each row of the clause `whose`, must not (re)appear for a while, and why.
    fn note(&self, sql: &mut String, why: &str, by: &str, claim: &str, whose: &str) {
        let (claims, now, length) = (&self.dialect.tables().claim, self.dialect.now(), micros(KEEP_OUT));
        let name = self.dialect.concat(&[&format!("'{NOTE}'"), "n.until", "'.'", claim]);
        sql.push_str(&self.dialect.forget(FORGET));
        let _ = write!(
            sql,
            "INSERT INTO {claims} (name, seq, claim, mode, kind, since, lease_until, about, newest) \
             SELECT {name}, 0, {claim}, '{why}', '', n.until - {length}, n.until, {by}, 0 \
             FROM (SELECT {now} + {length} AS until) n {whose};"
        );
    }

    /// Removes what has expired, and reads how the claim stands; `listen` has the server tell from now on.
    pub(super) fn look(&self, mode: Mode, listen: bool) -> String {
        let mut sql = self.begin();
        self.wake_watchers(&mut sql);
        self.position(&mut sql, mode);
        self.end_of_look(sql, listen)
    }

    /// Reads how the claim stands, and changes nothing.
    pub(super) fn read(&self, mode: Mode) -> String {
        let mut sql = String::new();
        self.position(&mut sql, mode);
        sql
    }

    /// Gives the claim another `ttl`, unless it has expired, and reads how it stands. This decides about nobody else, so
    /// it locks its own entries alone: renewals of a long queue commit side by side, and none waits for whoever has the
    /// row of the lock. Who judges an entry expired deletes it, and so has its lock.
    /// `holds` says that it was given its tokens.
    pub(super) fn renew(&self, mode: Mode, ttl: Duration, holds: bool, listen: bool) -> String {
        let mut sql = self.dialect.begin(true).to_owned();
        if !holds || slots(mode) == 0 {
            sql.push_str(&self.dialect.arrive(self.id));
        }
        let (claims, now, claim) = (&self.dialect.tables().claim, self.dialect.now(), &self.claim);
        for lock in &self.locks {
            let own = format!("name = {lock} AND claim = {claim}");
            let _ = write!(
                sql,
                "DELETE FROM {claims} WHERE {own} AND lease_until <= {now};\
                 UPDATE {claims} SET lease_until = {now} + {ttl} WHERE {own};",
                ttl = micros(ttl),
            );
        }
        self.position(&mut sql, mode);
        self.end_of_look(sql, listen)
    }

    fn end_of_look(&self, mut sql: String, listen: bool) -> String {
        if listen {
            sql.push_str(&self.dialect.listen(self.id));
        }
        self.commit(&mut sql);
        sql
    }

    /// Gives the claim what it has been found to hold. An arrival changes no holder and a departure takes no hold
    /// away, so what was found in an earlier transaction is still so, as long as the claim itself is there.
    pub(super) fn grant(&self, mode: Mode) -> String {
        let mut sql = self.begin();
        sql.push_str(&self.dialect.grant(&self.claim, &self.locks));
        self.wake_watchers(&mut sql);
        self.position(&mut sql, mode);
        self.commit(&mut sql);
        // Who was behind it while it waited is the next one now.
        if slots(mode) > 0 {
            sql.push_str(&self.dialect.depart(self.id));
        }
        sql
    }

    /// One row for each lock; [`super::position::Standing`] reads them.
    fn position(&self, sql: &mut String, mode: Mode) {
        let (claims, now, claim) = (&self.dialect.tables().claim, self.dialect.now(), &self.claim);
        // Of those ahead, the last one that must end; with slots the last one, and when the first lease ends.
        let last = match mode {
            Mode::Exclusive | Mode::Slots(_) => "ORDER BY p.seq DESC LIMIT 1",
            Mode::Shared => "AND p.mode <> 'shared' ORDER BY p.seq DESC LIMIT 1",
        };
        let first_end = if slots(mode) > 0 { "ORDER BY p.lease_until LIMIT 1" } else { last };
        if self.counts {
            sql.push_str(self.dialect.few_left());
        }
        for lock in &self.locks {
            let ahead = |what: &str, rest: &str| {
                format!("(SELECT {what} FROM {claims} p WHERE p.name = {lock} AND p.seq < m.seq {rest})")
            };
            let _ = write!(
                sql,
                "SELECT m.seq, m.fence, m.slot, m.asked, m.lease_until - {now}, {count}, {who}, \
                 {left} - {now}, g.mode, g.about, h.mode, h.about, h.label, h.fence, h.slot, h.held \
                 FROM (SELECT {claim} AS claim) one \
                 LEFT JOIN {claims} m ON m.claim = one.claim AND m.name = {lock} \
                 LEFT JOIN {claims} g ON g.claim = one.claim AND g.name > '{NOTE}' \
                 LEFT JOIN (SELECT * FROM {claims} WHERE name = {lock} ORDER BY seq LIMIT 1) h ON h.claim <> one.claim;",
                count = ahead("count(*)", ""),
                who = ahead("p.claim", last),
                left = ahead("p.lease_until", first_end),
            );
        }
    }

    /// Leaves the queues, and hands over. The release itself need not survive a crash of the database, which would only
    /// give the rest of the lease back. `keep_out` says that something sent earlier may still arrive.
    pub(super) fn leave(&self, mode: Mode, succeeded: bool, keep_out: bool) -> String {
        let mut sql = self.dialect.begin(false).to_owned();
        let (claims, claim) = (&self.dialect.tables().claim, &self.claim);
        for lock in &self.locks {
            sql.push_str(&self.dialect.bump(lock, succeeded.then_some(claim)));
        }
        for lock in &self.locks {
            let _ = write!(sql, "DELETE FROM {claims} WHERE name = {lock} AND claim = {claim};");
        }
        if keep_out {
            let unless = format!("WHERE {}", self.unnoted(claim));
            self.note(&mut sql, "left", "''", claim, &unless);
        }
        for lock in &self.locks {
            sql.push_str(&self.dialect.hand_over(lock, self.id));
        }
        sql.push_str("COMMIT;");
        sql.push_str(&self.dialect.depart(self.id));
        // Whoever was given the lock does not wait for this: others who can hold with it, or have to look.
        for lock in &self.locks {
            sql.push_str(&self.dialect.wake_next(lock, slots(mode)));
        }
        sql
    }

    /// Which locks the claim is about, and in which mode.
    pub(super) fn names(&self) -> String {
        let claims = &self.dialect.tables().claim;
        format!("SELECT name, mode FROM {claims} WHERE claim = {} AND name < '{NOTE}';", self.claim)
    }

    /// Removes the claim, which is in `mode`, or asks it to leave. The first row says how many of its entries were there.
    pub(super) fn evict(&self, mode: Mode, how: Evict, by: &Holder) -> String {
        let by = ascii(&serde_json::to_string(by).unwrap_or_default());
        let mut sql = self.begin();
        let (claims, claim) = (&self.dialect.tables().claim, &self.claim);
        let own = format!("claim = {claim} AND name IN ({})", self.locks.join(", "));
        let _ = write!(sql, "SELECT count(*) FROM {claims} WHERE {own};");
        sql.push_str(&self.dialect.wake(&format!("c.claim = {claim}")));
        if how == Evict::Ask {
            let by = self.dialect.text(&by);
            let _ = write!(sql, "UPDATE {claims} SET asked = {by} WHERE {own};");
        } else {
            let _ = write!(sql, "DELETE FROM {claims} WHERE {own};");
            // Neither twice, nor where it stands in other queues.
            let unless = format!("WHERE NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim})");
            self.note(&mut sql, "evicted", &self.dialect.text(&by), claim, &unless);
            for lock in &self.locks {
                sql.push_str(&self.dialect.wake_next(lock, slots(mode)));
            }
        }
        sql.push_str("COMMIT;");
        sql
    }

    /// Changes the label of a claim that holds. The first row says how many entries have it now.
    pub(super) fn publish(&self, value: &str) -> String {
        let mut sql = self.begin();
        let claims = &self.dialect.tables().claim;
        let own =
            format!("claim = {} AND name IN ({}) AND fence IS NOT NULL", self.claim, self.locks.join(", "));
        // A quotation, so that it is ASCII.
        let value = serde_json::to_string(value).unwrap_or_default();
        let value = self.dialect.text(&ascii(&value));
        let _ = write!(
            sql,
            "UPDATE {claims} SET label = {value} WHERE {own};SELECT count(*) FROM {claims} WHERE {own};"
        );
        self.wake_watchers(&mut sql);
        sql.push_str("COMMIT;");
        sql
    }

    fn wake_watchers(&self, sql: &mut String) {
        for lock in &self.locks {
            sql.push_str(&self.dialect.wake_watchers(lock));
        }
    }
}

/// The time now, and when the last successful run acquired.
pub(super) fn last_success(dialect: &dyn Dialect, name: &LockName) -> String {
    let (locks, name) = (&dialect.tables().lock, dialect.text(&stored(name)));
    format!("SELECT {}, l.success FROM {locks} l WHERE l.name = {name};", dialect.now())
}

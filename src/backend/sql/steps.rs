//! The batches: each is one exchange and one transaction, so that no transaction ever waits for a client.
//!
//! Every step that decides about a queue first increments the counter in the row of its lock, which locks that row
//! until the commit. It reads the queue in later statements, which see all earlier commits. Claims found expired under
//! that row lock are deleted in the same transaction, so that a claim judged expired is never revived. Several locks
//! are locked in the order of their names. A renewal decides about no other claim, and locks its own entries alone.

use std::fmt::Write as _;
use std::time::Duration;

use super::dialect::{Dialect, NOTE, ascii, micros, stored};
use crate::backend::Evict;
use crate::backend::record::Record;
use crate::lock::{ClaimId, Holder, LockName, Mode, Request};
use crate::net::tcp;

/// How long a claim that is absent, but may be in flight, is barred from entering: a session that is given up is
/// closed. A client that does not learn why its claim is gone reads at its next renewal.
const KEEP_OUT: Duration = tcp::LATE;

/// The number of expired notes that one step removes: more than it adds, and few.
const FORGET: u32 = 20;

/// One claim and the locks that the step concerns.
#[derive(Clone, Debug)]
pub(super) struct Steps<'a> {
    dialect: &'a dyn Dialect,
    /// Literals, in the order in which they are locked.
    locks: Vec<String>,
    /// A literal.
    claim: String,
    id: ClaimId,
    /// Whether to also ask for the server's free connections, before the rows of the locks.
    pub(super) counts: bool,
}

/// The kind of a queue: claims of different kinds do not mix.
pub(super) fn kind(mode: Mode) -> String {
    if let Mode::Slots(_) = mode { mode.to_string() } else { String::new() }
}

/// Returns the number of slots; zero for other modes.
fn slots(mode: Mode) -> u32 {
    if let Mode::Slots(slots) = mode { slots.get() } else { 0 }
}

/// Returns names in the order in which they are locked: by the bytes of their stored form.
pub(super) fn in_order(names: &[LockName]) -> Vec<String> {
    let mut stored: Vec<String> = names.iter().map(stored).collect();
    stored.sort();
    stored
}

/// Returns the statement that removes the row of a lock that no claim will use again.
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

    /// Joins the queues at the end; holds at once if all of them are empty. If the claim is there already because an
    /// answer was lost, it is renewed. The batch ends with a row for each lock with the claim in its queue, for
    /// [`super::position::Standing::own`]. Waiters read the entries ahead in another step.
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

    /// Commits data that clients will rely on.
    fn commit(&self, sql: &mut String) {
        sql.push_str("COMMIT;");
        sql.push_str(self.dialect.still_takes_writes());
    }

    /// Inserts the entries, and returns the rows for [`super::position::Standing::own`]. It does not join a table for
    /// each name, because servers join at most 61.
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
        // Any other entry of a queue shows whether there is one, and the kind of all in it.
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
                // The rest is the whole ttl, for a new entry and for a renewed one.
                &format!("name, seq, fence, slot, asked, {ttl}")
            ),
        );
    }

    /// Removes older waiters that allow it. A claim without a fence has not started its command, even if the queue
    /// would let it hold by now.
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

    /// Returns the condition that no note bars the claim of the expression `claim`.
    fn unnoted(&self, claim: &str) -> String {
        let claims = &self.dialect.tables().claim;
        format!("NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim} AND g.name > '{NOTE}')")
    }

    /// Records that `claim`, in each row of the clause `whose`, must not (re)appear for a while, and why.
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

    /// Removes expired claims, and reads the position of the claim; with `listen` also requests notifications.
    pub(super) fn look(&self, mode: Mode, listen: bool) -> String {
        let mut sql = self.begin();
        self.wake_watchers(&mut sql);
        self.position(&mut sql, mode);
        self.end_of_look(sql, listen)
    }

    /// Reads the position of the claim, and changes nothing.
    pub(super) fn read(&self, mode: Mode) -> String {
        let mut sql = String::new();
        self.position(&mut sql, mode);
        sql
    }

    /// Renews the claim by `ttl`, unless it has expired, and reads its position. It decides about no other claim, so it
    /// locks its own entries alone. So renewals in a long queue commit in parallel, and do not wait for the row of the
    /// lock. A step that judges an entry expired deletes it, which locks it. `holds` is whether the claim has its
    /// tokens.
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

    /// Grants a claim that was found to hold. Arrivals change no holder and departures revoke no hold. So the finding
    /// of an earlier transaction is still true while the claim exists.
    pub(super) fn grant(&self, mode: Mode) -> String {
        let mut sql = self.begin();
        sql.push_str(&self.dialect.grant(&self.claim, &self.locks));
        self.wake_watchers(&mut sql);
        self.position(&mut sql, mode);
        self.commit(&mut sql);
        // A claim that slept on it while it waited is the next one now.
        if slots(mode) > 0 {
            sql.push_str(&self.dialect.depart(self.id));
        }
        sql
    }

    /// Reads one row for each lock, for [`super::position::Standing`].
    fn position(&self, sql: &mut String, mode: Mode) {
        let (claims, now, claim) = (&self.dialect.tables().claim, self.dialect.now(), &self.claim);
        // Of the entries ahead, the last one that must end; with slots the last one, and the first end of a lease.
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

    /// Leaves the queues, and grants the lock to the next claim. The release itself need not survive a crash of the
    /// database, which would only restore the rest of the lease. `keep_out` is whether an earlier request may still
    /// arrive.
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
        // The claim that was granted the lock does not wait for this. It is for others that can hold with it, or have
        // to read.
        for lock in &self.locks {
            sql.push_str(&self.dialect.wake_next(lock, slots(mode)));
        }
        sql
    }

    /// Reads the locks of the claim, and its mode.
    pub(super) fn names(&self) -> String {
        let claims = &self.dialect.tables().claim;
        format!("SELECT name, mode FROM {claims} WHERE claim = {} AND name < '{NOTE}';", self.claim)
    }

    /// Removes the claim, which is in `mode`, or asks it to leave. The first row has the number of its entries.
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
            // Without a second note, and not while it is in other queues.
            let unless = format!("WHERE NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim})");
            self.note(&mut sql, "evicted", &self.dialect.text(&by), claim, &unless);
            for lock in &self.locks {
                sql.push_str(&self.dialect.wake_next(lock, slots(mode)));
            }
        }
        sql.push_str("COMMIT;");
        sql
    }

    /// Changes the label of a claim that holds. The first row has the number of entries that have it now.
    pub(super) fn publish(&self, value: &str) -> String {
        let mut sql = self.begin();
        let claims = &self.dialect.tables().claim;
        let own =
            format!("claim = {} AND name IN ({}) AND fence IS NOT NULL", self.claim, self.locks.join(", "));
        // As a JSON string, so that it is ASCII.
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

/// Reads the present time, and when the last successful run acquired.
pub(super) fn last_success(dialect: &dyn Dialect, name: &LockName) -> String {
    let (locks, name) = (&dialect.tables().lock, dialect.text(&stored(name)));
    format!("SELECT {}, l.success FROM {locks} l WHERE l.name = {name};", dialect.now())
}

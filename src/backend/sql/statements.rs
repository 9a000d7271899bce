//! The batches: each is one exchange and at most one transaction, so that no transaction ever waits for a client.
//!
//! A step that decides about a queue first increments the counter in the row of its lock, which locks that row until the
//! commit. Several locks are locked in the order of their names, and their rows before those of entries. Later
//! statements see all earlier commits. A leaver and a renewal decide about no other claim, and lock their own entries
//! alone. An entry found expired is deleted in the same step, so that a claim judged expired is never revived.

use std::fmt::Write as _;
use std::time::Duration;

use super::dialect::{Dialect, NOTE, ascii, micros, stored};
use crate::backend::queue::store::{Change, Key, Note, Target};
use crate::backend::record::Record;
use crate::backend::success;
use crate::lock::{ClaimId, Holder, LockName, Mode, Request};
use crate::net::tcp;

/// How long a claim that is absent, but may be in flight, is barred from entering: a session that is given up is
/// closed. A client that does not learn why its claim is gone reads at its next renewal.
const KEEP_OUT: Duration = tcp::LATE;

/// The number of expired notes that one step removes: more than it adds, and few.
const FORGET: u32 = 20;

/// The first word of the row that tells whether a step was made.
pub(super) const DONE: &str = "done";
/// The first word of the row with the number of watched entries that are unchanged.
pub(super) const UNCHANGED: &str = "unchanged";
/// The words of notes.
pub(super) const EVICTED: &str = "evicted";
/// See [`EVICTED`].
pub(super) const SUPERSEDED: &str = "superseded";

/// One claim and the locks that the step concerns.
#[derive(Clone, Debug)]
pub(super) struct Statements<'a> {
    dialect: &'a dyn Dialect,
    /// Literals, in the order in which they are locked.
    locks: Vec<String>,
    /// A literal.
    claim: String,
    id: ClaimId,
    mode: Mode,
}

/// Returns names in the order in which they are locked: by the bytes of their stored form.
fn in_order(names: &[LockName]) -> Vec<String> {
    let mut stored: Vec<String> = names.iter().map(stored).collect();
    stored.sort();
    stored
}

/// Returns the columns of an entry `m`, for [`super::rows`]; `ahead` is that of the number of entries ahead.
fn entry(dialect: &dyn Dialect, ahead: &str) -> String {
    format!(
        "SELECT m.seq, m.name, m.claim, m.mode, m.about, m.label, m.slot, m.held, m.since, m.asked, \
         m.lease_until - {}, {ahead}",
        dialect.now()
    )
}

/// Returns the batch that reads the live entries of these queues, or with `None` of all; it changes nothing.
pub(super) fn whole(dialect: &dyn Dialect, names: Option<&[LockName]>) -> String {
    let (claims, now, entry) = (&dialect.tables().claim, dialect.now(), entry(dialect, "0"));
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
    let (locks, name) = (&dialect.tables().lock, dialect.text(&stored(name)));
    format!("SELECT {}, l.success FROM {locks} l WHERE l.name = {name};", dialect.now())
}

/// Returns the statement that removes the row of a lock that no claim will use again.
pub(super) fn forget(dialect: &dyn Dialect, name: &LockName) -> String {
    format!("DELETE FROM {} WHERE name = {};", dialect.tables().lock, dialect.text(&stored(name)))
}

/// Returns the statements of a run on the tables, as plans without execution.
pub(super) fn plans(dialect: &dyn Dialect) -> [String; 3] {
    let (claims, none) = (&dialect.tables().claim, dialect.text(""));
    [
        format!("EXPLAIN {}", dialect.make(&none)),
        format!(
            "EXPLAIN INSERT INTO {claims} (name, seq, claim, mode, since, lease_until, about) \
             VALUES ({none}, 0, {none}, {none}, 0, 0, {none}) {}",
            dialect.or_renew()
        ),
        format!("EXPLAIN DELETE FROM {claims} WHERE name = {none};"),
    ]
}

impl<'a> Statements<'a> {
    pub(super) fn new(dialect: &'a dyn Dialect, names: &[LockName], id: ClaimId, mode: Mode) -> Self {
        let locks = in_order(names).iter().map(|name| dialect.text(name)).collect();
        Self { dialect, locks, claim: dialect.text(&id.to_string()), id, mode }
    }

    fn claims(&self) -> &str {
        &self.dialect.tables().claim
    }

    fn all(&self) -> String {
        self.locks.join(", ")
    }

    /// Returns the condition for the entries of the claim.
    fn own(&self) -> String {
        format!("claim = {} AND name IN ({})", self.claim, self.all())
    }

    /// Returns the condition that there are entries of other claims.
    fn others(&self) -> String {
        let (claims, claim, all) = (self.claims(), &self.claim, self.all());
        format!("EXISTS (SELECT 1 FROM {claims} c WHERE c.name IN ({all}) AND c.claim <> {claim})")
    }

    /// Begins, and locks the rows of the locks.
    fn begin(&self) -> String {
        let mut sql = self.dialect.begin().to_owned();
        self.bump(&mut sql);
        sql
    }

    fn bump(&self, sql: &mut String) {
        for lock in &self.locks {
            let locks = &self.dialect.tables().lock;
            let _ = write!(sql, "UPDATE {locks} SET fence = fence + 1 WHERE name = {lock};");
        }
    }

    /// Removes expired entries, under the rows of the locks.
    fn bury_into(&self, sql: &mut String) {
        let (claims, now) = (self.claims(), self.dialect.now());
        for lock in &self.locks {
            let _ = write!(sql, "DELETE FROM {claims} WHERE name = {lock} AND lease_until <= {now};");
        }
    }

    fn wake_watchers(&self, sql: &mut String) {
        for lock in &self.locks {
            sql.push_str(&self.dialect.wake_watchers(lock));
        }
    }

    /// Reads what a decision on the claim needs, and commits data that clients will rely on.
    fn show_and_commit(&self, sql: &mut String) {
        self.show_into(sql);
        sql.push_str("COMMIT;");
        sql.push_str(self.dialect.still_takes_writes());
    }

    /// Reads the queues as far as decisions on the claim need them; changes nothing.
    pub(super) fn show(&self) -> String {
        let mut sql = String::new();
        self.show_into(&mut sql);
        sql
    }

    fn show_into(&self, sql: &mut String) {
        let (claims, claim) = (self.claims(), &self.claim);
        let first = if let Mode::Slots(n) = self.mode { n.get() } else { 1 };
        for lock in &self.locks {
            let own = format!("SELECT o.seq FROM {claims} o WHERE o.name = {lock} AND o.claim = {claim}");
            let before = |which: &str, alias: &str| {
                format!(
                    "UNION SELECT {alias}.seq FROM (SELECT p.seq FROM {claims} p WHERE p.name = {lock} AND p.seq < ({own}) \
                     {which} ORDER BY p.seq DESC LIMIT 1) {alias} "
                )
            };
            // For a shared claim, only entries that are not shared must end.
            let other =
                if self.mode == Mode::Shared { before("AND p.mode <> 'shared'", "s") } else { String::new() };
            let ahead = format!("(SELECT COUNT(*) FROM {claims} p WHERE p.name = {lock} AND p.seq < m.seq)");
            let _ = write!(
                sql,
                "{entry} FROM (SELECT f.seq FROM (SELECT c.seq FROM {claims} c WHERE c.name = {lock} ORDER BY c.seq \
                 LIMIT {first}) f UNION {own} {last}{other}) w JOIN {claims} m ON m.name = {lock} AND m.seq = w.seq \
                 ORDER BY m.seq;",
                entry = entry(self.dialect, &ahead),
                last = before("", "b"),
            );
        }
    }

    /// Joins the queues at the end, unless the claim is barred. If it is there already because an answer was lost, it
    /// is renewed.
    pub(super) fn append(&self, request: &Request) -> String {
        let tables = self.dialect.tables();
        let (claims, locks, now) = (&tables.claim, &tables.lock, self.dialect.now());
        let mut sql = self.dialect.begin().to_owned();
        for lock in &self.locks {
            sql.push_str(&self.dialect.make(lock));
        }
        self.bury_into(&mut sql);
        sql.push_str(&self.dialect.arrive(self.id));
        let record = self.dialect.text(&ascii(&Record::of(request, request.ttl).to_text()));
        let _ = write!(
            sql,
            "INSERT INTO {claims} (name, seq, claim, mode, since, lease_until, about) \
             SELECT l.name, l.fence, {claim}, {mode}, n.now, n.now + {ttl}, {record} \
             FROM {locks} l CROSS JOIN (SELECT {now} AS now) n WHERE l.name IN ({all}) \
             AND NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim} AND g.name > '{NOTE}') {again}",
            claim = self.claim,
            mode = self.dialect.text(&request.mode.to_string()),
            ttl = micros(request.ttl),
            all = self.all(),
            again = self.dialect.or_renew(),
        );
        self.wake_watchers(&mut sql);
        self.show_and_commit(&mut sql);
        sql
    }

    /// Removes expired entries.
    pub(super) fn bury(&self) -> String {
        let mut sql = self.begin();
        self.bury_into(&mut sql);
        self.wake_watchers(&mut sql);
        self.show_and_commit(&mut sql);
        sql
    }

    /// Renews the claim by `ttl`, unless it has expired. `waits` is whether it does not hold.
    pub(super) fn renew(&self, ttl: Duration, waits: bool) -> String {
        let mut sql = self.dialect.begin().to_owned();
        if waits || !matches!(self.mode, Mode::Slots(_)) {
            sql.push_str(&self.dialect.arrive(self.id));
        }
        let (claims, now, own) = (self.claims(), self.dialect.now(), self.own());
        let _ = write!(
            sql,
            "DELETE FROM {claims} WHERE {own} AND lease_until <= {now};\
             UPDATE {claims} SET lease_until = {now} + {ttl} WHERE {own};",
            ttl = micros(ttl),
        );
        self.show_and_commit(&mut sql);
        sql
    }

    /// Returns the rows of these entries as a list, and their number.
    fn rows<'k>(&self, keys: impl Iterator<Item = (&'k LockName, &'k Key)>) -> (String, usize) {
        let mut rows: Vec<(String, u64)> = keys.map(|(name, key)| (stored(name), key.order)).collect();
        rows.sort();
        rows.dedup();
        let list = rows.iter().map(|(name, seq)| format!("({}, {seq})", self.dialect.text(name)));
        (list.collect::<Vec<_>>().join(", "), rows.len())
    }

    /// Locks the entries `keys`, and returns the condition that all of them are present, also `having`. A later
    /// statement that changes one of them is the last with this condition.
    fn require(&self, sql: &mut String, keys: &[(LockName, Key)], having: &str) -> String {
        if keys.is_empty() {
            return "1 = 1".to_owned();
        }
        let claims = self.claims();
        let (rows, count) = self.rows(keys.iter().map(|(name, key)| (name, key)));
        let _ = write!(
            sql,
            "SELECT k.seq FROM {claims} k WHERE (k.name, k.seq) IN ({rows}) ORDER BY k.name, k.seq FOR UPDATE;"
        );
        // Aggregates in a derived table, because MySQL changes no table that a subquery reads directly.
        format!(
            "(SELECT t.n FROM (SELECT COUNT(*) AS n FROM {claims} k WHERE (k.name, k.seq) IN ({rows}){having}) t) = {count}"
        )
    }

    fn tell(sql: &mut String, condition: &str) {
        let _ = write!(sql, "SELECT '{DONE}', CASE WHEN {condition} THEN 1 ELSE 0 END;");
    }

    /// Takes the slots, one of each name in order, if all are free and the entries `keys` have none.
    pub(super) fn hold(&self, keys: &[(LockName, Key)], slots: &[Option<u32>]) -> String {
        let claims = self.claims();
        let mut sql = self.begin();
        self.bury_into(&mut sql);
        let slots: Vec<(String, u32)> = keys
            .iter()
            .zip(slots)
            .filter_map(|((name, _), slot)| Some((self.dialect.text(&stored(name)), (*slot)?)))
            .collect();
        let taken: Vec<String> = slots.iter().map(|(lock, slot)| format!("({lock}, {slot})")).collect();
        let mut condition = self.require(&mut sql, keys, " AND k.slot IS NULL");
        let _ = write!(
            condition,
            " AND (SELECT u.n FROM (SELECT COUNT(*) AS n FROM {claims} v WHERE (v.name, v.slot) IN ({})) u) = 0",
            taken.join(", ")
        );
        Self::tell(&mut sql, &condition);
        let each: Vec<String> = slots.iter().map(|(lock, slot)| format!("WHEN {lock} THEN {slot}")).collect();
        let _ = write!(
            sql,
            "UPDATE {claims} SET slot = CASE name {} END WHERE {} AND {condition};",
            each.join(" "),
            self.own()
        );
        self.wake_watchers(&mut sql);
        sql.push_str(&self.dialect.wake(&self.claim, Some(&self.others())));
        self.show_and_commit(&mut sql);
        // A claim that slept on it while it waited is the next one now.
        sql.push_str(&self.dialect.depart(self.id));
        sql
    }

    /// Leaves the queues. The commit is waited for only if others remain, because a crash of the database would only
    /// restore the rest of the lease. `bar` is whether an earlier request may still arrive. `held_for` is how long ago a
    /// successful run acquired.
    pub(super) fn leave(&self, held_for: Option<Duration>, bar: bool) -> String {
        let (claims, own) = (self.claims(), self.own());
        let mut sql = self.dialect.begin().to_owned();
        if let Some(held_for) = held_for {
            self.succeed(&mut sql, held_for);
        }
        if bar {
            self.bump(&mut sql);
            self.note(&mut sql, "left", "''", "1 = 1");
        }
        let _ = write!(sql, "DELETE FROM {claims} WHERE {own};");
        let others = self.others();
        sql.push_str(&self.dialect.lazily(&format!("NOT {others}")));
        sql.push_str("COMMIT;");
        sql.push_str(&self.dialect.depart(self.id));
        // After the commit: a claim that arrived before it is among the others, and one that arrives later reads it.
        sql.push_str(&self.dialect.wake(&self.claim, Some(&others)));
        self.wake_watchers(&mut sql);
        sql
    }

    /// Records a success, unless a later one is recorded. One that is dated in the future is ignored.
    fn succeed(&self, sql: &mut String, held_for: Duration) {
        let (locks, claims, now) = (&self.dialect.tables().lock, self.claims(), self.dialect.now());
        for lock in &self.locks {
            let _ = write!(
                sql,
                "UPDATE {locks} SET success = GREATEST(CASE WHEN success <= {now} + {ahead} THEN success ELSE 0 END, \
                 {now} - {held_for}) WHERE name = {lock} \
                 AND EXISTS (SELECT 1 FROM {claims} c WHERE c.name = {lock} AND c.claim = {claim});",
                ahead = success::AHEAD.as_micros(),
                held_for = micros(held_for),
                claim = self.claim,
            );
        }
    }

    /// Records that the claim must not (re)appear for a while, and why, if `condition` holds. Without a second note, and
    /// not while it is in other queues.
    fn note(&self, sql: &mut String, why: &str, by: &str, condition: &str) {
        let (claims, now, length) = (self.claims(), self.dialect.now(), micros(KEEP_OUT));
        let (claim, all) = (&self.claim, self.all());
        let name = self.dialect.concat(&[&format!("'{NOTE}'"), "n.until", "'.'", claim]);
        sql.push_str(&self.dialect.forget(FORGET));
        let _ = write!(
            sql,
            "INSERT INTO {claims} (name, seq, claim, mode, since, lease_until, about) \
             SELECT {name}, 0, {claim}, '{why}', n.until - {length}, n.until, {by} \
             FROM (SELECT {now} + {length} AS until) n WHERE {condition} \
             AND NOT EXISTS (SELECT 1 FROM {claims} g WHERE g.claim = {claim} AND g.name NOT IN ({all}));"
        );
    }

    /// Removes the claim while the entries in `when` are present.
    pub(super) fn remove(&self, when: &[(LockName, Key)], note: &Note) -> String {
        let (claims, own) = (self.claims(), self.own());
        let mut sql = self.begin();
        let condition = self.require(&mut sql, when, "");
        Self::tell(&mut sql, &condition);
        let (why, by) = match note {
            Note::Superseded(by) => (SUPERSEDED, Some(by)),
            Note::Evicted(by) => (EVICTED, by.as_ref()),
            Note::Asked(_) | Note::Forgotten(_) => (EVICTED, None),
        };
        let by = by.map_or_else(|| "''".to_owned(), |by| self.holder(by));
        self.note(&mut sql, why, &by, &condition);
        let _ = write!(sql, "DELETE FROM {claims} WHERE {own} AND {condition};");
        self.wake_watchers(&mut sql);
        sql.push_str(&self.dialect.wake(&self.claim, None));
        sql.push_str("COMMIT;");
        sql
    }

    /// Changes the entry `key`, the only one of these statements, if it is there.
    pub(super) fn change(&self, key: &(LockName, Key), change: &Change) -> String {
        let claims = self.claims();
        let mut sql = self.begin();
        let condition = self.require(&mut sql, std::slice::from_ref(key), "");
        Self::tell(&mut sql, &condition);
        let set = match change {
            Change::Asked(by) => format!("asked = {}", self.holder(by)),
            // As a JSON string, so that it is ASCII.
            Change::Label(text) => {
                let text = serde_json::to_string(text).unwrap_or_default();
                format!("label = {}", self.dialect.text(&ascii(&text)))
            }
            Change::HeldFor(length) => format!("held = {} - {}", self.dialect.now(), micros(*length)),
        };
        let _ = write!(sql, "UPDATE {claims} SET {set} WHERE {} AND seq = {};", self.own(), key.1.order);
        self.wake_watchers(&mut sql);
        if matches!(change, Change::Asked(_)) {
            sql.push_str(&self.dialect.wake(&self.claim, None));
        }
        sql.push_str("COMMIT;");
        sql
    }

    fn holder(&self, holder: &Holder) -> String {
        self.dialect.text(&ascii(&serde_json::to_string(holder).unwrap_or_default()))
    }

    /// Reads why the claim is gone. Claims that sleep on it are woken.
    pub(super) fn why_gone(&self) -> String {
        let claims = self.claims();
        format!(
            "SELECT g.mode, g.about FROM {claims} g WHERE g.claim = {} AND g.name > '{NOTE}';{}",
            self.claim,
            self.dialect.depart(self.id)
        )
    }

    /// Requests notifications for the claim with the entries `keys`, in the order of `names`, and for its targets.
    /// Then counts those that are as they were seen, and the connections that the server has left.
    pub(super) fn listen(&self, names: &[LockName], keys: &[Key], on: &[Target]) -> String {
        let mut claims: Vec<&str> =
            keys.iter().chain(on.iter().map(|on| &on.key)).map(|key| &*key.text).collect();
        claims.sort_unstable();
        claims.dedup();
        let rows = |or_holds: bool| {
            let targets = on.iter().filter(|on| on.or_holds == or_holds);
            let targets = targets.map(|on| (&names[on.name], &on.key));
            self.rows(targets.chain(names.iter().zip(keys).filter(|_| !or_holds))).0
        };
        let (firm, soft) = (rows(false), rows(true));
        let soft = if soft.is_empty() {
            String::new()
        } else {
            format!(" OR (m.slot IS NULL AND (m.name, m.seq) IN ({soft}))")
        };
        format!(
            "{}{}SELECT '{UNCHANGED}', COUNT(*) FROM {} m WHERE m.asked IS NULL AND ((m.name, m.seq) IN ({firm}){soft});",
            self.dialect.listen(&claims),
            if on.is_empty() { "" } else { self.dialect.few_left() },
            self.claims(),
        )
    }
}

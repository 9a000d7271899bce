//! What `status`, `list` and `watch` show.

use std::time::{Duration, SystemTime};

use super::{ClaimId, FencingToken, Holder, LockName, Mode, Verb};

/// One entry of a queue as seen from outside; `None` for what is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The claim; of an entry that a foreign client made, what names it at the service, hashed.
    pub claim: Option<ClaimId>,
    /// The mode.
    pub mode: Option<Mode>,
    /// The slot that it holds, from 1.
    pub slot: Option<u32>,
    /// The fencing token of the hold.
    pub token: Option<FencingToken>,
    /// The host's name.
    pub host: Option<String>,
    /// The pid, in the PID namespace of that host and container.
    pub pid: Option<u32>,
    /// When that process was born ([`super::Holder::born`]).
    pub born: Option<u64>,
    /// The user.
    pub user: Option<String>,
    /// The command's first word.
    pub command: Option<String>,
    /// The text given with `--label`.
    pub label: Option<String>,
    /// What a client other than dlock made it as, in the service's words: `key lock:x`, `node /x/lock-0000000001`.
    pub key: Option<String>,
    /// Since when it holds, or waits.
    pub since: Option<SystemTime>,
    /// What is left of its time to live without renewal; `None` also where the kernel ends it.
    pub ttl: Option<Duration>,
    /// For a waiter: how many entries stand ahead.
    pub ahead: Option<u32>,
    /// Whether a client other than dlock made it.
    pub foreign: bool,
    /// Whether it makes way for a newer claim that says so too ([`super::Holder::replace`]).
    pub replace: bool,
    /// By which subcommand of dlock it was made.
    pub verb: Verb,
    /// The claims under which its dlock was started.
    pub ancestors: Vec<ClaimId>,
    /// The locks of its claim, if there are several, and of its ancestors.
    pub related: Vec<LockName>,
}

impl Entry {
    /// Whose it is, as far as known.
    pub fn owner(&self) -> Holder {
        Holder {
            host: self.host.clone().unwrap_or_default(),
            pid: self.pid.unwrap_or_default(),
            born: self.born,
            user: self.user.clone().unwrap_or_default(),
            command: self.command.clone().unwrap_or_default(),
            label: self.label.clone(),
            replace: self.replace,
            verb: self.verb,
        }
    }
}

/// One queue: holders and waiters in order of arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockStatus {
    /// The lock.
    pub name: LockName,
    /// Who holds it.
    pub holders: Vec<Entry>,
    /// Who waits.
    pub waiters: Vec<Entry>,
}

impl LockStatus {
    /// A queue that nobody has joined.
    pub fn empty(name: &LockName) -> Self {
        Self::of(name, Vec::new(), Vec::new())
    }

    /// The queue of `name`; each waiter gets how many stand ahead of it, the holders among them.
    pub fn of(name: &LockName, holders: Vec<Entry>, mut waiters: Vec<Entry>) -> Self {
        for (at, waiter) in waiters.iter_mut().enumerate() {
            waiter.ahead = u32::try_from(holders.len() + at).ok();
        }
        Self { name: name.clone(), holders, waiters }
    }

    /// Whether nobody holds or waits.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// The same without what is left of each ttl, which changes all the time.
    fn without_clock(&self) -> Self {
        let still =
            |entries: &[Entry]| entries.iter().map(|entry| Entry { ttl: None, ..entry.clone() }).collect();
        Self { name: self.name.clone(), holders: still(&self.holders), waiters: still(&self.waiters) }
    }

    /// Whether it differs from `last`, what is left of each ttl apart.
    pub fn is_news_after(&self, last: Option<&Self>) -> bool {
        last.map(Self::without_clock) != Some(self.without_clock())
    }
}

//! The data of `status`, `list` and `watch`.

use std::time::{Duration, SystemTime};

use super::{ClaimId, FencingToken, Holder, LockName, Mode, Verb};

/// One entry of a queue for display; `None` for unknown fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The claim. For another program's entry it is a hash of the entry's identity at the service.
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
    /// The start time of that process ([`super::Holder::born`]).
    pub born: Option<u64>,
    /// The user.
    pub user: Option<String>,
    /// The command's first word.
    pub command: Option<String>,
    /// The text given with `--label`.
    pub label: Option<String>,
    /// The object of a client other than dlock, in the service's words: `key lock:x`, `node /x/lock-0000000001`.
    pub key: Option<String>,
    /// The start of its hold or wait.
    pub since: Option<SystemTime>,
    /// The rest of its time to live without renewal; also `None` if the kernel ends it.
    pub ttl: Option<Duration>,
    /// For a waiter: the number of entries ahead.
    pub ahead: Option<u32>,
    /// Whether a client other than dlock made it.
    pub foreign: bool,
    /// Whether it yields to a newer claim with this flag ([`super::Holder::replace`]).
    pub replace: bool,
    /// The dlock subcommand that made it.
    pub verb: Verb,
    /// The claims inside which its dlock was started.
    pub ancestors: Vec<ClaimId>,
    /// The locks of its claim, if there are several, and of its ancestors.
    pub related: Vec<LockName>,
}

impl Entry {
    /// Returns the owner, as far as known.
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
    /// The holders.
    pub holders: Vec<Entry>,
    /// The waiters.
    pub waiters: Vec<Entry>,
}

impl LockStatus {
    /// Returns an empty queue.
    pub fn empty(name: &LockName) -> Self {
        Self::of(name, Vec::new(), Vec::new())
    }

    /// Returns the queue of `name`, and sets the number of entries ahead of each waiter, including holders.
    pub fn of(name: &LockName, holders: Vec<Entry>, mut waiters: Vec<Entry>) -> Self {
        for (at, waiter) in waiters.iter_mut().enumerate() {
            waiter.ahead = u32::try_from(holders.len() + at).ok();
        }
        Self { name: name.clone(), holders, waiters }
    }

    /// Returns whether there are neither holders nor waiters.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Returns the status without the rest of each ttl, which changes all the time.
    fn without_clock(&self) -> Self {
        let still =
            |entries: &[Entry]| entries.iter().map(|entry| Entry { ttl: None, ..entry.clone() }).collect();
        Self { name: self.name.clone(), holders: still(&self.holders), waiters: still(&self.waiters) }
    }

    /// Returns whether it differs from `last`, except in the rest of each ttl.
    pub fn is_news_after(&self, last: Option<&Self>) -> bool {
        last.map(Self::without_clock) != Some(self.without_clock())
    }
}

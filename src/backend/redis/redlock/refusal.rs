//! What the answers to an attempt say against any further one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::core::Core;
use super::nodes::{Answer, Answers, Node, answered};
use crate::backend::mixing::mismatch;
use crate::backend::record::Record;
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult, Retry};

impl Core {
    /// Errors: an address is not that of an independent master.
    pub(super) fn refuse_unfit<T>(&self, found: &Answers<(T, Answer)>) -> FaultResult<()> {
        let place = |at: usize| self.nodes.all[at].service.config.identity();
        let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, answer) in found.iter().enumerate() {
            let reason = match answer {
                Some(Ok((_, answer))) => match runs.insert(&answer.server.run, at) {
                    Some(other) => format!(
                        "{} and {} are the same server; give each server once",
                        place(other),
                        place(at)
                    ),
                    None => continue,
                },
                Some(Err(fault)) if fault.retry == Retry::OtherServer => format!(
                    "{} is a replica: it follows its master and decides nothing; name independent masters only",
                    place(at)
                ),
                _ => continue,
            };
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
        Ok(())
    }

    /// Errors: too few nodes can be used.
    pub(super) fn refuse_too_few<T>(&self, found: &Answers<(T, Answer)>) -> FaultResult<()> {
        let (usable, majority) = (answered(found), self.nodes.majority());
        if usable >= majority {
            return Ok(());
        }
        let is_silent = |(answer, node): &(&Option<FaultResult<_>>, &Arc<Node>)| {
            let asked = match answer {
                None => true,
                Some(Ok(_)) => false,
                Some(Err(fault)) => fault.is_spent(),
            };
            asked && node.service.has_connected()
        };
        let silent = found.iter().zip(&self.nodes.all).filter(is_silent).count();
        let too_few = self.nodes.too_few(usable, found);
        // Those that are silent may have given the lock.
        Err(if usable + silent >= majority { too_few.helped_by(Retry::OtherConnection) } else { too_few })
    }

    /// Errors: so few of the nodes vote that those which did not answer could not make a majority of them.
    pub(super) fn refuse_few_votes<T>(&self, found: &Answers<(T, Answer)>) -> FaultResult<()> {
        let (now, majority) = (self.nodes.clock.now(), self.nodes.majority());
        let from = found.iter().flatten().flatten().map(|(_, answer)| answer.server.votes_from);
        let mut from: Vec<Moment> = from.collect();
        from.sort_unstable();
        let able = from.iter().filter(|from| **from <= now).count();
        let silent = found.iter().filter(|answer| answer.is_none()).count();
        let Some(again) = from.get(majority - 1).filter(|_| able + silent < majority) else { return Ok(()) };
        let reason = format!(
            "{able} of {} nodes vote: one that was restarted within --max-ttl ({} s) does not, in case it forgot a \
             lock; there is a majority again in {} s",
            self.nodes.all.len(),
            self.nodes.max_ttl.as_secs(),
            again.since(now).as_secs() + 1
        );
        Err(Fault::unavailable(reason))
    }

    /// Errors: the holder, who shows this record, has a lock of another kind.
    pub(super) fn refuse_other_kind(&self, other: &Record) -> FaultResult<()> {
        let mode = other.mode();
        if mode.is_some_and(|mode| mode.mixes_with(self.mode)) {
            return Ok(());
        }
        let owner = other.holder.to_string();
        let reason = mismatch(Some(&self.keys.name), Some(&owner), mode.into(), self.mode);
        Err(Fault::new(ErrorKind::Mismatch, reason))
    }
}

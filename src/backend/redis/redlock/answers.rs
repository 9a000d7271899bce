//! What the nodes answer to an attempt.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::Value;

use super::nodes::{Answer, Answers};
use crate::backend::claim_state::due;
use crate::backend::redis::dial::value_of;
use crate::backend::redis::fault;
use crate::backend::redis::row::{integer, life};
use crate::lock::{FencingToken, Moment};
use crate::net::fault::FaultResult;

/// What one node answered to an attempt.
pub(super) enum Said {
    Given(FencingToken),
    Taken {
        /// What the key says that is in the way.
        by: String,
        left: Option<Duration>,
        free: Vec<u32>,
    },
}

impl Said {
    pub(super) fn by(&self) -> Option<&str> {
        if let Self::Taken { by, .. } = self { Some(by) } else { None }
    }

    /// Until when the node is taken, as it said at `begin`.
    pub(super) fn life(&self, begin: Moment) -> Moment {
        if let Self::Taken { left, .. } = self { due(begin, *left) } else { begin }
    }

    pub(super) fn parse(answer: &Answer) -> FaultResult<Self> {
        let nonsense = || fault::nonsense("no answer to an attempt");
        let Some(Value::Array(parts)) = answer.replies.first() else { return Err(nonsense()) };
        match parts.as_slice() {
            [_, token] => {
                let token = integer(token).and_then(|token| FencingToken::new(token.try_into().ok()?));
                token.map(Self::Given).ok_or_else(nonsense)
            }
            [_, by, left, Value::Array(free)] => Ok(Self::Taken {
                by: value_of(by).ok_or_else(nonsense)?,
                left: life(left),
                free: free.iter().filter_map(|slot| integer(slot)?.try_into().ok()).collect(),
            }),
            _ => Err(nonsense()),
        }
    }
}

pub(super) fn said(found: &Answers<(Said, Answer)>) -> impl Iterator<Item = &Said> {
    found.iter().flatten().flatten().map(|(said, _)| said)
}

/// The tokens of the nodes that gave it and whose word counts.
pub(super) fn given(found: &Answers<(Said, Answer)>, now: Moment) -> Vec<FencingToken> {
    let votes = found.iter().flatten().flatten().filter(|(_, answer)| answer.server.votes_from <= now);
    votes.filter_map(|(said, _)| if let Said::Given(token) = said { Some(*token) } else { None }).collect()
}

/// Who is in the way at most nodes, and at how many.
pub(super) fn taken_by(found: &Answers<(Said, Answer)>) -> Option<(&str, usize)> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    said(found).filter_map(Said::by).for_each(|by| *all.entry(by).or_default() += 1);
    all.into_iter().max_by_key(|(_, count)| *count)
}

/// The slots, but that one, that are free at a majority.
pub(super) fn free_slots(found: &Answers<(Said, Answer)>, majority: usize, tried: Option<u32>) -> Vec<u32> {
    let mut free: HashMap<u32, usize> = HashMap::new();
    for said in said(found) {
        let Said::Taken { free: slots, .. } = said else { continue };
        for slot in slots {
            *free.entry(*slot).or_default() += 1;
        }
    }
    let elsewhere = free.into_iter().filter(|(slot, count)| *count >= majority && Some(*slot) != tried);
    elsewhere.map(|(slot, _)| slot).collect()
}

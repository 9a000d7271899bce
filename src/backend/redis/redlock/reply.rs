//! What one node says of a claim.

use std::time::Duration;

use redis::Value;

use crate::backend::fault::FaultResult;
use crate::backend::record::Record;
use crate::backend::redis::dial::text;
use crate::backend::redis::fault;
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::redlock::row;
use crate::lock::{Granted, Mode};

/// One queue's row of `position` in `quorum.lua`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Row {
    pub(super) base: row::Row,
    pub(super) score: Option<u64>,
    /// Whether somebody who comes first waits for what it has here.
    pub(super) behind: bool,
    /// The slots here of those others to whom, as is known here, a majority gave one; 0 is one who has none here.
    pub(super) taken: Vec<u32>,
    /// The highest token that the node knows for the name: it gives no lower one.
    pub(super) fence: u64,
    /// Whether the node knows that what it gave is a part of what a majority gave.
    pub(super) assured: bool,
    /// Whether the claim has been compared here with the others that supersede.
    pub(super) compared: bool,
}

impl Row {
    fn parse(reply: &Value, keys: &LockKeys) -> FaultResult<Self> {
        let base = row::Row::parse(reply, keys)?;
        let Value::Array(parts) = reply else { return Err(fault::nonsense("no row of a queue")) };
        let at = |n: usize| parts.get(n).and_then(text);
        let taken = at(16).unwrap_or_default();
        Ok(Self {
            base,
            score: at(14).and_then(|score| number(&score)),
            behind: at(15).is_some(),
            taken: taken.split(',').filter_map(|slot| slot.parse().ok()).collect(),
            fence: at(17).and_then(|fence| fence.parse().ok()).unwrap_or(0),
            assured: at(18).is_some(),
            compared: at(19).is_some(),
        })
    }

    pub(super) fn granted(&self) -> Option<Granted> {
        self.base.granted.filter(|_| self.base.gone.is_none())
    }

    /// Whether a change of the lock's key itself concerns the claim: of a marker the claims that it stands for
    /// tell.
    pub(super) fn watches_lock(&self, mode: Mode) -> bool {
        let marker = self.base.value.as_deref().is_some_and(|value| value.starts_with("redlock:"));
        if self.base.granted.is_some() { mode == Mode::Exclusive } else { self.base.top && !marker }
    }
}

/// Scores are whole numbers of microseconds, but a server may write large ones with an exponent.
pub(super) fn number(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let value: f64 = text.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        (0.0..9e15).contains(&value).then_some(value as u64)
    })
}

/// How a claim stands at one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// Whether the step found the claim.
    pub(super) found: bool,
    pub(super) rows: Vec<Row>,
    /// For how long the node certainly has run.
    pub(super) uptime: Duration,
    /// Which server it is.
    pub(super) run: String,
}

/// Somebody whose kind of claim does not mix with this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Other {
    /// Which of the claim's names it uses.
    pub(super) at: Option<usize>,
    pub(super) mode: Option<Mode>,
    pub(super) who: Option<String>,
}

/// The answer to a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Position(Position),
    /// Somebody uses one of the locks as another kind.
    Mismatch(Other),
    /// To steps that say no more.
    Number(i64),
}

impl Reply {
    pub(super) fn parse(reply: &Value, names: &[LockKeys]) -> FaultResult<Self> {
        if let Value::Int(number) = reply {
            return Ok(Self::Number(*number));
        }
        let Value::Array(parts) = reply else { return Err(fault::nonsense("no answer to a step")) };
        let at = |n: usize| parts.get(n).and_then(text);
        match (at(0).as_deref(), parts.get(1)) {
            (Some("mismatch"), _) => {
                let record = at(3).and_then(|about| Record::parse(about.as_bytes()));
                Ok(Self::Mismatch(Other {
                    at: at(1).and_then(|n| n.parse().ok()).and_then(|n: usize| n.checked_sub(1)),
                    mode: at(2).and_then(|mode| mode.parse().ok()),
                    who: record.map(|record| record.holder.to_string()),
                }))
            }
            (Some(word), Some(Value::Array(rows))) if rows.len() == names.len() => {
                let seconds = at(2).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
                Ok(Self::Position(Position {
                    found: word == "in",
                    rows: rows
                        .iter()
                        .zip(names)
                        .map(|(row, keys)| Row::parse(row, keys))
                        .collect::<FaultResult<_>>()?,
                    // It is the difference of two whole seconds.
                    uptime: Duration::from_secs(seconds.saturating_sub(1)),
                    run: at(3).unwrap_or_default(),
                }))
            }
            _ => Err(fault::nonsense("not one row for each name")),
        }
    }
}

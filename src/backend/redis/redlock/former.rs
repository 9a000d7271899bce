//! What nested claims are listed by, and how scripts take a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::Value;
use serde::Deserialize;

use super::script::{LIST, UNLIST};
use crate::backend::Evict;
use crate::backend::redis::astray::KEEP_OUT;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::dial::text;
use crate::backend::redis::script::{Step, millis};
use crate::lock::{ClaimId, LockName, Request};

/// A connection that tells of changes, and how often it had told when the state was read.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub(super) connection: Arc<Connection>,
    pub(super) notified: u64,
}

/// What the list says of a claim.
#[derive(Deserialize)]
#[serde(untagged)]
enum Listed {
    /// Its names, and when it was listed.
    At { names: Vec<String> },
    /// Its names, as earlier builds wrote them.
    Plain(Vec<String>),
}

/// What lists the claim of `request` under the key `index`.
pub(super) fn announcement(index: &str, request: &Request) -> Step {
    let names: Vec<&str> = request.names.iter().map(LockName::as_str).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    Step::Script {
        script: &LIST,
        keys: vec![index.to_owned()],
        arguments: vec![request.id.to_string(), names],
    }
}

/// What takes the claim `id` off that list.
pub(super) fn removal(index: &str, id: ClaimId) -> Step {
    Step::command(["HDEL", index, &id.to_string()])
}

/// What takes the claim `id`, which stands in none of its queues, off that list: only once its request to enter cannot be under
/// way any more, since it is listed before that and not again.
pub(super) fn removal_of_stale(index: &str, id: ClaimId) -> Step {
    let arguments = vec![id.to_string(), millis(KEEP_OUT)];
    Step::Script { script: &UNLIST, keys: vec![index.to_owned()], arguments }
}

pub(super) fn listed(reply: &Value) -> BTreeMap<ClaimId, Vec<LockName>> {
    let pairs: Vec<(&Value, &Value)> = match reply {
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        Value::Map(pairs) => pairs.iter().map(|(field, value)| (field, value)).collect(),
        _ => Vec::new(),
    };
    let claim = |(field, value): (&Value, &Value)| {
        let (Listed::At { names } | Listed::Plain(names)) = serde_json::from_str(&text(value)?).ok()?;
        let names = names.into_iter().filter_map(|name| LockName::new(name).ok()).collect();
        Some((text(field)?.parse().ok()?, names))
    };
    pairs.into_iter().filter_map(claim).collect()
}

/// How to remove an entry, as scripts take it.
pub(super) fn word_for(how: Evict) -> &'static str {
    match how {
        Evict::Ask => "ask",
        Evict::Force => "force",
    }
}

/// Whether a claim takes the place of older ones that say so too, as scripts take it.
pub(super) fn newest(request: &Request) -> &'static str {
    if request.supersede { "1" } else { "0" }
}

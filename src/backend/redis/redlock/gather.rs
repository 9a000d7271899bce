//! One question to all nodes.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::core::Nodes;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::fault::{Fault, Outcome};
use crate::backend::redis::script::Step;
use crate::backend::redis::service::Patience;
use crate::lock::Moment;

/// What each node answers to `steps`, `None` where there is no answer. Waits for all, but once a majority has
/// answered at most for `straggle`. Too few answers are an error.
pub(super) async fn answers(
    nodes: &Arc<Nodes>,
    straggle: Duration,
    deadline: Moment,
    steps: Vec<Step>,
) -> Outcome<Vec<Option<Vec<Value>>>> {
    let clock = nodes.services[0].clock;
    let mut under_way = JoinSet::new();
    for (at, service) in nodes.services.iter().enumerate() {
        let (service, steps) = (Arc::clone(service), steps.clone());
        under_way.spawn(async move {
            let make = move |_: &Connection| steps.clone();
            let answer = service.call(None, deadline, Patience::Once, make).await;
            let answer = answer.and_then(|answer| {
                let refused = answer.replies.iter().find_map(|reply| match reply {
                    Value::ServerError(error) => Some(Fault::of(error)),
                    _ => None,
                });
                refused.map_or(Ok(answer.replies), Err)
            });
            (at, answer)
        });
    }
    let mut found: Vec<Option<Vec<Value>>> = nodes.services.iter().map(|_| None).collect();
    let mut faults = Vec::new();
    let mut until = deadline + Duration::from_millis(5);
    loop {
        tokio::select! {
            biased;
            ended = under_way.join_next() => match ended {
                None => break,
                Some(Ok((at, Ok(replies)))) => found[at] = Some(replies),
                Some(Ok((_, Err(fault)))) => faults.push(fault),
                Some(Err(_)) => {}
            },
            () = clock.sleep_until(until) => break,
        }
        if found.iter().flatten().count() >= nodes.majority() {
            until = until.min(clock.now() + straggle);
        }
    }
    under_way.detach_all();
    let answered = found.iter().flatten().count();
    if answered < nodes.majority() {
        return Err(nodes.too_few(answered, &faults));
    }
    Ok(found)
}

/// As [`answers`], of one step, read by `parse`.
pub(super) async fn from_all<T>(
    nodes: &Arc<Nodes>,
    straggle: Duration,
    deadline: Moment,
    step: Step,
    parse: impl Fn(Value) -> Outcome<T>,
) -> Outcome<Vec<Option<T>>> {
    let found = answers(nodes, straggle, deadline, vec![step]).await?;
    found
        .into_iter()
        .map(|replies| {
            let reply = replies.and_then(|replies| replies.into_iter().next());
            reply.map(&parse).transpose()
        })
        .collect()
}

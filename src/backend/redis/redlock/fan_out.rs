//! One question to all nodes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::core::Nodes;
use crate::backend::fault::FaultResult;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::fault;
use crate::backend::redis::script::Step;
use crate::backend::redis::service::{Patience, Service};
use crate::lock::Moment;

/// How long a node may hold up an answer that the others have given.
pub(super) const STRAGGLE: Duration = Duration::from_millis(250);

/// What `ask` learns of each node, `None` where that is nothing. Waits for all, but once a majority has answered at
/// most for `straggle`. Too few answers are an error.
pub(super) async fn of_each<T, F>(
    nodes: &Arc<Nodes>,
    straggle: Duration,
    deadline: Moment,
    ask: impl Fn(Arc<Service>) -> F,
) -> FaultResult<Vec<Option<T>>>
where
    T: Send + 'static,
    F: Future<Output = FaultResult<T>> + Send + 'static,
{
    let clock = nodes.services[0].clock;
    let mut under_way = JoinSet::new();
    for (at, service) in nodes.services.iter().enumerate() {
        let asked = ask(Arc::clone(service));
        under_way.spawn(async move { (at, asked.await) });
    }
    let mut found: Vec<Option<T>> = nodes.services.iter().map(|_| None).collect();
    let mut faults = Vec::new();
    let mut until = deadline + Duration::from_millis(5);
    loop {
        tokio::select! {
            biased;
            ended = under_way.join_next() => match ended {
                None => break,
                Some(Ok((at, Ok(answer)))) => found[at] = Some(answer),
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

/// What each node answers to `steps`; otherwise as [`of_each`].
pub(super) async fn answers(
    nodes: &Arc<Nodes>,
    straggle: Duration,
    deadline: Moment,
    steps: Vec<Step>,
) -> FaultResult<Vec<Option<Vec<Value>>>> {
    let ask = |service: Arc<Service>| {
        let steps = steps.clone();
        async move {
            let make = move |_: &Connection| steps.clone();
            let answer = service.call(None, deadline, Patience::Once, make).await?;
            let refused = answer.replies.iter().find_map(|reply| match reply {
                Value::ServerError(error) => Some(fault::of(error)),
                _ => None,
            });
            refused.map_or(Ok(answer.replies), Err)
        }
    };
    of_each(nodes, straggle, deadline, ask).await
}

/// As [`answers`], of one step, read by `parse`.
pub(super) async fn from_all<T>(
    nodes: &Arc<Nodes>,
    straggle: Duration,
    deadline: Moment,
    step: Step,
    parse: impl Fn(Value) -> FaultResult<T>,
) -> FaultResult<Vec<Option<T>>> {
    let found = answers(nodes, straggle, deadline, vec![step]).await?;
    found
        .into_iter()
        .map(|replies| {
            let reply = replies.and_then(|replies| replies.into_iter().next());
            reply.map(&parse).transpose()
        })
        .collect()
}

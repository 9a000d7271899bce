//! The risks of these nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::nodes::{Answers, Nodes, Question, answered};
use crate::backend::facts::{self, Properties, Rule, with};
use crate::backend::redis::client::{Answer, Client};
use crate::backend::redis::examine::{RISKS_OF_A_SERVER, properties};
use crate::backend::redis::script::Call;
use crate::backend::{Examination, Risk};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// The known facts about all nodes together.
struct Facts {
    /// How long a restarted node does not vote, in seconds.
    max_ttl: u64,
    open_password: Option<String>,
}

/// The known facts about one node.
#[derive(Debug)]
struct NodeFacts {
    place: String,
    /// The reply to INFO; `None` if the node did not answer.
    info: Option<Properties>,
    max_ttl: u64,
}

impl NodeFacts {
    /// Returns how long the node has been running, if that is too short for it to vote.
    fn uptime(&self) -> Option<u64> {
        self.info.as_ref()?.number("uptime_in_seconds").filter(|uptime| *uptime < self.max_ttl)
    }

    fn risks(&self) -> Vec<Risk> {
        let of_any = self.info.iter().flat_map(|info| facts::risks(RISKS_OF_A_SERVER, info));
        let of_any = of_any.map(|risk| Risk { what: format!("{}: {}", self.place, risk.what), ..risk });
        of_any.chain(facts::risks(RISKS_OF_A_NODE, self)).collect()
    }
}

const RISKS: &[Rule<Facts>] = &[
    Rule::always(
        "Redlock depends on clocks: a node whose wall clock jumps ends a lock early or late, and with \
         a majority of such nodes two may hold it",
    ),
    Rule::always(
        "tokens rise as long as a majority of nodes keeps its data; when more lose it at once they may go backwards",
    ),
    Rule::backup(|_| with("as long as a majority of the nodes keeps its data, tokens keep rising")),
    Rule::note(
        |f| with(f.max_ttl.to_string()),
        "a node that was restarted does not vote for {0} s (--max-ttl), which must be the same for all users of a \
         lock, like the list of nodes",
    ),
    Rule::always(
        "there is no queue: the first waiter to ask once the lock is free gets it, and status shows no waiters",
    ),
    Rule::open_password(|f| with(f.open_password.as_ref()?), "use rediss:// and enable TLS on the nodes"),
];

const RISKS_OF_A_NODE: &[Rule<NodeFacts>] = &[
    Rule::warning(
        |f| f.info.is_none().then(|| vec![f.place.clone()]),
        "{0} did not answer: one node less may fail",
        "start it again, or find out why it cannot be reached",
    ),
    Rule::warning(
        |f| (f.info.as_ref()?.number("connected_slaves")? > 0).then(|| vec![f.place.clone()]),
        "{0} has replicas: should one take its place, it may have forgotten a lock",
        "run the nodes of a Redlock without replicas and without failover",
    ),
    Rule::warning(
        |f| Some(vec![f.place.clone(), f.uptime()?.to_string(), f.max_ttl.to_string()]),
        "{0} was restarted {1} s ago and does not vote yet",
        "wait until it has run for {2} s",
    ),
];

pub(super) async fn examine(nodes: &Nodes, deadline: Moment) -> FaultResult<Examination> {
    let info = [Call::command(["INFO"])];
    let asked = nodes.all.iter().map(|node| node.call(None, deadline, Patience::Once, &info));
    let answers: Answers<_> = join_all(asked).await.into_iter().map(Some).collect();
    nodes.refuse_too_few(answered(&answers).count(), &answers)?;
    let begun = nodes.clock.now();
    nodes.majority_of(Question::by(deadline), vec![Call::command(["PING"])]).await?;
    let round_trip = nodes.clock.now().since(begun);
    let max_ttl = nodes.max_ttl.as_secs();
    let facts = |(node, answer): (&Arc<Client>, Option<FaultResult<Answer>>)| NodeFacts {
        place: node.config.identity(),
        info: answer.and_then(FaultResult::ok).and_then(|answer| answer.replies.first().map(properties)),
        max_ttl,
    };
    let each: Vec<NodeFacts> = nodes.all.iter().zip(answers).map(facts).collect();
    let version = |facts: &NodeFacts| Some(facts.info.as_ref()?.text("redis_version")?.to_owned());
    let versions: BTreeSet<String> = each.iter().filter_map(version).collect();
    let open_password = nodes.all.iter().find_map(|node| node.config.open_password());
    let mut risks = facts::risks(RISKS, &Facts { max_ttl, open_password });
    risks.extend(each.iter().flat_map(NodeFacts::risks));
    Ok(Examination {
        server: format!(
            "Redlock on {} Redis {}",
            each.len(),
            versions.into_iter().collect::<Vec<_>>().join(", ")
        ),
        reached: each.iter().map(|facts| facts.place.as_str()).collect::<Vec<_>>().join(","),
        round_trip,
        risks,
    })
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;
    use crate::backend::Weight;

    fn warnings(info: Option<&str>) -> Vec<String> {
        let info = info.map(|info| properties(&Value::SimpleString(info.to_owned())));
        let facts = NodeFacts { place: "here".to_owned(), info, max_ttl: 60 };
        facts
            .risks()
            .into_iter()
            .filter(|risk| risk.weight == Weight::Warning)
            .map(|risk| risk.what)
            .collect()
    }

    #[test]
    fn each_risk_is_named_and_a_sound_node_has_none() {
        let sound = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n\
                     uptime_in_seconds:600\r\n";
        assert_eq!(warnings(Some(sound)), Vec::<String>::new());
        for (from, to, part) in [
            ("7.0.15", "5.0.9", "older than 6.2"),
            ("policy:noeviction", "policy:allkeys-lru\r\nmaxmemory:1", "here: maxmemory-policy"),
            ("role:master", "role:slave", "is a replica"),
            ("slaves:0", "slaves:2", "has replicas"),
            ("seconds:600", "seconds:6", "does not vote yet"),
        ] {
            let found = warnings(Some(&sound.replace(from, to)));
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
        assert!(warnings(None)[0].contains("did not answer"));
    }
}

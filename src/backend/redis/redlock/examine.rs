//! The risks of these nodes.

use std::time::Duration;

use futures_util::future::join_all;

use super::nodes::{Answers, Nodes, Question, answered};
use crate::backend::facts::{self, Properties, Rule, with};
use crate::backend::redis::examine::{RISKS_OF_A_SERVER, properties};
use crate::backend::redis::script::Call;
use crate::backend::{Examination, Risk, Weight};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// The risks of all nodes together. The fact is the place to which the password is sent unencrypted.
const RISKS: &[Rule<Option<String>>] = &[
    Rule::always(
        "Redlock depends on clocks: a node whose wall clock jumps ends a lock early or late, and with \
         a majority of such nodes two may hold it",
    ),
    Rule::always(
        "tokens rise as long as a majority of nodes keeps its data; when more lose it at once they may go backwards",
    ),
    Rule::backup(|_| with("as long as a majority of the nodes keeps its data, tokens keep rising")),
    Rule::always(
        "a node that was restarted does not vote for the length of --max-ttl, which must be the same for all users of a \
         lock, like the list of nodes",
    ),
    Rule::always(
        "there is no queue: the first waiter to ask once the lock is free gets it, and status shows no waiters",
    ),
    Rule::open_password(|place| with(place.as_ref()?), "use rediss:// and enable TLS on the nodes"),
];

/// Returns the risks of the node at `place`, from its reply to INFO; `None` if it did not answer.
fn risks_of(place: &str, info: Option<&Properties>, max_ttl: Duration) -> Vec<Risk> {
    let warning = |what: String, remedy: String| Risk { weight: Weight::Warning, what, remedy: Some(remedy) };
    let Some(info) = info else {
        let what = format!("{place} did not answer: one node less may fail");
        return vec![warning(what, "start it again, or find out why it cannot be reached".to_owned())];
    };
    let of_any = facts::risks(RISKS_OF_A_SERVER, info).into_iter();
    let mut risks: Vec<Risk> =
        of_any.map(|risk| Risk { what: format!("{place}: {}", risk.what), ..risk }).collect();
    if info.number("connected_slaves").is_some_and(|replicas| replicas > 0) {
        let what = format!("{place} has replicas: should one take its place, it may have forgotten a lock");
        let remedy = "run the nodes of a Redlock without replicas and without failover";
        risks.push(warning(what, remedy.to_owned()));
    }
    let max_ttl = max_ttl.as_secs();
    if let Some(uptime) = info.number("uptime_in_seconds").filter(|uptime| *uptime < max_ttl) {
        let what = format!("{place} was restarted {uptime} s ago and does not vote yet");
        risks.push(warning(what, format!("wait until it has run for {max_ttl} s")));
    }
    risks
}

pub(super) async fn examine(nodes: &Nodes, deadline: Moment) -> FaultResult<Examination> {
    let info = [Call::command(["INFO"])];
    let asked = nodes.all.iter().map(|node| node.call(deadline, Patience::Once, &info));
    let answers: Answers<_> = join_all(asked).await;
    nodes.refuse_too_few(answered(&answers).count(), &answers)?;
    let begun = nodes.clock.now();
    nodes.majority_of(Question::by(deadline), vec![Call::command(["PING"])]).await?;
    let round_trip = nodes.clock.now().since(begun);
    let mut risks = facts::risks(RISKS, &nodes.all.iter().find_map(|node| node.config.open_password()));
    let (mut places, mut version) = (Vec::new(), None);
    for (node, answer) in nodes.all.iter().zip(answers) {
        let place = node.config.identity();
        let info = answer.ok().and_then(|answer| answer.replies.first().map(properties));
        risks.extend(risks_of(&place, info.as_ref(), nodes.max_ttl));
        version = version.or(info.and_then(|info| info.text("redis_version").map(str::to_owned)));
        places.push(place);
    }
    let version = version.unwrap_or_else(|| "of unknown version".to_owned());
    Ok(Examination {
        server: format!("Redlock on {} Redis {version}", places.len()),
        reached: places.join(","),
        round_trip,
        risks,
    })
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn warnings(info: Option<&str>) -> Vec<String> {
        let info = info.map(|info| properties(&Value::SimpleString(info.to_owned())));
        let risks = risks_of("here", info.as_ref(), Duration::from_secs(60)).into_iter();
        risks.filter(|risk| risk.weight == Weight::Warning).map(|risk| risk.what).collect()
    }

    #[test]
    fn each_risk_is_named_and_a_sound_node_has_none() {
        let sound = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n\
                     uptime_in_seconds:600\r\n";
        assert_eq!(warnings(Some(sound)), Vec::<String>::new());
        for (from, to, part) in [
            ("7.0.15", "5.0.9", "older than 6.2"),
            ("policy:noeviction", "policy:allkeys-lru\r\nmaxmemory:1", "here: maxmemory-policy"),
            ("slaves:0", "slaves:2", "has replicas"),
            ("seconds:600", "seconds:6", "does not vote yet"),
        ] {
            let found = warnings(Some(&sound.replace(from, to)));
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
        assert!(warnings(None)[0].contains("did not answer"));
    }
}

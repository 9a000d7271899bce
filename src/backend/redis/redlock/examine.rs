//! What can go wrong with these nodes.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use super::nodes::{Answer, Nodes};
use crate::backend::redis::dial::text;
use crate::backend::redis::examine::{LEAST, facts, older};
use crate::backend::redis::script::Step;
use crate::backend::{Examination, Risk};
use crate::lock::Moment;
use crate::net::fault::FaultResult;

pub(super) async fn examine(nodes: &Nodes, deadline: Moment) -> FaultResult<Examination> {
    let answers = nodes.answers(Duration::from_secs(1), deadline, vec![Step::command(["INFO"])]).await;
    nodes.refuse_too_few(&answers)?;
    let begun = nodes.clock.now();
    nodes.answers(Duration::ZERO, deadline, vec![Step::command(["PING"])]).await;
    let round_trip = nodes.clock.now().since(begun);
    let info = |answer: &Option<FaultResult<Answer>>| match answer {
        Some(Ok(answer)) => answer.replies.first().map(parsed),
        _ => None,
    };
    let infos: Vec<Option<HashMap<String, String>>> = answers.iter().map(info).collect();
    let places: Vec<String> = nodes.all.iter().map(|node| node.service.config.identity()).collect();
    let version = |facts: &HashMap<String, String>| facts.get("redis_version").cloned();
    let mut versions: Vec<String> = infos.iter().flatten().filter_map(version).collect();
    versions.sort();
    versions.dedup();
    let mut risks = risks(&places, &infos, nodes.max_ttl.as_secs());
    let mut open = nodes.all.iter().filter_map(|node| node.service.config.open_password());
    if let Some(open) = open.next() {
        risks.push(Risk::of_open_password(&open, "use rediss:// and enable TLS on the nodes"));
    }
    Ok(Examination {
        server: format!("Redlock on {} Redis {}", nodes.all.len(), versions.join(", ")),
        reached: places.join(","),
        round_trip,
        risks,
    })
}

fn parsed(reply: &Value) -> HashMap<String, String> {
    match reply {
        Value::VerbatimString { text, .. } => facts(text),
        reply => facts(&text(reply).unwrap_or_default()),
    }
}

/// What one should know, by node; `None` is a node that did not answer.
fn risks(places: &[String], infos: &[Option<HashMap<String, String>>], max_ttl: u64) -> Vec<Risk> {
    let mut risks = vec![
        Risk::note(
            "Redlock promises no more than clocks do: a node whose wall clock jumps ends a lock early or late, and with \
             a majority of such nodes two may hold it",
        ),
        Risk::note(
            "tokens rise as long as a majority of nodes keeps its data; when more lose it at once they may go backwards",
        ),
        Risk::of_backup("as long as a majority of the nodes keeps its data, tokens go on rising"),
        Risk::note(format!(
            "a node that was restarted does not vote for {max_ttl} s (--max-ttl), which must be the same for all users of \
             a lock, like the list of nodes"
        )),
        Risk::note(
            "there is no queue: of those who wait, whoever asks first once the lock is free gets it, and status shows none of them",
        ),
    ];
    for (place, info) in places.iter().zip(infos) {
        let Some(info) = info else {
            let what = format!("{place} did not answer: one node less may fail");
            risks.push(Risk::warning(what, "start it again, or find out why it cannot be reached"));
            continue;
        };
        let fact = |name: &str| info.get(name).map(String::as_str);
        let number = |name: &str| fact(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        if let Some(version) = fact("redis_version").filter(|version| older(version)) {
            risks.push(Risk::warning(
                format!(
                    "{place} is {version}, older than {}.{}, the oldest that dlock supports",
                    LEAST.0, LEAST.1
                ),
                "upgrade the server",
            ));
        }
        if let Some(policy) = fact("maxmemory_policy").filter(|policy| *policy != "noeviction")
            && number("maxmemory") > 0
        {
            risks.push(Risk::warning(
                format!(
                    "{place} may drop locks that are held under memory pressure (maxmemory-policy {policy})"
                ),
                "set maxmemory-policy noeviction, or use servers of their own for locks",
            ));
        }
        if fact("role").is_some_and(|role| role != "master") {
            risks.push(Risk::warning(
                format!("{place} is a replica and takes no locks"),
                "name independent masters only",
            ));
        }
        if number("connected_slaves") > 0 {
            risks.push(Risk::warning(
                format!("{place} has replicas: should one take its place, it may have forgotten a lock"),
                "run the nodes of a Redlock without replicas and without failover",
            ));
        }
        if number("uptime_in_seconds") < max_ttl {
            risks.push(Risk::warning(
                format!("{place} was restarted {} s ago and does not vote yet", number("uptime_in_seconds")),
                format!("wait until it has run for {max_ttl} s"),
            ));
        }
    }
    risks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Weight;

    fn warnings(info: Option<&str>) -> Vec<String> {
        let risks = risks(&["here".to_owned()], &[info.map(facts)], 60);
        risks.into_iter().filter(|risk| risk.weight == Weight::Warning).map(|risk| risk.what).collect()
    }

    #[test]
    fn each_risk_is_named_and_a_sound_node_has_none() {
        let sound = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n\
                     uptime_in_seconds:600\r\n";
        assert_eq!(warnings(Some(sound)), Vec::<String>::new());
        for (from, to, part) in [
            ("7.0.15", "5.0.9", "older than 6.2"),
            ("policy:noeviction", "policy:allkeys-lru\r\nmaxmemory:1", "may drop locks"),
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

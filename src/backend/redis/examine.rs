//! What can go wrong with this service.

use std::collections::HashMap;

use redis::Value;

use super::config::Topology;
use super::connection::Connection;
use super::dial::text;
use super::fault;
use super::script::Step;
use super::service::{Patience, Service};
use crate::backend::{Examination, Risk};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::net::tls::stays_here_at;

/// The first version with everything that is used.
pub(super) const LEAST: (u32, u32) = (6, 2);

pub(super) async fn examine(service: &Service, deadline: Moment) -> FaultResult<Examination> {
    let ask = |words: &'static [&'static str]| {
        service.call(None, deadline, Patience::Once, move |_: &Connection| {
            vec![Step::Command(words.iter().map(|word| (*word).to_owned()).collect())]
        })
    };
    let info = ask(&["INFO"]).await?;
    let begun = service.clock.now();
    let ping = ask(&["PING"]).await?;
    let round_trip = service.clock.now().since(begun);
    if let Some(Value::ServerError(error)) = ping.replies.first() {
        return Err(fault::of(error));
    }
    let (facts, denied) = match info.replies.first() {
        Some(Value::ServerError(error)) if error.code() == "NOPERM" => (HashMap::new(), true),
        Some(Value::ServerError(error)) => return Err(fault::of(error)),
        Some(Value::VerbatimString { text, .. }) => (facts(text), false),
        Some(reply) => (facts(&text(reply).unwrap_or_default()), false),
        None => return Err(fault::nonsense("no reply")),
    };
    let mut risks = risks(&facts, &service.config.topology);
    // Where the master or the nodes of a cluster are, sentinels and other nodes tell.
    let peer = Some(info.connection.peer()).filter(|peer| {
        let is_said = service.config.password.is_some() && service.config.tls.is_none();
        is_said && !matches!(service.config.topology, Topology::Socket(_)) && !stays_here_at(peer)
    });
    if let Some(open) = service.config.open_password().or_else(|| peer.map(str::to_owned)) {
        risks.push(Risk::of_open_password(&open, "use rediss:// and enable TLS on the server"));
    }
    if denied {
        risks.push(Risk::warning(
            "this user may not ask how the server is set up (INFO), so risks of its configuration stay unknown",
            "allow it with ACL SETUSER ... +info",
        ));
    }
    // A user without this right finds out here and not by slow hand-overs.
    let tells = ask(&["CLIENT", "TRACKING", "OFF"]).await?;
    if matches!(tells.replies.first(), Some(Value::ServerError(_))) {
        risks.push(Risk::warning(
            "the server, or a proxy before it, does not report changed keys (CLIENT TRACKING), so waiters look every 500 ms",
            "allow it with ACL SETUSER ... +client|tracking +client|caching +hello, or connect without the proxy",
        ));
    }
    let version = facts.get("redis_version").map_or("of unknown version", String::as_str);
    let server = if facts.contains_key("valkey_version") { "Redis (Valkey)" } else { "Redis" };
    Ok(Examination {
        server: format!("{server} {version}"),
        reached: info.connection.peer().to_owned(),
        round_trip,
        risks,
    })
}

/// The `name:value` lines of INFO.
pub(super) fn facts(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn risks(facts: &HashMap<String, String>, topology: &Topology) -> Vec<Risk> {
    let fact = |name: &str| facts.get(name).map(String::as_str);
    let number = |name: &str| fact(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let mut risks = vec![
        Risk::note(
            "tokens live in this server's memory: they may go backwards if it loses its data or fails over",
        ),
        Risk::of_backup("they go on from the server's clock, and fall if that is behind"),
        Risk::note("a lock ends by this server's wall clock: a jump of that clock ends it early or late"),
    ];
    if let Some(version) = fact("redis_version").filter(|version| older(version)) {
        risks.push(Risk::warning(
            format!(
                "version {version} is older than {}.{}, the oldest that dlock supports",
                LEAST.0, LEAST.1
            ),
            "upgrade the server",
        ));
    }
    if let Some(policy) = fact("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        let limited = number("maxmemory") > 0;
        let what = format!(
            "maxmemory-policy is {policy}: under memory pressure the server may drop locks that are held"
        );
        let remedy = "set maxmemory-policy noeviction, or use a Redis of its own for locks";
        risks.push(if limited {
            Risk::warning(what, remedy)
        } else {
            Risk::note(format!("{what} (no maxmemory is set)"))
        });
    }
    if fact("role").is_some_and(|role| role != "master") {
        risks.push(Risk::warning(
            "this server is a replica and takes no locks",
            "use the address of its master",
        ));
    }
    let elsewhere = matches!(topology, Topology::Sentinel { .. } | Topology::Cluster(_));
    if number("connected_slaves") > 0 || elsewhere {
        risks.push(Risk::warning(
            "replicas follow later: a failover can lose a lock that was given, and give it a second time",
            "where two at once would do damage use etcd or zk, or let the guarded resource check DLOCK_TOKEN",
        ));
    }
    if fact("aof_enabled") == Some("0") {
        let what = if number("rdb_last_save_time") > 0 && number("rdb_changes_since_last_save") == 0 {
            "the append-only file is off: a restart goes back to the last snapshot, without the locks taken since"
        } else {
            "nothing is written at once (appendonly no): a restart forgets the locks that are held"
        };
        risks.push(Risk::warning(what, "set appendonly yes"));
    }
    risks
}

pub(super) fn older(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < LEAST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Weight;
    use crate::net::address::HostPort;

    fn warnings(info: &str) -> Vec<String> {
        let topology = Topology::Server(HostPort { host: "h".into(), port: 1 });
        let risks = risks(&facts(info), &topology);
        risks.into_iter().filter(|risk| risk.weight == Weight::Warning).map(|risk| risk.what).collect()
    }

    #[test]
    fn each_risk_is_named_and_a_sound_server_has_none() {
        let sound = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert_eq!(warnings(sound), Vec::<String>::new());
        for (from, to, part) in [
            ("7.0.15", "5.0.9", "older than 6.2"),
            ("policy:noeviction", "policy:allkeys-lru\r\nmaxmemory:1", "may drop locks"),
            ("role:master", "role:slave", "is a replica"),
            ("slaves:0", "slaves:2", "failover"),
            ("aof_enabled:1", "aof_enabled:0", "restart"),
        ] {
            let found = warnings(&sound.replace(from, to));
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
    }
}

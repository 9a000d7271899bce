//! What can go wrong with this service.

use redis::Value;

use super::client::Client;
use super::config::Topology;
use super::connection::Connection;
use super::dial::text;
use super::fault;
use super::script::Call;
use crate::backend::Examination;
use crate::backend::facts::{Properties, Rule, risks, version, when, with};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::net::request::Patience;
use crate::net::tls::stays_here_at;

/// What is known of the server.
#[derive(Debug, Default)]
struct Facts {
    /// What it says to INFO.
    info: Properties,
    /// Whether this user may not ask for that.
    is_secretive: bool,
    /// Whether it tells of changed keys.
    notifies: bool,
    /// Whether a sentinel or a cluster may put another server in its place.
    fails_over: bool,
    open_password: Option<String>,
    /// Why not every node of a cluster can be asked.
    incomplete: Option<String>,
}

const RISKS: &[Rule<Facts>] = &[
    Rule::always(
        "tokens live in this server's memory: they may go backwards if it loses its data or fails over",
    ),
    Rule::backup(|_| with("they go on from the server's clock, and fall if that is behind")),
    Rule::always("a lock ends by this server's wall clock: a jump of that clock ends it early or late"),
    Rule::warning(
        |f| with(too_old(&f.info)?),
        "version {0} is older than 6.2, the oldest that dlock supports",
        "upgrade the server",
    ),
    Rule::warning(
        |f| with(evicting(&f.info).filter(|_| f.info.number("maxmemory").is_some_and(|bytes| bytes > 0))?),
        "maxmemory-policy is {0}: under memory pressure the server may drop locks that are held",
        "set maxmemory-policy noeviction, or use a Redis of its own for locks",
    ),
    Rule::note(
        |f| with(evicting(&f.info).filter(|_| f.info.number("maxmemory") == Some(0))?),
        "maxmemory-policy is {0}: under memory pressure the server may drop locks that are held (no maxmemory is set)",
    ),
    Rule::warning(
        |f| when(!f.info.is("role", "master")?),
        "this server is a replica and takes no locks",
        "use the address of its master",
    ),
    Rule::warning(
        |f| with(f.incomplete.as_ref()?),
        "not every node of the cluster can be asked: {0}",
        "see \"dlock man redis\" for the addresses of a cluster's nodes",
    ),
    Rule::warning(
        |f| when(f.fails_over || f.info.number("connected_slaves")? > 0),
        "replicas follow later: a failover can lose a lock that was given, and give it a second time",
        "where two at once would do damage use etcd or zk, or let the guarded resource check DLOCK_TOKEN",
    ),
    Rule::warning(
        |f| when(f.info.is("aof_enabled", "0")?),
        "the append-only file is off: a restart forgets the locks that were taken since the last snapshot",
        "set appendonly yes",
    ),
    Rule::open_password(|f| with(f.open_password.as_ref()?), "use rediss:// and enable TLS on the server"),
    Rule::warning(
        |f| when(f.is_secretive),
        "this user may not ask how the server is set up (INFO), so risks of its configuration stay unknown",
        "allow it with ACL SETUSER ... +info",
    ),
    Rule::warning(
        |f| when(!f.notifies),
        "the server, or a proxy before it, does not report changed keys (CLIENT TRACKING), so waiters look every 500 ms",
        "allow it with ACL SETUSER ... +client|tracking +client|caching +hello, or connect without the proxy",
    ),
];

pub(super) async fn examine(service: &Client, deadline: Moment) -> FaultResult<Examination> {
    let ask = |words: &'static [&'static str]| {
        service.call(None, deadline, Patience::Once, move |_: &Connection| {
            vec![Call::Command(words.iter().map(|word| (*word).to_owned()).collect())]
        })
    };
    let answer = ask(&["INFO"]).await?;
    let begun = service.clock.now();
    let ping = ask(&["PING"]).await?;
    let round_trip = service.clock.now().since(begun);
    if let Some(Value::ServerError(error)) = ping.replies.first() {
        return Err(fault::of(error));
    }
    let (info, is_secretive) = match answer.replies.first() {
        Some(Value::ServerError(error)) if error.code() == "NOPERM" => (Properties::default(), true),
        Some(Value::ServerError(error)) => return Err(fault::of(error)),
        Some(reply) => (properties(reply), false),
        None => return Err(fault::nonsense("no reply")),
    };
    // A user without this right finds out here and not by slow hand-overs.
    let tracking = ask(&["CLIENT", "TRACKING", "OFF"]).await?;
    let (config, peer) = (&service.config, answer.connection.peer());
    // Where the master or the nodes of a cluster are, sentinels and other nodes tell.
    let is_open = config.password.is_some()
        && config.tls.is_none()
        && !matches!(config.topology, Topology::Socket(_))
        && !stays_here_at(peer);
    let facts = Facts {
        is_secretive,
        notifies: !matches!(tracking.replies.first(), Some(Value::ServerError(_))),
        fails_over: matches!(config.topology, Topology::Sentinel { .. } | Topology::Cluster(_)),
        open_password: config.open_password().or_else(|| is_open.then(|| peer.to_owned())),
        incomplete: service.all_nodes(deadline).await.err().map(|fault| fault.reason.to_string()),
        info,
    };
    let server = if facts.info.text("valkey_version").is_some() { "Redis (Valkey)" } else { "Redis" };
    let version = facts.info.text("redis_version").unwrap_or("of unknown version");
    Ok(Examination {
        server: format!("{server} {version}"),
        reached: peer.to_owned(),
        round_trip,
        risks: risks(RISKS, &facts),
    })
}

/// What a server says to INFO.
pub(super) fn properties(reply: &Value) -> Properties {
    let text = match reply {
        Value::VerbatimString { text, .. } => text.clone(),
        reply => text(reply).unwrap_or_default(),
    };
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// The version of a server that lacks something that is used.
pub(super) fn too_old(info: &Properties) -> Option<&str> {
    info.text("redis_version").filter(|text| version(text).is_some_and(|known| known < [6, 2, 0]))
}

/// By what policy a server drops keys that it was not told to drop.
pub(super) fn evicting(info: &Properties) -> Option<&str> {
    info.text("maxmemory_policy").filter(|policy| *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing;

    fn warnings(info: &str) -> Vec<String> {
        let info = properties(&Value::SimpleString(info.to_owned()));
        testing::warnings(RISKS, &Facts { info, notifies: true, ..Facts::default() })
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

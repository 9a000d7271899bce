//! The risks of this service.

use redis::Value;

use super::client::{Client, OPTIN, To};
use super::config::Topology;
use super::connection::Connection;
use super::dial::text;
use super::fault;
use super::keys::Naming;
use super::script::Call;
use crate::backend::Examination;
use crate::backend::facts::{Properties, Rule, risks, version, when, with};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::net::request::Patience;
use crate::net::tls::stays_here_at;

/// The known facts about the server.
#[derive(Debug, Default)]
struct Facts {
    /// The reply to INFO.
    info: Properties,
    /// Whether INFO is denied to this user.
    is_secretive: bool,
    /// Whether it reports changed keys.
    notifies: bool,
    /// Whether a sentinel or a cluster may fail over to another server.
    fails_over: bool,
    open_password: Option<String>,
    /// Why some nodes of a cluster cannot be asked.
    incomplete: Option<String>,
    /// The commands that it lacks, or denies to this user.
    missing: Option<Vec<String>>,
    /// The number of keys in the database, if most of those checked are not dlock's.
    shared_with: Option<u64>,
}

/// The number of other keys from which the database counts as shared.
const MANY: usize = 100;

/// The commands that scripts need, each with arguments for an absent key. The last one removes what the others create.
const NEEDED: [&str; 20] = [
    "TIME",
    "GET,KEY",
    "SET,KEY,-,XX",
    "DUMP,KEY",
    "EXISTS,KEY",
    "PTTL,KEY",
    "PEXPIRE,KEY,1",
    "HEXISTS,KEY,-",
    "HGET,KEY,-",
    "HMGET,KEY,-",
    "ZADD,KEY,XX,1,-",
    "ZRANGE,KEY,0,0",
    "ZRANGEBYSCORE,KEY,0,0",
    "ZREVRANGEBYSCORE,KEY,0,0",
    "ZSCORE,KEY,-",
    "ZRANK,KEY,-",
    "ZREM,KEY,-",
    "HSET,KEY,-,-",
    "HSETNX,KEY,-,-",
    "DEL,KEY",
];

/// Tries each command from a script, as dlock does, because a proxy need not know those. Returns the refused ones.
const PROBE: &str = r#"
if redis.replicate_commands then redis.replicate_commands() end
local missing = {}
for _, probe in ipairs(ARGV) do
  local words = {}
  for word in probe:gmatch("[^,]+") do
    table.insert(words, word == "KEY" and KEYS[1] or word)
  end
  local reply = redis.pcall(unpack(words))
  local refusal = type(reply) == "table" and reply.err or ""
  if refusal:find("Unknown Redis command", 1, true) or refusal:find("can't run this command", 1, true) then
    table.insert(missing, words[1])
  end
end
return missing
"#;

const RISKS: &[Rule<Facts>] = &[
    Rule::always(
        "tokens live in this server's memory: they may go backwards if it loses its data or fails over",
    ),
    Rule::backup(|_| with("they restart from the server's clock, and fall if that is behind")),
    Rule::always("leases follow this server's wall clock: a jump of it can expire them early or late"),
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
        |f| with(f.missing.as_ref().filter(|missing| !missing.is_empty())?.join(", ")),
        "the server, or a proxy before it, does not let this user use {0}",
        "allow it with ACL SETUSER, or rename nothing that dlock needs (\"dlock man redis\")",
    ),
    Rule::warning(
        |f| with(f.shared_with?.to_string()),
        "the database has {0} keys, and most of them are not dlock's: a FLUSHDB or FLUSHALL of their owner ends every hold",
        "use a Redis of its own for locks, or at least another database",
    ),
    Rule::warning(
        |f| with(f.incomplete.as_ref()?),
        "not every node of the cluster can be asked: {0}",
        "see \"dlock man redis\" for the addresses of a cluster's nodes",
    ),
    Rule::warning(
        |f| when(f.fails_over || f.info.number("connected_slaves")? > 0),
        "replicas follow later: a failover can lose a lock that was given, and give it a second time",
        "if two holders at once would do damage, use etcd or zk, or let the guarded resource check DLOCK_TOKEN",
    ),
    Rule::warning(
        |f| when(f.info.is("aof_enabled", "0")?),
        "the append-only file is off: a restart forgets the locks that were taken since the last snapshot",
        "set appendonly yes",
    ),
    Rule::open_password(|f| with(f.open_password.as_ref()?), "use rediss:// and enable TLS on the server"),
    Rule::warning(
        |f| when(f.is_secretive),
        "the server does not show this user its configuration (INFO), so risks of its configuration stay unknown",
        "allow it with ACL SETUSER ... +info, or connect without the proxy",
    ),
    Rule::warning(
        |f| when(!f.notifies),
        "the server, or a proxy before it, does not report changed keys (HELLO 3, CLIENT TRACKING), so waiters poll every 500 ms",
        "allow it with ACL SETUSER ... +client|tracking +client|caching +hello, or connect without the proxy",
    ),
];

pub(super) async fn examine(service: &Client, deadline: Moment) -> FaultResult<Examination> {
    let info = reply(service, None, deadline, Call::command(["INFO"])).await?;
    let begun = service.clock.now();
    reply(service, None, deadline, Call::command(["PING"])).await?;
    let round_trip = service.clock.now().since(begun);
    // A missing right shows here, and not only as slow hand-overs.
    let listening = |connection: &Connection| {
        let mut steps = service.listening(connection, OPTIN);
        if !steps.is_empty() {
            steps.push(Call::command(["CLIENT", "CACHING", "YES"]));
        }
        steps
    };
    let answer = service.call(None, deadline, Patience::Once, listening).await?;
    let [hello, tracking, caching] = [0, 1, 2].map(|n| answer.replies.get(n));
    answer.connection.answered(hello, tracking);
    let (config, peer) = (&service.config, answer.connection.peer());
    // Sentinels and nodes report the addresses of masters and other nodes, so the actual peer counts.
    let is_open = config.password.is_some()
        && config.tls.is_none()
        && !matches!(config.topology, Topology::Socket(_))
        && !stays_here_at(peer);
    let is_secretive = info.is_none();
    let info = info.as_ref().map(properties).unwrap_or_default();
    let facts = Facts {
        is_secretive,
        notifies: answer.connection.tells() && caching == Some(&Value::Okay),
        fails_over: matches!(config.topology, Topology::Sentinel { .. } | Topology::Cluster(_)),
        open_password: config.open_password().or_else(|| is_open.then(|| peer.to_owned())),
        missing: missing(service, deadline).await.ok(),
        shared_with: shared_with(service, &info, deadline).await,
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

/// Returns the missing commands.
async fn missing(service: &Client, deadline: Moment) -> FaultResult<Vec<String>> {
    let naming = Naming { prefix: service.config.prefix.clone(), group: "" };
    let keys =
        naming.of(&format!("dlock-doctor-{}", std::process::id()).parse().map_err(fault::nonsense)?)?;
    let key = keys.counters();
    let probe = ["EVAL", PROBE, "1", &key].into_iter().chain(NEEDED).map(str::to_owned).collect();
    let mut missing = match reply(service, Some(keys.slot), deadline, Call::Command(probe)).await? {
        None => vec!["EVAL".to_owned()],
        Some(Value::Array(missing)) => missing.iter().filter_map(text).collect(),
        Some(_) => return Err(fault::nonsense("no list of commands")),
    };
    let scan = Call::command(["SCAN", "0", "COUNT", "1"]);
    if reply(service, None, deadline, scan).await?.is_none() {
        missing.push("SCAN".to_owned());
    }
    Ok(missing)
}

/// Returns the reply to `step`; `None` if the server, or a proxy before it, lacks the command or denies it to this
/// user. The step is sent alone, because a proxy may close the connection at an unknown command.
async fn reply(
    service: &Client,
    slot: Option<u16>,
    deadline: Moment,
    step: Call,
) -> FaultResult<Option<Value>> {
    let steps = move |_: &Connection| vec![step.clone()];
    match service.call(slot, deadline, Patience::Once, steps).await {
        Err(fault) if fault.code == fault::HUNG_UP && service.link.has_connected() => Ok(None),
        Err(fault) => Err(fault),
        Ok(mut answer) => match answer.replies.pop() {
            Some(Value::ServerError(error)) if fault::is_missing(&error, "") => Ok(None),
            Some(Value::ServerError(error)) => Err(fault::of(&error)),
            reply => Ok(reply),
        },
    }
}

/// Returns the number of keys in the database, if many of the first ones belong to other programs.
async fn shared_with(service: &Client, info: &Properties, deadline: Moment) -> Option<u64> {
    let prefix = service.config.prefix.as_deref().unwrap_or("dlock:");
    let scan = Call::command(["SCAN", "0", "COUNT", "1000"]);
    let reply = service.one(To::Slot(None), deadline, Patience::Once, scan).await.ok()?;
    let Value::Array(parts) = reply else { return None };
    let Some(Value::Array(keys)) = parts.get(1) else { return None };
    let is_own = |key: &String| key.starts_with(prefix) || key.contains(":dlock:");
    let others = keys.iter().filter_map(text).filter(|key| !is_own(key)).count();
    let all = info.text(&format!("db{}", service.config.database))?;
    let all = all.strip_prefix("keys=")?.split(',').next()?.parse().ok()?;
    (others >= MANY && others * 2 > keys.len()).then_some(all)
}

/// Parses the reply to INFO.
pub(super) fn properties(reply: &Value) -> Properties {
    let text = match reply {
        Value::VerbatimString { text, .. } => text.clone(),
        reply => text(reply).unwrap_or_default(),
    };
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Returns the version of a server that is too old.
pub(super) fn too_old(info: &Properties) -> Option<&str> {
    info.text("redis_version").filter(|text| version(text).is_some_and(|known| known < [6, 2, 0]))
}

/// Returns the policy by which a server evicts keys, if it does.
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

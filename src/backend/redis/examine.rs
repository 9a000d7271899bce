//! The risks of this service.

use redis::Value;

use super::client::Client;
use super::dial::text;
use super::script::Call;
use super::watch::{self, OPTIN};
use crate::backend::Examination;
use crate::backend::facts::{Properties, Rule, risks, version, when, with};
use crate::lock::Moment;
use crate::net::fault::FaultResult;
use crate::net::request::Patience;

/// The known facts about the server.
#[derive(Debug, Default)]
struct Facts {
    /// The reply to INFO.
    info: Properties,
    /// Whether INFO is denied to this user.
    is_secretive: bool,
    /// Whether the server reports changed keys.
    notifies: bool,
    /// Whether a sentinel or a cluster may fail over to another server.
    fails_over: bool,
    open_password: Option<String>,
}

/// The risks of one server, from its reply to INFO.
pub(super) const RISKS_OF_A_SERVER: &[Rule<Properties>] = &[
    Rule::warning(
        |info| {
            let text = info.text("redis_version")?;
            with(version(text).filter(|known| *known < [6, 2, 0]).and(Some(text))?)
        },
        "version {0} is older than 6.2, the oldest that dlock supports",
        "upgrade the server",
    ),
    Rule::warning(
        |info| {
            let policy = info.text("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
            with(Some(policy).filter(|_| info.number("maxmemory") > Some(0))?)
        },
        "maxmemory-policy is {0}: under memory pressure the server may drop locks that are held",
        "set maxmemory-policy noeviction, or use a Redis of its own for locks",
    ),
];

const RISKS: &[Rule<Facts>] = &[
    Rule::always(
        "tokens live in this server's memory: they may go backwards if it loses its data or fails over",
    ),
    Rule::backup(|_| with("they restart from the server's clock, and fall if that is behind")),
    Rule::always("leases follow this server's wall clock: a jump of it can expire them early or late"),
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
    let ask = async |step: Call| service.call(deadline, Patience::Once, &[step]).await;
    let info = ask(Call::attempt(["INFO"])).await?.replies;
    let notifies = service.listen(deadline, OPTIN).await?
        && matches!(ask(watch::caching()).await?.replies.first(), Some(Value::Okay));
    let begun = service.clock.now();
    let answer = ask(Call::command(["PING"])).await?;
    let round_trip = service.clock.now().since(begun);
    let facts = Facts {
        notifies,
        is_secretive: matches!(info.first(), Some(Value::ServerError(_))),
        info: info.first().map(properties).unwrap_or_default(),
        fails_over: service.config.fails_over(),
        open_password: service.config.open_password(),
    };
    Ok(Examination {
        server: format!("Redis {}", facts.info.text("redis_version").unwrap_or("of unknown version")),
        reached: answer.connection.pipeline.peer.clone(),
        round_trip,
        risks: [risks(RISKS_OF_A_SERVER, &facts.info), risks(RISKS, &facts)].concat(),
    })
}

/// Parses the reply to INFO.
pub(super) fn properties(reply: &Value) -> Properties {
    let text = text(reply).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing;

    fn warnings(info: &str) -> Vec<String> {
        let info = properties(&Value::SimpleString(info.to_owned()));
        let facts = Facts { info, notifies: true, ..Facts::default() };
        [testing::warnings(RISKS_OF_A_SERVER, &facts.info), testing::warnings(RISKS, &facts)].concat()
    }

    #[test]
    fn each_risk_is_named_and_a_sound_server_has_none() {
        let sound = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert_eq!(warnings(sound), Vec::<String>::new());
        for (from, to, part) in [
            ("7.0.15", "5.0.9", "older than 6.2"),
            ("policy:noeviction", "policy:allkeys-lru\r\nmaxmemory:1", "may drop locks"),
            ("slaves:0", "slaves:2", "failover"),
            ("aof_enabled:1", "aof_enabled:0", "restart"),
        ] {
            let found = warnings(&sound.replace(from, to));
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
    }
}

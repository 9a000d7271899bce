//! The risks of this memcached.

use super::client::{Client, Commands};
use super::fault::nonsense;
use crate::backend::Examination;
use crate::backend::facts::{Properties, Rule, risks, version, with};
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// The known facts about the server.
struct Facts {
    version: String,
    stats: Properties,
    open_password: Option<String>,
}

const RISKS: &[Rule<Facts>] = &[
    Rule::always(
        "memcached keeps nothing over a restart, and may evict an item when its memory is full: the lock can then be \
         given to another while a command still runs, until that one's dlock polls again, within a second",
    ),
    Rule::always(
        "tokens restart from the clock of a client when memcached has forgotten their counter, so they fall if that clock \
         was set back",
    ),
    Rule::always("memcached cannot wake clients: waiters and holders poll every 50 ms to 1 s"),
    Rule::always(
        "any client that can write to this memcached can delete or overwrite a lock, also by an ordinary cache key of the \
         same name",
    ),
    Rule::warning(
        |f| (version(&f.version)? < [1, 5, 0]).then(|| vec![f.version.clone()]),
        "memcached {0} is older than 1.5, the oldest that dlock supports",
        "update memcached",
    ),
    Rule::warning(
        |f| with(f.stats.number("evictions").filter(|evicted| *evicted > 0)?.to_string()),
        "this memcached has evicted {0} items since it was started; locks can be among them",
        "give it more memory (-m), or the locks a memcached of their own",
    ),
    Rule::open_password(
        |f| with(f.open_password.as_ref()?),
        "use memcacheds:// and enable TLS on the server (-Z)",
    ),
];

/// Examines the server.
pub(super) async fn examine(client: &Client, deadline: Moment) -> FaultResult<Examination> {
    let ask = |command: &str| client.call(deadline, Commands::default().line(command, b"", ""));
    // The first exchange includes connecting.
    let [stats] = ask("stats").await?;
    let begun = client.0.clock.now();
    let [said] = ask("version").await?;
    let round_trip = client.0.clock.now().since(begun);
    let said = said.line()?;
    let version = said.strip_prefix("VERSION ").ok_or_else(|| nonsense(&said))?.to_owned();
    let facts = Facts { version, stats: stats.stats(), open_password: client.config().open_password() };
    Ok(Examination {
        server: format!("memcached {}", facts.version),
        reached: client.config().identity(),
        round_trip,
        risks: risks(RISKS, &facts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing::{properties, warnings};

    #[test]
    fn server_faults_are_warnings() {
        for (version, evictions, wrong) in [("1.6.18", "0", 0), ("1.4.15", "3", 2)] {
            let stats = properties(&[("evictions", evictions)]);
            let facts = Facts { version: version.to_owned(), stats, open_password: None };
            assert_eq!(warnings(RISKS, &facts).len(), wrong, "{version}");
        }
    }
}

//! The findings of `doctor` on an ensemble.

use futures_util::future::join_all;
use zookeeper_client::Client;

use super::ensemble::{Ensemble, servers};
use super::fault::reported_version;
use crate::backend::Examination;
use crate::backend::facts::{Rule, risks, version, when, with};
use crate::net::fault::FaultResult;

/// The known facts about the ensemble and the server that answers.
#[derive(Debug, Default)]
struct Facts {
    /// Reported by a server, if it does.
    version: Option<String>,
    /// The number of servers; `None` if they do not show it.
    servers: Option<usize>,
    has_user: bool,
    open_password: Option<String>,
}

const RISKS: &[Rule<Facts>] = &[
    Rule::warning(
        |f| with(f.version.as_ref().filter(|text| version(text).is_some_and(|known| known < [3, 5, 5]))?),
        "ZooKeeper {0} is older than 3.5.5, the oldest that dlock supports",
        "use a newer one",
    ),
    Rule::note(|f| when(f.servers? <= 1), "a single server: no lock can be taken or kept while it is down"),
    Rule::note(
        |f| when(f.servers.is_none_or(|n| n > 1)),
        "a ttl below four ticks of the servers (8s by default) may end a command early when its server loses the leader",
    ),
    Rule::note(
        |f| when(!f.has_user),
        "without --user every client that reaches the servers can remove or change claims",
    ),
    Rule::open_password(
        |f| with(f.open_password.as_ref()?),
        "use --cacert, and the servers' secureClientPort",
    ),
    Rule::backup(|_| with("they are its transaction ids, which nothing raises but use")),
];

/// Examines the ensemble through `client`, an open session.
pub(super) async fn examine(ensemble: &Ensemble, client: &Client) -> FaultResult<Examination> {
    let begun = ensemble.clock.now();
    client.check_stat("/").await?;
    let round_trip = ensemble.clock.now().since(begun);
    let versions = ensemble.config.servers.iter().map(|server| reported_version(server));
    let facts = Facts {
        servers: servers(client).await.ok(),
        has_user: ensemble.config.user.is_some(),
        open_password: ensemble.config.open_password().map(str::to_owned),
        version: join_all(versions).await.into_iter().flatten().next(),
    };
    let server = facts.version.as_ref().map_or("ZooKeeper".to_owned(), |text| format!("ZooKeeper {text}"));
    let reached = ensemble.config.address();
    Ok(Examination { server, reached, round_trip, risks: risks(RISKS, &facts) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing::warnings;

    #[test]
    fn an_old_version_is_a_warning() {
        for (version, warns) in [("3.4.14", true), ("3.5.4", true), ("3.5.5", false), ("3.10.0", false)] {
            let facts = Facts { version: Some(version.to_owned()), ..Facts::default() };
            assert_eq!(warnings(RISKS, &facts).len(), usize::from(warns), "{version}");
        }
    }
}

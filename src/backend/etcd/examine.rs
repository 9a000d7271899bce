//! The findings of `doctor` on a cluster.

use etcd_client::GetOptions;

use super::cluster::Cluster;
use crate::backend::Examination;
use crate::backend::facts::{Rule, risks, version, when, with};
use crate::clock;
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// The known facts about the server that answers, and its cluster.
struct Facts {
    version: String,
    open_password: Option<String>,
    is_proxied: bool,
}

const RISKS: &[Rule<Facts>] = &[
    Rule::always("a change of leader gives the leases of clients that are gone another ttl"),
    Rule::always("--once-per goes by the clocks of the hosts, since etcd offers none"),
    Rule::backup(|_| with("`etcdutl snapshot restore --bump-revision` prevents that")),
    Rule::open_password(|f| with(f.open_password.as_deref()?), "use https:// and enable TLS on the servers"),
    Rule::warning(
        |f| (version(&f.version)? < [3, 4, 0]).then(|| vec![f.version.clone()]),
        "etcd {0} is older than dlock can rely on",
        "use etcd 3.4 or newer",
    ),
    Rule::warning(
        |f| confirms_ended_leases(version(&f.version)?).then(|| vec![f.version.clone()]),
        "a leader of etcd {0} whose disk hangs keeps confirming leases that the next leader ends; dlock notices at \
         its next renewal, other clients do not",
        "use etcd 3.4.31, 3.5.13 or newer",
    ),
    Rule::note(
        |f| when(f.is_proxied),
        "it is etcd's grpc-proxy, which hides the cluster's members and renews leases by itself: a renewal takes half a second more, a \
         --ttl under 5s is refused, and a lock whose host vanishes in a renewal is free after twice the ttl",
    ),
];

/// etcd-io/etcd 15247: fixed in 3.4.31, in 3.5.13, and in later minor versions.
fn confirms_ended_leases(version: [u32; 3]) -> bool {
    match version {
        [3, 4, patch] => patch < 31,
        [3, 5, patch] => patch < 13,
        _ => false,
    }
}

/// Examines the server that answers, and its cluster.
pub(super) async fn examine(cluster: &Cluster, deadline: Moment) -> FaultResult<Examination> {
    let status = cluster.call(deadline, |c| async move { c.client.clone().status().await }).await?;
    let begun = clock::now();
    // A read that needs the leader, as renewals do.
    cluster.get(cluster.layout.note(0), GetOptions::new().with_count_only(), deadline).await?;
    let round_trip = clock::now().since(begun);
    let is_proxied = cluster.call(deadline, |c| async move { Ok(c.is_proxied().await?) }).await?;
    let facts = Facts {
        version: status.version().to_owned(),
        open_password: cluster.config().open_password(),
        is_proxied,
    };
    Ok(Examination {
        server: format!("etcd {}", facts.version),
        reached: cluster.config().endpoints[cluster.link.server(&())].clone(),
        round_trip,
        risks: risks(RISKS, &facts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::facts::testing::warnings;

    #[test]
    fn versions_are_told_apart() {
        for (version, part) in [
            ("3.3.25", Some("older than")),
            ("3.4.23", Some("whose disk hangs")),
            ("3.4.31", None),
            ("3.5.12", Some("whose disk hangs")),
            ("3.5.13", None),
            ("3.6.0-rc.1", None),
            ("4.0.0", None),
        ] {
            let facts = Facts { version: version.to_owned(), open_password: None, is_proxied: false };
            let said = warnings(RISKS, &facts);
            assert_eq!(said.len(), usize::from(part.is_some()), "{version}: {said:?}");
            assert!(said.iter().all(|what| what.contains(part.unwrap_or(""))), "{version}: {said:?}");
        }
    }
}

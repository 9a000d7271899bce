//! What `doctor` says of a cluster.

use etcd_client::{AlarmAction, AlarmType, GetOptions, StatusResponse};

use super::keys::Layout;
use super::wire::Wire;
use crate::backend::{Examination, Risk};
use crate::clock;
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// Looks at the server that answers and at its cluster.
pub(super) async fn examine(wire: &Wire, layout: &Layout, deadline: Moment) -> FaultResult<Examination> {
    let status = wire.call(deadline, |mut c| async move { c.client.status().await }).await?;
    let begun = clock::now();
    // A read that needs the leader, as renewals do.
    wire.get(layout.note(0), GetOptions::new().with_count_only(), deadline).await?;
    let round_trip = clock::now().since(begun);
    let mut risks = vec![
        Risk::note("a change of leader gives the leases of clients that are gone another ttl"),
        Risk::note("--once-per goes by the clocks of the hosts, since etcd has none to ask"),
        Risk::of_backup("`etcdutl snapshot restore --bump-revision` prevents that"),
    ];
    risks.extend(of_password(wire));
    risks.extend(of_version(status.version()));
    risks.extend(of_status(&status));
    risks.extend(of_alarms(wire, deadline).await);
    risks.extend(of_members(wire, deadline).await);
    Ok(Examination {
        server: format!("etcd {}", status.version()),
        reached: wire.server().await,
        round_trip,
        risks,
    })
}

fn of_password(wire: &Wire) -> Option<Risk> {
    let open = wire.open_password()?;
    Some(Risk::of_open_password(open, "use https:// and enable TLS on the servers"))
}

fn of_version(version: &str) -> Option<Risk> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version_parts = [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    if version_parts < [3, 4, 0] {
        return Some(Risk::warning(
            format!("etcd {version} is older than dlock can rely on"),
            "use etcd 3.4 or newer",
        ));
    }
    // etcd-io/etcd 15247: mended in these two, and in whatever is newer.
    let stuck = match version_parts {
        [3, 4, patch] => patch < 31,
        [3, 5, patch] => patch < 13,
        _ => false,
    };
    stuck.then(|| {
        Risk::warning(
            format!(
                "a leader of etcd {version} whose disk hangs goes on confirming leases that the next leader ends; \
                 dlock notices at its next renewal, other clients do not"
            ),
            "use etcd 3.4.31, 3.5.13 or newer",
        )
    })
}

fn of_status(status: &StatusResponse) -> Vec<Risk> {
    let mut risks = Vec::new();
    if status.leader() == 0 {
        risks.push(Risk::warning("this member knows of no leader", "look after the cluster"));
    }
    if status.is_learner() {
        risks.push(Risk::warning(
            "this member is a learner, which does not answer reads that count",
            "name voting members as endpoints",
        ));
    }
    risks
}

async fn of_alarms(wire: &Wire, deadline: Moment) -> Vec<Risk> {
    let asked = wire
        .call(deadline, |mut c| async move { c.client.alarm(AlarmAction::Get, AlarmType::None, None).await });
    let alarms = match asked.await {
        Ok(answer) => answer.alarms().iter().map(etcd_client::AlarmMember::alarm).collect::<Vec<_>>(),
        Err(_) => return vec![Risk::note("this user may not ask for the cluster's alarms")],
    };
    let each = alarms.into_iter().filter_map(|alarm| match alarm {
        AlarmType::None => None,
        AlarmType::Nospace => Some(Risk::warning(
            "the database is full: nobody can join a queue; holders and releases go on",
            "compact and defragment it, then disarm the alarm",
        )),
        AlarmType::Corrupt => {
            Some(Risk::warning("a member's data is corrupt: locks may be given twice", "replace that member"))
        }
    });
    each.collect()
}

async fn of_members(wire: &Wire, deadline: Moment) -> Vec<Risk> {
    let asked = wire.call(deadline, |mut c| async move { c.client.member_list().await });
    let voting = match asked.await {
        Ok(answer) => answer.members().iter().filter(|m| !m.is_learner()).count(),
        Err(_) => return vec![Risk::note("this user may not ask for the members of the cluster")],
    };
    if voting == 1 {
        return vec![Risk::note("a cluster of one member: while it is down, no lock can be taken or kept")];
    }
    if voting.is_multiple_of(2) {
        return vec![Risk::note(format!(
            "{voting} members survive no more failures than {} would",
            voting - 1
        ))];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let risk = of_version(version).map(|risk| risk.what);
            assert_eq!(risk.is_some(), part.is_some(), "{version}");
            assert!(risk.is_none_or(|what| what.contains(part.unwrap_or(""))), "{version}");
        }
    }
}

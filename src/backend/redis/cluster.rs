//! The addresses of a cluster's nodes, as the nodes report them.

use std::ops::RangeInclusive;

use redis::Value;

use super::connection::Connection;
use super::dial::text;
use super::fault;
use crate::lock::{ErrorKind, Reason};
use crate::net::address::HostPort;
use crate::net::fault::{Fault, FaultResult};

/// The number of slots in a cluster.
const SLOTS: u32 = 16_384;

/// The node that has a slot, or that has the keys for this one request.
pub(super) struct Redirection {
    pub(super) slot: u16,
    pub(super) node: HostPort,
    pub(super) once: bool,
}

/// Parses the rest of `MOVED 3999 127.0.0.1:6381`, or of `ASK`, received over `from`.
pub(super) fn redirection(details: &str, once: bool, from: &Connection) -> FaultResult<Redirection> {
    let nonsense = || fault::nonsense(format!("redirected to {details}"));
    let (slot, node) = details.split_once(' ').ok_or_else(nonsense)?;
    let (host, port) = node.rsplit_once(':').ok_or_else(nonsense)?;
    let (slot, port) = (slot.parse().map_err(|_| nonsense())?, port.parse().map_err(|_| nonsense())?);
    Ok(Redirection { slot, node: node_at(host, port, from)?, once })
}

/// Returns the place of a node; an empty host is that of the reporting node, at the end of `from`.
fn node_at(host: &str, port: u16, from: &Connection) -> FaultResult<HostPort> {
    if host == "?" {
        let reason = Reason::from("the nodes of the cluster give no address of each other (?)");
        let advice = "set cluster-announce-hostname on each node, or cluster-preferred-endpoint-type ip";
        return Err(Fault::new(ErrorKind::Corrupt, reason.advising(advice)));
    }
    let own = from.peer().rsplit_once(':').map_or("", |(host, _)| host.trim_matches(['[', ']']));
    Ok(HostPort { host: if host.is_empty() { own } else { host }.to_owned(), port })
}

/// Parses the reply to CLUSTER SLOTS, received over `from`: the place of each node that has slots, and some of them.
///
/// Errors: `Unavailable` if slots are served by no node; `Corrupt` if two nodes have one place.
pub(super) fn nodes(reply: &Value, from: &Connection) -> FaultResult<Vec<(RangeInclusive<u16>, HostPort)>> {
    let nonsense = || fault::nonsense("no slots of a cluster");
    let Value::Array(ranges) = reply else { return Err(nonsense()) };
    let (mut found, mut served) = (Vec::<(String, RangeInclusive<u16>, HostPort)>::new(), 0);
    for range in ranges {
        let Value::Array(parts) = range else { return Err(nonsense()) };
        let [first, last, Value::Array(master), ..] = parts.as_slice() else { return Err(nonsense()) };
        let [host, port, id, ..] = master.as_slice() else { return Err(nonsense()) };
        let number = |value: &Value| text(value)?.parse::<u16>().ok();
        let (Some(first), Some(last), Some(port), Some(id)) =
            (number(first), number(last), number(port), text(id))
        else {
            return Err(nonsense());
        };
        served += u32::from(last.saturating_sub(first)) + 1;
        if found.iter().all(|(known, ..)| *known != id) {
            // An unknown host is the null value.
            let node = node_at(&text(host).unwrap_or_default(), port, from)?;
            if found.iter().any(|(.., known)| *known == node) {
                let reason = format!("several nodes of the cluster give {node} as their address");
                return Err(Fault::new(ErrorKind::Corrupt, reason));
            }
            found.push((id, first..=last, node));
        }
    }
    if served != SLOTS {
        return Err(Fault::unavailable(format!("the cluster serves {served} of its {SLOTS} slots")));
    }
    Ok(found.into_iter().map(|(_, slots, node)| (slots, node)).collect())
}

//! Which keys a user lacks the right to.
//!
//! What suffices for `etcdctl lock` does not for dlock, which has more to say than who stands where; and the server
//! does not say what it refused.

use etcd_client::GetOptions;

use super::fault::{Fault, FaultResult};
use super::keys::{Layout, Queue};
use super::wire::Wire;
use crate::backend::cause;
use crate::lock::{ErrorKind, Moment};

/// `fault`, with the keys that it is about if it says that a right is missing. A run that is `nested` needs more.
pub(super) async fn explain(
    wire: &Wire,
    layout: &Layout,
    queues: &[Queue],
    nested: bool,
    fault: Fault,
    deadline: Moment,
) -> Fault {
    let Fault::NotPermitted(text) = &fault else { return fault };
    let each = queues.iter().flat_map(|queue| [queue.entries().0, queue.beside().0]);
    let nested = nested.then(|| layout.all_nested().0);
    let needed: Vec<String> = each.chain([layout.notes()]).chain(nested).collect();
    for keys in &needed {
        match may_read(wire, keys, deadline).await {
            Ok(true) => {}
            Ok(false) => return lacking(text, "use", keys, &needed),
            Err(_) => return fault,
        }
    }
    match needed.first() {
        Some(first) => lacking(text, "change", first, &needed),
        None => fault,
    }
}

fn lacking(text: &str, what: &str, keys: &str, needed: &[String]) -> Fault {
    let all: Vec<String> = needed.iter().map(|keys| format!("{keys:?}")).collect();
    let said = format!("{text}: it may not {what} all keys that begin with {keys:?}");
    let reason = cause::no_right(&said, &format!("grant readwrite with --prefix on {}", all.join(", ")));
    Fault::Said(ErrorKind::Denied, reason)
}

async fn may_read(wire: &Wire, prefix: &str, deadline: Moment) -> FaultResult<bool> {
    let options = GetOptions::new().with_prefix().with_count_only();
    let read = wire.call(deadline, |mut c| {
        let (prefix, options) = (prefix.to_owned(), options.clone());
        async move { c.client.get(prefix, Some(options)).await }
    });
    match read.await {
        Ok(_) => Ok(true),
        Err(Fault::NotPermitted(_) | Fault::Said(ErrorKind::Denied, _)) => Ok(false),
        Err(fault) => Err(fault),
    }
}

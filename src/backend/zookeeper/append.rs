//! Joining the queues of a claim's names.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::try_join_all;
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError};

use super::config::ZkConfig;
use super::life::Life;
use super::queue::{ClaimNodes, Note, entries, stems};
use super::view::{self, Children, children};
use crate::backend::ZkLayout;
use crate::backend::record::Record;
use crate::lock::validity::LeaseTimes;
use crate::lock::{ErrorKind, Mode, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Answer, Key, Own};

/// Returns why the claim cannot join its queues, before a session is started.
pub(super) fn check(config: &ZkConfig, request: &Request) -> FaultResult<()> {
    if matches!(request.mode, Mode::Slots(_)) && config.layout == ZkLayout::Kazoo {
        let reason =
            "kazoo's semaphore has no order that others could join; use --slots with --zk-layout curator";
        return Err(Fault::new(ErrorKind::Unsupported, reason));
    }
    request.names.iter().try_for_each(|name| config.queue(name).map(drop))
}

/// Joins the queues in the session of `life`.
pub(super) async fn append(life: &Life) -> FaultResult<(Own, Answer)> {
    let (request, granted) = (&life.request, life.proofs().ttl);
    if granted < LeaseTimes::LEAST_TTL {
        let reason =
            format!("it grants sessions of {granted:?} at most; raise its maxSessionTimeout to 1s or more");
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    let record = Record::of(request, granted);
    let note = &Note { record, asked_by: None, slot: None, waited_ms: None }.to_bytes();
    let stems = &stems(life.ensemble.config.layout, request.id, request.mode);
    let asked = &AtomicBool::new(false);
    let joined = life.ask(|client| async move {
        // After a lost answer the nodes may exist.
        if asked.swap(true, Ordering::Relaxed) {
            client.sync("/").await?;
            let listed = try_join_all(life.queues().iter().map(|queue| children(&client, queue))).await?;
            let found = find(life, &client, stems, listed).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        join(life, &client, stems, note).await
    });
    let over = || Fault::unavailable("the session or the entry was gone at once");
    let (keys, listed) = joined.await?.flatten().ok_or_else(over)?;
    let Request { id, names, mode, .. } = request;
    let own = Own { id: *id, names: names.clone(), mode: *mode, ttl: granted, keys };
    // It is set only here.
    let _ = life.own.set(own.clone());
    let answer = view::read(life, &own, Some(&listed)).await?;
    Ok((own, Answer { sent: life.begun, ..answer }))
}

/// The keys of the claim's entries, and the children of each queue; `None` if it is not in all of them.
type Joined = FaultResult<Option<(Vec<Key>, Vec<Children>)>>;

/// Creates the nodes in one step and reads the queues, all in one exchange; in another one if a directory is missing.
async fn join(life: &Life, client: &Client, stems: &[String], note: &[u8]) -> Joined {
    let (queues, acls) = (life.queues(), life.ensemble.acls());
    let folder = CreateMode::Container.with_acls(acls);
    let sequential = CreateMode::EphemeralSequential.with_acls(acls);
    loop {
        // Servers remove an unused container within minutes, so it is usually missing. Sending its creation along costs
        // no exchange, and the step below shows the result.
        for queue in &queues {
            drop(client.create(queue, b"", &folder));
        }
        let mut step = client.new_multi_writer();
        for queue in &queues {
            for (index, stem) in stems.iter().enumerate() {
                let data = if index == 0 { note } else { b"" };
                step.add_create(&format!("{queue}/{stem}"), data, &sequential)?;
            }
        }
        let listed = try_join_all(queues.iter().map(|queue| children(client, queue)));
        let (made, listed) = tokio::join!(step.commit(), listed);
        match made {
            Ok(_) => return find(life, client, stems, listed?).await,
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
                for queue in &queues {
                    client.mkdir(queue, &folder).await?;
                }
            }
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
}

/// Finds the claim's entries among the children of its queues, which are `listed`. Nodes of an earlier session are not
/// taken for its own (CURATOR-498).
async fn find(life: &Life, client: &Client, stems: &[String], listed: Vec<Children>) -> Joined {
    let (mut keys, id) = (Vec::with_capacity(listed.len()), Some(life.request.id));
    for (queue, (names, _)) in life.queues().iter().zip(&listed) {
        let is_own = |entry: &ClaimNodes| entry.record().claim == id && entry.nodes.len() == stems.len();
        let Some(found) = entries(names).into_iter().rfind(is_own) else { return Ok(None) };
        let stat = client.check_stat(&format!("{queue}/{}", found.record().name)).await?;
        let stat = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0);
        let Some(stat) = stat else { return Ok(None) };
        keys.push(Key { order: stat.czxid.cast_unsigned(), text: found.text() });
    }
    Ok(Some((keys, listed)))
}

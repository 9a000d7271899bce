//! Joining the queues of a claim's names.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::try_join_all;
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError};

use super::config::ZkConfig;
use super::life::Life;
use super::note::Note;
use super::queue::{ClaimNodes, Part, entries, stem};
use super::view::{self, children};
use crate::backend::ZkLayout;
use crate::backend::record::Record;
use crate::lock::validity::LeaseTimes;
use crate::lock::{ErrorKind, Mode, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Answer, Key, Own};

/// How often a directory may vanish while a claim enters it.
const VANISHING: usize = 20;

fn parts(layout: ZkLayout, mode: Mode) -> Vec<Part> {
    match (layout, mode) {
        // One node for Curator's mutex and one for its read/write lock: neither recognises the other's nodes.
        (ZkLayout::Curator, Mode::Exclusive) => vec![Part::Mutex, Part::Writer],
        (ZkLayout::Curator, Mode::Shared) => vec![Part::Mutex, Part::Reader],
        (_, Mode::Slots(n)) => vec![Part::Slots(n), Part::Writer],
        (ZkLayout::Kazoo, Mode::Shared) => vec![Part::Reader],
        (ZkLayout::Kazoo, Mode::Exclusive) => vec![Part::Mutex],
    }
}

/// Returns the beginnings of the names of a claim's nodes, which are the same in all its queues.
///
/// Errors: why it cannot join them.
pub(super) fn stems(config: &ZkConfig, request: &Request) -> FaultResult<Vec<String>> {
    if matches!(request.mode, Mode::Slots(_)) && config.layout == ZkLayout::Kazoo {
        let reason =
            "kazoo's semaphore has no order that others could join; use --slots with --zk-layout curator";
        return Err(Fault::new(ErrorKind::Unsupported, reason));
    }
    for name in &request.names {
        config.queue(name)?;
    }
    let parts = parts(config.layout, request.mode);
    Ok(parts.into_iter().map(|part| stem(config.layout, request.id, part)).collect())
}

/// Joins the queues in the session of `life`, with nodes whose names begin with `stems`.
pub(super) async fn append(life: &Life, stems: &[String]) -> FaultResult<(Own, Answer)> {
    let (request, granted) = (&life.request, life.proofs().ttl);
    if granted < LeaseTimes::LEAST_TTL {
        let reason = format!(
            "{} grants sessions of {granted:?} at most; raise its maxSessionTimeout to 1s or more",
            life.ensemble.config.address(),
        );
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    let record = Record::of(request, granted);
    let note = &Note { record, asked_by: None, slot: None, waited_ms: None }.to_bytes();
    let over = || Fault::unavailable("the session or the entry was gone at once");
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
    let (keys, listed) = &joined.await?.flatten().ok_or_else(over)?;
    let Request { id, names, mode, .. } = request;
    let own = &Own { id: *id, names: names.clone(), mode: *mode, ttl: granted, keys: keys.clone() };
    // It is set only here.
    let _ = life.own.set(own.clone());
    let answer = life.ask(|client| async move { view::answer(life, &client, own, listed, 0).await });
    let answer = answer.await?.ok_or_else(over)?;
    Ok((own.clone(), Answer { sent: life.begun, ..answer }))
}

/// The keys of the claim's entries, and the children of each queue; `None` if it is not in all of them.
type Joined = FaultResult<Option<(Vec<Key>, Vec<Vec<String>>)>>;

/// Creates the nodes in one step and reads the queues, all in one exchange; in another one if a directory is missing.
async fn join(life: &Life, client: &Client, stems: &[String], note: &[u8]) -> Joined {
    let (queues, acls) = (life.queues(), life.ensemble.acls());
    let folder = CreateMode::Container.with_acls(acls);
    let sequential = CreateMode::EphemeralSequential.with_acls(acls);
    for _ in 0..VANISHING {
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
        let made = step.commit();
        let listed: Vec<_> = queues.iter().map(|queue| children(client, queue)).collect();
        match made.await {
            Ok(_) => return find(life, client, stems, try_join_all(listed).await?).await,
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
                for queue in &queues {
                    client.mkdir(queue, &folder).await?;
                }
            }
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
    Err(Fault::new(ErrorKind::Unavailable, "its directory is removed again and again"))
}

/// Finds the claim's entries among the children of its queues, which are `listed`. Nodes of an earlier session are not
/// taken for its own (CURATOR-498).
async fn find(life: &Life, client: &Client, stems: &[String], listed: Vec<Vec<String>>) -> Joined {
    let (mut keys, id) = (Vec::with_capacity(listed.len()), Some(life.request.id));
    for (queue, names) in life.queues().iter().zip(&listed) {
        let is_own = |entry: &ClaimNodes| entry.record().guid == id && entry.nodes.len() == stems.len();
        let Some(found) = entries(names).into_iter().rfind(is_own) else { return Ok(None) };
        let stat = client.check_stat(&format!("{queue}/{}", found.record().name)).await?;
        let stat = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0);
        let Some(stat) = stat else { return Ok(None) };
        keys.push(Key { order: stat.czxid.cast_unsigned(), text: found.text() });
    }
    Ok(Some((keys, listed)))
}

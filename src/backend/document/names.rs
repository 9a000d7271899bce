//! Claims on several names: no step reaches several documents, so they are taken one after another.

use std::sync::Arc;

use async_trait::async_trait;

use super::arrive::Own;
use super::client::Queues;
use super::{Side, enter, evict};
use crate::backend::Claim;
use crate::backend::fault::During;
use crate::backend::sequence::{self, PartBackend};
use crate::lock::{LockName, Moment, Request, Result};

/// Enters the queues of a claim's names, one by one.
#[derive(Debug)]
struct ByName {
    queues: Queues,
    all: Vec<LockName>,
}

#[async_trait]
impl PartBackend for ByName {
    fn backend(&self) -> &'static str {
        self.queues.store.backend()
    }

    async fn enter(&self, part: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let own = Own::new(&self.queues, part, &self.all);
        let claim = enter::enter(&self.queues, own, deadline).await;
        Ok(claim.during(self.backend(), "join the queue", part.names.first())?)
    }

    async fn withdraw(&self, part: &Request, deadline: Moment) -> Result<()> {
        for name in &part.names {
            let gone = evict::withdraw(&self.queues, name, part.id, &part.holder, deadline).await;
            gone.during(self.backend(), "leave the queue", Some(name))?;
        }
        Ok(())
    }
}

/// Enters the queues of all names of `request`, in the order that everybody keeps to.
pub(super) async fn enter(queues: &Queues, request: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
    let by_name = ByName { queues: queues.clone(), all: request.names.clone() };
    if request.names.len() == 1 {
        return by_name.enter(request, deadline).await;
    }
    // Whoever evicts it from one of them finds the others by this.
    let names: Vec<&str> = request.names.iter().map(LockName::as_str).collect();
    let names = serde_json::to_vec(&names).unwrap_or_default();
    let store = &queues.store;
    let noted = store.write_side(Side::Names(request.id), &names, store.longest_ttl(), deadline).await;
    noted.during(store.backend(), "join the queue", request.names.first())?;
    let parts = sequence::parts_by(request, |place| store.order(&request.names[place]));
    let clock = queues.clock;
    Ok(Arc::new(sequence::enter(Arc::new(by_name), parts, clock, deadline).await?))
}

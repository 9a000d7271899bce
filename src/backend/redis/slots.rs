//! Names that lie in different slots of a cluster: no step reaches them all, so they are taken slot by slot.

use std::sync::Arc;

use async_trait::async_trait;

use super::enter;
use super::fault::NAME;
use super::keys::Naming;
use super::service::Service;
use super::wire;
use crate::backend::fault::During;
use crate::backend::sequence::{self, PartBackend};
use crate::backend::{Claim, Evict};
use crate::lock::{LockName, Moment, Request, Result};

/// Enters the queues of a cluster, slot by slot.
#[derive(Debug)]
struct BySlot {
    service: Arc<Service>,
    naming: Naming,
    all: Vec<LockName>,
}

#[async_trait]
impl PartBackend for BySlot {
    fn backend(&self) -> &'static str {
        NAME
    }

    async fn enter(&self, part: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        let claim = enter::enter(&self.service, &self.naming, part, &self.all, deadline).await;
        let claim = claim.during(NAME, "join the queue", part.names.first())?;
        Ok(Arc::new(claim))
    }

    async fn withdraw(&self, part: &Request, deadline: Moment) -> Result<()> {
        let Request { names, id, holder, .. } = part;
        let gone = wire::evict(&self.service, &self.naming, names, *id, Evict::Force, holder, deadline).await;
        gone.map(drop).during(NAME, "leave the queue", names.first())
    }
}

/// Enters the queues of all names of `request`: those of one slot in one step, one slot after another.
pub(super) async fn enter(
    service: &Arc<Service>,
    naming: &Naming,
    request: &Request,
    deadline: Moment,
) -> Result<Arc<dyn Claim>> {
    let keys = wire::keys_of(naming, &request.names);
    let keys = keys.during(NAME, "join the queue", request.names.first())?;
    let slot = |place: usize| if service.config.is_cluster() { keys[place].slot } else { 0 };
    let parts = sequence::parts_by(request, slot);
    let (service, naming, all) = (Arc::clone(service), naming.clone(), request.names.clone());
    let clock = service.clock;
    let by_slot = BySlot { service, naming, all };
    if parts.len() == 1 {
        return by_slot.enter(request, deadline).await;
    }
    Ok(Arc::new(sequence::enter(Arc::new(by_slot), parts, clock, deadline).await?))
}

//! Requests to enter of which nobody knows whether they will still be executed.
//!
//! A request whose answer did not come may be held up on its way and be executed after the claim has ended. What was
//! answered cannot: so an ordinary run has nothing to fear and asks for nothing more. Whoever ends a claim with such a
//! request leaves a note that keeps it out (see [`super::evict`]).

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::evict;
use super::fault::{FaultResult, is_refusal};
use super::keys::{Layout, Queue};
use super::wire::Wire;
use crate::backend::Evict;
use crate::lock::{ClaimId, Moment, Request};

/// The claims of one client that may come late.
#[derive(Debug, Default)]
pub(super) struct Strays(Mutex<HashMap<ClaimId, Arc<Stray>>>);

#[derive(Debug)]
struct Stray {
    queue: Queue,
    request: Request,
}

/// A request that is under way. Dropped without an answer, it may come late.
pub(super) struct Sent<'a> {
    strays: &'a Strays,
    stray: Option<Stray>,
}

impl Strays {
    fn all(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Stray>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the entries of `request` are asked for, the first in `queue`.
    pub(super) fn sent(&self, queue: Option<&Queue>, request: &Request) -> Sent<'_> {
        let stray = queue.map(|queue| Stray { queue: queue.clone(), request: request.clone() });
        Sent { strays: self, stray }
    }

    /// Whether the claim of this id may come late.
    pub(super) fn has(&self, id: ClaimId) -> bool {
        self.all().contains_key(&id)
    }

    /// Nothing has to be feared of this one any more.
    pub(super) fn forget(&self, id: ClaimId) {
        self.all().remove(&id);
    }

    /// Sees to it that the claim of this id, which has ended, does not come late.
    pub(super) async fn keep_out(
        &self,
        wire: &Wire,
        layout: &Layout,
        id: ClaimId,
        deadline: Moment,
    ) -> FaultResult<()> {
        let stray = self.all().get(&id).cloned();
        if let Some(stray) = stray {
            let by = &stray.request.holder;
            evict::evict(wire, layout, &stray.queue, id, Evict::Force, by, deadline).await?;
            self.forget(id);
        }
        Ok(())
    }
}

impl Sent<'_> {
    /// Takes what came: an answer says that the request will not be executed later.
    pub(super) fn heard<T>(mut self, answer: &Result<T, etcd_client::Error>) {
        let answered = match answer {
            Ok(_) => true,
            Err(etcd_client::Error::GRpcStatus(status)) => {
                status.source().is_none() && is_refusal(status.code() as i32)
            }
            Err(_) => false,
        };
        if answered {
            self.stray = None;
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if let Some(stray) = self.stray.take() {
            self.strays.all().entry(stray.request.id).or_insert_with(|| Arc::new(stray));
        }
    }
}

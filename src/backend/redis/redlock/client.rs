//! What a client has of its nodes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::config::RedlockConfig;
use super::core::Nodes;
use crate::backend::redis::keys::Naming;
use crate::backend::redis::service::Service;
use crate::clock::Clock;

/// Several independent Redis servers.
#[derive(Debug)]
pub struct RedlockBackend {
    pub(super) nodes: Arc<Nodes>,
    pub(super) config: RedlockConfig,
    pub(super) naming: Naming,
    pub(super) clock: Clock,
}

impl RedlockBackend {
    /// Takes `config`; nothing is connected before the first call.
    pub fn open(config: RedlockConfig) -> Self {
        Self::with_clock(config, Clock::Boot)
    }

    /// As [`RedlockBackend::open`], for a client whose clock may tell another time than the servers'.
    pub fn with_clock(config: RedlockConfig, clock: Clock) -> Self {
        let prefix = config.nodes.first().and_then(|node| node.prefix.clone());
        Self { nodes: nodes(&config, clock), naming: Naming { prefix, group: "quorum:" }, config, clock }
    }
}

/// Connections of their own to all nodes.
pub(super) fn nodes(config: &RedlockConfig, clock: Clock) -> Arc<Nodes> {
    let services = config.nodes.iter().map(|node| Arc::new(Service::new(node.clone(), clock))).collect();
    Arc::new(Nodes {
        services,
        max_ttl: config.max_ttl,
        claims: AtomicUsize::new(0),
        attempts: AtomicUsize::new(0),
    })
}

//! Locks in `ZooKeeper`: ephemeral sequential nodes, in the format of Curator and kazoo.
//!
//! Each claim is a separate session with the ttl as its timeout; the end of the session ends the claim. A claim's nodes
//! on all its names are created in one step. A waiter watches the one node that must go first.

mod append;
mod commit;
mod config;
mod ensemble;
mod examine;
mod fault;
mod life;
mod proofs;
mod queue;
mod store;
mod view;
mod watch;

use std::sync::Arc;

use super::Backend;
use super::service::{Address, Service};
use crate::clock::Clock;
use crate::queue::Queues;
pub use config::ZkConfig;
use fault::NAME;
use store::ZkStore;

/// An ensemble of ZooKeeper.
pub static SERVICE: Service = Service {
    name: NAME,
    schemes: &["zk://"],
    has_login: true,
    options: &["zk-layout"],
    parse: |options| Ok(Box::new(ZkConfig::parse(options)?)),
    manual: include_str!("../../../man/dlock-zk.7"),
};

impl Address for ZkConfig {
    fn service(&self) -> &'static Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(open_with(self, Clock::Boot))
    }

    fn place(&self) -> String {
        self.identity()
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        let alone =
            |server: &String| Box::new(Self { servers: vec![server.clone()], ..self.clone() }) as Box<_>;
        self.servers.iter().map(alone).collect()
    }
}

/// Creates a client of the ensemble in `config` with another clock.
#[doc(hidden)]
pub fn open_with(config: &ZkConfig, clock: Clock) -> Queues {
    Queues::new(Arc::new(ZkStore::open(config, clock)), clock)
}

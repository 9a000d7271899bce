//! Queues in etcd.
//!
//! Entries are under `NAME/`, in the layout of Go's `concurrency.Mutex`. So `etcdctl lock`, `etcdctl elect` and
//! programs with that library share the queue; dlock's additional keys are next to it. An entry depends on a lease with
//! an id that is derived from the claim's id. Entries are ordered by their create revisions.
//!
//! Modelled on Go's client (<https://github.com/etcd-io/etcd>, client/v3/concurrency), with three additions. The
//! claim's own entry is watched as well as the one ahead. A hold is proved by a transaction that checks the own entry.
//! A renewal is a keep-alive *and* a subsequent linearizable read.

mod cluster;
mod commit;
mod config;
mod examine;
mod fault;
mod follow;
mod keys;
mod queue;
mod store;

use std::sync::Arc;

pub use config::EtcdConfig;
use fault::NAME;
use store::EtcdStore;

use super::Backend;
use super::service::{Address, Service};
use crate::clock::Clock;
use crate::queue::Queues;

/// A cluster of etcd.
pub static SERVICE: Service = Service {
    name: NAME,
    schemes: &["http://", "https://", "etcd://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(EtcdConfig::parse(options)?)),
    manual: include_str!("../../../man/dlock-etcd.7"),
};

impl Address for EtcdConfig {
    fn service(&self) -> &'static Service {
        &SERVICE
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(Queues::new(Arc::new(EtcdStore::open(self)), Clock::Boot))
    }

    fn place(&self) -> String {
        self.servers()
    }

    fn each(&self) -> Vec<Box<dyn Address>> {
        let alone = |url: &String| Box::new(Self { endpoints: vec![url.clone()], ..self.clone() }) as Box<_>;
        self.endpoints.iter().map(alone).collect()
    }
}

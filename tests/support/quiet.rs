//! Keeps tests that load both processors away from tests that measure a promised time to the letter.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::bounds::exact;

static MACHINE: RwLock<()> = RwLock::new(());

/// Returns a guard for a test that loads the machine.
pub(crate) fn loading() -> Option<RwLockReadGuard<'static, ()>> {
    exact().then(|| MACHINE.read().unwrap_or_else(PoisonError::into_inner))
}

/// Returns a guard for a test that measures a time.
pub(crate) fn measuring() -> Option<RwLockWriteGuard<'static, ()>> {
    exact().then(|| MACHINE.write().unwrap_or_else(PoisonError::into_inner))
}

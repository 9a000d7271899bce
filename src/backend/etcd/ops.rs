//! Parts of transactions, and their answers.

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, PutOptions, ResponseHeader, SortOrder, SortTarget, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};

use super::fault::{self, LEASE_GONE};
use super::keys::Span;
use super::wire::Wire;
use crate::lock::Moment;
use crate::net::fault::FaultResult;

/// The most operations in one transaction, by default.
pub(super) const MOST_OPERATIONS: usize = 128;
/// The most operations for a queue in one transaction.
const PER_QUEUE: usize = 5;
/// The most queues for which one transaction can do a step, with one operation for the whole claim.
pub(super) const MOST_NAMES: usize = (MOST_OPERATIONS - 1) / PER_QUEUE;

pub(super) fn range(span: Span, options: GetOptions) -> TxnOp {
    TxnOp::get(span.0, Some(options.with_range(span.1)))
}

pub(super) fn created_first() -> GetOptions {
    GetOptions::new().with_sort(SortTarget::Create, SortOrder::Ascend)
}

/// Returns the comparison that a key exists and was created at that revision; 0 for a missing key.
pub(super) fn stands(key: impl Into<Vec<u8>>, created: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, created)
}

/// Returns the comparison that a key was last written at that revision; 0 for a missing key.
pub(super) fn unchanged(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, revision)
}

/// Returns the write of a key that ends with its lease.
pub(super) fn put(key: String, value: impl Into<Vec<u8>>, lease: i64) -> TxnOp {
    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
}

/// Commits `txn`; `None` if it needs a lease that is gone: the claim ended by itself.
pub(super) async fn act(wire: &Wire, txn: Txn, deadline: Moment) -> FaultResult<Option<TxnResponse>> {
    match wire.txn(txn, deadline).await {
        Err(fault) if fault.code == LEASE_GONE => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns the revision of the store in an answer.
pub(super) fn revision(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, |header| header.revision().cast_unsigned())
}

/// The answers to the reads of a transaction, in order.
pub(super) struct Answers(std::vec::IntoIter<TxnOpResponse>);

impl Answers {
    pub(super) fn of(response: &TxnResponse) -> Self {
        Self(response.op_responses().into_iter())
    }

    /// Returns the next answer to a read, skipping answers to writes.
    pub(super) fn read(&mut self) -> FaultResult<GetResponse> {
        let get = self.0.find_map(|answer| match answer {
            TxnOpResponse::Get(get) => Some(get),
            _ => None,
        });
        get.ok_or_else(|| fault::corrupt("an answer is missing"))
    }
}

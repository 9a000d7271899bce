//! A keep-alive and a transaction behind it, over one connection.

use etcd_client::{LeaseKeepAliveStream, LeaseKeeper, ResponseHeader, Txn, TxnResponse};

use super::dial::Connection;

/// An open stream of keep-alives. Its answers do not say to what, so it is dropped unless each was heard.
#[derive(Debug)]
pub(super) struct Kept {
    connection: u64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// In which term somebody answered.
pub(super) fn term(header: Option<&ResponseHeader>) -> Option<u64> {
    header.map(ResponseHeader::raft_term)
}

/// Sends one keep-alive for `lease`, over `kept` if that is of this connection, and then `txn`; says in which term the
/// first was answered, and what the second came to.
pub(super) async fn keep_and_check(
    mut c: Connection,
    lease: i64,
    kept: Option<Kept>,
    txn: Txn,
) -> Result<(Kept, Option<u64>, TxnResponse), etcd_client::Error> {
    let mut kept = if let Some(kept) = kept.filter(|kept| kept.connection == c.number) {
        kept
    } else {
        // The client keeps the first answer to itself; the second is the one that counts.
        let (keeper, answers) = c.client.lease_keep_alive(lease).await?;
        Kept { connection: c.number, keeper, answers }
    };
    kept.keeper.keep_alive().await?;
    let ended = || etcd_client::Error::LeaseKeepAliveError("the server closed the stream".to_owned());
    let answer = kept.answers.message().await?.ok_or_else(ended)?;
    if answer.ttl() <= 0 {
        return Err(etcd_client::Error::LeaseKeepAliveError("lease not found".to_owned()));
    }
    let by = term(answer.header());
    Ok((kept, by, c.client.txn(txn).await?))
}

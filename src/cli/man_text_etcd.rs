//! What the manual says of etcd.

use super::man_text::Piece::{self, Code, Term, Text};

/// Of `dlock-run(1)`.
pub(super) const ETCD: &[Piece] = &[
    Text(
        "--endpoint is [http://|https://]HOST[:PORT], port 2379 if none is said; several, repeated or with commas, \
             are the members of one cluster, and dlock goes on with the next one when one fails. Without an endpoint \
             --backend etcd means 127.0.0.1:2379. --cacert, --cert and --key mean https.",
    ),
    Code(
        "dlock run --endpoint https://etcd1:2379,https://etcd2:2379 --cacert ca.pem --name deploy -- ./deploy.sh\n\
             dlock run --backend etcd --prefix '' --name deploy -- ./deploy.sh   # one line with: etcdctl lock deploy",
    ),
    Text(
        "An entry is the key NAME/LEASE, the lease in hexadecimal, as etcdctl lock and Go's concurrency.Mutex and \
             Election have it; whoever was created first holds. With --prefix P the key of a lock is P and the name, \
             and those clients stand in the same line. The keys of a/b then lie inside those of a, and a waits for \
             b's entries, as it does there. Without it the prefix is dlock/ and the name is percent-encoded.",
    ),
    Term(
        "Time to live",
        "Whole seconds, rounded up; the server makes short ones longer (by default at least 2s). A claim whose \
             host vanished is gone within its ttl and 2s, and one ttl more for each change of leader. The lease of a run \
             that succeeded is left to expire if its ttl is at most 60s.",
    ),
    Term("Token", "The revision of the transaction that proved the hold, comparable with ETCD_LOCK_REV."),
    Term(
        "--once-per",
        "Goes by the clocks of the hosts, since etcd has none to ask. Each lock that a run succeeded under keeps \
             one small key.",
    ),
    Term(
        "Names together",
        "Up to 63, with --slots 42: as many as one transaction has room for (--max-txn-ops of the server, 128).",
    ),
    Term(
        "Rights of a user",
        "To read and write what starts with the prefix; where --prefix is said, also what starts with it followed \
             by the character U+0001, or the name and that character.",
    ),
    Text(
        "etcd 3.4 or newer. A database that is full (NOSPACE) takes no new claim; holders renew and release. \
             dlock doctor names what is wrong with a cluster.",
    ),
];

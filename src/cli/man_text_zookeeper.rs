//! What the manual says of ZooKeeper.

use super::man_text::Piece::{self, Code, Term, Text};

/// Of `dlock-run(1)`.
pub(super) const ZOOKEEPER: &[Piece] = &[
    Text(
        "ZooKeeper 3.5.5 or newer: --backend zk, or an endpoint zk://HOST:PORT,HOST:PORT/CHROOT. The port is 2181 \
          and the host localhost if not given; the chroot is made on first use. A claim is a session of its own, \
          whose time-out is the ttl: the server grants what lies between its minSessionTimeout and \
          maxSessionTimeout, and what it grants counts. Less than a second is refused.",
    ),
    Term(
        "Paths",
        "A lock NAME is /dlock/NAME, percent-encoded. With --prefix P, also an empty one, it is P and the name, as \
          they are; what is no path for ZooKeeper, such as an empty part or a character outside the basic plane, \
          exits 64.",
    ),
    Term(
        "Other clients",
        "On one path with --prefix '' dlock stands in line with Curator's InterProcessMutex and \
          InterProcessReadWriteLock, and with --slots N with InterProcessSemaphoreV2 of N leases. With --zk-layout \
          kazoo it stands in line with kazoo's Lock, WriteLock and, for --shared, ReadLock; kazoo's Lock passes \
          readers over, and its Semaphore cannot be joined (64). A path serves locks or a semaphore, not both.",
    ),
    Term(
        "Users and encryption",
        "--user and a password are digest authentication: the nodes belong to that user alone, and whoever else \
          asks exits 77. With --cacert the connection is encrypted; ZooKeeper's client knows no authorities of \
          the system, and the certificate must have the name that the address has. --cert and --key show a \
          certificate.",
    ),
    Term(
        "Limits",
        "A renewal is a write that a quorum agrees to. In an ensemble the lease counts from the renewal before the \
          last: choose a ttl of four ticks of the servers or more (8s as they are usually set up), and give all \
          servers the same tickTime, minSessionTimeout and maxSessionTimeout. A claim whose processes and host are \
          gone is gone after its ttl and two ticks, and one ttl more for each election meanwhile. The token is the \
          zxid that made the entry. For --once-per a small node stays in ~dlock beside the locks.",
    ),
    Code("dlock run --endpoint zk://zk1,zk2,zk3/ops --name deploy -- ./deploy.sh"),
    Code("dlock run --backend zk --prefix '' --name /locks/deploy -- ./deploy.sh"),
];

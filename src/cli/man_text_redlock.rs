//! What the manual says of several independent Redis servers.

use super::man_text::Piece::{self, Code, Term, Text};

/// Of `dlock-run(1)`.
pub(super) const REDLOCK: &[Piece] = &[
    Text(
        "Three, five or seven independent Redis servers of version 6.2 or newer, without replicas, are one lock service: a \
         majority decides, so a minority of them may fail, hang or be cut off. Their addresses are those of single \
         servers, by several --endpoint or as a list:",
    ),
    Code("--endpoint redis://HOST:PORT/DB,redis://HOST:PORT/DB,redis://HOST:PORT/DB"),
    Text(
        "An even number of servers, a replica, a sentinel or a cluster among them, and one server under two addresses are \
         refused (64). User, password and TLS options are those of all nodes; an address can bring its own.",
    ),
    Term(
        "The lock",
        "is at each node the string key that one Redis would have, with a random value and a life in milliseconds. \
         redsync and node-redlock share it with --prefix '', pottery with --prefix redlock:. Such clients ask again and \
         again, so they get it when nobody waits with dlock. A lock that somebody has at a minority of the nodes is none.",
    ),
    Term(
        "--max-ttl DURATION",
        "is the longest ttl, one minute if nothing else is said; a longer --ttl is cut to it. A node that was restarted has no say \
         for so long, in case it forgot a lock, so a Redlock whose nodes have all just started gives nothing yet: that is 69, \
         and says for how long. All users of a lock must say the same, and name the same nodes. A flag --max-ttl for \
         another service is refused (64); in the environment or a configuration file it is passed over.",
    ),
    Term(
        "What it promises",
        "At most one holder, or N of --slots N, as long as the nodes' clocks run at nearly the same rate and a majority \
         remembers what it said. The time is counted from before the nodes were asked, and a renewal needs a \
         majority. What was acquired at a minority is given back at once.",
    ),
    Term(
        "What it does not promise",
        "That a jump of wall clocks, an eviction policy, or an operator who deletes keys on a majority gives nothing away. \
         Order is best effort, and a place in line is not shown: claims hold in order of arrival where the nodes agree on \
         it. The token rises from hold to hold as long as a majority keeps its data, and can go back if more lose it. Where two \
         at once would do damage use etcd or zk, or let the guarded resource check DLOCK_TOKEN.",
    ),
    Term("Rights of a user", "as for one Redis; without info, which says when a node was started, it is 77."),
];

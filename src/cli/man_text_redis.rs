//! What the manual says of Redis.

use super::man_text::Piece::{self, Code, Term, Text};

/// Of `dlock-run(1)`.
pub(super) const REDIS: &[Piece] = &[
    Text("One Redis of version 6.2 or newer. Its addresses are"),
    Code(
        "redis://HOST:PORT/DB\nrediss://HOST:PORT/DB\nunix:PATH?db=DB\nredis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB\n\
         redis+cluster://HOST:PORT,HOST:PORT",
    ),
    Text(
        "without a port 6379, or 26379 of a sentinel, and without a number database 0. Sentinels and clusters are \
         reached encrypted if --cacert, --cert or --tls-server-name is given.",
    ),
    Term(
        "The lock",
        "is the string key dlock:NAME, with braces and % in the name as %XX. With --prefix P it is P and the name as it \
         is: with an empty one redis-py, redsync and other clients that use SET NX PX and compare before they delete share \
         the lock. Those ask again and again, so they get it when nobody waits with dlock. Keys that begin with a brace \
         and contain :dlock: are dlock's own.",
    ),
    Term(
        "What it promises",
        "Claims hold in order of arrival. A hold that is deleted is noticed at once, a claim that is abandoned is gone \
         within a second after its ttl. Nothing is polled, unless a proxy or a missing right forbids CLIENT TRACKING: \
         then those who wait look every 500 ms.",
    ),
    Term(
        "What it cannot",
        "A failover loses what the new master has not copied, and a lock can then be given twice; so can a restart \
         without an append-only file, an eviction policy, and a jump of the server's clock. Tokens can go back with the \
         data. dlock doctor says what of this is so, and dlock run warns of it while the command runs.",
    ),
    Term(
        "Several names in a cluster",
        "Names of one slot are taken in one step. Names of different slots are taken one slot after another, in the order \
         of the slots and each only when the former are held, so nobody overtakes and no two wait for each other for ever; \
         who waits for the second slot keeps the first. Give names that belong together the same {tag} and a --prefix.",
    ),
    Term(
        "While it is not quite there",
        "A server that loads its data, or has no memory left (maxmemory), takes no new claim: that is waited out within \
         --wait, and is 69 in the end. Whoever holds already renews and releases all the same. While a slot moves to \
         another node of a cluster, exclusive holds on one name go on, and whoever comes waits for the end of that; shared, \
         slot and several-name holds go on if the slot does not take longer than the lease.",
    ),
    Term("Settings of the server", "maxmemory-policy noeviction and appendonly yes."),
    Term(
        "Rights of a user",
        "~dlock:* ~{dlock:* +@all -@dangerous +info; without info the risks stay unknown. A wrong login is 77 and takes \
         nothing as the default user.",
    ),
];

//! What the manual says of PostgreSQL.

use super::man_text::Piece::{self, Code, Term, Text};

/// Of `dlock-run(1)`.
pub(super) const POSTGRES: &[Piece] = &[
    Text("PostgreSQL 13 or newer. Its addresses are"),
    Code("postgres://USER@HOST:PORT,HOST:PORT/DB?sslmode=MODE\npostgres:///DB?host=DIRECTORY"),
    Text(
        "also with postgresql://. What is left out is taken as psql takes it, from PGHOST, PGHOSTADDR, PGPORT, PGUSER, PGDATABASE, \
         PGSSLMODE, PGSSLROOTCERT, PGSSLCERT, PGSSLKEY and PGOPTIONS; the password from --password-file or DLOCK_PASSWORD, else \
         PGPASSWORD, else the file that PGPASSFILE names or ~/.pgpass, if nobody else may read it. Service files are \
         not read: PGSERVICE without --endpoint is refused. A host that begins \
         with / is the directory of a socket (in an address as %2F).",
    ),
    Term(
        "Tables",
        "dlock_lock, dlock_claim and dlock_gone are made on first use. With --prefix P they begin with P, which may name \
         a schema first (ops.dlock_). Without the right to make or use them it is 77; dlock doctor --schema prints \
         them, and the rights that a user needs. A lock leaves one row with its last token behind.",
    ),
    Term(
        "What it promises",
        "Claims hold in order of arrival, by the database's clock. Claims and renewals are on disk before they count; \
         a release for which nobody waits is not waited for, so after a crash of the database within half a second the lock is free only when \
         its lease has run out. Who waits is woken by a message (NOTIFY); one that is lost costs a third of the ttl. \
         Behind a transaction pooler, which cannot pass messages on, those who wait look every 500 ms.",
    ),
    Term(
        "Several servers",
        "The one that takes writes is used. A standby that copies asynchronously may lack the last claims when it takes \
         over, and a lock can then be given twice and tokens go back; set synchronous_standby_names.",
    ),
    Term(
        "Connections",
        "Each dlock has one. A server without a free one (max_connections, a role's or database's CONNECTION LIMIT) is tried \
         again every quarter of a second, as long as the wait is: who has no connection is not in line yet, and those come in \
         as they find room. With each hand-over the server wakes its processes of all that wait in the database, so that \
         lines of many hundreds are slow.",
    ),
    Term(
        "Encryption",
        "is as sslmode says: disable, allow, prefer, require, verify-ca or verify-full. If nobody says, it is prefer, \
         which believes every server; --cacert or --tls-server-name make it verify-full, and --cert and --key require. \
         The authority is that of --cacert, sslrootcert, PGSSLROOTCERT or ~/.postgresql/root.crt, else those of the \
         system.",
    ),
    Code("dlock run --endpoint postgres://ci@db1,db2/ops --name deploy -- ./deploy.sh"),
];

//! What the manual says of MySQL and MariaDB.

use super::man_text::Piece::{self, Code, Term, Text};

/// Of `dlock-run(1)`.
pub(super) const MYSQL: &[Piece] = &[
    Text("MySQL 8.0 or newer, MariaDB 10.5 or newer; tried on MariaDB 10.11. Its addresses are"),
    Code("mysql://USER@HOST:PORT,HOST:PORT/DB?ssl-mode=MODE\nmysql://USER@/DB?socket=PATH"),
    Text(
        "also with mariadb://. What is left out is taken as the mysql client takes it: host, port, socket, protocol, user, \
         password, database, ssl-ca, ssl-cert, ssl-key and ssl-mode of the groups client, client-server, client-mariadb, \
         mysql, mariadb and mariadb-client in /etc/my.cnf, /etc/mysql/my.cnf and ~/.my.cnf with what they include; else \
         MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_UNIX_PORT and MYSQL_PWD; else localhost and 3306. localhost without a port in \
         the address is the socket. The password of --password-file or DLOCK_PASSWORD goes over the others. \
         .mylogin.cnf is not read. A database must be named, unless the prefix does.",
    ),
    Term(
        "Tables",
        "dlock_lock, dlock_claim and dlock_gone (InnoDB) are made on first use. With --prefix P they begin with P, which \
         may name a database first (ops.dlock_). Without the right to make or use them it is 77; dlock doctor --schema \
         prints them, and the rights that a user needs: SELECT, INSERT, UPDATE and DELETE. A database that does not exist is \
         69. A lock leaves one row with its last token behind.",
    ),
    Term(
        "What it promises",
        "Claims hold in order of arrival, by the database's clock. They are as durable as innodb_flush_log_at_trx_commit = 1 \
         makes them. Who waits is woken by a user-level lock (GET_LOCK) or by KILL QUERY from a connection of the same user; \
         where that is not allowed, or is lost, it costs a third of the ttl. Where each statement may go to another connection, those who wait look every 500 ms, as does \
         dlock watch.",
    ),
    Term(
        "Several servers",
        "The one that takes writes is used; read_only is respected also by users whom it does not bind. Several servers that \
         all take writes (Galera, group replication without a single primary) are refused with 64: name one, the same \
         everywhere. A replica that copies asynchronously may lack the last claims when it takes over, and a lock can then be \
         given twice and tokens go back. binlog_format = STATEMENT is refused.",
    ),
    Term(
        "Connections",
        "Each dlock that waits, or holds for longer than 0.1 s, has two; --slots and several names change nothing. A server \
         without a free one (max_connections, MAX_USER_CONNECTIONS) is tried again every quarter of a second, as long as the \
         wait is: who has no connection is not in line yet, and those come in as they find room. Who is in line and finds no \
         second one looks every 500 ms instead of being told. max_connections of twice the longest line is enough.",
    ),
    Term(
        "Encryption",
        "is as ssl-mode says: disabled, preferred, required, verify_ca or verify_identity. If nobody says, it is \
         disabled on this host, else required with a password and preferred without one: where a connection is not encrypted, \
         whoever poses as the server can get the password. --cacert, --cert and --key make it verify_identity, ssl-ca in an option file verify_ca. \
         A given authority is believed beside those of the system. The certificate must have the host of the address: \
         --tls-server-name is refused.",
    ),
    Code("dlock run --endpoint mysql://ci@db1,db2/ops --name deploy -- ./deploy.sh"),
];

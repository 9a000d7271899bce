//! The services that the manual of `run` has a section on.

use super::man_text::Section;

/// Of `dlock-run(1)`, after everything else.
pub const SERVICES: &[Section] = &[
    ("ETCD", super::man_text_etcd::ETCD),
    ("MYSQL AND MARIADB", super::man_text_mysql::MYSQL),
    ("POSTGRESQL", super::man_text_postgres::POSTGRES),
    ("REDIS", super::man_text_redis::REDIS),
    ("REDLOCK", super::man_text_redlock::REDLOCK),
    ("ZOOKEEPER", super::man_text_zookeeper::ZOOKEEPER),
];

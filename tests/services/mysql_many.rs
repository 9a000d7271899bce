//! The ways in which waiters on a MariaDB learn of changes.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::mysql::env_on;
use crate::servers::{Server, mariadb};
use crate::sql_settings;
use crate::support::test_env::{Holder, release_all};
use crate::support::wait::{let_pass, until_true};
use crate::support::within;

/// Returns the connections that sleep until the claim ahead of theirs is gone.
fn sleepers(server: &Server) -> Vec<String> {
    let which = "SET sql_select_limit = 999, sql_big_selects = 1; SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() \
                 AND INFO LIKE '%IF(GET_LOCK(@dlock_ahead%'";
    mariadb::ask(server, which).lines().map(str::to_owned).collect()
}

/// Returns the number of connections, without the one that asks.
fn connections(server: &Server) -> usize {
    let count =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND DB = 'locks'";
    mariadb::ask(server, count).trim().parse().expect("a number")
}

#[test]
fn waiter_has_one_connection_and_replaces_a_killed_one() {
    let server = mariadb::start();
    let env = env_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let holder = env.held(&long);
    let waiter = env.hold(&long);
    env.await_waiters("x", 1);
    until_true("it sleeps", || sleepers(&server).len() == 1);
    let before = sleepers(&server);
    mariadb::ask(&server, &format!("KILL {}", before[0]));
    // The next renewal is minutes away.
    until_true("it sleeps again", || sleepers(&server).len() == 1 && sleepers(&server) != before);
    mariadb::ask(&server, &format!("KILL QUERY {}", sleepers(&server)[0]));
    until_true("it sleeps once more", || sleepers(&server).len() == 1);
    until_true("one connection each", || connections(&server) == 2);
    // The sleep is minutes long.
    let begun = Instant::now();
    waiter.running.signal(Signal::TERM);
    waiter.running.finish();
    within(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(holder.release().code(), Some(0));
    env.assert_free("x");
}

/// All of them may hold once the writer is gone, and none of them leaves before.
#[test]
fn many_readers_hold_as_soon_as_the_writer_leaves() {
    // More than ten are ahead of the last ones.
    const READERS: usize = 14;
    let server = mariadb::start();
    let env = env_on(&server);
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let writer = env.held(&long);
    let mut readers = Vec::new();
    for count in 1..=READERS {
        readers.push(env.hold(&[&long[..], &["--shared"]].concat()));
        env.await_waiters("x", count);
    }
    until_true("they sleep", || sleepers(&server).len() == READERS);
    writer.release().silently(0);
    // The next renewal is minutes away.
    readers.iter_mut().for_each(Holder::await_start);
    release_all(readers);
}

/// Settings that another program may want. Each occurred in practice, or changes the meaning of a statement.
const SETTINGS: &str = "SET GLOBAL sql_safe_updates = 1, GLOBAL sql_select_limit = 1, GLOBAL max_join_size = 1, \
     GLOBAL max_statement_time = 1, GLOBAL lock_wait_timeout = 1, GLOBAL innodb_lock_wait_timeout = 1, \
     GLOBAL wait_timeout = 1, GLOBAL interactive_timeout = 1, GLOBAL idle_transaction_timeout = 1, \
     GLOBAL net_read_timeout = 1, GLOBAL net_write_timeout = 1, GLOBAL tx_isolation = 'SERIALIZABLE', \
     GLOBAL sql_mode = 'ORACLE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL,HIGH_NOT_PRECEDENCE,\
     ONLY_FULL_GROUP_BY,IGNORE_SPACE,SIMULTANEOUS_ASSIGNMENT,PAD_CHAR_TO_FULL_LENGTH,TRADITIONAL', \
     GLOBAL unique_checks = 0, GLOBAL foreign_key_checks = 0, GLOBAL sql_auto_is_null = 1, \
     GLOBAL default_storage_engine = MyISAM, GLOBAL time_zone = '+13:00', GLOBAL group_concat_max_len = 4, \
     GLOBAL max_sort_length = 64, GLOBAL div_precision_increment = 0, GLOBAL tmp_table_size = 1024, \
     GLOBAL max_heap_table_size = 16384, GLOBAL sql_notes = 0, GLOBAL sql_if_exists = 1, \
     GLOBAL low_priority_updates = 1, GLOBAL optimizer_search_depth = 0, GLOBAL tx_read_only = 1";

#[test]
fn settings_for_other_programs_change_nothing() {
    let server = mariadb::start_with(&[
        "--autocommit=0",
        "--completion-type=CHAIN",
        "--skip-character-set-client-handshake",
        "--character-set-server=utf16",
        "--collation-server=utf16_general_ci",
    ]);
    let env = env_on(&server);
    let risks = sql_settings::risks(&env);
    mariadb::ask(&server, SETTINGS);
    sql_settings::assert_all_works(&env, || {
        until_true("they sleep", || sleepers(&server).len() == 3);
        let before = sleepers(&server);
        let_pass(Duration::from_secs(4));
        assert_eq!(sleepers(&server), before, "a time limit ended a sleep or a connection");
    });
    assert_eq!(sql_settings::risks(&env), risks);
    // A claim that lost a connection leaves a note, which keeps out requests sent over that connection.
    let entries = "SET sql_big_selects = 1; SELECT COUNT(*) FROM locks.dlock_claim WHERE name < _binary'~'";
    assert_eq!(mariadb::ask(&server, entries), "0\n");
}

//! A batch of statements over one connection, and what it gave.

use futures_util::{FutureExt as _, TryStreamExt as _};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{Column as _, Connection as _, Either, Executor as _, Row as _};

use super::language;
use crate::backend::sql::dialect::{Row, Sets};

/// What servers may have set otherwise for every session: without its own commits a statement outside of a step begins
/// a transaction, in which no step can begin; a chained one begins another behind each step.
pub(super) const HABITS: &str =
    "SET SESSION autocommit = 1, SESSION completion_type = 0, SESSION sql_safe_updates = 0;";

/// The rows of one set.
type Set = (bool, Vec<Row>);

/// What the statements of `batch` gave, and the user-level locks of those connections that are to be woken.
pub(super) async fn ask(
    connection: &mut MySqlConnection,
    batch: &str,
) -> Result<(Sets, Vec<String>), sqlx::Error> {
    let (mut sets, mut wake) = (Sets::new(), Vec::new());
    let mut current: Option<Set> = None;
    let mut replies = connection.fetch_many(sqlx::raw_sql(batch));
    while let Some(reply) = replies.try_next().await? {
        match reply {
            Either::Right(row) => {
                let (_, rows) = current.get_or_insert_with(|| (wakes(&row), Vec::new()));
                rows.push(columns(&row)?);
            }
            Either::Left(_) => match current.take() {
                Some((true, rows)) => wake.extend(rows.into_iter().filter_map(|row| row.into_iter().next()?)),
                Some((false, rows)) => sets.push(rows),
                None => {}
            },
        }
    }
    Ok((sets, wake))
}

fn wakes(row: &MySqlRow) -> bool {
    row.columns().first().is_some_and(|column| column.name() == language::WAKE)
}

fn columns(row: &MySqlRow) -> Result<Row, sqlx::Error> {
    (0..row.len()).map(|n| row.try_get_unchecked::<Option<String>, _>(n)).collect()
}

/// Closes a connection on which nothing is under way. Servers write a warning for each that just ends.
pub(super) fn say_goodbye(connection: MySqlConnection) {
    // The few bytes go out at once or not at all.
    drop(connection.close().now_or_never());
}

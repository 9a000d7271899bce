//! Executing a batch of statements over one connection.

use futures_util::{FutureExt as _, TryStreamExt as _};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{Connection as _, Either, Executor as _, Row as _};

use crate::backend::sql::dialect::{Row, Sets};

/// Executes `batch` and returns its results.
pub(super) async fn ask(connection: &mut MySqlConnection, batch: &str) -> Result<Sets, sqlx::Error> {
    let (mut sets, mut rows) = (Sets::new(), Vec::new());
    let mut replies = connection.fetch_many(sqlx::raw_sql(batch));
    while let Some(reply) = replies.try_next().await? {
        match reply {
            Either::Right(row) => rows.push(columns(&row)?),
            Either::Left(_) if rows.is_empty() => {}
            Either::Left(_) => sets.push(std::mem::take(&mut rows)),
        }
    }
    Ok(sets)
}

fn columns(row: &MySqlRow) -> Result<Row, sqlx::Error> {
    (0..row.len()).map(|n| row.try_get_unchecked::<Option<String>, _>(n)).collect()
}

/// Closes an idle connection in an orderly way, because servers log a warning for each that just ends.
pub(super) fn say_goodbye(connection: MySqlConnection) {
    // The few bytes are sent at once or not at all.
    drop(connection.close().now_or_never());
}

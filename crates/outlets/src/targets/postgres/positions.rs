//! What the database says that it has of an outlet: the table `heraldmq_positions`, with a row for each outlet.
//!
//! A transaction locks the row before it writes anything else, and whoever opens the outlet locks it too. So the position that opening
//! gives has all that was written before, and a transaction of an earlier process, or of a connection that this one has given up, can
//! write nothing afterwards: the rows are sent when the lock is held.

use std::sync::Arc;

use outlet::{Incarnation, OpenError, Position, Sequence};
use postgres_client::Connection;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::judge::in_words;
use crate::epoch::Epoch;

/// The statement that makes the table.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS heraldmq_positions (outlet text PRIMARY KEY, epoch bigint NOT NULL, incarnation bigint, sequence bigint)";

/// `RETURNING` gives nothing if a later process has the outlet.
const CLAIM: &str = "INSERT INTO heraldmq_positions AS p (outlet, epoch) VALUES ($1, $2) \
     ON CONFLICT (outlet) DO UPDATE SET epoch = excluded.epoch WHERE p.epoch <= excluded.epoch RETURNING p.incarnation, p.sequence";

/// Hits no row if a later process has the outlet. Batches without a position leave it as it is.
const NOTE: &str = "UPDATE heraldmq_positions SET epoch = $2, incarnation = coalesce($3, incarnation), sequence = coalesce($4, sequence) \
     WHERE outlet = $1 AND epoch <= $2";

/// The row of an outlet, which is this process's until a later one claims it.
#[derive(Debug)]
pub(super) struct Claim {
    outlet: String,
    epoch: Epoch,
    note: Statement,
}

/// Whether the table is there.
pub(super) async fn is_there(connection: &Connection) -> Result<bool, Error> {
    let row = connection
        .query_one("SELECT to_regclass('heraldmq_positions') IS NOT NULL", &[])
        .await?;
    row.try_get(0)
}

impl Claim {
    /// Claims the outlet, and gives the position of what the database has of it. Waits for a transaction of it that is under way.
    ///
    /// # Errors
    /// A later process has it; the table cannot be made or used.
    pub(super) async fn new(
        connection: &Connection,
        outlet: String,
        epoch: Epoch,
    ) -> Result<(Self, Option<Position>), OpenError> {
        let failed = |error: Error| OpenError::Retry(in_words(&error));
        if !is_there(connection).await.map_err(failed)? {
            connection.batch_execute(TABLE).await.map_err(|error| {
                let why = in_words(&error);
                OpenError::Retry(format!("the table of positions cannot be made: {why}; somebody who may has to run: {TABLE}").into())
            })?;
        }
        let named = |error: Error| {
            OpenError::Retry(format!("heraldmq_positions: {}", in_words(&error)).into())
        };
        let number = signed(epoch.0);
        let claimed = connection
            .query_opt(CLAIM, &[&outlet, &number])
            .await
            .map_err(named)?;
        let row = claimed.ok_or(OpenError::Fenced)?;
        let position = position(&row).map_err(named)?;
        let note = connection.prepare(NOTE).await.map_err(named)?;
        let claim = Self {
            outlet,
            epoch,
            note,
        };
        Ok((claim, position))
    }

    /// Begins a transaction with the position that it brings. False: a later process has the outlet.
    ///
    /// # Errors
    /// Whatever fails; there is no transaction then, or the connection is over.
    pub(super) async fn begin(
        &self,
        connection: &Connection,
        position: Option<Position>,
    ) -> Result<bool, Error> {
        let epoch = signed(self.epoch.0);
        let incarnation = position.map(|position| signed(position.incarnation.0));
        let sequence = position.map(|position| signed(position.sequence.0));
        let values: [&(dyn ToSql + Sync); 4] = [&self.outlet, &epoch, &incarnation, &sequence];
        // Both are under way at once.
        let begun = connection.batch_execute("BEGIN");
        let noted = connection.execute(&self.note, &values);
        let (begun, noted) = futures_util::future::join(begun, noted).await;
        begun?;
        Ok(noted? == 1)
    }
}

/// PostgreSQL has no numbers without sign.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn position(row: &Row) -> Result<Option<Position>, Error> {
    let incarnation: Option<i64> = row.try_get(0)?;
    let sequence: Option<i64> = row.try_get(1)?;
    Ok(incarnation
        .zip(sequence)
        .map(|(incarnation, sequence)| Position {
            incarnation: Incarnation(incarnation.cast_unsigned()),
            sequence: Sequence(sequence.cast_unsigned()),
        }))
}

/// The name of an outlet in the table: of several clusters each has rows of its own.
pub(super) fn key(cluster: &str, name: &str) -> String {
    match cluster {
        "" => name.to_owned(),
        cluster => format!("{cluster}/{name}"),
    }
}

/// For a transaction that was not begun.
pub(super) fn not_open() -> Arc<str> {
    "the database is not connected".into()
}

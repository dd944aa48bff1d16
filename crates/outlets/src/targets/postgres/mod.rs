//! Messages are rows of PostgreSQL, each once.
//!
//! A batch is one transaction, which notes in the same database up to which position the outlet's messages are there
//! (`positions.rs`). When the answer to COMMIT is lost, opening says whether the batch is there.

mod definition;
mod judge;
mod positions;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use outlet::{Delivery, Item, OpenError, Position, Refusal};
use postgres_client::{Connection, Connector};
use tokio::time::timeout;
use tokio_postgres::Config;

pub use definition::{ColumnDefinition, PostgresDefinition, RowsDefinition};
use judge::{Failure, in_words};
use positions::Claim;
use rows::{Prepared, Rendered, Rows};

use crate::epoch::Epoch;
use crate::secret::read_secret;

#[derive(Debug)]
pub(crate) struct PostgresTarget {
    /// The name of the outlet in the table of positions.
    key: String,
    definition: PostgresDefinition,
    /// Without the password.
    server: Config,
    rows: Rows,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    claim: Claim,
    prepared: Prepared,
}

impl PostgresTarget {
    pub(crate) fn new(
        name: &str,
        cluster: &str,
        definition: &PostgresDefinition,
    ) -> Result<Self, String> {
        let server: Config = (definition.url.parse()).map_err(|error: tokio_postgres::Error| {
            format!("url: {}", http_client::with_causes(&error))
        })?;
        // The URL is shown here and there; files with secrets are not.
        if server.get_password().is_some() {
            return Err("url: a password must be in passwordFile".to_owned());
        }
        let target = Self {
            key: positions::key(cluster, name),
            definition: definition.clone(),
            server,
            rows: Rows::new(&definition.rows)?,
            open: None,
        };
        target.connector()?;
        Ok(target)
    }

    /// Reads the files again, so that what was replaced counts after the next failure.
    fn connector(&self) -> Result<Connector, String> {
        let mut server = self.server.clone();
        if let Some(path) = &self.definition.password_file {
            server.password(read_secret(path)?);
        }
        Connector::new(server, self.definition.ca_file.as_deref())
    }

    /// A connection on which no statement takes longer than it may, and on which a transaction ends soon after this machine is gone.
    async fn connect(&self) -> Result<Connection, String> {
        let connector = self.connector()?;
        let failed = |error| in_words(&error).to_string();
        let connection = connector.connect().await.map_err(failed)?;
        let limit = self.definition.timeout.as_millis();
        let limits = format!(
            "SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {limit}"
        );
        connection.batch_execute(&limits).await.map_err(failed)?;
        Ok(connection)
    }

    pub(crate) async fn open(&mut self, epoch: Epoch) -> Result<Option<Position>, OpenError> {
        // The connection before must not hold the row of the outlet.
        self.open = None;
        let opening = async {
            let connection = self
                .connect()
                .await
                .map_err(|why| OpenError::Retry(why.into()))?;
            let prepared = self
                .rows
                .prepare(&connection)
                .await
                .map_err(OpenError::Retry)?;
            let (claim, position) = Claim::new(&connection, self.key.clone(), epoch).await?;
            let open = Open {
                connection,
                claim,
                prepared,
            };
            Ok((open, position))
        };
        let opened = timeout(self.definition.timeout, opening).await;
        let (open, position) =
            opened.unwrap_or_else(|_| Err(OpenError::Retry(too_late().into())))?;
        self.open = Some(open);
        Ok(position)
    }

    pub(crate) async fn deliver(&mut self, batch: &[Arc<Item>]) -> Delivery {
        let (rendered, count, unwritable) = self.rows.render(batch);
        let mut written = self.write(batch, &rendered, count).await;
        let mut refused = unwritable.map(|why| (count, why));
        if let Err(Failure::Refused { at: Some(at), why }) = &written {
            // The messages before it go without it.
            refused = Some((*at, Arc::clone(why)));
            written = self.write(batch, &rendered, *at).await;
        }
        let delivery = match (written, refused) {
            (Ok(()), None) => Delivery::All,
            (Ok(()), Some((place, why))) => Delivery::Refused {
                which: Refusal::At(place),
                why,
            },
            (Err(Failure::Refused { why, .. }), _) => Delivery::Refused {
                which: if count == 1 {
                    Refusal::At(0)
                } else {
                    Refusal::One
                },
                why,
            },
            (Err(Failure::Later(why)), _) => Delivery::Retry { after: None, why },
            (Err(Failure::Fenced), _) => Delivery::Fenced,
        };
        if matches!(delivery, Delivery::Retry { .. } | Delivery::Fenced) {
            self.open = None;
        }
        delivery
    }

    /// Has the first `count` messages written, all or none.
    async fn write(
        &self,
        batch: &[Arc<Item>],
        rendered: &Rendered,
        count: usize,
    ) -> Result<(), Failure> {
        let batch = batch.get(..count).unwrap_or(batch);
        if batch.is_empty() {
            return Ok(());
        }
        let position = batch.iter().rev().find_map(|item| item.position);
        let Some(open) = &self.open else {
            return Err(Failure::Later(positions::not_open()));
        };
        let transaction = self.transact(open, position, rendered, count);
        match timeout(self.definition.timeout, transaction).await {
            Ok(done) => done,
            Err(_) => Err(Failure::Later(too_late().into())),
        }
    }

    async fn transact(
        &self,
        open: &Open,
        position: Option<Position>,
        rendered: &Rendered,
        count: usize,
    ) -> Result<(), Failure> {
        let connection = &open.connection;
        let begun = open.claim.begin(connection, position).await;
        if !begun.map_err(|error| Failure::later(&error))? {
            return Err(Failure::Fenced);
        }
        if let Err(failure) = self
            .rows
            .write(connection, &open.prepared, rendered, count)
            .await
        {
            // Without an answer nobody knows whether the next transaction would be one.
            let ended = connection.batch_execute("ROLLBACK").await;
            ended.map_err(|error| Failure::later(&error))?;
            return Err(failure);
        }
        // Constraints that are deferred are judged here. The server has rolled back then.
        let committed = connection.batch_execute("COMMIT").await;
        committed.map_err(|error| Failure::of(&error, |_| None))
    }

    /// Writes nothing.
    pub(crate) async fn probe(&mut self) -> Result<String, String> {
        let looking = async {
            let connection = self.connect().await?;
            let failed = |error| in_words(&error).to_string();
            let row = connection
                .query_one("SHOW server_version", &[])
                .await
                .map_err(failed)?;
            let version: String = row.try_get(0).map_err(failed)?;
            let prepared = self.rows.prepare(&connection).await;
            prepared.map_err(|why| why.to_string())?;
            if let Some(table) = self.rows.table() {
                let may = "SELECT has_any_column_privilege($1::text, 'INSERT')";
                let row = connection.query_one(may, &[&table]).await.map_err(failed)?;
                if !row.try_get::<_, bool>(0).map_err(failed)? {
                    return Err(format!("the user may not insert into {table}"));
                }
            }
            let positions = match positions::is_there(&connection).await.map_err(failed)? {
                true => "heraldmq_positions is there",
                false => "heraldmq_positions will be made",
            };
            Ok(format!("PostgreSQL {version}: {}; {positions}", self.rows))
        };
        let looked = timeout(self.definition.timeout, looking).await;
        looked.unwrap_or_else(|_| Err(too_late().to_owned()))
    }
}

fn too_late() -> &'static str {
    "the database does not answer in time"
}

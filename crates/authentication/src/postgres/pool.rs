//! Connections to the database.
//!
//! Invariants: there are no more queries at once than connections are allowed; a connection on which anything
//! failed is not used again; what a restart of the server breaks is tried once more on a new connection.

use std::fmt;
use std::time::Duration;

use authorization::MAX_LOGIN_RULES;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http_client::with_causes;
use parking_lot::Mutex;
use postgres_client::Connector;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, Statement};

/// What is asked of the database, and how long that may take.
#[derive(Debug)]
pub(super) struct Queries {
    pub(super) user: String,
    pub(super) rules: Option<String>,
    pub(super) timeout: Duration,
}

/// Rows that are read at most: one more than may be.
const MAX_USERS: usize = 2;
const MAX_RULES: usize = MAX_LOGIN_RULES + 1;

/// The parameters of both queries: user name, client identifier, address.
pub(super) type Parameters<'a> = [Option<&'a str>; 3];

/// What the database says about a client.
#[derive(Debug)]
pub(super) struct Found {
    /// More than one are a mistake.
    pub(super) users: Vec<Row>,
    /// The user's rules.
    pub(super) rules: Vec<Row>,
}

/// Connections that wait for the next login, and how to make more.
pub(super) struct Pool {
    connector: Connector,
    queries: Queries,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool of {} idle connections", self.idle.lock().len())
    }
}

impl Pool {
    pub(super) fn new(connector: Connector, queries: Queries, size: usize) -> Self {
        Self {
            connector,
            queries,
            permits: Semaphore::new(size),
            idle: Mutex::default(),
        }
    }

    /// Whether a query names a parameter, such as `$1`.
    pub(super) fn names(&self, parameter: &str) -> bool {
        let Queries { user, rules, .. } = &self.queries;
        user.contains(parameter) || rules.as_ref().is_some_and(|q| q.contains(parameter))
    }

    /// Looks a client up, within the time limit.
    ///
    /// # Errors
    /// Why there is no answer, for the log.
    pub(super) async fn look_up(&self, parameters: &Parameters<'_>) -> Result<Found, String> {
        let limit = self.queries.timeout;
        match timeout(limit, self.look_up_in_turn(parameters)).await {
            Ok(found) => found.map_err(|error| with_causes(&error)),
            Err(_) => {
                // The other connections may lead to nowhere, too.
                self.idle.lock().clear();
                Err(format!("no answer in {} ms", limit.as_millis()))
            }
        }
    }

    async fn look_up_in_turn(&self, parameters: &Parameters<'_>) -> Result<Found, Error> {
        let _permit = self.permits.acquire().await;
        let idle = self.idle.lock().pop();
        if let Some(connection) = idle
            && let Ok(found) = connection.look_up(parameters).await
        {
            return Ok(self.keep(connection, found));
        }
        let connection = Connection::open(&self.connector, &self.queries).await?;
        let found = connection.look_up(parameters).await?;
        Ok(self.keep(connection, found))
    }

    fn keep(&self, connection: Connection, found: Found) -> Found {
        self.idle.lock().push(connection);
        found
    }
}

/// A connection with its prepared statements.
struct Connection {
    client: postgres_client::Connection,
    user: Statement,
    rules: Option<Statement>,
}

impl Connection {
    async fn open(connector: &Connector, queries: &Queries) -> Result<Self, Error> {
        let client = connector.connect().await?;
        // A query that nobody waits for any more must not go on in the server.
        let limit = queries.timeout.as_millis();
        client
            .batch_execute(&format!("SET statement_timeout = {limit}"))
            .await?;
        let rules = match &queries.rules {
            Some(query) => Some(prepare(&client, query).await?),
            None => None,
        };
        Ok(Self {
            user: prepare(&client, &queries.user).await?,
            rules,
            client,
        })
    }

    /// Asks for the rules of unknown users as well: one way to the server and back, for everybody.
    async fn look_up(&self, parameters: &Parameters<'_>) -> Result<Found, Error> {
        let rules = async {
            match &self.rules {
                Some(statement) => self.rows(statement, parameters, MAX_RULES).await,
                None => Ok(Vec::new()),
            }
        };
        let (users, rules) = tokio::try_join!(self.rows(&self.user, parameters, MAX_USERS), rules)?;
        Ok(Found { users, rules })
    }

    async fn rows(
        &self,
        statement: &Statement,
        parameters: &Parameters<'_>,
        limit: usize,
    ) -> Result<Vec<Row>, Error> {
        let rows = self.client.query_raw(statement, parameters).await?;
        rows.take(limit).try_collect().await
    }
}

/// Also a query that uses only some of the parameters has all of them.
async fn prepare(client: &Client, query: &str) -> Result<Statement, Error> {
    client
        .prepare_typed(query, &[Type::TEXT, Type::TEXT, Type::TEXT])
        .await
}

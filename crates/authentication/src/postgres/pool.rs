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
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Error, NoTls, Row, Socket, Statement};

use super::tls::Tls;

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
    server: Config,
    /// `None`: connections are not encrypted.
    tls: Option<Tls>,
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
    pub(super) fn new(server: Config, tls: Option<Tls>, queries: Queries, size: usize) -> Self {
        Self {
            server,
            tls,
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
        let connection = self.connect().await?;
        let found = connection.look_up(parameters).await?;
        Ok(self.keep(connection, found))
    }

    fn keep(&self, connection: Connection, found: Found) -> Found {
        self.idle.lock().push(connection);
        found
    }

    async fn connect(&self) -> Result<Connection, Error> {
        match &self.tls {
            Some(tls) => Connection::open(&self.server, tls.clone(), &self.queries).await,
            None => Connection::open(&self.server, NoTls, &self.queries).await,
        }
    }
}

/// A connection with its prepared statements.
struct Connection {
    client: Client,
    user: Statement,
    rules: Option<Statement>,
    _driver: Driver,
}

/// The task that reads and writes. It ends with this, whatever is under way.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    async fn open<T>(server: &Config, tls: T, queries: &Queries) -> Result<Self, Error>
    where
        T: MakeTlsConnect<Socket>,
        T::TlsConnect: Send,
        T::Stream: Send + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let (client, connection) = server.connect(tls).await?;
        let driver = Driver(tokio::spawn(async {
            if let Err(error) = connection.await {
                tracing::debug!("a connection to PostgreSQL ends: {}", with_causes(&error));
            }
        }));
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
            _driver: driver,
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

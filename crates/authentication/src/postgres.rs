//! A table of users in PostgreSQL.
//!
//! Purpose: one query finds a client's password hash, another its rules; docs/operate/security.md describes
//! their columns.
//!
//! Invariants: passwords that are not hashed are refused; a row that cannot be understood denies, and is named
//! in the log without what stands in it.

mod pool;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use authorization::{LoginRule, Rules};
use config::PostgresConfig;
use http_client::with_causes;
use parking_lot::Mutex;
use postgres_client::Connector;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Config, Row};

use crate::authenticator::{Asked, Authenticator, Opinion};
use crate::file;
use crate::hash_threads::HashThreads;
use crate::password_hash::PasswordHash;
use authentication_api::{Credentials, DatabaseUser, Denial, Identity, Secret};
use pool::{Pool, Queries};

/// Bytes that the file with the database's password may have.
const MAX_PASSWORD_BYTES: u64 = 8 << 10;

const PASSWORD_HASH: &str = "password_hash";
const IS_SUPERUSER: &str = "is_superuser";
const CLASS: &str = "class";

/// The database, and where passwords are checked.
#[derive(Debug)]
pub(crate) struct Postgres {
    name: String,
    pool: Pool,
    hashes: HashThreads,
    /// The hash that was read last, for passwords of users that are not known.
    decoy: Mutex<Option<Arc<PasswordHash>>>,
}

/// A row of the query for a user.
struct User {
    hash: Arc<PasswordHash>,
    is_superuser: bool,
    class: Option<Box<str>>,
}

impl Postgres {
    /// Reads password and certificates. The database is not asked yet.
    ///
    /// # Errors
    /// A setting that is missing or wrong, a file that cannot be read.
    pub(crate) fn open(
        name: String,
        config: &PostgresConfig,
        hashes: HashThreads,
    ) -> Result<Self, String> {
        let connector = Connector::new(server(config)?, config.ca_file.as_deref())
            .map_err(|reason| format!("postgres.{reason}"))?;
        let queries = Queries {
            user: config.query.clone(),
            rules: config.acl_query.clone(),
            timeout: config.timeout,
        };
        let size = usize::from(config.pool_size.get());
        Ok(Self {
            name,
            pool: Pool::new(connector, queries, size),
            hashes,
            decoy: Mutex::default(),
        })
    }

    /// What a client can be looked up by again: the parameters that the queries name.
    fn database_user(&self, credentials: &Credentials, address: Option<&str>) -> DatabaseUser {
        let named = |parameter| self.pool.names(parameter);
        DatabaseUser {
            username: credentials.username.clone().filter(|_| named("$1")),
            client_id: named("$2").then(|| credentials.client_id.clone()),
            address: address.filter(|_| named("$3")).map(Box::from),
        }
    }

    async fn find(&self, user: &DatabaseUser) -> Result<Opinion, String> {
        let found = self
            .pool
            .look_up(&[
                user.username.as_deref(),
                user.client_id.as_deref(),
                user.address.as_deref(),
            ])
            .await?;
        let row = match found.users.as_slice() {
            [] => return Ok(Opinion::Ignore),
            [row] => row,
            _ => return Err(format!("row of {user:?}: more than one row")),
        };
        let bad_row = |reason| format!("row of {user:?}: {reason}");
        let User {
            is_superuser,
            class,
            ..
        } = User::read(row).map_err(bad_row)?;
        Ok(Opinion::Allow(Box::new(Identity {
            username: user.username.clone(),
            is_superuser,
            class,
            rules: rules(&found.rules).map_err(bad_row)?,
            ..Identity::default()
        })))
    }

    async fn ask(&self, credentials: &Credentials) -> Result<Opinion, String> {
        let address = credentials.address.map(|address| address.to_string());
        let found = self
            .pool
            .look_up(&[
                credentials.username.as_deref(),
                Some(&credentials.client_id),
                address.as_deref(),
            ])
            .await?;
        let row = match found.users.as_slice() {
            [] => return self.ignore(credentials).await,
            [row] => row,
            _ => return Err(format!("{}: more than one row", whose(credentials))),
        };
        let bad_row = |reason| format!("{}: {reason}", whose(credentials));
        let user = User::read(row).map_err(bad_row)?;
        let rules = rules(&found.rules).map_err(bad_row)?;
        let Some(password) = &credentials.password else {
            return Ok(Opinion::Deny(Denial::WrongPassword));
        };
        *self.decoy.lock() = Some(Arc::clone(&user.hash));
        if !self.fits(user.hash, password).await? {
            return Ok(Opinion::Deny(Denial::WrongPassword));
        }
        Ok(Opinion::Allow(Box::new(Identity {
            username: credentials.username.clone(),
            is_superuser: user.is_superuser,
            class: user.class,
            rules,
            database: Some(Arc::new(
                self.database_user(credentials, address.as_deref()),
            )),
            ..Identity::default()
        })))
    }

    /// The next authenticator is asked, after as long as a known user would take: nobody learns from that
    /// who is known.
    async fn ignore(&self, credentials: &Credentials) -> Result<Opinion, String> {
        let decoy = self.decoy.lock().clone();
        if let (Some(hash), Some(password)) = (decoy, &credentials.password) {
            self.fits(hash, password).await?;
        }
        Ok(Opinion::Ignore)
    }

    async fn fits(&self, hash: Arc<PasswordHash>, password: &Secret) -> Result<bool, String> {
        let password = Secret::new(password.bytes());
        self.hashes
            .run(move || hash.fits(password.bytes()))
            .await
            .map_err(|error| error.to_string())
    }
}

impl Authenticator for Postgres {
    fn name(&self) -> &str {
        &self.name
    }

    fn look_up<'a>(&'a self, user: &'a DatabaseUser) -> Asked<'a> {
        Box::pin(async { self.find(user).await.unwrap_or_else(Opinion::Failed) })
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials) -> Asked<'a> {
        Box::pin(async { self.ask(credentials).await.unwrap_or_else(Opinion::Failed) })
    }
}

impl User {
    fn read(row: &Row) -> Result<Self, String> {
        let hash: &str = column(row, PASSWORD_HASH)?;
        let is_superuser: Option<bool> = if_present(row, IS_SUPERUSER)?;
        let class: Option<&str> = if_present(row, CLASS)?;
        Ok(Self {
            hash: PasswordHash::parse(hash)
                .map(Arc::new)
                .map_err(|error| format!("column {PASSWORD_HASH}: {error}"))?,
            is_superuser: is_superuser.unwrap_or(false),
            class: class.map(Box::from),
        })
    }
}

fn rules(rows: &[Row]) -> Result<Option<Arc<Rules>>, String> {
    if rows.is_empty() {
        return Ok(None);
    }
    let rules: Vec<LoginRule> = rows
        .iter()
        .zip(1..)
        .map(|(row, number)| rule(row).map_err(|reason| format!("rule {number}: {reason}")))
        .collect::<Result<_, _>>()?;
    Ok(Some(Arc::new(Rules::from_login(rules)?)))
}

fn rule(row: &Row) -> Result<LoginRule, String> {
    LoginRule::parse(
        column(row, "permission")?,
        column(row, "action")?,
        column(row, "topic")?,
    )
}

/// A column that a query may leave out, and that may be NULL.
fn if_present<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<Option<T>, String> {
    let mut columns = row.columns().iter();
    match columns.any(|column| column.name() == name) {
        true => column(row, name),
        false => Ok(None),
    }
}

fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, String> {
    row.try_get(name)
        .map_err(|error| format!("column {name}: {}", with_causes(&error)))
}

/// Names a row for the log.
fn whose(credentials: &Credentials) -> String {
    match &credentials.username {
        Some(username) => format!("row of user {username:?}"),
        None => format!("row of client {:?}", credentials.client_id),
    }
}

/// Where the database is.
fn server(config: &PostgresConfig) -> Result<Config, String> {
    let connection = config
        .connection
        .as_deref()
        .ok_or("postgres.connection is missing")?;
    let mut server: Config = connection
        .parse()
        .map_err(|error| format!("postgres.connection: {}", with_causes(&error)))?;
    // Settings are shown here and there; files with secrets are not.
    if server.get_password().is_some() {
        return Err("postgres.connection: a password must be in postgres.passwordFile".to_owned());
    }
    if let Some(file) = &config.password_file {
        let password = file::read_text(file, MAX_PASSWORD_BYTES)
            .map_err(|reason| format!("postgres.passwordFile {reason}"))?;
        server.password(password.trim_end_matches(['\r', '\n']));
    }
    Ok(server)
}

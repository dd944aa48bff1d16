//! Connections to PostgreSQL.
//!
//! Purpose: [`Connector`] is a server and the TLS towards it, [`Connection`] a connection with the task that reads and writes.
//!
//! Invariants: with `sslmode=require` the certificate of the server is verified; with any other mode the connection is not encrypted.
//! The task of a connection ends with it, whatever is under way.
//!
//! Deliberately absent: deadlines, pools, passwords from files, and what is asked of the database.

mod tls;

use std::path::Path;
use std::{fmt, ops};

use http_client::{authorities, tls_client, with_causes};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Error, NoTls, Socket};

use tls::Tls;

/// How connections to a server are made.
pub struct Connector {
    server: Config,
    /// `None`: connections are not encrypted.
    tls: Option<Tls>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        write!(f, "Connector to {:?}", self.server.get_hosts())
    }
}

impl Connector {
    /// Connections to `server`, by TLS if it says `sslmode=require`: the authorities are those of `ca_file`, or those of the system.
    /// The server gets the application name `heraldmq` unless another one is set.
    ///
    /// # Errors
    /// The file cannot be read, or there is no authority.
    pub fn new(mut server: Config, ca_file: Option<&Path>) -> Result<Self, String> {
        if server.get_application_name().is_none() {
            server.application_name("heraldmq");
        }
        let tls = match server.get_ssl_mode() {
            SslMode::Require => Some(Tls::new(tls_client(authorities(ca_file)?))),
            _ => None,
        };
        Ok(Self { server, tls })
    }

    /// Makes a connection. Takes as long as the server lets it take.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the user.
    pub async fn connect(&self) -> Result<Connection, Error> {
        match &self.tls {
            Some(tls) => Connection::open(&self.server, tls.clone()).await,
            None => Connection::open(&self.server, NoTls).await,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    client: Client,
    _driver: Driver,
}

impl ops::Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The task that reads and writes.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    async fn open<T>(server: &Config, tls: T) -> Result<Self, Error>
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
        Ok(Self {
            client,
            _driver: driver,
        })
    }
}

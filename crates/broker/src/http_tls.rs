//! TLS on the HTTP port, by the settings of listeners.
//!
//! Invariant: a reload changes what new connections get as a whole, or not at all.

use std::path::PathBuf;

use config::HttpConfig;
use transport::{ServerTls, Tickets, TlsFileError};

use crate::listeners::server_tls;
use crate::reread::{self, Reread};
use crate::start_error::StartError;

/// TLS as the port has it, with the files that it is read from.
#[derive(Debug)]
pub(crate) struct HttpTls {
    settings: ServerTls,
    files: Vec<PathBuf>,
    tickets: Tickets,
    port: admin::Tls,
}

impl HttpTls {
    /// `None`: the port is plain HTTP.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(crate) fn open(config: &HttpConfig) -> Result<Option<Self>, StartError> {
        // As of WebSocket, HTTP/1.1 is within.
        let Some(settings) = server_tls(&config.ssl, true) else {
            return Ok(None);
        };
        let tickets = Tickets::default();
        let loaded = settings.load(&tickets);
        let loaded = loaded.map_err(|source: TlsFileError| StartError::Certificate {
            kind: "HTTP",
            address: config.host.as_str().to_owned(),
            source,
        })?;
        Ok(Some(Self {
            settings,
            files: reread::tls_files(&config.ssl),
            tickets,
            port: admin::Tls::new(loaded),
        }))
    }

    pub(crate) fn port(&self) -> admin::Tls {
        self.port.clone()
    }

    /// Reads the files again. If one is broken, the old ones stay.
    pub(crate) fn reload(&self, reread: &mut Reread) {
        let loaded = self.settings.load(&self.tickets);
        reread.tell("certificates", self.files.clone(), loaded.is_ok());
        match loaded {
            Ok(config) => self.port.replace(config),
            Err(error) => tracing::error!(
                %error,
                "certificates not reloaded; the HTTP port keeps its present ones"
            ),
        }
    }
}

//! TLS between the bytes of a socket and those within: rustls without its buffers.
//!
//! Invariants: what is kept is one incomplete record or handshake message of at most [`INCOMPLETE_LIMIT`]
//! bytes, in memory of that size; an idle connection keeps none. Alerts are output before an error is
//! reported.
//!
//! Deliberately absent: early data (RFC 8446 §8: it could be replayed), renegotiation (rustls has none).

mod files;
mod hello;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{ClientConfig, CommonState, InvalidMessage};

pub use files::{ClientAuth, ClientTls, MinimumVersion, ServerTls, Tickets, TlsFileError};
pub(crate) use files::{blame, in_words};
pub use hello::ServerConfigs;

use net_api::Spoken;

use crate::TransportError;
use hello::Hello;

/// A record is at most 16 KiB and 261 bytes; a client's certificates may be longer.
///
/// Limit: an incomplete TLS record or handshake message | {:bytes} | the connection is closed
const INCOMPLETE_LIMIT: usize = 32 * 1024;

/// What a record adds to its content at most, in either version.
const RECORD_OVERHEAD: usize = 32;
const RECORD_CONTENT: usize = 16 * 1024;

/// One side of a TLS connection.
pub(crate) struct Tls {
    connection: Connection,
    /// Until the client's ClientHello is complete, `connection` is given nothing: the ClientHello decides about
    /// its configuration.
    hello: Option<Box<Hello>>,
    incomplete: Vec<u8>,
    /// The first byte that came, for an error that names the peer's mistake. 0: none yet.
    first: u8,
    /// Whether an error was reported. rustls may not be given anything then.
    failed: bool,
}

enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Deref for Connection {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        match self {
            Self::Server(server) => server,
            Self::Client(client) => client,
        }
    }
}

impl Connection {
    /// How many bytes of `input` are used up, and what was done with them.
    fn step(
        &mut self,
        input: &mut [u8],
        outgoing: Outgoing<'_>,
        inner: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> (usize, Result<Progress, rustls::Error>) {
        match self {
            Self::Server(server) => {
                step(server.process_tls_records(input), outgoing, inner, output)
            }
            Self::Client(client) => {
                step(client.process_tls_records(input), outgoing, inner, output)
            }
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("established", &self.is_established())
            .field("incomplete", &self.incomplete.len())
            .finish_non_exhaustive()
    }
}

/// What is to be sent once the connection can send.
#[derive(Clone, Copy)]
enum Outgoing<'a> {
    Nothing,
    Data(&'a [u8]),
    CloseNotify,
}

/// How far one step led.
enum Progress {
    /// There may be more to do.
    Step,
    /// What was to be sent is sealed, or the peer has to speak next.
    Done,
    /// The keys may not seal any more; close_notify is queued.
    Exhausted,
    /// The peer has said close_notify.
    Closed,
}

impl Tls {
    pub(crate) fn accept(configs: &ServerConfigs) -> Result<Self, rustls::Error> {
        let connection = UnbufferedServerConnection::new(configs.named())?;
        Ok(Self {
            hello: Hello::of(configs),
            ..Self::new(Connection::Server(connection))
        })
    }

    pub(crate) fn connect(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(Self::new(Connection::Client(connection)))
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            hello: None,
            incomplete: Vec::new(),
            first: 0,
            failed: false,
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        !self.connection.is_handshaking()
    }

    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates()?.first()
    }

    /// Takes records; appends plaintext to `inner`, and to `output` what TLS itself has to say.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        inner: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), TransportError> {
        if self.failed {
            return Err(TransportError::Closed);
        }
        if self.first == 0 {
            self.first = bytes.first().copied().unwrap_or(0);
        }
        self.incomplete.extend_from_slice(bytes);
        let received = match self.receive_hello() {
            Ok(true) => self.run(Outgoing::Nothing, inner, output),
            Ok(false) => Ok(Progress::Done),
            Err(error) => Err(error),
        };
        match received {
            Ok(Progress::Closed) => Err(TransportError::Closed),
            Ok(_) if self.incomplete.len() > INCOMPLETE_LIMIT => {
                self.fail(inner, output);
                let error = InvalidMessage::HandshakePayloadTooLarge.into();
                Err(TransportError::Tls(error))
            }
            Ok(_) => Ok(()),
            Err(error) => {
                let is_other = matches!(error, rustls::Error::InvalidMessage(_))
                    && self.connection.is_handshaking();
                self.fail(inner, output);
                match Spoken::by(self.first) {
                    Some(spoken) if is_other => Err(TransportError::NotTls(spoken)),
                    _ => Err(TransportError::Tls(error)),
                }
            }
        }
    }

    /// Whether the client's ClientHello is complete, and with it the choice of a configuration.
    fn receive_hello(&mut self) -> Result<bool, rustls::Error> {
        if self.hello.is_some() && !hello::is_whole(&self.incomplete) {
            return Ok(false);
        }
        let hello = self.hello.take();
        if let Some(unnamed) = hello.and_then(|hello| hello.unnamed(&self.incomplete)) {
            self.connection = Connection::Server(UnbufferedServerConnection::new(unnamed)?);
        }
        Ok(true)
    }

    /// Appends the alert that rustls has queued with an error.
    fn fail(&mut self, inner: &mut Vec<u8>, output: &mut Vec<u8>) {
        self.failed = true;
        self.hello = None;
        self.incomplete = Vec::new();
        while self.connection.wants_write() {
            // With its queue full, rustls looks at nothing else.
            let _ = self
                .connection
                .step(&mut [], Outgoing::Nothing, inner, output);
        }
    }

    /// Seals `inner`. Nothing is sent before the handshake is done, nor when the keys of TLS 1.2 are used
    /// up; then the peer gets close_notify.
    pub(crate) fn send(&mut self, inner: &[u8], output: &mut Vec<u8>) {
        if !inner.is_empty() {
            self.write(Outgoing::Data(inner), output);
        }
    }

    /// Appends close_notify, once.
    pub(crate) fn close(&mut self, output: &mut Vec<u8>) {
        self.write(Outgoing::CloseNotify, output);
    }

    fn write(&mut self, outgoing: Outgoing<'_>, output: &mut Vec<u8>) {
        if self.failed || self.hello.is_some() {
            return;
        }
        let mut plaintext = Vec::new();
        let result = self.run(outgoing, &mut plaintext, output);
        debug_assert!(result.is_ok(), "`receive` has reported every error");
        debug_assert!(plaintext.is_empty(), "`receive` has taken all plaintext");
    }

    /// Steps until there is nothing left to do.
    fn run(
        &mut self,
        mut outgoing: Outgoing<'_>,
        inner: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<Progress, rustls::Error> {
        let mut taken = 0;
        let result = loop {
            let input = self.incomplete.get_mut(taken..).unwrap_or_default();
            let (discard, progress) = self.connection.step(input, outgoing, inner, output);
            taken += discard;
            match progress {
                Ok(Progress::Step) => {}
                Ok(Progress::Exhausted) => outgoing = Outgoing::Nothing,
                end => break end,
            }
        };
        self.discard(taken);
        result
    }

    /// Keeps what is incomplete in memory of its size.
    fn discard(&mut self, taken: usize) {
        if taken > 0 {
            self.incomplete = self.incomplete.get(taken..).unwrap_or_default().to_vec();
        }
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: Outgoing<'_>,
    inner: &mut Vec<u8>,
    output: &mut Vec<u8>,
) -> (usize, Result<Progress, rustls::Error>) {
    let mut discard = status.discard;
    let progress = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                inner.extend_from_slice(record.payload);
            }
            Ok(Progress::Step)
        }
        ConnectionState::EncodeTlsData(data) => {
            encode(data, output);
            Ok(Progress::Step)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Progress::Step)
        }
        ConnectionState::WriteTraffic(traffic) => Ok(seal(traffic, outgoing, output)),
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(Progress::Closed),
        _ => Ok(Progress::Done),
    });
    (discard, progress)
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, output: &mut Vec<u8>) {
    append(output, 0, |room| match data.encode(room) {
        Err(EncodeError::InsufficientSize(error)) => Err(error.required_size),
        Err(EncodeError::AlreadyEncoded) => Ok(0),
        Ok(written) => Ok(written),
    });
}

fn seal<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    outgoing: Outgoing<'_>,
    output: &mut Vec<u8>,
) -> Progress {
    let expected = match outgoing {
        Outgoing::Nothing => return Progress::Done,
        Outgoing::Data(data) => data.len() + (data.len() / RECORD_CONTENT + 1) * RECORD_OVERHEAD,
        Outgoing::CloseNotify => 2 + RECORD_OVERHEAD,
    };
    let mut progress = Progress::Done;
    append(output, expected, |room| {
        let result = match outgoing {
            Outgoing::Nothing => Ok(0),
            Outgoing::Data(data) => traffic.encrypt(data, room),
            Outgoing::CloseNotify => traffic.queue_close_notify(room),
        };
        match result {
            Err(EncryptError::InsufficientSize(error)) => Err(error.required_size),
            Err(EncryptError::EncryptExhausted) => {
                progress = Progress::Exhausted;
                Ok(0)
            }
            Ok(written) => Ok(written),
        }
    });
    progress
}

/// Lets `write` fill bytes behind `output`: first `expected` many, then as many as it asks for.
fn append(
    output: &mut Vec<u8>,
    expected: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, usize>,
) {
    let start = output.len();
    let mut room = expected;
    loop {
        output.resize(start + room, 0);
        match write(output.get_mut(start..).unwrap_or_default()) {
            Ok(written) => return output.truncate(start + written),
            Err(required) => room = required,
        }
    }
}

//! Counters of one loop.

use histogram::Histogram;
use net_api::Counter;
use transport::TransportError;

/// What one loop has done since the start.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LoopStats {
    /// Connections accepted and given to this loop.
    pub accepted: Counter,
    /// Connections open now.
    pub open: Counter,
    /// Bytes read from sockets.
    pub bytes_in: Counter,
    /// Bytes written to sockets.
    pub bytes_out: Counter,
    /// Calls of read(2).
    pub reads: Counter,
    /// Calls of write(2).
    pub writes: Counter,
    /// Turns of the loop: returns of epoll_wait(2), and mail handled by other loops.
    pub turns: Counter,
    /// How long they take, without the sleep between them.
    pub turn_time: Histogram,
    /// Batches of mail that another loop's thread handled here while this loop slept.
    pub helped: Counter,
    /// Reads put off because the turn had enough to do.
    pub put_off: Counter,
    /// Reads put off because a connection was over its inbound rate.
    pub throttled_in: Counter,
    /// Writes put off because a connection was over its outbound rate.
    pub throttled_out: Counter,
    /// Failures of accept(2), such as for want of descriptors.
    pub accept_errors: Counter,
    listeners: Box<[ListenerStats]>,
}

/// What came by one listener.
#[derive(Debug, Default)]
pub struct ListenerStats {
    /// Connections accepted and given to this loop.
    pub accepted: Counter,
    /// Connections open now.
    pub open: Counter,
    /// Connections that the service did not admit.
    pub refused: Counter,
    failed: [Counter; HandshakeFailure::ALL.len()],
}

impl ListenerStats {
    /// Handshakes that failed, for whatever reason.
    #[must_use]
    pub fn all_failed(&self) -> u64 {
        self.failed.iter().map(Counter::get).sum()
    }

    /// Handshakes that failed for this reason.
    #[must_use]
    pub fn failed(&self, failure: HandshakeFailure) -> &Counter {
        let [
            proxy,
            tls,
            application_protocol,
            certificate,
            websocket,
            timeout,
            disconnected,
        ] = &self.failed;
        match failure {
            HandshakeFailure::Proxy => proxy,
            HandshakeFailure::Tls => tls,
            HandshakeFailure::ApplicationProtocol => application_protocol,
            HandshakeFailure::Certificate => certificate,
            HandshakeFailure::WebSocket => websocket,
            HandshakeFailure::Timeout => timeout,
            HandshakeFailure::Disconnected => disconnected,
        }
    }
}

impl LoopStats {
    /// Counters of a loop whose listeners have numbers below `listeners`.
    #[must_use]
    pub fn new(listeners: usize) -> Self {
        Self {
            listeners: (0..listeners).map(|_| ListenerStats::default()).collect(),
            ..Self::default()
        }
    }

    /// The counters of a listener, by its number.
    ///
    /// # Panics
    /// There are none of this number.
    #[must_use]
    pub fn listener(&self, number: u16) -> &ListenerStats {
        let stats = self.listeners.get(usize::from(number));
        stats.expect("each listener is counted from the start")
    }
}

/// Why a connection ended before its handshakes were done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeFailure {
    /// The PROXY header is missing or wrong.
    Proxy,
    /// TLS failed.
    Tls,
    /// The client offers only application protocols that are not spoken (ALPN).
    ApplicationProtocol,
    /// The client's certificate is missing or not valid.
    Certificate,
    /// The WebSocket handshake is wrong.
    WebSocket,
    /// It took too long.
    Timeout,
    /// The client went away.
    Disconnected,
}

impl HandshakeFailure {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Proxy,
        Self::Tls,
        Self::ApplicationProtocol,
        Self::Certificate,
        Self::WebSocket,
        Self::Timeout,
        Self::Disconnected,
    ];

    /// As in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Tls => "tls",
            Self::ApplicationProtocol => "application_protocol",
            Self::Certificate => "certificate",
            Self::WebSocket => "websocket",
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
        }
    }

    /// Why the layers of a connection could not begin.
    pub(crate) fn of(error: &TransportError) -> Self {
        match error {
            TransportError::Closed => Self::Disconnected,
            TransportError::Proxy(_) => Self::Proxy,
            TransportError::WebSocket(_) | TransportError::NotWebSocket(_) => Self::WebSocket,
            TransportError::Tls(
                rustls::Error::InvalidCertificate(_)
                | rustls::Error::NoCertificatesPresented
                | rustls::Error::InvalidCertRevocationList(_),
            ) => Self::Certificate,
            TransportError::Tls(rustls::Error::NoApplicationProtocol) => Self::ApplicationProtocol,
            TransportError::Tls(_) | TransportError::NotTls(_) => Self::Tls,
        }
    }
}

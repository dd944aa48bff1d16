//! Kinds of listeners.

/// Kinds of listeners, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// TCP.
    Tcp,
    /// TLS.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// Unix domain socket.
    Unix,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Tls, Self::Ws, Self::Wss, Self::Unix];

    /// As in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Unix => "unix",
        }
    }
}

//! Kinds of connections: how they come to the broker.

/// Kinds of connections, for counters: the kind of the listener that they came by, or that the broker has made them itself.
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
    /// A socket pair between the broker and the process of an outlet: there is no listener.
    Outlet,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Tcp,
        Self::Tls,
        Self::Ws,
        Self::Wss,
        Self::Unix,
        Self::Outlet,
    ];

    /// As in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Unix => "unix",
            Self::Outlet => "outlet",
        }
    }
}

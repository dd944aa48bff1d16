//! What a loop's timers are about.

use net_api::{ConnectionId, Key};

/// What a loop's timer is about. The kind stands in bits 56 to 62 of the timer's number.
pub(crate) enum Timer {
    /// A session's keep alive, will delay or expiry.
    Session(Key),
    /// The time by which a connection must have sent its CONNECT.
    Connect(ConnectionId),
    /// A connection over its publish rate may be read again.
    Resume(ConnectionId),
    /// A subscriber may hold back publishers no longer.
    Hold(Key),
    /// A moment has passed for which a publisher was held back for durable sessions.
    Throttled(Key),
    /// See whether there is memory again.
    Pressure,
    /// See whether the store can take more again.
    Store,
    /// See whether other nodes can take more again.
    Peers,
    /// See whether there are fewer logins under way.
    Login,
    /// Logins may have expired.
    LoginExpiry,
    /// Go on looking for banned clients.
    Bans,
    /// Go on judging what clients have, after rules have changed.
    Rules,
    /// Look up again who is a user of a database.
    Recheck,
    /// Try again to hand over what ended sessions have left.
    Legacies,
    /// Ask again for wills that could not be published.
    Wills,
    /// Connections that other nodes take over may have been read.
    Superseded,
    /// Publish `$SYS`.
    Sys,
    /// Go on looking for retained messages.
    Replay(Key),
    /// Go on with deliveries that were put off.
    Deliveries,
    /// Routes may have stayed long enough that a connection left.
    Linger(Key),
    /// A CONNECT has waited long enough for other nodes, by what is pending.
    TakeOver(Key),
    /// See whether the members of all shared groups are known.
    Members,
    /// A client that has sent DISCONNECT has waited long enough for the record of it, by what is pending.
    Leaving(Key),
    /// Go on with clients whose shards have another leader.
    Leaders,
}

pub(crate) const TIMER_KIND: u32 = 56;

impl Timer {
    pub(crate) fn to_bits(&self) -> u64 {
        let (kind, bits) = match self {
            Self::Session(key) => (1, key.to_bits()),
            Self::Connect(id) => (2, id.to_bits()),
            Self::Resume(id) => (3, id.to_bits()),
            Self::Hold(key) => (4, key.to_bits()),
            Self::Pressure => (5, 0),
            Self::Sys => (6, 0),
            Self::Store => (7, 0),
            Self::Throttled(key) => (8, key.to_bits()),
            Self::Login => (9, 0),
            Self::LoginExpiry => (10, 0),
            Self::Bans => (11, 0),
            Self::Peers => (12, 0),
            Self::Replay(key) => (13, key.to_bits()),
            Self::Legacies => (14, 0),
            Self::Deliveries => (15, 0),
            Self::TakeOver(id) => (16, id.to_bits()),
            Self::Rules => (17, 0),
            Self::Members => (18, 0),
            Self::Leaving(id) => (19, id.to_bits()),
            Self::Linger(key) => (20, key.to_bits()),
            Self::Wills => (21, 0),
            Self::Superseded => (22, 0),
            Self::Recheck => (23, 0),
            Self::Leaders => (24, 0),
        };
        kind << TIMER_KIND | bits
    }

    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let key = Key::from_bits(bits & ((1 << TIMER_KIND) - 1));
        Some(match bits >> TIMER_KIND {
            1 => Self::Session(key),
            2 => Self::Connect(key),
            3 => Self::Resume(key),
            4 => Self::Hold(key),
            5 => Self::Pressure,
            6 => Self::Sys,
            7 => Self::Store,
            8 => Self::Throttled(key),
            9 => Self::Login,
            10 => Self::LoginExpiry,
            11 => Self::Bans,
            12 => Self::Peers,
            13 => Self::Replay(key),
            14 => Self::Legacies,
            15 => Self::Deliveries,
            16 => Self::TakeOver(key),
            17 => Self::Rules,
            18 => Self::Members,
            19 => Self::Leaving(key),
            20 => Self::Linger(key),
            21 => Self::Wills,
            22 => Self::Superseded,
            23 => Self::Recheck,
            24 => Self::Leaders,
            _ => return None,
        })
    }
}

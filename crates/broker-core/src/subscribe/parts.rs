//! A SUBSCRIBE or UNSUBSCRIBE is worked off in parts: a packet of 2 MiB may name half a million filters.
//!
//! The packet stays with its connection, unconsumed, until its last part is taken out of it; what this loop keeps
//! is where the next part begins, and a reason code for each filter so far. A part of a durable session is one
//! question to the store. The next part follows when that is answered and the client has a share of a turn left.
//!
//! Invariant: the packet is answered once, when all its parts are done with, in the order of its filters.

use std::fmt;

use mqtt_proto::{PacketId, ReasonCode};
use mqtt_session::Session;

use crate::excerpt::excerpt;

/// Filters of a part.
///
/// Limit: filters that are worked off at once, and a request to the store | {}, or {BYTES:bytes} | the next ones when
/// those are recorded; SUBACK after all
const FILTERS: usize = 256;

/// Bytes of filters at which a part ends.
const BYTES: usize = 64 * 1024;

/// Refused filters that a line of the log names.
const NAMED: usize = 3;

/// Who is told what became of the filters.
pub(crate) enum AnswerTo {
    /// The client, by SUBACK or UNSUBACK.
    Client(PacketId),
    /// An operator, who changes the subscriptions of the client. Called on the loop's thread: it must not wait.
    Operator(Box<dyn FnOnce(Vec<ReasonCode>) + Send>),
}

impl AnswerTo {
    /// All filters of a SUBSCRIBE are done with.
    pub(crate) fn subscribed(self, session: &mut Session, reasons: Vec<ReasonCode>) {
        match self {
            Self::Client(packet_id) => session.complete_subscribe(packet_id, &reasons),
            Self::Operator(answer) => answer(reasons),
        }
    }

    /// All filters of an UNSUBSCRIBE are done with.
    pub(super) fn unsubscribed(self, session: &mut Session, reasons: Vec<ReasonCode>) {
        match self {
            Self::Client(packet_id) => session.complete_unsubscribe(packet_id, &reasons),
            Self::Operator(answer) => answer(reasons),
        }
    }

    /// Whether the client has sent a packet.
    pub(super) fn is_client(&self) -> bool {
        matches!(self, Self::Client(_))
    }
}

impl fmt::Debug for AnswerTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(packet_id) => f.debug_tuple("Client").field(packet_id).finish(),
            Self::Operator(_) => f.write_str("Operator"),
        }
    }
}

/// A SUBSCRIBE or UNSUBSCRIBE that is not answered.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) answer_to: AnswerTo,
    /// Subscription Identifier; 0: none.
    pub(crate) subscription_id: u32,
    /// Bytes at the end of the packet whose filters are in no part yet.
    pub(crate) bytes_left: usize,
    /// Of the filters that are done with.
    pub(crate) reasons: Vec<ReasonCode>,
    pub(crate) refused: Refused,
    /// The replay of retained messages waits for the answer.
    pub(crate) holds_replay: bool,
}

impl Parts {
    pub(crate) fn new(answer_to: AnswerTo, subscription_id: u32, bytes_left: usize) -> Self {
        Self {
            answer_to,
            subscription_id,
            bytes_left,
            reasons: Vec::new(),
            refused: Refused::default(),
            holds_replay: false,
        }
    }
}

/// Whether a part is full.
pub(crate) fn is_full(filters: usize, bytes: usize) -> bool {
    filters >= FILTERS || bytes >= BYTES
}

/// The filters of a SUBSCRIBE that are refused, for one line of the log.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub(crate) count: usize,
    first: Vec<(Box<str>, ReasonCode)>,
}

impl Refused {
    pub(crate) fn add(&mut self, filter: &str, reason: ReasonCode) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push((excerpt(filter).into(), reason));
        }
    }

    /// The first of them, with the reasons.
    pub(crate) fn names(&self) -> String {
        let name = |(filter, reason): &(Box<str>, ReasonCode)| {
            let reason = reason.name();
            format!("{filter} ({reason})")
        };
        let names: Vec<String> = self.first.iter().map(name).collect();
        let more = if self.count > NAMED { ", …" } else { "" };
        names.join(", ") + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_however_many_and_long_the_filters_are() {
        let mut refused = Refused::default();
        for _ in 0..100_000 {
            refused.add(&"x".repeat(1_000), ReasonCode::QuotaExceeded);
        }
        assert_eq!(refused.count, 100_000);
        assert!(refused.names().len() < 400, "{}", refused.names());
        assert!(refused.names().ends_with("(Quota exceeded), …"));
    }
}

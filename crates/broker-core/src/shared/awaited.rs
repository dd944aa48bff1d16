//! Messages that wait for members of shared groups.

use std::collections::VecDeque;
use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use net_api::Key;

use crate::publish::once::Once;

/// Messages of a loop that wait at the same time.
///
/// Limit: messages that wait for members of shared groups | {} or {LIMIT_BYTES} a loop, {members::PATIENCE_MS} | the
/// publisher is refused; what is acknowledged already is dropped as `no_group_member`
pub(super) const LIMIT: usize = 16_384;

/// Bytes of these, and of the lists of groups that have been served.
pub(super) const LIMIT_BYTES: usize = 64 << 20;

/// What waits in a loop.
#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(super) waiting: VecDeque<Waiting>,
    bytes: usize,
    pub(super) is_armed: bool,
}

/// A message that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) message: Arc<ApplicationMessage>,
    pub(super) groups: Groups,
    /// What is pending for its publisher; `None`: it is acknowledged, or its publisher is not here.
    pub(super) publication: Option<Key>,
    pub(super) once: Option<Once>,
    pub(super) until_ms: u64,
}

/// The groups that a message waits for.
#[derive(Debug)]
pub(crate) enum Groups {
    /// One, by the filter of its SUBSCRIBE.
    One(Box<str>),
    /// All that match but these, by their numbers, which ascend.
    AllBut(Box<[u32]>),
    /// Those of them without members that have got it directly: it has come before.
    DurableBut(Box<[u32]>),
}

impl Groups {
    fn bytes(&self) -> usize {
        match self {
            Self::One(filter) => filter.len(),
            Self::AllBut(served) | Self::DurableBut(served) => size_of_val(&**served),
        }
    }
}

impl Waiting {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.message.body.heap_len() + self.groups.bytes()
    }
}

impl Members {
    /// False, and nothing is changed: there is no room.
    pub(super) fn push(&mut self, waiting: Waiting) -> bool {
        let bytes = self.bytes + waiting.bytes();
        if self.waiting.len() >= LIMIT || bytes > LIMIT_BYTES {
            return false;
        }
        self.bytes = bytes;
        self.waiting.push_back(waiting);
        true
    }

    pub(super) fn pop_if(&mut self, is_wanted: impl FnOnce(&Waiting) -> bool) -> Option<Waiting> {
        let waiting = self.waiting.pop_front_if(|first| is_wanted(first))?;
        self.bytes -= waiting.bytes();
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;

    fn waiting(payload: usize, served: usize) -> Waiting {
        Waiting {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("t", &vec![0; payload]),
                qos: QoS::AtLeastOnce,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            groups: Groups::AllBut(vec![0; served].into()),
            publication: None,
            once: None,
            until_ms: 0,
        }
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_in_bytes() {
        for (payload, served) in [(0, 0), (1 << 20, 0), (0, 1 << 20)] {
            let mut members = Members::default();
            while members.push(waiting(payload, served)) {}
            assert!(members.waiting.len() <= LIMIT && members.bytes <= LIMIT_BYTES);
            let held = members.waiting.len();
            members.pop_if(|_| true).unwrap();
            assert!(members.push(waiting(payload, served)));
            while members.pop_if(|_| true).is_some() {}
            assert_eq!((members.bytes, members.waiting.len()), (0, 0), "{held}");
        }
    }
}

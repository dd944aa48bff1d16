//! What a session has to do with back-pressure: whom it holds back, and who holds it back.

use mqtt_proto::PacketType;
use mqtt_session::Timestamp;

use crate::backpressure::slow::SlowSubscribers;
use crate::backpressure::throttle::Throttle;
use crate::key::Publisher;

/// A session's part in holding back and being held.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// How many subscribers hold this session back.
    pub(super) by: u32,
    /// The publishers that this session holds back.
    pub(super) of: Vec<Publisher>,
    /// When they are let go at the latest; 0: nobody is held.
    pub(super) until_ms: u64,
    /// How long the first of them is held at most.
    pub(super) length_ms: u64,
    /// PUBLISH packets that came while it is held.
    pub(super) kept: Vec<u8>,
    /// It held publishers back for the whole time and has not drained since.
    pub(super) spent: bool,
    /// How often it has drained, while it held publishers back, since it last did not in time: above 0, it has
    /// shown that it drains.
    pub(super) drained: i8,
    /// When the log last said that it holds somebody back.
    pub(super) said_ms: u64,
    /// How it is held back for durable sessions that it publishes to; `None`: it has not been lately.
    pub(super) throttle: Option<Throttle>,
}

impl Hold {
    /// Whether its PUBLISH packets have to wait.
    pub(crate) fn is_held(&self) -> bool {
        self.by > 0 || !self.kept.is_empty()
    }

    /// The PUBLISH packets that were kept; from here on there are none.
    pub(crate) fn take_kept(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// If it is still held, keeps the rest of what was kept. False: it is not.
    pub(crate) fn keep_rest(&mut self, rest: &[u8]) -> bool {
        let is_held = self.by > 0;
        if is_held {
            self.kept = rest.to_vec();
        }
        is_held
    }

    /// Whether packets wait for the hold to end.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// What becomes of a packet of this session while it is held, or has packets kept from then.
    pub(crate) fn wait(&mut self, packet: PacketType, frame: &[u8]) -> Wait {
        match packet {
            PacketType::Publish if self.kept.len() + frame.len() <= KEPT_LIMIT => {
                self.kept.extend_from_slice(frame);
                Wait::Kept
            }
            PacketType::PubAck
            | PacketType::PubRec
            | PacketType::PubRel
            | PacketType::PubComp
            | PacketType::PingReq => Wait::No,
            _ => Wait::Pause,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.by == 0
            && self.kept.is_empty()
            && self.of.is_empty()
            && !self.spent
            && self.drained == 0
            && self.said_ms == 0
            && self.throttle.is_none()
    }
}

/// So many messages that it has acknowledged earn a subscriber that has not shown that it drains the longest hold;
/// fewer, their part of it.
const EARNED: u64 = 1_250;

/// Messages that a subscriber has acknowledged, since it last held publishers back in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Earned(u32);

impl Earned {
    pub(super) fn add_one(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// The part of a time that it has earned.
    pub(super) fn part_of(self, ms: u64) -> u64 {
        ms * u64::from(self.0) / EARNED
    }
}

/// What to do with a packet that has come.
pub(crate) enum Wait {
    /// Handle it.
    No,
    /// It is kept aside; go on to the next.
    Kept,
    /// Leave it, and read no more for now.
    Pause,
}

/// Bytes of PUBLISH packets that are kept of a held publisher before its connection is not read.
const KEPT_LIMIT: usize = 64 * 1024;

/// Who holds a publisher back.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(super) subscriber: Box<str>,
    /// The log says so, with how many lines were left out before.
    pub(super) line: Option<u64>,
}

impl Holder {
    pub(super) fn subscriber(&self) -> &str {
        &self.subscriber
    }

    pub(super) fn note(&self, publisher: &str, slow: &SlowSubscribers, now: Timestamp) {
        slow.handle_held(&self.subscriber, publisher, now);
        if let Some(left_out) = self.line {
            tracing::info!(
                client_id = &*self.subscriber,
                publisher,
                left_out,
                "a subscriber does not keep up; publishers to it are held back"
            );
        }
    }
}

//! How much was published or sent.

use super::sampler::Weight;

/// A number of PUBLISH packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Messages(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Bytes(pub u64);

/// What makes somebody one of the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// PUBLISH packets.
    Messages,
    /// Bytes: of payloads that were published, of packets that were sent.
    Bytes,
}

/// What was published or sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// PUBLISH packets.
    pub messages: Messages,
    /// Bytes.
    pub bytes: Bytes,
}

impl Amount {
    /// One message of so many bytes.
    pub(super) fn of_one(bytes: usize) -> Self {
        Self {
            messages: Messages(1),
            bytes: Bytes(bytes as u64),
        }
    }

    /// In a measure.
    #[must_use]
    pub fn by(self, measure: Measure) -> u64 {
        match measure {
            Measure::Messages => self.messages.0,
            Measure::Bytes => self.bytes.0,
        }
    }

    /// As much more.
    pub fn add(&mut self, other: Self) {
        self.messages.0 = self.messages.0.saturating_add(other.messages.0);
        self.bytes.0 = self.bytes.0.saturating_add(other.bytes.0);
    }

    pub(super) fn times(self, Weight(weight): Weight) -> Self {
        Self {
            messages: Messages(self.messages.0.saturating_mul(weight)),
            bytes: Bytes(self.bytes.0.saturating_mul(weight)),
        }
    }
}

//! What an operator wants published, and what he is answered.

use std::fmt;
use std::sync::Arc;

use mqtt_proto::ReasonCode;
use mqtt_session::ApplicationMessage;

/// Publishes a message.
#[derive(Debug)]
pub struct PublishForOperator {
    /// The message, whose topic is none of the broker's own.
    pub message: ApplicationMessage,
    /// Seconds until it expires, from now on.
    pub expiry_s: Option<u32>,
    /// Who waits for it.
    pub operator: Operator,
}

/// What became of a message that an operator has published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Published {
    /// PUBACK would have this reason code.
    Answered {
        /// The code.
        reason: ReasonCode,
        /// The retain store had no room for it.
        not_retained: bool,
    },
    /// A shard has not answered in time: it may keep it.
    MayBeKept,
}

/// Who waits for what becomes of a message. He is answered once, unless the node stops first.
#[derive(Clone)]
pub struct Operator(Arc<dyn Fn(Published) + Send + Sync>);

impl Operator {
    /// `answer` is called on the loop's thread: it must not wait.
    #[must_use]
    pub fn new(answer: impl Fn(Published) + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }

    pub(crate) fn answer(&self, published: Published) {
        (self.0)(published);
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operator")
    }
}

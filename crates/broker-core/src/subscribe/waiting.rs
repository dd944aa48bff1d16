//! What the stores and other nodes are asked for subscriptions.

use mqtt_proto::ReasonCode;
use net_api::Key;
use store_state::inbox::StoredSubscription;

use crate::subscribe::parts::AnswerTo;

/// The filters of a part of a SUBSCRIBE: the subscription of each that is admitted, and why others are not.
pub(super) type Part = Vec<Result<StoredSubscription, ReasonCode>>;

/// A question that is not answered.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A part of a client's SUBSCRIBE is to be stored.
    Subscribe { key: Key, part: Part },
    /// A part of a client's UNSUBSCRIBE.
    Unsubscribe { key: Key, part: Vec<Box<str>> },
    /// A SUBSCRIBE waits for retained messages that are on their way to the store, and for other nodes that
    /// are to know its routes.
    Barrier {
        key: Key,
        answer_to: AnswerTo,
        reasons: Vec<ReasonCode>,
        /// Shards and owners of routes that have not answered.
        left: usize,
        /// The replay of retained messages waits as well.
        replays: bool,
    },
}

impl Asked {
    /// One has answered, or has failed: who has failed is not waited for. Whether others are.
    pub(crate) fn waits_for_others(&mut self) -> bool {
        match self {
            Self::Barrier { left, .. } => {
                *left = left.saturating_sub(1);
                *left > 0
            }
            Self::Subscribe { .. } | Self::Unsubscribe { .. } => false,
        }
    }
}

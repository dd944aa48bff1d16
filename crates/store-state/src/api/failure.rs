//! Why the store does not carry out a request.

use serde::{Deserialize, Serialize};

/// Why a request was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Failure {
    /// The disk is full. It has had no effect, and will have none.
    Full,
    /// The shard does not serve: it is damaged, or no node leads it. If that became so while the request
    /// was on its way, it may be carried out all the same, even later.
    Stopped,
    /// The shard map has changed since the request was routed: route it again. It has had no effect, and
    /// will have none.
    Moved,
    /// The request is longer than a shard takes, which is a little less than 32 MiB. It has had no effect, and
    /// will have none.
    TooLong,
}

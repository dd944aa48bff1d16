//! Who answers what people ask of all nodes.

use std::fmt::Debug;

use bytes::Bytes;
use futures_util::future::BoxFuture;

/// Answers questions of other nodes, in a form that only those know who ask and answer them.
pub(crate) trait Answerer: Debug + Send + Sync + 'static {
    /// Answers one.
    fn answer(&self, question: Bytes) -> BoxFuture<'static, Bytes>;
}

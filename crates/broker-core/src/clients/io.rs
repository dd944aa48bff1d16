//! What a loop works with in a turn.

use net_api::Connections;

use crate::clients::message::LoopMessage;

/// The connections of this loop, and its way to the others.
pub(crate) trait LoopIo: Connections<LoopMessage> {}

impl<T: Connections<LoopMessage>> LoopIo for T {}

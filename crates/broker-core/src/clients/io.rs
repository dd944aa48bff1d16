//! What a loop works with in a turn.

use net_api::Connections;

use crate::clients::message::Mail;

/// The connections of this loop, and its way to the others.
pub(crate) trait LoopIo: Connections<Mail> {}

impl<T: Connections<Mail>> LoopIo for T {}

//! Records of messages that are dropped.

use mqtt_session::{ApplicationMessage, Dropped};

use crate::drops::{Drops, Reason};

pub(crate) fn record(drops: &Drops, now_ms: u64, client_id: &str, dropped: &Dropped) {
    let Dropped { message, reason } = dropped;
    let length = message.body.payload().len();
    drops.record(
        now_ms,
        client_id,
        message.body.topic(),
        Reason::Session(*reason),
        message.qos,
        length,
    );
}

/// Records a message that was dropped on its way to nobody in particular.
pub(crate) fn record_drop(
    drops: &Drops,
    now_ms: u64,
    message: &ApplicationMessage,
    reason: Reason,
) {
    let (topic, length) = (message.body.topic(), message.body.payload().len());
    drops.record(now_ms, "", topic, reason, message.qos, length);
}

//! Messages that an operator publishes: as the broker's own, whose rights nobody judges, and answered when a client's
//! acknowledgement would leave (P1).

use std::sync::Arc;

use mqtt_proto::ReasonCode;
use mqtt_session::ApplicationMessage;

use crate::clients::{LoopIo, record_drop};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::pending::{Awaiting, Storing};
use crate::publish::operator::{Operator, PublishForOperator, Published};
use crate::publish::source::Source;
use crate::rim::Rim;

/// Publishes a message. The operator is answered when all who keep it do.
pub(crate) fn publish<R: Rim>(
    clients: &mut ClientLoop<R>,
    io: &mut impl LoopIo,
    asked: PublishForOperator,
) {
    let PublishForOperator {
        mut message,
        expiry_s,
        operator,
    } = asked;
    let now = clients.base.expiry_now(io);
    message.expires_at = expiry_s.map(|secs| now.add_secs(secs));
    let source = Source {
        awaiting: Some(Awaiting::Operator(operator.clone())),
        ..Source::default()
    };
    clients.base.charge(io, 1);
    if let Some(reason) = clients.distribute(io, &Arc::new(message), source) {
        operator.answer(Published::Answered {
            reason,
            not_retained: false,
        });
    }
}

/// What those who are to keep it did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// The reason code of an acknowledgement.
    pub(crate) reason: ReasonCode,
    pub(crate) storing: Storing,
    /// The retain store has no room for it.
    pub(crate) not_retained: bool,
}

/// All who must have a message have it, or one of them could not.
pub(crate) fn publication_done<R: Rim>(
    clients: &ClientLoop<R>,
    io: &impl LoopIo,
    operator: &Operator,
    message: &ApplicationMessage,
    kept: Kept,
) {
    let Kept {
        reason,
        storing,
        not_retained,
    } = kept;
    let dropped = match storing {
        Storing::Done if not_retained => Some(Reason::RetainedLimit),
        Storing::Done => None,
        Storing::Refused | Storing::Unknown | Storing::Stale => Some(Reason::StoreFailed),
    };
    if let Some(reason) = dropped {
        record_drop(&clients.base.drops, io.now_ms(), message, reason);
    }
    operator.answer(match storing {
        Storing::Done | Storing::Refused => Published::Answered {
            reason,
            not_retained,
        },
        Storing::Unknown | Storing::Stale => Published::MayBeKept,
    });
}

//! Where a message comes from, as far as routing has to know.

use store_state::inbox::Origin;

use crate::pending::Awaiting;
use crate::publish::once::Once;

/// Where a message comes from.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The publishing session's key; 0: the broker.
    pub(crate) key: u64,
    /// Makes it happen once.
    pub(crate) once: Option<Once>,
    /// Who waits for it to be stored.
    pub(crate) awaiting: Option<Awaiting>,
    /// It has come before, in this process: only the store may not have it.
    pub(crate) repeated: bool,
    /// A client's that has no durable session: it goes on where there is no majority (P10).
    pub(crate) transient: bool,
}

impl Source {
    /// The origin of what the broker publishes: another node may do so as well.
    pub(super) fn of_broker(&self) -> Option<&Origin> {
        self.once.as_ref().and_then(Once::of_broker)
    }
}

//! What the directory of clients is to be told at the end of the turn.

use net_api::Key;
use peer_protocol::Registration;
use store_state::api::Store as _;

use crate::clients::Clients;
use crate::rim::Rim;
use crate::turn::Base;

/// What the directory is to be told at the end of the turn.
#[derive(Debug, Default)]
pub(crate) struct Registering {
    pub(super) new: Vec<(u64, Registration)>,
    pub(super) gone: Vec<Registration>,
}

impl Registering {
    /// What the directory is told of a connection with this number. `None`: the client is gone.
    pub(crate) fn registration<R: Rim>(
        base: &Base<R>,
        clients: &Clients,
        key: Key,
        number: u64,
    ) -> Option<Registration> {
        let client = Box::<str>::from(clients.get(key)?.session.client_id());
        Some(Registration {
            shard: base.node.store().session_shard(&client),
            client,
            number,
            user: clients.user_of(key),
            of_another_user: base.settings.of_another_user,
        })
    }
}

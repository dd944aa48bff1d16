//! Connections that have sent no CONNECT yet: a share of all connections at most.
//!
//! At the limit the oldest are closed. An ordinary client sends its CONNECT at once and is not among them;
//! were new ones refused instead, whoever opens enough connections would shut everybody out.

use net_api::ConnectionId;

use crate::clients::{ClientLoop, LoopIo};
use crate::connect::login_stage::Stage;
use crate::rim::Rim;

impl<R: Rim> ClientLoop<R> {
    /// A connection has arrived whose CONNECT is still to come.
    pub(crate) fn await_connect(&mut self, io: &mut impl LoopIo, connection: ConnectionId) {
        let limit = (self.settings.unheard_connections / io.loops()).max(1);
        // Who is being judged has been heard, and is counted there.
        let logins = &self.logins;
        let is_unheard = |waiting| {
            io.tag(waiting) == Some(0)
                && matches!(
                    logins.get(&waiting).map(|login| &login.stage),
                    None | Some(Stage::Postponed)
                )
        };
        let oldest = self.unheard.push(connection, limit, is_unheard);
        self.stats.unheard_closed.add(oldest.len() as u64);
        for connection in oldest {
            self.logins.remove(&connection);
            io.close(connection);
        }
    }
}

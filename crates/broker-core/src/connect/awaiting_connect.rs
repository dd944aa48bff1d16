//! Connections that have sent no CONNECT yet: a share of all connections at most.
//!
//! At the limit the oldest of the address that has most are closed. An ordinary client sends its CONNECT at once and
//! is not among them; were new ones refused instead, whoever opens enough connections would shut everybody out. A
//! client on a slow link may take long: it keeps its place as long as others of its address do not need it.

use guard::Source;
use net_api::ConnectionId;

use super::awaiting::{Turn, Waiting};
use crate::clients::LoopIo;
use crate::connect::login_stage::Stage;
use crate::dispatch::ClientLoop;
use crate::rim::Rim;

impl<R: Rim> ClientLoop<R> {
    /// A connection has arrived whose CONNECT is still to come.
    pub(crate) fn await_connect(&mut self, io: &mut impl LoopIo, connection: ConnectionId) {
        let limit = (self.base.settings.unheard_connections / io.loops()).max(1);
        // Who is being judged has been heard, and is counted there.
        let logins = &self.logins;
        let is_unheard = |waiting| {
            io.tag(waiting) == Some(0)
                && matches!(
                    logins.get(&waiting).map(|login| &login.stage),
                    None | Some(Stage::Postponed)
                )
        };
        let rim = &self.base.node.rim;
        let address_of = |waiting: &Waiting| {
            let id = waiting.connection;
            let (peer, listener) = (io.peer(id)?, io.listener(id)?);
            // Before a proxy has said whom it connects for, its own address stands for many clients.
            let is_known = Some(peer) != waiting.came_from || !rim.is_proxied(listener);
            let ip = peer.ip().filter(|_| is_known)?;
            Some(Source::from(ip).network())
        };
        let waiting = Waiting {
            connection,
            came_from: io.peer(connection),
            came_in: Turn(io.turn()),
        };
        let gone = self
            .awaiting_connect
            .push(waiting, limit, is_unheard, address_of);
        for (connection, why) in gone {
            self.base.stats.count_closed_before_connect(why);
            self.logins.remove(&connection);
            io.close(connection);
        }
    }
}

//! Logins that end at a time, by which their clients are disconnected.
//!
//! The time is the system's, not the loop's: it may be set, and goes on while the machine sleeps. A timer of the
//! loop cannot wait for it, so the loop looks at it once a second while a login ends at all.

use mqtt_proto::ReasonCode;

use crate::clients::{LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::excerpt::excerpt;
use crate::rim::Rim;

/// How often the loop looks at the system's time, in ms.
const LOOK_MS: u64 = 1_000;

/// Clients that are disconnected in one turn.
///
/// Limit: logins of a loop that end at a time | its clients; {} are ended in a turn | the rest in the next turn
const PER_TURN: usize = 256;

impl<R: Rim> ClientLoop<R> {
    /// Disconnects clients whose logins have ended, and looks again while there are others.
    pub(crate) fn end_logins(&mut self, io: &mut impl LoopIo) {
        let now = self.base.node.rim.system_s();
        let mut left = PER_TURN;
        while left > 0
            && let Some(key) = self.expiries.take_ended(now)
        {
            left -= 1;
            if let Some(client) = self.clients.get(key)
                && let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms())
            {
                tracing::info!(
                    client_id = &*excerpt(client.session.client_id()),
                    left_out,
                    "a login has expired and its client is disconnected"
                );
            }
            self.base.end(key, ReasonCode::NotAuthorized);
        }
        if !self.expiries.is_empty() {
            let pause = if left == 0 { 0 } else { LOOK_MS };
            io.arm(io.now_ms() + pause, Timer::LoginExpiry.to_bits());
        }
    }
}

//! What happens by the passing of time alone: keep alive.

use std::time::Duration;

use crate::Client;

/// What a passed deadline means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a server that does not answer is given up"]
pub enum Deadline {
    /// Nothing that the application has to do; there may be something to send.
    None,
    /// The server has not answered PINGREQ for the time of the keep alive: the network connection is over.
    KeepAliveTimeout,
}

impl<M> Client<M> {
    /// When [`Self::handle_deadline`] has to be called. The time moves when bytes are sent; a timer that fires early
    /// does no harm.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Duration> {
        let begun = self.ping_sent.unwrap_or(self.last_sent);
        (self.is_connected() && !self.keep_alive.is_zero()).then(|| begun + self.keep_alive)
    }

    /// A point in time at or after [`Self::poll_deadline`] has come. `now` counts from the same point as that of
    /// [`Self::handle_transmitted`].
    pub fn handle_deadline(&mut self, now: Duration) -> Deadline {
        if self.poll_deadline().is_none_or(|deadline| now < deadline) {
            return Deadline::None;
        }
        if self.ping_sent.is_some() {
            self.give_up();
            return Deadline::KeepAliveTimeout;
        }
        // [MQTT-3.1.2-20] [MQTT3-3.1.2-23] a client that sends nothing else sends PINGREQ. A server that takes
        // no packet of two bytes cannot be asked, and is not waited for.
        if self.ping().is_ok() {
            self.ping_sent = Some(now);
        } else {
            self.last_sent = now;
        }
        Deadline::None
    }
}

//! What happens by the passing of time alone: keep alive, the will's delay, the session's expiry.

use crate::{ApplicationMessage, NEVER_EXPIRES, Session, Timestamp};

/// What a passed deadline means for the server.
#[derive(Debug)]
#[must_use = "a will that nobody publishes is lost"]
pub enum Deadline {
    /// Nothing yet: look at [`Session::poll_deadline`] again.
    None,
    /// No packet came within one and a half times the keep alive: disconnect with 0x8D.
    KeepAliveTimeout,
    /// The will's delay has passed: publish it. The session lives on.
    WillDue(ApplicationMessage),
    /// The session expiry interval has passed: call [`Session::end`] and forget the session.
    Expired {
        /// The will, if its delay was longer than the session's life.
        will: Option<ApplicationMessage>,
    },
}

impl Session {
    /// When [`Self::handle_deadline`] has to be called. The time moves with every packet of the
    /// client; a timer that fires early does no harm.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Timestamp> {
        if self.online {
            return self.keep_alive_deadline();
        }
        match (self.will_deadline(), self.expiry_deadline()) {
            (Some(will), Some(expiry)) => Some(will.min(expiry)),
            (will, expiry) => will.or(expiry),
        }
    }

    /// A point in time at or after [`Self::poll_deadline`] has come.
    pub fn handle_deadline(&mut self, now: Timestamp) -> Deadline {
        let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|at| at <= now);
        if self.online {
            if passed(self.keep_alive_deadline()) {
                return Deadline::KeepAliveTimeout;
            }
        } else if passed(self.expiry_deadline()) {
            // [MQTT-4.1.0-2]; [MQTT-3.1.2-8] the end of the session comes before the will's delay.
            return Deadline::Expired {
                will: self.take_will(now),
            };
        } else if passed(self.will_deadline())
            && let Some(will) = self.take_will(now)
        {
            return Deadline::WillDue(will);
        }
        Deadline::None
    }

    /// [MQTT-3.1.2-22] [MQTT3-3.1.2-24] one and a half times the keep alive after the last packet from the client.
    /// What the server sends does not count.
    fn keep_alive_deadline(&self) -> Option<Timestamp> {
        (self.keep_alive != 0).then(|| self.since.add_millis(u64::from(self.keep_alive) * 1_500))
    }

    fn will_deadline(&self) -> Option<Timestamp> {
        self.rare.will().map(|will| self.since.add_secs(will.delay))
    }

    fn expiry_deadline(&self) -> Option<Timestamp> {
        (self.session_expiry != NEVER_EXPIRES).then(|| self.since.add_secs(self.session_expiry))
    }

    /// Takes the will message to publish it now, whatever its delay.
    pub(crate) fn take_will(&mut self, now: Timestamp) -> Option<ApplicationMessage> {
        // [MQTT-3.1.2-10] published once: it is gone from the session.
        self.rare.take_will().map(|will| will.publish(now))
    }
}

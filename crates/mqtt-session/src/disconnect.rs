//! Ends: DISCONNECT both ways, the closing of the network connection, the end of the session.

use mqtt_proto::{Disconnect, DisconnectProperties, QoS, ReasonCode};

use crate::{
    Action, ApplicationMessage, Delivery, DropReason, Dropped, Policy, Session, Timestamp,
    Violation,
};

/// What is left of a session whose network connection is gone.
#[derive(Debug, Default)]
#[must_use = "a will that nobody publishes is lost"]
pub struct Detached {
    /// The session ends with the connection: call [`Session::end`].
    pub ended: bool,
    /// The will message, if it is due at once.
    pub will: Option<ApplicationMessage>,
    /// QoS 0 messages that a durable session had not written; a transient one keeps them.
    pub dropped: Vec<Dropped>,
}

/// What a session leaves behind.
#[derive(Debug, Default)]
#[must_use = "wills and deliveries to others would be lost"]
pub struct Ended {
    /// The will message, if it was still owed.
    pub will: Option<ApplicationMessage>,
    /// Deliveries of shared groups for other members, oldest first.
    pub redispatch: Vec<Delivery>,
    /// All others that were not acknowledged, oldest first.
    pub dropped: Vec<Dropped>,
}

impl Session {
    /// Ends the network connection: after DISCONNECT (MQTT 5.0 only) [`Self::poll_transmit`] says
    /// close. Does nothing if it is ending already.
    pub fn disconnect(&mut self, reason: ReasonCode, policy: &Policy) {
        self.send_disconnect(reason, None, policy);
    }

    /// Ends the network connection because of what the client did, and tells it what.
    pub fn disconnect_for(&mut self, violation: Violation, policy: &Policy) {
        // [MQTT-4.13.1-1]
        self.send_disconnect(
            violation.reason_code(),
            Some(&violation.to_string()),
            policy,
        );
    }

    fn send_disconnect(&mut self, reason: ReasonCode, words: Option<&str>, policy: &Policy) {
        if self.version.is_v5() {
            // [MQTT-3.14.2-2] no session expiry interval from a server.
            let bare = DisconnectProperties {
                server_reference: policy.reference_for(reason),
                ..DisconnectProperties::default()
            };
            let mut send = |properties| {
                self.push_control(|version, out| {
                    let unspecified = ReasonCode::UnspecifiedError;
                    // [MQTT-3.14.2-1] a code that DISCONNECT cannot carry becomes the general one.
                    Disconnect { reason, properties }
                        .encode(version, out)
                        .or_else(|_| {
                            Disconnect {
                                reason: unspecified,
                                properties,
                            }
                            .encode(version, out)
                        })
                })
            };
            // [MQTT-3.14.2-3] the words stay behind if they do not fit.
            if !send(DisconnectProperties {
                reason_string: words,
                ..bare
            }) && words.is_some()
            {
                send(bare);
            }
        }
        self.closing = self.online;
    }

    pub(crate) fn handle_disconnect<'a>(
        &mut self,
        disconnect: &Disconnect<'_>,
        policy: &Policy,
    ) -> Result<Action<'a>, Violation> {
        if let Some(expiry) = disconnect.properties.session_expiry_interval {
            // §3.14.2.2.2
            if expiry != 0 && !self.declared.wants_expiry() {
                return Err(Violation::SessionExpiryFromZero);
            }
            self.session_expiry = expiry.min(policy.session_expiry_maximum);
        }
        // [MQTT-3.14.4-3] [MQTT-3.1.2-10] [MQTT3-3.1.2-10] [MQTT3-3.14.4-3] every other reason code
        // leaves the will to be published.
        if disconnect.reason == ReasonCode::Success {
            self.rare.take_will();
        }
        self.closing = true;
        Ok(Action::Disconnect)
    }

    /// The network connection is gone, for whatever reason. The session now waits for
    /// [`Self::resume`] or its end. Of a durable session nothing has to be kept: what it has
    /// acknowledged can still be taken, and a will that waits for its delay is the store's.
    pub fn handle_connection_closed(&mut self, now: Timestamp) -> Detached {
        if !self.online {
            return Detached::default();
        }
        self.online = false;
        self.closing = false;
        self.since = now;
        self.control = Vec::new();
        // [MQTT-3.3.2-7]
        self.rare.drop_aliases();
        self.detach_inbound();
        let dropped = self.abandon_stored();
        self.detach_outbound();
        self.release_spare();
        // [MQTT-4.1.0-1] only now may the session end.
        let ended = self.expires_at_close();
        // [MQTT-3.1.2-8] [MQTT3-3.1.2-8]
        let due = ended || self.rare.will().is_some_and(|will| will.delay == 0);
        let will = if due { self.take_will(now) } else { None };
        Detached {
            ended,
            will,
            dropped,
        }
    }

    /// Ends the session: by a clean start [MQTT-3.1.2-4] [MQTT3-3.1.2-6], its expiry
    /// [MQTT-4.1.0-2] or the server's decision. What remains is the client identifier and the
    /// subscriptions, for the server to undo. The stored messages of a durable session are its
    /// store's to hand back.
    pub fn end(&mut self, now: Timestamp) -> Ended {
        let mut ended = Ended {
            will: self.take_will(now),
            dropped: self.abandon_stored(),
            ..Ended::default()
        };
        for (delivery, sent) in self.take_all() {
            // [MQTT-4.8.2-5] a QoS 2 message that was sent goes to no other member.
            let lost = sent && delivery.qos == QoS::ExactlyOnce;
            if delivery.group.is_some() && !lost {
                ended.redispatch.push(delivery);
            } else {
                let reason = DropReason::SessionEnded;
                ended.dropped.push(Dropped {
                    message: delivery.message,
                    reason,
                });
            }
        }
        self.inbound = None;
        self.release_spare();
        ended
    }
}

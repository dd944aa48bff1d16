//! What the client publishes, until it is acknowledged to the end (5.0 §4.3, §4.4).
//!
//! Invariant: the first `sent` messages in flight were sent on this network connection, the others wait to be sent
//! again; a new one is sent only behind these.

use mqtt_proto::{
    AckProperties, PacketId, PacketType, PubAck, PubComp, PubRec, PubRel, Publish, QoS, ReasonCode,
};

use crate::client::{Phase, TRANSMIT_LIMIT};
use crate::{Acknowledgement, Client, CommandError, Event, Violation};

/// A message of QoS 1 or 2 that is not acknowledged to the end.
#[derive(Clone, Debug)]
pub(crate) struct InFlight<M> {
    pub(crate) message: M,
    pub(crate) packet_id: PacketId,
    pub(crate) progress: Progress,
}

/// What a message waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// PUBACK.
    AtLeastOnce,
    /// PUBREC.
    ExactlyOnce,
    /// PUBCOMP: the server has the message.
    Received,
}

impl<M> Client<M> {
    /// Whether another message may be published now.
    #[must_use]
    #[inline]
    pub fn has_room(&self, qos: QoS) -> bool {
        self.phase == Phase::Connected
            && if qos == QoS::AtMostOnce {
                self.out.len() < TRANSMIT_LIMIT
            } else {
                self.room().is_some()
            }
    }

    /// The packet identifier of another message above QoS 0; `None`: there is no room for one.
    #[inline]
    fn room(&self) -> Option<PacketId> {
        // [MQTT-3.3.4-7] [MQTT-4.9.0-2] Nothing overtakes what waits to be sent again.
        let has_room = self.out.len() < TRANSMIT_LIMIT
            && self.sent < usize::from(self.server.receive_maximum)
            && self.sent == self.in_flight.len()
            && !self.is_discarding;
        if has_room { self.free_id() } else { None }
    }

    /// Whether the server takes messages of this kind at all.
    ///
    /// # Errors
    /// It does not, or the client is not connected.
    #[inline]
    pub fn check_publish(&self, qos: QoS, retain: bool) -> Result<(), CommandError> {
        self.check_connected()?;
        // [MQTT-3.2.2-11]
        if qos > self.server.maximum_qos {
            return Err(CommandError::QosNotSupported(self.server.maximum_qos));
        }
        // [MQTT-3.2.2-14]
        if retain && !self.server.retain_available {
            return Err(CommandError::RetainNotSupported);
        }
        Ok(())
    }

    /// Publishes a message. Above QoS 0 it is in flight until [`Event::Acknowledged`] or [`Event::Discarded`] gives
    /// `known_by` back; the packet identifier is returned. DUP and packet identifier of `packet` are set here.
    ///
    /// # Errors
    /// [`Self::check_publish`] fails, [`Self::has_room`] is false, the packet cannot be written or is too large for
    /// the server.
    #[inline]
    pub fn publish(
        &mut self,
        mut packet: Publish<'_>,
        known_by: M,
    ) -> Result<Option<PacketId>, CommandError> {
        self.check_publish(packet.qos, packet.retain)?;
        packet.dup = false;
        packet.packet_id = None;
        let progress = match packet.qos {
            QoS::AtMostOnce if self.out.len() < TRANSMIT_LIMIT => {
                self.send(&packet)?;
                return Ok(None);
            }
            QoS::AtMostOnce => return Err(CommandError::NoRoom),
            QoS::AtLeastOnce => Progress::AtLeastOnce,
            QoS::ExactlyOnce => Progress::ExactlyOnce,
        };
        // [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT3-4.3.2-1] [MQTT3-4.3.3-1]
        let packet_id = self.room().ok_or(CommandError::NoRoom)?;
        packet.packet_id = Some(packet_id);
        self.send(&packet)?;
        self.next_id = packet_id.next();
        self.in_flight.push_back(InFlight {
            message: known_by,
            packet_id,
            progress,
        });
        self.sent += 1;
        Ok(Some(packet_id))
    }

    #[inline]
    fn send(&mut self, packet: &Publish<'_>) -> Result<(), CommandError> {
        self.is_busy = true;
        self.push(|version, out| packet.encode(version, out))
    }

    /// The message in flight that is to be sent again next, by [`Self::resend`]; `None`: there is none, or no room at
    /// present. There may be one after CONNACK, after acknowledgements, and after bytes were sent.
    #[must_use]
    #[inline]
    pub fn poll_resend(&self) -> Option<&M> {
        // Mostly there is none.
        let next = self.in_flight.get(self.sent)?;
        let has_room = self.phase == Phase::Connected
            && !self.is_discarding
            && self.sent < usize::from(self.server.receive_maximum)
            && self.out.len() < TRANSMIT_LIMIT;
        has_room.then_some(&next.message)
    }

    /// Sends the message again that [`Self::poll_resend`] names. Its QoS is what it was; DUP and packet identifier are
    /// set here.
    ///
    /// # Errors
    /// As of [`Self::publish`]. A message that the server does not take any more, or that cannot be written, is not
    /// in flight afterwards.
    pub fn resend(&mut self, mut packet: Publish<'_>) -> Result<(), CommandError> {
        if self.poll_resend().is_none() {
            return Err(CommandError::NoRoom);
        }
        // [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT3-4.4.0-1] [MQTT3-4.6.0-1] in the order of publishing, with its
        // identifier. [MQTT-3.3.1-1] [MQTT3-3.3.1-1] Without the session it is a new message.
        packet.packet_id = self.in_flight.get(self.sent).map(|sent| sent.packet_id);
        packet.dup = self.session_present;
        let resent = self
            .check_publish(packet.qos, packet.retain)
            .and_then(|()| self.send(&packet));
        if resent.is_ok() {
            self.sent += 1;
        } else {
            self.in_flight.remove(self.sent);
        }
        self.release_received();
        resent
    }

    /// Sends PUBREL again for messages whose turn it is, and that the server has.
    pub(crate) fn release_received(&mut self) {
        while self.phase == Phase::Connected
            && !self.is_discarding
            && let Some(next) = self.in_flight.get(self.sent)
            && next.progress == Progress::Received
        {
            let packet_id = next.packet_id;
            self.release(packet_id, ReasonCode::Success);
            self.sent += 1;
        }
    }

    fn release(&mut self, packet_id: PacketId, reason: ReasonCode) {
        self.is_busy = true;
        let properties = AckProperties::default();
        let pushed = self.push(|version, out| {
            let packet = PubRel {
                packet_id,
                reason,
                properties,
            };
            packet.encode(version, out)
        });
        debug_assert!(
            !matches!(pushed, Err(CommandError::Encode(_))),
            "PUBREL can be written: {pushed:?}"
        );
    }

    /// The place of a message that was sent on this network connection.
    #[inline]
    fn place(&self, packet_id: PacketId) -> Option<usize> {
        let oldest = self.in_flight.front()?.packet_id;
        let place = if oldest == packet_id {
            0
        } else {
            let distance = |id: PacketId| id.get().wrapping_sub(oldest.get());
            let wanted = distance(packet_id);
            self.in_flight
                .binary_search_by_key(&wanted, |sent| distance(sent.packet_id))
                .ok()?
        };
        (place < self.sent).then_some(place)
    }

    /// The place of a message that waits for this.
    #[inline]
    fn place_of(
        &self,
        packet_id: PacketId,
        is_awaited: impl Fn(Progress) -> bool,
    ) -> Option<usize> {
        let place = self.place(packet_id)?;
        let sent = self.in_flight.get(place)?;
        is_awaited(sent.progress).then_some(place)
    }

    /// Takes a message out that is acknowledged to the end.
    #[inline]
    fn settle<'a>(
        &mut self,
        place: Option<usize>,
        packet_id: PacketId,
        packet_type: PacketType,
        reason: ReasonCode,
        reason_string: Option<&'a str>,
    ) -> Event<'a, M> {
        let settled = match place {
            // Mostly the oldest one.
            Some(0) => self.in_flight.pop_front(),
            Some(place) => self.in_flight.remove(place),
            None => None,
        };
        let Some(settled) = settled else {
            return Event::Stray {
                packet_type,
                packet_id,
            };
        };
        self.sent -= 1;
        Event::Acknowledged(Acknowledgement {
            message: settled.message,
            packet_type,
            reason,
            reason_string,
        })
    }

    #[inline]
    pub(crate) fn handle_puback<'a>(&mut self, ack: &PubAck<'a>) -> Event<'a, M> {
        let (packet_id, reason_string) = (ack.packet_id, ack.properties.reason_string);
        let place = self.place_of(packet_id, |progress| progress == Progress::AtLeastOnce);
        // [MQTT-4.4.0-2] whatever the reason code, it is not sent again.
        self.settle(
            place,
            packet_id,
            PacketType::PubAck,
            ack.reason,
            reason_string,
        )
    }

    pub(crate) fn handle_pubcomp<'a>(&mut self, ack: &PubComp<'a>) -> Event<'a, M> {
        let (packet_id, reason_string) = (ack.packet_id, ack.properties.reason_string);
        let place = self.place_of(packet_id, |progress| progress == Progress::Received);
        self.settle(
            place,
            packet_id,
            PacketType::PubComp,
            ack.reason,
            reason_string,
        )
    }

    /// The next message that the server has received and whose session it has lost.
    pub(crate) fn discard(&mut self) -> Option<M> {
        let mut in_flight = self.in_flight.iter();
        let place = in_flight.position(|sent| sent.progress == Progress::Received);
        let discarded = place.and_then(|place| self.in_flight.remove(place));
        self.is_discarding = discarded.is_some();
        discarded.map(|sent| sent.message)
    }
}

impl<M: Clone> Client<M> {
    pub(crate) fn handle_pubrec<'a>(
        &mut self,
        ack: &PubRec<'a>,
    ) -> Result<Option<Event<'a, M>>, Violation> {
        let packet_id = ack.packet_id;
        let place = self.place_of(packet_id, |progress| progress != Progress::AtLeastOnce);
        if place.is_some() && ack.reason.is_error() {
            let reason_string = ack.properties.reason_string;
            return Ok(Some(self.settle(
                place,
                packet_id,
                PacketType::PubRec,
                ack.reason,
                reason_string,
            )));
        }
        self.check_answers()?;
        let Some(sent) = place.and_then(|place| self.in_flight.get_mut(place)) else {
            if !ack.reason.is_error() && self.phase == Phase::Connected {
                self.release(packet_id, ReasonCode::PacketIdentifierNotFound);
            }
            return Ok(Some(Event::Stray {
                packet_type: PacketType::PubRec,
                packet_id,
            }));
        };
        let is_first = sent.progress != Progress::Received;
        sent.progress = Progress::Received;
        let message = is_first.then(|| sent.message.clone());
        // [MQTT-4.3.3-4] [MQTT3-4.3.3-1]
        if self.phase == Phase::Connected {
            self.release(packet_id, ReasonCode::Success);
        }
        Ok(message.map(Event::Received))
    }
}

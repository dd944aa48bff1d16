//! SUBSCRIBE and UNSUBSCRIBE, and their answers.

use mqtt_proto::{
    PacketId, PacketType, SubAck, Subscribe, SubscribeFilters, SubscribeProperties,
    SubscriptionOptions, UnsubAck, Unsubscribe, UnsubscribeFilters, UnsubscribeProperties,
};

use crate::{Client, CommandError, Event, Violation};

/// SUBSCRIBE and UNSUBSCRIBE packets that wait for their answers at a time.
pub const REQUESTS_LIMIT: usize = 1024;

/// A packet that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) packet_id: PacketId,
    /// SUBACK or UNSUBACK.
    answer: PacketType,
    /// Topic filters.
    filters: usize,
}

impl<M> Client<M> {
    /// Asks for subscriptions. [`Event::Subscribed`] has the packet identifier that is returned. It is not asked
    /// again on another network connection.
    ///
    /// # Errors
    /// The client is not connected; too many requests wait; the packet cannot be written or is too large for the
    /// server.
    pub fn subscribe(
        &mut self,
        filters: &[(&str, SubscriptionOptions)],
        properties: SubscribeProperties<'_>,
    ) -> Result<PacketId, CommandError> {
        let packet_id = self.request_id()?;
        let mut buffer = Vec::new();
        let packet = Subscribe {
            packet_id,
            properties,
            filters: SubscribeFilters::encode_from(filters, &mut buffer)?,
        };
        self.push(|version, out| packet.encode(version, out))?;
        self.await_answer(packet_id, PacketType::SubAck, filters.len());
        Ok(packet_id)
    }

    /// Ends subscriptions. [`Event::Unsubscribed`] has the packet identifier that is returned. It is not asked again
    /// on another network connection.
    ///
    /// # Errors
    /// As of [`Self::subscribe`].
    pub fn unsubscribe(
        &mut self,
        filters: &[&str],
        properties: UnsubscribeProperties<'_>,
    ) -> Result<PacketId, CommandError> {
        let packet_id = self.request_id()?;
        let mut buffer = Vec::new();
        let packet = Unsubscribe {
            packet_id,
            properties,
            filters: UnsubscribeFilters::encode_from(filters, &mut buffer)?,
        };
        self.push(|version, out| packet.encode(version, out))?;
        self.await_answer(packet_id, PacketType::UnsubAck, filters.len());
        Ok(packet_id)
    }

    fn request_id(&self) -> Result<PacketId, CommandError> {
        self.check_connected()?;
        let has_room = self.requests.len() < REQUESTS_LIMIT;
        let packet_id = self.free_id().filter(|_| has_room);
        packet_id.ok_or(CommandError::NoRoom)
    }

    fn await_answer(&mut self, packet_id: PacketId, answer: PacketType, filters: usize) {
        self.next_id = packet_id.next();
        self.requests.push(Request {
            packet_id,
            answer,
            filters,
        });
    }

    pub(crate) fn handle_suback<'a>(&mut self, ack: SubAck<'a>) -> Result<Event<'a, M>, Violation> {
        let answered = self.end_request(ack.packet_id, PacketType::SubAck, ack.reasons.len())?;
        Ok(answered.unwrap_or(Event::Subscribed(ack)))
    }

    pub(crate) fn handle_unsuback<'a>(
        &mut self,
        ack: UnsubAck<'a>,
    ) -> Result<Event<'a, M>, Violation> {
        // Before 5.0 there are no reason codes.
        let reasons = self.version.is_v5().then_some(ack.reasons.len());
        let wanted = reasons.unwrap_or_else(|| self.filters_of(ack.packet_id));
        let answered = self.end_request(ack.packet_id, PacketType::UnsubAck, wanted)?;
        Ok(answered.unwrap_or(Event::Unsubscribed(ack)))
    }

    fn filters_of(&self, packet_id: PacketId) -> usize {
        let mut requests = self.requests.iter();
        requests
            .find(|request| request.packet_id == packet_id)
            .map_or(0, |request| request.filters)
    }

    /// Forgets a request. An event says that there was none.
    fn end_request<'a>(
        &mut self,
        packet_id: PacketId,
        packet_type: PacketType,
        reasons: usize,
    ) -> Result<Option<Event<'a, M>>, Violation> {
        let place = self
            .requests
            .iter()
            .position(|request| request.packet_id == packet_id && request.answer == packet_type);
        let Some(place) = place else {
            return Ok(Some(Event::Stray {
                packet_type,
                packet_id,
            }));
        };
        let request = self.requests.swap_remove(place);
        // [MQTT-3.8.4-6] [MQTT-3.11.3-1] [MQTT3-3.8.4-5] one for each topic filter.
        if request.filters != reasons {
            return Err(Violation::ReasonCodesMismatch(packet_type));
        }
        Ok(None)
    }
}

//! The beginning and the end of a network connection: CONNECT, CONNACK, DISCONNECT.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use mqtt_proto::{ConnAck, Connect, Disconnect, EncodeError, PacketIdSet, QoS};

use crate::client::{Phase, ServerLimits};
use crate::outbound::Progress;
use crate::{Client, CommandError, Event, Violation};

impl<M> Client<M> {
    /// A network connection is there, and begins with this packet. What was in flight stays so: without Clean Start
    /// it belongs to the session; after it, or if the server has no session, the messages are sent as new ones.
    ///
    /// # Errors
    /// The packet cannot be written; there is then no network connection.
    pub fn connect(&mut self, connect: &Connect<'_>) -> Result<(), EncodeError> {
        self.handle_connection_closed();
        let mut out = Vec::new();
        connect.encode(&mut out)?;
        self.out = out;
        self.phase = Phase::Connecting;
        self.version = connect.version;
        self.clean_start = connect.clean_start;
        self.keep_alive = Duration::from_secs(connect.keep_alive.into());
        self.server = ServerLimits::NONE;
        let properties = &connect.properties;
        let receive_maximum = properties.receive_maximum.filter(|_| self.version.is_v5());
        self.receive_maximum = receive_maximum.map_or(u16::MAX, NonZeroU16::get);
        let maximum = properties.maximum_packet_size;
        self.maximum_packet_size = maximum.map_or(u32::MAX, NonZeroU32::get);
        Ok(())
    }

    /// The network connection is gone. What was in flight stays; SUBSCRIBE and UNSUBSCRIBE without an answer are
    /// forgotten.
    pub fn handle_connection_closed(&mut self) {
        self.give_up();
        self.connection = self.connection.wrapping_add(1);
        self.is_busy = false;
        self.is_discarding = false;
        self.ping_sent = None;
        self.unanswered = 0;
        self.sent = 0;
        self.requests = Vec::new();
    }

    /// Takes leave: sends DISCONNECT, and nothing after it. What arrives is still told. A session expiry interval of 0 ends the
    /// session with the network connection (MQTT 5, 3.1.2.11.2): messages of QoS 2 that are not released are forgotten then, as
    /// their packet identifiers are those of other messages in the next session. What was in flight stays.
    ///
    /// # Errors
    /// The client is not connected; the packet cannot be written or is too large for the server.
    pub fn disconnect(&mut self, disconnect: &Disconnect<'_>) -> Result<(), CommandError> {
        self.check_connected()?;
        self.push(|version, out| disconnect.encode(version, out))?;
        // [MQTT-3.14.4-1] nothing after DISCONNECT.
        self.phase = match disconnect.properties.session_expiry_interval {
            Some(0) if self.version.is_v5() => Phase::EndingSession,
            _ => Phase::Leaving,
        };
        self.is_busy = false;
        Ok(())
    }

    pub(crate) fn handle_connack<'a>(
        &mut self,
        ack: ConnAck<'a>,
    ) -> Result<Option<Event<'a, M>>, Violation> {
        if ack.reason.is_error() {
            self.give_up();
            return Ok(Some(Event::Refused(ack)));
        }
        // [MQTT-3.2.2-2] [MQTT3-3.2.2-1]
        if self.clean_start && ack.session_present {
            return Err(Violation::SessionPresentAfterCleanStart);
        }
        self.session_present = ack.session_present;
        if !ack.session_present {
            // [MQTT-3.2.2-5] the session state is gone. Messages that the server may not have are published anew.
            self.received = PacketIdSet::new();
            self.is_discarding = self
                .in_flight
                .iter()
                .any(|sent| sent.progress == Progress::Received);
        }
        let properties = &ack.properties;
        let limits = &mut self.server;
        limits.receive_maximum = properties.receive_maximum.map_or(u16::MAX, NonZeroU16::get);
        limits.maximum_packet_size = properties
            .maximum_packet_size
            .map_or(u32::MAX, NonZeroU32::get);
        limits.maximum_qos = properties.maximum_qos.unwrap_or(QoS::ExactlyOnce);
        limits.retain_available = properties.retain_available.unwrap_or(true);
        if let Some(seconds) = properties.server_keep_alive {
            // [MQTT-3.1.2-21] [MQTT-3.2.2-21]
            self.keep_alive = Duration::from_secs(seconds.into());
        }
        self.phase = Phase::Connected;
        self.release_received();
        Ok(Some(Event::Connected(ack)))
    }
}

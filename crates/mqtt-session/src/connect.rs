//! CONNECT and CONNACK: what is checked before there is a session, and how one begins or resumes.

use std::num::{NonZeroU16, NonZeroU32};

use mqtt_proto::{
    Auth, AuthProperties, ConnAck, ConnAckProperties, Connect, Packet, PacketId, ProtocolVersion,
    QoS, ReasonCode, UserProperties, validate_topic_name,
};

use crate::alias::OutboundAliases;
use crate::declared::Declared;
use crate::qos0_queue::Qos0Queue;
use crate::rare::{Rare, RareParts};
use crate::session::Announced;
use crate::subscriptions::Subscriptions;
use crate::will::Will;
use crate::{ClassId, Epoch, Incarnation, Policy, Session, Timestamp};

/// The longest client identifier of MQTT 3.1, in characters.
const CLIENT_ID_MAX_V3_1: usize = 23;

/// Checks a CONNECT that decoded well, as far as no session and no credentials are needed for it.
///
/// # Errors
/// The reason code to refuse the connection with: [`encode_refusal`].
pub fn check_connect(connect: &Connect<'_>, policy: &Policy) -> Result<(), ReasonCode> {
    let client_id_fits = match connect.version {
        // 3.1 §3.1: 1 to 23 characters. Clients in use have longer ones, so the upper end is a setting.
        ProtocolVersion::V3_1 => {
            let longest = if policy.strict_client_id_v3_1 {
                CLIENT_ID_MAX_V3_1
            } else {
                usize::MAX
            };
            (1..=longest).contains(&connect.client_id.chars().count())
        }
        // [MQTT3-3.1.3-7] [MQTT3-3.1.3-8] none only together with a clean session.
        ProtocolVersion::V3_1_1 => !connect.client_id.is_empty() || connect.clean_start,
        // [MQTT-3.1.3-6] none is allowed: the server assigns one.
        ProtocolVersion::V5 => true,
    };
    if !client_id_fits || connect.client_id.len() > usize::from(policy.client_id_length) {
        return Err(ReasonCode::ClientIdentifierNotValid);
    }
    let Some(will) = &connect.will else {
        return Ok(());
    };
    if validate_topic_name(will.topic).is_err() || !policy.admits_topic(will.topic) {
        return Err(ReasonCode::TopicNameInvalid);
    }
    // [MQTT-3.2.2-12]
    if will.qos > policy.maximum_qos {
        return Err(ReasonCode::QoSNotSupported);
    }
    // [MQTT-3.2.2-13]
    if will.retain && !policy.retain_available {
        return Err(ReasonCode::RetainNotSupported);
    }
    if policy.check_payload_format
        && will.properties.payload_format_indicator == Some(true)
        && std::str::from_utf8(will.payload).is_err()
    {
        return Err(ReasonCode::PayloadFormatInvalid);
    }
    Ok(())
}

/// The session expiry interval in seconds that a CONNECT gets under the policy; 0: the session ends with
/// the network connection.
#[must_use]
pub fn session_expiry(connect: &Connect<'_>, policy: &Policy) -> u32 {
    requested_expiry(connect, policy).min(policy.session_expiry_maximum)
}

fn requested_expiry(connect: &Connect<'_>, policy: &Policy) -> u32 {
    match connect.version {
        ProtocolVersion::V5 => connect.properties.session_expiry_interval.unwrap_or(0),
        // [MQTT3-3.1.2-6] a clean session lasts as long as its network connection.
        ProtocolVersion::V3_1 | ProtocolVersion::V3_1_1 if connect.clean_start => 0,
        ProtocolVersion::V3_1 | ProtocolVersion::V3_1_1 => policy.session_expiry_v3,
    }
}

/// What the server has decided about a CONNECT that it accepts.
#[derive(Clone, Copy, Default, Debug)]
pub struct Accepted<'a> {
    /// The server chose the client identifier.
    pub assigned: bool,
    /// Authentication data that end an exchange of authentication.
    pub authentication_data: Option<&'a [u8]>,
    /// The client's class.
    pub class: ClassId,
    /// The epoch of the network connection, if the client is to be told: `hmq-epoch` in CONNACK.
    pub epoch: Option<Epoch>,
    /// Of the inbox of a durable session, if the client is to be told the position of each message of it: `hmq-position` in
    /// PUBLISH with QoS 1 and 2.
    pub incarnation: Option<Incarnation>,
}

/// Appends an AUTH that goes on with an exchange of authentication before there is a session.
/// `method`: that of CONNECT.
pub fn encode_challenge(method: &str, data: &[u8], out: &mut Vec<u8>) {
    // [MQTT-4.12.0-2]
    let challenge = auth(ReasonCode::ContinueAuthentication, method, data);
    let encoded = challenge.encode(ProtocolVersion::V5, out);
    debug_assert_eq!(encoded, Ok(()), "the method came in a CONNECT");
}

/// [MQTT-4.12.0-5] each AUTH names the method.
pub(crate) fn auth<'a>(reason: ReasonCode, method: &'a str, data: &'a [u8]) -> Packet<'a> {
    Packet::Auth(Auth {
        reason,
        properties: AuthProperties {
            authentication_method: Some(method),
            authentication_data: Some(data),
            ..AuthProperties::default()
        },
    })
}

/// Appends the CONNACK that refuses a connection; close after sending it [MQTT-3.2.2-7].
pub fn encode_refusal(
    version: ProtocolVersion,
    reason: ReasonCode,
    policy: &Policy,
    out: &mut Vec<u8>,
) {
    let properties = ConnAckProperties {
        server_reference: policy.reference_for(reason),
        ..ConnAckProperties::default()
    };
    // [MQTT-3.2.2-6] [MQTT3-3.2.2-4] no session is present in a refusal.
    let refusal = |reason| {
        Packet::ConnAck(ConnAck {
            session_present: false,
            reason,
            properties,
        })
    };
    // [MQTT-3.2.2-8] a code that CONNACK cannot carry becomes the one that says least.
    if refusal(reason).encode(version, out).is_err() {
        let encoded = refusal(ReasonCode::UnspecifiedError).encode(version, out);
        debug_assert_eq!(encoded, Ok(()), "CONNACK can say unspecified error");
    }
}

impl Policy {
    /// The server to name along with a reason code that sends the client elsewhere (§4.11).
    pub(crate) fn reference_for(&self, reason: ReasonCode) -> Option<&str> {
        let elsewhere = matches!(
            reason,
            ReasonCode::UseAnotherServer | ReasonCode::ServerMoved
        );
        self.server_reference.as_deref().filter(|_| elsewhere)
    }
}

impl Session {
    /// A new session for an accepted CONNECT. CONNACK with session present 0 waits for transmission.
    #[must_use]
    pub fn open(
        connect: &Connect<'_>,
        client_id: Box<str>,
        accepted: Accepted<'_>,
        policy: &Policy,
        now: Timestamp,
    ) -> Self {
        let mut session = Self::detached(connect.version, client_id, now);
        session.accept(connect, accepted, false, policy, now);
        session
    }

    /// A session without a network connection that knows its client only.
    pub(crate) fn detached(version: ProtocolVersion, client_id: Box<str>, now: Timestamp) -> Self {
        Self {
            client_id,
            subscriptions: Subscriptions::default(),
            control: Vec::new(),
            qos0: Qos0Queue::default(),
            outbound: None,
            inbound: None,
            rare: Rare::default(),
            durable: None,
            since: now,
            queue_bytes: 0,
            session_expiry: 0,
            keep_alive: 0,
            client_receive_maximum: u16::MAX,
            window: 1,
            announced: Announced {
                receive_maximum: 1,
                topic_alias_maximum: 0,
            },
            next_packet_id: PacketId::FIRST,
            version,
            online: false,
            closing: false,
            class: ClassId::DEFAULT,
            declared: Declared::NOTHING,
        }
    }

    /// A new network connection for this session, by a CONNECT with clean start 0. CONNACK with
    /// session present 1 waits for transmission, and behind it what was not acknowledged.
    ///
    /// # Panics
    /// The previous network connection was not reported closed
    /// ([`Self::handle_connection_closed`]), or the session is a durable one.
    pub fn resume(&mut self, connect: &Connect<'_>, policy: &Policy, now: Timestamp) {
        assert!(
            !self.online,
            "the previous network connection is closed before the next one"
        );
        assert!(
            self.durable.is_none(),
            "a durable session is made from its store"
        );
        self.accept(connect, Accepted::default(), true, policy, now);
    }

    pub(crate) fn accept(
        &mut self,
        connect: &Connect<'_>,
        accepted: Accepted<'_>,
        session_present: bool,
        policy: &Policy,
        now: Timestamp,
    ) {
        let properties = &connect.properties;
        self.since = now;
        self.version = connect.version;
        self.online = true;
        self.class = accepted.class;
        self.client_receive_maximum = properties.receive_maximum.map_or(u16::MAX, NonZeroU16::get);
        self.set_window(policy);
        self.announced.receive_maximum = policy.receive_maximum.max(1);
        self.announced.topic_alias_maximum = if self.version.is_v5() {
            policy.topic_alias_maximum
        } else {
            0
        };
        // [MQTT-3.1.2-26] [MQTT-3.1.2-27]
        let aliases_out = properties.topic_alias_maximum.unwrap_or(0);
        let aliases_out = NonZeroU16::new(aliases_out.min(policy.topic_alias_maximum_out));
        self.rare = Rare::new(RareParts {
            username: connect.username.map(Into::into),
            // [MQTT-3.1.3-9] the will of the previous connection is replaced before its delay passed.
            will: connect.will.as_ref().map(Will::new),
            inbound_aliases: None,
            outbound_aliases: aliases_out.map(|maximum| Box::new(OutboundAliases::new(maximum))),
            client_maximum_packet_size: properties
                .maximum_packet_size
                .map_or(u32::MAX, NonZeroU32::get),
        });
        let requested = requested_expiry(connect, policy);
        self.declared = Declared::by(connect, requested);
        self.session_expiry = session_expiry(connect, policy);
        self.keep_alive = negotiate_keep_alive(connect, policy);
        self.send_connack(connect, accepted, session_present, requested, policy);
    }

    /// CONNACK. Properties that would repeat the protocol's default are left out.
    fn send_connack(
        &mut self,
        connect: &Connect<'_>,
        accepted: Accepted<'_>,
        session_present: bool,
        requested_expiry: u32,
        policy: &Policy,
    ) {
        let client_id = std::mem::take(&mut self.client_id);
        let mut pairs = Vec::new();
        let epoch = accepted.epoch.map(|epoch| epoch.lay_out(&mut pairs));
        let unavailable = |available: bool| (!available).then_some(false);
        let properties = ConnAckProperties {
            session_expiry_interval: (self.session_expiry != requested_expiry)
                .then_some(self.session_expiry),
            receive_maximum: NonZeroU16::new(self.announced.receive_maximum)
                .filter(|maximum| *maximum != NonZeroU16::MAX),
            // [MQTT-3.2.2-9]
            maximum_qos: Some(policy.maximum_qos).filter(|qos| *qos != QoS::ExactlyOnce),
            retain_available: unavailable(policy.retain_available),
            maximum_packet_size: NonZeroU32::new(policy.maximum_packet_size)
                .filter(|size| *size != NonZeroU32::MAX),
            // [MQTT-3.1.3-7]
            assigned_client_identifier: accepted.assigned.then_some(&*client_id),
            topic_alias_maximum: Some(self.announced.topic_alias_maximum)
                .filter(|maximum| *maximum != 0),
            wildcard_subscription_available: unavailable(policy.wildcard_subscription_available),
            subscription_identifiers_available: unavailable(
                policy.subscription_identifier_available,
            ),
            shared_subscription_available: unavailable(policy.shared_subscription_available),
            // [MQTT-3.2.2-21] [MQTT-3.2.2-22]
            server_keep_alive: (self.keep_alive != connect.keep_alive).then_some(self.keep_alive),
            // [MQTT-3.1.2-28] only for a client that asks.
            response_information: (connect.properties.request_response_information == Some(true))
                .then_some(policy.response_information.as_deref())
                .flatten(),
            // [MQTT-4.12.0-5] [MQTT-4.12.0-6]
            authentication_method: connect.properties.authentication_method,
            authentication_data: accepted.authentication_data,
            user_properties: epoch.unwrap_or_default(),
            ..ConnAckProperties::default()
        };
        // [MQTT-3.1.4-5] [MQTT-3.2.2-2] [MQTT-3.2.2-3] [MQTT3-3.2.2-1] [MQTT3-3.2.2-2] [MQTT3-3.2.2-3]
        let connack = ConnAck {
            session_present,
            reason: ReasonCode::Success,
            properties,
        };
        let fits = self.push_control(|version, out| connack.encode(version, out));
        // [MQTT-3.2.2-19] [MQTT-3.2.2-20] response information and user properties go only if they fit.
        let fits = fits
            || self.push_control(|version, out| {
                let properties = ConnAckProperties {
                    response_information: None,
                    user_properties: UserProperties::NONE,
                    ..properties
                };
                ConnAck {
                    properties,
                    ..connack
                }
                .encode(version, out)
            });
        self.client_id = client_id;
        // [MQTT-3.2.0-1] nothing goes before CONNACK: a client that cannot take it is sent nothing.
        self.closing = !fits;
    }
}

/// The keep alive in force, in seconds. Only MQTT 5.0 can tell a client another one than it asked
/// for.
fn negotiate_keep_alive(connect: &Connect<'_>, policy: &Policy) -> u16 {
    let maximum = policy.keep_alive_maximum;
    let within = connect.keep_alive != 0 && connect.keep_alive <= maximum;
    if maximum == 0 || within || !connect.version.is_v5() {
        connect.keep_alive
    } else {
        maximum
    }
}

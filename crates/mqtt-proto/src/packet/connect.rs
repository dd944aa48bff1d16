//! CONNECT (§3.1): the first packet of a client.
//!
//! Deliberately absent: which client identifiers are accepted (length, characters, empty ones:
//! [MQTT-3.1.3-5], [MQTT-3.1.3-6], [MQTT3-3.1.3-8]) and that CONNECT comes first and once
//! ([MQTT-3.1.0-1], [MQTT-3.1.0-2]); they are the session's.

use crate::codec::{Reader, put_binary, put_frame, put_string, put_topic, put_u16};
use crate::{
    ConnectProperties, DecodeError, EncodeError, Frame, PacketType, ProtocolVersion, QoS,
    WillProperties,
};

/// Bit of the protocol level by which a bridge of MQTT 3.1 or 3.1.1 says that it is one: levels 0x83 and 0x84. No standard
/// has it; Mosquitto's bridges set it unless told otherwise (`try_private`).
const BRIDGE: u8 = 0b1000_0000;

const RESERVED: u8 = 0b0000_0001;
const CLEAN_START: u8 = 0b0000_0010;
const WILL: u8 = 0b0000_0100;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USER_NAME: u8 = 0b1000_0000;

/// Opens a session on a network connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Version of the protocol from here on.
    pub version: ProtocolVersion,
    /// Whether the client is a bridge, which forwards what another broker's clients publish; said before 5.0 only, where
    /// there are no subscription options.
    pub is_bridge: bool,
    /// Whether an existing session is discarded (clean session before 5.0).
    pub clean_start: bool,
    /// Longest silence of the client in seconds; 0: not watched.
    pub keep_alive: u16,
    /// Client identifier; may be empty.
    pub client_id: &'a str,
    /// The will message.
    pub will: Option<LastWill<'a>>,
    /// User name.
    pub username: Option<&'a str>,
    /// Password; before 5.0 only with a user name.
    pub password: Option<&'a [u8]>,
    /// Empty before 5.0.
    pub properties: ConnectProperties<'a>,
}

/// The will message: published by the server when the connection ends otherwise than by DISCONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastWill<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// The application message.
    pub payload: &'a [u8],
    /// Quality of service to publish with.
    pub qos: QoS,
    /// Whether to retain the message.
    pub retain: bool,
    /// Empty before 5.0.
    pub properties: WillProperties<'a>,
}

impl<'a> Connect<'a> {
    pub(crate) fn decode(header: &Frame, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let (version, is_bridge) = decode_version(&mut reader)?;
        // [MQTT-1.5.5-1] only now is it known that the remaining length must be in its shortest form.
        if version.is_v5()
            && header.header_len
                != 1 + crate::codec::variable_byte_integer_len(header.remaining_len)
        {
            return Err(DecodeError::VariableByteIntegerNotMinimal);
        }
        let flags = reader.u8()?;
        // [MQTT-3.1.2-3] [MQTT3-3.1.2-3] the reserved flag is 0; 3.1 says that it is not used.
        if flags & RESERVED != 0 && version != ProtocolVersion::V3_1 {
            return Err(DecodeError::ReservedConnectFlag);
        }
        let keep_alive = reader.u16()?;
        let properties = if version.is_v5() {
            ConnectProperties::decode(&mut reader)?
        } else {
            ConnectProperties::default()
        };
        // §3.1.2.11.10: data of no method is a protocol error.
        if properties.authentication_data.is_some() && properties.authentication_method.is_none() {
            return Err(DecodeError::AuthenticationMethodMissing);
        }
        // [MQTT-3.1.3-1] [MQTT3-3.1.3-1] client identifier, will, user name, password, in this order.
        // [MQTT-3.1.3-3] [MQTT-3.1.3-4] [MQTT3-3.1.3-3] [MQTT3-3.1.3-4] present, a UTF-8 string.
        let client_id = reader.string()?;
        let will = LastWill::decode(flags, &mut reader, version)?;
        // 3.1 §3.1: when the packet ends before a user name or password that the flags announce, the
        // remaining length takes precedence and the connection goes on.
        let may_end = version == ProtocolVersion::V3_1;
        // [MQTT-3.1.2-16] [MQTT-3.1.2-17] [MQTT3-3.1.2-18] [MQTT3-3.1.2-19] as flagged,
        // [MQTT-3.1.3-12] [MQTT3-3.1.3-11] a UTF-8 string.
        let username = match flags & USER_NAME != 0 && !(may_end && reader.is_empty()) {
            true => Some(reader.string()?),
            false => None,
        };
        // [MQTT3-3.1.2-22] before 5.0, no password without user name.
        if flags & PASSWORD != 0 && flags & USER_NAME == 0 && !version.is_v5() {
            return Err(DecodeError::PasswordWithoutUserName);
        }
        // [MQTT-3.1.2-18] [MQTT-3.1.2-19] [MQTT3-3.1.2-20] [MQTT3-3.1.2-21] as flagged.
        let password = match flags & PASSWORD != 0 && !(may_end && reader.is_empty()) {
            true => Some(reader.binary()?),
            false => None,
        };
        reader.finish()?;
        let clean_start = flags & CLEAN_START != 0;
        Ok(Self {
            version,
            is_bridge,
            clean_start,
            keep_alive,
            client_id,
            will,
            username,
            password,
            properties,
        })
    }

    /// Appends the packet to `out`, in the packet's own version. Before 5.0, properties are left out; in 5.0, whether the
    /// client is a bridge.
    ///
    /// # Errors
    /// The packet breaks a rule of CONNECT or has a field that cannot be written; `out` is then
    /// unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.password.is_some() && self.username.is_none() && !self.version.is_v5() {
            return Err(EncodeError::PasswordWithoutUserName);
        }
        if self.properties.authentication_data.is_some()
            && self.properties.authentication_method.is_none()
        {
            return Err(EncodeError::AuthenticationMethodMissing);
        }
        let mut flags = 0;
        if self.clean_start {
            flags |= CLEAN_START;
        }
        if let Some(will) = &self.will {
            flags |= WILL | will.qos.as_u8() << 3;
            if will.retain {
                flags |= WILL_RETAIN;
            }
        }
        if self.username.is_some() {
            flags |= USER_NAME;
        }
        if self.password.is_some() {
            flags |= PASSWORD;
        }
        let mut level = self.version as u8;
        if self.is_bridge && !self.version.is_v5() {
            level |= BRIDGE;
        }
        put_frame(PacketType::Connect.first_byte(), &[], out, |out| {
            put_string(self.version.protocol_name(), out)?;
            out.extend_from_slice(&[level, flags]);
            put_u16(self.keep_alive, out);
            if self.version.is_v5() {
                self.properties.encode(out)?;
            }
            put_string(self.client_id, out)?;
            if let Some(will) = &self.will {
                will.encode(self.version, out)?;
            }
            if let Some(username) = self.username {
                put_string(username, out)?;
            }
            match self.password {
                Some(password) => put_binary(password, out),
                None => Ok(()),
            }
        })
    }
}

/// Protocol name and level: the version, and whether the client is a bridge. Nothing behind them is looked at unless both
/// are known.
fn decode_version(reader: &mut Reader<'_>) -> Result<(ProtocolVersion, bool), DecodeError> {
    // [MQTT-3.1.2-1] [MQTT3-3.1.2-1] another name is another protocol.
    let name = reader
        .binary()
        .map_err(|_| DecodeError::UnknownProtocolName)?;
    if name != b"MQTT" && name != b"MQIsdp" {
        return Err(DecodeError::UnknownProtocolName);
    }
    // [MQTT-3.1.2-2] [MQTT3-3.1.2-2] a known name with a level that is not served gets an answer.
    let level = reader.u8()?;
    let is_bridge = level & BRIDGE != 0;
    let version = match (name, level & !BRIDGE) {
        (b"MQIsdp", 3) => ProtocolVersion::V3_1,
        (b"MQTT", 4) => ProtocolVersion::V3_1_1,
        (b"MQTT", 5) if !is_bridge => ProtocolVersion::V5,
        _ => return Err(DecodeError::UnsupportedProtocolLevel(level)),
    };
    Ok((version, is_bridge))
}

impl<'a> LastWill<'a> {
    fn decode(
        flags: u8,
        reader: &mut Reader<'a>,
        version: ProtocolVersion,
    ) -> Result<Option<Self>, DecodeError> {
        let qos = flags >> 3 & 0b11;
        let retain = flags & WILL_RETAIN != 0;
        if flags & WILL == 0 {
            // [MQTT-3.1.2-11] [MQTT3-3.1.2-13] no will, no will QoS;
            if qos != 0 {
                return Err(DecodeError::WillQosWithoutWill);
            }
            // [MQTT-3.1.2-13] [MQTT3-3.1.2-15] nor will retain.
            if retain {
                return Err(DecodeError::WillRetainWithoutWill);
            }
            return Ok(None);
        }
        // [MQTT-3.1.2-12] [MQTT3-3.1.2-14] no QoS 3.
        let qos = QoS::from_u8(qos).ok_or(DecodeError::WillQosInvalid)?;
        // [MQTT-3.1.2-9] [MQTT3-3.1.2-9] will properties, topic and payload are present.
        let properties = if version.is_v5() {
            WillProperties::decode(reader)?
        } else {
            WillProperties::default()
        };
        // [MQTT-3.1.3-11] [MQTT3-3.1.3-10] a UTF-8 string; it becomes the topic name of a PUBLISH:
        // [MQTT-4.7.0-1] [MQTT-4.7.3-1] [MQTT3-4.7.1-1] [MQTT3-4.7.3-1].
        let topic = reader.topic(DecodeError::WillTopicInvalid)?;
        if topic.is_empty() {
            return Err(DecodeError::WillTopicInvalid);
        }
        let payload = reader.binary()?;
        Ok(Some(Self {
            topic,
            payload,
            qos,
            retain,
            properties,
        }))
    }

    fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version.is_v5() {
            self.properties.encode(out)?;
        }
        put_topic(self.topic, false, out)?;
        put_binary(self.payload, out)
    }
}

#[cfg(test)]
mod tests;

//! A client without a session, for a short visit: it reads what is retained, and sees whether it is
//! served at all. It waits for answers with a deadline.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use mqtt_proto::{
    Connect, ConnectProperties, Packet, PacketId, ProtocolVersion, Publish, PublishProperties, QoS,
    RetainHandling, Subscribe, SubscribeFilters, SubscribeProperties, SubscriptionOptions,
    peek_frame,
};

use crate::client::message_of;
use crate::model::MessageIndex;

const VERSION: ProtocolVersion = ProtocolVersion::V5;

/// The visitor's own topic: it publishes there to see when it has everything.
const MARK: &str = "visit/mark";

/// A connected visitor.
#[derive(Debug)]
pub struct Visitor {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Visitor {
    /// Connects with a clean session; each answer may take `patience`.
    ///
    /// # Errors
    /// Nobody listens, no answer in time, or a refusal.
    pub fn connect(server: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut visitor = Self {
            stream,
            input: Vec::new(),
        };
        visitor.send(&Packet::Connect(Connect {
            version: VERSION,
            clean_start: true,
            keep_alive: 0,
            client_id: "visitor",
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties::default(),
        }))?;
        visitor.until(|packet| match packet {
            Packet::ConnAck(packet) if packet.reason.is_error() => {
                Some(Err(refused(&format!("{:?}", packet.reason))))
            }
            Packet::ConnAck(_) => Some(Ok(())),
            _ => None,
        })?;
        Ok(visitor)
    }

    /// The retained messages that a filter brings, by topic. Waits for `expected` of them and for a message
    /// of its own.
    ///
    /// # Errors
    /// No answer in time.
    pub fn retained(
        &mut self,
        filter: &str,
        expected: usize,
    ) -> io::Result<BTreeMap<String, MessageIndex>> {
        let mut values = BTreeMap::new();
        self.subscribe(&[filter, MARK])?;
        self.mark()?;
        let mut is_marked = false;
        let got = self.until(|packet| {
            if let Packet::Publish(packet) = packet {
                if packet.topic == MARK {
                    is_marked = true;
                } else if let Some(message) = message_of(packet.payload) {
                    values.insert(packet.topic.to_owned(), message);
                }
            }
            (is_marked && values.len() >= expected).then_some(Ok(()))
        });
        match got {
            // Fewer than expected is for the model to judge.
            Err(error) if is_marked && is_timeout(&error) => {}
            other => other?,
        }
        Ok(values)
    }

    /// Subscribes, publishes at QoS 0 and receives it.
    ///
    /// # Errors
    /// No answer in time.
    pub fn is_served(&mut self) -> io::Result<()> {
        self.subscribe(&[MARK])?;
        self.mark()?;
        self.until(|packet| matches!(packet, Packet::Publish(_)).then_some(Ok(())))
    }

    fn mark(&mut self) -> io::Result<()> {
        self.send(&Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: MARK,
            packet_id: None,
            properties: PublishProperties::default(),
            payload: b"",
        }))
    }

    fn subscribe(&mut self, filters: &[&str]) -> io::Result<()> {
        let options = SubscriptionOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: true,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        let listed: Vec<_> = filters.iter().map(|filter| (*filter, options)).collect();
        let mut buffer = Vec::new();
        let filters = SubscribeFilters::encode_from(&listed, &mut buffer)
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.send(&Packet::Subscribe(Subscribe {
            packet_id: PacketId::FIRST,
            properties: SubscribeProperties::default(),
            filters,
        }))
    }

    fn send(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        packet
            .encode(VERSION, &mut bytes)
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.stream.write_all(&bytes)
    }

    /// Reads packets until `is_done` says how it went.
    fn until(
        &mut self,
        mut is_done: impl FnMut(&Packet<'_>) -> Option<io::Result<()>>,
    ) -> io::Result<()> {
        let malformed = |error: mqtt_proto::DecodeError| refused(&error.to_string());
        loop {
            while let Some(header) = peek_frame(&self.input, Some(VERSION)).map_err(malformed)?
                && self.input.len() >= header.len()
            {
                let frame: Vec<u8> = self.input.drain(..header.len()).collect();
                let packet = Packet::decode(&frame, VERSION).map_err(malformed)?;
                if let Some(result) = is_done(&packet) {
                    return result;
                }
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(ErrorKind::ConnectionRefused, what.to_owned())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

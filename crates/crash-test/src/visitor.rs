//! A client without a session, for a short visit: it reads what is retained, and sees whether it is
//! served at all. It waits for answers with a deadline.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use mqtt_client::{Acknowledgements, Client, Event, ProtocolError};
use mqtt_proto::{
    Connect, ConnectProperties, ProtocolVersion, Publish, PublishProperties, QoS, RetainHandling,
    SubscribeProperties, SubscriptionOptions,
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
    mqtt: Client<()>,
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
            mqtt: Client::new(Acknowledgements::Automatic),
        };
        let connect = Connect {
            version: VERSION,
            is_bridge: false,
            clean_start: true,
            keep_alive: 0,
            client_id: "visitor",
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties::default(),
        };
        visitor.mqtt.connect(&connect).map_err(io::Error::other)?;
        visitor.until(|event| match event {
            Event::Refused(packet) => Some(Err(refused(&format!("{:?}", packet.reason)))),
            Event::Connected(_) => Some(Ok(())),
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
        let got = self.until(|event| {
            if let Event::Message(incoming) = event {
                let packet = &incoming.publish;
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
        self.until(|event| matches!(event, Event::Message(_)).then_some(Ok(())))
    }

    fn mark(&mut self) -> io::Result<()> {
        let mark = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: MARK,
            packet_id: None,
            properties: PublishProperties::default(),
            payload: b"",
        };
        self.mqtt.publish(mark, ()).map_err(io::Error::other)?;
        self.flush()
    }

    fn subscribe(&mut self, filters: &[&str]) -> io::Result<()> {
        let options = SubscriptionOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: true,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        let listed: Vec<_> = filters.iter().map(|filter| (*filter, options)).collect();
        self.mqtt
            .subscribe(&listed, SubscribeProperties::default())
            .map_err(io::Error::other)?;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = self.mqtt.poll_transmit();
        let count = bytes.len();
        self.stream.write_all(bytes)?;
        // Without keep alive, the time does not count.
        self.mqtt.handle_transmitted(count, Duration::ZERO);
        Ok(())
    }

    /// Reads packets until `is_done` says how it went.
    fn until(
        &mut self,
        mut is_done: impl FnMut(&Event<'_, ()>) -> Option<io::Result<()>>,
    ) -> io::Result<()> {
        loop {
            self.flush()?;
            let mut chunk = [0; 4096];
            let count = match self.stream.read(&mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => count,
            };
            let mut arrival = self.mqtt.handle_bytes(&chunk[..count]);
            let mut result = None;
            while let Some(event) = self.mqtt.poll_event(&mut arrival).map_err(malformed)? {
                result = result.or_else(|| is_done(&event));
            }
            if let Some(result) = result {
                return self.flush().and(result);
            }
        }
    }
}

fn malformed(error: ProtocolError) -> io::Error {
    refused(&error.source().unwrap_or(&error).to_string())
}

fn refused(what: &str) -> io::Error {
    io::Error::new(ErrorKind::ConnectionRefused, what.to_owned())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

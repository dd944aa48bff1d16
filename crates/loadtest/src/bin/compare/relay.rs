//! The baseline: a single-threaded epoll server that does the reads and writes of a broker, and next to
//! nothing else.
//!
//! It answers CONNECT and SUBSCRIBE, and then forwards the bytes of a publisher as they are to all
//! connections that subscribed to the topic of its first PUBLISH. At QoS 1 it acknowledges each PUBLISH
//! it reads, and swallows what subscribers send. So it is right for one topic per publisher, QoS 0 and
//! 1, MQTT before 5.0, filters without wildcards; and only for those.
//!
//! With a journal it is the baseline of what is durable: the publications of all connections that one return of
//! epoll_wait(2) has told of are appended to a file, synced once, and forwarded and acknowledged afterwards.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use mqtt_proto::{Packet, PacketType, ProtocolVersion, peek_frame};

const LISTENER: Token = Token(usize::MAX);
const CHUNK: usize = 64 * 1024;
const VERSION: ProtocolVersion = ProtocolVersion::V3_1_1;

struct Connection {
    stream: TcpStream,
    /// The start of a frame whose end has not arrived.
    partial: Vec<u8>,
    out: Vec<u8>,
    /// Whom its messages go to; known from its first PUBLISH on.
    receivers: Option<Vec<usize>>,
}

#[derive(Default)]
struct Relay {
    connections: Vec<Option<Connection>>,
    subscribers: HashMap<String, Vec<usize>>,
    journal: Option<Journal>,
}

/// What is written to a file before anybody hears of it.
struct Journal {
    file: File,
    /// What the next write appends.
    unwritten: Vec<u8>,
    /// What follows the sync, by the connection that it goes to.
    held: Vec<(usize, Vec<u8>)>,
}

/// Serves until the process is killed.
pub(crate) fn run(port: u16, journal: Option<&Path>) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut relay = Relay::default();
    if let Some(path) = journal {
        let mut options = OpenOptions::new();
        relay.journal = Some(Journal {
            file: options.create(true).write(true).truncate(true).open(path)?,
            unwritten: Vec::new(),
            held: Vec::new(),
        });
    }
    let mut buffer = vec![0; 2 * CHUNK];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            let Token(index) = event.token();
            if event.token() == LISTENER {
                relay.accept(&listener, &poll)?;
                continue;
            }
            if event.is_writable() {
                relay.write(index, &[]);
            }
            if event.is_readable() && !relay.read(index, &mut buffer) {
                relay.connections[index] = None;
            }
        }
        relay.sync()?;
    }
}

impl Relay {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let token = Token(self.connections.len());
            poll.registry().register(
                &mut stream,
                token,
                Interest::READABLE | Interest::WRITABLE,
            )?;
            let connection = Connection {
                stream,
                partial: Vec::new(),
                out: Vec::new(),
                receivers: None,
            };
            self.connections.push(Some(connection));
        }
    }

    /// Reads and forwards; `false` when the connection is over.
    fn read(&mut self, index: usize, buffer: &mut [u8]) -> bool {
        loop {
            let Some(connection) = &mut self.connections[index] else {
                return true;
            };
            let kept = connection.partial.len();
            buffer[..kept].copy_from_slice(&connection.partial);
            let room = &mut buffer[kept..kept + CHUNK];
            let count = match connection.stream.read(room) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let filled = &buffer[..kept + count];
            let Some(whole) = self.forward(index, filled) else {
                return false;
            };
            if let Some(connection) = &mut self.connections[index] {
                connection.partial.clear();
                connection.partial.extend_from_slice(&filled[whole..]);
            }
            if count < CHUNK {
                return true;
            }
        }
    }

    /// Answers and forwards the whole frames in `bytes` and returns their length; `None` for bytes that
    /// are no MQTT.
    fn forward(&mut self, index: usize, bytes: &[u8]) -> Option<usize> {
        let mut whole = 0;
        let mut answers = Vec::new();
        let mut publishes = false;
        while let Some(header) = peek_frame(&bytes[whole..], None).ok()?
            && let Some(frame) = bytes.get(whole..whole + header.len())
        {
            whole += header.len();
            match header.packet_type {
                PacketType::Connect => answers.extend([0x20, 2, 0, 0]),
                PacketType::Subscribe => {
                    let Packet::Subscribe(subscribe) = Packet::decode(frame, VERSION).ok()? else {
                        return None;
                    };
                    let (filter, options) = subscribe.filters.iter().next()?;
                    self.subscribers
                        .entry(filter.to_owned())
                        .or_default()
                        .push(index);
                    let [high, low] = subscribe.packet_id.get().to_be_bytes();
                    answers.extend([0x90, 3, high, low, options.qos.as_u8()]);
                }
                PacketType::Publish => {
                    publishes = true;
                    let topic = &frame[header.header_len..];
                    let length = usize::from(u16::from_be_bytes(*topic.first_chunk()?));
                    let (topic, rest) = topic[2..].split_at_checked(length)?;
                    if header.flags != 0 {
                        answers.extend([0x40, 2]);
                        answers.extend(rest.first_chunk::<2>()?);
                    }
                    self.find_receivers(index, topic);
                }
                _ => {}
            }
        }
        if publishes {
            let receivers = self.connections[index].as_mut()?.receivers.take()?;
            if let Some(journal) = &mut self.journal {
                journal.unwritten.extend_from_slice(&bytes[..whole]);
                let forwarded = |&receiver: &usize| (receiver, bytes[..whole].to_vec());
                journal.held.extend(receivers.iter().map(forwarded));
                journal.held.push((index, std::mem::take(&mut answers)));
            } else {
                for &receiver in &receivers {
                    self.write(receiver, &bytes[..whole]);
                }
            }
            self.connections[index].as_mut()?.receivers = Some(receivers);
        }
        if !answers.is_empty() {
            self.write(index, &answers);
        }
        Some(whole)
    }

    /// Appends what was published since the last call, syncs it, and then forwards and acknowledges it.
    fn sync(&mut self) -> io::Result<()> {
        let journal = self.journal.as_mut();
        let journal = journal.filter(|journal| !journal.unwritten.is_empty());
        let held = match journal {
            Some(journal) => {
                journal.file.write_all(&journal.unwritten)?;
                journal.file.sync_data()?;
                journal.unwritten.clear();
                std::mem::take(&mut journal.held)
            }
            None => Vec::new(),
        };
        for (index, bytes) in held {
            self.write(index, &bytes);
        }
        Ok(())
    }

    fn find_receivers(&mut self, index: usize, topic: &[u8]) {
        if let Some(connection) = &mut self.connections[index]
            && connection.receivers.is_none()
        {
            let subscribers = str::from_utf8(topic)
                .ok()
                .and_then(|topic| self.subscribers.get(topic));
            connection.receivers = Some(subscribers.cloned().unwrap_or_default());
        }
    }

    /// Writes what could not be written before, then these bytes. A connection that fails is noticed
    /// when it is read.
    fn write(&mut self, index: usize, bytes: &[u8]) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        if connection.out.is_empty() {
            if !bytes.is_empty() {
                let written = connection.stream.write(bytes).unwrap_or(0);
                connection.out.extend_from_slice(&bytes[written..]);
            }
            return;
        }
        connection.out.extend_from_slice(bytes);
        let written = connection.stream.write(&connection.out).unwrap_or(0);
        connection.out.drain(..written);
    }
}

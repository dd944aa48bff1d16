//! WebSocket (RFC 6455) around MQTT: the opening handshake, and frames as MQTT uses them.
//!
//! Invariants: payloads are passed on as they come, whatever the frames' lengths; what is kept is the head
//! of a handshake ([`handshake::HEAD_LIMIT`]), of a frame, or one control frame. A violation is answered by
//! a Close frame that says which.
//!
//! Deliberately absent: messages. MQTT is a stream of bytes, where frames and messages end means nothing.

mod handshake;

use std::io::Cursor;
use std::net::IpAddr;
use std::sync::Arc;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use net_api::Spoken;

use crate::{Forwarded, TransportError};
use handshake::Opening;

/// Longest payload of a control frame (RFC 6455 §5.5).
///
/// Limit: a WebSocket control frame | {:bytes}; data frames are passed on as they come | Close 1002
const CONTROL_LIMIT: u64 = 125;
/// Length and mask included (RFC 6455 §5.2).
const LONGEST_HEADER: usize = 14;

/// One side of a WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocket {
    stage: Stage,
    /// Of a head or a control frame.
    incomplete: Vec<u8>,
    /// Bytes of the data frame under way that are still to come.
    remaining: u64,
    /// Their mask, beginning with the next byte's.
    mask: [u8; 4],
    is_client: bool,
    /// Whether a message was begun whose last frame is still to come.
    in_message: bool,
    /// For whom a proxy says that it connects.
    forwarded: Option<IpAddr>,
    is_of_foreign_page: bool,
}

#[derive(Debug)]
enum Stage {
    /// The server waits for a request.
    Accepting {
        server: Arc<Server>,
    },
    /// The client has not sent its request.
    Unopened(Box<Target>),
    /// The client waits for the response.
    Opening(Opening),
    Open,
    /// A Close frame was sent, or an opening was refused.
    Closed,
}

/// Which WebSocket a server opens, and to whom.
#[derive(Clone, Debug)]
pub struct Server {
    /// The path, such as `/mqtt`.
    pub path: String,
    /// Origins of web pages that may connect, in lower case and without the port that the scheme implies, as
    /// browsers send them (RFC 6454 §6.2); none: all, and requests without an origin.
    pub origins: Vec<String>,
    /// Where there are origins: requests without one are refused.
    pub require_origin: bool,
    /// Where proxies say whom they connect for; `None`: nowhere.
    pub forwarded: Option<Forwarded>,
}

impl Server {
    /// A WebSocket at this path for all pages.
    #[must_use]
    pub fn at(path: &str) -> Arc<Self> {
        Arc::new(Self {
            path: path.to_owned(),
            origins: Vec::new(),
            require_origin: false,
            forwarded: None,
        })
    }
}

/// Which WebSocket a client opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Name and port of the server, as its users write them.
    pub host: String,
    /// The path, such as `/mqtt`.
    pub path: String,
}

/// What the peer did wrong.
#[derive(Clone, Copy)]
struct Violation {
    code: CloseCode,
    what: &'static str,
}

impl Violation {
    const fn protocol(what: &'static str) -> Self {
        let code = CloseCode::Protocol;
        Self { code, what }
    }
}

/// Why there is nothing more to read.
enum End {
    Violation(Violation),
    /// A Close frame came, and was answered.
    Closed,
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl WebSocket {
    pub(crate) fn accept(server: Arc<Server>) -> Self {
        Self::new(Stage::Accepting { server }, false)
    }

    pub(crate) fn connect(target: Target) -> Self {
        Self::new(Stage::Unopened(Box::new(target)), true)
    }

    fn new(stage: Stage, is_client: bool) -> Self {
        Self {
            stage,
            incomplete: Vec::new(),
            remaining: 0,
            mask: [0; 4],
            is_client,
            in_message: false,
            forwarded: None,
            is_of_foreign_page: false,
        }
    }

    /// For whom a proxy says that it connects, once.
    pub(crate) fn take_forwarded(&mut self) -> Option<IpAddr> {
        self.forwarded.take()
    }

    /// Whether a page of another host that nobody has listed opened it.
    pub(crate) fn is_of_foreign_page(&self) -> bool {
        self.is_of_foreign_page
    }

    pub(crate) fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Takes bytes; appends those of MQTT to `inner`, and to `output` what the WebSocket itself has to say.
    /// The client sends its request at the first call, which may be without bytes.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        inner: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), TransportError> {
        if self.incomplete.is_empty() {
            return self.read(bytes, inner, output);
        }
        let mut joined = std::mem::take(&mut self.incomplete);
        joined.extend_from_slice(bytes);
        self.read(&joined, inner, output)
    }

    fn read(
        &mut self,
        bytes: &[u8],
        inner: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), TransportError> {
        let length = self.shake_hands(bytes, output)?;
        if !self.is_established() {
            self.incomplete = bytes.to_vec();
            return Ok(());
        }
        let frames = bytes.get(length..).unwrap_or_default();
        self.read_frames(frames, inner, output)
            .map_err(|end| match end {
                End::Closed => TransportError::Closed,
                End::Violation(Violation { code, what }) => {
                    self.send_close(code, output);
                    TransportError::WebSocket(what)
                }
            })
    }

    /// Goes on with the opening handshake and returns the length of the head that ended it, if one did.
    fn shake_hands(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<usize, TransportError> {
        let opened = match &self.stage {
            Stage::Open => return Ok(0),
            Stage::Closed => return Err(TransportError::Closed),
            Stage::Unopened(target) => {
                let (opening, request) = Opening::new(&target.host, &target.path);
                output.extend_from_slice(request.as_bytes());
                self.stage = Stage::Opening(opening);
                return Ok(0);
            }
            Stage::Accepting { server } => match handshake::answer(bytes, server) {
                Ok(None) => Ok(None),
                Ok(Some(opened)) => {
                    output.extend_from_slice(opened.response.as_bytes());
                    self.forwarded = opened.forwarded;
                    self.is_of_foreign_page = opened.is_of_foreign_page;
                    Ok(Some(opened.length))
                }
                Err(refusal) => {
                    output.extend_from_slice(refusal.response().as_bytes());
                    Err(refusal.reason)
                }
            },
            Stage::Opening(opening) => opening.confirm(bytes),
        };
        match opened {
            Ok(None) => Ok(0),
            Ok(Some(length)) => {
                self.stage = Stage::Open;
                Ok(length)
            }
            Err(reason) => {
                self.stage = Stage::Closed;
                match bytes.first().copied().and_then(Spoken::by) {
                    Some(spoken @ (Spoken::Mqtt | Spoken::Tls)) => {
                        Err(TransportError::NotWebSocket(spoken))
                    }
                    Some(Spoken::Http) | None => Err(TransportError::WebSocket(reason)),
                }
            }
        }
    }

    // [MQTT-6.0.0-2] [MQTT3-6.0.0-2] packets and frames need not be aligned.
    fn read_frames(
        &mut self,
        bytes: &[u8],
        inner: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), End> {
        let mut bytes = self.read_payload(bytes, inner);
        while let Some((header, length, rest)) = self.read_header(bytes)? {
            bytes = match header.opcode {
                OpCode::Data(kind) => {
                    self.begin_data(kind, header.is_final)?;
                    self.remaining = length;
                    self.mask = header.mask.unwrap_or_default();
                    self.read_payload(rest, inner)
                }
                OpCode::Control(kind) => {
                    let Some((payload, rest)) = read_control(&header, length, rest)? else {
                        break;
                    };
                    self.control(kind, payload, output)?;
                    rest
                }
            };
        }
        self.incomplete = bytes.to_vec();
        Ok(())
    }

    /// Takes what is there of the data frame under way and returns what follows.
    fn read_payload<'a>(&mut self, bytes: &'a [u8], inner: &mut Vec<u8>) -> &'a [u8] {
        let length = usize::try_from(self.remaining).map_or(bytes.len(), |n| n.min(bytes.len()));
        let (payload, rest) = bytes.split_at(length);
        let start = inner.len();
        inner.extend_from_slice(payload);
        if let Some(added) = inner.get_mut(start..).filter(|_| self.mask != [0; 4]) {
            apply_mask(added, self.mask);
            self.mask.rotate_left(length % 4);
        }
        self.remaining -= length as u64;
        rest
    }

    /// The next header, the payload's length, and what follows. `None`: the header is incomplete.
    #[expect(clippy::type_complexity, reason = "read where it is made")]
    fn read_header<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<Option<(FrameHeader, u64, &'a [u8])>, Violation> {
        let mut cursor = Cursor::new(bytes);
        let parsed = FrameHeader::parse(&mut cursor)
            .map_err(|_| Violation::protocol("a frame of an unknown type"))?;
        let Some((header, length)) = parsed else {
            return Ok(None);
        };
        // The shortest form of the length is the only one (RFC 6455 §5.2).
        let shortest = header.len(length);
        let read = usize::try_from(cursor.position()).ok();
        if read != Some(shortest) || length > i64::MAX as u64 {
            return Err(Violation::protocol("a malformed length"));
        }
        let rest = bytes.get(shortest..).unwrap_or_default();
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Violation::protocol("an extension that was not negotiated"));
        }
        if header.mask.is_some() == self.is_client {
            return Err(Violation::protocol("masked by the wrong side"));
        }
        Ok(Some((header, length, rest)))
    }

    fn begin_data(&mut self, kind: Data, is_final: bool) -> Result<(), Violation> {
        match (kind, self.in_message) {
            (Data::Continue, true) | (Data::Binary, false) => {}
            // [MQTT-6.0.0-1] [MQTT3-6.0.0-1] packets travel in binary frames only.
            (Data::Text, _) => {
                return Err(Violation {
                    code: CloseCode::Unsupported,
                    what: "a text frame",
                });
            }
            _ => return Err(Violation::protocol("a fragment out of order")),
        }
        self.in_message = !is_final;
        Ok(())
    }

    fn control(
        &mut self,
        kind: Control,
        payload: Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), End> {
        match kind {
            Control::Ping => self.frame(OpCode::Control(Control::Pong), &payload, output),
            Control::Close => {
                check_close(&payload)?;
                // The answer repeats the code.
                let code = payload.get(..2).unwrap_or_default();
                self.frame(OpCode::Control(Control::Close), code, output);
                self.stage = Stage::Closed;
                return Err(End::Closed);
            }
            Control::Pong | Control::Reserved(_) => {}
        }
        Ok(())
    }

    /// Appends one binary frame.
    pub(crate) fn send(&self, inner: &[u8], output: &mut Vec<u8>) {
        if self.is_established() && !inner.is_empty() {
            // [MQTT-6.0.0-1] [MQTT3-6.0.0-1]
            self.frame(OpCode::Data(Data::Binary), inner, output);
        }
    }

    /// What a frame of `length` bytes takes at most.
    pub(crate) fn frame_length(length: usize) -> usize {
        LONGEST_HEADER + length
    }

    /// Appends a Close frame, once.
    pub(crate) fn close(&mut self, output: &mut Vec<u8>) {
        self.send_close(CloseCode::Normal, output);
    }

    fn send_close(&mut self, code: CloseCode, output: &mut Vec<u8>) {
        if self.is_established() {
            let code = u16::from(code).to_be_bytes();
            self.frame(OpCode::Control(Control::Close), &code, output);
            self.stage = Stage::Closed;
        }
    }

    fn frame(&self, opcode: OpCode, payload: &[u8], output: &mut Vec<u8>) {
        let header = FrameHeader {
            opcode,
            mask: self.is_client.then(rand::random),
            ..FrameHeader::default()
        };
        header
            .format(payload.len() as u64, output)
            .expect("memory can be written to");
        let start = output.len();
        output.extend_from_slice(payload);
        if let (Some(mask), Some(added)) = (header.mask, output.get_mut(start..)) {
            apply_mask(added, mask);
        }
    }
}

/// The payload of a control frame and what follows. `None`: it is incomplete.
#[expect(clippy::type_complexity, reason = "read where it is made")]
fn read_control<'a>(
    header: &FrameHeader,
    length: u64,
    bytes: &'a [u8],
) -> Result<Option<(Vec<u8>, &'a [u8])>, Violation> {
    if !header.is_final || length > CONTROL_LIMIT {
        return Err(Violation::protocol(
            "a control frame in fragments or too long",
        ));
    }
    let payload = usize::try_from(length).ok();
    let Some((payload, rest)) = payload.and_then(|length| bytes.split_at_checked(length)) else {
        return Ok(None);
    };
    let mut payload = payload.to_vec();
    apply_mask(&mut payload, header.mask.unwrap_or_default());
    Ok(Some((payload, rest)))
}

/// Nothing, or a code that may be sent and a reason in UTF-8 (RFC 6455 §5.5.1, §7.4).
fn check_close(payload: &[u8]) -> Result<(), Violation> {
    let valid = match payload.split_at_checked(2) {
        Some((&[high, low], reason)) => {
            let code = CloseCode::from(u16::from_be_bytes([high, low]));
            code.is_allowed() && std::str::from_utf8(reason).is_ok()
        }
        _ => payload.is_empty(),
    };
    if valid {
        Ok(())
    } else {
        Err(Violation::protocol("a malformed Close frame"))
    }
}

/// Exclusive or with the repeated mask (RFC 6455 §5.3), eight bytes at a time.
fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests;

//! From bytes to packets: whole frames out of whatever pieces arrive.
//!
//! Invariant: a frame that arrives as a whole is not copied; of one that arrives in pieces each byte is copied once.

use std::mem;

use mqtt_proto::{Frame, PacketType, peek_frame};

use crate::client::Phase;
use crate::{Client, Event, ProtocolError, Violation};

/// Bytes that have arrived, whose events are polled by [`Client::poll_event`].
#[derive(Debug)]
#[must_use = "events are polled"]
pub struct Arrival<'b> {
    /// A packet whose start arrived earlier.
    joined: Vec<u8>,
    /// Whether it is still to be handled.
    is_joined: bool,
    rest: &'b [u8],
}

impl<'b> Arrival<'b> {
    /// Bytes behind the packet that the last event came of. They may be given to [`Client::handle_bytes`] later,
    /// instead of polling to the end.
    #[must_use]
    pub fn rest(&self) -> &'b [u8] {
        self.rest
    }
}

impl<M: Clone> Client<M> {
    /// Bytes of the network connection have arrived: events are polled until there are no more. Without a network
    /// connection, bytes are ignored.
    #[inline]
    pub fn handle_bytes<'b>(&mut self, bytes: &'b [u8]) -> Arrival<'b> {
        let mut arrival = Arrival {
            joined: Vec::new(),
            is_joined: false,
            rest: bytes,
        };
        if !self.partial.is_empty() {
            self.join(&mut arrival);
        }
        arrival
    }

    /// Type and bytes of the next packet of an arrival, if it is whole.
    #[must_use]
    pub fn peek_packet(&self, arrival: &Arrival<'_>) -> Option<(PacketType, usize)> {
        let bytes = if arrival.is_joined {
            &arrival.joined
        } else {
            arrival.rest
        };
        let header = peek_frame(bytes, Some(self.version)).ok().flatten()?;
        (header.len() <= bytes.len()).then_some((header.packet_type, header.len()))
    }

    /// What came of the next packet of an arrival; `None`: it is over.
    ///
    /// # Errors
    /// The server broke the protocol. The network connection is over; the session stays.
    #[inline]
    pub fn poll_event<'a>(
        &mut self,
        arrival: &'a mut Arrival<'_>,
    ) -> Result<Option<Event<'a, M>>, ProtocolError> {
        self.poll_any(arrival).inspect_err(|_| self.give_up())
    }

    #[inline]
    fn poll_any<'a>(
        &mut self,
        arrival: &'a mut Arrival<'_>,
    ) -> Result<Option<Event<'a, M>>, ProtocolError> {
        if self.is_discarding
            && let Some(message) = self.discard()
        {
            return Ok(Some(Event::Discarded(message)));
        }
        if arrival.is_joined && self.phase != Phase::Offline {
            match self.measure(&arrival.joined)? {
                Some(header) if header.len() <= arrival.joined.len() => {
                    arrival.is_joined = false;
                    let event = self.handle_frame(&header, &arrival.joined);
                    if !matches!(event, Ok(None)) {
                        return event;
                    }
                }
                _ => {
                    self.partial = mem::take(&mut arrival.joined);
                    return Ok(None);
                }
            }
        }
        while self.phase != Phase::Offline {
            let rest = arrival.rest;
            let header = self.measure(rest)?;
            let split = header.and_then(|header| {
                let (frame, after) = rest.split_at_checked(header.len())?;
                Some((header, frame, after))
            });
            let Some((header, frame, after)) = split else {
                if !rest.is_empty() {
                    self.partial = rest.to_vec();
                }
                return Ok(None);
            };
            arrival.rest = after;
            let event = self.handle_frame(&header, frame);
            // Passed on as it is: it is large.
            if !matches!(event, Ok(None)) {
                return event;
            }
        }
        Ok(None)
    }

    /// The header of a frame, as soon as it is there.
    #[inline]
    fn measure(&self, bytes: &[u8]) -> Result<Option<Frame>, ProtocolError> {
        let header = peek_frame(bytes, Some(self.version))?;
        // Before it is waited for.
        if let Some(header) = &header
            && header.len() > self.maximum_packet_size as usize
        {
            return Err(Violation::PacketTooLarge(header.len()).into());
        }
        Ok(header)
    }

    /// Completes a packet whose start has arrived, as far as possible.
    fn join(&mut self, arrival: &mut Arrival<'_>) {
        let mut joined = mem::take(&mut self.partial);
        // Five bytes are enough for a header; errors are found again when the events are polled.
        while let Ok(None) = peek_frame(&joined, Some(self.version))
            && let Some((byte, rest)) = arrival.rest.split_first()
        {
            joined.push(*byte);
            arrival.rest = rest;
        }
        if let Ok(Some(header)) = self.measure(&joined) {
            let missing = header.len().saturating_sub(joined.len());
            let (bytes, rest) = arrival.rest.split_at(missing.min(arrival.rest.len()));
            joined.extend_from_slice(bytes);
            arrival.rest = rest;
        }
        arrival.joined = joined;
        arrival.is_joined = true;
    }
}

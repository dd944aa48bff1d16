//! What publishers send, and what a subscriber reads of it.
//!
//! Invariant: a message has the same payload whenever it is sent, its time stamps to the clock's adjustments.

use serde::{Deserialize, Serialize};

use super::pattern::{Identity, Variable, split};

/// How payloads with a time begin: nobody else's do by chance.
const MARK: [u8; 8] = *b"HMQBENCH";

/// Bytes of the mark and the time.
const STAMP_LEN: usize = 16;

/// What fills a payload of a size.
const FILL: u8 = b'a';

/// What a message has in it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Payload {
    /// This many bytes. From 16 on, they begin with the time at which the message was due, so that subscribers of the
    /// same clock can say how long it took.
    Sized(usize),
    /// The same bytes in all messages.
    Fixed(Vec<u8>),
    /// A text with variables.
    Template(Template),
}

/// The place of a message among its publisher's, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sequence(pub(crate) u32);

/// A message that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) identity: Identity<'a>,
    pub(crate) sequence: Sequence,
    pub(crate) due: UnixTime,
}

/// Nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnixTime(pub(crate) u64);

impl Payload {
    /// Writes the payload of a message in place of what `bytes` has.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>, message: Message<'_>) {
        bytes.clear();
        match self {
            Self::Sized(len) => {
                bytes.resize(*len, FILL);
                if let Some(stamp) = bytes.first_chunk_mut::<STAMP_LEN>() {
                    let (mark, time) = stamp.split_at_mut(MARK.len());
                    mark.copy_from_slice(&MARK);
                    time.copy_from_slice(&message.due.0.to_be_bytes());
                }
            }
            Self::Fixed(fixed) => bytes.extend_from_slice(fixed),
            Self::Template(template) => template.write(bytes, message),
        }
    }
}

/// When a message was due, if a publisher of [`Payload::Sized`] has written it.
pub(crate) fn due(payload: &[u8]) -> Option<UnixTime> {
    let stamp = payload.first_chunk::<STAMP_LEN>()?;
    let time: [u8; 8] = stamp.strip_prefix(&MARK)?.try_into().ok()?;
    Some(UnixTime(u64::from_be_bytes(time)))
}

/// A text in which variables are filled in for each message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Template {
    segments: Vec<Segment>,
    /// How many letters `%RANDOM%` is.
    random_len: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Segment {
    Text(String),
    Variable(Field),
}

/// What a variable of a template stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Field {
    Of(Variable),
    /// The time at which the message was due, in units of this many ns.
    Time(u64),
    /// A number that no other message of the run has.
    Unique,
    Random,
}

const FIELDS: [(&str, Field); 9] = [
    ("%TIMESTAMP%", Field::Time(1_000_000_000)),
    ("%TIMESTAMPMS%", Field::Time(1_000_000)),
    ("%TIMESTAMPUS%", Field::Time(1_000)),
    ("%TIMESTAMPNS%", Field::Time(1)),
    ("%UNIQUE%", Field::Unique),
    ("%RANDOM%", Field::Random),
    ("%i", Field::Of(Variable::Number)),
    ("%c", Field::Of(Variable::ClientId)),
    ("%u", Field::Of(Variable::Username)),
];

impl Template {
    /// Reads a text; every text is a template. `random_len` is how many letters `%RANDOM%` stands for.
    #[must_use]
    pub fn parse(text: &str, random_len: usize) -> Self {
        let segment = |found: Result<Field, &str>| match found {
            Ok(field) => Segment::Variable(field),
            Err(text) => Segment::Text(text.to_owned()),
        };
        let segments = split(text, &FIELDS).into_iter();
        Self {
            segments: segments.map(segment).collect(),
            random_len,
        }
    }

    fn write(&self, bytes: &mut Vec<u8>, message: Message<'_>) {
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                Segment::Variable(field) => self.write_field(bytes, *field, message),
            }
        }
    }

    fn write_field(&self, bytes: &mut Vec<u8>, field: Field, message: Message<'_>) {
        let mut text = String::new();
        match field {
            Field::Of(variable) => variable.append(&mut text, message.identity),
            Field::Time(unit_ns) => text = (message.due.0 / unit_ns).to_string(),
            Field::Unique => text = unique(message).to_string(),
            Field::Random => {
                let mut state = unique(message);
                text.extend((0..self.random_len).map(|_| letter(&mut state)));
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// Below 2^53 up to the two millionth client, so that JSON's readers keep all its digits.
fn unique(message: Message<'_>) -> u64 {
    (message.identity.number as u64) << 32 | u64::from(message.sequence.0)
}

/// The next letter of a sequence that `state` determines: SplitMix64.
fn letter(state: &mut u64) -> char {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    char::from(b'a' + ((mixed ^ mixed >> 31) % 26) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sequence: u32) -> Message<'static> {
        Message {
            identity: Identity {
                number: 3,
                client_id: "c3",
                username: "ann",
            },
            sequence: Sequence(sequence),
            due: UnixTime(1_700_000_000_123_456_789),
        }
    }

    fn written(payload: &Payload, sequence: u32) -> Vec<u8> {
        let mut bytes = b"earlier".to_vec();
        payload.write(&mut bytes, message(sequence));
        bytes
    }

    fn text(template: &str, sequence: u32) -> String {
        let payload = Payload::Template(Template::parse(template, 8));
        String::from_utf8(written(&payload, sequence)).unwrap()
    }

    #[test]
    fn a_payload_of_a_size_says_when_it_was_due_if_there_is_room() {
        let stamped = written(&Payload::Sized(20), 0);
        assert_eq!(stamped.len(), 20);
        assert_eq!(due(&stamped), Some(message(0).due));
        let short = written(&Payload::Sized(15), 0);
        assert_eq!(short, [FILL; 15]);
        assert_eq!(due(&short), None);
        assert_eq!(due(&[FILL; 64]), None);
        assert_eq!(written(&Payload::Fixed(b"x".to_vec()), 0), b"x");
    }

    #[test]
    fn a_template_has_times_in_four_units_and_the_variables_of_topics() {
        let times = text("%TIMESTAMP% %TIMESTAMPMS% %TIMESTAMPUS% %TIMESTAMPNS%", 0);
        let expected = "1700000000 1700000000123 1700000000123456 1700000000123456789";
        assert_eq!(times, expected);
        assert_eq!(text("%i,%c,%u,%TIME%", 0), "3,c3,ann,%TIME%");
    }

    #[test]
    fn unique_and_random_differ_from_message_to_message_and_stay_for_one() {
        for variable in ["%UNIQUE%", "%RANDOM%"] {
            assert_ne!(text(variable, 0), text(variable, 1), "{variable}");
            assert_eq!(text(variable, 1), text(variable, 1), "{variable}");
        }
        let random = text("%RANDOM%", 0);
        assert_eq!(random.len(), 8);
        assert!(random.chars().all(|c| c.is_ascii_lowercase()), "{random}");
    }
}

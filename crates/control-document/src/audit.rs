//! The audit as lines that are kept elsewhere, and whether they are whole.
//!
//! Purpose: [`AuditLine`] is an entry as `GET /audit/export` has it, and [`Verifier`] follows the chain over all lines.
//!
//! Invariant: what a line says in words is what its bytes say, or the line is refused.

use std::fmt;

use control::{Address, Audited, ChainHash, EntryNumber, Field, Hash, Means, Revision, UnixMs};
use serde::{Deserialize, Serialize};

/// A field that has another value than before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldLine {
    /// Its name.
    pub name: String,
    /// What it was; missing: there was no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it is; missing: there is no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What an entry says, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Said {
    /// The revision that the store had with it.
    pub revision: Revision,
    /// When, in ms of Unix time.
    pub at_ms: UnixMs,
    /// Who: the name of a person or a key.
    pub actor: String,
    /// How that was shown: `key`, `person`, `token`, `import`, `file_key`, `file_person`, `first_code` or `node`.
    pub means: String,
    /// From where.
    pub address: Option<String>,
    /// The node that was asked, 16 hexadecimal digits.
    pub node: String,
    /// What, such as `user.add`.
    pub action: String,
    /// To what; empty: the action says it.
    pub target: String,
    /// What is different.
    pub fields: Vec<FieldLine>,
}

/// A line of an export.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AuditLine {
    /// The first one.
    Begin {
        /// [`AUDIT_FORMAT`].
        format: String,
        /// The number of the first entry.
        first: u64,
        /// The hash before it, 64 hexadecimal digits; `None`: the entry before it is not kept any more, so the first one is taken as it
        /// is.
        before: Option<String>,
    },
    /// An entry.
    Entry {
        /// Its number.
        number: u64,
        /// What it says.
        #[serde(flatten)]
        said: Said,
        /// Its bytes, in hexadecimal digits: what is hashed.
        bytes: String,
        /// SHA-256 of the hash before and the bytes, 64 hexadecimal digits.
        hash: String,
    },
    /// The last one.
    End {
        /// The number of the next entry to come.
        next: u64,
        /// The hash of the last one.
        head: String,
    },
}

/// What the first line says.
pub const AUDIT_FORMAT: &str = "heraldmq/audit/v1";

/// The words for how somebody has shown who they are.
#[must_use]
pub fn means_name(means: Means) -> &'static str {
    match means {
        Means::Key => "key",
        Means::Person => "person",
        Means::Token => "token",
        Means::Import => "import",
        Means::FileKey => "file_key",
        Means::FilePerson => "file_person",
        Means::FirstCode => "first_code",
        Means::Node => "node",
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let is_hex = digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    is_hex.then(|| digits.chunks(2).map(byte).collect())?
}

fn hash_of(text: &str) -> Option<ChainHash> {
    let bytes = from_hex(text)?.try_into().ok()?;
    Some(ChainHash(Hash(bytes)))
}

/// A hash as digits.
#[must_use]
pub fn hash_text(ChainHash(Hash(bytes)): ChainHash) -> String {
    to_hex(&bytes)
}

impl Said {
    /// What an entry says.
    #[must_use]
    pub fn of(entry: &Audited) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let field = |field: &Field| FieldLine {
            name: field.name.to_string(),
            before: text(&field.before),
            after: text(&field.after),
        };
        let address = entry.by.address.as_ref();
        Self {
            revision: entry.revision,
            at_ms: entry.at,
            actor: entry.by.name.to_string(),
            means: means_name(entry.by.means).to_owned(),
            address: address.map(|Address(text)| text.to_string()),
            node: format!("{:016x}", entry.by.node.0),
            action: entry.action(),
            target: entry.target(),
            fields: entry.fields.iter().map(field).collect(),
        }
    }
}

/// Why lines are not the audit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The first line is none of an export, or of another form.
    Begin,
    /// Lines follow the last one, or it is missing.
    End,
    /// An entry has another number than the one behind the entry before.
    Number {
        /// The one that was to come.
        expected: EntryNumber,
        /// The one that has come.
        found: EntryNumber,
    },
    /// The content of an entry was changed, or its hash, or that of the entry before.
    Entry(EntryNumber),
    /// What an entry says in words is not what its bytes say.
    Words(EntryNumber),
    /// The last line does not say the hash or the number of the last entry.
    Head,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => write!(
                f,
                "the first line is not that of an export ({AUDIT_FORMAT})"
            ),
            Self::End => f.write_str("the last line is missing, or is not the last one"),
            Self::Number { expected, found } => write!(
                f,
                "entry {} is expected and entry {} has come: entries are missing or in another order",
                expected.0, found.0
            ),
            Self::Entry(number) => write!(
                f,
                "entry {0} was changed, or does not follow the entry before it: all before entry {0} is whole",
                number.0
            ),
            Self::Words(number) => write!(
                f,
                "what entry {} says in words is not what was recorded",
                number.0
            ),
            Self::Head => f.write_str("the last line has another head than the entries"),
        }
    }
}

impl std::error::Error for Broken {}

/// What was found of lines that are whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The first entry.
    pub first: EntryNumber,
    /// The next one to come.
    pub next: EntryNumber,
    /// The hash of the last one.
    pub head: ChainHash,
    /// Whether the head that was looked for is among the hashes; `false` as well if none was looked for.
    pub has_known: bool,
}

/// Follows the chain, line by line.
#[derive(Clone, Debug)]
pub struct Verifier {
    known: Option<ChainHash>,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    New,
    Follows {
        first: EntryNumber,
        next: EntryNumber,
        /// `None`: whatever the first entry says.
        before: Option<ChainHash>,
        has_known: bool,
    },
    Ended(Verified),
}

impl Verifier {
    /// `known`: a head that was written down elsewhere, 64 hexadecimal digits.
    ///
    /// # Errors
    /// It is no such text.
    pub fn new(known: Option<&str>) -> Result<Self, &'static str> {
        let no_head = "a head has 64 hexadecimal digits";
        let known = known.map(|text| hash_of(text).ok_or(no_head)).transpose()?;
        let state = State::New;
        Ok(Self { known, state })
    }

    /// The next line.
    ///
    /// # Errors
    /// Where the chain is broken.
    pub fn line(&mut self, line: &AuditLine) -> Result<(), Broken> {
        self.state = match (self.state, line) {
            (
                State::New,
                AuditLine::Begin {
                    format,
                    first,
                    before,
                },
            ) if format == AUDIT_FORMAT => {
                let before = before
                    .as_deref()
                    .map(|text| hash_of(text).ok_or(Broken::Begin));
                let before = before.transpose()?;
                let first = EntryNumber(*first);
                // Nothing comes before the first entry of all.
                let begins = first == EntryNumber(0);
                if begins && before != Some(ChainHash::EMPTY) {
                    return Err(Broken::Begin);
                }
                State::Follows {
                    first,
                    next: first,
                    before,
                    has_known: before.is_some() && before == self.known,
                }
            }
            (State::New, _) => return Err(Broken::Begin),
            (
                State::Follows {
                    first,
                    next,
                    before,
                    has_known,
                },
                AuditLine::Entry {
                    number,
                    said,
                    bytes,
                    hash,
                },
            ) => {
                let number = EntryNumber(*number);
                if number != next {
                    return Err(Broken::Number {
                        expected: next,
                        found: number,
                    });
                }
                let broken = || Broken::Entry(number);
                let bytes = from_hex(bytes).ok_or_else(broken)?;
                let hash = hash_of(hash).ok_or_else(broken)?;
                if before.is_some_and(|before| before.then(&bytes) != hash) {
                    return Err(broken());
                }
                let entry = Audited::read(&bytes).map_err(|_| broken())?;
                if Said::of(&entry) != *said {
                    return Err(Broken::Words(number));
                }
                State::Follows {
                    first,
                    next: number.next(),
                    before: Some(hash),
                    has_known: has_known || self.known == Some(hash),
                }
            }
            (
                State::Follows {
                    first,
                    next,
                    before,
                    has_known,
                },
                AuditLine::End { next: last, head },
            ) => {
                let head = hash_of(head).ok_or(Broken::Head)?;
                let is_head = before.is_none_or(|before| before == head);
                if EntryNumber(*last) != next || !is_head {
                    return Err(Broken::Head);
                }
                State::Ended(Verified {
                    first,
                    next,
                    head,
                    has_known: has_known || self.known == Some(head),
                })
            }
            (State::Follows { .. }, AuditLine::Begin { .. }) | (State::Ended(_), _) => {
                return Err(Broken::End);
            }
        };
        Ok(())
    }

    /// All lines have come.
    ///
    /// # Errors
    /// The last one is missing.
    pub fn finish(self) -> Result<Verified, Broken> {
        match self.state {
            State::Ended(verified) => Ok(verified),
            State::New | State::Follows { .. } => Err(Broken::End),
        }
    }
}

#[cfg(test)]
mod tests {
    use control::{By, Node, RuleList, Subject};

    use super::*;

    fn entry(number: u64) -> Audited {
        Audited {
            revision: Revision(number),
            at: UnixMs(5),
            by: By {
                means: Means::Person,
                name: "anna".into(),
                address: Some(Address("10.0.0.1".into())),
                node: Node(1),
            },
            subject: Subject::Rules,
            fields: Field::of_rules(
                &RuleList::default(),
                &RuleList([format!("allow publish {number}").into()].into()),
            ),
        }
    }

    /// An export of the entries 3 to 5.
    fn lines() -> Vec<AuditLine> {
        let mut before = ChainHash(Hash([7; 32]));
        let mut lines = vec![AuditLine::Begin {
            format: AUDIT_FORMAT.to_owned(),
            first: 3,
            before: Some(hash_text(before)),
        }];
        for number in 3..6 {
            let entry = entry(number);
            let recorded = entry.record(before);
            before = recorded.hash;
            lines.push(AuditLine::Entry {
                number,
                said: Said::of(&entry),
                bytes: to_hex(&recorded.bytes),
                hash: hash_text(recorded.hash),
            });
        }
        lines.push(AuditLine::End {
            next: 6,
            head: hash_text(before),
        });
        lines
    }

    fn verify(lines: &[AuditLine], known: Option<&str>) -> Result<Verified, Broken> {
        let mut verifier = Verifier::new(known).unwrap();
        for line in lines {
            verifier.line(line)?;
        }
        verifier.finish()
    }

    #[test]
    fn an_export_is_whole_or_says_where_it_is_not() {
        let whole = lines();
        let verified = verify(&whole, None).unwrap();
        assert_eq!(
            (verified.first, verified.next),
            (EntryNumber(3), EntryNumber(6))
        );
        assert!(!verified.has_known);
        let head = hash_text(verified.head);
        assert!(verify(&whole, Some(&head)).unwrap().has_known);
        assert!(!verify(&whole, Some(&"0".repeat(64))).unwrap().has_known);
        assert_eq!(verify(&whole[..4], None), Err(Broken::End));
        assert_eq!(verify(&whole[1..], None), Err(Broken::Begin));
        let mut missing = whole.clone();
        missing.remove(2);
        let number = |expected, found| Broken::Number {
            expected: EntryNumber(expected),
            found: EntryNumber(found),
        };
        assert_eq!(verify(&missing, None), Err(number(4, 5)));
        let mut cut = whole.clone();
        cut.remove(3);
        assert_eq!(verify(&cut, None), Err(Broken::Head));
        // Each byte of an entry counts, and each of its hash.
        let AuditLine::Entry { bytes, hash, .. } = &whole[2] else {
            panic!("an entry is here");
        };
        for (at, of_bytes) in (0..bytes.len())
            .map(|at| (at, true))
            .chain((0..hash.len()).map(|at| (at, false)))
        {
            let mut other = whole.clone();
            let AuditLine::Entry { bytes, hash, .. } = &mut other[2] else {
                panic!("an entry is here");
            };
            let text = if of_bytes { bytes } else { hash };
            let digit = if text.as_bytes()[at] == b'0' {
                "1"
            } else {
                "0"
            };
            text.replace_range(at..=at, digit);
            assert_eq!(verify(&other, None), Err(Broken::Entry(EntryNumber(4))));
        }
        let mut said = whole;
        let AuditLine::Entry { said: words, .. } = &mut said[2] else {
            panic!("an entry is here");
        };
        words.actor = "eve".to_owned();
        assert_eq!(verify(&said, None), Err(Broken::Words(EntryNumber(4))));
    }

    #[test]
    fn nothing_comes_before_the_first_entry_of_all() {
        let begin = |before: Option<&str>| AuditLine::Begin {
            format: AUDIT_FORMAT.to_owned(),
            first: 0,
            before: before.map(str::to_owned),
        };
        let end = AuditLine::End {
            next: 0,
            head: "0".repeat(64),
        };
        let empty = "0".repeat(64);
        assert!(verify(&[begin(Some(&empty)), end.clone()], None).is_ok());
        assert_eq!(
            verify(&[begin(None), end.clone()], None),
            Err(Broken::Begin)
        );
        let other = "1".repeat(64);
        assert_eq!(
            verify(&[begin(Some(&other)), end], None),
            Err(Broken::Begin)
        );
        assert!(Verifier::new(Some("abc")).is_err());
    }
}

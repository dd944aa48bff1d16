//! How two nodes recognise each other before anything else is said on a connection. No I/O.
//!
//! ```text
//! who dials                              who is dialled
//! HMQL versions hello, nonce  ─►
//!                             ◄─  Challenge: who, nonce, versions  or  Refused, if the two do not fit
//! Proof: HMAC of all that     ─►
//!                             ◄─  Verdict: welcome or refused, with an HMAC of all that and itself
//! ```
//!
//! Both sides tell the oldest and the newest version of the protocol that they speak. What follows on the connection is
//! in the highest common one (docs/decisions/0016-peer-protocol.md).
//!
//! Behind its hello, or its challenge, each side gives the stamps of its data folder, and the dialled side its versions
//! behind these. Earlier programs give none and do not look there.
//!
//! A node that belongs to no cluster yet lets another one like it prove itself, says behind its versions whether it may found
//! one, and refuses it then: so each knows for certain that the other is no member. To members it is not ready at once.
//!
//! Invariants: the secret never travels, and who dials proves first. Only a verdict is believed; a refusal
//! before it is logged, for anybody can send one. What is proven covers both nonces and both identities.
//!
//! Deliberately absent: encryption, which is TLS's part.

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::folder::stamps::History;
use crate::members::list::Place;
use crate::membership::founding::Waiting;
use crate::options::{Secret, Versions};
use crate::protocol::channel::Channel;
use crate::protocol::refusal::{Failure, Refusal};

const MAGIC: &[u8; 4] = b"HMQL";

const DIALLER: &[u8] = b"HeraldMQ link, who dials";
const DIALLED: &[u8] = b"HeraldMQ link, who is dialled";

pub(crate) type Nonce = [u8; 32];
type Tag = [u8; 32];

/// Who a node says it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) env: String,
    /// 0: none yet.
    pub(crate) cluster: u64,
    pub(crate) place: Place,
    /// A random number of the process.
    pub(crate) instance: u64,
    /// The stamps of its data folder; none, if its version has none.
    #[serde(skip)]
    pub(crate) history: History,
    /// The versions of the protocol that its program speaks. They stand outside of what earlier programs read.
    #[serde(skip, default = "Versions::first")]
    pub(crate) versions: Versions,
    /// It belongs to no cluster, and may found one. It stands there as well, and is told of nodes without a cluster only.
    #[serde(skip)]
    pub(crate) founds: bool,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// To be let in: as a new node, or as a member that was started and shows its data folder.
    Join,
    Carry(Channel),
}

/// What a node that joins is told.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Admission {
    pub(crate) gossip_key: [u8; 32],
    pub(crate) evicted: Vec<u64>,
    pub(crate) members: Vec<Place>,
    pub(crate) welcome: Vec<u8>,
}

/// The version since which an admission has a note beside the welcome.
const NOTES_SINCE: u16 = 8;

/// What [`Admission::welcome`] holds: for a new node what it keeps, and for each a note that it hears at each of its starts.
#[derive(PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Words {
    pub(crate) welcome: Vec<u8>,
    pub(crate) note: Vec<u8>,
}

impl Words {
    pub(crate) fn encode(self, version: u16) -> Vec<u8> {
        match version < NOTES_SINCE {
            true => self.welcome,
            false => encode(&self),
        }
    }

    /// `None`: it makes no sense.
    pub(crate) fn decode(bytes: &[u8], version: u16) -> Option<Self> {
        match version < NOTES_SINCE {
            true => Some(Self {
                welcome: bytes.to_vec(),
                note: Vec::new(),
            }),
            false => postcard::from_bytes(bytes).ok(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Hello {
    identity: Identity,
    purpose: Purpose,
    nonce: Nonce,
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Refused(Refusal),
    Challenge {
        identity: Identity,
        nonce: Nonce,
    },
    /// `outcome` is a `Result<Option<Admission>, Refusal>`.
    Verdict {
        outcome: Vec<u8>,
        tag: Tag,
    },
}

type Outcome = Result<Option<Admission>, Refusal>;

/// One side of handshakes.
#[derive(Debug)]
pub(crate) struct Party {
    identity: Identity,
    key: hmac::Key,
}

/// Who dials, and has said hello.
#[derive(Debug)]
pub(crate) struct Dialling<'a> {
    party: &'a Party,
    purpose: Purpose,
    expected: Option<u64>,
    hello: Vec<u8>,
}

/// Who dials, and has proven itself.
#[derive(Debug)]
pub(crate) struct Proving {
    transcript: Transcript,
    peer: Identity,
    pub(crate) version: u16,
}

/// Who is dialled, and has given a challenge.
#[derive(Debug)]
pub(crate) struct Challenging {
    transcript: Transcript,
    peer: Identity,
    purpose: Purpose,
    version: u16,
    waits: bool,
}

/// Who is dialled, and knows who dials.
#[derive(Debug)]
pub(crate) struct Judging {
    transcript: Transcript,
    /// It has said that it belongs to no cluster itself.
    pub(crate) waits: bool,
    pub(crate) peer: Identity,
    pub(crate) purpose: Purpose,
    pub(crate) version: u16,
}

/// What both sides have said and prove.
#[derive(Debug)]
struct Transcript {
    key: hmac::Key,
    said: Vec<u8>,
}

impl Party {
    pub(crate) fn new(identity: Identity, secret: Option<&Secret>) -> Self {
        let key = secret.map_or(&[][..], Secret::bytes);
        Self {
            identity,
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
        }
    }

    /// Begins a handshake: what to send first. `expected`: the node that is to answer.
    pub(crate) fn dial(
        &self,
        purpose: Purpose,
        expected: Option<u64>,
        nonce: Nonce,
    ) -> (Dialling<'_>, Vec<u8>) {
        let mut hello = MAGIC.to_vec();
        hello.extend(self.identity.versions.oldest.to_be_bytes());
        hello.extend(self.identity.versions.newest.to_be_bytes());
        hello.extend(encode(&Hello {
            identity: self.identity.clone(),
            purpose,
            nonce,
        }));
        hello.extend(encode(&self.identity.history));
        let dialling = Dialling {
            party: self,
            purpose,
            expected,
            hello: hello.clone(),
        };
        (dialling, hello)
    }

    /// Takes a hello: what to answer, with the next step or the failure.
    pub(crate) fn answer(
        &self,
        bytes: &[u8],
        is_ready: bool,
        nonce: Nonce,
    ) -> Result<(Challenging, Vec<u8>), (Failure, Vec<u8>)> {
        let (hello, version) = self.read_hello(bytes).map_err(with_answer)?;
        self.check_hello(&hello, is_ready)
            .map_err(|refusal| with_answer(Failure::We(refusal)))?;
        let mut challenge = encode(&Reply::Challenge {
            identity: self.identity.clone(),
            nonce,
        });
        challenge.extend(encode(&self.identity.history));
        challenge.extend(encode(&self.identity.versions));
        let waits = self.identity.cluster == 0;
        if waits {
            challenge.extend(encode(&self.identity.founds));
        }
        let challenging = Challenging {
            transcript: self.transcript(bytes, &challenge),
            peer: hello.identity,
            purpose: hello.purpose,
            version,
            waits,
        };
        Ok((challenging, challenge))
    }

    /// The magic number and the versions stay where they are in all versions to come.
    fn read_hello(&self, bytes: &[u8]) -> Result<(Hello, u16), Failure> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(Failure::Malformed)?;
        let (lowest, rest) = rest.split_first_chunk().ok_or(Failure::Malformed)?;
        let (highest, rest) = rest.split_first_chunk().ok_or(Failure::Malformed)?;
        let theirs = Versions {
            oldest: u16::from_be_bytes(*lowest),
            newest: u16::from_be_bytes(*highest),
        };
        let version = self.agree(theirs).map_err(Failure::We)?;
        let (mut hello, rest) = decode_first::<Hello>(rest)?;
        (hello.identity.history, _) = decode_history(rest)?;
        hello.identity.versions = theirs;
        Ok((hello, version))
    }

    /// The version that both sides speak from now on.
    fn agree(&self, theirs: Versions) -> Result<u16, Refusal> {
        let ours = self.identity.versions;
        let common = ours.highest_common(theirs);
        common.ok_or(Refusal::Versions { ours, theirs })
    }

    fn check_hello(&self, hello: &Hello, is_ready: bool) -> Result<(), Refusal> {
        let (ours, theirs) = (&self.identity, &hello.identity);
        if ours.place.node == theirs.place.node && ours.instance == theirs.instance {
            return Err(Refusal::Itself);
        }
        self.check_env(theirs)?;
        if ours.cluster == 0 {
            return match (hello.purpose, theirs.cluster) {
                (Purpose::Join, 0) => Ok(()),
                _ => Err(Refusal::NotReady),
            };
        }
        match hello.purpose {
            Purpose::Join if theirs.cluster != 0 => self.check_cluster(theirs),
            Purpose::Join if is_ready => Ok(()),
            Purpose::Join => Err(Refusal::NotReady),
            // A node that is not ready comes to know the other one all the same.
            Purpose::Carry(_) => self.check_cluster(theirs),
        }
    }

    /// Whether who says this hello is a member of a cluster while this node belongs to none: where it says that it is.
    /// Nothing of it is proven.
    pub(crate) fn heard_member(&self, hello: &[u8]) -> Option<Identity> {
        let (hello, _) = self.read_hello(hello).ok()?;
        let is_member = hello.identity.cluster != 0 && hello.identity.env == self.identity.env;
        (self.identity.cluster == 0 && is_member).then_some(hello.identity)
    }

    fn check_env(&self, theirs: &Identity) -> Result<(), Refusal> {
        if self.identity.env == theirs.env {
            return Ok(());
        }
        Err(Refusal::Env {
            ours: self.identity.env.clone(),
            theirs: theirs.env.clone(),
        })
    }

    fn check_cluster(&self, theirs: &Identity) -> Result<(), Refusal> {
        let (ours, theirs) = (self.identity.cluster, theirs.cluster);
        if ours == theirs {
            return Ok(());
        }
        Err(Refusal::Cluster { ours, theirs })
    }

    fn transcript(&self, hello: &[u8], challenge: &[u8]) -> Transcript {
        Transcript {
            key: self.key.clone(),
            said: encode(&(hello, challenge)),
        }
    }
}

impl Dialling<'_> {
    /// Takes the answer to the hello: what to send as proof.
    pub(crate) fn prove(self, bytes: &[u8]) -> Result<(Proving, Vec<u8>), Failure> {
        let (reply, rest) = decode_first(bytes)?;
        let peer = match reply {
            Reply::Challenge { mut identity, .. } => {
                let (history, rest) = decode_history(rest)?;
                identity.history = history;
                let (versions, rest) = decode_versions(rest)?;
                identity.versions = versions;
                identity.founds = identity.cluster == 0 && decode_founds(rest)?;
                identity
            }
            Reply::Refused(refusal) => {
                let proven = false;
                return Err(Failure::They { refusal, proven });
            }
            Reply::Verdict { .. } => return Err(Failure::Malformed),
        };
        let version = self.party.agree(peer.versions).map_err(Failure::We)?;
        self.check(&peer).map_err(Failure::We)?;
        let transcript = self.party.transcript(&self.hello, bytes);
        let proof = transcript.tag(DIALLER, &[]).to_vec();
        let proving = Proving {
            transcript,
            peer,
            version,
        };
        Ok((proving, proof))
    }

    fn check(&self, peer: &Identity) -> Result<(), Refusal> {
        self.party.check_env(peer)?;
        if self.purpose != Purpose::Join || self.party.identity.cluster != 0 {
            self.party.check_cluster(peer)?;
        }
        let found = peer.place.node;
        match self.expected {
            Some(expected) if expected != found => Err(Refusal::OtherNode { expected, found }),
            _ => Ok(()),
        }
    }
}

impl Proving {
    /// Takes the verdict: who was dialled, and what it tells.
    pub(crate) fn conclude(self, bytes: &[u8]) -> Result<(Identity, Option<Admission>), Failure> {
        let (outcome, tag) = match decode(bytes)? {
            Reply::Verdict { outcome, tag } => (outcome, tag),
            Reply::Refused(refusal) => {
                let proven = false;
                return Err(Failure::They { refusal, proven });
            }
            Reply::Challenge { .. } => return Err(Failure::Malformed),
        };
        if !self.transcript.is_tag(DIALLED, &outcome, &tag) {
            return Err(Failure::We(Refusal::Secret));
        }
        match decode::<Outcome>(&outcome)? {
            // Nobody can let others into no cluster.
            Ok(_) if self.peer.cluster == 0 => Err(Failure::Malformed),
            Ok(admission) => Ok((self.peer, admission)),
            Err(Refusal::NotReady) if self.peer.cluster == 0 => Err(Failure::Waits(Waiting {
                place: self.peer.place,
                founds: self.peer.founds,
            })),
            Err(refusal) => {
                let proven = true;
                Err(Failure::They { refusal, proven })
            }
        }
    }
}

impl Challenging {
    /// Takes the proof. On failure: what to answer.
    pub(crate) fn check(self, proof: &[u8]) -> Result<Judging, (Failure, Vec<u8>)> {
        if !self.transcript.is_tag(DIALLER, &[], proof) {
            return Err(with_answer(Failure::We(Refusal::Secret)));
        }
        Ok(Judging {
            transcript: self.transcript,
            peer: self.peer,
            purpose: self.purpose,
            version: self.version,
            waits: self.waits,
        })
    }
}

impl Judging {
    /// What to answer: the last word of the handshake.
    pub(crate) fn verdict(&self, outcome: Outcome) -> Vec<u8> {
        let outcome = encode(&outcome);
        let tag = self.transcript.tag(DIALLED, &outcome);
        encode(&Reply::Verdict { outcome, tag })
    }
}

impl Transcript {
    fn tag(&self, side: &[u8], outcome: &[u8]) -> Tag {
        let tag = hmac::sign(&self.key, &self.message(side, outcome));
        let mut bytes = Tag::default();
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// In constant time.
    fn is_tag(&self, side: &[u8], outcome: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&self.key, &self.message(side, outcome), tag).is_ok()
    }

    fn message(&self, side: &[u8], outcome: &[u8]) -> Vec<u8> {
        encode(&(side, &self.said, outcome))
    }
}

/// What to tell the other side of a failure; nothing, if it is not a node.
fn with_answer(failure: Failure) -> (Failure, Vec<u8>) {
    let answer = match &failure {
        Failure::We(refusal) => encode(&Reply::Refused(refusal.clone())),
        _ => Vec::new(),
    };
    (failure, answer)
}

fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("a message of the handshake can be written")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    decode_first(bytes).map(|(message, _)| message)
}

/// With what stands behind it.
fn decode_first<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), Failure> {
    postcard::take_from_bytes(bytes).map_err(|_| Failure::Malformed)
}

/// Of an earlier program there is none. With what stands behind it.
fn decode_history(bytes: &[u8]) -> Result<(History, &[u8]), Failure> {
    if bytes.is_empty() {
        return Ok((History::default(), bytes));
    }
    let (history, rest) = decode_first::<History>(bytes)?;
    if history.is_too_long() {
        return Err(Failure::Malformed);
    }
    Ok((history, rest))
}

/// Of a program that agrees on no version there are none. With what stands behind them.
fn decode_versions(bytes: &[u8]) -> Result<(Versions, &[u8]), Failure> {
    if bytes.is_empty() {
        return Ok((Versions::FIRST, bytes));
    }
    decode_first(bytes)
}

/// Later programs may add to what stands behind it.
fn decode_founds(bytes: &[u8]) -> Result<bool, Failure> {
    match bytes.is_empty() {
        true => Ok(false),
        false => decode(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(node: u64) -> Identity {
        Identity {
            env: "Test".to_owned(),
            cluster: 7,
            place: Place {
                node,
                incarnation: 1,
                address: "a:1".to_owned(),
            },
            instance: node,
            history: History::default(),
            versions: Versions::FIRST,
            founds: false,
        }
    }

    fn party(identity: Identity) -> Party {
        of_versions(identity, 1, 1)
    }

    fn of_versions(mut identity: Identity, oldest: u16, newest: u16) -> Party {
        identity.versions = Versions { oldest, newest };
        Party::new(identity, Some(&Secret::new(b"secret".to_vec())))
    }

    fn admission() -> Admission {
        Admission {
            gossip_key: [5; 32],
            evicted: vec![9],
            members: Vec::new(),
            welcome: b"hello".to_vec(),
        }
    }

    const DATA: Purpose = Purpose::Carry(Channel::Data);

    type Dialled = Result<(Identity, Option<Admission>), Failure>;

    /// What both sides come to: who dials, who is dialled.
    fn shake(
        dialler: &Party,
        dialled: &Party,
        purpose: Purpose,
        outcome: Outcome,
    ) -> (Dialled, Result<Identity, Failure>) {
        let (dialling, hello) = dialler.dial(purpose, Some(2), [1; 32]);
        let (challenging, challenge) = match dialled.answer(&hello, true, [2; 32]) {
            Ok(step) => step,
            Err((failure, answer)) => {
                return (Err(dialling.prove(&answer).unwrap_err()), Err(failure));
            }
        };
        let (proving, proof) = match dialling.prove(&challenge) {
            Ok(step) => step,
            Err(failure) => return (Err(failure), Ok(challenging.peer)),
        };
        match challenging.check(&proof) {
            Ok(judging) => (
                proving.conclude(&judging.verdict(outcome)),
                Ok(judging.peer),
            ),
            Err((failure, answer)) => (proving.conclude(&answer), Err(failure)),
        }
    }

    /// Both sides come to know that the dialled side refuses.
    fn is_refused(dialler: &Party, refusal: &Refusal) {
        let (dialling, accepting) = shake(dialler, &party(identity(2)), DATA, Ok(None));
        let they = Failure::They {
            refusal: refusal.clone(),
            proven: false,
        };
        assert_eq!(dialling.err(), Some(they));
        assert_eq!(accepting, Err(Failure::We(refusal.clone())));
    }

    #[test]
    fn nodes_of_a_cluster_come_to_know_each_other() {
        let (one, two) = (party(identity(1)), party(identity(2)));
        let (dialling, accepting) = shake(&one, &two, DATA, Ok(None));
        assert!(dialling == Ok((identity(2), None)));
        assert_eq!(accepting, Ok(identity(1)));
    }

    #[test]
    fn a_node_without_a_cluster_is_admitted() {
        let mut newcomer = identity(1);
        newcomer.cluster = 0;
        let (one, two) = (party(newcomer), party(identity(2)));
        let (dialling, _) = shake(&one, &two, Purpose::Join, Ok(Some(admission())));
        assert!(dialling == Ok((identity(2), Some(admission()))));
    }

    #[test]
    fn another_secret_or_none_is_refused() {
        let other = Secret::new(b"other".to_vec());
        for secret in [Some(&other), None] {
            let other = Party::new(identity(1), secret);
            is_refused(&other, &Refusal::Secret);
        }
    }

    #[test]
    fn a_node_that_does_not_fit_is_refused() {
        let mut other = identity(1);
        other.env = "Prod".to_owned();
        let env = Refusal::Env {
            ours: "Test".to_owned(),
            theirs: "Prod".to_owned(),
        };
        is_refused(&party(other), &env);
        let mut other = identity(1);
        other.cluster = 8;
        let (ours, theirs) = (7, 8);
        is_refused(&party(other), &Refusal::Cluster { ours, theirs });
        let theirs = Versions {
            oldest: 2,
            newest: 9,
        };
        let ours = Versions::FIRST;
        let versions = Refusal::Versions { ours, theirs };
        is_refused(&of_versions(identity(1), 2, 9), &versions);
        let text = "it speaks the versions 2 to 9 of the protocol, the one that refuses 1 to 1";
        assert_eq!(versions.to_string(), text);
        is_refused(&party(identity(2)), &Refusal::Itself);
    }

    #[test]
    fn who_dials_checks_whom_it_has_reached() {
        let (one, three) = (party(identity(1)), party(identity(3)));
        let (dialling, _) = shake(&one, &three, DATA, Ok(None));
        let (expected, found) = (2, 3);
        let refusal = Refusal::OtherNode { expected, found };
        assert_eq!(dialling.err(), Some(Failure::We(refusal)));
    }

    #[test]
    fn a_verdict_is_believed_only_of_who_has_the_secret() {
        let (one, two) = (party(identity(1)), party(identity(2)));
        let (dialling, _) = shake(&one, &two, DATA, Err(Refusal::Evicted));
        let (refusal, proven) = (Refusal::Evicted, true);
        assert_eq!(dialling.err(), Some(Failure::They { refusal, proven }));

        let (dialling, hello) = one.dial(DATA, None, [1; 32]);
        let impostor = Party::new(identity(2), None);
        let (challenging, challenge) = impostor.answer(&hello, true, [2; 32]).unwrap();
        let (proving, _) = dialling.prove(&challenge).unwrap();
        let judging = Judging {
            transcript: challenging.transcript,
            peer: challenging.peer,
            purpose: challenging.purpose,
            version: challenging.version,
            waits: challenging.waits,
        };
        let concluded = proving.conclude(&judging.verdict(Err(Refusal::Evicted)));
        assert_eq!(concluded.err(), Some(Failure::We(Refusal::Secret)));
    }

    #[test]
    fn a_proof_is_good_for_one_handshake() {
        let (one, two) = (party(identity(1)), party(identity(2)));
        let (dialling, hello) = one.dial(DATA, None, [1; 32]);
        let (_, challenge) = two.answer(&hello, true, [2; 32]).unwrap();
        let (_, proof) = dialling.prove(&challenge).unwrap();
        let (again, _) = two.answer(&hello, true, [3; 32]).unwrap();
        let (failure, _) = again.check(&proof).unwrap_err();
        assert_eq!(failure, Failure::We(Refusal::Secret));
    }

    #[test]
    fn an_altered_admission_is_not_believed() {
        let (one, two) = (party(identity(1)), party(identity(2)));
        let (dialling, hello) = one.dial(Purpose::Join, None, [1; 32]);
        let (challenging, challenge) = two.answer(&hello, true, [2; 32]).unwrap();
        let (proving, proof) = dialling.prove(&challenge).unwrap();
        let judging = challenging.check(&proof).unwrap();
        let mut verdict = judging.verdict(Ok(Some(admission())));
        let welcome = verdict.windows(5).position(|bytes| bytes == b"hello");
        verdict[welcome.unwrap()] = b'j';
        let concluded = proving.conclude(&verdict);
        assert_eq!(concluded.err(), Some(Failure::We(Refusal::Secret)));
    }

    #[test]
    fn who_is_not_ready_says_so_to_new_nodes() {
        let mut newcomer = identity(1);
        newcomer.cluster = 0;
        let (new, two) = (party(newcomer), party(identity(2)));
        let (_, hello) = new.dial(Purpose::Join, None, [1; 32]);
        let (failure, _) = two.answer(&hello, false, [2; 32]).unwrap_err();
        assert_eq!(failure, Failure::We(Refusal::NotReady));
        // Members that start at the same time have to hear each other.
        let (_, hello) = party(identity(3)).dial(Purpose::Join, None, [1; 32]);
        two.answer(&hello, false, [2; 32]).unwrap();
        let (failure, _) = new.answer(&hello, true, [2; 32]).unwrap_err();
        assert_eq!(failure, Failure::We(Refusal::NotReady));
    }

    #[test]
    fn nodes_without_a_cluster_prove_it_to_each_other() {
        let new = |node, founds| Identity {
            cluster: 0,
            founds,
            ..identity(node)
        };
        for founds in [false, true] {
            let (one, two) = (party(new(1, !founds)), party(new(2, founds)));
            let refused = Err(Refusal::NotReady);
            let (dialling, accepting) = shake(&one, &two, Purpose::Join, refused);
            let waiting = Waiting {
                place: identity(2).place,
                founds,
            };
            assert!(dialling == Err(Failure::Waits(waiting)));
            // Who dials says nothing of founding.
            assert_eq!(accepting, Ok(new(1, false)));
        }
        // Another secret proves nothing.
        let other = Secret::new(b"other".to_vec());
        let stranger = Party::new(new(2, false), Some(&other));
        let refused = Err(Refusal::NotReady);
        let (dialling, _) = shake(&party(new(1, true)), &stranger, Purpose::Join, refused);
        assert!(matches!(
            dialling,
            Err(Failure::They {
                refusal: Refusal::Secret,
                ..
            })
        ));
        // Nobody is let into no cluster.
        let (one, two) = (party(new(1, true)), party(new(2, false)));
        let (dialling, _) = shake(&one, &two, Purpose::Join, Ok(Some(admission())));
        assert!(dialling == Err(Failure::Malformed));
    }

    #[test]
    fn a_member_is_heard_by_who_has_no_cluster() {
        let mut newcomer = identity(1);
        newcomer.cluster = 0;
        let new = party(newcomer.clone());
        let (_, hello) = party(identity(2)).dial(DATA, Some(1), [1; 32]);
        assert_eq!(new.heard_member(&hello), Some(identity(2)));
        assert_eq!(party(identity(3)).heard_member(&hello), None);
        let (_, hello) = party(newcomer).dial(Purpose::Join, None, [1; 32]);
        assert_eq!(new.heard_member(&hello), None);
    }

    #[test]
    fn both_sides_come_to_the_highest_common_version() {
        for (ours, theirs, common) in [((1, 1), (1, 3), 1), ((1, 4), (2, 3), 3)] {
            let one = of_versions(identity(1), ours.0, ours.1);
            let two = of_versions(identity(2), theirs.0, theirs.1);
            let (dialling, hello) = one.dial(DATA, Some(2), [1; 32]);
            let (challenging, challenge) = two.answer(&hello, true, [2; 32]).unwrap();
            let (proving, proof) = dialling.prove(&challenge).unwrap();
            assert_eq!(proving.version, common);
            assert_eq!(proving.peer.versions, two.identity.versions);
            let judging = challenging.check(&proof).unwrap();
            assert_eq!(judging.version, common);
            assert_eq!(judging.peer.versions, one.identity.versions);
        }
    }

    #[test]
    fn who_dials_refuses_a_version_that_it_does_not_speak() {
        let (one, two) = (of_versions(identity(1), 1, 2), party(identity(2)));
        let (dialling, hello) = one.dial(DATA, Some(2), [1; 32]);
        let (_, challenge) = two.answer(&hello, true, [2; 32]).unwrap();
        // It says something else than it has answered to.
        let theirs = Versions {
            oldest: 3,
            newest: 4,
        };
        let told = challenge.len() - encode(&Versions::FIRST).len();
        let challenge = [&challenge[..told], &encode(&theirs)].concat();
        let failure = dialling.prove(&challenge).unwrap_err();
        let ours = one.identity.versions;
        let versions = Refusal::Versions { ours, theirs };
        assert_eq!(failure, Failure::We(versions));
    }

    #[test]
    fn what_was_said_of_versions_cannot_be_changed_on_the_way() {
        let (one, two) = (
            of_versions(identity(1), 1, 2),
            of_versions(identity(2), 1, 2),
        );
        let (dialling, hello) = one.dial(DATA, Some(2), [1; 32]);
        let lower = [&hello[..7], &[1], &hello[8..]].concat();
        let (challenging, challenge) = two.answer(&lower, true, [2; 32]).unwrap();
        let (_, proof) = dialling.prove(&challenge).unwrap();
        let (failure, _) = challenging.check(&proof).unwrap_err();
        assert_eq!(failure, Failure::We(Refusal::Secret));
    }

    #[test]
    fn both_sides_show_their_stamps_and_earlier_versions_show_none() {
        let with_history = |node, starts| {
            let mut stamps = crate::folder::stamps::Stamps::default();
            for incarnation in 1..=starts {
                stamps.begin(incarnation, u64::MAX - incarnation);
            }
            let mut identity = identity(node);
            identity.history = stamps.history().clone();
            identity
        };
        let (first, second) = (with_history(1, 64), with_history(2, 1));
        let (one, two) = (party(first.clone()), party(second.clone()));
        let (dialling, accepting) = shake(&one, &two, DATA, Ok(None));
        assert!(dialling == Ok((second.clone(), None)));
        assert_eq!(accepting, Ok(first));
        // What is behind a hello or a challenge was not said by them.
        let mut hello = MAGIC.to_vec();
        hello.extend([0, 1, 0, 1]);
        hello.extend(encode(&Hello {
            identity: identity(1),
            purpose: DATA,
            nonce: [1; 32],
        }));
        let (challenging, challenge) = two.answer(&hello, true, [2; 32]).unwrap();
        assert_eq!(challenging.peer, identity(1));
        let (reply, rest) = decode_first::<Reply>(&challenge).unwrap();
        assert!(matches!(reply, Reply::Challenge { .. }));
        let (_, versions) = decode_history(rest).unwrap();
        let nothing: &[u8] = &[];
        assert_eq!(decode_versions(versions), Ok((Versions::FIRST, nothing)));
        for missing in [rest.len(), versions.len()] {
            assert!(missing > 0);
            let one = of_versions(identity(1), 1, 2);
            let (dialling, _) = one.dial(DATA, Some(2), [1; 32]);
            let (proving, _) = dialling
                .prove(&challenge[..challenge.len() - missing])
                .unwrap();
            assert_eq!(proving.peer.place, identity(2).place);
            assert_eq!(proving.version, 1);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            let (one, two) = (party(identity(1)), party(identity(2)));
            let (dialling, hello) = one.dial(DATA, None, [1; 32]);
            let _ = two.answer(&bytes, true, [2; 32]);
            let mut cut = hello.clone();
            cut.truncate(8);
            cut.extend(&bytes);
            let _ = two.answer(&cut, true, [2; 32]);
            let (challenging, challenge) = two.answer(&hello, true, [2; 32]).unwrap();
            prop_assert!(challenging.check(&bytes).is_err());
            let (proving, _) = dialling.prove(&challenge).unwrap();
            prop_assert!(proving.conclude(&bytes).is_err());
        }
    }
}

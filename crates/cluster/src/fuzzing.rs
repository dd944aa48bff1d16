//! What comes to the cluster's port, as a fuzz target.

use bytes::Bytes;
use chitchat::{ChitchatMessage, Deserializable as _};

use crate::Channel;
use crate::members::list::Place;
use crate::options::Versions;
use crate::protocol::frame::Frame;
use crate::protocol::handshake::{Identity, Party, Purpose};

fn party(node: u64) -> Party {
    let identity = Identity {
        env: "Test".to_owned(),
        cluster: 7,
        place: Place {
            node,
            incarnation: 1,
            address: "a:1".to_owned(),
        },
        instance: node,
        history: Default::default(),
        versions: Versions::FIRST,
        founds: false,
    };
    Party::new(identity, None)
}

/// A frame, a packet of gossip behind its tag, or what either side of a handshake gets; the first byte says
/// which.
///
/// # Panics
/// Something is wrong with what reads it, or a peer without the secret got through.
pub fn handshake(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    let (one, two) = (party(1), party(2));
    match which % 6 {
        0 => drop(Frame::decode(Bytes::copy_from_slice(bytes))),
        1 => drop(ChitchatMessage::deserialize(&mut &*bytes)),
        2 => drop(two.answer(bytes, true, [2; 32])),
        3 => drop(one.dial(Purpose::Join, None, [1; 32]).0.prove(bytes)),
        4 => {
            let (dialling, hello) = one.dial(Purpose::Carry(Channel::Data), None, [1; 32]);
            let (_, challenge) = two.answer(&hello, true, [2; 32]).expect("a hello");
            let (proving, _) = dialling.prove(&challenge).expect("a challenge");
            assert!(proving.conclude(bytes).is_err(), "a verdict was guessed");
        }
        _ => {
            let (dialling, hello) = one.dial(Purpose::Join, None, [1; 32]);
            let (challenging, challenge) = two.answer(&hello, true, [2; 32]).expect("a hello");
            let (_, proof) = dialling.prove(&challenge).expect("a challenge");
            let passes = challenging.check(bytes).is_ok();
            assert_eq!(passes, *bytes == *proof, "one proof passes, and no other");
        }
    }
}

/// Inputs for [`handshake`].
#[must_use]
pub fn handshake_seeds() -> Vec<Vec<u8>> {
    let (one, two) = (party(1), party(2));
    let (dialling, hello) = one.dial(Purpose::Join, None, [1; 32]);
    let (challenging, challenge) = two.answer(&hello, true, [2; 32]).expect("a hello");
    let (_, proof) = dialling.prove(&challenge).expect("a challenge");
    let judging = challenging.check(&proof).expect("a proof");
    let verdict = judging.verdict(Ok(None));
    let with = |which: u8, bytes: &[u8]| [&[which], bytes].concat();
    vec![
        with(0, b"\x01\0\0\0\0\0\0\0\x01ab"),
        with(1, &[0; 64]),
        with(2, &hello),
        with(3, &challenge),
        with(4, &verdict),
        with(5, &proof),
    ]
}

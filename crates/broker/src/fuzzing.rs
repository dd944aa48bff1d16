//! What comes from other nodes, as a fuzz target.

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::ApplicationMessage;
use store_state::inbox::Origin;

use crate::peers::frame::{Control, ForGroup, Forwarded, Frame, Whom, begin_messages};
use crate::peers::{read_takeover, takeover_seeds};

/// A message on the channel between brokers.
///
/// # Panics
/// Something is wrong with what reads it.
pub fn peers(bytes: &[u8]) {
    read_takeover(bytes);
    match Frame::decode(bytes) {
        Ok(Frame::Messages(read)) => {
            let mut again = begin_messages(read.from_loop.into());
            for message in &read.messages {
                again = message.append(again);
            }
            assert!(matches!(Frame::decode(&again), Ok(Frame::Messages(_))));
        }
        Ok(Frame::Control(control)) => {
            let again = Frame::control(&control);
            assert!(matches!(Frame::decode(&again), Ok(Frame::Control(read)) if read == control));
        }
        Ok(Frame::Routes(_)) | Err(_) => {}
    }
}

/// Inputs for [`peers`].
#[must_use]
pub fn peer_seeds() -> Vec<Vec<u8>> {
    let forwarded = |whom| Forwarded {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new("a/b", b"payload"),
            qos: QoS::AtLeastOnce,
            retain: true,
            publisher: 5,
            publisher_hash: 0,
            expires_at: None,
        }),
        publisher: u64::MAX,
        whom,
        origin: Some(Origin {
            client: "c".into(),
            incarnation: 1,
            packet_id: 0,
        }),
    };
    let group = Whom::Group(ForGroup {
        filter: "$share/g/a/b".into(),
        hops: 1,
        copy: 7,
    });
    let served = vec!["$share/g/a".into()];
    let mut messages = begin_messages(3);
    for whom in [Whom::Sessions, group, Whom::Anybody { served }] {
        messages = forwarded(whom).append(messages);
    }
    let mut seeds = vec![messages];
    for control in [
        Control::Await { shard: 3, token: 9 },
        Control::Settled { copies: vec![1, 2] },
        Control::Hold { publisher: 4 },
    ] {
        seeds.push(Frame::control(&control).to_vec());
    }
    seeds.extend(takeover_seeds());
    seeds
}

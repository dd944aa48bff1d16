//! What comes from another node on a link: messages, requests, answers, what a node that joins is told.

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::ApplicationMessage;
use peer_protocol::{
    BanChange, BanSubject, Bans, ClockReading, Control, DirectoryMessage, Encode, ForGroup,
    Forwarded, NodeRequest, Older, PeerMessage, PeerRequest, Publications, Registered,
    Registration, Takeover, VERSIONS, Welcome, Whom,
};
use route_exchange::{Batch, Key, Message, State, Value};
use store_state::api::{PerStore, StoreId};
use store_state::inbox::Origin;
use store_state::session::OfAnotherUser;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "peers",
    run,
    seeds,
};

const VERSION: u16 = *VERSIONS.end();

fn run(bytes: &[u8]) {
    if let Ok(message) = PeerMessage::decode(bytes, VERSION) {
        let read = format!("{message:?}");
        let again = message
            .encode(VERSION)
            .expect("what was read can be written");
        let message = PeerMessage::decode(&again, VERSION).expect("and read");
        assert_eq!(format!("{message:?}"), read);
        assert_eq!(message.encode(VERSION), Ok(again.clone()));
    }
    if let Ok(request) = PeerRequest::decode(bytes, VERSION) {
        let again = request.clone().encode(VERSION);
        let again = again.expect("what was read can be written");
        assert_eq!(PeerRequest::decode(&again, VERSION), Ok(request));
    }
    if let Ok(answer) = NodeRequest::decode_answer(bytes) {
        let again = NodeRequest::encode_answer(&answer);
        assert_eq!(NodeRequest::decode_answer(&again), Ok(answer));
    }
    if let Ok(reading) = ClockReading::decode(bytes) {
        assert_eq!(reading.encode(), bytes);
    }
    if let Ok(welcome) = Welcome::decode(bytes) {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = messages()
        .into_iter()
        .map(|message| message.encode(VERSION).expect("a message").to_vec())
        .collect();
    let transfer = NodeRequest::TransferLeader {
        store: StoreId::Inbox,
        shard: 2,
        to: 3,
    };
    let question = PeerRequest::Inspection((&b"{}"[..]).into());
    for request in [PeerRequest::Clock, PeerRequest::Node(transfer), question] {
        seeds.push(request.encode(VERSION).expect("a request").to_vec());
    }
    seeds.push(NodeRequest::encode_answer(&Ok(())).to_vec());
    let reading = ClockReading {
        incarnation: 1,
        clock_ms: 2,
        system_ms: 3,
    };
    seeds.push(reading.encode().to_vec());
    let welcome = Welcome {
        shards: PerStore {
            session: 1,
            inbox: 2,
            retain: 3,
            control: 1,
        },
        name_seed: 4,
    };
    seeds.push(welcome.encode().to_vec());
    seeds
}

fn messages() -> Vec<PeerMessage<'static>> {
    let registration = Registration {
        shard: 3,
        client: "c".into(),
        number: 4,
        user: Some("u".into()),
        of_another_user: OfAnotherUser::Refuse,
    };
    let what = Older {
        client: "c".into(),
        epoch: 1,
        number: 2,
        resumes: true,
    };
    let close = Takeover::Close {
        correlation_id: 1,
        what,
    };
    let closed = Takeover::Closed {
        correlation_id: 1,
        unreleased: vec![1, 2],
    };
    let registered = vec![(1, Some(Registered::alone(4))), (2, None)];
    let batch = Batch {
        stream: 1,
        sequence: 1,
        routes: vec![
            (
                Key::Filter("a/+".into()),
                Some(Value::Sessions { all: true }),
            ),
            (Key::Group("$share/g/a".into()), None),
        ],
        number: 1,
        complete: true,
        echo_ms: Some(2),
    };
    let state = State {
        stream: 1,
        sequence: 1,
        number: 1,
        missed: None,
        beat_ms: Some(3),
    };
    vec![
        PeerMessage::Publications(publications()),
        Control::Await {
            shard: 3,
            correlation_id: 9,
        }
        .into(),
        Control::Settled { copies: vec![1, 2] }.into(),
        Control::Hold { publisher: 4 }.into(),
        close.into(),
        closed.into(),
        Takeover::Directory(DirectoryMessage::Register(vec![(1, registration.clone())])).into(),
        Takeover::Directory(DirectoryMessage::Registered(registered)).into(),
        Takeover::Directory(DirectoryMessage::Again(vec![registration])).into(),
        Message::Batch(batch).into(),
        Message::State(state).into(),
        PeerMessage::Store(b"abc"),
        Bans::Digest(vec![1, 2]).into(),
        Bans::Changes(vec![BanChange {
            subject: BanSubject::User("u".into()),
            version: (2, 1),
            banned: None,
        }])
        .into(),
    ]
}

fn publications() -> Publications {
    let forwarded = |whom| Forwarded {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new("a/b", b"payload"),
            qos: QoS::AtLeastOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
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
    let whom = [Whom::Sessions, group, Whom::Anybody { served }];
    Publications {
        from_loop: 3,
        messages: whom.map(forwarded).into(),
    }
}

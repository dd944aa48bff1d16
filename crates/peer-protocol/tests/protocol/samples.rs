//! One message of each shape, by its name.

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Timestamp};
use peer_protocol::{
    BanChange, BanSubject, Banned, Bans, CONTROL_SINCE, Control, DirectoryMessage, FailedLogins,
    ForGroup, Forwarded, NodeRequest, Older, PeerMessage, PeerRequest, Publications, Registered,
    Registration, SPLITS_SINCE, Takeover, Whom, found_by, with_hash,
};
use route_exchange::{Batch, Key, Message, State, Value};
use store_state::api::{Slot, StoreId};
use store_state::inbox::Origin;
use store_state::session::OfAnotherUser;

/// The first version that has a sample, if its kind does not say so.
pub(crate) fn since(name: &str) -> u16 {
    match name {
        "routes/ranges" | "node/split" => SPLITS_SINCE,
        "node/begin-control" | "node/count-control" => CONTROL_SINCE,
        _ => 1,
    }
}

pub(crate) fn messages() -> Vec<(&'static str, PeerMessage<'static>)> {
    let mut samples = vec![
        ("routes/batch", Message::Batch(batch()).into()),
        ("routes/ranges", Message::Batch(ranges()).into()),
        ("routes/state", Message::State(state()).into()),
        (
            "publications/none",
            PeerMessage::Publications(Publications {
                from_loop: 0,
                messages: Vec::new(),
            }),
        ),
        (
            "publications/three",
            PeerMessage::Publications(publications()),
        ),
        ("store/opaque", PeerMessage::Store(&[4, 0])),
    ];
    let controls = controls().into_iter();
    samples.extend(controls.map(|(name, control)| (name, control.into())));
    let takeovers = takeovers().into_iter();
    samples.extend(takeovers.map(|(name, takeover)| (name, takeover.into())));
    let bans = bans().into_iter();
    samples.extend(bans.map(|(name, bans)| (name, bans.into())));
    samples
}

pub(crate) fn bans() -> Vec<(&'static str, Bans)> {
    let change = |subject, banned| BanChange {
        subject,
        version: (1_800_000_000_000, 1_800_000_000_000_042),
        banned,
    };
    let until = Banned {
        reason: "why".into(),
        expires_ms: Some(1_800_000_060_000),
    };
    let always = Banned {
        reason: "".into(),
        expires_ms: None,
    };
    let changes = vec![
        change(BanSubject::Client("c".into()), Some(until)),
        change(BanSubject::User("u".into()), None),
        change(BanSubject::Address("192.0.2.0/24".into()), Some(always)),
    ];
    let failed = [(Some("u"), 3), (None, 1)].map(|(user, count)| FailedLogins {
        address: "192.0.2.1/32".into(),
        user: user.map(Into::into),
        count: std::num::NonZero::new(count).expect("it is not 0"),
    });
    let failed = failed.to_vec();
    vec![
        ("bans/digest", Bans::Digest(vec![0, 1, u64::MAX])),
        ("bans/changes", Bans::Changes(changes)),
        ("bans/failed-logins", Bans::FailedLogins(failed)),
    ]
}

pub(crate) fn requests() -> Vec<(&'static str, PeerRequest)> {
    let transfer = NodeRequest::TransferLeader {
        store: StoreId::Inbox,
        shard: 300,
        to: 2,
    };
    let split = NodeRequest::Split {
        store: StoreId::Retain,
        shard: 0,
        at: Slot(32_768),
    };
    vec![
        ("clock/request", PeerRequest::Clock),
        ("node/transfer-leader", PeerRequest::Node(transfer)),
        ("node/forget", PeerRequest::Node(NodeRequest::Forget)),
        ("node/split", PeerRequest::Node(split)),
        (
            "node/begin-control",
            PeerRequest::Node(NodeRequest::BeginControl),
        ),
        (
            "node/count-control",
            PeerRequest::Node(NodeRequest::CountControl { revision: 300 }),
        ),
        (
            "inspection/question",
            PeerRequest::Inspection((&b"{}"[..]).into()),
        ),
    ]
}

fn ranges() -> Batch {
    let range = |last, covers| Some(Value::Range { last, covers });
    Batch {
        routes: vec![
            (Key::Range(0), range(32_767, true)),
            (Key::Range(32_768), range(65_533, false)),
            (Key::Range(3), None),
        ],
        ..batch()
    }
}

fn batch() -> Batch {
    let key = |text: &str| text.into();
    let lead = Value::Lead {
        term: 5,
        complete: true,
    };
    let member = Value::Member { options: 1, id: 7 };
    Batch {
        stream: 1 << 32,
        sequence: 2,
        routes: vec![
            (Key::Filter(key("a/+")), Some(Value::Sessions { all: true })),
            (Key::Filter(key("b")), None),
            (
                Key::Group(key("$share/g/a")),
                Some(Value::Group { room: 300 }),
            ),
            (Key::Lead(3), Some(lead)),
            (
                Key::ShardFilter(3, key("#")),
                Some(Value::Shard { detached: true }),
            ),
            (Key::Member(3, key("c"), key("$share/g/a")), Some(member)),
        ],
        number: 9,
        complete: true,
        echo_ms: Some(1_000),
    }
}

fn state() -> State {
    State {
        stream: 1 << 32,
        sequence: 2,
        number: 9,
        missed: Some(3 << 32),
        beat_ms: Some(1_000),
    }
}

pub(crate) fn publications() -> Publications {
    let group = Whom::Group(ForGroup {
        filter: "$share/g/a".into(),
        hops: 1,
        copy: 7,
    });
    let served = vec!["$share/g/a".into(), "$queue/a".into()];
    let origin = Origin {
        client: "will".into(),
        incarnation: 6,
        packet_id: 0,
    };
    Publications {
        from_loop: 3,
        messages: vec![
            forwarded(QoS::AtMostOnce, Whom::Sessions, None),
            forwarded(QoS::AtLeastOnce, group, None),
            forwarded(QoS::ExactlyOnce, Whom::Anybody { served }, Some(origin)),
        ],
    }
}

fn forwarded(qos: QoS, whom: Whom, origin: Option<Origin>) -> Forwarded {
    Forwarded {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new("a/b", b"payload"),
            qos,
            retain: qos == QoS::ExactlyOnce,
            // Of a process: neither is sent.
            publisher: 0,
            publisher_hash: 0,
            expires_at: (qos != QoS::AtMostOnce).then_some(Timestamp(1_800_000_000_000)),
            taken_up: None,
        }),
        publisher: with_hash(found_by(1, 2, 3), 0xABC),
        whom,
        origin,
    }
}

pub(crate) fn controls() -> Vec<(&'static str, Control)> {
    let publisher = found_by(1, 2, 3);
    let asked = Control::Await {
        shard: 3,
        correlation_id: 300,
    };
    let known = Control::Known {
        correlation_id: 300,
    };
    let settled = Control::Settled {
        copies: vec![7, 300],
    };
    vec![
        ("control/await", asked),
        ("control/known", known),
        ("control/settled", settled),
        ("control/hold", Control::Hold { publisher }),
        ("control/release", Control::Release { publisher }),
    ]
}

pub(crate) fn takeovers() -> Vec<(&'static str, Takeover)> {
    let what = Older {
        client: "c".into(),
        epoch: 5,
        number: 6,
        resumes: true,
    };
    let registration = |user: Option<&str>, of_another_user| Registration {
        shard: 3,
        client: "c".into(),
        number: 300,
        user: user.map(Box::from),
        of_another_user,
    };
    let named = registration(Some("u"), OfAnotherUser::Refuse);
    let nobody = registration(None, OfAnotherUser::Discard);
    let elsewhere = Registered {
        held_by: Some(2),
        is_known: true,
        ..Registered::alone(301)
    };
    let refused = Registered {
        is_anothers: true,
        ..Registered::alone(0)
    };
    let register = vec![(1, named.clone()), (2, nobody.clone())];
    let registered = vec![(1, Some(elsewhere)), (2, Some(refused)), (3, None)];
    let directory = Takeover::Directory;
    vec![
        (
            "takeover/close",
            Takeover::Close {
                correlation_id: 1 << 32,
                what,
            },
        ),
        (
            "takeover/closed",
            Takeover::Closed {
                correlation_id: 1 << 32,
                unreleased: vec![1, 65_535],
            },
        ),
        (
            "takeover/directory/register",
            directory(DirectoryMessage::Register(register)),
        ),
        (
            "takeover/directory/registered",
            directory(DirectoryMessage::Registered(registered)),
        ),
        (
            "takeover/directory/again",
            directory(DirectoryMessage::Again(vec![named])),
        ),
        (
            "takeover/directory/forget",
            directory(DirectoryMessage::Forget(vec![nobody])),
        ),
    ]
}

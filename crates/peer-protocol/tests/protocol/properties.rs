//! Rules that hold for all values and all bytes.

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Timestamp};
use peer_protocol::{
    Control, DirectoryMessage, Encode as _, ForGroup, Forwarded, Older, PeerMessage, PeerRequest,
    Publications, PublicationsFrame, Registered, Registration, Takeover, VERSIONS, Whom,
};
use proptest::collection::vec;
use proptest::prelude::*;
use store_state::inbox::Origin;
use store_state::session::OfAnotherUser;

use crate::samples::messages;

const VERSION: u16 = *VERSIONS.end();

fn text() -> impl Strategy<Value = Box<str>> {
    "[a-z/+#$]{0,12}".prop_map(Into::into)
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        (any::<u16>(), any::<u64>()).prop_map(|(shard, correlation_id)| Control::Await {
            shard,
            correlation_id
        }),
        any::<u64>().prop_map(|correlation_id| Control::Known { correlation_id }),
        vec(any::<u64>(), 0..20).prop_map(|copies| Control::Settled { copies }),
        any::<u64>().prop_map(|publisher| Control::Hold { publisher }),
        any::<u64>().prop_map(|publisher| Control::Release { publisher }),
    ]
}

fn registration() -> impl Strategy<Value = Registration> {
    let of_another_user = prop_oneof![Just(OfAnotherUser::Refuse), Just(OfAnotherUser::Discard)];
    let user = prop::option::of(text());
    (any::<u16>(), text(), any::<u64>(), user, of_another_user).prop_map(
        |(shard, client, number, user, of_another_user)| Registration {
            shard,
            client,
            number,
            user,
            of_another_user,
        },
    )
}

fn registered() -> impl Strategy<Value = Registered> {
    (any::<u64>(), any::<Option<u64>>(), any::<[bool; 2]>()).prop_map(
        |(number, held_by, [is_known, is_anothers])| Registered {
            number,
            held_by,
            is_known,
            is_anothers,
        },
    )
}

fn takeover() -> impl Strategy<Value = Takeover> {
    let older = (text(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
        |(client, epoch, number, resumes)| Older {
            client,
            epoch,
            number,
            resumes,
        },
    );
    let answer = (any::<u64>(), prop::option::of(registered()));
    prop_oneof![
        (any::<u64>(), older).prop_map(|(correlation_id, what)| Takeover::Close {
            correlation_id,
            what
        }),
        (any::<u64>(), vec(any::<u16>(), 0..20)).prop_map(|(correlation_id, unreleased)| {
            Takeover::Closed {
                correlation_id,
                unreleased,
            }
        }),
        vec((any::<u64>(), registration()), 0..5)
            .prop_map(|new| Takeover::Directory(DirectoryMessage::Register(new))),
        vec(answer, 0..5)
            .prop_map(|answers| Takeover::Directory(DirectoryMessage::Registered(answers))),
        vec(registration(), 0..5)
            .prop_map(|again| Takeover::Directory(DirectoryMessage::Again(again))),
        vec(registration(), 0..5)
            .prop_map(|gone| Takeover::Directory(DirectoryMessage::Forget(gone))),
    ]
}

fn forwarded() -> impl Strategy<Value = Forwarded> {
    let qos = prop_oneof![
        Just(QoS::AtMostOnce),
        Just(QoS::AtLeastOnce),
        Just(QoS::ExactlyOnce)
    ];
    let message = (
        "[a-z/]{1,12}",
        vec(any::<u8>(), 0..64),
        qos,
        any::<bool>(),
        prop::option::of(1..u64::MAX),
    )
        .prop_map(
            |(topic, payload, qos, retain, expires_at)| ApplicationMessage {
                body: MessageBody::new(&topic, &payload),
                qos,
                retain,
                publisher: 0,
                publisher_hash: 0,
                expires_at: expires_at.map(Timestamp),
                taken_up: None,
            },
        );
    let group = (text(), any::<u8>(), any::<u64>()).prop_map(|(filter, hops, copy)| ForGroup {
        filter,
        hops,
        copy,
    });
    let whom = prop_oneof![
        Just(Whom::Sessions),
        vec(text(), 0..4).prop_map(|served| Whom::Anybody { served }),
        group.prop_map(Whom::Group),
    ];
    let origin =
        (text(), any::<u64>(), any::<u16>()).prop_map(|(client, incarnation, packet_id)| Origin {
            client: (&*client).into(),
            incarnation,
            packet_id,
        });
    (message, any::<u64>(), whom, prop::option::of(origin)).prop_map(
        |(message, publisher, whom, origin)| Forwarded {
            message: Arc::new(message),
            publisher,
            whom,
            origin,
        },
    )
}

fn publications() -> impl Strategy<Value = Publications> {
    (any::<u8>(), vec(forwarded(), 0..6)).prop_map(|(from_loop, messages)| Publications {
        from_loop,
        messages,
    })
}

proptest! {
    #[test]
    fn control_is_read_as_it_was_written(control in control()) {
        let bytes = PeerMessage::from(control.clone()).encode(VERSION).unwrap();
        let read = PeerMessage::decode(&bytes, VERSION);
        prop_assert!(matches!(read, Ok(PeerMessage::Control(read)) if read == control));
    }

    #[test]
    fn takeovers_are_read_as_they_were_written(takeover in takeover()) {
        let bytes = PeerMessage::from(takeover.clone()).encode(VERSION).unwrap();
        let read = PeerMessage::decode(&bytes, VERSION);
        prop_assert!(matches!(read, Ok(PeerMessage::Takeover(read)) if read == takeover));
    }

    #[test]
    fn publications_are_read_as_they_were_written(publications in publications()) {
        let mut frame = PublicationsFrame::new(publications.from_loop.into());
        for forwarded in &publications.messages {
            frame.push(forwarded);
        }
        let frame = frame.encode(VERSION).unwrap();
        let written = PeerMessage::Publications(publications.clone());
        prop_assert_eq!(&frame, &written.encode(VERSION).unwrap());
        let read = PeerMessage::decode(&frame, VERSION).unwrap();
        let written = PeerMessage::Publications(publications);
        prop_assert_eq!(format!("{read:?}"), format!("{written:?}"));
    }

    #[test]
    fn any_bytes_are_read_or_refused(tag in any::<u8>(), bytes in vec(any::<u8>(), 0..64)) {
        let bytes = [&[tag][..], &bytes].concat();
        if let Ok(message) = PeerMessage::decode(&bytes, VERSION) {
            prop_assert!(message.encode(VERSION).is_ok());
        }
        if let Ok(request) = PeerRequest::decode(&bytes, VERSION) {
            prop_assert!(request.encode(VERSION).is_ok());
        }
    }

    #[test]
    fn a_message_that_is_cut_or_changed_is_read_or_refused(
        which in 0..messages().len(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let (_, message) = messages().swap_remove(which);
        let mut bytes = message.encode(VERSION).unwrap().to_vec();
        let at = at.index(bytes.len());
        let _ = PeerMessage::decode(&bytes[..at], VERSION);
        bytes[at] = byte;
        let _ = PeerMessage::decode(&bytes, VERSION);
    }
}

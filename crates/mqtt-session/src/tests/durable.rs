//! A session that a store holds: what is handed over, what is acknowledged, what waits for the store.

use std::sync::Arc;

use mqtt_proto::*;

use super::driver::check;
use crate::*;

/// [MQTT-4.3.1-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT-4.3.3-4] [MQTT-2.2.1-4]
#[test]
fn stored_messages_of_each_qos() {
    for version in ["3.1.1", "5 expiry=99"] {
        check(&format!(
            "> CONNECT v={version} durable
             < CONNACK
             $ stored topic=a qos=1 seq=1
             < PUBLISH id=1 qos=1 topic=a
             $ stored topic=b seq=2
             < PUBLISH topic=b
             ! acknowledged 2
             $ stored topic=c qos=2 seq=3
             < PUBLISH id=3 qos=2 topic=c
             $ deliver topic=d
             < PUBLISH topic=d
             ? facts
             = waiting=0 in_flight=2 room=126 sent=3
             > PUBREC id=3
             ! receipt 3
             $ recorded seq=3
             < PUBREL id=3
             > PUBCOMP id=3
             ! acknowledged 3
             > PUBACK id=1
             ! acknowledged 1
             ? facts
             = waiting=0 in_flight=0 room=128 empty sent=3"
        ));
    }
}

/// [MQTT-3.2.2-20]
#[test]
fn a_client_is_told_its_epoch_and_the_positions_of_stored_messages() {
    check(
        "> CONNECT v=5 expiry=99 durable present epoch=12 incarnation=7
         < CONNACK session_present hmq-epoch=12
         $ stored topic=a qos=1 seq=65536 sent
         < PUBLISH id=1 qos=1 dup topic=a hmq-position=7.65536
         $ stored topic=a seq=65537
         < PUBLISH topic=a
         ! acknowledged 65537
         $ stored topic=a qos=2 seq=65538
         < PUBLISH id=3 qos=2 topic=a hmq-position=7.65538
         $ deliver topic=d
         < PUBLISH topic=d",
    );
    // With its position, the second is 1 byte too large.
    check(
        "> CONNECT v=5 expiry=99 mps=40 durable epoch=18446744073709551615 incarnation=7
         < CONNACK hmq-epoch=18446744073709551615
         $ stored topic=a qos=1 seq=1 size=12
         < PUBLISH id=1 qos=1 topic=a hmq-position=7.1
         $ stored topic=a qos=1 seq=2 size=13
         ! dropped a packet_too_large
         ! acknowledged 2",
    );
    check(
        "> CONNECT v=5 expiry=99 mps=10 durable epoch=12
         < CONNACK",
    );
    check(
        "> CONNECT v=3.1.1 durable epoch=12 incarnation=7
         < CONNACK
         $ stored topic=a qos=1 seq=1
         < PUBLISH id=1 qos=1 topic=a",
    );
}

/// [MQTT-4.9.0-1]
#[test]
fn a_client_that_is_told_positions_has_as_many_in_flight_as_it_asks_for() {
    for (incarnation, room) in [(" epoch=12 incarnation=7", 300), ("", 128)] {
        let properties = match incarnation {
            "" => "",
            _ => " hmq-epoch=12",
        };
        check(&format!(
            "> CONNECT v=5 expiry=99 rm=300 durable{incarnation}
             < CONNACK{properties}
             ? facts
             = waiting=0 in_flight=0 room={room} empty sent=0"
        ));
    }
}

/// [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT-3.3.1-1] [MQTT3-4.4.0-1] [MQTT3-4.6.0-1]
#[test]
fn what_the_store_has_goes_again_in_order() {
    for version in ["3.1.1", "5 expiry=99"] {
        check(&format!(
            "> CONNECT v={version} durable present
             < CONNACK session_present
             $ stored topic=a qos=1 seq=7 sent
             < PUBLISH id=7 qos=1 dup topic=a
             $ owe seq=8
             < PUBREL id=8
             $ stored topic=c qos=2 seq=11 sent
             < PUBLISH id=11 qos=2 dup topic=c
             $ stored topic=d qos=2 seq=12
             < PUBLISH id=12 qos=2 topic=d
             > PUBCOMP id=8
             ! acknowledged 8
             > PUBACK id=7
             ! acknowledged 7
             > PUBREC id=11
             ! receipt 11
             $ recorded seq=11
             < PUBREL id=11
             > PUBCOMP id=11
             ! acknowledged 11
             $ close"
        ));
    }
}

#[test]
fn what_is_passed_over_is_done_and_never_sent() {
    check(
        "> CONNECT expiry=9 durable
         < CONNACK
         $ stored topic=a qos=1 seq=1
         < PUBLISH id=1 qos=1 topic=a
         $ skip seq=2
         ! acknowledged 2
         $ skip seq=2
         $ stored topic=b qos=1 seq=2
         $ stored topic=c qos=1 seq=3
         < PUBLISH id=3 qos=1 topic=c
         > PUBACK id=1
         ! acknowledged 1
         > PUBACK id=3
         ! acknowledged 3
         ? facts
         = waiting=0 in_flight=0 room=128 empty sent=3",
    );
}

/// The client may hold the identifier of a QoS 2 message that was sent: PUBREL frees it.
#[test]
fn what_was_sent_and_is_passed_over_now_ends() {
    check(
        "> CONNECT expiry=9 durable present
         < CONNACK session_present
         $ skip seq=1 qos=1 sent
         ! acknowledged 1
         $ skip seq=2 qos=2 sent
         < PUBREL id=2
         $ skip seq=3 qos=2
         ! acknowledged 3
         > PUBCOMP id=2
         ! acknowledged 2",
    );
}

#[test]
fn what_waits_and_is_forbidden_is_dropped() {
    check(
        "> CONNECT expiry=9 rm=1 durable present
         < CONNACK session_present
         $ stored topic=a qos=1 seq=1
         < PUBLISH id=1 qos=1 topic=a
         $ stored topic=no qos=1 seq=2
         $ stored topic=no qos=2 seq=3 sent
         $ stored topic=b qos=1 seq=4
         $ forbid topic=no
         ! forbidden no
         ! forbidden no
         < PUBREL id=3
         ! acknowledged 2
         > PUBACK id=1
         ! acknowledged 1
         > PUBCOMP id=3
         < PUBLISH id=4 qos=1 topic=b
         ! acknowledged 3
         > PUBACK id=4
         ! acknowledged 4
         ? facts
         = waiting=0 in_flight=0 room=1 empty sent=4",
    );
}

/// A page may repeat what an earlier one had, and come late.
#[test]
fn what_was_handed_over_is_not_handed_over_again() {
    check(
        "> CONNECT expiry=9 durable
         < CONNACK
         $ stored topic=a qos=1 seq=4
         < PUBLISH id=4 qos=1 topic=a
         $ stored topic=a qos=1 seq=4
         $ stored topic=b qos=1 seq=3
         $ owe seq=4
         $ stored topic=c qos=1 seq=5
         < PUBLISH id=5 qos=1 topic=c",
    );
}

/// [MQTT-3.3.1-2] at most once: what may have been sent is not sent again.
#[test]
fn stored_qos_0_leaves_once() {
    check(
        "> CONNECT expiry=9 durable present
         < CONNACK session_present
         $ stored topic=a seq=1 sent
         ! acknowledged 1
         $ stored topic=b seq=2
         < PUBLISH topic=b
         ! acknowledged 2
         ? facts
         = waiting=0 in_flight=0 room=128 empty sent=2",
    );
}

/// [MQTT-3.3.4-9] [MQTT-3.3.4-10] [MQTT-4.9.0-3] the window holds back PUBLISH above QoS 0, and what
/// is behind it in the inbox.
#[test]
fn the_window_holds_for_what_goes_again() {
    check(
        "> CONNECT expiry=9 rm=1 durable present
         < CONNACK session_present
         $ owe seq=1
         < PUBREL id=1
         $ owe seq=2
         < PUBREL id=2
         $ stored topic=a qos=1 seq=3 sent
         $ stored topic=b seq=4
         $ deliver topic=c
         < PUBLISH topic=c
         > PUBCOMP id=1
         ! acknowledged 1
         > PUBCOMP id=2
         < PUBLISH id=3 qos=1 dup topic=a
         < PUBLISH topic=b
         ! acknowledged 2,4
         $ stored topic=d qos=1 seq=5
         > PUBACK id=3
         < PUBLISH id=5 qos=1 topic=d
         ! acknowledged 3",
    );
}

/// [MQTT-4.6.0-6] what comes directly does not pass what may go.
#[test]
fn direct_messages_keep_their_place() {
    check(
        "> CONNECT expiry=9 rm=1 durable
         < CONNACK
         $ stored topic=a qos=1 seq=1
         < PUBLISH id=1 qos=1 topic=a
         $ stored topic=b qos=1 seq=2
         $ stored topic=c seq=3
         > PUBACK id=1
         < PUBLISH id=2 qos=1 topic=b
         < PUBLISH topic=c
         ! acknowledged 1,3
         $ deliver topic=d
         < PUBLISH topic=d",
    );
}

/// [MQTT-2.2.1-4] identifiers go round, and none is given away before it is free.
#[test]
fn a_gap_does_not_use_an_identifier_twice() {
    check(
        "> CONNECT expiry=99 rm=20 durable
         < CONNACK
         $ stored topic=a qos=1 seq=65530
         < PUBLISH id=65530 qos=1 topic=a
         # Half of the identifiers may be between the oldest and the newest.
         $ stored topic=b qos=1 seq=98297
         < PUBLISH id=32762 qos=1 topic=b
         $ stored topic=c qos=1 seq=98298
         $ stored topic=d seq=98299
         ? facts
         = waiting=2 in_flight=2 room=16 sent=98297
         > PUBACK id=32762
         ! acknowledged 98297
         > PUBACK id=32763
         > PUBACK id=65530
         < PUBLISH id=32763 qos=1 topic=c
         < PUBLISH topic=d
         ! acknowledged 65530,98299
         > PUBACK id=32763
         ! acknowledged 98298
         # With nothing in flight every identifier is free.
         $ stored topic=e qos=1 seq=1000000
         < PUBLISH id=16975 qos=1 topic=e
         $ stored topic=f qos=1 seq=1065535
         > PUBACK id=16975
         < PUBLISH id=16975 qos=1 topic=f
         ! acknowledged 1000000",
    );
}

/// [MQTT-4.3.3-4] PUBREL waits for the store; a PUBREC that comes again meanwhile changes nothing.
#[test]
fn pubrel_waits_for_the_store() {
    check(
        "> CONNECT expiry=9 durable
         < CONNACK
         $ stored topic=a qos=2 seq=1
         < PUBLISH id=1 qos=2 topic=a
         $ recorded seq=1
         > PUBREC id=1
         ! receipt 1
         > PUBREC id=1
         ? facts
         = waiting=0 in_flight=1 room=127 empty sent=1
         $ recorded seq=2
         $ recorded seq=1
         < PUBREL id=1
         $ recorded seq=1
         > PUBREC id=1
         < PUBREL id=1
         > PUBCOMP id=1
         ! acknowledged 1
         > PUBREC id=1
         < PUBREL id=1 reason=0x92",
    );
}

/// [MQTT-4.6.0-4] [MQTT3-4.6.0-4] in the order of their PUBRECs.
#[test]
fn pubrels_keep_the_order_of_pubrecs() {
    check(
        "> CONNECT expiry=9 durable
         < CONNACK
         $ stored topic=a qos=2 seq=1
         < PUBLISH id=1 qos=2 topic=a
         $ stored topic=b qos=2 seq=2
         < PUBLISH id=2 qos=2 topic=b
         > PUBREC id=2
         ! receipt 2
         > PUBREC id=1
         ! receipt 1
         $ recorded seq=1
         $ recorded seq=2
         < PUBREL id=2
         < PUBREL id=1",
    );
}

/// [MQTT-4.4.0-2] [MQTT-4.8.2-6] an error ends the delivery, whatever the store is about to record.
#[test]
fn an_error_ends_a_stored_delivery() {
    check(
        "> CONNECT expiry=9 durable
         < CONNACK
         $ stored topic=a qos=2 seq=1
         < PUBLISH id=1 qos=2 topic=a
         $ stored topic=b qos=2 seq=2
         < PUBLISH id=2 qos=2 topic=b
         $ stored topic=c qos=1 seq=3
         < PUBLISH id=3 qos=1 topic=c
         > PUBREC id=2
         ! receipt 2
         > PUBREC id=1 reason=0x97
         ! acknowledged 1
         > PUBREC id=2 reason=0x97
         ! acknowledged 2
         > PUBACK id=3 reason=0x97
         ! acknowledged 3
         $ recorded seq=2
         ? facts
         = waiting=0 in_flight=0 room=128 empty sent=3",
    );
}

/// [MQTT-4.3.3-5] PUBCOMP before PUBREL.
#[test]
fn pubcomp_before_the_record() {
    for packet in ["PUBCOMP", "PUBACK"] {
        let kind = if packet == "PUBACK" {
            "PubAck"
        } else {
            "PubComp"
        };
        check(&format!(
            "> CONNECT expiry=9 durable
             < CONNACK
             $ stored topic=a qos=2 seq=1
             < PUBLISH id=1 qos=2 topic=a
             > PUBREC id=1
             ! receipt 1
             > {packet} id=1
             ! violation UnexpectedAcknowledgement({kind})
             < DISCONNECT reason=0x82 words
             < close"
        ));
    }
}

/// [MQTT-3.3.2-5] [MQTT-3.1.2-25] [MQTT-4.3.3-7] what is dropped is acknowledged; what was sent with
/// QoS 2 does not expire.
#[test]
fn what_is_dropped_is_acknowledged() {
    check(
        "> CONNECT expiry=99 rm=1 mps=50 durable present
         < CONNACK session_present
         $ stored topic=a qos=2 seq=1 sent expiry=1
         < PUBLISH id=1 qos=2 dup topic=a expiry=1
         $ stored topic=b qos=1 seq=2 sent size=100
         $ stored topic=c qos=1 seq=3 sent expiry=1
         $ stored topic=d qos=1 seq=4 expiry=1
         $ stored topic=e seq=5 expiry=1
         $ stored topic=f seq=6 size=100
         $ stored topic=g qos=1 seq=7 size=100
         $ stored topic=h qos=1 seq=8
         + 2000
         > PUBREC id=1
         ! receipt 1
         $ recorded seq=1
         < PUBREL id=1
         > PUBCOMP id=1
         < PUBLISH id=8 qos=1 topic=h
         ! dropped b packet_too_large
         ! dropped c expired
         ! dropped d expired
         ! dropped e expired
         ! dropped f packet_too_large
         ! dropped g packet_too_large
         ! acknowledged 1,2,3,4,5,6,7
         > PUBACK id=8
         ! acknowledged 8
         ? facts
         = waiting=0 in_flight=0 room=1 empty sent=8",
    );
}

/// [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12] PUBCOMP waits for the store, and until then the
/// identifier is that of the old message.
#[test]
fn pubcomp_waits_for_the_store() {
    for version in ["3.1.1", "5 expiry=9"] {
        check(&format!(
            "> CONNECT v={version} durable
             < CONNACK
             > PUBLISH topic=a qos=2 id=5
             ! publish id=5 topic=a qos=2
             $ released id=5
             $ done id=5
             < PUBREC id=5
             > PUBREL id=5
             ! release 5
             > PUBREL id=5
             > PUBLISH topic=a qos=2 id=5 dup
             < PUBREC id=5
             $ released id=5
             < PUBCOMP id=5
             > PUBLISH topic=b qos=2 id=5
             ! publish id=5 topic=b qos=2"
        ));
    }
}

#[test]
fn pubcomps_keep_the_order_of_pubrels() {
    check(
        "> CONNECT expiry=9 durable present received=9,4,9
         < CONNACK session_present
         > PUBREL id=9
         ! release 9
         > PUBREL id=4
         ! release 4
         > PUBREL id=7
         < PUBCOMP id=7 reason=0x92
         $ released id=4
         $ released id=9
         < PUBCOMP id=9
         < PUBCOMP id=4
         > PUBREL id=4
         < PUBCOMP id=4 reason=0x92",
    );
}

/// [MQTT-4.3.3-10] [MQTT3-4.3.3-2] what the store has received goes to it once more, and is one message.
#[test]
fn received_identifiers_are_restored() {
    for version in ["3.1.1", "5 expiry=9"] {
        check(&format!(
            "> CONNECT v={version} durable present received=9,4
             < CONNACK session_present
             > PUBLISH topic=a qos=2 id=4 dup
             ! publish id=4 topic=a qos=2
             $ done id=4
             < PUBREC id=4
             > PUBLISH topic=a qos=2 id=4 dup
             < PUBREC id=4
             > PUBREL id=9
             ! release 9
             $ released id=9
             < PUBCOMP id=9
             > PUBLISH topic=c qos=2 id=5 dup
             ! publish id=5 topic=c qos=2"
        ));
    }
}

/// [MQTT-3.3.4-7] until PUBCOMP the message counts.
#[test]
fn an_unfinished_release_counts() {
    check(
        "% rm=1
         > CONNECT expiry=9 durable
         < CONNACK rm=1
         > PUBLISH topic=a qos=2 id=1
         ! publish id=1 topic=a qos=2
         $ done id=1
         < PUBREC id=1
         > PUBREL id=1
         ! release 1
         $ released id=1
         < PUBCOMP id=1
         > PUBLISH topic=a qos=2 id=2
         ! publish id=2 topic=a qos=2
         $ done id=2
         < PUBREC id=2
         > PUBREL id=2
         ! release 2
         > PUBLISH topic=a qos=2 id=3
         ! violation ReceiveMaximumExceeded
         < DISCONNECT reason=0x93 words
         < close",
    );
}

/// Nothing has to be kept: what came directly is handed back, the rest is the store's.
#[test]
fn the_end_of_the_connection() {
    check(
        "> CONNECT expiry=9 rm=1 will=w durable
         < CONNACK
         $ stored topic=a qos=1 seq=1
         < PUBLISH id=1 qos=1 topic=a
         $ stored topic=b qos=1 seq=2
         > PUBACK id=1
         < PUBLISH id=2 qos=1 topic=b
         ! acknowledged 1
         $ stored topic=c qos=2 seq=3
         $ close
         ! will topic=w
         > CONNECT expiry=9 will=w delay=5 durable present
         < CONNACK session_present
         $ close
         ! will waits
         > CONNECT expiry=9 will=w delay=5 durable present
         < CONNACK session_present
         > DISCONNECT
         ! disconnect
         < close",
    );
}

/// [MQTT-4.1.0-1] a DISCONNECT that ends the session with its connection.
#[test]
fn disconnect_ends_a_durable_session() {
    check(
        "> CONNECT expiry=9 will=w delay=5 durable
         < CONNACK
         $ stored topic=a qos=1 seq=1 group=1
         < PUBLISH id=1 qos=1 topic=a
         > DISCONNECT expiry=0 reason=0x04
         ! disconnect
         < close
         ! will topic=w
         ! ended",
    );
}

/// [MQTT-4.8.2-4] another member may get what was never sent.
#[test]
fn a_group_is_taken_from_what_was_handed_over() {
    check(
        "> CONNECT expiry=9 rm=1 durable present
         < CONNACK session_present
         $ stored topic=a qos=1 seq=1 sent group=1
         < PUBLISH id=1 qos=1 dup topic=a
         $ stored topic=b qos=1 seq=2 sent group=1
         $ stored topic=c qos=1 seq=3 group=1
         $ stored topic=d qos=1 seq=4 group=2
         $ take group=1
         ! took c
         ! acknowledged 3
         > PUBACK id=1
         < PUBLISH id=2 qos=1 dup topic=b
         ! acknowledged 1
         > PUBACK id=2
         < PUBLISH id=4 qos=1 topic=d
         ! acknowledged 2
         > PUBACK id=4
         ! acknowledged 4
         ? facts
         = waiting=0 in_flight=0 room=1 empty sent=4",
    );
}

/// [MQTT-4.6.0-6] what comes directly has its place among what was handed over before and after it.
#[test]
fn direct_and_stored_messages_leave_as_they_came() {
    let (policy, now) = (Policy::default(), Timestamp(0));
    let mut session = Session::open_durable(
        &Connect {
            version: ProtocolVersion::V3_1_1,
            is_bridge: false,
            clean_start: false,
            keep_alive: 0,
            client_id: "c",
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties::default(),
        },
        "c".into(),
        Accepted::default(),
        false,
        Restored::default(),
        &policy,
        now,
    );
    let delivery = |topic, qos| Delivery {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, b""),
            qos,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }),
        qos,
        retain: false,
        subscription_ids: SubscriptionIdSet::None,
        group: None,
    };
    session.deliver_stored(delivery("a", QoS::AtLeastOnce), 1, StoredState::New);
    session.deliver_stored(delivery("b", QoS::AtMostOnce), 2, StoredState::New);
    let delivered = session.deliver(delivery("c", QoS::AtMostOnce), &policy, now);
    assert!(matches!(delivered, Delivered::Queued));
    session.deliver_stored(delivery("d", QoS::ExactlyOnce), 3, StoredState::New);
    let delivered = session.deliver(delivery("e", QoS::AtMostOnce), &policy, now);
    assert!(matches!(delivered, Delivered::Queued));
    assert_eq!(session.queue_len(), 5);

    let (mut out, mut outcome) = (Vec::new(), Outcome::default());
    let transmit = session.poll_transmit(&mut out, 1_000, &mut outcome, &policy, now);
    assert_eq!(transmit, Transmit::Idle);
    let mut topics = String::new();
    let mut rest = out.as_slice();
    while let Some(frame) = peek_frame(rest, Some(session.version())).expect("good frames") {
        let (first, others) = rest.split_at(frame.len());
        if let Ok(Packet::Publish(publish)) = Packet::decode(first, session.version()) {
            topics.push_str(publish.topic);
        }
        rest = others;
    }
    assert_eq!(topics, "abcde");
}

/// Subscriptions come in any order and are found.
#[test]
fn subscriptions_are_restored() {
    check(
        "> CONNECT expiry=9 durable present filters=b,a,c
         < CONNACK session_present
         > UNSUBSCRIBE id=1 filter=a
         < UNSUBACK id=1 reasons=0x00
         > UNSUBSCRIBE id=2 filter=c
         < UNSUBACK id=2 reasons=0x00
         > UNSUBSCRIBE id=3 filter=a
         < UNSUBACK id=3 reasons=0x11",
    );
}

//! Messages to the client.

use super::driver::check;

/// [MQTT-4.3.1-1] [MQTT-4.3.2-1] [MQTT-4.3.2-2] [MQTT-4.3.3-1] [MQTT-4.3.3-2] [MQTT-4.3.3-3]
/// [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-2.2.1-4] [MQTT3-4.3.2-1] [MQTT3-4.3.3-1]
#[test]
fn what_waits_and_is_forbidden_is_not_sent() {
    check(
        "> CONNECT rm=1
         < CONNACK
         $ deliver topic=no qos=1
         < PUBLISH id=1 qos=1 topic=no
         $ deliver topic=no qos=1
         $ deliver topic=b qos=1
         $ forbid topic=no
         ! forbidden no
         > PUBACK id=1
         < PUBLISH id=2 qos=1 topic=b
         > PUBACK id=2
         ? facts
         = waiting=0 in_flight=0 room=1 empty",
    );
}

#[test]
fn each_qos_is_delivered_as_it_should() {
    for version in ["3.1", "3.1.1", "5"] {
        check(&format!(
            "> CONNECT v={version} clean
             < CONNACK
             $ deliver topic=a
             < PUBLISH topic=a
             $ deliver topic=a qos=1 retain
             < PUBLISH id=1 qos=1 retain topic=a
             > PUBACK id=1
             $ deliver topic=a qos=2
             < PUBLISH id=2 qos=2 topic=a
             > PUBREC id=2
             < PUBREL id=2
             ? facts
             = waiting=0 in_flight=1 room=127 empty
             > PUBCOMP id=2
             ? facts
             = waiting=0 in_flight=0 room=128 empty"
        ));
    }
}

/// [MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2] [MQTT-4.6.0-5] QoS 2 counts until PUBCOMP.
#[test]
fn receive_maximum_of_the_client() {
    check(
        "> CONNECT rm=2
         < CONNACK
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=2
         < PUBLISH id=2 qos=2 topic=b
         $ deliver topic=c qos=1
         ? facts
         = waiting=1 in_flight=2 room=0
         > PUBREC id=2
         < PUBREL id=2
         > PUBACK id=1
         < PUBLISH id=3 qos=1 topic=c
         $ deliver topic=d qos=1
         > PUBCOMP id=2
         < PUBLISH id=4 qos=1 topic=d
         > PUBACK id=4
         > PUBACK id=3
         ? facts
         = waiting=0 in_flight=0 room=2 empty",
    );
}

/// [MQTT-4.9.0-3] [MQTT-3.3.4-10] whatever is not PUBLISH with QoS 1 or 2 goes on.
#[test]
fn a_full_window_holds_back_only_what_it_must() {
    check(
        "> CONNECT rm=1
         < CONNACK
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=1
         $ deliver topic=c
         < PUBLISH topic=c
         > PINGREQ
         < PINGRESP
         > SUBSCRIBE id=1 filter=x qos=1
         < SUBACK id=1 reasons=0x01
         > PUBACK id=1
         < PUBLISH id=2 qos=1 topic=b",
    );
}

/// The server's own limit, and a reload of it.
#[test]
fn inflight_maximum_of_the_policy() {
    check(
        "% inflight=1
         > CONNECT
         < CONNACK
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=1
         % inflight=2
         > PINGREQ
         < PINGRESP
         < PUBLISH id=2 qos=1 topic=b",
    );
}

/// While nothing holds a message back, QoS 0 does not pass.
#[test]
fn messages_wait_in_order() {
    check(
        "> CONNECT expiry=9
         < CONNACK
         $ close
         $ deliver topic=a qos=1
         $ deliver topic=b
         $ deliver topic=c qos=2
         $ deliver topic=d
         ? facts
         = waiting=4 in_flight=0 room=126
         > CONNECT expiry=9
         < CONNACK session_present
         < PUBLISH id=1 qos=1 topic=a
         < PUBLISH topic=b
         < PUBLISH id=2 qos=2 topic=c
         < PUBLISH topic=d",
    );
}

/// [MQTT-4.4.0-2] [MQTT-4.8.2-6]
#[test]
fn an_error_ends_the_delivery() {
    check(
        "> CONNECT expiry=9
         < CONNACK
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=2
         < PUBLISH id=2 qos=2 topic=b
         > PUBREC id=2 reason=0x97
         > PUBACK id=1 reason=0x83
         ? facts
         = waiting=0 in_flight=0 room=128 empty",
    );
}

/// Acknowledgements nobody waits for.
#[test]
fn unknown_identifiers() {
    check(
        "> CONNECT
         < CONNACK
         > PUBACK id=1
         > PUBREC id=7
         < PUBREL id=7 reason=0x92
         > PUBREC id=7 reason=0x80
         > PUBCOMP id=7 reason=0x92
         $ deliver topic=a qos=2
         < PUBLISH id=1 qos=2 topic=a
         > PUBREC id=2
         < PUBREL id=2 reason=0x92
         > PUBREC id=1
         < PUBREL id=1
         > PUBREC id=1
         < PUBREL id=1
         > PUBCOMP id=1
         > PUBCOMP id=1",
    );
    check(
        "> CONNECT v=3.1.1 clean
         < CONNACK
         > PUBREC id=7
         < PUBREL id=7",
    );
}

#[test]
fn acknowledgements_of_another_qos() {
    let cases = [
        (1, "PUBREC", "PubRec"),
        (1, "PUBCOMP", "PubComp"),
        (2, "PUBACK", "PubAck"),
        (2, "PUBCOMP", "PubComp"),
    ];
    for (qos, packet, name) in cases {
        check(&format!(
            "> CONNECT
             < CONNACK
             $ deliver topic=a qos={qos}
             < PUBLISH id=1 qos={qos} topic=a
             > {packet} id=1
             ! violation UnexpectedAcknowledgement({name})
             < DISCONNECT reason=0x82 words
             < close
             ! ended
             ! dropped a session_ended"
        ));
    }
}

/// [MQTT-3.3.2-5] [MQTT-3.3.2-6] what is left of the interval, rounded up.
#[test]
fn message_expiry() {
    check(
        "> CONNECT rm=1 expiry=90
         < CONNACK
         $ deliver topic=a expiry=10
         < PUBLISH topic=a expiry=10
         $ deliver topic=b qos=1
         < PUBLISH id=1 qos=1 topic=b
         $ deliver topic=c qos=1 expiry=10
         $ deliver topic=d qos=1 expiry=5
         + 5500
         > PUBACK id=1
         < PUBLISH id=2 qos=1 topic=c expiry=5
         > PUBACK id=2
         ! dropped d expired
         ? facts
         = waiting=0 in_flight=0 room=1 empty",
    );
}

/// [MQTT-3.3.4-3] [MQTT-3.3.4-4]
#[test]
fn subscription_identifiers_go_along() {
    check(
        "> CONNECT
         < CONNACK
         $ deliver topic=a ids=1,268435455
         < PUBLISH topic=a ids=1,268435455
         $ deliver topic=a ids=7
         < PUBLISH topic=a ids=7",
    );
}

/// Before 5.0 there is no place for properties.
#[test]
fn before_v5_no_properties() {
    check(
        "> CONNECT v=3.1.1 clean
         < CONNACK
         $ deliver topic=a qos=1 ids=1,2 expiry=10
         < PUBLISH id=1 qos=1 topic=a",
    );
}

/// [MQTT-3.1.2-24] [MQTT-3.1.2-25]
#[test]
fn maximum_packet_size_of_the_client() {
    check(
        "> CONNECT mps=50
         < CONNACK
         $ deliver topic=fits size=41
         < PUBLISH topic=fits
         $ deliver topic=fits size=39 qos=1
         < PUBLISH id=1 qos=1 topic=fits
         > PUBACK id=1
         $ deliver topic=over size=42
         ! dropped over packet_too_large
         $ deliver topic=over size=40 qos=2
         ! dropped over packet_too_large
         $ deliver topic=next qos=1
         < PUBLISH id=2 qos=1 topic=next
         > PUBACK id=2
         ? facts
         = waiting=0 in_flight=0 room=128 empty",
    );
}

/// [MQTT-3.1.2-26] [MQTT-3.1.2-27] [MQTT-3.3.2-8] [MQTT-3.3.2-11] the least recently used alias goes
/// to the next topic.
#[test]
fn outbound_topic_aliases() {
    check(
        "% tam_out=2
         > CONNECT tam=10
         < CONNACK
         $ deliver topic=long/a
         < PUBLISH topic=long/a alias=1
         $ deliver topic=long/b
         < PUBLISH topic=long/b alias=2
         $ deliver topic=long/a
         < PUBLISH alias=1
         $ deliver topic=long/c
         < PUBLISH topic=long/c alias=2
         $ deliver topic=long/b
         < PUBLISH topic=long/b alias=1
         $ deliver topic=abc
         < PUBLISH topic=abc
         $ close
         ! ended
         > CONNECT tam=1
         < CONNACK
         $ deliver topic=long/a
         < PUBLISH topic=long/a alias=1
         $ deliver topic=long/b
         < PUBLISH topic=long/b alias=1
         $ close
         ! ended
         > CONNECT
         < CONNACK
         $ deliver topic=long/a
         < PUBLISH topic=long/a",
    );
}

/// [MQTT-3.3.2-7] a message of QoS 2 goes with its topic name: mqtt.js hands it out without one else.
#[test]
fn no_alias_goes_with_qos_2() {
    check(
        "> CONNECT tam=10
         < CONNACK
         $ deliver topic=long/a qos=2
         < PUBLISH id=1 qos=2 topic=long/a
         $ deliver topic=long/a qos=1
         < PUBLISH id=2 qos=1 topic=long/a alias=1
         $ deliver topic=long/a qos=2
         < PUBLISH id=3 qos=2 topic=long/a
         $ deliver topic=long/a
         < PUBLISH alias=1",
    );
}

/// [MQTT-3.3.2-7]
#[test]
fn outbound_topic_aliases_end_with_the_connection() {
    check(
        "> CONNECT tam=10 expiry=9
         < CONNACK
         $ deliver topic=long/a qos=1
         < PUBLISH id=1 qos=1 topic=long/a alias=1
         $ close
         > CONNECT tam=10 expiry=9
         < CONNACK session_present
         < PUBLISH id=1 qos=1 dup topic=long/a alias=1",
    );
}

/// [MQTT-3.1.2-24] a new alias is not worth a lost message.
#[test]
fn an_alias_that_does_not_fit_is_left_out() {
    check(
        "> CONNECT tam=10 mps=50
         < CONNACK
         $ deliver topic=long size=41
         < PUBLISH topic=long
         $ deliver topic=long size=38
         < PUBLISH topic=long alias=1
         $ deliver topic=long size=42
         < PUBLISH alias=1
         $ deliver topic=long size=43
         ! dropped long packet_too_large",
    );
}

#[test]
fn a_full_queue_drops_the_newest() {
    check(
        "% queue=2
         > CONNECT expiry=99
         < CONNACK
         $ close
         $ deliver topic=a qos=1
         $ deliver topic=b qos=1 expiry=1
         $ deliver topic=c qos=1
         ! refused queue_full_messages
         $ deliver topic=d
         ! refused queue_full_messages
         > CONNECT expiry=99
         < CONNACK session_present
         < PUBLISH id=1 qos=1 topic=a
         < PUBLISH id=2 qos=1 topic=b expiry=1",
    );
}

#[test]
fn a_full_queue_drops_the_oldest() {
    check(
        "% queue=2 drop_oldest
         > CONNECT expiry=99
         < CONNACK
         $ close
         $ deliver topic=a
         $ deliver topic=b qos=1
         $ deliver topic=c qos=1
         ! dropped a queue_full_messages
         $ deliver topic=d qos=2
         ! dropped b queue_full_messages
         $ deliver topic=e
         ! refused queue_full_messages
         > CONNECT expiry=99
         < CONNACK session_present
         < PUBLISH id=1 qos=1 topic=c
         < PUBLISH id=2 qos=2 topic=d",
    );
}

/// [MQTT-3.3.2-5] a message that has expired makes room under either policy.
#[test]
fn expired_messages_make_room() {
    check(
        "% queue=1
         > CONNECT expiry=99
         < CONNACK
         $ close
         $ deliver topic=a qos=1 expiry=1
         + 1000
         $ deliver topic=b
         ! dropped a expired
         > CONNECT expiry=99
         < CONNACK session_present
         < PUBLISH topic=b",
    );
}

#[test]
fn bytes_are_limited() {
    // Each delivery counts for its size and some 100 bytes.
    check(
        "% queue_bytes=3000
         > CONNECT expiry=99
         < CONNACK
         $ close
         $ deliver topic=a qos=1 size=1000
         $ deliver topic=b qos=1 size=1000
         $ deliver topic=c qos=1 size=1000
         ! refused queue_full_bytes
         % drop_oldest
         $ deliver topic=d qos=1 size=2000
         ! dropped a queue_full_bytes
         ! dropped b queue_full_bytes
         $ deliver topic=e qos=1 size=4000
         ! refused queue_full_bytes
         > CONNECT expiry=99
         < CONNACK session_present
         < PUBLISH id=1 qos=1 topic=d
         $ deliver topic=f qos=1 size=2000
         ! refused queue_full_bytes
         > PUBACK id=1
         ? facts
         = waiting=0 in_flight=0 room=128 empty",
    );
}

#[test]
fn qos0_for_the_absent() {
    check(
        "> CONNECT expiry=99
         < CONNACK
         $ close
         $ deliver topic=a
         % qos0=never
         $ deliver topic=b
         ! refused offline_qos0
         > CONNECT expiry=99
         < CONNACK session_present
         < PUBLISH topic=a
         $ deliver topic=c
         < PUBLISH topic=c",
    );
}

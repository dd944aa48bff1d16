//! Messages from the client.

use super::driver::check;

/// [MQTT-3.3.4-1] [MQTT-4.3.1-1] [MQTT-4.3.2-4] [MQTT-4.3.3-8] [MQTT-4.3.3-11] [MQTT3-4.3.2-2]
/// [MQTT3-4.3.3-2]
#[test]
fn each_qos_is_answered_as_it_should() {
    for version in ["3.1", "3.1.1", "5"] {
        check(&format!(
            "> CONNECT v={version} clean
             < CONNACK
             > PUBLISH topic=a
             ! publish topic=a
             > PUBLISH topic=a qos=1 id=7
             ! publish id=7 topic=a qos=1
             $ done id=7
             < PUBACK id=7
             > PUBLISH topic=a qos=2 id=8 retain
             ! publish id=8 topic=a qos=2 retain
             $ done id=8
             < PUBREC id=8
             > PUBREL id=8
             < PUBCOMP id=8"
        ));
    }
}

/// [MQTT-4.3.3-10] [MQTT-4.3.3-12] [MQTT3-4.3.3-2]
#[test]
fn a_qos_2_message_is_published_once() {
    check(
        "> CONNECT
         < CONNACK
         > PUBLISH topic=a qos=2 id=5
         ! publish id=5 topic=a qos=2
         > PUBLISH topic=a qos=2 id=5 dup
         $ done id=5
         < PUBREC id=5
         > PUBLISH topic=a qos=2 id=5 dup
         < PUBREC id=5
         > PUBREL id=5
         < PUBCOMP id=5
         > PUBLISH topic=b qos=2 id=5
         ! publish id=5 topic=b qos=2",
    );
}

/// [MQTT-4.3.3-10] [MQTT-4.4.0-1] across network connections, answered or not.
#[test]
fn a_qos_2_message_is_published_once_across_connections() {
    check(
        "> CONNECT expiry=100
         < CONNACK
         > PUBLISH topic=a qos=2 id=5
         ! publish id=5 topic=a qos=2
         $ done id=5
         < PUBREC id=5
         > PUBLISH topic=a qos=2 id=6
         ! publish id=6 topic=a qos=2
         $ close
         > CONNECT expiry=100
         < CONNACK session_present
         > PUBLISH topic=a qos=2 id=5 dup
         < PUBREC id=5
         > PUBLISH topic=a qos=2 id=6 dup
         $ done id=6
         < PUBREC id=6
         > PUBREL id=5
         < PUBCOMP id=5
         > PUBREL id=6
         < PUBCOMP id=6",
    );
}

/// A completion that comes while the client is away: no answer, no second publication.
#[test]
fn completion_while_offline() {
    check(
        "> CONNECT expiry=100
         < CONNACK
         > PUBLISH topic=a qos=2 id=6
         ! publish id=6 topic=a qos=2
         > PUBLISH topic=a qos=1 id=7
         ! publish id=7 topic=a qos=1
         $ close
         $ done id=6
         $ done id=7
         > CONNECT expiry=100
         < CONNACK session_present
         > PUBLISH topic=a qos=2 id=6 dup
         < PUBREC id=6",
    );
}

/// [MQTT-4.3.3-9] also when the refusal could not be sent.
#[test]
fn after_a_refusal_the_identifier_is_free() {
    check(
        "> CONNECT expiry=100
         < CONNACK
         > PUBLISH topic=a qos=2 id=5
         ! publish id=5 topic=a qos=2
         $ done id=5 reason=0x87
         < PUBREC id=5 reason=0x87
         > PUBLISH topic=b qos=2 id=5
         ! publish id=5 topic=b qos=2
         $ close
         $ done id=5 reason=0x87
         > CONNECT expiry=100
         < CONNACK session_present
         > PUBLISH topic=b qos=2 id=5 dup
         ! publish id=5 topic=b qos=2",
    );
}

/// [MQTT-4.3.3-9] a refusal behind an unfinished answer is lost with the connection.
#[test]
fn a_waiting_refusal_is_lost_with_the_connection() {
    check(
        "> CONNECT expiry=100
         < CONNACK
         > PUBLISH topic=a qos=1 id=1
         ! publish id=1 topic=a qos=1
         > PUBLISH topic=b qos=2 id=2
         ! publish id=2 topic=b qos=2
         $ done id=2 reason=0x87
         $ close
         > CONNECT expiry=100
         < CONNACK session_present
         > PUBLISH topic=b qos=2 id=2 dup
         ! publish id=2 topic=b qos=2",
    );
}

/// [MQTT3-3.3.5-2] before 5.0 an answer cannot say no.
#[test]
fn before_v5_every_answer_is_positive() {
    check(
        "> CONNECT v=3.1.1
         < CONNACK
         > PUBLISH topic=a qos=2 id=5
         ! publish id=5 topic=a qos=2
         $ done id=5 reason=0x87
         < PUBREC id=5
         > PUBLISH topic=a qos=2 id=5 dup
         < PUBREC id=5
         > PUBREL id=5
         < PUBCOMP id=5
         > PUBREL id=5
         < PUBCOMP id=5",
    );
}

/// [MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT3-4.6.0-2] [MQTT3-4.6.0-3]
#[test]
fn answers_keep_the_order_of_publishes() {
    check(
        "> CONNECT
         < CONNACK
         > PUBLISH topic=a qos=1 id=3
         ! publish id=3 topic=a qos=1
         > PUBLISH topic=a qos=2 id=2
         ! publish id=2 topic=a qos=2
         > PUBLISH topic=a qos=1 id=1
         ! publish id=1 topic=a qos=1
         $ done id=1
         $ done id=2 reason=0x10
         $ done id=3
         < PUBACK id=3
         < PUBREC id=2 reason=0x10
         < PUBACK id=1",
    );
}

/// A PUBREL of an unknown message. [MQTT-4.3.3-11]
#[test]
fn pubrel_of_an_unknown_identifier() {
    check(
        "> CONNECT
         < CONNACK
         > PUBREL id=9
         < PUBCOMP id=9 reason=0x92",
    );
}

#[test]
fn pubrel_before_pubrec() {
    check(
        "> CONNECT
         < CONNACK
         > PUBLISH topic=a qos=2 id=5
         ! publish id=5 topic=a qos=2
         > PUBREL id=5
         ! violation PubRelBeforePubRec
         < DISCONNECT reason=0x82 words
         < close
         ! ended",
    );
}

/// [MQTT-2.2.1-3] [MQTT3-2.3.1-2]
#[test]
fn identifiers_in_use_are_refused() {
    check(
        "> CONNECT
         < CONNACK
         > PUBLISH topic=a qos=1 id=5
         ! publish id=5 topic=a qos=1
         > PUBLISH topic=a qos=1 id=5 dup
         > PUBLISH topic=b qos=1 id=5
         > PUBLISH topic=b qos=2 id=5
         > SUBSCRIBE id=5 filter=x
         < SUBACK id=5 reasons=0x91
         > UNSUBSCRIBE id=5 filter=x
         < UNSUBACK id=5 reasons=0x91
         $ done id=5
         < PUBACK id=5
         < PUBACK id=5 reason=0x91
         < PUBREC id=5 reason=0x91
         > PUBLISH topic=b qos=2 id=5
         ! publish id=5 topic=b qos=2
         $ done id=5
         < PUBREC id=5
         > PUBLISH topic=c qos=1 id=5
         < PUBACK id=5 reason=0x91
         > PUBREL id=5
         < PUBCOMP id=5",
    );
    check(
        "> CONNECT v=3.1.1 clean
         < CONNACK
         > PUBLISH topic=a qos=1 id=5
         ! publish id=5 topic=a qos=1
         > PUBLISH topic=b qos=1 id=5
         ! violation PacketIdentifierInUse
         < close
         ! ended",
    );
}

/// [MQTT-3.3.4-7] a QoS 2 message counts until PUBCOMP.
#[test]
fn receive_maximum_of_the_server() {
    check(
        "% rm=2
         > CONNECT
         < CONNACK rm=2
         > PUBLISH topic=a qos=1 id=1
         ! publish id=1 topic=a qos=1
         > PUBLISH topic=a qos=2 id=2
         ! publish id=2 topic=a qos=2
         > PUBLISH topic=a
         ! publish topic=a
         $ done id=1
         < PUBACK id=1
         $ done id=2
         < PUBREC id=2
         > PUBLISH topic=a qos=1 id=3
         ! publish id=3 topic=a qos=1
         > PUBLISH topic=a qos=1 id=4
         ! violation ReceiveMaximumExceeded
         < DISCONNECT reason=0x93 words
         < close
         ! ended",
    );
}

/// What stays unreleased from an earlier connection does not count on the next one: the client's
/// quota begins anew with each.
#[test]
fn receive_maximum_begins_anew() {
    check(
        "% rm=1
         > CONNECT expiry=9
         < CONNACK rm=1
         > PUBLISH topic=a qos=2 id=1
         ! publish id=1 topic=a qos=2
         $ done id=1
         < PUBREC id=1
         $ close
         > CONNECT expiry=9
         < CONNACK session_present rm=1
         > PUBLISH topic=a qos=1 id=2
         ! publish id=2 topic=a qos=1
         > PUBREL id=1
         < PUBCOMP id=1",
    );
}

/// A reload changes what the next connection is told, not what this one was.
#[test]
fn receive_maximum_stays_as_announced() {
    check(
        "% rm=2
         > CONNECT
         < CONNACK rm=2
         % rm=1
         > PUBLISH topic=a qos=1 id=1
         ! publish id=1 topic=a qos=1
         > PUBLISH topic=a qos=1 id=2
         ! publish id=2 topic=a qos=1",
    );
}

/// [MQTT-3.2.2-11] [MQTT-3.2.2-14] [MQTT-3.3.4-6]
#[test]
fn what_the_server_does_not_support() {
    check(
        "% maximum_qos=1 retain=0
         > CONNECT
         < CONNACK maximum_qos=1 retain=false
         > PUBLISH topic=a qos=2 id=1
         ! violation QosNotSupported
         < DISCONNECT reason=0x9B words
         < close
         ! ended
         > CONNECT
         < CONNACK maximum_qos=1 retain=false
         > PUBLISH topic=a retain
         ! violation RetainNotSupported
         < DISCONNECT reason=0x9A words
         < close
         ! ended
         > CONNECT
         < CONNACK maximum_qos=1 retain=false
         > PUBLISH topic=a subid=1
         ! violation SubscriptionIdFromClient
         < DISCONNECT reason=0x82 words
         < close
         ! ended",
    );
}

/// Limits of topics and payloads are the server's own, so they cost the message and not the
/// connection.
#[test]
fn limits_refuse_the_message_only() {
    check(
        "% levels=2 check_payload=1
         > CONNECT
         < CONNACK
         > PUBLISH topic=a/b qos=1 id=1
         ! publish id=1 topic=a/b qos=1
         $ done id=1
         < PUBACK id=1
         > PUBLISH topic=a/b/c qos=1 id=1
         ! dropped a/b/c topic_limit
         < PUBACK id=1 reason=0x90 words
         > PUBLISH topic=a/b/c qos=2 id=1
         ! dropped a/b/c topic_limit
         < PUBREC id=1 reason=0x90 words
         > PUBLISH topic=a qos=2 id=1 utf8 bad
         ! dropped a payload_format_invalid
         < PUBREC id=1 reason=0x99 words
         > PUBLISH topic=a/b/c
         ! dropped a/b/c topic_limit
         > PUBLISH topic=a utf8 bad
         ! dropped a payload_format_invalid
         > PUBLISH topic=a bad
         ! publish topic=a",
    );
    check(
        "% levels=2
         > CONNECT v=3.1.1 clean
         < CONNACK
         > PUBLISH topic=a/b/c qos=1 id=1
         ! dropped a/b/c topic_limit
         < PUBACK id=1",
    );
}

/// A topic name that is not admitted is not kept for its alias either, which stays known.
#[test]
fn an_alias_of_a_topic_that_is_refused() {
    check(
        "% levels=2 tam=2
         > CONNECT
         < CONNACK tam=2
         > PUBLISH topic=a/b/c alias=1 qos=1 id=1
         ! dropped a/b/c topic_limit
         < PUBACK id=1 reason=0x90 words
         > PUBLISH alias=1 qos=1 id=1
         ! dropped  topic_limit
         < PUBACK id=1 reason=0x90 words
         > PUBLISH topic=a/b alias=1 qos=1 id=1
         ! publish id=1 topic=a/b qos=1
         $ done id=1
         < PUBACK id=1",
    );
}

/// [MQTT-3.1.2-29] [MQTT-3.4.2-2] [MQTT-3.5.2-2] no words for those who want none or have no room.
#[test]
fn words_only_where_they_are_wanted_and_fit() {
    check(
        "% levels=1
         > CONNECT no_problem
         < CONNACK
         > PUBLISH topic=a/b qos=1 id=1
         ! dropped a/b topic_limit
         < PUBACK id=1 reason=0x90
         > CONNECT
         ! violation SecondConnect
         < DISCONNECT reason=0x82 words
         < close
         ! ended
         > CONNECT mps=20
         < CONNACK
         > PUBLISH topic=a/b qos=2 id=1
         ! dropped a/b topic_limit
         < PUBREC id=1 reason=0x90
         > CONNECT
         ! violation SecondConnect
         < DISCONNECT reason=0x82
         < close
         ! ended",
    );
}

/// [MQTT-3.3.2-7] [MQTT-3.3.2-12] [MQTT-3.2.2-17] [MQTT-3.3.2-9]
#[test]
fn inbound_topic_aliases() {
    check(
        "% tam=2
         > CONNECT expiry=9
         < CONNACK tam=2
         > PUBLISH topic=long/topic alias=2
         ! publish topic=long/topic
         > PUBLISH alias=2
         ! publish topic=long/topic
         > PUBLISH topic=other alias=2
         ! publish topic=other
         > PUBLISH alias=2 qos=1 id=1
         ! publish id=1 topic=other qos=1
         > PUBLISH alias=1
         ! violation TopicAliasUnknown
         < DISCONNECT reason=0x82 words
         < close
         > CONNECT expiry=9
         < CONNACK session_present tam=2
         > PUBLISH alias=2
         ! violation TopicAliasUnknown
         < DISCONNECT reason=0x82 words
         < close
         > CONNECT expiry=9
         < CONNACK session_present tam=2
         > PUBLISH topic=a alias=3
         ! violation TopicAliasTooHigh
         < DISCONNECT reason=0x94 words
         < close",
    );
}

/// [MQTT-3.2.2-18]
#[test]
fn no_alias_where_none_was_announced() {
    check(
        "> CONNECT
         < CONNACK
         > PUBLISH topic=a alias=1
         ! violation TopicAliasTooHigh
         < DISCONNECT reason=0x94 words
         < close
         ! ended",
    );
}

/// [MQTT-3.3.2-6] the life of a message begins when it is received.
#[test]
fn message_expiry_interval_is_kept() {
    check(
        "> CONNECT
         < CONNACK
         > PUBLISH topic=a expiry=10
         ! publish topic=a expires_in=10000ms",
    );
}

use super::driver::{check, check_manual};

/// [MQTT-4.3.2-4] [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12]
#[test]
fn a_message_of_each_qos() {
    for version in ["3.1", "3.1.1", "5"] {
        check(&format!(
            "
            $ connect v={version} clean
            > CONNECT clean
            < CONNACK
            ! connected
            < PUBLISH topic=a payload=zero
            ! message topic=a payload=zero
            < PUBLISH id=4 qos=1 retain topic=b payload=one
            ! message id=4 qos=1 retain topic=b payload=one
            > PUBACK id=4
            < PUBLISH id=4 qos=2 topic=c payload=two
            ! message id=4 qos=2 topic=c payload=two
            > PUBREC id=4
            < PUBLISH id=4 qos=2 dup topic=c payload=two
            ! duplicate id=4 qos=2 dup topic=c payload=two
            > PUBREC id=4
            ? facts
            = in_flight=0 connected room unreleased buffer
            < PUBREL id=4
            ! released id=4
            > PUBCOMP id=4
            < PUBLISH id=4 qos=2 topic=d
            ! message id=4 qos=2 topic=d
            > PUBREC id=4
            "
        ));
    }
}

#[test]
fn a_release_of_nothing_is_answered() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK
        ! connected
        < PUBREL id=3
        ! released id=3
        > PUBCOMP id=3 reason=0x92
        ",
    );
}

#[test]
fn the_application_answers_when_it_likes() {
    check_manual(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        < PUBLISH id=1 qos=1 topic=a
        ! message id=1 qos=1 topic=a
        < PUBLISH id=2 qos=2 topic=b
        ! message id=2 qos=2 topic=b
        ? facts
        = in_flight=0 connected room
        $ answer id=1
        > PUBACK id=1
        $ answer id=2
        > PUBREC id=2
        ? facts
        = in_flight=0 connected room unreleased buffer
        < PUBREL id=2
        ! released id=2
        $ answer id=2
        > PUBCOMP id=2
        < PUBLISH id=3 qos=1 topic=c
        ! message id=3 qos=1 topic=c
        $ disconnect
        > DISCONNECT
        $ answer id=3
        ! PubAck is not sent
        ",
    );
}

/// What came behind DISCONNECT the application has, although PUBREC is not sent any more.
#[test]
fn a_message_behind_disconnect_is_given_once() {
    check(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        $ disconnect
        > DISCONNECT
        < PUBLISH id=1 qos=2 topic=a
        ! message id=1 qos=2 topic=a
        $ close
        $ connect
        > CONNECT
        < CONNACK present
        ! connected present
        < PUBLISH id=1 qos=2 dup topic=a
        ! duplicate id=1 qos=2 dup topic=a
        > PUBREC id=1
        ",
    );
}

/// What was not answered was not received: it is handled when it comes again.
#[test]
fn an_answer_belongs_to_its_connection() {
    check_manual(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        < PUBLISH id=1 qos=2 topic=a
        ! message id=1 qos=2 topic=a
        $ close
        $ connect
        > CONNECT
        < CONNACK present
        ! connected present
        $ answer id=1
        ! PubRec is not sent
        < PUBLISH id=1 qos=2 dup topic=a
        ! message id=1 qos=2 dup topic=a
        $ answer id=1
        > PUBREC id=1
        < PUBLISH id=1 qos=2 dup topic=a
        ! duplicate id=1 qos=2 dup topic=a
        ",
    );
}

/// A server may have begun another session meanwhile, in which an identifier is that of another message, and says that it is
/// present: CONNACK of the connection that began it can have been lost.
#[test]
fn a_session_that_was_ended_leaves_no_message_to_be_released() {
    check(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        < PUBLISH id=3 qos=2 topic=a
        ! message id=3 qos=2 topic=a
        > PUBREC id=3
        $ disconnect expiry=0
        > DISCONNECT expiry=0
        < PUBLISH id=4 qos=2 topic=b
        ! message id=4 qos=2 topic=b
        ? facts
        = in_flight=0 leaving unreleased
        $ close
        ? facts
        = in_flight=0
        $ connect
        > CONNECT
        < CONNACK present
        ! connected present
        < PUBLISH id=3 qos=2 topic=c
        ! message id=3 qos=2 topic=c
        > PUBREC id=3
        ",
    );
}

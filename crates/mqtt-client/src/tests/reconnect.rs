use super::driver::check;

/// [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT-3.3.1-1] [MQTT-4.3.3-6] [MQTT3-4.4.0-1]
#[test]
fn what_is_in_flight_goes_again_in_order() {
    for version in ["3.1.1", "5"] {
        check(&format!(
            "
            $ connect v={version}
            > CONNECT
            < CONNACK
            ! connected
            $ publish qos=1 topic=a m=1
            > PUBLISH id=1 qos=1 topic=a
            $ publish qos=2 topic=b m=2
            > PUBLISH id=2 qos=2 topic=b
            $ publish qos=2 topic=c m=3
            > PUBLISH id=3 qos=2 topic=c
            $ publish qos=1 topic=d m=4
            > PUBLISH id=4 qos=1 topic=d
            < PUBREC id=2
            ! received m=2
            > PUBREL id=2
            < PUBLISH id=7 qos=2 topic=i
            ! message id=7 qos=2 topic=i
            > PUBREC id=7
            $ close
            ? facts
            = in_flight=4 unreleased
            $ connect v={version}
            > CONNECT
            < CONNACK present
            ! connected present
            ? facts
            = in_flight=4 connected resend unreleased
            $ publish qos=1 topic=e m=5
            ! refused: too much is on its way
            $ resend
            > PUBLISH id=1 qos=1 dup topic=a
            > PUBREL id=2
            > PUBLISH id=3 qos=2 dup topic=c
            > PUBLISH id=4 qos=1 dup topic=d
            $ publish qos=1 topic=e m=5
            > PUBLISH id=5 qos=1 topic=e
            < PUBLISH id=7 qos=2 dup topic=i
            ! duplicate id=7 qos=2 dup topic=i
            > PUBREC id=7
            < PUBREL id=7
            ! released id=7
            > PUBCOMP id=7
            < PUBACK id=1
            ! acknowledged m=1 by=PubAck
            < PUBCOMP id=2
            ! acknowledged m=2 by=PubComp
            < PUBREC id=3
            ! received m=3
            > PUBREL id=3
            "
        ));
    }
}

/// [MQTT-4.3.3-5] PUBREL is owed even if there is nothing else to send.
#[test]
fn pubrel_goes_again_by_itself() {
    check(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        $ publish qos=2 m=1
        > PUBLISH id=1 qos=2 topic=t
        < PUBREC id=1
        ! received m=1
        > PUBREL id=1
        $ close
        $ connect
        > CONNECT
        < CONNACK present
        ! connected present
        > PUBREL id=1
        < PUBCOMP id=1
        ! acknowledged m=1 by=PubComp
        ",
    );
}

/// [MQTT-3.2.2-5] the session is gone at the client, too.
#[test]
fn without_its_session_a_message_is_a_new_one() {
    for flags in ["", " clean"] {
        check(&format!(
            "
            $ connect{flags}
            > CONNECT{flags}
            < CONNACK
            ! connected
            $ publish qos=2 topic=a m=1
            > PUBLISH id=1 qos=2 topic=a
            $ publish qos=1 topic=b m=2
            > PUBLISH id=2 qos=1 topic=b
            $ publish qos=2 topic=c m=3
            > PUBLISH id=3 qos=2 topic=c
            < PUBREC id=1
            ! received m=1
            > PUBREL id=1
            < PUBREC id=3
            ! received m=3
            > PUBREL id=3
            < PUBLISH id=7 qos=2 topic=i
            ! message id=7 qos=2 topic=i
            > PUBREC id=7
            $ close
            $ connect{flags}
            > CONNECT{flags}
            < CONNACK
            ! connected
            ! discarded m=1
            ! discarded m=3
            $ resend
            > PUBLISH id=2 qos=1 topic=b
            < PUBLISH id=7 qos=2 topic=j
            ! message id=7 qos=2 topic=j
            > PUBREC id=7
            < PUBACK id=2
            ! acknowledged m=2 by=PubAck
            ? facts
            = in_flight=0 connected room unreleased buffer
            "
        ));
    }
}

/// [MQTT-4.9.0-1] a server may allow less than before.
#[test]
fn receive_maximum_holds_for_what_goes_again() {
    check(
        "
        $ connect
        > CONNECT
        < CONNACK rm=4
        ! connected
        $ publish qos=1 m=1
        > PUBLISH id=1 qos=1 topic=t
        $ publish qos=2 m=2
        > PUBLISH id=2 qos=2 topic=t
        $ publish qos=1 m=3
        > PUBLISH id=3 qos=1 topic=t
        < PUBREC id=2
        ! received m=2
        > PUBREL id=2
        $ close
        $ connect
        > CONNECT
        < CONNACK present rm=1
        ! connected present
        $ resend
        > PUBLISH id=1 qos=1 dup topic=t
        > PUBREL id=2
        # not sent again yet
        < PUBACK id=3
        ! stray PubAck id=3
        < PUBACK id=1
        ! acknowledged m=1 by=PubAck
        $ resend
        < PUBCOMP id=2
        ! acknowledged m=2 by=PubComp
        $ publish qos=1 m=4
        ! refused: too much is on its way
        $ resend
        > PUBLISH id=3 qos=1 dup topic=t
        ",
    );
}

#[test]
fn what_the_server_takes_no_more_is_given_up() {
    check(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        $ publish qos=2 m=1
        > PUBLISH id=1 qos=2 topic=t
        $ publish qos=1 m=2
        > PUBLISH id=2 qos=1 topic=t
        $ close
        $ resend
        $ connect
        > CONNECT
        < CONNACK present maximum_qos=1
        ! connected present
        $ resend
        ! refused: the server takes QoS up to 1
        $ resend
        > PUBLISH id=2 qos=1 dup topic=t
        ? facts
        = in_flight=1 connected room buffer
        ",
    );
}

#[test]
fn requests_do_not_outlive_their_connection() {
    check(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        $ subscribe filter=f
        > SUBSCRIBE id=1 filters=f:0
        $ close
        $ connect
        > CONNECT
        < CONNACK present
        ! connected present
        < SUBACK id=1 reasons=0x00
        ! stray SubAck id=1
        ",
    );
}

use super::driver::check;

#[test]
fn a_message_of_each_qos() {
    for version in ["3.1", "3.1.1", "5"] {
        check(&format!(
            "
            $ connect v={version} clean
            > CONNECT clean
            < CONNACK
            ! connected
            $ publish qos=0 topic=a retain
            > PUBLISH retain topic=a
            $ publish qos=1 topic=b m=1
            > PUBLISH id=1 qos=1 topic=b
            $ publish qos=2 topic=c m=2
            > PUBLISH id=2 qos=2 topic=c
            ? facts
            = in_flight=2 connected room buffer
            < PUBACK id=1
            ! acknowledged m=1 by=PubAck
            < PUBREC id=2
            ! received m=2
            > PUBREL id=2
            < PUBCOMP id=2
            ! acknowledged m=2 by=PubComp
            ? facts
            = in_flight=0 connected room buffer
            "
        ));
    }
}

/// [MQTT-4.4.0-2] a refused message is not sent again.
#[test]
fn reason_codes_are_told() {
    check(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        $ publish qos=1 m=1
        > PUBLISH id=1 qos=1 topic=t
        $ publish qos=1 m=2
        > PUBLISH id=2 qos=1 topic=t
        $ publish qos=2 m=3
        > PUBLISH id=3 qos=2 topic=t
        $ publish qos=2 m=4
        > PUBLISH id=4 qos=2 topic=t
        < PUBACK id=1 reason=0x10
        ! acknowledged m=1 by=PubAck reason=0x10
        < PUBACK id=2 reason=0x87 why=rule
        ! acknowledged m=2 by=PubAck reason=0x87 why=rule
        < PUBREC id=3 reason=0x97 why=full
        ! acknowledged m=3 by=PubRec reason=0x97 why=full
        < PUBREC id=4 reason=0x10
        ! received m=4
        > PUBREL id=4
        < PUBCOMP id=4 reason=0x92
        ! acknowledged m=4 by=PubComp reason=0x92
        $ close
        $ connect
        > CONNECT
        < CONNACK present
        ! connected present
        $ resend
        ? facts
        = in_flight=0 connected room
        ",
    );
}

/// [MQTT-3.3.4-7] [MQTT-4.9.0-2] [MQTT-4.9.0-3] [MQTT-4.3.3-5]
#[test]
fn receive_maximum_of_the_server() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK rm=2
        ! connected
        $ publish qos=1 m=1
        > PUBLISH id=1 qos=1 topic=t
        $ publish qos=2 m=2
        > PUBLISH id=2 qos=2 topic=t
        $ publish qos=1 m=3
        ! refused: too much is on its way
        $ publish qos=0 m=4
        > PUBLISH topic=t
        $ subscribe filter=f
        > SUBSCRIBE id=3 filters=f:0
        < PUBREC id=2
        ! received m=2
        > PUBREL id=2
        $ publish qos=1 m=3
        ! refused: too much is on its way
        < PUBCOMP id=2
        ! acknowledged m=2 by=PubComp
        $ publish qos=1 m=3
        > PUBLISH id=4 qos=1 topic=t
        $ publish qos=1 m=5
        ! refused: too much is on its way
        < PUBACK id=1
        ! acknowledged m=1 by=PubAck
        ? facts
        = in_flight=1 connected room buffer
        ",
    );
}

#[test]
fn acknowledgements_in_any_order_find_their_message() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK
        ! connected
        $ publish qos=1 m=1
        > PUBLISH id=1 qos=1 topic=t
        $ publish qos=1 m=2
        > PUBLISH id=2 qos=1 topic=t
        $ publish qos=1 m=3
        > PUBLISH id=3 qos=1 topic=t
        < PUBACK id=2
        ! acknowledged m=2 by=PubAck
        < PUBACK id=3
        ! acknowledged m=3 by=PubAck
        < PUBACK id=1
        ! acknowledged m=1 by=PubAck
        ",
    );
}

#[test]
fn an_acknowledgement_of_nothing_is_told() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK
        ! connected
        $ publish qos=1 m=1
        > PUBLISH id=1 qos=1 topic=t
        $ publish qos=2 m=2
        > PUBLISH id=2 qos=2 topic=t
        # of another QoS, or too early
        < PUBACK id=2
        ! stray PubAck id=2
        < PUBCOMP id=2
        ! stray PubComp id=2
        < PUBREC id=1 reason=0x80
        ! stray PubRec id=1
        < PUBREC id=1
        ! stray PubRec id=1
        > PUBREL id=1 reason=0x92
        # of nothing
        < PUBACK id=7
        ! stray PubAck id=7
        < PUBREC id=2
        ! received m=2
        > PUBREL id=2
        # once more
        < PUBREC id=2
        > PUBREL id=2
        < PUBCOMP id=2
        ! acknowledged m=2 by=PubComp
        < PUBCOMP id=2
        ! stray PubComp id=2
        < PUBACK id=1
        ! acknowledged m=1 by=PubAck
        ",
    );
}

/// [MQTT-3.2.2-11] [MQTT-3.2.2-14] [MQTT-3.2.2-15]
#[test]
fn what_the_server_does_not_take_is_not_sent() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK maximum_qos=1 no_retain mps=30
        ! connected
        $ publish qos=2 m=1
        ! refused: the server takes QoS up to 1
        $ publish qos=1 retain m=1
        ! refused: the server does not retain messages
        $ publish qos=1 size=23 m=1
        ! refused: the packet has 31 bytes; the server takes up to 30
        $ publish qos=1 size=22 m=1
        > PUBLISH id=1 qos=1 topic=t
        $ subscribe filter=a-filter-that-is-long-enough
        ! refused: the packet has 36 bytes; the server takes up to 30
        $ publish qos=1 topic=+ m=2
        ! refused: the packet cannot be written
        ? facts
        = in_flight=1 connected room
        ",
    );
}

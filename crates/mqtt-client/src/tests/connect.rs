use super::driver::check;

#[test]
fn a_connection_from_connect_to_disconnect() {
    check(
        "
        $ connect clean ka=30 user=u password=p
        > CONNECT clean ka=30 user=u
        ? facts
        = in_flight=0
        < CONNACK
        ! connected
        ? facts
        = in_flight=0 connected room
        $ disconnect expiry=0
        > DISCONNECT expiry=0
        ? facts
        = in_flight=0 leaving
        ",
    );
}

#[test]
fn before_5_0_disconnect_says_nothing() {
    for version in ["3.1", "3.1.1"] {
        check(&format!(
            "
            $ connect v={version} clean
            > CONNECT clean
            < CONNACK
            ! connected
            $ disconnect expiry=0
            > DISCONNECT
            "
        ));
    }
}

/// [MQTT3-3.2.2-5] by the client's side: a refusal is the end of the connection.
#[test]
fn a_refusal_names_its_reason() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK reason=0x87 why=nobody
        ! refused reason=0x87 why=nobody
        < PUBLISH topic=too/late
        ? facts
        = in_flight=0
        $ publish qos=0 m=1
        ! refused: there is no connection
        ",
    );
    check(
        "
        $ connect v=3.1.1 clean
        > CONNECT clean
        < CONNACK reason=0x86
        ! refused reason=0x86
        ",
    );
}

#[test]
fn commands_wait_for_connack() {
    check(
        "
        $ publish qos=0 m=1
        ! refused: there is no connection
        $ connect clean
        > CONNECT clean
        $ publish qos=1 m=1
        ! refused: there is no connection
        $ subscribe filter=f
        ! refused: there is no connection
        $ unsubscribe filter=f
        ! refused: there is no connection
        $ ping
        ! refused: there is no connection
        $ disconnect
        ! refused: there is no connection
        ",
    );
}

/// [MQTT-3.14.4-1] by the client's side. What had been sent before is still told.
#[test]
fn nothing_follows_disconnect() {
    check(
        "
        $ connect rm=5
        > CONNECT
        < CONNACK
        ! connected
        $ publish qos=1 m=1
        > PUBLISH id=1 qos=1 topic=t
        $ publish qos=2 m=2
        > PUBLISH id=2 qos=2 topic=t
        $ disconnect reason=0x04
        > DISCONNECT reason=0x04
        < PUBLISH id=9 qos=1 topic=a
        ! message id=9 qos=1 topic=a
        < PUBREL id=8
        ! released id=8
        < PUBACK id=1
        ! acknowledged m=1 by=PubAck
        < PUBREC id=2
        ! received m=2
        < PUBREC id=7
        ! stray PubRec id=7
        $ publish qos=0 m=3
        ! refused: there is no connection
        $ ping
        ! refused: there is no connection
        ? facts
        = in_flight=1 leaving
        ",
    );
}

#[test]
fn the_server_ends_the_connection() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK
        ! connected
        < DISCONNECT reason=0x8E why=other
        ! disconnected reason=0x8E why=other
        < PUBLISH topic=too/late
        ? facts
        = in_flight=0
        ",
    );
}

#[test]
fn a_connect_that_cannot_be_written_connects_nothing() {
    check(
        "
        $ connect v=3.1.1 clean password=p
        ! refused: password without user name
        < CONNACK
        ? facts
        = in_flight=0
        ",
    );
}

use super::driver::check;

/// [MQTT-3.1.2-20] [MQTT3-3.1.2-23] [MQTT-3.12.4-1]
#[test]
fn a_silent_client_pings() {
    check(
        "
        $ connect ka=10
        > CONNECT ka=10
        + 60000
        < CONNACK
        ! connected
        + 9999
        > PINGREQ
        < PINGRESP
        ! ping answered
        + 5000
        $ publish qos=0
        > PUBLISH topic=t
        + 9999
        + 1
        > PINGREQ
        < PINGRESP
        ! ping answered
        + 9999
        + 1
        > PINGREQ
        ",
    );
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    check(
        "
        $ connect ka=10
        > CONNECT ka=10
        < CONNACK
        ! connected
        + 10000
        > PINGREQ
        # other packets are no answer
        < PUBLISH topic=t
        ! message topic=t
        $ publish qos=1 m=1
        > PUBLISH id=1 qos=1 topic=t
        + 9999
        + 1
        ! keep alive timeout
        ? facts
        = in_flight=1
        + 100000
        ",
    );
}

/// [MQTT-3.1.2-21] [MQTT-3.2.2-21]
#[test]
fn the_servers_keep_alive_is_in_force() {
    check(
        "
        $ connect ka=10
        > CONNECT ka=10
        < CONNACK ka=2
        ! connected
        + 1999
        + 1
        > PINGREQ
        ",
    );
    check(
        "
        $ connect
        > CONNECT
        < CONNACK
        ! connected
        + 100000000
        ",
    );
    check(
        "
        $ connect ka=10
        > CONNECT ka=10
        < CONNACK ka=0
        ! connected
        + 100000000
        ",
    );
}

#[test]
fn an_idle_client_holds_no_buffer() {
    check(
        "
        $ connect ka=10
        > CONNECT ka=10
        < CONNACK
        ! connected
        $ subscribe filter=f
        > SUBSCRIBE id=1 filters=f:0
        < SUBACK id=1 reasons=0x00
        ! subscribed id=1 reasons=0x00
        ? facts
        = in_flight=0 connected room
        $ publish qos=1 m=1
        > PUBLISH id=2 qos=1 topic=t
        < PUBACK id=2
        ! acknowledged m=1 by=PubAck
        ? facts
        = in_flight=0 connected room buffer
        + 10000
        > PINGREQ
        < PINGRESP
        ! ping answered
        ? facts
        = in_flight=0 connected room
        $ ping
        > PINGREQ
        $ close
        + 100000
        ",
    );
}

#[test]
fn a_server_that_takes_no_ping_is_not_waited_for() {
    check(
        "
        $ connect ka=10
        > CONNECT ka=10
        < CONNACK mps=1
        ! connected
        + 10000
        + 10000
        + 10000
        ? facts
        = in_flight=0 connected room
        ",
    );
}

use super::driver::check;

/// What comes after CONNECT and, if `is_connected`, CONNACK ends the connection.
#[track_caller]
fn ends(is_connected: bool, packet: &str, error: &str) {
    let connack = if is_connected {
        "< CONNACK\n! connected"
    } else {
        ""
    };
    check(&format!(
        "
        $ connect rm=1 mps=60 clean
        > CONNECT clean
        {connack}
        < {packet}
        ! {error}
        ? facts
        = in_flight=0
        < PUBLISH topic=too/late
        $ ping
        ! refused: there is no connection
        "
    ));
}

#[test]
fn packets_that_have_no_place() {
    let breach = |what: &str| format!("breach of the protocol: {what}");
    for (is_connected, packet, error) in [
        // [MQTT-3.2.0-1]
        (
            false,
            "PUBLISH topic=a",
            "Publish before CONNACK [MQTT-3.2.0-1] 0x82",
        ),
        (
            false,
            "PINGRESP",
            "PingResp before CONNACK [MQTT-3.2.0-1] 0x82",
        ),
        // [MQTT-3.14.0-1]
        (
            false,
            "DISCONNECT reason=0x8B",
            "Disconnect before CONNACK [MQTT-3.2.0-1] 0x82",
        ),
        // [MQTT-3.2.0-2]
        (
            true,
            "CONNACK",
            "second CONNACK on one network connection [MQTT-3.2.0-2] 0x82",
        ),
        // [MQTT-3.2.2-2]
        (
            false,
            "CONNACK present",
            "session present is set after a clean start [MQTT-3.2.2-2] 0x82",
        ),
        (
            true,
            "PINGREQ",
            "PingReq is sent by clients only [no number] 0x82",
        ),
        (
            true,
            "UNSUBSCRIBE id=1",
            "Unsubscribe is sent by clients only [no number] 0x82",
        ),
        // [MQTT-4.12.0-6]
        (
            false,
            "AUTH reason=0x18",
            "AUTH without an authentication method in CONNECT [MQTT-4.12.0-6] 0x82",
        ),
        (
            true,
            "AUTH reason=0x18",
            "AUTH without an authentication method in CONNECT [MQTT-4.12.0-6] 0x82",
        ),
        // [MQTT-3.1.2-27]
        (
            true,
            "PUBLISH alias=1 topic=a",
            "topic alias without a Topic Alias Maximum [MQTT-3.1.2-27] 0x94",
        ),
        // [MQTT-3.1.2-24] before its end has come
        (
            true,
            "RAW 30 3B 00 01",
            "packet of 61 bytes is above Maximum Packet Size [MQTT-3.1.2-24] 0x95",
        ),
    ] {
        ends(is_connected, packet, &breach(error));
    }
}

#[test]
fn malformed_packets_name_the_statement() {
    for (packet, error) in [
        ("RAW 00 00", "packet type 0 is reserved [no number] 0x81"),
        (
            "RAW 31 04 00 01 00 00",
            "string contains U+0000 [MQTT-1.5.4-2] 0x81",
        ),
        ("RAW 36 03 00 01 61", "QoS is 3 [MQTT-3.3.1-4] 0x81"),
        (
            "RAW 30 04 00 01 23 00",
            "topic name contains a wildcard character [MQTT-3.3.2-2] 0x90",
        ),
        (
            "RAW 41 02 00 01",
            "reserved flags of PubAck are not as listed [MQTT-2.1.3-1] 0x81",
        ),
        (
            "RAW 40 02 00 00",
            "packet identifier is 0 [MQTT-2.2.1-3] 0x82",
        ),
        (
            "RAW D0 80 80 80 80",
            "remaining length is longer than four bytes [no number] 0x81",
        ),
    ] {
        ends(true, packet, &format!("malformed packet: {error}"));
    }
}

#[test]
fn before_5_0_no_server_sends_disconnect() {
    check(
        "
        $ connect v=3.1.1
        > CONNECT
        < CONNACK
        ! connected
        < DISCONNECT
        ! breach of the protocol: Disconnect is sent by clients only [no number] 0x82
        ",
    );
}

/// [MQTT-3.3.4-9] The application has not answered.
#[test]
fn receive_maximum_of_the_client() {
    super::driver::check_manual(
        "
        $ connect rm=2
        > CONNECT
        < CONNACK
        ! connected
        < PUBLISH id=1 qos=1 topic=a
        ! message id=1 qos=1 topic=a
        < PUBLISH id=2 qos=2 topic=a
        ! message id=2 qos=2 topic=a
        < PUBLISH topic=a
        ! message topic=a
        $ answer id=1
        > PUBACK id=1
        $ answer id=2
        > PUBREC id=2
        < PUBLISH id=3 qos=1 topic=a
        ! message id=3 qos=1 topic=a
        # PUBREC does not end a message
        < PUBLISH id=4 qos=1 topic=a
        ! breach of the protocol: more unacknowledged messages than Receive Maximum [MQTT-3.3.4-9] 0x93
        ? facts
        = in_flight=0 unreleased
        ",
    );
}

use super::driver::check;

#[test]
fn subscriptions_come_and_go() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK
        ! connected
        $ subscribe filter=a filter=b/# qos=2
        > SUBSCRIBE id=1 filters=a:2,b/#:2
        $ unsubscribe filter=c filter=d
        > UNSUBSCRIBE id=2 filters=c,d
        < UNSUBACK id=2 reasons=0x11,0x00
        ! unsubscribed id=2 reasons=0x11,0x00
        < SUBACK id=1 reasons=0x02,0x87 why=rule
        ! subscribed id=1 reasons=0x02,0x87 why=rule
        ? facts
        = in_flight=0 connected room
        ",
    );
}

#[test]
fn before_5_0_unsuback_has_no_reason_codes() {
    check(
        "
        $ connect v=3.1.1 clean
        > CONNECT clean
        < CONNACK
        ! connected
        $ subscribe filter=a qos=1
        > SUBSCRIBE id=1 filters=a:1
        < SUBACK id=1 reasons=0x80
        ! subscribed id=1 reasons=0x80
        $ unsubscribe filter=c filter=d
        > UNSUBSCRIBE id=2 filters=c,d
        < UNSUBACK id=2
        ! unsubscribed id=2
        ",
    );
}

#[test]
fn answers_to_nothing_are_told() {
    check(
        "
        $ connect clean
        > CONNECT clean
        < CONNACK
        ! connected
        $ subscribe filter=a
        > SUBSCRIBE id=1 filters=a:0
        < UNSUBACK id=1 reasons=0x00
        ! stray UnsubAck id=1
        < SUBACK id=2 reasons=0x00
        ! stray SubAck id=2
        < SUBACK id=1 reasons=0x00
        ! subscribed id=1 reasons=0x00
        < SUBACK id=1 reasons=0x00
        ! stray SubAck id=1
        $ subscribe
        ! refused: the packet cannot be written
        ",
    );
}

/// [MQTT-3.8.4-6] [MQTT-3.11.3-1]
#[test]
fn a_reason_code_for_each_filter() {
    for (reasons, packet) in [
        ("0x00", "SUBACK"),
        ("0x00,0x00,0x00", "SUBACK"),
        ("0x00", "UNSUBACK"),
    ] {
        let (command, sent, filters, name) = match packet {
            "SUBACK" => ("subscribe", "SUBSCRIBE", "a:0,b:0", "SubAck"),
            _ => ("unsubscribe", "UNSUBSCRIBE", "a,b", "UnsubAck"),
        };
        check(&format!(
            "
            $ connect clean
            > CONNECT clean
            < CONNACK
            ! connected
            $ {command} filter=a filter=b
            > {sent} id=1 filters={filters}
            < {packet} id=1 reasons={reasons}
            ! breach of the protocol: {name} has not one reason code for each topic filter [MQTT-3.8.4-6] 0x82
            "
        ));
    }
}

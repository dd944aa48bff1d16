//! A session that outlives its network connection, and what goes to others when it does not.

use super::driver::check;

/// [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.6.0-1] [MQTT-4.3.3-6] [MQTT3-4.4.0-1] [MQTT3-3.3.1-1]
/// [MQTT3-4.6.0-1]
#[test]
fn what_was_in_flight_goes_again_in_order() {
    for version in ["3.1.1", "5 expiry=99"] {
        check(&format!(
            "> CONNECT v={version}
             < CONNACK
             $ deliver topic=a qos=1
             < PUBLISH id=1 qos=1 topic=a
             $ deliver topic=b qos=2
             < PUBLISH id=2 qos=2 topic=b
             $ deliver topic=c qos=2
             < PUBLISH id=3 qos=2 topic=c
             $ deliver topic=d
             < PUBLISH topic=d
             $ deliver topic=e qos=1
             < PUBLISH id=4 qos=1 topic=e
             > PUBREC id=2
             < PUBREL id=2
             > PUBACK id=4
             $ close
             $ deliver topic=f qos=1
             > CONNECT v={version}
             < CONNACK session_present
             < PUBLISH id=1 qos=1 dup topic=a
             < PUBREL id=2
             < PUBLISH id=3 qos=2 dup topic=c
             < PUBLISH id=5 qos=1 topic=f
             > PUBACK id=1
             > PUBCOMP id=2
             > PUBREC id=3
             < PUBREL id=3
             > PUBCOMP id=3
             > PUBACK id=5
             ? facts
             = waiting=0 in_flight=0 room=128 empty"
        ));
    }
}

/// [MQTT-4.4.0-1] nothing goes again while the network connection lasts.
#[test]
fn nothing_goes_again_without_a_reconnection() {
    check(
        "> CONNECT
         < CONNACK
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         + 1000000
         > PINGREQ
         < PINGRESP",
    );
}

/// [MQTT-3.3.4-9] the new connection's Receive Maximum holds for what goes again; PUBREL is not
/// held back.
#[test]
fn a_smaller_window_after_reconnection() {
    check(
        "> CONNECT expiry=99
         < CONNACK
         $ deliver topic=a qos=2
         < PUBLISH id=1 qos=2 topic=a
         $ deliver topic=b qos=1
         < PUBLISH id=2 qos=1 topic=b
         $ deliver topic=c qos=1
         < PUBLISH id=3 qos=1 topic=c
         > PUBREC id=1
         < PUBREL id=1
         $ close
         > CONNECT expiry=99 rm=1
         < CONNACK session_present
         < PUBREL id=1
         $ deliver topic=d
         < PUBLISH topic=d
         > PUBCOMP id=1
         < PUBLISH id=2 qos=1 dup topic=b
         $ deliver topic=e qos=1
         > PUBACK id=2
         < PUBLISH id=3 qos=1 dup topic=c
         > PUBACK id=3
         < PUBLISH id=4 qos=1 topic=e",
    );
}

/// An identifier acknowledged out of order is not something to send again.
#[test]
fn a_hole_in_flight_is_nothing_to_transmit() {
    check(
        "> CONNECT expiry=99
         < CONNACK
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=1
         < PUBLISH id=2 qos=1 topic=b
         $ deliver topic=c qos=1
         < PUBLISH id=3 qos=1 topic=c
         > PUBACK id=2
         $ close
         > CONNECT expiry=99 rm=1
         < CONNACK session_present
         < PUBLISH id=1 qos=1 dup topic=a
         > PUBACK id=1
         < PUBLISH id=3 qos=1 dup topic=c
         > PUBACK id=3
         ? facts
         = waiting=0 in_flight=0 room=1 empty",
    );
}

/// [MQTT-4.3.3-7] [MQTT-4.3.3-13] a message once sent does not expire.
#[test]
fn what_was_sent_does_not_expire() {
    check(
        "> CONNECT expiry=99
         < CONNACK
         $ deliver topic=a qos=2 expiry=1
         < PUBLISH id=1 qos=2 topic=a expiry=1
         $ close
         + 5000
         > CONNECT expiry=99
         < CONNACK session_present
         < PUBLISH id=1 qos=2 dup topic=a expiry=0
         > PUBREC id=1
         < PUBREL id=1",
    );
}

/// [MQTT-3.1.2-25] too large for the new connection: as if it had been delivered.
#[test]
fn what_no_longer_fits_is_dropped() {
    check(
        "> CONNECT expiry=99
         < CONNACK
         $ deliver topic=a qos=1 size=100
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=1
         < PUBLISH id=2 qos=1 topic=b
         $ close
         > CONNECT expiry=99 mps=50
         < CONNACK session_present
         < PUBLISH id=2 qos=1 dup topic=b
         ! dropped a packet_too_large
         > PUBACK id=2
         ? facts
         = waiting=0 in_flight=0 room=128 empty",
    );
}

/// [MQTT-2.2.1-4] [MQTT3-2.3.1-4] identifiers go on where they were.
#[test]
fn identifiers_go_on() {
    check(
        "> CONNECT v=3.1.1
         < CONNACK
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         > PUBACK id=1
         $ close
         > CONNECT v=5 expiry=9
         < CONNACK session_present
         $ deliver topic=a qos=1
         < PUBLISH id=2 qos=1 topic=a",
    );
}

/// [MQTT-4.8.2-4] [MQTT-4.8.2-5] [MQTT-3.1.2-4] what another member of a group may get.
#[test]
fn an_ended_session_hands_over_its_groups() {
    check(
        "> CONNECT rm=3
         < CONNACK
         $ deliver topic=a qos=1 group=1
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=2 group=1
         < PUBLISH id=2 qos=2 topic=b
         $ deliver topic=c qos=1
         < PUBLISH id=3 qos=1 topic=c
         $ deliver topic=d qos=2 group=2
         $ deliver topic=e qos=1
         $ close
         ! ended
         ! redispatch a
         ! redispatch d
         ! dropped b session_ended
         ! dropped c session_ended
         ! dropped e session_ended",
    );
}

/// [MQTT-3.10.4-3] [MQTT-4.8.2-4] who is online completes what was sent.
#[test]
fn one_group_is_taken() {
    check(
        "> CONNECT rm=2 expiry=9
         < CONNACK
         $ deliver topic=a qos=1 group=1
         < PUBLISH id=1 qos=1 topic=a
         $ deliver topic=b qos=2 group=1
         < PUBLISH id=2 qos=2 topic=b
         $ deliver topic=c qos=1 group=1
         $ deliver topic=d qos=1 group=2
         $ take group=1
         ! took c
         $ close
         $ deliver topic=e group=1
         $ deliver topic=f group=2
         $ take group=1
         ! took a
         ! took e
         > CONNECT expiry=9
         < CONNACK session_present
         < PUBLISH id=2 qos=2 dup topic=b
         < PUBLISH id=3 qos=1 topic=d
         < PUBLISH topic=f
         > PUBREC id=2
         < PUBREL id=2
         > PUBCOMP id=2
         > PUBACK id=3
         ? facts
         = waiting=0 in_flight=0 room=128 empty",
    );
}

//! Keep alive, will delay, session expiry.

use super::driver::check;

/// [MQTT-3.1.2-22] [MQTT3-3.1.2-24] by the client's packets only.
#[test]
fn keep_alive() {
    check(
        "> CONNECT ka=10
         < CONNACK
         + 14999
         > PINGREQ
         < PINGRESP
         + 10000
         $ deliver topic=a
         < PUBLISH topic=a
         + 4999
         + 1
         ! keep alive timeout
         < DISCONNECT reason=0x8D
         < close
         ! ended",
    );
    check(
        "> CONNECT v=3.1.1 ka=10
         < CONNACK
         + 15000
         ! keep alive timeout
         < close",
    );
    check(
        "> CONNECT
         < CONNACK
         + 1000000000",
    );
}

/// [MQTT-3.1.2-8] [MQTT-3.1.2-10]
#[test]
fn the_will_after_its_delay() {
    check(
        "> CONNECT expiry=100 will=w delay=10 wexpiry=7
         < CONNACK
         $ close
         + 9999
         + 1
         ! will topic=w expires_in=7000ms
         + 89999
         + 1
         ! expired",
    );
}

/// [MQTT-3.1.2-8] the end of the session comes first.
#[test]
fn the_will_at_the_end_of_the_session() {
    check(
        "> CONNECT expiry=5 will=w delay=10
         < CONNACK
         $ close
         + 5000
         ! will topic=w
         ! expired
         > CONNECT will=w delay=10
         < CONNACK
         $ close
         ! will topic=w
         ! ended
         > CONNECT expiry=100 will=w delay=10
         < CONNACK
         $ close
         > CONNECT clean
         ! will topic=w
         < CONNACK",
    );
}

/// [MQTT-3.1.3-9]
#[test]
fn no_will_for_who_returns_in_time() {
    check(
        "> CONNECT expiry=100 will=w delay=10
         < CONNACK
         $ close
         + 9000
         > CONNECT expiry=100
         < CONNACK session_present
         + 5000
         $ close
         + 50000",
    );
}

/// [MQTT-4.1.0-1] [MQTT-4.1.0-2] [MQTT-3.1.2-23]
#[test]
fn session_expiry() {
    check(
        "> CONNECT expiry=10
         < CONNACK
         + 100000
         $ deliver topic=a qos=1
         < PUBLISH id=1 qos=1 topic=a
         $ close
         + 9999
         > CONNECT expiry=10
         < CONNACK session_present
         < PUBLISH id=1 qos=1 dup topic=a
         $ close
         + 10000
         ! expired
         ! dropped a session_ended
         ? facts
         = no session",
    );
    check(
        "> CONNECT expiry=4294967295
         < CONNACK
         $ close
         + 4294967295000
         > CONNECT
         < CONNACK session_present",
    );
    check(
        "> CONNECT v=3.1.1
         < CONNACK
         $ close
         + 4294967295000
         > CONNECT v=3.1.1
         < CONNACK session_present",
    );
}

//! DISCONNECT, both ways.

use super::driver::check;

/// [MQTT-3.14.4-3] [MQTT-3.1.2-8] [MQTT-3.1.2-10] [MQTT3-3.14.4-3] [MQTT3-3.1.2-8] [MQTT3-3.1.2-10]
#[test]
fn the_will_by_reason() {
    check(
        "> CONNECT will=w wretain wqos=1
         < CONNACK
         > DISCONNECT
         ! disconnect
         < close
         ! ended
         > CONNECT will=w wretain wqos=1
         < CONNACK
         > DISCONNECT reason=0x04
         ! disconnect
         < close
         ! will topic=w qos=1 retain
         ! ended
         > CONNECT will=w
         < CONNACK
         > DISCONNECT reason=0x81
         ! disconnect
         < close
         ! will topic=w
         ! ended
         > CONNECT will=w
         < CONNACK
         $ close
         ! will topic=w
         ! ended",
    );
    check(
        "> CONNECT v=3.1.1 clean will=w
         < CONNACK
         > DISCONNECT
         ! disconnect
         < close
         ! ended
         > CONNECT v=3.1.1 clean will=w
         < CONNACK
         $ close
         ! will topic=w
         ! ended",
    );
}

/// [MQTT-3.14.4-1] [MQTT-3.14.4-2] [MQTT-3.14.2-2] nothing follows a DISCONNECT.
#[test]
fn nothing_follows_a_disconnect() {
    check(
        "> CONNECT
         < CONNACK
         > PUBLISH topic=a qos=1 id=1
         ! publish id=1 topic=a qos=1
         $ disconnect reason=0x8B
         < DISCONNECT reason=0x8B
         < close
         ! ended
         > CONNECT v=3.1.1 clean
         < CONNACK
         $ disconnect reason=0x8B
         < close
         ! ended",
    );
}

/// [MQTT-3.14.2-1]
#[test]
fn server_reference_and_codes() {
    check(
        "% reference=elsewhere
         > CONNECT
         < CONNACK
         $ disconnect reason=0x9C
         < DISCONNECT reason=0x9C reference=elsewhere
         < close
         ! ended
         > CONNECT
         < CONNACK
         $ disconnect reason=0x91
         < DISCONNECT reason=0x80
         < close
         ! ended",
    );
}

/// A new connection takes over: the old one's will is published unless its delay lets the new one
/// come first. [MQTT-3.1.3-9] [MQTT-3.1.4-3]
#[test]
fn takeover() {
    check(
        "> CONNECT expiry=9 will=w
         < CONNACK
         > CONNECT expiry=9 will=v delay=5 takeover
         ! will topic=w
         < CONNACK session_present
         > CONNECT expiry=9 takeover
         < CONNACK session_present
         $ close",
    );
}

/// §3.14.2.2.2: not from zero to something.
#[test]
fn session_expiry_in_disconnect() {
    check(
        "> CONNECT
         < CONNACK
         > DISCONNECT expiry=5
         ! violation SessionExpiryFromZero
         < DISCONNECT reason=0x82 words
         < close
         ! ended
         > CONNECT expiry=100
         < CONNACK
         > DISCONNECT expiry=0
         ! disconnect
         < close
         ! ended
         > CONNECT expiry=100
         < CONNACK
         > DISCONNECT expiry=5
         ! disconnect
         < close
         + 4999
         + 1
         ! expired
         > CONNECT
         < CONNACK
         > DISCONNECT expiry=0
         ! disconnect
         < close
         ! ended
         % expiry=10
         > CONNECT expiry=5
         < CONNACK
         > DISCONNECT expiry=4294967295
         ! disconnect
         < close
         + 10000
         ! expired",
    );
}

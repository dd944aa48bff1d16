//! CONNECT and CONNACK.

use super::driver::check;
use crate::*;

/// [MQTT-3.1.4-5] [MQTT-3.2.0-1] [MQTT-3.2.0-2] [MQTT-3.2.2-2] [MQTT-3.2.2-3] [MQTT3-3.2.2-1]
#[test]
fn connack_comes_first_and_once() {
    for version in ["3.1", "3.1.1", "5"] {
        check(&format!(
            "> CONNECT v={version} clean
             < CONNACK
             $ deliver topic=a
             < PUBLISH topic=a"
        ));
    }
}

/// [MQTT-3.1.2-4] [MQTT-3.1.2-5] [MQTT-3.1.2-6] [MQTT3-3.1.2-4] [MQTT3-3.1.2-6] [MQTT3-3.2.2-2]
/// [MQTT3-3.2.2-3]
#[test]
fn session_present_says_whether_there_was_one() {
    check(
        "> CONNECT expiry=100
         < CONNACK
         $ close
         > CONNECT expiry=100
         < CONNACK session_present
         $ close
         > CONNECT clean expiry=100
         < CONNACK",
    );
    check(
        "> CONNECT v=3.1.1
         < CONNACK
         $ close
         > CONNECT v=3.1.1
         < CONNACK session_present
         $ close
         > CONNECT v=3.1.1 clean
         < CONNACK
         $ close
         ! ended
         > CONNECT v=3.1.1
         < CONNACK",
    );
}

/// [MQTT-3.2.2-9] [MQTT-3.1.3-7] [MQTT-3.2.2-16] [MQTT-3.2.2-21]
#[test]
fn connack_says_what_differs_from_the_default() {
    check(
        "% maximum_qos=1 retain=0 wildcard=0 shared=0 subids=0 tam=64 ka=60 expiry=10 rm=1024 mps=2097152
         > CONNECT id= ka=100 expiry=20
         < CONNACK expiry=10 rm=1024 maximum_qos=1 retain=false mps=2097152 assigned=assigned tam=64 wildcard=false subids=false shared=false ka=60",
    );
}

/// Before 5.0 there are no properties, whatever the policy.
#[test]
fn connack_before_v5_has_no_properties() {
    check(
        "% maximum_qos=1 tam=64 ka=60 rm=10 mps=1000
         > CONNECT v=3.1.1 ka=100 clean
         < CONNACK",
    );
}

/// [MQTT-3.1.2-28]
#[test]
fn response_information_only_on_request() {
    check(
        "% response=reply/here
         > CONNECT
         < CONNACK
         $ close
         ! ended
         > CONNECT rri
         < CONNACK response=reply/here",
    );
}

/// [MQTT-3.2.2-19] [MQTT-3.1.2-24]
#[test]
fn response_information_stays_behind_if_too_large() {
    check(
        "% response=reply/here/and/nowhere/else
         > CONNECT rri mps=20
         < CONNACK",
    );
}

/// [MQTT-3.1.2-24] [MQTT-3.2.0-1]
#[test]
fn a_client_too_small_for_connack_gets_nothing() {
    check(
        "> CONNECT mps=4
         < close
         ! ended",
    );
}

/// [MQTT-3.2.2-21] [MQTT-3.2.2-22] zero means no limit, which is above any maximum.
#[test]
fn server_keep_alive_overrides() {
    check(
        "% ka=10
         > CONNECT ka=0
         < CONNACK ka=10
         + 15000
         ! keep alive timeout
         < DISCONNECT reason=0x8D
         < close
         ! ended
         > CONNECT ka=5
         < CONNACK",
    );
}

/// [MQTT-3.2.2-6] [MQTT-3.2.2-7] [MQTT-3.2.2-12] [MQTT-3.2.2-13] [MQTT3-3.2.2-4]
#[test]
fn refusals() {
    check(
        "% maximum_qos=1 retain=0 levels=2 check_payload=1
         > CONNECT will=w wqos=2
         < CONNACK reason=0x9B
         > CONNECT will=w wretain
         < CONNACK reason=0x9A
         > CONNECT will=a/b/c
         < CONNACK reason=0x90
         > CONNECT will=w wutf8 wbad
         < CONNACK reason=0x99",
    );
}

/// [MQTT3-3.1.3-7] [MQTT3-3.1.3-8] [MQTT-3.1.3-6], and 23 characters of MQTT 3.1 [MQTT31-2]. The codec
/// shows a return code as the reason code with the same meaning.
#[test]
fn client_identifiers_by_version() {
    check(
        "% strict_ids=1
         > CONNECT v=3.1.1 id=
         < CONNACK reason=0x85
         > CONNECT v=3.1 id= clean
         < CONNACK reason=0x85
         > CONNECT v=3.1 id=abcdefghijklmnopqrstuvwx clean
         < CONNACK reason=0x85
         > CONNECT v=3.1 id=abcdefghijklmnopqrstuvw clean
         < CONNACK
         $ close
         ! ended
         > CONNECT v=3.1.1 id= clean
         < CONNACK",
    );
    check(
        "> CONNECT v=3.1 id=abcdefghijklmnopqrstuvwxyz clean
         < CONNACK",
    );
    check(
        "% client_id_length=24
         > CONNECT id=abcdefghijklmnopqrstuvwxy
         < CONNACK reason=0x85
         > CONNECT id=abcdefghijklmnopqrstuvwx
         < CONNACK",
    );
}

/// [MQTT-3.2.2-8]
#[test]
fn refusal_codes_and_server_reference() {
    let policy = Policy {
        server_reference: Some("elsewhere".into()),
        ..Policy::default()
    };
    let refuse = |version, reason| {
        let mut out = Vec::new();
        encode_refusal(version, reason, &policy, &mut out);
        out
    };
    use mqtt_proto::{ProtocolVersion, ReasonCode};
    let elsewhere = refuse(ProtocolVersion::V5, ReasonCode::UseAnotherServer);
    assert_eq!(elsewhere, b"\x20\x0F\x00\x9C\x0C\x1C\x00\x09elsewhere");
    let busy = refuse(ProtocolVersion::V5, ReasonCode::ServerBusy);
    assert_eq!(busy, b"\x20\x03\x00\x89\x00");
    let unfit = refuse(ProtocolVersion::V5, ReasonCode::PacketIdentifierInUse);
    assert_eq!(unfit, b"\x20\x03\x00\x80\x00");
    let old = refuse(ProtocolVersion::V3_1_1, ReasonCode::NotAuthorized);
    assert_eq!(old, b"\x20\x02\x00\x05");
}

/// [MQTT-4.12.0-2] [MQTT-4.12.0-5] [MQTT-4.12.1-2]
#[test]
fn authentication_by_auth() {
    check(
        "> CONNECT auth=m data=final
         < CONNACK auth=m data=final
         > AUTH
         ! authenticate
         $ auth reason=0x18 method=m data=challenge
         < AUTH reason=0x18 auth=m data=challenge
         > AUTH
         ! authenticate
         $ auth reason=0x00 method=m data=final
         < AUTH auth=m data=final
         > AUTH
         ! authenticate
         $ disconnect reason=0x87
         < DISCONNECT reason=0x87
         < close
         ! ended",
    );
    let mut challenge = Vec::new();
    encode_challenge("m", b"x", &mut challenge);
    assert_eq!(challenge, b"\xF0\x0A\x18\x08\x15\x00\x01m\x16\x00\x01x");
}

/// [MQTT-3.1.0-2] [MQTT3-3.1.0-2] [MQTT-4.13.1-1] [MQTT-4.12.0-7]
#[test]
fn packets_that_no_client_sends() {
    check(
        "> CONNECT
         < CONNACK
         > CONNECT
         ! violation SecondConnect
         < DISCONNECT reason=0x82 words
         < close
         ! ended
         > CONNECT
         < CONNACK
         > PINGRESP
         ! violation ServerOnlyPacket(PingResp)
         < DISCONNECT reason=0x82 words
         < close
         ! ended
         > CONNECT
         < CONNACK
         > AUTH
         ! violation UnexpectedAuth
         < DISCONNECT reason=0x82 words
         < close
         ! ended
         > CONNECT v=3.1.1 clean
         < CONNACK
         > CONNECT v=3.1.1
         ! violation SecondConnect
         < close
         ! ended",
    );
}

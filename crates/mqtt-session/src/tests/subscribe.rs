//! SUBSCRIBE and UNSUBSCRIBE.

use mqtt_proto::{Connect, ConnectProperties, ProtocolVersion, QoS, SubscriptionOptions};

use super::driver::check;
use crate::{Accepted, Policy, Subscription, Timestamp};

/// [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.8.4-7] [MQTT-3.9.3-1]
/// [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT3-3.8.4-1] [MQTT3-3.8.4-2] [MQTT3-3.10.4-4] [MQTT3-3.10.4-5]
#[test]
fn each_filter_gets_its_code() {
    check(
        "% levels=3
         > CONNECT
         < CONNACK
         > SUBSCRIBE id=9 qos=2 filter=a/+ filter=a# filter=$share/g/a filter=$share/g filter=a/b/c/d
         < SUBACK id=9 reasons=0x02,0x8F,0x02,0x8F,0x8F
         > UNSUBSCRIBE id=9 filter=a/+
         < UNSUBACK id=9 reasons=0x00
         > UNSUBSCRIBE id=9 filter=a/+
         < UNSUBACK id=9 reasons=0x11",
    );
    check(
        "> CONNECT v=3.1.1 clean
         < CONNACK
         > SUBSCRIBE id=9 qos=2 filter=a/+ filter=a#
         < SUBACK id=9 reasons=0x02,0x80
         > UNSUBSCRIBE id=9 filter=a/+
         < UNSUBACK id=9",
    );
}

/// [MQTT-3.2.2-10] [MQTT3-3.8.3-2]
#[test]
fn what_the_policy_does_not_offer() {
    check(
        "% maximum_qos=1 wildcard=0 shared=0 subids=0
         > CONNECT
         < CONNACK maximum_qos=1 wildcard=false subids=false shared=false
         > SUBSCRIBE id=1 qos=2 filter=a filter=a/+ filter=$queue/a filter=$oshare/g/a
         < SUBACK id=1 reasons=0x01,0xA2,0x9E,0x9E
         > SUBSCRIBE id=1 filter=a filter=b subid=5
         < SUBACK id=1 reasons=0xA1,0xA1",
    );
}

/// [MQTT-3.8.4-3] [MQTT3-3.8.4-3] replacing a subscription needs no room.
#[test]
fn subscriptions_are_limited() {
    check(
        "% subscriptions=2
         > CONNECT
         < CONNACK
         > SUBSCRIBE id=1 filter=b filter=a filter=c
         < SUBACK id=1 reasons=0x00,0x00,0x97
         > SUBSCRIBE id=1 filter=a filter=b qos=1
         < SUBACK id=1 reasons=0x01,0x01",
    );
}

/// [MQTT-3.8.3-4] for each kind of shared subscription; the codec refuses `$share` by itself.
#[test]
fn no_local_on_a_shared_subscription() {
    for filter in ["$queue/a", "$oshare/g/a"] {
        check(&format!(
            "> CONNECT
             < CONNACK
             > SUBSCRIBE id=1 filter={filter} no_local
             ! violation NoLocalOnSharedSubscription
             < DISCONNECT reason=0x82 words
             < close
             ! ended"
        ));
    }
}

/// A bridge is granted what 5.0 would let it ask for; no local only where it is allowed [MQTT-3.8.3-4].
#[test]
fn subscriptions_of_a_bridge() {
    let options = |is_bridge: bool, filter: &str| {
        let connect = Connect {
            version: ProtocolVersion::V3_1_1,
            is_bridge,
            clean_start: true,
            keep_alive: 0,
            client_id: "edge",
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties::default(),
        };
        let policy = Policy::default();
        let accepted = Accepted::default();
        let session =
            crate::Session::open(&connect, "edge".into(), accepted, &policy, Timestamp(0));
        assert_eq!(session.is_bridge(), is_bridge);
        let asked = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            ..SubscriptionOptions::default()
        };
        let checked = session.check_filter(filter, asked, &policy);
        let (_, granted) = checked.expect("an allowed filter");
        assert_eq!(granted.qos, QoS::AtLeastOnce);
        (granted.no_local, granted.retain_as_published)
    };
    assert_eq!(options(true, "a/#"), (true, true));
    for shared in ["$share/g/a", "$queue/a", "$oshare/g/a"] {
        assert_eq!(options(true, shared), (false, true), "{shared}");
    }
    assert_eq!(options(false, "a/#"), (false, false));
}

/// A completion that comes after the end of the connection does no harm.
#[test]
fn late_completions() {
    check(
        "> CONNECT expiry=9
         < CONNACK
         $ close
         $ suback id=1 reasons=0x00
         > CONNECT expiry=9
         < CONNACK session_present",
    );
}

fn subscription(filter: &str, id: u32) -> Subscription {
    Subscription {
        filter: filter.into(),
        options: SubscriptionOptions::default(),
        id: Some(id),
        group: None,
    }
}

/// Subscriptions that are added in parts stand sorted, wherever the parts belong.
#[test]
fn parts_of_many_subscriptions() {
    let mut session = crate::Session::detached(ProtocolVersion::V5, "client".into(), Timestamp(0));
    // 7 and 1,000 have no common divisor: each number comes once, and each part is spread over all others.
    let mut number = 0;
    for part in [1, 2, 300, 1, 256, 440] {
        let added = (0..part).map(|_| {
            number = (number + 7) % 1_000;
            subscription(&format!("{number:03}"), number)
        });
        session.add_subscriptions(added.collect());
    }
    let found: Vec<_> = session.subscriptions().iter().map(|s| s.id).collect();
    let expected: Vec<_> = (0..1_000).map(Some).collect();
    assert_eq!(found, expected);
    assert_eq!(session.filters().0, 3_000);
}

/// Many at once come to the same as one after the other.
#[test]
fn several_subscriptions_at_once() {
    let mut session = crate::Session::detached(ProtocolVersion::V5, "client".into(), Timestamp(0));
    let named = |session: &crate::Session| -> Vec<(String, Option<u32>)> {
        let all = session.subscriptions().iter();
        all.map(|s| (s.filter.to_string(), s.id)).collect()
    };
    let of = |all: &[(&str, u32)]| -> Vec<Subscription> {
        all.iter().map(|(f, id)| subscription(f, *id)).collect()
    };
    session.add_subscriptions(of(&[("c", 1), ("a", 2), ("c", 3), ("bb", 4), ("c", 5)]));
    session.add_subscriptions(of(&[("b", 6)]));
    session.add_subscriptions(of(&[("a", 7), ("d", 8), ("d", 9), ("aa", 10)]));
    let expected = [
        ("a", 7),
        ("aa", 10),
        ("b", 6),
        ("bb", 4),
        ("c", 5),
        ("d", 9),
    ];
    let expected = expected.map(|(filter, id)| (filter.to_owned(), Some(id)));
    assert_eq!(named(&session), expected);
    assert_eq!(session.filters().0, 8);
    let removed = session.remove_subscriptions(&["d", "x", "a", "d", "bb"]);
    assert_eq!(removed.len(), 3);
    assert!(session.remove_subscription("a").is_none());
    assert!(session.remove_subscription("b").is_some());
    let left = [("aa", 10), ("c", 5)].map(|(filter, id)| (filter.to_owned(), Some(id)));
    assert_eq!(named(&session), left);
    assert_eq!(session.filters().0, 3);
    session.remove_subscriptions(&["aa", "c"]);
    assert_eq!((session.subscriptions().len(), session.filters().0), (0, 0));
}

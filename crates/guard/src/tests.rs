use std::num::NonZero;
use std::time::Duration;

use super::*;

const USER: Option<&str> = Some("user");

fn config() -> AbuseConfig {
    AbuseConfig {
        connections_per_address: NonZero::new(2),
        connections_per_second_per_address: NonZero::new(10),
        failed_logins: NonZero::new(3),
        failed_login_wait: Duration::from_secs(10),
        flapping_connections: NonZero::new(3),
        flapping_window: Duration::from_secs(60),
        flapping_ban: Duration::from_secs(300),
        ..AbuseConfig::default()
    }
}

fn guard(config: &AbuseConfig) -> Arc<Guard> {
    Arc::new(Guard::new(config))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn some(text: &str) -> Option<IpAddr> {
    Some(ip(text))
}

#[test]
fn an_address_has_so_many_connections_until_one_is_closed() {
    let guard = guard(&config());
    let one = guard.admit_connection(ip("192.0.2.1"), 0).unwrap();
    let _two = guard.admit_connection(ip("::ffff:192.0.2.1"), 0).unwrap();
    let third = guard.admit_connection(ip("192.0.2.1"), 0);
    assert_eq!(third.unwrap_err(), Refusal::Connections);
    assert!(guard.admit_connection(ip("192.0.2.2"), 0).is_ok());
    drop(one);
    assert!(guard.admit_connection(ip("192.0.2.1"), 0).is_ok());
    assert_eq!(guard.refused(Refusal::Connections), 1);
}

#[test]
fn connections_are_counted_no_longer_than_they_are_open() {
    let guard = guard(&config());
    drop(guard.admit_connection(ip("192.0.2.1"), 0));
    assert!(guard.open.parts_are_empty());
}

#[test]
fn addresses_of_one_network_of_ipv6_are_one() {
    let guard = guard(&config());
    let _one = guard.admit_connection(ip("2001:db8::1"), 0).unwrap();
    let _two = guard.admit_connection(ip("2001:db8::2"), 0).unwrap();
    assert!(guard.admit_connection(ip("2001:db8::3"), 0).is_err());
    assert!(guard.admit_connection(ip("2001:db8:0:1::1"), 0).is_ok());
}

#[test]
fn an_address_opens_so_many_connections_per_second() {
    let guard = guard(&config());
    for _ in 0..10 {
        assert!(guard.admit_connection(ip("192.0.2.1"), 5_000).is_ok());
    }
    let next = guard.admit_connection(ip("192.0.2.1"), 5_999);
    assert_eq!(next.unwrap_err(), Refusal::ConnectionRate);
    assert!(guard.admit_connection(ip("192.0.2.1"), 6_000).is_ok());
}

#[test]
fn loopback_is_exempt_unless_it_is_included() {
    let mut config = config();
    let guard = guard(&config);
    let admit = || guard.admit_connection(ip("127.0.0.2"), 0);
    assert!(matches!(admit(), Ok(None)));
    config.include_loopback = true;
    guard.reload(&config);
    assert!(matches!(admit(), Ok(Some(_))));
}

#[test]
fn waits_double_up_to_the_longest() {
    let guard = guard(&config());
    let refused = |at| guard.admit_login(some("192.0.2.1"), USER, "c", at).is_err();
    for _ in 0..2 {
        guard.login_failed(some("192.0.2.1"), USER, 0);
        assert!(!refused(0));
    }
    let mut now = 0;
    for wait in [1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
        guard.login_failed(some("192.0.2.1"), USER, now);
        assert!(refused(now + wait - 1), "{wait}");
        now += wait;
        assert!(!refused(now), "{wait}");
    }
}

#[test]
fn failures_are_forgotten_after_the_longest_wait() {
    let guard = guard(&config());
    for _ in 0..5 {
        guard.login_failed(some("192.0.2.1"), USER, 0);
    }
    guard.login_failed(some("192.0.2.1"), USER, 4_000 + 10_000);
    assert!(
        guard
            .admit_login(some("192.0.2.1"), USER, "c", 14_000)
            .is_ok()
    );
}

#[test]
fn a_success_does_not_clear_what_failed_for_others() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for _ in 0..3 {
        guard.login_failed(here, Some("victim"), 0);
    }
    let all = |user| guard.admit_login(here, Some(user), "c", 0).is_ok();
    assert!(!all("victim") && !all("own"));
    guard.login_succeeded(here, Some("own"));
    assert!(!all("victim") && all("own"));
    guard.login_succeeded(here, Some("victim"));
    assert!(all("victim"));
}

#[test]
fn failures_elsewhere_make_nobody_wait() {
    let guard = guard(&config());
    for _ in 0..9 {
        guard.login_failed(some("192.0.2.1"), USER, 0);
        guard.login_failed(None, USER, 0);
    }
    assert!(guard.admit_login(some("192.0.2.2"), USER, "c", 0).is_ok());
    assert!(guard.admit_login(None, USER, "c", 0).is_ok());
    assert_eq!(guard.failed_logins(), 18);
}

#[test]
fn a_client_that_flaps_is_banned_for_a_while() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for _ in 0..3 {
        assert_eq!(guard.connected(here, "c", 1_000), Ok(()));
    }
    assert_eq!(guard.connected(here, "c", 2_000), Err(Refusal::Flapping));
    let login = |at| guard.admit_login(some("192.0.2.9"), None, "c", at);
    assert_eq!(login(301_999), Err(Refusal::Flapping));
    assert_eq!(login(302_000), Ok(()));
    assert_eq!(guard.connected(here, "d", 2_000), Ok(()));
}

#[test]
fn slow_connects_are_no_flapping() {
    let guard = guard(&config());
    for minute in 1..20 {
        let now = minute * 60_000;
        assert_eq!(guard.connected(some("192.0.2.1"), "c", now), Ok(()));
    }
}

#[test]
fn a_flood_of_addresses_and_names_does_not_grow_the_tables() {
    let config = AbuseConfig {
        tracked_entries: 1_000,
        ..config()
    };
    let guard = guard(&config);
    for number in 0..20_000u32 {
        let address = IpAddr::V4((0xc000_0000 + number).into());
        let name = number.to_string();
        drop(guard.admit_connection(address, 0));
        guard.login_failed(Some(address), Some(&name), 0);
        let _ = guard.connected(Some(address), &name, 0);
    }
    let Remembered {
        arrivals,
        addresses,
        logins,
        clients,
    } = guard.remembered();
    for entries in [arrivals, addresses, logins, clients] {
        // A part in sixteen rounds up.
        assert!((1..=1_008).contains(&entries), "{entries}");
    }
}

#[test]
fn who_was_seen_last_is_remembered_in_a_flood() {
    let config = AbuseConfig {
        tracked_entries: 1_000,
        ..config()
    };
    let guard = guard(&config);
    let attacker = some("192.0.2.1");
    for _ in 0..5 {
        guard.login_failed(attacker, USER, 0);
    }
    for number in 0..20_000u32 {
        guard.login_failed(Some(IpAddr::V4((0x0a00_0000 + number).into())), None, 0);
        assert!(
            guard.admit_login(attacker, USER, "c", 0).is_err(),
            "{number}"
        );
    }
}

#[test]
fn bans_are_looked_at_when_accepting_and_at_login() {
    let guard = guard(&config());
    let mut bans = Bans::default();
    let network = Subject::new(None, None, Some("127.0.0.0/8")).unwrap();
    bans.add(network, String::new(), 0, Some(1_000)).unwrap();
    bans.add(Subject::User("u".into()), String::new(), 0, None)
        .unwrap();
    guard.set_bans(bans);
    // Who bans loopback addresses means it.
    let accepted = guard.admit_connection(ip("127.0.0.2"), 999);
    assert_eq!(accepted.unwrap_err(), Refusal::Banned);
    assert!(guard.admit_connection(ip("127.0.0.2"), 1_000).is_ok());
    let login = guard.admit_login(None, Some("u"), "c", 0);
    assert_eq!(login, Err(Refusal::Banned));
    assert_eq!(guard.refused(Refusal::Banned), 2);
}

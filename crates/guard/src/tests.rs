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

fn ip(text: &str) -> Source {
    text.parse::<IpAddr>().unwrap().into()
}

fn some(text: &str) -> Option<Source> {
    Some(ip(text))
}

/// What cannot be told from another guess for the user name.
fn guess(username: Option<&str>) -> Shown<'_> {
    Shown {
        username,
        password: None,
    }
}

fn password<'a>(username: &'a str, password: &'a str) -> Shown<'a> {
    Shown {
        username: Some(username),
        password: Some(password.as_bytes()),
    }
}

/// A login that is denied, however that comes about.
fn fail(guard: &Arc<Guard>, source: Option<Source>, username: Option<&str>, now_ms: u64) {
    let attempt = guard.begin_login(source, guess(username), now_ms);
    if let Ok(attempt) = attempt {
        attempt.failed(now_ms);
    }
}

fn succeed(guard: &Arc<Guard>, source: Option<Source>, username: &str, now_ms: u64) {
    let attempt = guard.begin_login(source, guess(Some(username)), now_ms);
    attempt.expect("is judged").succeeded();
}

/// Why a guess is not judged, if it is not.
fn not_now(guard: &Arc<Guard>, source: Option<Source>, name: &str, now_ms: u64) -> Option<NotNow> {
    let attempt = guard.begin_login(source, guess(Some(name)), now_ms);
    attempt.err()
}

const WAITS: Option<NotNow> = Some(NotNow::Refused(Refusal::FailedLogins));

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
    let refused = |at| not_now(&guard, some("192.0.2.1"), "user", at) == WAITS;
    for _ in 0..2 {
        fail(&guard, some("192.0.2.1"), USER, 0);
        assert!(!refused(0));
    }
    let mut now = 0;
    for (before, wait) in (2..).zip([1_000, 2_000, 4_000, 8_000, 10_000, 10_000]) {
        fail(&guard, some("192.0.2.1"), USER, now);
        assert_eq!(
            guard.failed_logins(),
            before + 1,
            "judged when the wait is over"
        );
        now += wait;
        assert!(refused(now - 1), "{wait}");
    }
}

#[test]
fn failures_are_forgotten_after_the_longest_wait() {
    let guard = guard(&config());
    for at in [0, 0, 0, 1_000, 3_000] {
        fail(&guard, some("192.0.2.1"), USER, at);
    }
    fail(&guard, some("192.0.2.1"), USER, 3_000 + 4_000 + 10_000);
    assert_eq!(not_now(&guard, some("192.0.2.1"), "user", 17_000), None);
}

#[test]
fn a_user_name_waits_for_itself_alone() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for _ in 0..3 {
        fail(&guard, here, Some("victim"), 0);
    }
    assert_eq!(not_now(&guard, here, "victim", 0), WAITS);
    succeed(&guard, here, "own", 0);
    assert_eq!(not_now(&guard, here, "victim", 0), WAITS);
    // A success of its own ends the wait for the next one.
    succeed(&guard, here, "victim", 1_000);
    fail(&guard, here, Some("victim"), 1_000);
    assert_eq!(not_now(&guard, here, "victim", 1_000), None);
}

#[test]
fn failures_elsewhere_make_nobody_wait() {
    let guard = guard(&config());
    for _ in 0..9 {
        fail(&guard, some("192.0.2.1"), USER, 0);
        fail(&guard, None, USER, 0);
    }
    assert_ne!(not_now(&guard, some("192.0.2.2"), "user", 0), WAITS);
    assert_eq!(not_now(&guard, None, "user", 0), None);
    assert_eq!(guard.failed_logins(), 3 + 9);
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
        let source = Some(address.into());
        drop(guard.admit_connection(address.into(), 0));
        let attempt = guard.begin_login(source, password(&name, "right"), 0);
        attempt.expect("is judged").succeeded();
        let attempt = guard.begin_login(source, password(&name, "wrong"), 0);
        attempt.expect("is judged").failed(0);
        let _ = guard.connected(source, &name, 0);
    }
    let Remembered {
        arrivals,
        addresses,
        logins,
        wrong,
        proven,
        accounts,
        homes,
        clients,
    } = guard.remembered();
    assert_eq!(addresses, 0, "who has logged in costs the address nothing");
    for entries in [arrivals, logins, wrong, proven, accounts, homes, clients] {
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
        fail(&guard, attacker, USER, 0);
    }
    for number in 0..20_000u32 {
        let other = IpAddr::V4((0x0a00_0000 + number).into());
        fail(&guard, Some(other.into()), None, 0);
        assert_eq!(not_now(&guard, attacker, "user", 0), WAITS, "{number}");
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

#[test]
fn logins_at_the_same_time_fail_no_more_often_than_one_after_the_other() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    let begun: Vec<_> = (0..100)
        .filter_map(|_| guard.begin_login(here, guess(USER), 0).ok())
        .collect();
    assert_eq!(begun.len(), 3);
    assert_eq!(not_now(&guard, here, "user", 0), Some(NotNow::Later));
    begun.into_iter().for_each(|attempt| attempt.failed(0));
    assert_eq!(not_now(&guard, here, "user", 0), WAITS);
    // After the wait one at a time.
    let one = guard.begin_login(here, guess(USER), 1_000).unwrap();
    assert_eq!(not_now(&guard, here, "user", 1_000), Some(NotNow::Later));
    one.failed(1_000);
    assert_eq!(not_now(&guard, here, "user", 2_999), WAITS);
}

#[test]
fn many_of_one_address_that_succeed_come_in_turn() {
    let config = AbuseConfig {
        logins_per_address: NonZero::new(3),
        ..config()
    };
    let guard = guard(&config);
    let here = some("192.0.2.1");
    for round in 0..100 {
        let name = |n: usize| format!("device {round}/{n}");
        let begun: Vec<_> = (0..3)
            .map(|n| guard.begin_login(here, guess(Some(&name(n))), 0).unwrap())
            .collect();
        assert!(not_now(&guard, here, "later", 0).is_some());
        begun.into_iter().for_each(Attempt::succeeded);
    }
    let remembered = guard.remembered();
    assert_eq!((remembered.addresses, remembered.logins), (0, 0));
}

#[test]
fn a_login_that_was_given_up_counts_no_more() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for _ in 0..10 {
        drop(guard.begin_login(here, guess(USER), 0).unwrap());
    }
    assert_eq!(guard.failed_logins(), 0);
    assert_eq!(guard.remembered().logins, 0);
}

#[test]
fn failures_from_many_addresses_slow_a_name_down_and_shut_nobody_out() {
    let guard = guard(&config());
    let home = some("198.51.100.1");
    succeed(&guard, home, "user", 0);
    let begins = |n: u32, at| {
        let address = IpAddr::V4((0x0a00_0000 + n).into());
        guard.begin_login(Some(address.into()), guess(USER), at)
    };
    for n in 0..3 {
        begins(n, 1_000).unwrap().failed(1_000);
    }
    // A thousand addresses in a second: ten are looked at.
    let judged = (0..1_000)
        .filter_map(|n| begins(10 + n, 2_000 + u64::from(n)).ok())
        .map(|attempt| attempt.failed(3_000))
        .count();
    assert_eq!(judged, 10);
    // The user has logged in from here before, and comes in at once; from elsewhere in his turn.
    assert_eq!(not_now(&guard, home, "user", 3_000), None);
    assert!(begins(5_000, 3_100).is_ok());
    assert_eq!(not_now(&guard, some("192.0.2.9"), "other", 3_100), None);
}

#[test]
fn what_comes_through_a_proxy_is_never_this_machine() {
    let guard = guard(&config());
    let proxied = Source {
        is_proxied: true,
        ..ip("127.0.0.1")
    };
    assert!(matches!(guard.admit_connection(proxied, 0), Ok(Some(_))));
    for _ in 0..3 {
        fail(&guard, Some(proxied), USER, 0);
        fail(&guard, some("127.0.0.1"), USER, 0);
    }
    assert_eq!(not_now(&guard, Some(proxied), "user", 0), WAITS);
    assert_eq!(not_now(&guard, some("127.0.0.1"), "user", 0), None);
}

/// Begins as many logins as it can, of a hundred.
fn begin_many(guard: &Arc<Guard>, source: Option<Source>, name: &str, now_ms: u64) -> Vec<Attempt> {
    (0..100)
        .filter_map(|_| guard.begin_login(source, guess(Some(name)), now_ms).ok())
        .collect()
}

#[test]
fn many_devices_of_one_address_with_one_user_name_are_judged_at_once_when_some_have_succeeded() {
    let config = AbuseConfig {
        logins_per_address: NonZero::new(20),
        ..config()
    };
    let guard = guard(&config);
    let here = some("192.0.2.1");
    let mut most = 0;
    for round in 0..6 {
        let begun = begin_many(&guard, here, "device", round * 10);
        most = begun.len();
        begun.into_iter().for_each(Attempt::succeeded);
    }
    assert_eq!(most, 20);
    // One that fails takes it back, and the next successes open it again.
    fail(&guard, here, Some("device"), 60);
    let begun = begin_many(&guard, here, "device", 60);
    assert_eq!(begun.len(), 2);
    begun.into_iter().for_each(Attempt::succeeded);
    assert!(begin_many(&guard, here, "device", 60).len() > 3);
}

#[test]
fn devices_of_one_address_do_not_open_up_the_accounts_of_others() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for round in 0..6 {
        let begun = begin_many(&guard, here, "device", round);
        begun.into_iter().for_each(Attempt::succeeded);
    }
    let mut devices = begin_many(&guard, here, "device", 6);
    assert_eq!(devices.len(), 100);
    let guesses = begin_many(&guard, here, "victim", 6);
    assert_eq!(guesses.len(), 3);
    for attempt in guesses {
        attempt.failed(6);
        devices.pop().unwrap().succeeded();
    }
    assert_eq!(not_now(&guard, here, "victim", 6), WAITS);
    drop(devices);
}

#[test]
fn guesses_at_the_same_time_from_many_addresses_are_no_more_than_may_fail() {
    let guard = guard(&config());
    let begin = |n: u32, at| {
        let address = IpAddr::V4((0x0a00_0000 + n).into());
        guard
            .begin_login(Some(address.into()), guess(USER), at)
            .ok()
    };
    let guesses: Vec<_> = (0..1_000).filter_map(|n| begin(n, 0)).collect();
    assert_eq!(guesses.len(), 3);
    guesses.into_iter().for_each(Attempt::succeeded);
    // Devices with one user name at many addresses are not held up.
    let devices: Vec<_> = (0..1_000).filter_map(|n| begin(2_000 + n, 10)).collect();
    assert_eq!(devices.len(), 3 << 3);
    devices.into_iter().for_each(Attempt::succeeded);
    let devices: Vec<_> = (0..1_000).filter_map(|n| begin(4_000 + n, 20)).collect();
    assert_eq!(devices.len(), 1_000);
}

#[test]
fn failures_of_logins_begun_before_a_wait_do_not_make_it_longer() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for round in 0..6 {
        let begun = begin_many(&guard, here, "device", round);
        begun.into_iter().for_each(Attempt::succeeded);
    }
    let begun = begin_many(&guard, here, "device", 100);
    assert_eq!(begun.len(), 100);
    begun.into_iter().for_each(|attempt| attempt.failed(100));
    assert_eq!(not_now(&guard, here, "device", 1_099), WAITS);
    assert_eq!(begin_many(&guard, here, "device", 1_100).len(), 1);
}

#[test]
fn logins_at_the_same_time_have_a_limit_although_failures_have_none() {
    let config = AbuseConfig {
        failed_logins: None,
        logins_per_address: NonZero::new(7),
        ..config()
    };
    let guard = guard(&config);
    let begun = begin_many(&guard, some("192.0.2.1"), "device", 0);
    assert_eq!(begun.len(), 7);
    begun.into_iter().for_each(|attempt| attempt.failed(0));
    assert_eq!(begin_many(&guard, some("192.0.2.1"), "device", 0).len(), 7);
}

/// How many guesses are judged in an hour, of twenty a second. `guess`: the address and the user of each.
fn guesses_in_an_hour(guess: impl Fn(u64) -> (u32, u64)) -> usize {
    let guard = guard(&AbuseConfig::default());
    let judged = (0..3_600 * 20).filter(|number| {
        let (address, user) = guess(*number);
        let address = IpAddr::V4((0x0a00_0000 + address).into());
        let (user, text) = (format!("user {user}"), format!("guess {number}"));
        let now_ms = 1_000_000 + number * 50;
        let attempt = guard.begin_login(Some(address.into()), password(&user, &text), now_ms);
        attempt.map(|attempt| attempt.failed(now_ms)).is_ok()
    });
    judged.count()
}

#[test]
fn guesses_of_one_user_from_one_address_are_few() {
    // Five, six while the waits double to a minute, and one a minute.
    let judged = guesses_in_an_hour(|_| (1, 1));
    assert!((60..=75).contains(&judged), "{judged}");
}

#[test]
fn guesses_of_one_user_from_many_addresses_are_ten_a_second() {
    let judged = guesses_in_an_hour(|number| (number as u32, 1));
    assert!((30_000..=36_005).contains(&judged), "{judged}");
}

#[test]
fn guesses_of_many_users_from_one_address_are_one_a_second() {
    // Each name once, and sixty and one a second of names that have failed.
    let judged = guesses_in_an_hour(|number| (1, number % 1_000));
    assert!((4_000..=1_000 + 60 + 3_600).contains(&judged), "{judged}");
    // Names without end: 1,200, and one a second.
    let judged = guesses_in_an_hour(|number| (1, number));
    assert!((4_500..=1_200 + 3_600).contains(&judged), "{judged}");
}

#[test]
fn one_wrong_device_holds_up_nobody_at_its_address() {
    for (tries_per_s, is_shared) in [
        (1, false),
        (5, false),
        (50, false),
        (1, true),
        (5, true),
        (50, true),
    ] {
        let guard = guard(&AbuseConfig::default());
        let here = some("192.0.2.1");
        let name = |device: u64| match is_shared {
            true => "fleet".to_owned(),
            false => format!("device {device}"),
        };
        let mut judged = 0;
        for number in 0..1_000 {
            let now_ms = 1_000 * number / tries_per_s;
            let wrong = guard.begin_login(here, password(&name(0), "outdated"), now_ms);
            judged += u64::from(wrong.map(|attempt| attempt.failed(now_ms)).is_ok());
            let (name, right) = (name(number + 1), format!("right {number}"));
            let right = guard.begin_login(here, password(&name, &right), now_ms);
            right.expect("is judged at once").succeeded();
        }
        // It has come in five times, and waits twice as long each time.
        assert!((5..=5 + 7 + 1_000 / 60).contains(&judged), "{judged}");
        let worst = &guard.failing(1)[0];
        let worst_user = worst.users.first().and_then(|user| user.name.as_deref());
        assert_eq!(worst_user, Some(&*name(0)));
        assert_eq!(worst.total.denied.0 + worst.total.refused.0, 1_000);
    }
}

#[test]
fn who_was_right_waits_for_no_guesses_until_the_password_changes() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    let begin = |text: &str, at| guard.begin_login(here, password("user", text), at);
    begin("right", 0).unwrap().succeeded();
    for number in 0..3 {
        begin(&format!("guess {number}"), 0).unwrap().failed(0);
    }
    assert_eq!(begin("another", 0).err(), WAITS);
    // Also at another address, where the account is slowed down.
    let elsewhere = guard.begin_login(some("192.0.2.2"), password("user", "right"), 0);
    elsewhere.unwrap().succeeded();
    let many: Vec<_> = (0..100).map(|_| begin("right", 0).unwrap()).collect();
    many.into_iter().for_each(Attempt::succeeded);
    // It is judged all the same, and what was right is no more.
    begin("right", 0).unwrap().failed(0);
    assert_eq!(begin("right", 0).err(), WAITS);
}

#[test]
fn guesses_of_many_users_hold_up_nobody_who_has_not_failed_or_has_logged_in() {
    let guard = guard(&AbuseConfig::default());
    let here = some("192.0.2.1");
    succeed(&guard, here, "known", 0);
    for number in 0..3_000 {
        let name = format!("user {}", number % 1_000);
        let attempt = guard.begin_login(here, guess(Some(&name)), number * 20);
        if let Ok(attempt) = attempt {
            attempt.failed(number * 20);
        }
    }
    for name in ["known", "new"] {
        assert_eq!(not_now(&guard, here, name, 60_000), None, "{name}");
    }
    // Who was guessed has its turn among those who were.
    assert_eq!(not_now(&guard, here, "user 1", 59_990), Some(NotNow::Later));
    assert_eq!(not_now(&guard, some("192.0.2.2"), "user 1", 59_990), None);
}

#[test]
fn the_same_wrong_password_is_judged_no_more_often_at_the_same_time() {
    let guard = guard(&config());
    let begun: Vec<_> = (0..60)
        .filter_map(|_| {
            guard
                .begin_login(some("192.0.2.1"), password("user", "wrong"), 0)
                .ok()
        })
        .collect();
    assert_eq!(begun.len(), 3);
    for attempt in begun {
        attempt.failed(0);
        let begins = guard.begin_login(some("192.0.2.1"), password("user", "wrong"), 0);
        assert!(begins.is_err());
    }
}

#[test]
fn tokens_that_have_ended_are_no_guesses() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for number in 0..100 {
        let token = format!("token {number}");
        let attempt = guard.begin_login(here, password("fleet", &token), 0);
        attempt.expect("is judged").ended(0);
    }
    assert_eq!((guard.failed_logins(), guard.remembered().logins), (100, 0));
    assert_eq!(guard.failing(1)[0].total.denied, Logins(100));
    // The same one again and again is looked at less and less often.
    for _ in 0..2 {
        let attempt = guard.begin_login(here, password("fleet", "token 1"), 0);
        attempt.expect("is judged").ended(0);
    }
    let again = guard.begin_login(here, password("fleet", "token 1"), 0);
    assert_eq!(again.err(), WAITS);
    assert!(
        guard
            .begin_login(here, password("fleet", "token 2"), 0)
            .is_ok()
    );
}

#[test]
fn failures_are_forgotten_when_files_are_read_again() {
    let guard = guard(&config());
    let here = some("192.0.2.1");
    for _ in 0..3 {
        let attempt = guard.begin_login(here, password("user", "early"), 0);
        attempt.unwrap().failed(0);
    }
    let begins = || {
        guard
            .begin_login(here, password("user", "early"), 0)
            .is_ok()
    };
    assert!(!begins());
    guard.reload(&config());
    assert!(begins());
}

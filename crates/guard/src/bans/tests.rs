use proptest::prelude::*;

use super::*;

fn address(text: &str) -> Subject {
    Subject::new(None, None, Some(text)).unwrap()
}

fn with(subjects: &[Subject]) -> Bans {
    let mut bans = Bans::default();
    for subject in subjects {
        bans.add(subject.clone(), String::new(), 0, None).unwrap();
    }
    bans
}

#[test]
fn each_kind_concerns_its_own() {
    let bans = with(&[
        Subject::Client("c".into()),
        Subject::User("u".into()),
        address("192.0.2.0/24"),
        address("2001:db8::/32"),
        address("::ffff:203.0.113.7"),
    ]);
    let banned = |ip: &str, user, client| bans.find(ip.parse().ok(), user, client, 0).is_some();
    assert!(banned("198.51.100.1", None, "c"));
    assert!(banned("198.51.100.1", Some("u"), "x"));
    assert!(banned("192.0.2.200", None, "x"));
    assert!(banned("::ffff:192.0.2.200", None, "x"));
    assert!(banned("2001:db8:1::1", None, "x"));
    assert!(banned("203.0.113.7", None, "x"));
    assert!(!banned("198.51.100.1", Some("c"), "u"));
    assert!(bans.find(None, None, "x", 0).is_none());
}

#[test]
fn a_ban_ends_when_it_says_and_when_it_is_removed() {
    let mut bans = Bans::default();
    let short = bans
        .add(Subject::Client("a".into()), String::new(), 0, Some(10))
        .unwrap();
    let long = bans
        .add(address("192.0.2.1"), String::new(), 0, None)
        .unwrap();
    assert!(bans.find(None, None, "a", 9).is_some());
    assert!(bans.find(None, None, "a", 10).is_none());
    bans.remove_ended(10);
    assert_eq!(bans.iter(0).collect::<Vec<_>>(), [&long]);
    assert_eq!(bans.remove(short.id), None);
    bans.remove(long.id);
    assert!(bans.find("192.0.2.1".parse().ok(), None, "", 0).is_none());
    assert!(bans.prefixes.is_empty() && bans.addresses.is_empty());
}

#[test]
fn a_subject_has_one_ban() {
    let mut bans = with(&[address("10.0.0.0/8")]);
    bans.add(address("10.0.0.0/8"), "again".into(), 0, Some(5))
        .unwrap();
    let left: Vec<_> = bans
        .iter(0)
        .map(|ban| (ban.id, ban.reason.as_str()))
        .collect();
    assert_eq!(left, [(2, "again")]);
    assert!(bans.find_address("10.1.2.3".parse().unwrap(), 5).is_none());
}

#[test]
fn a_number_is_not_given_twice() {
    let mut bans = with(&[Subject::User("a".into())]);
    bans.remove(1);
    let next = bans.add(Subject::User("b".into()), String::new(), 0, None);
    assert_eq!(next.unwrap().id, 2);
}

#[test]
fn there_is_a_limit() {
    let mut bans = Bans::default();
    for number in 0..MOST {
        let name = number.to_string().into();
        bans.add(Subject::User(name), String::new(), 0, None)
            .unwrap();
    }
    let more = Subject::Client("one".into());
    assert_eq!(bans.add(more, String::new(), 0, None), Err(TooMany));
    let known = Subject::User("7".into());
    assert!(bans.add(known, String::new(), 0, None).is_ok());
}

#[test]
fn json_keeps_a_ban_and_says_what_is_wrong_with_one() {
    let mut bans = Bans::default();
    for subject in [Subject::Client("c".into()), address("10.0.0.0/8")] {
        let ban = bans.add(subject, "why".into(), 1_500, Some(2_500)).unwrap();
        let text = serde_json::to_string(&ban).unwrap();
        assert_eq!(serde_json::from_str::<Ban>(&text).unwrap(), ban, "{text}");
    }
    for (text, problem) in [
        (
            r#"{"id":1,"created":"1970-01-01T00:00:00Z"}"#,
            "names one of",
        ),
        (
            r#"{"id":1,"client":"a","user":"b","created":"1970-01-01T00:00:00Z"}"#,
            "names one of",
        ),
        (
            r#"{"id":1,"address":"10.0.0.1/8","created":"1970-01-01T00:00:00Z"}"#,
            "10.0.0.1/8",
        ),
        (r#"{"id":1,"user":"b","created":"yesterday"}"#, "yesterday"),
        (r#"{"id":1,"usr":"b","created":""}"#, "usr"),
    ] {
        let error = serde_json::from_str::<Ban>(text).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

proptest! {
    /// The prefix table against a look at every network.
    #[test]
    fn addresses_are_found_as_by_looking_at_each(
        networks in prop::collection::vec((any::<u32>(), 0u8..=32), 0..20),
        ips in prop::collection::vec(any::<u32>(), 1..20),
    ) {
        let subjects: Vec<_> = networks
            .into_iter()
            .map(|(ip, prefix)| Network::around(IpAddr::V4(ip.into()), prefix))
            .collect();
        let bans = with(&subjects.iter().copied().map(Subject::Address).collect::<Vec<_>>());
        for ip in ips {
            // Also addresses near the networks, which random ones never are.
            for near in std::iter::once(IpAddr::V4(ip.into())).chain(subjects.iter().map(|n| {
                n.to_string().split('/').next().unwrap().parse().unwrap()
            })) {
                let expected = subjects.iter().any(|network| network.contains(near));
                prop_assert_eq!(bans.find_address(near, 0).is_some(), expected);
            }
        }
    }
}

/// Tells one what the other knows and it does not.
fn tell(from: &Bans, to: &mut Bans, now_ms: u64) {
    let differs: Vec<bool> = from
        .digest()
        .iter()
        .zip(to.digest())
        .map(|(from, to)| from != to)
        .collect();
    for (_, change) in from.changes(|part| differs[part]) {
        to.merge(change, now_ms).unwrap();
    }
}

fn of(bans: &Bans) -> Vec<Ban> {
    bans.iter(0).cloned().collect()
}

#[test]
fn nodes_that_tell_each_other_have_the_same_bans() {
    let (mut one, mut two) = (with(&[]), with(&[]));
    // Each had bans with the same numbers before they were a cluster.
    one.add(Subject::User("a".into()), String::new(), 5, None)
        .unwrap();
    two.add(Subject::User("b".into()), String::new(), 5, None)
        .unwrap();
    one.share(1);
    two.share(2);
    let both = one
        .add(address("192.0.2.0/24"), "one".into(), 10, None)
        .unwrap();
    two.add(address("192.0.2.0/24"), "two".into(), 11, Some(90))
        .unwrap();
    tell(&one, &mut two, 20);
    tell(&two, &mut one, 20);
    assert_eq!(one.digest(), two.digest());
    assert_eq!(of(&one), of(&two));
    assert_eq!(one.iter(20).count(), 3);
    assert!(one.iter(20).all(|ban| ban.reason != "one"));
    assert_eq!(one.merge(Change::Banned(both), 20), Ok(false));
}

#[test]
fn a_lifted_ban_does_not_come_back_and_may_be_made_again() {
    let (mut one, mut two) = (with(&[]), with(&[]));
    one.share(1);
    two.share(2);
    let ban = one
        .add(Subject::User("a".into()), String::new(), 50, None)
        .unwrap();
    tell(&one, &mut two, 60);
    // Its clock is behind.
    two.lift(ban.id, 40).unwrap();
    tell(&one, &mut two, 60);
    tell(&two, &mut one, 60);
    assert_eq!((of(&one), of(&two)), (vec![], vec![]));
    assert_eq!(one.digest(), two.digest());
    let again = two.add(ban.subject, String::new(), 41, None).unwrap();
    tell(&one, &mut two, 60);
    tell(&two, &mut one, 60);
    assert_eq!((of(&one), of(&two)), (vec![again.clone()], vec![again]));
    assert_eq!(one.digest(), two.digest());
}

#[test]
fn what_a_ban_with_an_end_has_replaced_does_not_come_back() {
    let (mut one, mut two) = (with(&[]), with(&[]));
    one.share(1);
    two.share(2);
    let user = Subject::User("a".into());
    one.add(user.clone(), String::new(), 10, None).unwrap();
    tell(&one, &mut two, 10);
    one.add(user, String::new(), 20, Some(30)).unwrap();
    one.remove_ended(40);
    tell(&two, &mut one, 40);
    tell(&one, &mut two, 40);
    assert_eq!((of(&one), of(&two)), (vec![], vec![]));
    assert_eq!(one.digest(), two.digest());
}

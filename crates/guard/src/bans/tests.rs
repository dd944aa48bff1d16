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

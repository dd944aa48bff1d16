use proptest::prelude::*;

use super::*;

fn client<'a>(client_id: &'a str, username: Option<&'a str>) -> Client<'a> {
    Client {
        client_id,
        username,
        address: Some([10, 0, 0, 7].into()),
    }
}

/// The line that decides; 0: none.
fn line(rules: &Rules, client: &Client<'_>, action: Action, topic: &str) -> u32 {
    rules.decide(client, action, topic).map_or(0, |d| d.line)
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = Rules::parse(
        r##"# about the plant

        allow user "dashboard" subscribe,receive $SYS/#
        allow user "*" all users/%u/#
        deny  all subscribe $SYS/# eq:#
        allow address 10.0.0.0/8,::1 and client "gw-*" publish gateways/%c/#
        allow anonymous receive news
        deny all all #
        deny all all
        "##,
    )
    .unwrap();
    let check = |user, action, topic, expect| {
        let found = line(&rules, &client("gw-1", user), action, topic);
        assert_eq!(found, expect, "{user:?} {action:?} {topic}");
    };
    check(Some("dashboard"), Action::Subscribe, "$SYS/broker/#", 3);
    check(Some("ann"), Action::Subscribe, "$SYS/broker/#", 5);
    check(Some("ann"), Action::Receive, "$SYS/broker/x", 5);
    check(Some("ann"), Action::Publish, "$SYS/broker/x", 9);
    check(Some("ann"), Action::Publish, "users/ann/x", 4);
    check(Some("ann"), Action::Subscribe, "users/ann/#", 4);
    check(Some("ann"), Action::Subscribe, "users/+/x", 8);
    check(Some("ann"), Action::Subscribe, "#", 5);
    check(Some("ann"), Action::Publish, "gateways/gw-1/up", 6);
    check(Some("ann"), Action::Publish, "gateways/gw-2/up", 8);
    check(Some("ann"), Action::Receive, "news", 8);
    check(None, Action::Receive, "news", 7);
    check(None, Action::Publish, "users/ann/x", 8);
    let elsewhere = Client {
        address: None,
        ..client("gw-1", None)
    };
    assert_eq!(
        line(&rules, &elsewhere, Action::Publish, "gateways/gw-1/up"),
        8
    );
}

#[test]
fn names_that_would_widen_a_rule_match_nothing() {
    let rules =
        Rules::parse("allow all all %c/# a/%u/b x-%u-%c/# 100%\nallow all all eq:%u").unwrap();
    let check = |id, user, topic, expect| {
        let found = line(&rules, &client(id, user), Action::Subscribe, topic);
        assert_eq!(found, expect, "{id} {user:?} {topic}");
    };
    check("c", Some("u"), "c/#", 1);
    check("c", Some("u"), "a/u/b", 1);
    check("c", Some("u"), "x-u-c/1", 1);
    check("c", Some("u"), "x-u-d/1", 0);
    check("c", Some("u"), "x-u-cc/1", 0);
    check("c", Some("u"), "100%", 1);
    check("c", Some("u"), "u", 2);
    check("c", None, "a//b", 0);
    check("c", Some(""), "a//b", 0);
    for bad in ["#", "+", "u/+", "u/b", ""] {
        for topic in [
            "#", "+", "+/#", "a/+/b", "a/u/b", "a/#/b", "a/u/b/b", "", "/#",
        ] {
            check(bad, Some(bad), topic, 0);
        }
    }
    check("$SYS", Some("$SYS"), "$SYS/#", 0);
    check("$SYS", Some("$SYS"), "$SYS", 0);
    check("$SYS", Some("$SYS"), "a/$SYS/b", 1);
}

#[test]
fn publish_means_retain_and_subscribe_means_receive() {
    let decide = |text: &str, action| {
        let decision = Rules::parse(text)
            .unwrap()
            .decide(&client("c", None), action, "a");
        decision.map(|d| (d.effect, d.line))
    };
    use Effect::{Allow, Deny};
    let publish = "deny all retain a\nallow all publish a";
    assert_eq!(decide(publish, Action::Retain), Some((Deny, 1)));
    assert_eq!(decide(publish, Action::Publish), Some((Allow, 2)));
    assert_eq!(
        decide("allow all publish a", Action::Retain),
        Some((Allow, 1))
    );
    assert_eq!(decide("allow all retain a", Action::Publish), None);
    let subscribe = "allow all receive a\ndeny all subscribe a";
    assert_eq!(decide(subscribe, Action::Receive), Some((Allow, 1)));
    assert_eq!(decide(subscribe, Action::Subscribe), Some((Deny, 2)));
    assert_eq!(
        decide("deny all subscribe a", Action::Receive),
        Some((Deny, 1))
    );
    assert_eq!(decide("deny all receive a", Action::Subscribe), None);
}

#[test]
fn subscribe_only_does_not_mean_receive() {
    let only = Rules::parse("allow all subscribe-only a").unwrap();
    assert!(!only.concern_receive());
    let ann = client("c", Some("ann"));
    assert_eq!(line(&only, &ann, Action::Subscribe, "a"), 1);
    assert_eq!(line(&only, &ann, Action::Receive, "a"), 0);
    let both = Rules::parse("deny all subscribe-only,receive a").unwrap();
    assert_eq!(
        both.rules,
        Rules::parse("deny all subscribe a").unwrap().rules
    );
    let texts = both.concerning(&ann).map(|(_, text)| text);
    assert_eq!(texts.collect::<Vec<_>>(), ["deny all subscribe a"]);
}

#[test]
fn only_rules_about_receiving_concern_deliveries() {
    let concern = |text: &str| Rules::parse(text).unwrap().concern_receive();
    assert!(!concern(""));
    assert!(!concern("deny all publish,retain #"));
    assert!(concern("deny all publish #\ndeny all subscribe a"));
    assert!(concern("deny all receive a"));
    assert!(concern("deny all all"));
}

#[test]
fn each_mistake_is_named_with_its_line() {
    let mistakes = Rules::parse(
        "permit all all\n\
         allow everybody all\n\
         # a remark\n\
         allow all\n\
         allow all read a\n\
         allow user\n\
         allow address 10.0.0.1/8 all\n\
         allow all publish a#b\n\
         allow all publish a a+\n\
         allow all publish $share/g/a\n\
         allow user \"a publish b\n\
         allow user \"a\"b publish c\n\
         allow all and all publish a\n\
         allow\n\
         allow all publish eq:\n",
    )
    .unwrap_err();
    let shown: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
    assert_eq!(
        shown,
        [
            "line 1: \"permit\" is neither allow nor deny",
            "line 2: \"everybody\" is none of all, user, client, address, anonymous",
            "line 4: the action is missing",
            "line 5: \"read\" is not all, or some of publish, subscribe, subscribe-only, receive, retain",
            "line 6: the user name is missing",
            "line 7: \"10.0.0.1/8\" is no address or network",
            "line 8: \"a#b\": # is not the whole last level of the topic filter",
            "line 9: \"a+\": + is not a whole level of the topic filter",
            "line 10: \"$share/g/a\": rules are about what follows $share/…",
            "line 11: a quotation mark is not closed",
            "line 12: there is no blank behind a closing quotation mark",
            "line 14: who is concerned is missing",
            "line 15: \"\": topic filter is empty",
        ]
    );
}

#[test]
fn quoted_words_may_contain_anything() {
    let rules = Rules::parse(r#"allow user "a \"b\" \\ c" all "t u" "eq:v w""#).unwrap();
    let ann = client("c", Some(r#"a "b" \ c"#));
    assert_eq!(line(&rules, &ann, Action::Publish, "t u"), 1);
    assert_eq!(line(&rules, &ann, Action::Publish, "v w"), 1);
    assert_eq!(line(&rules, &ann, Action::Publish, "t"), 0);
}

#[test]
fn a_file_has_limits() {
    assert!(Rules::parse(&"deny all all\n".repeat(MAX_RULES)).is_ok());
    let mistakes = Rules::parse(&"deny all all\n".repeat(MAX_RULES + 2)).unwrap_err();
    assert_eq!(mistakes.len(), 1);
    assert_eq!(mistakes[0].line as usize, MAX_RULES + 1);
    assert_eq!(Rules::parse(&"?\n".repeat(1000)).unwrap_err().len(), 100);
    assert!(Rules::parse(&" ".repeat(MAX_FILE_BYTES + 1)).is_err());
}

#[test]
fn rules_of_a_login() {
    let rule = LoginRule::parse;
    let rules = Rules::from_login([
        rule("deny", "retain", "a/#").unwrap(),
        rule("allow", "publish", "a/%c").unwrap(),
        rule("allow", "subscribe, receive", "b/%u").unwrap(),
    ])
    .unwrap();
    let ann = client("c", Some("ann"));
    assert_eq!(line(&rules, &ann, Action::Publish, "a/c"), 2);
    assert_eq!(line(&rules, &ann, Action::Retain, "a/c"), 1);
    assert_eq!(line(&rules, &ann, Action::Subscribe, "b/ann"), 3);
    assert_eq!(line(&rules, &ann, Action::Publish, "b/ann"), 0);

    assert!(rule("Allow", "publish", "a").is_err());
    assert!(rule("allow", "", "a").is_err());
    assert!(rule("allow", "write", "a").is_err());
    let bad = Rules::from_login([rule("allow", "all", "a#").unwrap()]).unwrap_err();
    assert!(bad.starts_with("rule 1: \"a#\""), "{bad}");
    let many = |count, filter: &str| {
        let rule = rule("allow", "all", filter).unwrap();
        Rules::from_login(iter::repeat_n(rule, count)).is_ok()
    };
    assert!(many(MAX_LOGIN_RULES, "a"));
    assert!(!many(MAX_LOGIN_RULES + 1, "a"));
    assert!(many(16, &"a".repeat(65_535)));
    assert!(!many(17, &"a".repeat(65_535)));
}

#[test]
fn what_a_closed_list_does_not_name_is_denied_whatever_it_begins_with() {
    let rule = LoginRule::parse("allow", "subscribe", "#").unwrap();
    let rules = Rules::from_login([rule]).unwrap().or_deny();
    let ann = client("c", Some("ann"));
    assert!(rules.concern_receive());
    for topic in ["a", "#", "a/$priv"] {
        assert_eq!(line(&rules, &ann, Action::Subscribe, topic), 1, "{topic}");
        assert_eq!(line(&rules, &ann, Action::Publish, topic), 2, "{topic}");
    }
    for action in Action::ALL {
        for topic in [
            "$priv/#",
            "$priv",
            "$SYS/#",
            "$SYSTEM/x",
            "$/a",
            "$share/g/a",
        ] {
            assert_eq!(line(&rules, &ann, action, topic), 2, "{topic}");
        }
    }
}

/// MQTT's matching, written without a thought for speed.
fn matches(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) => true,
        (["+", filter @ ..], [_, topic @ ..]) => matches(filter, topic),
        ([level, filter @ ..], [name, topic @ ..]) => level == name && matches(filter, topic),
        (filter, topic) => filter.is_empty() && topic.is_empty(),
    }
}

fn filter_matches(filter: &str, topic: &str) -> bool {
    let levels: Vec<&str> = filter.split('/').collect();
    let names: Vec<&str> = topic.split('/').collect();
    let hidden = topic.starts_with('$') && filter.starts_with(['+', '#']);
    !hidden && matches(&levels, &names)
}

/// All texts of one to `most` levels.
fn texts(levels: &[&str], most: usize) -> Vec<String> {
    let mut all: Vec<String> = levels.iter().map(ToString::to_string).collect();
    let mut longest = all.clone();
    for _ in 1..most {
        longest = longest
            .iter()
            .flat_map(|text| levels.iter().map(move |level| format!("{text}/{level}")))
            .collect();
        all.extend_from_slice(&longest);
    }
    all
}

/// A filter covers another one if, and only if, it matches every topic that the other matches. Names have a
/// level more than filters, and one (`z`) that no filter has: more topics would show nothing new.
#[test]
fn inclusion_is_what_it_is_in_all_small_cases() {
    let topics = texts(&["a", "", "$s", "z"], 4);
    let filters: Vec<String> = texts(&["a", "", "$s", "+", "#"], 3)
        .into_iter()
        .filter(|text| mqtt_proto::validate_topic_filter(text).is_ok())
        .collect();
    let matched: Vec<Vec<bool>> = filters
        .iter()
        .map(|filter| topics.iter().map(|t| filter_matches(filter, t)).collect())
        .collect();
    let nobody = client("", None);
    for (filter, all) in filters.iter().zip(&matched) {
        let rule = Filter::parse(filter).unwrap();
        for (asked, some) in filters.iter().zip(&matched) {
            let covered = all.iter().zip(some).all(|(all, some)| *all || !some);
            assert_eq!(rule.covers(&nobody, asked), covered, "{filter} {asked}");
        }
        for (topic, matched) in topics.iter().zip(all) {
            assert_eq!(rule.covers(&nobody, topic), *matched, "{filter} {topic}");
        }
        let exact = Filter::parse(&format!("eq:{filter}")).unwrap();
        for asked in &filters {
            assert_eq!(
                exact.covers(&nobody, asked),
                filter == asked,
                "{filter} {asked}"
            );
        }
    }
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn rule_line() -> impl Strategy<Value = String> {
    let who = one_of(&[
        "all",
        "user ann",
        "user bob",
        "user *n",
        "client c1",
        "client c*",
        "user ann and client c2",
        "client c1 and anonymous",
        "address 10.0.0.0/8",
        "address ::1",
    ]);
    let actions = one_of(&[
        "publish",
        "subscribe",
        "subscribe-only",
        "receive",
        "retain",
        "all",
    ]);
    let filter = one_of(&["", "a", "a/#", "+", "%c/#", "a/%u", "eq:#"]);
    let parts = (one_of(&["allow", "deny"]), who, actions, filter);
    parts.prop_map(|(effect, who, actions, filter)| format!("{effect} {who} {actions} {filter}"))
}

proptest! {
    /// The index finds the rule that reading them one after the other does.
    #[test]
    fn decisions_are_those_of_the_first_match(
        lines in prop::collection::vec(rule_line(), 0..40),
        id in one_of(&["c1", "c2", "d"]),
        user in prop::option::of(one_of(&["ann", "bob", "jan"])),
        action in prop::sample::select(&Action::ALL[..]),
        topic in one_of(&["a", "a/b", "#", "c1/x", "a/ann", "+"]),
    ) {
        let rules = Rules::parse(&lines.join("\n")).unwrap();
        let client = client(id, user);
        let first = rules.rules.iter().find(|rule| rule.matches(&client, action, topic));
        prop_assert_eq!(rules.decide(&client, action, topic), first.map(|rule| rule.decision));
    }

    #[test]
    fn hostile_text_is_refused_or_understood(
        text in prop_oneof![
            any::<String>(),
            "(allow|deny|all|user|client|address|and|publish|%|%c|%u|eq:|[\"\\\\#+/*, \n]){0,30}",
        ],
        name in any::<String>(),
        topic in any::<String>(),
    ) {
        let nobody = client(&name, Some(&name));
        let with_text = Rules::parse(&format!("allow user \"*\" all {text}"));
        for rules in [Rules::parse(&text), with_text].into_iter().flatten() {
            for action in Action::ALL {
                let _ = rules.decide(&nobody, action, &topic);
            }
        }
        let _ = LoginRule::parse(&text, &text, &text);
        let rule = LoginRule::parse("allow", "all", &text).unwrap();
        if let Ok(rules) = Rules::from_login([rule]) {
            let _ = rules.decide(&nobody, Action::Subscribe, &topic);
        }
    }
}

#[test]
fn rules_that_concern_a_client_are_listed_in_their_order() {
    let rules = Rules::parse(
        r##"deny  user "bob" all
        allow all subscribe news/#
        allow client "gw-1" publish gateways/%c/#
        allow user "ann" and address 10.0.0.0/8 publish,receive "a b/#" eq:#
        deny address 192.0.2.0/24 all
        allow anonymous retain
        deny all all
        "##,
    )
    .unwrap();
    let ann = client("gw-1", Some("ann"));
    let found: Vec<(u32, String)> = rules.concerning(&ann).collect();
    let expected = [
        (2, "allow all subscribe news/#"),
        (3, "allow client \"gw-1\" publish gateways/%c/#"),
        (
            4,
            "allow user \"ann\" and address 10.0.0.0/8 publish,receive \"a b/#\" eq:#",
        ),
        (7, "deny all all"),
    ];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    let anonymous: Vec<u32> = rules
        .concerning(&client("x", None))
        .map(|(line, _)| line)
        .collect();
    assert_eq!(anonymous, [2, 6, 7]);
}

#[test]
fn a_rule_as_text_is_read_as_the_same_rule() {
    let text = r##"allow user "a \"b\" \\c" and client "*" and address 10.0.0.0/8,2001:db8::/32 publish,receive "x y" eq:# $SYS/+
allow anonymous retain,subscribe a/%u/%c
deny all retain,receive "\"q"
deny all publish,subscribe-only a
deny all all
allow all publish,subscribe eq:+/#"##;
    let rules = Rules::parse(text).unwrap();
    let lines: Vec<String> = rules.rules.iter().map(ToString::to_string).collect();
    assert_eq!(Rules::parse(&lines.join("\n")).unwrap(), rules);
}

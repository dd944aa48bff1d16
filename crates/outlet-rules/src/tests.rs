//! What rules say of messages, and what is no rule.

use bytes::Bytes;
use outlet::{Incarnation, Item, Milliseconds, Position, Sequence, StandardProperties};

use super::*;

fn item(payload: &'static [u8]) -> Item {
    Item {
        position: Some(Position {
            incarnation: Incarnation(7),
            sequence: Sequence(42),
        }),
        topic: "plant/3/state".into(),
        payload: Bytes::from_static(payload),
        qos: 1,
        retain: false,
        received: Milliseconds(1_700_000_000_123),
        properties: vec![("unit".into(), "K".into())],
        standard: StandardProperties {
            content_type: Some("text/x".into()),
            correlation_data: Some(Bytes::from_static(b"\xff\x00")),
            ..StandardProperties::default()
        },
    }
}

fn judged(condition: Option<&str>, map: Option<&str>, payload: &'static [u8]) -> Verdict {
    let rules = Rules::compile(condition, map).unwrap().unwrap();
    rules.judge(&item(payload))
}

fn mapped(map: &str, payload: &'static [u8]) -> String {
    match judged(None, Some(map), payload) {
        Verdict::Changed(payload) => String::from_utf8(payload.to_vec()).unwrap(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_message_goes_on_if_the_first_output_is_neither_false_nor_null() {
    let goes = |rule| judged(Some(rule), None, b"{\"temp\": 41}") == Verdict::Unchanged;
    for rule in [
        ".json.temp > 40",
        "0",
        "\"\"",
        "true, false",
        ".retain | not",
    ] {
        assert!(goes(rule), "{rule}");
    }
    for rule in [".json.temp > 41", "null", "false, true", "empty", ".json.x"] {
        assert_eq!(
            judged(Some(rule), None, b"{\"temp\": 41}"),
            Verdict::Filtered
        );
    }
    assert!(Rules::compile(None, None).unwrap().is_none());
}

#[test]
fn the_first_output_of_map_is_the_payload() {
    let payload = b"{\"temp\": 41.50, \"big\": 123456789012345678901}";
    assert_eq!(
        mapped("{device: .topic_levels[1], t: .json.temp}", payload),
        r#"{"device":"3","t":41.50}"#
    );
    // A string is taken as it is, and numbers that a rule hands on keep their digits.
    assert_eq!(mapped(".topic, 2", payload), "plant/3/state");
    assert_eq!(mapped(".json.big", payload), "123456789012345678901");
    assert_eq!(judged(None, Some("empty"), payload), Verdict::Filtered);
    assert_eq!(
        judged(Some(".qos == 0"), Some("error"), payload),
        Verdict::Filtered
    );
}

#[test]
fn a_rule_sees_the_message() {
    let all = "[.topic, .topic_levels, .qos, .retain, .time, .position, .properties, .json, .text, .base64]";
    let head =
        r#"["plant/3/state",["plant","3","state"],1,false,1700000000123,"7.42",[["unit","K"]],"#;
    for (payload, tail) in [
        (&b"[1,\n2]"[..], "[1,2],null,null]"),
        (b"plain", "null,\"plain\",null]"),
        (b"\xff", "null,null,\"/w==\"]"),
        // What only jq takes for JSON.
        (b"nan", "null,\"nan\",null]"),
        (b"1 # one", "null,\"1 # one\",null]"),
    ] {
        assert_eq!(mapped(all, payload), format!("{head}{tail}"));
    }
}

#[test]
fn a_payload_that_is_nested_deeply_is_text() {
    let nested = |depth: usize| {
        let payload = format!("{}\"[\\\"[\"{}", "[".repeat(depth), "]".repeat(depth));
        let mut item = item(b"");
        item.payload = payload.into();
        let rules = Rules::compile(Some(".json"), None).unwrap().unwrap();
        rules.judge(&item)
    };
    assert_eq!(nested(DEEPEST), Verdict::Unchanged);
    assert_eq!(nested(DEEPEST + 1), Verdict::Filtered);
    assert_eq!(nested(1_000_000), Verdict::Filtered);
}

#[test]
fn a_rule_that_fails_refuses_the_message_and_says_why() {
    let refused = |condition, map| match judged(condition, map, b"[\"x\"]") {
        Verdict::Refused(why) => why.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        refused(Some(".json.temp"), None),
        "where: cannot index [\"x\"] with \"temp\""
    );
    assert_eq!(
        refused(None, Some("error(\"no\\nline\")")),
        "map: \"no\\nline\""
    );
    assert_eq!(refused(None, Some("error(\"x\" * 1000)")).len(), 305);
    // Nothing jumps out of the rule.
    assert_eq!(
        refused(Some("label $out | 1, break $out"), None),
        "Unchanged"
    );
    assert_eq!(refused(Some("label $out | break $out"), None), "Filtered");
}

#[test]
fn what_reaches_beyond_the_message_is_not_there() {
    for rule in [
        "env",
        "$ENV.PATH",
        "input",
        "inputs",
        "debug",
        "debug(1)",
        "stderr",
        "halt",
        "halt_error",
        "halt_error(1)",
        "halt(1)",
        "input_filename",
        "get_search_list",
        "import \"a\" as a; 1",
        "import \"a\" as $a; $a",
        "include \"a\"; 1",
    ] {
        assert!(Rules::compile(Some(rule), None).is_err(), "{rule}");
    }
}

#[test]
fn what_people_know_of_jq_is_there() {
    let payload = b"{\"b\": \"SGk=\", \"at\": 0, \"n\": [3, 1, 2]}";
    for (rule, expected) in [
        ("[.json.n[] | select(. > 1)]", "[3,2]"),
        (".json.n | sort | add / length", "2.0"),
        (".json.b | @base64d", "Hi"),
        (".json.at | todate", "1970-01-01T00:00:00Z"),
        (".topic | test(\"^plant/[0-9]+/\")", "true"),
        (".topic | sub(\"/.*\"; \"\")", "plant"),
        ("2 | pow(.; 3) | sqrt | floor", "2"),
        (".json | keys_unsorted | join(\",\")", "b,at,n"),
        ("now > 1000", "true"),
        ("[.properties[] | {(.[0]): .[1]}] | add | .unit", "K"),
    ] {
        assert_eq!(mapped(rule, payload), expected, "{rule}");
    }
}

#[test]
fn an_error_says_what_is_wrong_and_where() {
    let check = |rule: &str, expect: &str| {
        let error = Rules::compile(None, Some(rule)).unwrap_err();
        assert_eq!(error.to_string(), expect);
    };
    check("", "map: line 1, column 1: expected term, found the end");
    check(
        ".a |\n  | .b",
        "map: line 2, column 3: expected term, found `|`",
    );
    check("{a: 1", "map: line 1, column 1: `{` is not closed");
    check(
        "1 + nope",
        "map: line 1, column 5: there is no function nope",
    );
    check(
        "map(.; 1)",
        "map: line 1, column 1: there is no function map of 2 arguments",
    );
    check("$x", "map: line 1, column 1: there is no variable $x");
    check(
        &" ".repeat(LONGEST + 1),
        "map: expected at most 16384 bytes, found 16385",
    );
}

/// `cargo test --release -p herald-outlet-rules -- --ignored --nocapture`, or without `--release`: libraries are optimised there, too.
#[test]
#[ignore = "it measures, and judges nothing"]
#[expect(clippy::print_stdout, reason = "it says what it has measured")]
fn how_long_rules_take() {
    let payload = br#"{"temp": 41.5, "humidity": 60, "device": "sensor-17", "values": [1, 2, 3, 4], "ok": true}"#;
    let item = item(payload);
    for (name, condition, map) in [
        ("input only", Some("1"), None),
        ("where", Some(".json.temp > 40"), None),
        (
            "map",
            None,
            Some("{device: .topic_levels[1], t: .json.temp}"),
        ),
    ] {
        let rules = Rules::compile(condition, map).unwrap().unwrap();
        let rounds = 100_000_u32;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(rules.judge(std::hint::black_box(&item)));
        }
        println!("{name}: {:?} a message", start.elapsed() / rounds);
    }
}

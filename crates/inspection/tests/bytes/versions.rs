//! What is done with what nodes of other versions write.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use inspection::{Answer, Asked, ClientsQuestion, EventKind, Question, Unreadable};
use serde_json::Value;

use crate::samples::{answers, questions};

/// Adds a field to each object that has named fields. Maps, whose keys are data, are left as they are.
fn add_fields(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(add_fields),
        Value::Object(map) => {
            map.values_mut().for_each(add_fields);
            // One key alone is a variant, or may be.
            let is_struct = map.len() > 1 && !is_map(map.keys().map(String::as_str));
            if is_struct {
                map.insert("of_a_later_version".to_owned(), Value::from([1, 2]));
            }
        }
        _ => {}
    }
}

fn is_map<'a>(mut keys: impl Iterator<Item = &'a str>) -> bool {
    keys.all(|key| key.starts_with("dev-"))
}

#[test]
fn fields_of_later_versions_are_left_out() {
    for (name, question) in questions() {
        let asked = Asked {
            budget_ms: 950,
            question,
        };
        let mut value = serde_json::to_value(&asked).expect("it is JSON");
        add_fields(&mut value);
        let text = value.to_string();
        assert_eq!(Asked::decode(text.as_bytes()), Ok(asked), "{name}: {text}");
    }
    for (name, answer) in answers() {
        let mut value = serde_json::to_value(&answer).expect("it is JSON");
        add_fields(&mut value);
        let text = value.to_string();
        assert_eq!(
            Answer::decode(text.as_bytes()),
            Ok(answer),
            "{name}: {text}"
        );
    }
}

#[test]
fn what_is_cut_short_is_never_taken_for_something_else() {
    for (name, answer) in answers() {
        let bytes = answer.encode();
        for len in 0..bytes.len() {
            let read = Answer::decode(&bytes[..len]);
            assert_eq!(read, Err(Unreadable::IllFormed), "{name} {len}");
        }
    }
}

#[test]
fn bytes_that_are_damaged_never_panic_and_what_is_read_is_what_is_written() {
    for (name, answer) in answers() {
        let bytes = answer.encode();
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] = bytes[at].wrapping_add(1);
            if let Ok(read) = Answer::decode(&bytes) {
                assert_eq!(Answer::decode(&read.encode()), Ok(read), "{name} {at}");
            }
        }
    }
}

/// Takes out of each object the fields with these names.
fn remove(value: &mut Value, names: &[&str]) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| remove(value, names)),
        Value::Object(map) => {
            map.retain(|key, _| !names.contains(&key.as_str()));
            map.values_mut().for_each(|value| remove(value, names));
        }
        _ => {}
    }
}

#[test]
fn fields_that_an_earlier_version_lacks_have_defaults() {
    let ask = |text: &str| {
        let text = format!(r#"{{"budget_ms":950,"question":{text}}}"#);
        let asked = Asked::decode(text.as_bytes()).expect("a question");
        asked.question
    };
    assert_eq!(
        ask(r#"{"clients":{"prefix":"a","after":null,"limit":5}}"#),
        Question::Clients(ClientsQuestion {
            prefix: "a".to_owned(),
            limit: 5,
            ..ClientsQuestion::default()
        })
    );
    let since =
        r#"{"events":{"after":null,"kinds":[],"client_id":null,"prefix":null,"topic":null}}"#;
    match ask(since) {
        Question::Events(question) => {
            assert_eq!((question.after, question.since_ms), (None, None));
        }
        other => panic!("{other:?}"),
    }
    // Added since the first version that asks.
    let added = [
        "departure",
        "class",
        "load",
        "limits",
        "oldest_at",
        "subject",
        "refused",
        "certificate",
        "role",
        "half",
        "names",
        "until",
        "held",
    ];
    for (name, answer) in answers() {
        if name.starts_with("api_session")
            || name.starts_with("messages")
            || name.starts_with("listeners")
        {
            continue;
        }
        let mut value = serde_json::to_value(&answer).expect("it is JSON");
        remove(&mut value, &added);
        let read = Answer::decode(value.to_string().as_bytes());
        let read = read.unwrap_or_else(|why| panic!("{name}: {why}: {value}"));
        let mut again = serde_json::to_value(&read).expect("it is JSON");
        remove(&mut again, &added);
        assert_eq!(again, value, "{name}");
    }
}

#[test]
fn kinds_of_events_of_a_later_version_are_one() {
    let text = r#"{"budget_ms":1,"question":{"events":{"kinds":["of.later"]}}}"#;
    let asked = Asked::decode(text.as_bytes()).expect("a question");
    match asked.question {
        Question::Events(question) => assert_eq!(question.kinds, [EventKind::Other]),
        other => panic!("{other:?}"),
    }
}

/// The lines of a file that never changes: what a version has written, by name.
fn frozen(file: &str) -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/frozen-1");
    let text = fs::read_to_string(folder.join(file)).expect("a file");
    let line = |line: &str| {
        let (name, json) = line.split_once('\t').expect("a name and JSON");
        (name.to_owned(), serde_json::from_str(json).expect("JSON"))
    };
    text.lines().map(line).collect()
}

/// Whether a value has all that another one has; objects may have more.
fn has_all(value: &Value, of: &Value) -> bool {
    match (value, of) {
        (Value::Object(value), Value::Object(of)) => of
            .iter()
            .all(|(key, of)| value.get(key).is_some_and(|value| has_all(value, of))),
        (Value::Array(value), Value::Array(of)) => {
            value.len() == of.len() && value.iter().zip(of).all(|(value, of)| has_all(value, of))
        }
        (value, of) => value == of,
    }
}

#[test]
fn what_was_written_once_is_read_and_written_for_ever() {
    let now: BTreeMap<_, _> = questions().into_iter().collect();
    for (name, once) in frozen("questions.txt") {
        let text = format!(r#"{{"budget_ms":950,"question":{once}}}"#);
        let read = Asked::decode(text.as_bytes()).unwrap_or_else(|why| panic!("{name}: {why}"));
        let again = serde_json::to_value(&read.question).expect("it is JSON");
        assert!(has_all(&again, &once), "{name}: {again}");
        // Nodes of earlier versions read what is written now.
        let now = serde_json::to_value(&now[name.as_str()]).expect("it is JSON");
        assert!(has_all(&now, &once), "{name}: {now}");
    }
    let now: BTreeMap<_, _> = answers().into_iter().collect();
    for (name, once) in frozen("answers.txt") {
        let text = once.to_string();
        let read = Answer::decode(text.as_bytes()).unwrap_or_else(|why| panic!("{name}: {why}"));
        let again = serde_json::to_value(&read).expect("it is JSON");
        assert!(has_all(&again, &once), "{name}: {again}");
        let now = serde_json::to_value(&now[name.as_str()]).expect("it is JSON");
        assert!(has_all(&now, &once), "{name}: {now}");
    }
}

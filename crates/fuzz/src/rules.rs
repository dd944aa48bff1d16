//! Rule files, and rules that come with a login: reading and deciding does not panic, a refused file says in
//! which lines.

use authorization::{Action, Client, LoginRule, Rules};

use crate::{Input, Target};

pub(crate) const TARGET: Target = Target {
    name: "rules",
    run,
    seeds,
};

const ACTIONS: [Action; 3] = [Action::Publish, Action::Subscribe, Action::Receive];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let is_file = input.flag();
    let topic = String::from_utf8_lossy(input.counted()).into_owned();
    let client_id = String::from_utf8_lossy(input.counted()).into_owned();
    let text = String::from_utf8_lossy(input.0);
    let rules = if is_file {
        match Rules::parse(&text) {
            Ok(rules) => rules,
            Err(mistakes) => {
                let lines = text.lines().count().max(1);
                assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    assert!(
                        (1..=lines).contains(&(mistake.line as usize)),
                        "{mistake:?}"
                    );
                }
                return;
            }
        }
    } else {
        let rules = text.lines().filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let (permission, action, filter) = (words.next()?, words.next()?, words.next()?);
            LoginRule::parse(permission, action, filter).ok()
        });
        match Rules::from_login(rules) {
            Ok(rules) => rules,
            Err(_) => return,
        }
    };
    for username in [None, Some(client_id.as_str()), Some("u")] {
        for address in [None, "192.0.2.1".parse().ok(), "2001:db8::1".parse().ok()] {
            let client = Client {
                client_id: &client_id,
                username,
                address,
            };
            for action in ACTIONS {
                let decided = rules.decide(&client, action, &topic);
                assert!(decided.is_none_or(|decision| decision.line > 0));
                let receives = action == Action::Receive && decided.is_some();
                assert!(!receives || rules.concern_receive());
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u8, topic: &str, text: &str| {
        let mut input = vec![kind];
        crate::input::counted(topic.as_bytes(), &mut input);
        crate::input::counted(b"c1", &mut input);
        input.extend(text.as_bytes());
        input
    };
    vec![
        seed(
            1,
            "a/b",
            "allow user \"u\" publish a/b\ndeny anybody all #\n",
        ),
        seed(
            1,
            "home/c1/x",
            "# text\nallow  client \"c1\" and address 192.0.2.0/24  publish,subscribe  home/${clientid}/# eq:#\n",
        ),
        seed(
            0,
            "a/b",
            "allow publish a/+\ndeny all #\nallow subscribe eq a/b",
        ),
    ]
}

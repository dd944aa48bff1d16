//! What clients may do, and what is counted and recorded of what they may not.

use std::sync::Arc;

use authentication_api::Identity;
use authorization::{Action, Effect, LoginRule, Rules};
use mqtt_proto::QoS;
use net_api::Key;

use super::access::Authorization;
use super::authorize::Rights;
use crate::tests::bench::Bench;

/// A client `a`, and the part.
struct Script {
    bench: Bench,
    rights: Rights,
    client: Key,
}

impl Script {
    /// With these rules of the file; nothing else is denied.
    fn with(rules: &str) -> Self {
        let rules = Rules::parse(rules).unwrap();
        let mut bench = Bench::with(|settings| {
            settings.authorization = Authorization::new(Effect::Allow, false, 8, rules);
        });
        let client = bench.connect("a");
        Self {
            bench,
            rights: Rights::default(),
            client,
        }
    }

    fn decide(&mut self, action: Action, topic: &str) -> bool {
        let turn = &mut self.bench.turn();
        self.rights.decide(turn, self.client, action, topic)
    }

    fn denied(&self, action: Action) -> u64 {
        self.bench.base.stats.denied[action as usize].get()
    }

    fn has_access(&self) -> bool {
        self.bench
            .clients
            .get(self.client)
            .unwrap()
            .access
            .is_some()
    }
}

#[test]
fn a_client_for_whom_nothing_is_restricted_costs_no_memory() {
    let mut script = Script::with("");
    assert!(script.decide(Action::Publish, "t"));
    assert!(!script.has_access());
    let mut script = Script::with("deny all publish t");
    assert!(!script.decide(Action::Publish, "t"));
    assert!(script.has_access(), "what it is judged by is remembered");
}

#[test]
fn what_is_denied_is_counted_by_action() {
    let mut script = Script::with("deny all publish secret\ndeny all subscribe secret");
    assert!(!script.decide(Action::Publish, "secret"));
    assert!(!script.decide(Action::Publish, "secret"));
    assert!(!script.decide(Action::Subscribe, "secret"));
    assert!(script.decide(Action::Publish, "open"));
    assert_eq!(script.denied(Action::Publish), 2);
    assert_eq!(script.denied(Action::Subscribe), 1);
}

#[test]
fn who_only_asks_is_not_counted() {
    let mut script = Script::with("deny all receive secret");
    let turn = &mut script.bench.turn();
    assert!(
        !script
            .rights
            .allows(turn, script.client, Action::Receive, "secret")
    );
    assert_eq!(script.denied(Action::Receive), 0);
}

#[test]
fn a_subscription_that_is_denied_is_recorded() {
    let mut script = Script::with("deny all subscribe secret");
    for (filter, allowed) in [("open", true), ("secret", false)] {
        let turn = &mut script.bench.turn();
        let may = script
            .rights
            .may_subscribe(turn, script.client, filter, QoS::AtLeastOnce);
        assert_eq!(may, allowed, "{filter}");
    }
    let dropped = script.bench.base.drops.since(0);
    let recorded: Vec<_> = dropped.drops.iter().map(|drop| &*drop.topic).collect();
    assert_eq!(recorded, ["secret"]);
}

#[test]
fn rules_of_a_login_stay_with_the_client() {
    let mut script = Script::with("");
    let rule = LoginRule::parse("deny", "publish", "own").unwrap();
    let identity = Identity {
        rules: Some(Arc::new(Rules::from_login([rule]).unwrap())),
        ..Identity::default()
    };
    let turn = &mut script.bench.turn();
    script.rights.grant(turn, script.client, identity);
    assert!(!script.decide(Action::Publish, "own"));
    assert!(script.decide(Action::Publish, "other"));
}

#[test]
fn nobody_in_particular_is_given_nothing() {
    let mut script = Script::with("deny all publish t");
    let turn = &mut script.bench.turn();
    script
        .rights
        .grant(turn, script.client, Identity::default());
    assert!(!script.has_access());
}

#[test]
fn rules_that_are_read_again_hold_from_then_on() {
    let mut script = Script::with("deny all publish t");
    assert!(!script.decide(Action::Publish, "t"));
    let open = Authorization::new(Effect::Allow, false, 8, Rules::parse("").unwrap());
    script
        .bench
        .change(|settings| settings.authorization = open);
    script.rights.handle_rules_changed();
    assert!(script.decide(Action::Publish, "t"));
}

#[test]
fn what_may_not_be_received_is_taken_out_of_the_queue() {
    let mut script = Script::with("deny all receive secret");
    for topic in ["open", "secret", "open", "secret"] {
        script.bench.queue(script.client, topic);
    }
    let turn = &mut script.bench.turn();
    let denied = script.rights.take_denied(turn, script.client);
    let topics: Vec<_> = denied.iter().map(|d| d.message.body.topic()).collect();
    assert_eq!(topics, ["secret", "secret"]);
    let client = script.bench.clients.get(script.client).unwrap();
    assert_eq!(client.session.queue_len(), 2);
}

#[test]
fn a_client_that_is_gone_is_restricted_in_nothing() {
    let mut script = Script::with("deny all publish t");
    script.bench.clients.remove(script.client);
    assert!(script.decide(Action::Publish, "t"), "nothing comes of it");
}

//! What becomes of a client when rules change, in each state with each thing that happens to it.

use authorization::{Effect as Verdict, Rules};
use mqtt_proto::SubscriptionOptions;
use mqtt_session::Subscription;
use net_api::Key;
use store_state::api::Failure;
use store_state::inbox::InboxReply;

use super::Rejudge;
use crate::inbox::Epoch;
use crate::pending::{Answer, Pending};
use crate::retained::replay::Replays;
use crate::rights::access::Authorization;
use crate::rights::authorize::Rights;
use crate::subscribe::grant::Below;
use crate::tests::bench::Bench;
use crate::tests::table::{Machine, Transition, walk};
use crate::turn::Effect;

/// More than are judged in one turn.
const SUBSCRIPTIONS: usize = 300;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// By the rules of now.
    Judged,
    /// The client is to be looked through.
    Listed,
    /// Some of its subscriptions are.
    Partly,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// The rules have been read again: it may neither subscribe to nor receive anything.
    Changed,
    /// It is let in.
    Joined,
    /// Something is about to be written to it.
    Transmit,
    Timer,
    /// The same, while the client waits for SUBACK.
    TimerWhileItWaits,
    /// Its entry leaves the table.
    Gone,
}

use Input::*;
use State::*;

const TRANSITIONS: &[Transition<Script>] = &[
    (Judged, Changed, Listed, &["timer in 0 ms"]),
    (Judged, Joined, Judged, &[]),
    (Judged, Transmit, Judged, &[]),
    (Judged, Timer, Judged, &[]),
    (Judged, TimerWhileItWaits, Judged, &[]),
    (Judged, Gone, Judged, &[]),
    (Listed, Changed, Listed, &[]),
    (Listed, Joined, Listed, &[]),
    (Listed, Transmit, Listed, &["drop queued"]),
    // The client and its message count as one each.
    (
        Listed,
        Timer,
        Partly,
        &["46 subscriptions", "drop queued", "timer in 0 ms"],
    ),
    (Listed, TimerWhileItWaits, Listed, &["timer in 20 ms"]),
    (Listed, Gone, Judged, &[]),
    (Partly, Changed, Listed, &[]),
    (Partly, Joined, Partly, &[]),
    (Partly, Transmit, Partly, &[]),
    (Partly, Timer, Judged, &["0 subscriptions"]),
    (Partly, TimerWhileItWaits, Judged, &["0 subscriptions"]),
    (Partly, Gone, Judged, &[]),
];

struct Script {
    bench: Bench,
    rejudge: Rejudge,
    rights: Rights,
    replays: Replays,
    client: Key,
}

impl Script {
    /// With a client that has so many subscriptions, and a queued message if its session ends with its connection.
    fn with(is_durable: bool, subscriptions: usize) -> Self {
        let mut bench = Bench::with(|_| {});
        let client = match is_durable {
            true => bench.connect_attached("a", Epoch(1)),
            false => bench.connect("a"),
        };
        let mut script = Self {
            bench,
            rejudge: Rejudge::default(),
            rights: Rights::default(),
            replays: Replays::default(),
            client,
        };
        script.add_subscriptions(subscriptions);
        if !is_durable {
            // What a durable session gets comes from its inbox.
            script.bench.queue(client, "queued");
        }
        script.bench.base.node.rim.store.state().waits = true;
        script.effects();
        script
    }

    fn add_subscriptions(&mut self, count: usize) {
        let all = (0..count).map(|number| Subscription {
            filter: format!("t/{number}").into(),
            options: SubscriptionOptions::default(),
            id: None,
            group: None,
        });
        let client = self.bench.clients.get_mut(self.client).unwrap();
        client.session.add_subscriptions(all.collect());
    }

    fn timer(&mut self) {
        let mut below = Below {
            rights: &mut self.rights,
            replays: &mut self.replays,
        };
        let turn = &mut self.bench.turn();
        self.rejudge.handle_timer(turn, &mut below);
    }

    fn answer(&mut self, answer: &Answer) {
        let pending = &mut self.bench.base.pending;
        let id = pending.keys().next().expect("it was asked");
        let Some(Pending::Revoke(asked)) = pending.remove(id) else {
            panic!("it was asked");
        };
        let mut below = Below {
            rights: &mut self.rights,
            replays: &mut self.replays,
        };
        Rejudge::handle_answer(&mut self.bench.turn(), &mut below, asked, answer);
    }

    fn subscriptions(&self) -> usize {
        let client = self.bench.clients.get(self.client);
        client.map_or(0, |client| client.session.subscriptions().len())
    }

    fn effects(&mut self) -> Vec<String> {
        let mut seen = std::mem::take(&mut self.bench.base.node.rim.store.state().log);
        while let Some(effect) = self.bench.base.next_effect() {
            seen.push(match effect {
                Effect::DenyDelivery { delivery, .. } => {
                    format!("drop {}", delivery.message.body.topic())
                }
                other => format!("{other:?}"),
            });
        }
        let now_ms = self.bench.io.now_ms;
        for (at, _) in std::mem::take(&mut self.bench.io.timers) {
            seen.push(format!("timer in {} ms", at.0 - now_ms));
        }
        seen
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let mut script = Self::with(false, SUBSCRIPTIONS);
        let way: &[Input] = match state {
            Judged => &[],
            Listed => &[Changed],
            Partly => &[Changed, Timer],
        };
        for input in way {
            script.tell(*input);
        }
        script
    }

    fn state(&self) -> State {
        let unjudged = &self.rejudge.unjudged;
        match (unjudged.has_filters(), unjudged.is_empty()) {
            (true, _) => Partly,
            (false, true) => Judged,
            (false, false) => Listed,
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let before = self.subscriptions();
        match input {
            Changed => {
                let rules = Rules::parse("deny all subscribe #\ndeny all receive #").unwrap();
                let rules = Authorization::new(Verdict::Allow, false, 8, rules);
                self.bench.change(|settings| settings.authorization = rules);
                let turn = &mut self.bench.turn();
                self.rejudge.handle_rules_changed(turn, &mut self.rights);
            }
            Joined => {
                let turn = &mut self.bench.turn();
                self.rejudge.handle_joined(turn, &self.rights, self.client);
            }
            Transmit => {
                let turn = &mut self.bench.turn();
                self.rejudge
                    .handle_transmit(turn, &mut self.rights, self.client);
            }
            Timer => self.timer(),
            TimerWhileItWaits => {
                self.bench.clients.get_mut(self.client).unwrap().waits = true;
                self.timer();
            }
            Gone => {
                self.bench.clients.remove(self.client);
                self.rejudge.handle_gone(self.client);
            }
        }
        let mut seen = Vec::new();
        if input != Gone && self.subscriptions() != before {
            seen.push(format!("{} subscriptions", self.subscriptions()));
        }
        seen.extend(self.effects());
        seen
    }
}

#[test]
fn a_client_goes_from_state_to_state_as_the_table_says() {
    walk::<Script>(TRANSITIONS, 3 * 6);
}

/// A durable client whose inbox is asked to unsubscribe it.
fn asked() -> Script {
    let mut script = Script::with(true, 1);
    script.tell(Changed);
    assert_eq!(script.tell(Timer), ["inbox of a: unsubscribe t/0"]);
    assert_eq!(script.state(), Judged);
    assert_eq!(script.bench.base.stats.revoked.get(), 1);
    script
}

#[test]
fn a_durable_client_has_its_subscription_until_its_inbox_has_removed_it() {
    let mut script = asked();
    assert_eq!(script.subscriptions(), 1);
    script.answer(&Answer::Inbox(InboxReply::Unsubscribed(vec![true])));
    assert_eq!(script.subscriptions(), 0);
    let client = script.bench.clients.get(script.client).unwrap();
    assert_eq!(client.unanswered, 0);
}

#[test]
fn a_subscription_stays_that_the_inbox_cannot_remove() {
    let mut script = asked();
    script.answer(&Answer::Failed(Failure::Moved));
    assert_eq!(script.subscriptions(), 1);
    let client = script.bench.clients.get(script.client).unwrap();
    // The inbox may have removed it: what the session has is not what the inbox has, as far as is known.
    assert_eq!(client.unanswered, 1);
}

#[test]
fn an_answer_for_a_client_that_is_gone_is_counted() {
    let mut script = asked();
    script.bench.clients.remove(script.client);
    script.answer(&Answer::Inbox(InboxReply::Unsubscribed(vec![true])));
    assert_eq!(script.bench.base.stats.stale_answers.get(), 1);
}

#[test]
fn sessions_that_are_resumed_are_looked_through_with_pauses() {
    let mut script = Script::with(false, 1);
    let rules = Rules::parse("deny all subscribe t/0").unwrap();
    let rules = Authorization::new(Verdict::Allow, false, 8, rules);
    script
        .bench
        .change(|settings| settings.authorization = rules);
    assert_eq!(script.tell(Joined), ["timer in 20 ms"]);
    assert_eq!(script.tell(Timer), ["0 subscriptions"]);
}

#[test]
fn whoever_is_sent_something_by_later_rules_costs_a_comparison_from_then_on() {
    let mut script = Script::with(false, 0);
    script.bench.queue(script.client, "queued");
    assert_eq!(script.tell(Changed), ["timer in 0 ms"]);
    assert_eq!(script.tell(Transmit), ["drop queued", "drop queued"]);
    script.bench.queue(script.client, "later");
    assert_eq!(script.tell(Transmit), [""; 0]);
}

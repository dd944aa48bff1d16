//! What becomes of a legacy in each state with each thing that happens to it.

use std::sync::Arc;

use mqtt_proto::QoS;
use store_state::api::Failure;
use store_state::inbox::{InboxReply, Item};

use super::asked::{Asked, PageNumber};
use super::{Given, Legacies};
use crate::inbox::{InboxNumber, Sequence};
use crate::pending::{Answer, Pending};
use crate::tests::bench::{Bench, delivery};
use crate::tests::table::{Machine, Transition, walk};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// None is known.
    Nothing,
    /// Its shard is asked what others are to have next.
    Asking,
    /// The inbox of a member is asked to take a message.
    Giving,
    /// Something could not be handed over, and a timer is armed.
    Stuck,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// A shard says that a session has left something.
    Told,
    /// A page with a message that a member gets directly.
    PageDone,
    /// A page with a message that the inbox of a member is to take.
    PageAsked,
    /// A page with a message whose group may have members that are not known.
    PageStays,
    /// Nothing is left.
    PageEmpty,
    /// The shard is led elsewhere.
    PageFailed,
    /// The inbox has the message.
    TargetHas,
    /// It could not take it.
    TargetHasNot,
    Timer,
}

use Input::*;
use State::*;

const ASK: &[&str] = &["ask"];
const RETRY: &[&str] = &["timer"];

/// State, input, next state, effects.
const TRANSITIONS: &[Transition<Script>] = &[
    (Nothing, Told, Asking, ASK),
    (Nothing, Timer, Nothing, &[]),
    // It is known already.
    (Asking, Told, Asking, &[]),
    (Asking, PageDone, Asking, &["ask, done with 7"]),
    (Asking, PageAsked, Giving, &[]),
    (Asking, PageStays, Stuck, RETRY),
    (Asking, PageEmpty, Nothing, &["forget"]),
    (Asking, PageFailed, Stuck, RETRY),
    (Asking, Timer, Asking, &[]),
    (Giving, Told, Giving, &[]),
    (Giving, TargetHas, Asking, &["ask, done with 7"]),
    (Giving, TargetHasNot, Stuck, RETRY),
    (Giving, Timer, Giving, &[]),
    (Stuck, Told, Stuck, &[]),
    (Stuck, Timer, Asking, ASK),
];

/// Only what was asked is answered.
fn is_impossible(state: State, input: Input) -> bool {
    match input {
        Told | Timer => false,
        PageDone | PageAsked | PageStays | PageEmpty | PageFailed => state != Asking,
        TargetHas | TargetHasNot => state != Giving,
    }
}

struct Script {
    bench: Bench,
    legacies: Legacies,
}

impl Script {
    fn page(&mut self, items: Vec<(u64, Item)>, given: Given) {
        self.page_answered(Answer::Inbox(InboxReply::LeftBehind(items)), given);
    }

    fn page_answered(&mut self, answer: Answer, given: Given) {
        let pending = &mut self.bench.base.pending;
        let id = pending.keys().next().expect("the shard was asked");
        let Some(Pending::Handover(Asked::Page(page))) = pending.remove(id) else {
            panic!("for a page");
        };
        let base = &mut self.bench.base;
        for (sequence, ..) in self.legacies.handle_page(base, page, answer) {
            self.legacies.handle_given(page, sequence, given);
        }
        let turn = &mut self.bench.turn();
        self.legacies.handle_all_given(turn, page);
    }

    fn target(&mut self, answer: &Answer) {
        let page = self.legacies.pages.keys().next().copied();
        let page: PageNumber = page.expect("its page is there");
        let turn = &mut self.bench.turn();
        let of = (page, Sequence(7));
        self.legacies.handle_target(turn, of, answer);
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().waits = true;
        let mut script = Self {
            bench,
            legacies: Legacies::default(),
        };
        let way: &[Input] = match state {
            Nothing => &[],
            Asking => &[Told],
            Giving => &[Told, PageAsked],
            Stuck => &[Told, PageFailed],
        };
        for input in way {
            script.tell(*input);
        }
        script
    }

    fn state(&self) -> State {
        let asked = self.legacies.pages.values().map(|page| page.asked);
        match asked.max() {
            Some(0) => Asking,
            Some(_) => Giving,
            None if self.legacies.known.known() > 0 => Stuck,
            None => Nothing,
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let of = delivery("t", QoS::AtLeastOnce);
        let item = Item {
            message: Arc::clone(&of.message),
            qos: of.qos,
            retain: false,
            subscription_ids: of.subscription_ids,
            group: Some("$share/g/t".into()),
        };
        let one = vec![(7, item)];
        let failed = Answer::Failed(Failure::Moved);
        match input {
            Told => {
                let base = &mut self.bench.base;
                self.legacies.handle_told(base, "a".into(), InboxNumber(1));
            }
            PageDone => self.page(one, Given::Done),
            PageAsked => self.page(one, Given::Asked),
            PageStays => self.page(one, Given::Stays),
            PageEmpty => self.page(Vec::new(), Given::Done),
            PageFailed => self.page_answered(failed, Given::Done),
            TargetHas => self.target(&Answer::Inbox(InboxReply::Published {
                matched: 1,
                refused: 0,
                pressing: 0,
            })),
            TargetHasNot => self.target(&failed),
            Timer => self.legacies.handle_timer(&mut self.bench.base),
        }
        let mut seen = Vec::new();
        for line in std::mem::take(&mut self.bench.base.node.rim.store.state().log) {
            seen.push(match () {
                () if line.contains("HandOver") && line.contains('7') => "ask, done with 7",
                () if line.contains("HandOver") => "ask",
                () if line.contains("Forget") => "forget",
                () => panic!("{line}"),
            });
        }
        if !std::mem::take(&mut self.bench.io.timers).is_empty() {
            seen.push("timer");
        }
        seen.into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn a_legacy_goes_from_state_to_state_as_the_table_says() {
    for (state, input, ..) in TRANSITIONS {
        assert!(!is_impossible(*state, *input), "{state:?}, {input:?}");
    }
    let impossible = 5 * 3 + 2 * 3;
    walk::<Script>(TRANSITIONS, 4 * 9 - impossible);
}

#[test]
fn of_many_legacies_so_many_are_handed_over_at_a_time() {
    let mut script = Script::in_state(Nothing);
    for number in 0..100 {
        let base = &mut script.bench.base;
        let client = format!("c{number}").into();
        script.legacies.handle_told(base, client, InboxNumber(1));
    }
    assert_eq!(script.legacies.pages.len(), super::AT_ONCE);
    script.tell(PageEmpty);
    assert_eq!(script.legacies.pages.len(), super::AT_ONCE);
    assert_eq!(script.bench.base.stats.legacies.get(), 99);
}

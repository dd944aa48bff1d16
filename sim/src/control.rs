//! Users that are made while a run goes on: the seed decides where, and when.
//!
//! Each change makes a user of its own, and says in a note of another one which it was, so that a change which is made twice
//! counts twice. Some are asked for twice under the same number.

use std::collections::{BTreeMap, BTreeSet};

use consensus::simulation::Chance;
use control::{By, Change, ChangeId, Count, Expect, Incarnation, Means, Node, Put, Revision, User};
use control_view::View;
use store::Store;
use store_state::api::Event;
use store_state::control::{ControlOp, ControlReply};

/// How long until the store is to begin, at most, in ms.
const BEGIN_WITHIN: usize = 6_000;

/// How often the beginning is asked for again, in ms.
const ASK_AGAIN: u64 = 300;

/// The time between two changes, at most, in ms.
const PAUSE: usize = 400;

/// The user whose note each change writes.
const COUNTER: &str = "counter";

/// The changes of a run.
#[derive(Default)]
pub(crate) struct Changes {
    /// When something is asked next, in ms of the run; `None`: nothing is.
    next: Option<Next>,
    count: Number,
    /// The user that each request makes: by the token, which no two have.
    asked: BTreeMap<u64, Number>,
    /// The users whose changes were answered.
    pub(crate) acknowledged: BTreeSet<Number>,
}

/// The how-many-th change of a run it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Number(u64);

/// What a node is asked.
pub(crate) enum Wish {
    /// To have the store begin.
    Begin,
    /// For a change, under this token.
    Change(u64, ControlOp),
}

/// A node that lives, as far as the control store goes.
pub(crate) struct Seen<'a> {
    pub(crate) store: &'a Store,
    pub(crate) view: &'a View,
    /// It gives its replica up.
    pub(crate) leaves: bool,
}

/// A time, in ms of the run.
#[derive(Clone, Copy)]
struct Next(u64);

impl Changes {
    /// Draws when the store begins, from `now` on.
    pub(crate) fn plan(&mut self, chance: &mut Chance, now: u64) {
        self.next = Some(Next(now + chance.below(BEGIN_WITHIN) as u64));
    }

    /// No more changes are asked for.
    pub(crate) fn end(&mut self) {
        self.next = None;
    }

    /// What it is time to ask, and of which nodes. `stores`: of those that are alive.
    pub(crate) fn ask(
        &mut self,
        chance: &mut Chance,
        now: u64,
        stores: &[&Store],
    ) -> Vec<(u64, Wish)> {
        if self.next.is_none_or(|next| next.0 > now) {
            return Vec::new();
        }
        let has_begun = stores.iter().any(|store| store.control_store.has_begun());
        let (pause, wishes) = match has_begun {
            true => (chance.below(PAUSE) as u64, self.change(chance, stores)),
            false => (ASK_AGAIN, begin(stores)),
        };
        self.next = Some(Next(now + pause));
        wishes
    }

    /// Has any node make a user, once or twice.
    fn change(&mut self, chance: &mut Chance, stores: &[&Store]) -> Vec<(u64, Wish)> {
        self.count.0 += 1;
        let times = if chance.below(4) == 0 { 2 } else { 1 };
        let which = chance.below(stores.len().max(1));
        let asked = stores.iter().skip(which).take(1).flat_map(|store| {
            let op = operation(self.count, store.node(), store.incarnation());
            let tokens = (0..times).map(|time| 2 * self.count.0 + time);
            tokens.map(move |token| (store.node(), Wish::Change(token, op.clone())))
        });
        let asked: Vec<(u64, Wish)> = asked.collect();
        for (_, wish) in &asked {
            if let Wish::Change(token, _) = wish {
                self.asked.insert(*token, self.count);
            }
        }
        asked
    }

    /// A node was answered.
    pub(crate) fn answered(&mut self, answer: &Event) {
        if let Event::Control {
            token,
            reply: ControlReply::Changed { .. },
        } = answer
        {
            self.acknowledged.extend(self.asked.get(token));
        }
    }
}

/// Those that lead what begins the store are asked to begin it.
fn begin(stores: &[&Store]) -> Vec<(u64, Wish)> {
    let leads = |store: &&&Store| store.control_store.begun_by() == Some(store.node());
    let leaders = stores.iter().filter(leads);
    leaders.map(|store| (store.node(), Wish::Begin)).collect()
}

/// The name of a user that a change makes.
pub(crate) fn name_of(Number(count): Number) -> String {
    format!("u-{count}")
}

/// How many changes there were, as records tell.
pub(crate) fn made(records: &control::Records) -> u64 {
    records
        .users
        .keys()
        .filter(|name| &***name != COUNTER)
        .count() as u64
}

fn operation(number: Number, node: u64, incarnation: u64) -> ControlOp {
    let user = |note: String| User {
        enabled: true,
        verifiers: [].into(),
        groups: [].into(),
        rules: [].into(),
        client_ids: None,
        class: None,
        superuser: false,
        ends_ms: None,
        note: note.into(),
        logins_since: Revision(0),
    };
    let put = |name: &str, note: String| Change {
        expect: Expect::Any,
        put: Put::User(name.into(), Some(Box::new(user(note)))),
    };
    ControlOp::Change {
        id: ChangeId {
            node: Node(node),
            incarnation: Incarnation(incarnation),
            count: Count(number.0),
        },
        by: By {
            means: Means::Token,
            name: "sim".into(),
            address: None,
            node: Node(node),
        },
        changes: vec![
            put(&name_of(number), String::new()),
            put(COUNTER, number.0.to_string()),
        ],
    }
}

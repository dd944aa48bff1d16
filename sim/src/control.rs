//! Users, people and keys that are made, and notes for the audit, while a run goes on: the seed decides where, and when.
//!
//! Each change makes a user of its own, and says in a note of another one which it was, so that a change which is made twice
//! counts twice. Some are asked for twice under the same number. Some also give or take the right to change everything.
//!
//! Notes of a node go one batch after the other. The node sends a batch until it is answered, and sometimes once more, as a process
//! that has ended before it could write down the answer; its later processes go on with it.

use std::collections::{BTreeMap, BTreeSet};

use consensus::simulation::Chance;
use control::{
    ApiKey, AuditNote, By, Change, ChangeId, Count, Expect, Hash, Incarnation, KeyId, KeySecret,
    Means, Node, Person, Put, Revision, Role, UnixMs, User,
};
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

/// What stands in the note of a user whose change has given the right to change everything.
pub(crate) const GIVEN: &str = "given";

/// What stands in the note of a user whose change was made with the code for the first administrator.
pub(crate) const FIRST: &str = "first";

/// People, and keys, that get the right and lose it.
const ADMINISTRATORS: usize = 2;

/// What notes for the audit say.
pub(crate) const ACTION: &str = "sim.note";

/// Notes of a batch, which say the same.
pub(crate) const TWINS: usize = 2;

/// The changes of a run.
#[derive(Default)]
pub(crate) struct Changes {
    /// When something is asked next, in ms of the run; `None`: nothing is.
    next: Option<Next>,
    count: Number,
    /// What each request is about: by the token, which no two have.
    asked: BTreeMap<u64, About>,
    /// The users whose changes were answered.
    pub(crate) acknowledged: BTreeSet<Number>,
    /// The last batch of notes of each node.
    batches: BTreeMap<u64, Batch>,
    /// The batches of notes that were answered.
    pub(crate) noted: BTreeSet<Number>,
}

/// What a request is about.
#[derive(Clone, Copy)]
enum About {
    /// A user that it makes.
    User(Number),
    /// Notes for the audit.
    Notes(Number),
}

/// Notes of a node.
struct Batch {
    number: Number,
    op: ControlOp,
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

    /// Has any node change something, or note something.
    fn change(&mut self, chance: &mut Chance, stores: &[&Store]) -> Vec<(u64, Wish)> {
        self.count.0 += 1;
        match chance.below(3) {
            0 => self.note(chance, stores),
            _ => self.make(chance, stores),
        }
    }

    /// Has any node make a user, once or twice.
    fn make(&mut self, chance: &mut Chance, stores: &[&Store]) -> Vec<(u64, Wish)> {
        let times = if chance.below(4) == 0 { 2 } else { 1 };
        let which = chance.below(stores.len().max(1));
        let right = Right::draw(chance);
        let asked = stores.iter().skip(which).take(1).flat_map(|store| {
            let op = operation(self.count, right, id(self.count, store));
            let tokens = (0..times).map(|time| 2 * self.count.0 + time);
            tokens.map(move |token| (store.node(), Wish::Change(token, op.clone())))
        });
        let asked: Vec<(u64, Wish)> = asked.collect();
        for (_, wish) in &asked {
            if let Wish::Change(token, _) = wish {
                self.asked.insert(*token, About::User(self.count));
            }
        }
        asked
    }

    /// Has any node send its notes: those that are not answered, now and then the last ones that are, or else new ones.
    fn note(&mut self, chance: &mut Chance, stores: &[&Store]) -> Vec<(u64, Wish)> {
        let which = chance.below(stores.len().max(1));
        let is_again = chance.below(4) == 0;
        let asked = stores.iter().skip(which).take(1).map(|store| {
            let new = || Batch {
                number: self.count,
                op: notes(self.count, id(self.count, store)),
            };
            let batch = self.batches.entry(store.node()).or_insert_with(new);
            if self.noted.contains(&batch.number) && !is_again {
                *batch = new();
            }
            let token = 2 * self.count.0;
            self.asked.insert(token, About::Notes(batch.number));
            (store.node(), Wish::Change(token, batch.op.clone()))
        });
        asked.collect()
    }

    /// A node was answered.
    pub(crate) fn answered(&mut self, answer: &Event) {
        if let Event::Control {
            token,
            reply: ControlReply::Changed { .. },
        } = answer
        {
            match self.asked.get(token) {
                Some(About::User(number)) => {
                    self.acknowledged.insert(*number);
                }
                Some(About::Notes(number)) => {
                    self.noted.insert(*number);
                }
                None => {}
            }
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

/// To what the notes of a batch say that something was done.
pub(crate) fn target_of(Number(count): Number) -> String {
    format!("n-{count}")
}

/// How a change gives or takes the right to change everything.
#[derive(Clone, Copy)]
enum Right {
    /// Neither.
    Stays,
    /// A person gets it by the code for the first administrator.
    First(usize),
    /// A person has it from now on.
    GivePerson(usize),
    /// A person is removed.
    TakePerson(usize),
    /// A key has it from now on.
    GiveKey(usize),
    /// A key is there from now on, and ends.
    TakeKey(usize),
}

impl Right {
    fn draw(chance: &mut Chance) -> Self {
        let which = chance.below(ADMINISTRATORS);
        match chance.below(10) {
            0 => Self::First(which),
            1 => Self::GivePerson(which),
            2 | 3 => Self::TakePerson(which),
            4 => Self::GiveKey(which),
            5 | 6 => Self::TakeKey(which),
            _ => Self::Stays,
        }
    }

    /// How who asks is known.
    fn means(self) -> Means {
        match self {
            Self::Stays => Means::Token,
            Self::First(_) => Means::FirstCode,
            Self::GivePerson(_) | Self::TakePerson(_) => Means::Person,
            Self::GiveKey(_) | Self::TakeKey(_) => Means::Key,
        }
    }

    /// What stands in the note of the user that the change makes.
    fn note(self) -> &'static str {
        match self {
            Self::First(_) => FIRST,
            Self::GivePerson(_) | Self::GiveKey(_) => GIVEN,
            Self::Stays | Self::TakePerson(_) | Self::TakeKey(_) => "",
        }
    }

    /// The record of it.
    fn change(self) -> Option<Change> {
        let (expect, put) = match self {
            Self::Stays => return None,
            Self::First(which) => (Expect::New, person(which, true)),
            Self::GivePerson(which) => (Expect::Any, person(which, true)),
            Self::TakePerson(which) => (Expect::Known, person(which, false)),
            Self::GiveKey(which) => (Expect::Any, key(which, None)),
            Self::TakeKey(which) => (Expect::Known, key(which, Some(UnixMs(u64::MAX)))),
        };
        Some(Change { expect, put })
    }
}

/// An administrator, or that there is none of the name.
fn person(which: usize, exists: bool) -> Put {
    let person = Person {
        role: Role::Administrator,
        audits: false,
        enabled: true,
        hash: Some("$argon2id$sim".into()),
        must_change: false,
        note: "".into(),
        logins_since: Revision(0),
    };
    let name = format!("p-{which}").into();
    Put::Person(name, exists.then(|| Box::new(person)))
}

/// A key that changes everything, until it ends.
fn key(which: usize, ends_ms: Option<UnixMs>) -> Put {
    let secret = KeySecret {
        sha256: Hash([7; 32]),
        ends_ms: None,
    };
    let key = ApiKey {
        name: "k".into(),
        role: Role::Administrator,
        audits: false,
        created_ms: UnixMs(0),
        ends_ms,
        secrets: [secret].into(),
    };
    let id = u32::try_from(which).expect("there are a few keys");
    Put::Key(KeyId(id), Some(Box::new(key)))
}

/// The identifier of an operation of a node's process.
fn id(Number(count): Number, store: &Store) -> ChangeId {
    ChangeId {
        node: Node(store.node()),
        incarnation: Incarnation(store.incarnation()),
        count: Count(count),
    }
}

fn by(means: Means, node: Node) -> By {
    By {
        means,
        name: "sim".into(),
        address: None,
        node,
    }
}

fn notes(number: Number, id: ChangeId) -> ControlOp {
    let note = AuditNote {
        at: UnixMs(number.0),
        by: by(Means::Node, id.node),
        action: ACTION.into(),
        target: target_of(number).into(),
        fields: [].into(),
    };
    let notes = vec![note; TWINS];
    ControlOp::Note { id, notes }
}

fn operation(number: Number, right: Right, id: ChangeId) -> ControlOp {
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
    let mut changes = vec![
        put(&name_of(number), right.note().to_owned()),
        put(COUNTER, number.0.to_string()),
    ];
    changes.extend(right.change());
    ControlOp::Change {
        id,
        by: by(right.means(), id.node),
        changes,
    }
}

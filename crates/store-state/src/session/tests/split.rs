//! A shard that is cut, against one that is not.

use std::collections::BTreeMap;

use mqtt_session::{NEVER_EXPIRES, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;

use super::driver::{
    Connect, Shard, by, disconnect, fired, gone, header, holding, left, lost, will, will_due,
};
use super::model::Model;
use crate::session::inspect::away_before;
use crate::session::{
    OfAnotherUser, SessionCounts, SessionEnd, SessionMachine, SessionOp, SessionOutlet,
    SessionReply, StoredWill, TakenFrom, WillAtClose,
};
use crate::test_parts::{Cut, HASH, Part};
use crate::{Changes, Header, Machine, NameHash, SlotRange, Split, Table};

const CLIENTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

const HOUR_MS: u64 = 3_600_000;

/// The epochs that each client was given, in order. The halves of a shard give other ones than the whole would; they
/// agree on which of a client's connections one stands for.
#[derive(Clone, Default)]
struct Given(BTreeMap<String, Vec<u64>>);

impl Given {
    /// The number of a client's connection; 0: none.
    fn number(&self, client: &str, epoch: u64) -> usize {
        let given = self.0.get(client).map_or(&[][..], |given| given);
        given
            .iter()
            .position(|of| *of == epoch)
            .map_or(0, |n| n + 1)
    }

    fn epoch(&self, client: &str, number: usize) -> u64 {
        let given = self.0.get(client).map_or(&[][..], |given| given);
        let epoch = number.checked_sub(1).and_then(|n| given.get(n));
        epoch.copied().unwrap_or_default()
    }
}

/// What the outlet hears: whose, the epoch, what.
#[derive(Default)]
struct Heard(Vec<(String, u64, String)>);

/// A reply, and what the outlet hears.
type Told = (SessionReply, Vec<(String, u64, String)>);

impl SessionOutlet for Heard {
    fn fire(&mut self, client: &str, epoch: u64, will: &StoredWill) {
        self.0.push((client.to_owned(), epoch, describe_will(will)));
    }

    fn ended(&mut self, client: &str, epoch: u64, _: Option<SessionEnd>) {
        self.0.push((client.to_owned(), epoch, "ended".to_owned()));
    }

    fn known(&mut self, client: &str, known: bool) {
        self.0
            .push((client.to_owned(), 0, format!("known {known}")));
    }
}

fn describe_will(will: &StoredWill) -> String {
    let topic = will.message.body.topic();
    format!("{topic} {} {:?}", will.delay, will.message_expiry)
}

fn apply(machine: &mut SessionMachine, header: &Header, op: &SessionOp, table: &dyn Table) -> Told {
    let mut heard = Heard::default();
    let reply = machine.apply(header, op, table, &mut heard).unwrap();
    (reply, heard.0)
}

/// A part of the shard, and what its clients were given.
struct Half {
    part: Part<SessionMachine, Told>,
    given: Given,
}

impl Half {
    fn whole() -> Self {
        Self {
            part: Part::whole(apply, Model::state_of),
            given: Given::default(),
        }
    }

    /// Applies what is asked of it. Epochs in the reply, and in what is heard, are numbers of connections.
    fn apply(&mut self, now: u64, ask: &Ask) -> (SessionReply, Vec<(String, usize, String)>) {
        let op = ask.op(&self.given);
        let (mut reply, heard) = self.part.apply(&header(now), &op);
        if let SessionReply::Claimed(claimed) = &mut reply {
            let client = &*op.claimed().unwrap().client;
            if let TakenFrom::Node { will, .. } = &mut claimed.taken_from
                && *will != 0
            {
                *will = self.given.number(client, *will) as u64;
            }
            let given = self.given.0.entry(client.to_owned()).or_default();
            if given.last() != Some(&claimed.epoch) {
                assert!(
                    given.last() < Some(&claimed.epoch),
                    "epochs of a client grow"
                );
                given.push(claimed.epoch);
            }
            claimed.epoch = given.len() as u64;
        }
        let heard = heard.into_iter().map(|(client, epoch, what)| {
            let number = self.given.number(&client, epoch);
            (client, number, what)
        });
        (reply, heard.collect())
    }

    fn split_off(&mut self, at: u16) -> Self {
        Self {
            part: self.part.split_off(at),
            given: self.given.clone(),
        }
    }

    /// What there is to be known of a client.
    fn describe(&self, client: &str) -> String {
        let machine = &self.part.machine;
        let number = |epoch| self.given.number(client, epoch);
        let record = machine.records.get(client).map(|record| {
            let numbers = (number(record.epoch), number(record.incarnation));
            let of_user = (&record.user, machine.is_of_another(client, Some("ann")));
            let lasts = (record.since, record.expiry, record.inbox);
            let will = record.will.as_deref().map(describe_will);
            format!(
                "{numbers:?} {:?} {lasts:?} {of_user:?} {will:?}",
                record.owner
            )
        });
        let found = machine.find(client).map(|(owner, incarnation)| {
            let owner = owner.map(|(node, epoch)| (node, number(epoch)));
            (owner, number(incarnation))
        });
        let held = machine.held.iter().filter(|(of, ..)| &***of == client);
        let held: Vec<_> = held
            .map(|(_, epoch, held)| {
                (
                    number(epoch),
                    describe_will(&held.will),
                    held.owner,
                    held.until,
                )
            })
            .collect();
        let known = machine.known(client);
        format!("{record:?} {found:?} {held:?} {known}")
    }

    fn known(&self) -> Vec<String> {
        let mut known = Vec::new();
        let machine = &self.part.machine;
        machine.for_each_known(|client| known.push(client.to_owned()));
        known.sort();
        known
    }

    /// What is told again after a start, of the clients in a range.
    fn outstanding(&self, range: SlotRange) -> Vec<(String, usize, String)> {
        let mut heard = Heard::default();
        self.part.machine.outstanding(&mut heard);
        let heard = heard.0.into_iter().map(|(client, epoch, what)| {
            let number = self.given.number(&client, epoch);
            (client, number, what)
        });
        heard
            .filter(|(client, ..)| range.contains(HASH.slot_of(client)))
            .collect()
    }
}

/// What is asked of the whole and of a half, about a connection that both know by its number.
#[derive(Clone, Debug)]
enum Ask {
    /// With the same number in each operation.
    Plain(SessionOp),
    Disconnect(&'static str, usize, u32, WillAtClose),
    Fired(&'static str, usize),
    FireAgain(&'static str, usize),
    Gone(&'static str, usize),
    WillDue(&'static str, usize),
    DiscardWill(&'static str, usize),
}

impl Ask {
    fn op(&self, given: &Given) -> SessionOp {
        match *self {
            Self::Plain(ref op) => op.clone(),
            Self::Disconnect(client, n, expiry, will) => {
                disconnect(client, given.epoch(client, n), expiry, will)
            }
            Self::Fired(client, n) => fired(client, given.epoch(client, n)),
            Self::FireAgain(client, n) => SessionOp::FireAgain {
                client: client.into(),
                epoch: given.epoch(client, n),
            },
            Self::Gone(client, n) => gone(client, given.epoch(client, n)),
            Self::WillDue(client, n) => will_due(client, given.epoch(client, n)),
            Self::DiscardWill(client, n) => SessionOp::DiscardWill {
                client: client.into(),
                epoch: given.epoch(client, n),
            },
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Claim {
        client: &'static str,
        node: u64,
        /// 0: of a process before the one that is known.
        process: u64,
        clean: bool,
        expiry: u32,
        delay: Option<u32>,
        user: Option<&'static str>,
        of_another_user: OfAnotherUser,
        holds: bool,
        again: bool,
    },
    NodeUp {
        node: u64,
        /// 0: of a process before the one that is known.
        process: u64,
        ago: u64,
    },
    Due,
    /// Something about one of a client's last connections, the last one: 0.
    OfConnection {
        client: &'static str,
        back: usize,
        about: About,
    },
    /// ms.
    Pass(u64),
    /// The next leader's clock is behind, ms.
    Back(u64),
    Cut(Cut),
    /// Of the n-th part, which starts anew or goes on.
    Checkpoint(usize, bool),
    /// Of the n-th part.
    Restart(usize),
}

#[derive(Clone, Copy, Debug)]
enum About {
    Disconnect(u32, WillAtClose),
    Fired,
    FireAgain,
    Gone,
    WillDue,
    DiscardWill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = || select(CLIENTS.to_vec());
    let expiry = || select(vec![0, 5, 10, 20, 20_000, NEVER_EXPIRES]);
    let delay = proptest::option::of(select(vec![0, 5, 10, 60]));
    let user = select(vec![None, Some("ann"), Some("ann"), Some("bob")]);
    let other = select(vec![OfAnotherUser::Refuse, OfAnotherUser::Discard]);
    let how = (user, other, any::<bool>(), 0..5u8);
    let claim = (
        client(),
        1..3u64,
        0..9u64,
        any::<bool>(),
        expiry(),
        delay,
        how,
    );
    let close = (expiry(), any::<bool>()).prop_map(|(expiry, keep)| {
        let will = if keep {
            WillAtClose::Keep
        } else {
            WillAtClose::Discard
        };
        About::Disconnect(expiry, will)
    });
    let others = vec![
        About::Fired,
        About::FireAgain,
        About::Gone,
        About::WillDue,
        About::DiscardWill,
    ];
    let about = prop_oneof![4 => close, 5 => select(others)];
    let of_connection = (client(), select(vec![0, 0, 0, 1, 2]), about);
    let step = prop_oneof![
        8 => claim.prop_map(|(client, node, process, clean, expiry, delay, how)| {
            let (user, of_another_user, holds, again) = how;
            Step::Claim {
                client, node, process, clean, expiry, delay, user, of_another_user, holds,
                again: again == 0,
            }
        }),
        10 => of_connection.prop_map(|(client, back, about)| {
            Step::OfConnection { client, back, about }
        }),
        1 => (1..3u64, 0..5u64, 0..9_000u64)
            .prop_map(|(node, process, ago)| Step::NodeUp { node, process, ago }),
        2 => Just(Step::Due),
        3 => select(vec![2_500, 5_000, 12_500, HOUR_MS]).prop_map(Step::Pass),
        1 => (1..2_000u64).prop_map(Step::Back),
        1 => Cut::any().prop_map(Step::Cut),
        2 => (any::<usize>(), any::<bool>())
            .prop_map(|(part, restart)| Step::Checkpoint(part, restart)),
        1 => any::<usize>().prop_map(Step::Restart),
    ];
    proptest::collection::vec(step, 1..100)
}

/// What is asked in a step; `None`: nothing.
fn ask(step: &Step, whole: &Half, now: u64, n: usize) -> Option<Ask> {
    let incarnation = |node: u64, process: u64| {
        let known = whole.part.machine.incarnation_of(node).max(1);
        known.saturating_sub(u64::from(process == 0))
    };
    Some(match *step {
        Step::Claim {
            client,
            node,
            process,
            clean,
            expiry,
            delay,
            user,
            of_another_user,
            holds,
            again,
        } => {
            let will = delay.map(|delay| will(&format!("will/{n}"), delay));
            let process = (node, incarnation(node, process));
            let claim = Connect(client, expiry).from(process, clean, will);
            let claim = by(user, of_another_user, claim);
            let claim = if holds { holding(claim) } else { claim };
            Ask::Plain(if again { claim.again() } else { claim })
        }
        Step::NodeUp { node, process, ago } => Ask::Plain(SessionOp::NodeUp {
            node,
            incarnation: match process {
                0 | 1 => incarnation(node, process),
                _ => incarnation(node, 1) + 1,
            },
            last_alive_ms: now + 1_000 - ago,
        }),
        Step::Due => Ask::Plain(SessionOp::Due),
        Step::OfConnection {
            client,
            back,
            about,
        } => {
            let given = whole.given.0.get(client)?;
            let number = given.len().saturating_sub(back);
            match about {
                About::Disconnect(expiry, will) => Ask::Disconnect(client, number, expiry, will),
                About::Fired => Ask::Fired(client, number),
                About::FireAgain => Ask::FireAgain(client, number),
                About::Gone => Ask::Gone(client, number),
                About::WillDue => Ask::WillDue(client, number),
                About::DiscardWill => Ask::DiscardWill(client, number),
            }
        }
        _ => return None,
    })
}

/// All parts answer what the whole answers, each for its own clients.
fn check_answers(whole: &mut Half, parts: &mut [Half], now: u64, ask: &Ask) {
    let (reply, heard) = whole.apply(now, ask);
    let mut asked = 0;
    for half in parts.iter_mut() {
        if !half.part.takes(&ask.op(&half.given)) {
            continue;
        }
        asked += 1;
        let (own_reply, own_heard) = half.apply(now, ask);
        assert_eq!(own_reply, reply, "{ask:?}");
        let expected = heard.iter().filter(|(client, ..)| half.part.has(client));
        assert_eq!(own_heard, expected.cloned().collect::<Vec<_>>(), "{ask:?}");
    }
    let is_for_one = SessionMachine::slot(&ask.op(&whole.given), HASH).is_some();
    assert_eq!(asked, if is_for_one { 1 } else { parts.len() });
}

/// Together they hold what the whole holds.
fn check_state(whole: &Half, parts: &[Half]) {
    for client in CLIENTS {
        let half = parts.iter().find(|half| half.part.has(client)).unwrap();
        assert_eq!(half.describe(client), whole.describe(client), "{client}");
    }
    let mut known: Vec<_> = parts.iter().flat_map(Half::known).collect();
    known.sort();
    assert_eq!(known, whole.known());
    let machines = || parts.iter().map(|half| &half.part.machine);
    let whole_machine = &whole.part.machine;
    assert_eq!(
        machines().filter_map(SessionMachine::next_deadline).min(),
        whole_machine.next_deadline()
    );
    let counts = |machine: &SessionMachine| {
        let counts = machine.counts();
        let away = [0, 1, 2, 5, 20].map(|hour| away_before(machine, Timestamp(hour * HOUR_MS)));
        let rest = [
            counts.records,
            counts.connected,
            counts.wills,
            counts.firing,
            counts.held,
            counts.ending,
        ];
        [&rest[..], &away[..]].concat()
    };
    let mut sums = vec![0; 11];
    for machine in machines() {
        let of_part = counts(machine);
        sums.iter_mut()
            .zip(of_part)
            .for_each(|(sum, count)| *sum += count);
    }
    assert_eq!(sums, counts(whole_machine));
    for half in parts {
        let machine = &half.part.machine;
        let records = machine.records.iter();
        let deadlines = records.filter_map(|(_, record)| record.deadline());
        let held = machine.held.iter().map(|(.., held)| held.until);
        assert_eq!(
            machine.next_deadline(),
            deadlines.chain(held).min(),
            "of its own clients"
        );
        assert_eq!(
            half.outstanding(SlotRange::ALL),
            whole.outstanding(half.part.range)
        );
        for node in [1, 2] {
            let known = half.part.machine.incarnation_of(node);
            assert_eq!(known, whole_machine.incarnation_of(node));
        }
    }
}

proptest! {
    #[test]
    fn the_parts_of_a_shard_do_what_the_whole_does(steps in steps()) {
        let mut whole = Half::whole();
        let mut parts = vec![Half::whole()];
        let mut now = 1_000_000;
        for (n, step) in steps.iter().enumerate() {
            match *step {
                Step::Pass(ms) => now += ms,
                Step::Back(ms) => now -= ms,
                Step::Cut(cut) => {
                    let ranges = parts.iter().map(|half| half.part.range);
                    if let Some((part, at)) = cut.of(ranges, &CLIENTS) {
                        let child = parts[part].split_off(at);
                        parts.push(child);
                    }
                }
                Step::Checkpoint(n, restart) => {
                    let n = n % parts.len();
                    parts[n].part.checkpoint();
                    if restart {
                        parts[n].part.restart();
                    }
                }
                Step::Restart(n) => {
                    let n = n % parts.len();
                    parts[n].part.restart();
                }
                _ => {}
            }
            if let Some(ask) = ask(step, &whole, now, n) {
                check_answers(&mut whole, &mut parts, now, &ask);
            }
            check_state(&whole, &parts);
        }
        // Together the tables have the rows that the tables of the whole have, each once.
        whole.part.checkpoint();
        parts.iter_mut().for_each(|half| half.part.checkpoint());
        for kind in *b"SWEH" {
            let rows = parts.iter().map(|half| half.part.rows().rows_of(kind));
            prop_assert_eq!(rows.sum::<usize>(), whole.part.table.rows_of(kind));
        }
    }
}

/// A client of each half: its slot is below the slot of the other one.
fn two_clients() -> (&'static str, &'static str) {
    let slot = |client| NameHash::default().slot_of(client);
    if slot("a") < slot("b") {
        ("a", "b")
    } else {
        ("b", "a")
    }
}

/// Cuts a shard where the slot of a client begins.
fn cut(shard: &mut Shard, client: &str) -> Shard {
    Shard {
        machine: shard.machine.split_off(NameHash::default().slot_of(client)),
        table: shard.table.clone(),
    }
}

#[test]
fn each_half_writes_and_removes_its_own_rows() {
    let (low, high) = two_clients();
    let mut shard = Shard::new();
    for client in [low, high] {
        shard.ask(0, Connect(client, 60).will("t", 0));
    }
    shard.checkpoint();
    shard.ask(1, left(low, 1, 0));
    shard.ask(1, left(high, 2, 0));
    let mut child = cut(&mut shard, high);
    for (half, client) in [(&mut shard, low), (&mut child, high)] {
        let rows = |half: &Shard, kind| {
            let keys = half.table.keys_of(kind);
            let own = keys
                .iter()
                .filter(|key| key[3..].starts_with(client.as_bytes()));
            (own.count(), keys.len())
        };
        // Its session and will are removed, and the end of its inbox is written.
        assert_eq!(half.checkpoint(), 3);
        assert_eq!((rows(half, b'S'), rows(half, b'W')), ((0, 1), (0, 1)));
        assert_eq!(rows(half, b'E'), (1, 1));
    }
}

#[test]
fn a_will_is_published_by_one_half() {
    let (low, high) = two_clients();
    let mut shard = Shard::new();
    for (client, epoch) in [(low, 1), (high, 2)] {
        shard.ask(0, Connect(client, 60).will("t", 10));
        shard.ask(1, lost(client, epoch, 60));
    }
    let mut child = cut(&mut shard, high);
    assert_eq!(shard.told(11, SessionOp::Due), [format!("fire {low} 1 t")]);
    assert_eq!(child.told(11, SessionOp::Due), [format!("fire {high} 2 t")]);
    assert_eq!(shard.outstanding(), [format!("fire {low} 1 t")]);
    assert_eq!(child.outstanding(), [format!("fire {high} 2 t")]);
}

#[test]
fn the_halves_of_an_empty_shard_are_empty() {
    for (is_saved, at) in [(false, 1), (false, 30_000), (true, 1), (true, u16::MAX)] {
        let mut shard = Shard::new();
        if is_saved {
            shard.checkpoint();
        }
        let Shard { mut machine, table } = shard;
        let child = machine.split_off(at);
        for machine in [machine, child] {
            let table = table.clone();
            let mut half = Shard { machine, table };
            assert_eq!(half.machine.counts(), SessionCounts::default());
            assert_eq!(half.machine.next_deadline(), None);
            let is_all = half
                .machine
                .rebuild_part(1, &half.table, &mut Heard::default());
            assert_eq!(is_all, Ok(true));
            assert_eq!(half.checkpoint(), usize::from(!is_saved), "the machine");
            assert_eq!(half.claimed(1, Connect("a", 0).op()).epoch, 1);
        }
    }
}

#[test]
#[should_panic(expected = "no split within a checkpoint")]
fn no_split_comes_within_a_checkpoint() {
    let mut shard = Shard::new();
    shard.machine.collect(&mut Changes::default());
    let _ = shard.machine.split_off(1);
}

#[test]
#[should_panic(expected = "no split within an operation")]
fn no_split_comes_within_an_operation() {
    let mut shard = Shard::new();
    for n in 0..300 {
        shard.ask(0, Connect(&n.to_string(), 60).op());
    }
    let up = SessionOp::NodeUp {
        node: 1,
        incarnation: 2,
        last_alive_ms: 0,
    };
    let part = shard
        .machine
        .apply_part(&header(1), &up, &shard.table, &mut Heard::default());
    assert_eq!(part, Ok(None));
    let _ = shard.machine.split_off(1);
}

#[test]
#[should_panic(expected = "the parent keeps a slot")]
fn a_parent_keeps_a_slot() {
    let _ = Shard::new().machine.split_off(0);
}

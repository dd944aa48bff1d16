//! Any operations in any order, with checkpoints and crashes, against the model.

use mqtt_session::NEVER_EXPIRES;
use proptest::prelude::*;
use proptest::sample::select;

use super::driver::{self, Connect, by, disconnect, fired, gone, header, holding, will_due};
use super::model::Model;
use crate::session::{OfAnotherUser, SessionMachine, SessionOp, WillAtClose};
use crate::test_replica::Replica;

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
    },
    Disconnect {
        client: &'static str,
        /// Of an earlier connection.
        stale: bool,
        expiry: u32,
        keep: bool,
    },
    /// The end of a connection that was taken over is recorded.
    EndOfHeld {
        n: usize,
        keep: bool,
    },
    NodeUp {
        node: u64,
        /// 0: of a process before the one that is known.
        process: u64,
        ago: u64,
    },
    Fired(usize),
    FireAgain(usize),
    Gone(usize),
    WillDue {
        client: &'static str,
        /// Of an earlier connection.
        stale: bool,
    },
    DiscardWill {
        client: &'static str,
        /// Of an earlier connection.
        stale: bool,
    },
    End {
        client: &'static str,
        /// Of an earlier connection.
        stale: bool,
    },
    Due,
    /// ms.
    Pass(u64),
    /// The next leader's clock is behind, ms.
    Back(u64),
    Collect,
    Saved,
    Crash {
        written: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = || select(vec!["a", "b", "c"]);
    let expiry = || select(vec![0, 0, 5, 10, 20, NEVER_EXPIRES]);
    let delay = proptest::option::of(select(vec![0, 5, 10, 60]));
    let user = || select(vec![None, Some("ann"), Some("ann"), Some("bob")]);
    let other = select(vec![OfAnotherUser::Refuse, OfAnotherUser::Discard]);
    let by = (user(), other, any::<bool>());
    let claim = (
        client(),
        1..3u64,
        0..9u64,
        any::<bool>(),
        expiry(),
        delay,
        by,
    );
    let step = prop_oneof![
        6 => claim.prop_map(|(client, node, process, clean, expiry, delay, by)| {
            let (user, of_another_user, holds) = by;
            Step::Claim {
                client, node, process, clean, expiry, delay, user, of_another_user, holds,
            }
        }),
        6 => (client(), 0..9u8, expiry(), any::<bool>()).prop_map(|(client, n, expiry, keep)| {
            Step::Disconnect { client, stale: n == 0, expiry, keep }
        }),
        2 => (0..9usize, any::<bool>()).prop_map(|(n, keep)| Step::EndOfHeld { n, keep }),
        1 => (1..3u64, 0..5u64, 0..9_000u64)
            .prop_map(|(node, process, ago)| Step::NodeUp { node, process, ago }),
        2 => (0..9usize).prop_map(Step::Fired),
        2 => (0..9usize).prop_map(Step::FireAgain),
        2 => (0..9usize).prop_map(Step::Gone),
        2 => (client(), 0..9u8).prop_map(|(client, n)| Step::WillDue { client, stale: n == 0 }),
        1 => (client(), 0..9u8).prop_map(|(client, n)| Step::DiscardWill { client, stale: n == 0 }),
        1 => (client(), 0..9u8).prop_map(|(client, n)| Step::End { client, stale: n == 0 }),
        2 => Just(Step::Due),
        3 => (1..6u64).prop_map(|n| Step::Pass(n * 2_500)),
        1 => (1..2_000u64).prop_map(Step::Back),
        2 => Just(Step::Collect),
        2 => Just(Step::Saved),
        1 => any::<bool>().prop_map(|written| Step::Crash { written }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// The operation of a step; `None`: the step is none, or there is nothing that it could be about.
fn op(step: &Step, model: &Model, now: u64) -> Option<SessionOp> {
    let incarnation = |node: u64, process: u64| {
        let known = model.nodes.get(&node).copied().unwrap_or(1);
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
        } => {
            let topic = format!("will/{}", model.next);
            let will = delay.map(|delay| driver::will(&topic, delay));
            let process = (node, incarnation(node, process));
            let claim = Connect(client, expiry).from(process, clean, will);
            let claim = by(user, of_another_user, claim);
            if holds { holding(claim) } else { claim }
        }
        Step::Disconnect {
            client,
            stale,
            expiry,
            keep,
        } => {
            let epoch = model.sessions.get(client)?.epoch - u64::from(stale);
            let will = if keep {
                WillAtClose::Keep
            } else {
                WillAtClose::Discard
            };
            disconnect(client, epoch, expiry, will)
        }
        Step::EndOfHeld { n, keep } => {
            let (epoch, (client, ..)) = model.held.iter().nth(n)?;
            let will = if keep {
                WillAtClose::Keep
            } else {
                WillAtClose::Discard
            };
            disconnect(client, *epoch, 0, will)
        }
        Step::NodeUp { node, process, ago } => SessionOp::NodeUp {
            node,
            incarnation: match process {
                0 | 1 => incarnation(node, process),
                _ => incarnation(node, 1) + 1,
            },
            last_alive_ms: now + 1_000 - ago,
        },
        Step::Fired(n) => {
            let ((client, epoch), _) = model.firing.iter().nth(n)?;
            fired(client, *epoch)
        }
        Step::FireAgain(n) => {
            let ((client, epoch), _) = model.firing.iter().nth(n)?;
            SessionOp::FireAgain {
                client: client.as_str().into(),
                epoch: *epoch,
            }
        }
        Step::Gone(n) => {
            let (client, epoch) = model.ending.iter().nth(n)?;
            gone(client, *epoch)
        }
        Step::WillDue { client, stale } => {
            let epoch = model.sessions.get(client)?.epoch - u64::from(stale);
            will_due(client, epoch)
        }
        Step::DiscardWill { client, stale } => SessionOp::DiscardWill {
            client: client.into(),
            epoch: model.sessions.get(client)?.epoch - u64::from(stale),
        },
        Step::End { client, stale } => SessionOp::End {
            client: client.into(),
            epoch: model.sessions.get(client)?.epoch - u64::from(stale),
        },
        Step::Due => SessionOp::Due,
        _ => return None,
    })
}

proptest! {
    #[test]
    fn the_machine_does_what_the_model_does(steps in steps()) {
        let mut model = Model::default();
        let mut often = Replica::<SessionMachine>::new(driver::apply);
        let mut never = Replica::<SessionMachine>::new(driver::apply);
        let mut now = 1_000_000;
        for step in &steps {
            match *step {
                Step::Pass(ms) => now += ms,
                Step::Back(ms) => now -= ms,
                Step::Collect => often.collect(),
                Step::Saved => often.saved(),
                Step::Crash { written } => often.crash(written),
                _ => {}
            }
            if let Some(op) = op(step, &model, now) {
                let expected = model.apply(now, &op);
                prop_assert_eq!(&often.apply(&header(now), &op), &expected, "{:?}", &op);
                prop_assert_eq!(&never.apply(&header(now), &op), &expected, "{:?}", &op);
            }
            prop_assert_eq!(Model::state_of(&often.machine), model.state(), "{:?}", step);
            prop_assert_eq!(Model::state_of(&never.machine), model.state(), "{:?}", step);
        }
        // All that is left of it in the end is in the table, and nothing else.
        often.saved();
        often.collect();
        often.saved();
        often.crash(false);
        prop_assert_eq!(Model::state_of(&often.machine), model.state());
        let wills = model.firing.len() + model.held.len() + often.machine.counts().wills;
        prop_assert_eq!(often.table.rows_of(b'W'), wills);
        prop_assert_eq!(often.table.rows_of(b'S'), model.sessions.len());
        prop_assert_eq!(often.table.rows_of(b'E'), model.ending.len());
        prop_assert_eq!(often.table.rows_of(b'H'), model.held.len());
    }
}

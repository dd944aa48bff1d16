//! Whether this node is to be given clients, as `/readyz` says it: whoever rolls an upgrade stops the next node when this one is
//! ready, and balancers send clients here.
//!
//! After a start the node is ready when its replicas have caught up, once, or after [`PATIENCE`]: a shard that has lost its
//! majority must not keep clients away that need none (P10), and all nodes would say no at once.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use store::Store;

/// How long a node waits at most for its replicas to catch up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Reasons that are named.
const NAMED: usize = 16;

/// Where a node is between its start and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// Its listeners are not open yet.
    #[default]
    Starts,
    /// It serves since then, and its replicas have not caught up.
    CatchesUp(Instant),
    Ready,
    Stops,
}

/// Whether this node is to be given clients.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Stage>);

impl Readiness {
    /// All listeners are bound, and all loops run.
    pub(crate) fn handle_serving(&self, now: Instant) {
        let mut stage = self.0.lock();
        match *stage {
            Stage::Starts => *stage = Stage::CatchesUp(now),
            Stage::Stops => {}
            Stage::CatchesUp(_) | Stage::Ready => unreachable!("a node begins to serve once"),
        }
    }

    /// A shutdown has begun.
    pub(crate) fn handle_stop(&self) {
        *self.0.lock() = Stage::Stops;
    }

    /// Why the node is not ready; nothing: it is. `late`: the replicas that have not caught up, one line each.
    fn look(&self, now: Instant, late: impl FnOnce() -> Vec<String>) -> Result<(), Vec<String>> {
        let mut stage = self.0.lock();
        match *stage {
            Stage::Starts => Err(vec!["the node starts".to_owned()]),
            Stage::Stops => Err(vec!["the node stops".to_owned()]),
            Stage::Ready => Ok(()),
            Stage::CatchesUp(since) => {
                let mut late = late();
                let waited = now.saturating_duration_since(since);
                if !late.is_empty() && waited < PATIENCE {
                    shorten(&mut late);
                    return Err(late);
                }
                *stage = Stage::Ready;
                tell(waited, &late);
                Ok(())
            }
        }
    }

    /// As [`Self::look`], by the replicas of a store. One that is not open yet has none.
    pub(crate) fn judge(&self, store: Option<&Store>) -> Result<(), Vec<String>> {
        let late = || {
            let late = store.map(|store| store.catching_up.late());
            let late = late.unwrap_or_default();
            late.iter().map(ToString::to_string).collect()
        };
        self.look(Instant::now(), late)
    }
}

fn shorten(lines: &mut Vec<String>) {
    let more = lines.len().saturating_sub(NAMED);
    if more > 0 {
        lines.truncate(NAMED);
        lines.push(format!("and {more} more"));
    }
}

fn tell(waited: Duration, late: &[String]) {
    let seconds = waited.as_secs();
    if late.is_empty() {
        tracing::info!(
            seconds,
            "all replicas of this node have caught up: /readyz is 200"
        );
    } else {
        let mut late = late.to_vec();
        shorten(&mut late);
        let late = late.join("; ");
        tracing::warn!(
            seconds,
            late,
            "replicas of this node have not caught up in time: /readyz is 200 all the same"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Input {
        Serving,
        Late,
        CaughtUp,
        LateForLong,
        Stop,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Is {
        Starting,
        Late,
        Ready,
        Stopping,
    }

    /// Before, what happens, and what `/readyz` says then of a node whose replicas are late.
    const TRANSITIONS: &[(Is, Input, Is)] = &[
        (Is::Starting, Input::Serving, Is::Late),
        (Is::Starting, Input::Late, Is::Starting),
        (Is::Starting, Input::CaughtUp, Is::Starting),
        (Is::Starting, Input::LateForLong, Is::Starting),
        (Is::Starting, Input::Stop, Is::Stopping),
        (Is::Late, Input::Late, Is::Late),
        (Is::Late, Input::CaughtUp, Is::Ready),
        (Is::Late, Input::LateForLong, Is::Ready),
        (Is::Late, Input::Stop, Is::Stopping),
        // Once.
        (Is::Ready, Input::Late, Is::Ready),
        (Is::Ready, Input::CaughtUp, Is::Ready),
        (Is::Ready, Input::LateForLong, Is::Ready),
        (Is::Ready, Input::Stop, Is::Stopping),
        (Is::Stopping, Input::Serving, Is::Stopping),
        (Is::Stopping, Input::Late, Is::Stopping),
        (Is::Stopping, Input::CaughtUp, Is::Stopping),
        (Is::Stopping, Input::LateForLong, Is::Stopping),
        (Is::Stopping, Input::Stop, Is::Stopping),
    ];

    fn late() -> Vec<String> {
        vec!["late".to_owned()]
    }

    fn tell(readiness: &Readiness, began: Instant, input: Input) {
        let soon = began + Duration::from_secs(1);
        let _ = match input {
            Input::Serving => {
                readiness.handle_serving(began);
                Ok(())
            }
            Input::Late => readiness.look(soon, late),
            Input::CaughtUp => readiness.look(soon, Vec::new),
            Input::LateForLong => readiness.look(began + PATIENCE, late),
            Input::Stop => {
                readiness.handle_stop();
                Ok(())
            }
        };
    }

    fn is(readiness: &Readiness, began: Instant) -> Is {
        match readiness.look(began, late) {
            Ok(()) => Is::Ready,
            Err(lines) => match lines[0].as_str() {
                "the node starts" => Is::Starting,
                "late" => Is::Late,
                "the node stops" => Is::Stopping,
                other => panic!("{other}"),
            },
        }
    }

    #[test]
    fn a_node_becomes_ready_once_and_stops_once() {
        for &(before, input, after) in TRANSITIONS {
            let (readiness, began) = (Readiness::default(), Instant::now());
            let way: &[Input] = match before {
                Is::Starting => &[],
                Is::Late => &[Input::Serving],
                Is::Ready => &[Input::Serving, Input::CaughtUp],
                Is::Stopping => &[Input::Stop],
            };
            for step in way {
                tell(&readiness, began, *step);
            }
            assert_eq!(is(&readiness, began), before);
            tell(&readiness, began, input);
            assert_eq!(is(&readiness, began), after, "{before:?}, {input:?}");
        }
        // A node that serves does not begin to.
        assert_eq!(TRANSITIONS.len(), 4 * 5 - 2);
    }

    #[test]
    fn many_late_replicas_make_a_short_answer() {
        let (readiness, began) = (Readiness::default(), Instant::now());
        readiness.handle_serving(began);
        let many = || vec!["late".to_owned(); 1_000];
        let lines = readiness.look(began, many).unwrap_err();
        assert_eq!(lines.len(), NAMED + 1);
        assert_eq!(lines.last().map(String::as_str), Some("and 984 more"));
    }
}

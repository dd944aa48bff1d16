//! The messages that each publisher sends before the load, and that must be acknowledged.
//!
//! They are counted and looked for like all others, but not timed.

use super::{Engine, EngineError, OnTurn, PATIENCE, Patience};
use crate::clock::monotonic_ns;
use crate::topology::share;

/// Sends them until all are acknowledged, or sent at QoS 0. All clients of all shares must be connected. `on_turn`
/// is called after each turn and may end the wait.
///
/// # Errors
/// A client failed, or the broker refused a message or stopped acknowledging.
pub(crate) fn warm_up(engine: &mut Engine, on_turn: &mut OnTurn<'_>) -> Result<(), EngineError> {
    let mut patience = Patience::start(PATIENCE);
    // By part.
    let mut begun = vec![0; engine.parts.len()];
    loop {
        let now_ns = monotonic_ns();
        for (number, begun) in begun.iter_mut().enumerate() {
            while let Some(actor) = next(engine, number, *begun) {
                let part = &mut engine.parts[number];
                part.publishers[actor].waiting.push_back(now_ns);
                part.waiting += 1;
                *begun += 1;
                engine.send_waiting(number, actor, now_ns)?;
            }
        }
        let wanted: usize = (0..begun.len()).map(|part| all(engine, part)).sum();
        let left = engine.parts.iter().map(|part| part.unfinished()).sum();
        let done = begun.iter().sum::<usize>().saturating_sub(left);
        if done == wanted {
            return Ok(());
        }
        if engine.refused > 0 || patience.is_over(done as u64) {
            return Err(EngineError::WarmUp {
                acknowledged: done,
                wanted,
                refusal: engine.last_refusal,
            });
        }
        let mut until_ns = patience.until_ns();
        if let Some(tick_ns) = on_turn(engine)? {
            until_ns = until_ns.min(tick_ns);
        }
        engine.turn(until_ns)?;
    }
}

/// Messages of a part of this share.
fn all(engine: &Engine, part: usize) -> usize {
    let part = &engine.parts[part];
    part.part.warm_up_messages * part.publishers.len()
}

/// The publisher, by its place in the share, of the message that comes after so many, if it may be sent now.
fn next(engine: &Engine, number: usize, begun: usize) -> Option<usize> {
    let part = &engine.parts[number];
    let of = (engine.share.index, engine.share.of);
    let most = part.part.most_concurrent;
    let most = most.map_or(usize::MAX, |most| own_share(most, of));
    let is_next = begun < all(engine, number) && part.unfinished() < most;
    is_next.then(|| begun % part.publishers.len())
}

/// A worker's share of what may go on at a time: at least one thing.
pub(super) fn own_share(most: usize, (index, of): (usize, usize)) -> usize {
    share(most, index, of).len().max(1)
}

//! A claim that begins after another one of the same client was answered gets a higher epoch; no two claims
//! get the same.

use crate::history::History;

pub(super) fn check(history: &History) -> Result<(), String> {
    for (at, claim) in history.claims.iter().enumerate() {
        for later in &history.claims[at + 1..] {
            if claim.client != later.client {
                continue;
            }
            let is_same = claim.epoch == later.epoch;
            let is_lower = later.asked > claim.answered && later.epoch <= claim.epoch;
            if is_same || is_lower {
                return Err(format!("two owners: {claim:?}, {later:?}"));
            }
        }
    }
    Ok(())
}

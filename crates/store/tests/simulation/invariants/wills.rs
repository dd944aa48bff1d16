//! A will is published if its connection ended without DISCONNECT, and not while it is open, or if it ended
//! with one. That it reaches who has subscribed is `acknowledged.rs`; that it is recorded, `quiet.rs`.

use crate::history::{History, WillFate};

pub(super) fn check(history: &History) -> Result<(), String> {
    for (number, fate) in &history.wills {
        let published = history.published.get(number);
        let is_acknowledged = published.is_some_and(|will| will.acknowledged.is_some());
        match fate {
            WillFate::Connected(epoch) | WillFate::Discarded(epoch)
                if history.has_fired(*number, *epoch) =>
            {
                return Err(format!("will {number} is published, and is {fate:?}"));
            }
            WillFate::Due if !is_acknowledged => {
                return Err(format!("will {number} was due and is not published"));
            }
            _ => {}
        }
    }
    Ok(())
}

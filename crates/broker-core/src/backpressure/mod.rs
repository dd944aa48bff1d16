//! Full subscribers that slow their publishers down.

pub(crate) mod held;
pub(crate) mod held_time;
pub(crate) mod hold;
pub(crate) mod pairs;
pub(crate) mod remote_pauses;
pub(crate) mod slow;
mod stalls;
#[cfg(test)]
mod tests;
pub(crate) mod throttle;

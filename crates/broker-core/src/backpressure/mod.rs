//! Full subscribers that slow their publishers down.

pub(crate) mod held;
pub(crate) mod hold;
pub(crate) mod stalls;

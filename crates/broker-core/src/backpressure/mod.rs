//! Full subscribers that slow their publishers down.

pub(crate) mod hold;
pub(crate) mod stalls;

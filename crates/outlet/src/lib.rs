//! What outlets and inlets do with messages, as state machines without I/O.
//!
//! Purpose: an outlet takes the messages of a durable session to another system, its target, and acknowledges each to the broker
//! when the target has it. [`Pump`] decides what goes to the target when, and what is acknowledged; [`Template`] says what a
//! text of the configuration is for a message.
//!
//! ```text
//! session ─ handle_item ─► Pump ─ Action::Deliver ─► target
//!         ◄ Action::Acknowledge ─┘ ◄─ handle_delivery ─┘
//! ```
//!
//! Invariants: a message is acknowledged only when the target has it, or its dead letter is stored, or its drop is counted.
//! Acknowledgements have the order of the messages. One batch at most is with the target. A batch that is tried again has the same
//! messages. Messages that wait here have [`Options::memory`] bytes and one message at most.
//!
//! [`Inlet`] is the other direction: what is published at the node, and acknowledged to another broker.
//!
//! Deliberately absent: clock, randomness, connections, and what targets there are.
//!
//! Where to read next: `pump.rs`, `inlet.rs`.

mod backoff;
mod inlet;
mod item;
mod properties;
mod pump;
mod template;

pub use backoff::Backoff;
pub use inlet::{
    Inlet, InletAction, InletDrop, InletFigures, InletOptions, InletState, MessageNumber,
    NodeAnswer,
};
pub use item::{
    Attempt, Incarnation, Item, Milliseconds, ParsePositionError, Position, Sequence, Total,
};
pub use properties::StandardProperties;
pub use pump::{
    Action, BatchLimits, Delivery, Figures, LetterOutcome, OpenError, Options, Pump, Refusal, State,
};
pub use template::{ParseTemplateError, RenderError, Template};

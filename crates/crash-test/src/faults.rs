//! What is done to a broker besides killing it.

mod journal;
mod power;
mod shim;
mod tamper;

pub use journal::JournalError;
pub use power::{Filesystem, Folder, Lost, PowerError, Survivors, lose_power};
pub use shim::Shim;
pub use tamper::{flip_bit, tear_newest};

//! What operators ask of the nodes while a run goes on.

use crate::control::Changes;
use crate::splits::Splits;

/// What is asked of the nodes beside what clients do.
#[derive(Default)]
pub(crate) struct Operators {
    /// How shards are split.
    pub(crate) splits: Splits,
    /// What is changed in the control store.
    pub(crate) changes: Changes,
}

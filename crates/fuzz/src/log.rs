//! Entries of the log, and what their operations do.

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "log",
    run: store::fuzzing::log,
    seeds: store::fuzzing::log_seeds,
};

//! Rows of tables.

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "tables",
    run: store::fuzzing::tables,
    seeds: store::fuzzing::table_seeds,
};

//! `heraldmq bench` and `heraldmq size` of a program that was built without them (Cargo feature `bench`).
//!
//! Deliberately absent: the commands themselves; see `bench/mod.rs`.

use std::ffi::OsString;

use crate::failure::Failure;

/// Not in this program: it was built without the load-testing tool.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Whatever the command is given.
    #[arg(
        hide = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        num_args = 0..
    )]
    given: Vec<OsString>,
}

/// # Errors
///
/// Always: what is asked for is not there.
pub(crate) fn run(_: &Arguments) -> Result<(), Failure> {
    let message = "this program was built without `bench` and `size`, and without optimisations, to be there sooner\n\
        `cargo build --release -p heraldmq` builds one that has both, in target/release";
    Err(Failure::Usage(message.to_owned()))
}

pub(crate) mod size {
    pub(crate) use super::{Arguments, run};
}

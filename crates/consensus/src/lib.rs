//! Replicated state machines of one node: Raft groups over one synced log.
//!
//! Purpose: a [`Group`] agrees on [`Command`]s and hands them, committed and in order, to a
//! [`StateMachine`]. All groups of a node append to one [`Log`], whose single thread merges what they
//! want to write into one synced write (group commit).
//!
//! Invariant: a proposal resolves, and a command is applied, only after it is on the disks of a majority
//! and on this one. After a failed write or sync the log acknowledges nothing, ever again.
//!
//! Deliberately absent: what the commands mean; the tables that state machines keep (they say with a
//! [`Mark`] how far those reach, and read and write them for snapshots); how other nodes are reached, which
//! is a [`Network`]; who should be a member, which the owner of a group decides.
//!
//! The libraries beneath, openraft and raft-engine, show in no signature. Where to read next:
//! `group.rs`, then `group_log.rs` and `wal.rs`; `rpc.rs` and `snapshot.rs` for what goes to other nodes.

#![forbid(unsafe_code)]

mod blocking;
mod catch_up;
mod check;
mod command;
mod disk;
mod encoding;
mod ends;
mod engine;
mod files;
mod floor;
mod folder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod group_log;
mod handle;
mod keep;
mod log;
mod log_error;
mod log_files;
#[cfg(feature = "simulation")]
mod lose;
mod loss;
mod machine;
mod mark;
mod members;
mod mend;
mod network;
mod numbers;
mod one_bit;
mod options;
mod record;
mod recorder;
mod replay;
mod request;
mod rpc;
mod scrub;
mod seed;
mod settle;
mod shorten;
#[cfg(feature = "simulation")]
pub mod simulation;
mod snapshot;
mod standing;
mod state_machine;
mod stats;
mod tail;
mod types;
mod view;
mod wal;

pub use blocking::blocking;
pub use catch_up::CatchUp;
pub use check::{Damage, Finding};
pub use command::{Command, CorruptCommand, Encoded};
pub use files::{File, Files};
pub use group::{
    Birth, COMMAND_LIMIT, Group, GroupOptions, LinearizeError, Progress, Proposal, ProposeError,
    RecoveryError, StartError,
};
pub use log::Log;
pub use log_error::LogError;
pub use loss::Missing;
pub use mark::{CorruptMark, Mark};
pub use members::ChangeError;
pub use network::{Network, Nobody, Unreachable};
pub use numbers::{EntryIndex, GroupId};
pub use options::LogOptions;
pub use scrub::{LogScrub, Scrubbed, SyncedFile};
pub use seed::Origin;
pub use snapshot::{SnapshotReader, SnapshotWriter, Tables};
pub use standing::{Members, Standing};
pub use state_machine::{Applied, StateMachine};
pub use stats::{LogStats, Places, Waits};
pub use view::LogView;
pub use wal::Condition;

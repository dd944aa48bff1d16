//! What the API asks of the control store: users, groups and rules that change while a cluster runs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use control::{By, ChainHash, Change, EntryNumber, Recorded, Refused, Revision, Verifier};
use control_view::View;
use futures_util::future::BoxFuture;
use zeroize::Zeroizing;

use crate::backend::Asked;
use crate::trail::Trail;

/// Why a change was not made, or may not have been made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeError {
    /// The store refuses it: nothing was changed.
    Refused(Refused),
    /// The store cannot be asked, because it has no leader or no majority: nothing was changed. Why.
    Unavailable(String),
    /// The cluster does not have the store yet, since its upgrade is not finished: nothing was changed. Why.
    Behind(String),
    /// The node goes by its files only (`control.mode: file`): nothing was changed.
    Off,
    /// The store was asked and no answer has come: the change may have been made.
    Unknown,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(Refused { which, why }) => write!(f, "change {which}: {why:?}"),
            Self::Unavailable(why) => f.write_str(why),
            Self::Behind(why) => f.write_str(why),
            Self::Off => f.write_str(
                "this node goes by its files only (control.mode: file): change them there",
            ),
            Self::Unknown => f.write_str("no answer has come, and the change may have been made"),
        }
    }
}

impl std::error::Error for ChangeError {}

/// A change that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// The revision of the store with it.
    pub revision: Revision,
    /// Members that are up, and at which it does not count yet.
    pub missing: Vec<control::Node>,
}

/// A part of the audit, as the asked node has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditPart {
    /// The entries that are kept: the first one, and the next one to come.
    pub kept: Range<EntryNumber>,
    /// The hash of the last entry.
    pub head: ChainHash,
    /// The entries that were asked for, in order, without a gap.
    pub entries: Vec<(EntryNumber, Arc<Recorded>)>,
}

/// A change that is waited for.
pub type Changing = BoxFuture<'static, Result<Made, ChangeError>>;

/// Whether hashes count that are one round of SHA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WeakHashes {
    /// They are refused.
    Refuse,
    /// They count.
    Accept,
}

/// The control store, as the API sees it. Methods without a future wait for short locks only.
pub trait Access: fmt::Debug + Send + Sync + 'static {
    /// The records as this node has them.
    fn view(&self) -> Arc<View>;

    /// The node that answers, as changes name it.
    fn node(&self) -> control::Node;

    /// For how long this node has not known whether its copy is current; zero while it does.
    fn age(&self) -> Duration;

    /// Makes all changes or none. Answered when they count at all nodes, or a few seconds after they were made.
    fn change(&self, by: By, changes: Vec<Change>) -> Changing;

    /// The first `limit` entries of the audit from a number on, some hundred at most; waits for the disk. `None`: this node cannot read
    /// its copy, or has none.
    fn audit(&self, from: EntryNumber, limit: usize) -> Option<AuditPart>;

    /// Who takes what else is to be in the audit.
    fn trail(&self) -> Arc<dyn Trail>;

    /// Hashes a password with argon2id, on a thread that may take some 30 ms, and never on more threads than logins use.
    fn hash(&self, password: Zeroizing<String>) -> Asked<Verifier>;

    /// What a hash of a password file is kept as.
    ///
    /// # Errors
    /// The text is no hash of a known format, or a weak one while these are refused, or checking a password by it would cost too much. The error has nothing of the text.
    fn verifier(&self, hash: &str, weak: WeakHashes) -> Result<Verifier, String>;
}

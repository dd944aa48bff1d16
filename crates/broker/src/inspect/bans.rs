//! Bans: as the file and the guard have them.

use std::io;
use std::sync::Arc;

use admin::api::{At, Ban, NewBan};
use admin::problem::{Kind, Problem};
use guard::{Bans, Change, Subject, TooMany};

use super::state::Inspect;

/// The longest reason that is kept, in bytes.
const LONGEST_REASON: usize = 1_024;

/// Bounds times, so that sums of them stay far from overflow: a hundred years.
const LONGEST_BAN_S: u64 = 100 * 365 * 24 * 3600;

/// Why the bans are as they were.
enum Unchanged {
    Unknown(u64),
    Full,
    File(io::Error),
}

impl From<io::Error> for Unchanged {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<TooMany> for Unchanged {
    fn from(TooMany: TooMany) -> Self {
        Self::Full
    }
}

impl From<Unchanged> for Problem {
    fn from(unchanged: Unchanged) -> Self {
        match unchanged {
            Unchanged::Unknown(id) => {
                Self::new(Kind::NotFound, format!("there is no ban {id}")).with("kind", "ban")
            }
            Unchanged::Full => Self::new(Kind::Conflict, "there are too many bans"),
            Unchanged::File(error) => {
                tracing::error!(%error, "the file with the bans cannot be written");
                let why = format!("the file with the bans cannot be written: {error}");
                Self::new(Kind::Internal, why)
            }
        }
    }
}

impl Inspect {
    /// The first ones behind a number, and whether more follow.
    pub(super) fn bans_here(&self, after: Option<u64>, limit: usize) -> (Vec<Ban>, bool) {
        let bans = self.node.guard.bans();
        let mut behind = bans.iter_after(after, self.node.rim.clock.now_ms());
        let listed = behind.by_ref().take(limit).map(row).collect();
        (listed, behind.next().is_some())
    }

    pub(super) async fn add_ban(self: Arc<Self>, wanted: NewBan) -> Result<Ban, Problem> {
        let now_ms = self.node.rim.clock.now_ms();
        let wanted = check(wanted, now_ms);
        let (subject, reason, expires_ms) =
            wanted.map_err(|why| Problem::new(Kind::InvalidBody, why))?;
        let added = self.change_bans(now_ms, move |bans| {
            Ok(bans.add(subject, reason, now_ms, expires_ms)?)
        });
        let ban = added.await?;
        tracing::info!(id = ban.id, subject = ?ban.subject, reason = ban.reason, "ban added");
        self.node.rim.check_bans();
        self.tell_bans(&Change::Banned(ban.clone()));
        Ok(row(&ban))
    }

    pub(super) async fn remove_ban(self: Arc<Self>, id: u64) -> Result<(), Problem> {
        let now_ms = self.node.rim.clock.now_ms();
        let removed = self.change_bans(now_ms, move |bans| {
            bans.lift(id, now_ms).ok_or(Unchanged::Unknown(id))
        });
        let ban = removed.await?;
        tracing::info!(id, subject = ?ban.subject, "ban removed");
        let known = self.node.guard.bans().lifted_of(&ban.subject);
        if let Some(lifted) = known {
            self.tell_bans(&Change::Lifted(lifted));
        }
        Ok(())
    }

    /// The nodes in reach hear of it at once, the others when they are.
    fn tell_bans(&self, change: &Change) {
        if let Some(bans) = self.node.rim.bans() {
            bans.tell(change);
        }
    }

    /// Changes the bans on a thread that may wait for the disk.
    async fn change_bans(
        &self,
        now_ms: u64,
        change: impl FnOnce(&mut Bans) -> Result<guard::Ban, Unchanged> + Send + 'static,
    ) -> Result<guard::Ban, Unchanged> {
        let (node, file) = (Arc::clone(&self.node), Arc::clone(&self.ban_file));
        tokio::task::spawn_blocking(move || file.change(&node.guard, now_ms, change))
            .await
            .map_err(io::Error::from)?
    }
}

fn check(wanted: NewBan, now_ms: u64) -> Result<(Subject, String, Option<u64>), String> {
    if wanted.reason.len() > LONGEST_REASON {
        return Err(format!("a reason has at most {LONGEST_REASON} bytes"));
    }
    let is_short = |s: u64| (1..=LONGEST_BAN_S).contains(&s);
    if wanted.seconds.is_some_and(|seconds| !is_short(seconds)) {
        return Err(format!("a ban lasts 1 to {LONGEST_BAN_S} seconds"));
    }
    let subject = Subject::new(wanted.client, wanted.user, wanted.address.as_deref())?;
    let expires_ms = wanted.seconds.map(|seconds| now_ms + seconds * 1_000);
    Ok((subject, wanted.reason, expires_ms))
}

fn row(ban: &guard::Ban) -> Ban {
    let mut row = Ban {
        id: ban.id,
        client: None,
        user: None,
        address: None,
        reason: ban.reason.clone(),
        created: At::unix_ms(ban.created_ms),
        expires: ban.expires_ms.map(At::unix_ms),
    };
    match &ban.subject {
        Subject::Client(name) => row.client = Some(name.to_string()),
        Subject::User(name) => row.user = Some(name.to_string()),
        Subject::Address(network) => row.address = Some(network.to_string()),
    }
    row
}

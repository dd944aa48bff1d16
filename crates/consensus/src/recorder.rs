//! When the log's thread writes down how far the log is synced: `ends.rs` says what, and in which order.
//!
//! Invariant: no clock is read for it when something is appended: the end of the last sync is the time.

use std::io;
use std::time::{Duration, Instant};

use crate::disk::Health;
use crate::ends::{DELAY, Ends, EndsFile};
use crate::options::LogOptions;
use crate::request::Request;

/// What is on the disk for certain, and the file that says so.
pub(crate) struct Recorder {
    ends: Ends,
    file: EndsFile,
    /// When what has changed is to be written at the latest; `None`: nothing has changed.
    due: Option<Instant>,
    /// When something was last synced, or its being written down was put off.
    changed_at: Instant,
    interval: Duration,
}

impl Recorder {
    /// `ends`: what is known when the log is opened.
    pub(crate) fn new(ends: Ends, file: EndsFile, options: &LogOptions) -> Self {
        Self {
            interval: options.ends_interval,
            ends,
            file,
            due: None,
            changed_at: Instant::now(),
        }
    }

    /// Takes in what was written and synced, and says, unsynced, where the log ends now.
    pub(crate) fn note(&mut self, requests: &[Request], health: &Health) {
        self.ends.note(requests);
        self.plan(health.synced_at());
        if let Some(newest) = health.newest_end()
            && let Err(error) = self.file.hint(newest)
        {
            // It would have been of use after a crash only.
            tracing::debug!(%error, "the end of the log is not written down");
        }
    }

    /// Something has changed.
    pub(crate) fn plan(&mut self, now: Instant) {
        self.changed_at = now;
        self.due.get_or_insert(now + self.interval);
    }

    /// It could not be written down, and is tried again soon.
    pub(crate) fn postpone(&mut self, now: Instant) {
        self.changed_at = now;
        self.due = Some(now + self.interval);
    }

    /// Whether all that is appended is to be written down before it is answered.
    pub(crate) fn is_wanted_at_once(&self) -> bool {
        self.interval.is_zero()
    }

    /// When what has changed is to be written if nothing else comes.
    pub(crate) fn idle_due(&self) -> Option<Instant> {
        self.due.map(|due| due.min(self.changed_at + DELAY))
    }

    /// Whether it is to be written now. `is_idle`: nothing has come until [`Self::idle_due`].
    pub(crate) fn is_due(&self, is_idle: bool) -> bool {
        self.due
            .is_some_and(|due| is_idle || due <= self.changed_at)
    }

    /// As of [`Ends::lower`].
    pub(crate) fn lower(&mut self, requests: &[Request]) -> bool {
        self.ends.lower(requests)
    }

    /// As of [`Ends::may_lower`].
    pub(crate) fn may_lower(&self, request: &Request) -> bool {
        self.ends.may_lower(request)
    }

    /// Writes and syncs.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn write(&mut self, health: &Health, is_orderly: bool) -> io::Result<()> {
        self.ends.is_orderly = is_orderly;
        self.ends.files = health.synced_ends();
        self.file.write(&self.ends)?;
        self.due = None;
        Ok(())
    }
}

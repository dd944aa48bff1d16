//! Notes for the audit go to the control store, and the head of the audit to the log.
//!
//! Deliberately absent: what waits (`audit_notes.rs`), and how the store is asked (`control_requests.rs`).

use std::sync::Arc;
use std::time::Duration;

use control::{EntryNumber, Node as NodeNumber, UnixMs};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};

use control_view::Standing;

use crate::control_requests::{self, Noted};
use crate::node::Node;

/// How often notes go to the store.
const PAUSE: Duration = Duration::from_secs(1);
/// How often sums become notes.
const SUMS: Duration = Duration::from_secs(60);
/// How often the head of the audit is in the log, while it changes.
const HEAD: Duration = Duration::from_secs(60 * 60);

/// Whether there is an audit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Audit {
    /// Notes go there.
    Open,
    /// The store has not begun, or the level of its shard has no notes.
    Absent,
    /// The store had begun when the node started, and the node has neither a replica that says the level nor heard of another node.
    Unknown,
}

fn audit(node: &Node) -> Audit {
    let store = &node.store().control_store;
    let is_unused = node.rim.control.view.standing() == Standing::Unused;
    let has_begun = store.has_begun();
    if is_unused && !has_begun {
        return Audit::Absent;
    }
    match (control_requests::level(node).has_people(), store.level()) {
        (true, _) if has_begun => Audit::Open,
        (false, Some(_)) => Audit::Absent,
        (true, _) | (false, None) => Audit::Unknown,
    }
}

/// Sends notes as they come.
pub(crate) async fn run(node: &Arc<Node>) {
    let notes = &node.rim.audit_notes;
    let mut interval = interval(PAUSE);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut summed, mut told) = (Instant::now(), None);
    let mut last_head = None;
    loop {
        let now = interval.tick().await;
        let own = NodeNumber(node.store().node());
        let at = UnixMs(node.rim.clock.now_ms());
        match audit(node) {
            Audit::Open => {}
            Audit::Absent => {
                notes.handle_unused();
                continue;
            }
            Audit::Unknown => {
                keep(node).await;
                continue;
            }
        }
        if now.duration_since(summed) >= SUMS {
            summed = now;
            notes.handle_minute(own, at);
        }
        let mut has_failed = false;
        while let Some(batch) = notes.next(own, at, || control_requests::note_id(node)) {
            let id = batch.id;
            match control_requests::note(node, batch).await {
                Noted::Sent => notes.handle_sent(id),
                Noted::Later => {
                    has_failed = true;
                    break;
                }
            }
        }
        // What goes at once leaves no trace on the disk.
        if has_failed || notes.is_written() {
            keep(node).await;
        }
        if told.is_none_or(|told| now.duration_since(told) >= HEAD) {
            told = Some(now);
            let asked = Arc::clone(node);
            let part = spawn_blocking(move || asked.store().control_store.audit(EntryNumber(0), 0));
            if let Ok(Some(part)) = part.await
                && last_head != Some(part.head)
            {
                last_head = Some(part.head);
                tracing::info!(
                    entries = part.kept.end.0,
                    head = control_document::hash_text(part.head),
                    "audit.head"
                );
            }
        }
    }
}

async fn keep(node: &Arc<Node>) {
    let kept = Arc::clone(node);
    if let Err(error) = spawn_blocking(move || kept.rim.audit_notes.keep()).await {
        tracing::error!(%error, "notes for the audit are not written to the data folder");
    }
}

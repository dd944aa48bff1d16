//! Notes for the audit go to the control store, and the head of the audit to the log.
//!
//! Deliberately absent: what waits (`audit_notes.rs`), and how the store is asked (`control_requests.rs`).

use std::sync::Arc;
use std::time::Duration;

use control::{EntryNumber, Node as NodeNumber, UnixMs};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::control_requests::{self, Noted};
use crate::node::Node;

/// How often notes go to the store.
const PAUSE: Duration = Duration::from_secs(1);
/// How often sums become notes.
const SUMS: Duration = Duration::from_secs(60);
/// How often the head of the audit is in the log, while it changes.
const HEAD: Duration = Duration::from_secs(60 * 60);

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
        if !node.store().control_store.has_begun() || !control_requests::level(node).has_people() {
            notes.handle_unused();
            continue;
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
            let kept = Arc::clone(node);
            let _ = spawn_blocking(move || kept.rim.audit_notes.keep()).await;
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

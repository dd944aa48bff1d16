//! The control store, as a running node knows it.
//!
//! Purpose: [`ControlChanges`] has the node's view of the store, and compiles the rules for everybody.
//!
//! Invariant: a list that this version cannot read
//! changes nothing, and no line of it is skipped.
//!
//! Deliberately absent: who fills the view (the listener of the store), how loops hear of a change (`rules_of_all.rs`), and
//! logins (`authentication`).

use std::sync::Arc;

use authorization::{Mistake, Rules};
use control::{Changed, Records, Revision};
use control_view::View;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::control_age::ControlAge;
use crate::control_waiting::ControlWaiting;

/// What a node knows of the control store, and what it has taken over of that.
#[derive(Debug)]
pub(crate) struct ControlChanges {
    /// The users, groups and rules.
    pub(crate) view: Arc<View>,
    pub(crate) changed: Notify,
    /// What this node has asked the store.
    pub(crate) waiting: ControlWaiting,
    /// How long the view may have been out of date.
    pub(crate) age: ControlAge,
    /// Why the rules for everybody cannot be read, if they cannot.
    mistake: Mutex<Option<String>>,
    /// The rules for everybody that count. Held while settings are replaced, so that neither a reload nor a change undoes the
    /// other.
    pub(crate) list: Mutex<Arc<Rules>>,
}

impl ControlChanges {
    pub(crate) fn new(view: Arc<View>) -> Self {
        let waiting = ControlWaiting::default();
        if view.is_off() {
            // What is changed elsewhere does not wait for this node, where nothing of it counts.
            waiting.taken(Revision(u64::MAX));
        }
        Self {
            view,
            changed: Notify::new(),
            waiting,
            age: ControlAge::default(),
            mistake: Mutex::default(),
            list: Mutex::default(),
        }
    }

    /// The node's replica was made of tables.
    pub(crate) fn load(&self, records: Records) {
        if self.view.loaded(records) {
            self.changed();
        }
    }

    /// The node's replica has applied a change.
    pub(crate) fn take(&self, changed: &Changed) {
        if self.view.changed(changed) {
            self.changed();
        }
    }

    /// The view was changed. Waits for nobody.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Why the rules for everybody cannot be read by this version: the first mistake. `None`: they can.
    pub(crate) fn mistake(&self) -> Option<String> {
        self.mistake.lock().clone()
    }

    /// The rules for everybody as the view has them now; what was, if they cannot be read.
    pub(crate) fn compiled(&self, before: &Arc<Rules>) -> Arc<Rules> {
        let list = self.view.rules();
        let mut mistake = self.mistake.lock();
        *mistake = None;
        match Rules::parse(&list.record.0.join("\n")) {
            Ok(rules) if rules == **before => Arc::clone(before),
            Ok(rules) => Arc::new(rules),
            Err(mistakes) => {
                let first = mistakes.first().map(Mistake::to_string);
                let first = first.unwrap_or_default();
                tracing::error!(
                    mistakes = mistakes.len(),
                    "the rules for everybody cannot be read and stay as they were: {first}"
                );
                *mistake = Some(first);
                Arc::clone(before)
            }
        }
    }
}

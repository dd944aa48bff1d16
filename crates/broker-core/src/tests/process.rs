//! The process that a node of the scripts runs in: a clock that stands still, a store that is asked, and messages.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{LoopMessage, Node, Rim};
use authentication_api::{Credentials, DatabaseUser, Source, Step, UserNow, Verdict};
use net_api::PeerAddress;

use super::others::Wires;
use super::store::AskedStore;

/// When scripts begin, in ms of Unix time.
pub(crate) const START_MS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) now_ms: AtomicU64,
    pub(crate) store: AskedStore,
    /// What threads that are no loops have sent to loops.
    pub(crate) messages: Mutex<Vec<(usize, LoopMessage)>>,
    /// What is known of the users of the control store.
    pub(crate) user_now: Mutex<fn() -> UserNow>,
}

impl Process {
    pub(crate) fn new() -> Self {
        Self {
            now_ms: AtomicU64::new(START_MS),
            store: AskedStore::default(),
            messages: Mutex::default(),
            user_now: Mutex::new(|| UserNow::Same),
        }
    }
}

impl Rim for Process {
    type Store = AskedStore;
    type Links = Wires;

    fn store(&self) -> Option<&AskedStore> {
        Some(&self.store)
    }

    fn loops_run(&self) -> bool {
        true
    }

    fn send(&self, loop_index: usize, messages: LoopMessage) {
        self.messages.lock().unwrap().push((loop_index, messages));
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        self.now_ms() * 1_000
    }

    fn system_s(&self) -> u64 {
        self.now_ms() / 1_000
    }

    fn cluster_time_ms(&self, now_ms: u64) -> u64 {
        now_ms
    }

    fn cluster_time_us(&self, now_us: u64) -> u64 {
        now_us
    }

    fn is_proxied(&self, _: u16) -> bool {
        false
    }

    fn trusts(&self, _: u16, _: PeerAddress) -> bool {
        true
    }

    fn has_authenticators(&self) -> bool {
        false
    }

    fn user_now(&self, source: Source, _: &str) -> UserNow {
        match source {
            Source::Control { .. } => (self.user_now.lock().unwrap())(),
            _ => UserNow::Same,
        }
    }

    fn has_too_many_logins(&self) -> bool {
        false
    }

    fn begin_exchange(&self, _: &str, _: &str, _: &[u8]) -> Option<Step> {
        None
    }

    fn authenticate(
        &self,
        _: usize,
        _: Credentials,
        _: impl FnOnce(Verdict, u64) -> LoopMessage + Send + 'static,
    ) {
        unreachable!("there are no authenticators");
    }

    fn look_up(
        &self,
        _: usize,
        _: Arc<DatabaseUser>,
        _: impl FnOnce(Verdict) -> LoopMessage + Send + 'static,
    ) {
        unreachable!("there is no database");
    }

    fn tell_incarnation(&self) {}

    fn sys_topics(&self, _: &Node<Self>) -> Vec<(String, String)> {
        Vec::new()
    }
}

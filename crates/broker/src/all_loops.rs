//! What all event loops of a node are told at once.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use broker_core::{Done, LoopMessage, Settings};
use net::Remote;

use crate::node::ClientLoop;

/// How long the loops may take for a reload, or a step of the shutdown.
pub(crate) const STEP: Duration = Duration::from_secs(5);

/// Sends all loops a step and waits until each has done it.
pub(crate) fn all_loops(remote: &Remote<ClientLoop>, step: impl Fn(Done) -> LoopMessage) {
    let (done, all_done) = mpsc::sync_channel::<()>(0);
    let done: Done = Arc::new(done);
    for index in 0..remote.loops() {
        remote.send(index, step(done.clone()));
    }
    drop(done);
    // Nothing is ever sent: the channel closes when the last loop drops its end.
    let _ = all_done.recv_timeout(STEP);
}

/// Has all loops apply new settings.
pub(crate) fn reload_loops(remote: &Remote<ClientLoop>, settings: &Arc<Settings>) {
    all_loops(remote, |done| {
        LoopMessage::Reload(Arc::clone(settings), done)
    });
}

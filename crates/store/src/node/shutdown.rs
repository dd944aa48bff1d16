//! How the threads of a store are told to end.

use tokio::sync::watch;

/// What the threads are to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Serve.
    No,
    /// Finish what has been given, write a last checkpoint, end.
    InOrder,
}

/// Waits until the store ends.
pub(crate) async fn stops(stopping: &mut watch::Receiver<Stop>) {
    // An error: the store itself is gone.
    let _ = stopping.wait_for(|stop| *stop != Stop::No).await;
}

//! The thread that makes answers: what takes long is done there, and not where connections are accepted, probes answered and bytes
//! sent.
//!
//! Invariant: a request that nobody waits for any more is not worked on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle as Thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

/// Threads for what blocks, at most.
const BLOCKING_THREADS: usize = 16;

/// The thread. It ends with this.
#[derive(Debug)]
pub(crate) struct Worker {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<Thread<()>>,
}

impl Worker {
    /// Begins.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub(crate) fn start() -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()?;
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new()
            .name("http-answers".into())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
            })?;
        Ok(Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where work is given to it.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a panic ended the thread of HTTP answers");
        }
    }
}

/// Does something on a thread, for as long as somebody waits for it.
pub(crate) fn run<T: Send + 'static>(
    handle: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Running<T> {
    Running(handle.spawn(work))
}

/// What is done on another thread; it stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for Running<T> {
    /// An error: the thread has ended, or the work has panicked.
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_nobody_waits_for_stops() {
        let worker = Worker::start().unwrap();
        let (held, gone) = oneshot::channel::<()>();
        let (begins, begun) = oneshot::channel();
        let running = run(worker.handle(), async move {
            let _ = begins.send(std::thread::current().name().map(str::to_owned));
            let () = std::future::pending().await;
            drop(held);
        });
        assert_eq!(begun.await.unwrap().as_deref(), Some("http-answers"));
        drop(running);
        assert!(gone.await.is_err(), "what it holds is dropped");
    }
}

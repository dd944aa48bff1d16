//! Work that may block, where that is fine.

use tokio::task::JoinError;

/// Does work on a thread that may wait. In a simulation it is done on the spot, so that all happens in one
/// order.
///
/// # Errors
/// The runtime ends.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_in_one_thread() {
        tokio::task::yield_now().await;
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

//! What one request may hold.

/// Bytes of one request at most, as the request is written: 64 KiB less than the 32 MiB of a log entry, so that a batch
/// and the log have room for what they add. A longer request is refused with [`Failure::TooLong`](super::Failure::TooLong).
pub const REQUEST_LIMIT: usize = (32 << 20) - 64 * 1024;

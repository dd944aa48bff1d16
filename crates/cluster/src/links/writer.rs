//! Frames on their way into a connection, as many as possible at once.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::protocol::frame::{Frame, KEEP_ALIVE};
use crate::state::outbox::BATCH;

/// Payloads from this length on are not copied.
const COPIED: usize = 32 * 1024;

pub(crate) struct Writer<W> {
    inner: W,
    /// How long the peer may take nothing.
    stall: Duration,
    batch: BytesMut,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(crate) fn new(inner: W, stall: Duration) -> Self {
        let batch = BytesMut::with_capacity(BATCH);
        Self {
            inner,
            stall,
            batch,
        }
    }

    pub(crate) async fn keep_alive(&mut self) -> io::Result<()> {
        self.write(&KEEP_ALIVE).await?;
        self.flush().await
    }

    /// Writes the end of a frame that was begun, and all frames, of which it leaves none.
    pub(crate) async fn frames(&mut self, rest: &[u8], frames: &mut Vec<Frame>) -> io::Result<()> {
        self.write(rest).await?;
        for frame in frames.drain(..) {
            frame.encode_head(&mut self.batch);
            if frame.payload.len() < COPIED {
                self.batch.extend_from_slice(&frame.payload);
            } else {
                self.write_batch().await?;
                self.write(&frame.payload).await?;
            }
        }
        self.write_batch().await?;
        self.flush().await
    }

    async fn write_batch(&mut self) -> io::Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.write(&batch).await?;
        batch.clear();
        self.batch = batch;
        Ok(())
    }

    /// Writes all of it, if the peer takes some of it again and again.
    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let writing = timeout(self.stall, self.inner.write(bytes));
            let written = writing.await.map_err(|_| stalled())??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        let flushing = timeout(self.stall, self.inner.flush());
        flushing.await.map_err(|_| stalled())?
    }
}

fn stalled() -> io::Error {
    io::Error::other("the node takes no bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, duplex};
    use tokio::time::sleep;

    const STALL: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up() {
        let (inner, _peer) = duplex(10);
        let mut writer = Writer::new(inner, STALL);
        let start = tokio::time::Instant::now();
        let mut frames = vec![Frame::message(Bytes::from(vec![0; 100]))];
        let error = writer.frames(&[], &mut frames).await.unwrap_err();
        assert_eq!(error.to_string(), "the node takes no bytes");
        assert_eq!(start.elapsed(), STALL);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_little_is_not_given_up() {
        let (inner, mut peer) = duplex(10);
        let mut writer = Writer::new(inner, STALL);
        let reading = tokio::spawn(async move {
            let mut taken = 0;
            while taken < 105 {
                sleep(STALL - Duration::from_millis(1)).await;
                taken += peer.read(&mut [0; 10]).await.unwrap();
            }
        });
        let mut frames = vec![Frame::message(Bytes::from(vec![0; 100]))];
        writer.frames(&[], &mut frames).await.unwrap();
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn small_and_long_frames_keep_their_order() {
        let (inner, mut peer) = duplex(1024 * 1024);
        let mut writer = Writer::new(inner, STALL);
        let payloads = [1, COPIED, 2, COPIED - 1].map(|length| Bytes::from(vec![7; length]));
        let mut frames = payloads.clone().map(Frame::message).to_vec();
        writer.frames(&[], &mut frames).await.unwrap();
        writer.keep_alive().await.unwrap();
        drop(writer);
        let mut expected = Vec::new();
        for payload in &payloads {
            expected.extend((payload.len() as u32 + 1).to_be_bytes());
            expected.push(0);
            expected.extend_from_slice(payload);
        }
        expected.extend(KEEP_ALIVE);
        let mut written = Vec::new();
        peer.read_to_end(&mut written).await.unwrap();
        assert!(written == expected && frames.is_empty());
    }
}

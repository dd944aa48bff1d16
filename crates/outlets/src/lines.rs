//! What the node and the process tell each other beside MQTT, and what is the same for outlets and inlets.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlet::Milliseconds;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::command::Command;
use crate::report::Told;

/// How often the process says what it does.
pub(crate) const REPORTS: Duration = Duration::from_secs(1);

/// How long CONNACK and SUBACK of the node may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long an end in order waits for what is under way.
pub(crate) const FAREWELL: Duration = Duration::from_secs(5);

/// The longest line of the node, in bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// Why the process ends.
#[derive(Debug)]
pub enum Ended {
    /// The node wants it, or is gone.
    Asked,
    /// Another process has the outlet.
    Fenced,
    /// This has failed.
    Failed(String),
}

/// Tells the node something. An error: it is gone.
pub(crate) async fn tell(node: &mut OwnedWriteHalf, told: &Told) -> io::Result<()> {
    let mut line = serde_json::to_vec(told)?;
    line.push(b'\n');
    node.write_all(&line).await
}

/// Lines of the node. A line that is read in part when the future is dropped is not lost.
pub(crate) struct Lines(BufReader<OwnedReadHalf>, Vec<u8>);

impl Lines {
    pub(crate) fn new(control: OwnedReadHalf) -> Self {
        Self(BufReader::new(control), Vec::new())
    }

    /// `None`: the node is gone.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Command>> {
        loop {
            let read = self.0.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let (part, is_whole) = match read.iter().position(|byte| *byte == b'\n') {
                Some(end) => (&read[..=end], true),
                None => (read, false),
            };
            self.1.extend_from_slice(part);
            let count = part.len();
            self.0.consume(count);
            if is_whole {
                let command = serde_json::from_slice(&self.1)?;
                self.1.clear();
                return Ok(Some(command));
            }
            if self.1.len() as u64 > LONGEST_LINE {
                return Err(io::Error::other("the node says more than a line may have"));
            }
        }
    }
}

/// Unix time.
pub(crate) fn now() -> Milliseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    crate::definition::milliseconds(since.unwrap_or_default())
}

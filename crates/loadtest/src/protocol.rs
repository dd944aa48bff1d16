//! What a coordinator and its workers say to each other, over a pipe or a TCP connection.
//!
//! A frame is a length of 4 bytes, big-endian, and that many bytes of postcard. The run's clock counts ns
//! from the run's beginning; [`Order::epoch_ns`] says when that was by the worker's own clock.
//!
//! Call order, from the coordinator: `Ping` any number of times; `Prepare`; `Connect`; `WarmUp` if the workload
//! has messages for it; `Load`; `Settle`; `Finish`; `Ping`s. The worker answers each but `Connect`, `WarmUp` and
//! `Load` at once, those when they are done, and sends a `Tick` at each mark in between.
//!
//! Invariant: both ends are of the same version, which the worker says first.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{Progress, Target};
use crate::traffic::Totals;
use crate::verify::Findings;
use crate::workload::Workload;

/// Changes whenever a frame does.
pub(crate) const VERSION: &str = concat!("heraldmq-bench ", env!("CARGO_PKG_VERSION"), " 3");

/// Bytes of the longest frame: all that a worker with millions of publishers has to tell.
const LONGEST_FRAME: u32 = 512 << 20;

/// From the coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// To be answered at once; the coordinator's clock comes back.
    Ping(u64),
    Prepare(Box<Order>),
    Connect,
    /// Everybody is connected: send the messages of the warm-up.
    WarmUp,
    Load(Timeline),
    /// Send nothing more, and say how much was sent.
    Settle,
    /// What all workers have sent, by part and publisher.
    Finish(Vec<Vec<u32>>),
}

/// What a worker is to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) workload: Workload,
    pub(crate) index: usize,
    pub(crate) of: usize,
    pub(crate) target: Target,
    pub(crate) prefix: String,
    /// The run's beginning, by the worker's clock.
    pub(crate) epoch_ns: u64,
}

/// When things happen, by the run's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Timeline {
    /// The warm-up begins.
    pub(crate) start_ns: u64,
    /// The measurement begins.
    pub(crate) measure_ns: u64,
    /// The measurement ends, and nothing more is due.
    pub(crate) end_ns: u64,
}

/// From a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// [`VERSION`], before anything else.
    Hello(String),
    /// The coordinator's clock as it came, and the worker's.
    Pong(u64, u64),
    /// How many connections it will have.
    Prepared(usize),
    Tick(Box<Tick>),
    Connected,
    /// The messages of the warm-up are acknowledged.
    WarmedUp,
    /// The end of the measurement has come.
    Loaded,
    /// By part, how many messages each publisher of the share has sent.
    Settled(Vec<Vec<u32>>),
    Finished(Box<Finish>),
    /// It cannot go on.
    Failed(String),
}

/// How far a worker is at a mark.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Tick {
    /// The mark, by the run's clock. All workers have the same ones.
    pub(crate) mark_ns: u64,
    pub(crate) progress: Progress,
    /// Headline times since the tick before: buckets.
    pub(crate) interval: Vec<(u64, u64)>,
    /// CPU time of the worker so far, in ns.
    pub(crate) cpu_user_ns: u64,
    pub(crate) cpu_system_ns: u64,
}

/// What a worker found. Distributions are in buckets: highest time in ns, count.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Finish {
    pub(crate) parts: Vec<PartFinish>,
    pub(crate) connect: Vec<(u64, u64)>,
    pub(crate) subscribe: Vec<(u64, u64)>,
    /// Sentences about what the broker did to clients.
    pub(crate) complaints: Vec<String>,
}

/// What a worker found of a part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct PartFinish {
    pub(crate) totals: Totals,
    pub(crate) findings: Findings,
    /// By publisher of the share.
    pub(crate) acknowledged: Vec<u32>,
    pub(crate) deliver: Vec<(u64, u64)>,
    pub(crate) acknowledge: Vec<(u64, u64)>,
    pub(crate) due_to_sent: Vec<(u64, u64)>,
    pub(crate) tool_lateness: Vec<(u64, u64)>,
}

/// Writes a frame.
///
/// # Errors
/// Those of writing; a frame that is too long.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, value: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let len = u32::try_from(body.len()).ok();
    let len = len.filter(|&len| len <= LONGEST_FRAME);
    let len = len.ok_or_else(|| io::Error::other("a frame is too long"))?;
    to.write_all(&len.to_be_bytes())?;
    to.write_all(&body)?;
    to.flush()
}

/// Reads a frame.
///
/// # Errors
/// Those of reading; a frame that is too long or makes no sense.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len);
    let wrong = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    if len > LONGEST_FRAME {
        return Err(wrong(format!("a frame of {len} bytes is too long")));
    }
    // Grows with what arrives, not with what a stranger promises.
    let mut body = Vec::new();
    from.take(u64::from(len)).read_to_end(&mut body)?;
    if body.len() < len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&body).map_err(|error| wrong(format!("a frame makes no sense: {error}")))
}

/// The mark after `mark_ns`: each whole second, and each moment of the timeline; once the measurement is
/// over, twenty a second.
pub(crate) fn next_mark(mark_ns: u64, timeline: Option<Timeline>) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    const DRAIN_STEP: u64 = SECOND / 20;
    let second = (mark_ns / SECOND + 1) * SECOND;
    let Some(timeline) = timeline else {
        return second;
    };
    if mark_ns >= timeline.end_ns {
        return mark_ns + DRAIN_STEP;
    }
    let moments = [timeline.start_ns, timeline.measure_ns, timeline.end_ns];
    let next = moments.into_iter().filter(|&moment| moment > mark_ns);
    next.chain([second]).min().unwrap_or(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_and_bad_ones_are_errors() {
        let mut bytes = Vec::new();
        let command = Command::Finish(vec![vec![1, 2], vec![]]);
        write(&mut bytes, &command).unwrap();
        assert_eq!(read::<Command>(&mut bytes.as_slice()).unwrap(), command);
        let cut = &bytes[..bytes.len() - 1];
        let error = read::<Command>(&mut &cut[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let long = [0xff; 8];
        let error = read::<Command>(&mut &long[..]).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        let nonsense = [0, 0, 0, 1, 0x7f];
        let error = read::<Command>(&mut &nonsense[..]).unwrap_err();
        assert!(error.to_string().contains("no sense"), "{error}");
    }

    #[test]
    fn marks_are_seconds_and_the_moments_of_the_timeline() {
        let ms = |ms: u64| ms * 1_000_000;
        let timeline = Some(Timeline {
            start_ns: ms(2_000),
            measure_ns: ms(2_300),
            end_ns: ms(3_100),
        });
        assert_eq!(next_mark(0, None), ms(1_000));
        let mut marks = vec![ms(1_000)];
        for _ in 0..6 {
            marks.push(next_mark(marks[marks.len() - 1], timeline));
        }
        let expected = [1_000, 2_000, 2_300, 3_000, 3_100, 3_150, 3_200].map(ms);
        assert_eq!(marks, expected);
    }
}

//! What the process of an outlet and its node say to each other, in lines of JSON.

use serde::{Deserialize, Serialize};

/// Messages, attempts or batches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Count(pub u64);

/// Bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Size(pub u64);

/// A span of time in µs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Micros(pub u64);

/// Unix time in ms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct UnixMs(pub u64);

/// What an outlet does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// The process begins, or waits for its next beginning.
    #[default]
    Starting,
    /// The target is being opened.
    Opening,
    /// Messages go to the target, or would if there were any.
    Running,
    /// An attempt has failed; the next one is waited for.
    Retrying,
    /// Somebody has paused it.
    Paused,
    /// Another process has the outlet.
    Fenced,
}

impl std::ops::Add for Count {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self(self.0 + more.0)
    }
}

impl std::ops::Add for Micros {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self(self.0 + more.0)
    }
}

impl Doing {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Starting,
        Self::Opening,
        Self::Running,
        Self::Retrying,
        Self::Paused,
        Self::Fenced,
    ];

    /// As in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Opening => "opening",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Paused => "paused",
            Self::Fenced => "fenced",
        }
    }
}

/// From the process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Told {
    /// What it does.
    Report(Box<Report>),
    /// From a careful process: rules are evaluated on the message at this position; `None`: not any more.
    Evaluating(Option<String>),
}

/// What a process does, each second and when it ends. Counts are since the start of the process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What it does.
    pub doing: Doing,
    /// Number of the present attempt, from 1; 0: none is made.
    pub attempt: Count,
    /// Why the last attempt failed; `None`: it did not.
    pub last_error: Option<String>,
    /// Messages that the target has taken.
    pub delivered: Count,
    /// Messages that the target had already.
    pub left_out: Count,
    /// Attempts that failed.
    pub retries: Count,
    /// Messages that became dead letters.
    pub dead: Count,
    /// Dead letters that nobody subscribes to.
    pub unclaimed: Count,
    /// Messages that were refused and dropped, as there is no topic for dead letters.
    pub refused: Count,
    /// Messages that a rule did not let go on.
    pub filtered: Count,
    /// Messages that were dropped as they went in a circle of brokers; `delivered` counts them, too.
    pub looped: Count,
    /// Messages in the memory of the process.
    pub waiting_messages: Count,
    /// Their bytes.
    pub waiting_bytes: Size,
    /// The position of the last message that the target has taken.
    pub position: Option<String>,
    /// When it was taken.
    pub delivered_at: Option<UnixMs>,
    /// Time that batches were with the target, and how many there were.
    pub delivering: Micros,
    /// See above.
    pub batches: Count,
}

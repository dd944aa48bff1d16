//! A share of the CPU time of a machine.

use std::fmt;

use crate::declare::Spec;
use crate::setting::{Setting, put};

/// In how many parts a share is kept.
const PARTS: f64 = 1e6;

/// A share of the CPU time of a machine, from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuShare(u32);

impl CpuShare {
    /// `None`: it is not from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&share)
            .then(|| Self((share * PARTS).round() as u32))
    }

    /// From 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / PARTS
    }
}

impl Default for CpuShare {
    /// That of BifroMQ's limit.
    fn default() -> Self {
        Self(800_000)
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Setting for CpuShare {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(self, text.parse().ok().and_then(Self::new))
    }
    fn show(&self, _: &Spec) -> Option<String> {
        Some(self.to_string())
    }
    fn expected(&self, _: &Spec) -> String {
        "a number from 0 to 1".to_owned()
    }
}

//! Fuzz targets: whatever reads bytes from outside, as functions of bytes.
//!
//! Purpose: [`TARGETS`] lists them, each with inputs to begin with. `fuzz/` runs one under libFuzzer; the test
//! of this crate runs all of them briefly, on mutations of their seeds and of the corpus that was kept.
//!
//! Invariant: a target is deterministic, touches no file or socket, and panics only if the code under test is
//! wrong.
//!
//! Deliberately absent: what reads through a private type; that is in the modules `fuzzing` of the crates, which
//! the feature of that name opens.

#![forbid(unsafe_code)]

mod documents;
mod imports;
mod input;
mod jwt;
mod log;
mod packet;
mod peers;
mod proxy;
mod questions;
mod routes;
mod rules;
mod session;
mod tables;
mod tls;
mod websocket;

use input::Input;

/// Something that reads bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of the folder of its corpus.
    pub name: &'static str,
    /// Reads an input. Panics if the code under test is wrong.
    pub run: fn(&[u8]),
    /// Inputs that reach far.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    packet::TARGET,
    session::TARGET,
    proxy::TARGET,
    tls::TARGET,
    websocket::TARGET,
    rules::TARGET,
    jwt::CLAIMS,
    jwt::SCRAM,
    routes::TARGET,
    peers::TARGET,
    Target {
        name: "handshake",
        run: cluster::fuzzing::handshake,
        seeds: cluster::fuzzing::handshake_seeds,
    },
    Target {
        name: "store_messages",
        run: store::fuzzing::messages,
        seeds: store::fuzzing::message_seeds,
    },
    Target {
        name: "questions",
        run: questions::run,
        seeds: questions::seeds,
    },
    Target {
        name: "imports",
        run: imports::run,
        seeds: imports::seeds,
    },
    Target {
        name: "documents",
        run: documents::run,
        seeds: documents::seeds,
    },
    log::TARGET,
    tables::TARGET,
];

/// The target of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

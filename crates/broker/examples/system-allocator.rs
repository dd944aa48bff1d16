//! The broker with the memory allocator of the C library, so that what it allocates can be counted from outside
//! (`tests/blackbox/test_budget.py`). It takes the arguments of `heraldmq serve` that the tests give.

#![expect(
    clippy::print_stderr,
    reason = "a program of tests, which show what it says"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use config::Config;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    let (mut file, mut data_dir, mut sets) = (None, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "serve" => {}
            "--config" => file = Some(PathBuf::from(value())),
            "--data-dir" => data_dir = Some(PathBuf::from(value())),
            "--set" => sets.push(value()),
            other => {
                eprintln!("unknown argument {other}");
                return ExitCode::from(2);
            }
        }
    }
    let config = match Config::load(file.as_deref(), std::iter::empty(), &sets, data_dir) {
        Ok(loaded) => loaded.config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(std::io::stderr)
        .init();
    std::fs::create_dir_all(&config.data_dir).expect("the data folder can be made");
    let mut signals = Signals::new([SIGTERM, SIGINT]).expect("signals can be watched");
    let broker = match herald_broker::Broker::start(&config) {
        Ok(broker) => broker,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    signals.forever().next();
    broker.shutdown();
    ExitCode::SUCCESS
}

//! Writes the page of a made-up suite to standard output, to look at it:
//! `cargo run -p herald-report --example page > page.html`.

#[path = "../src/fixture.rs"]
mod fixture;

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let mut records = fixture::suite();
    records.push(fixture::splitting("HeraldMQ, splitting"));
    let page = report::page("Load tests of MQTT brokers", &records);
    io::stdout().write_all(page.as_bytes())
}

//! The broker's logic by scripts: what clients send, what the stores answer, and what comes of it.
//!
//! A script is a dialogue. A line that is not indented is something that happens; the indented lines below it are all
//! that the broker does about it. `world.rs` says what can happen.

pub(crate) mod bench;
mod connections;
mod others;
pub(crate) mod packets;
mod process;
mod store;
pub(crate) mod table;
pub(crate) mod world;

mod backpressure;
mod connect;
mod durable;
mod leaders;
mod peers;
mod publish;
mod retained;
mod shared;
mod subscribe;
mod takeover;
mod users;
mod wills;

use world::World;

/// Plays a script, and compares what the broker does with what the script says.
#[track_caller]
fn check(script: &str) {
    check_with(World::new(), script);
}

#[track_caller]
fn check_with(mut world: World, script: &str) {
    let lines: Vec<&str> = script
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let margin = lines
        .iter()
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or(0);
    let mut expected = String::new();
    let mut found = String::new();
    for line in lines {
        let line = &line[margin..];
        expected += line.trim_end();
        expected.push('\n');
        if line.starts_with(' ') {
            continue;
        }
        found += line.trim_end();
        found.push('\n');
        for effect in world.play(line) {
            found += &format!("    {effect}\n");
        }
    }
    assert!(
        found == expected,
        "\n--- the script\n{expected}\n--- what happened\n{found}"
    );
}

//! `heraldmq cluster split-policy test`: a script for splits, played against simulated loads.
//!
//! Deliberately absent: the loads and what is made of them (`store`), the language (`split-script`).

use std::io::{self, Write};
use std::path::PathBuf;

use admin::cluster::StoreName;
use split_script::Script;
use store::{Played, SplitBy, SplitOptions, SplitScript, play};
use store_state::api::StoreId;
use text_table::Table;

use crate::failure::Failure;

#[derive(clap::Args)]
pub(super) struct Test {
    /// The script.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The store that the script sees: session, inbox or retain.
    #[arg(long, default_value = "inbox")]
    store: StoreName,
}

pub(super) fn run(test: &Test) -> Result<(), Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        let file = test.file.display();
        Failure::Runtime(format!("{file}: {why}"))
    };
    Script::read(&test.file).map_err(|fault| wrong(&fault))?;
    let store = StoreId::from(test.store);
    let options = |by| SplitOptions {
        by,
        ..SplitOptions::default()
    };
    let script = || {
        // An error: the file has become unusable while it is played, and `load` decides.
        let script = Script::read(&test.file).ok()?.without_clock();
        Some(Box::new(script) as Box<dyn SplitScript>)
    };
    let by_script = play(store, options(SplitBy::Script), &mut { script });
    let by_load = play(store, options(SplitBy::Load), &mut || None);
    let text = table(&by_script, &by_load);
    // A reader that stopped listening changes nothing about the outcome.
    let _ = io::stdout().write_all(text.as_bytes());
    let mut scenes = by_script.iter();
    let failed = scenes.find_map(|scene| Some((scene.scene, scene.fault.as_ref()?)));
    match failed {
        None => Ok(()),
        Some((scene, fault)) => Err(wrong(&format!(
            "failed in `{scene}`, and `load` decided from then on: {fault}"
        ))),
    }
}

/// Both side by side.
fn table(by_script: &[Played], by_load: &[Played]) -> String {
    let mut table = Table::new(["situation", "script", "leads", "load", "leads"]);
    let led = |played: &Played| {
        let led: Vec<String> = played.led.iter().map(ToString::to_string).collect();
        led.join(" ")
    };
    for (script, load) in by_script.iter().zip(by_load) {
        table.row([
            script.scene.to_owned(),
            script.by_minute.clone(),
            led(script),
            load.by_minute.clone(),
            led(load),
        ]);
    }
    table.to_string()
}

//! The split scripts that the configuration names: read at the start, and again by a reload.
//!
//! Invariant: a file that cannot be used replaces no script.
//!
//! Deliberately absent: the language (`split-script`); when a script is asked, and what follows if it fails (`store`).

use std::path::PathBuf;

use config::{Config, SplitPolicy};
use split_script::Script;
use store::{SplitScripts, Store};
use store_state::api::StoreId;

use crate::reread::Reread;
use crate::start_error::StartError;

/// What the files are for, in errors and in the log.
const KIND: &str = "split script";

/// The stores that are split by script, and the files.
fn files(config: &Config) -> Vec<(StoreId, PathBuf)> {
    let stores = [
        (
            StoreId::Session,
            config.session_store_split_policy,
            &config.session_store_split_script,
        ),
        (
            StoreId::Inbox,
            config.inbox_store_split_policy,
            &config.inbox_store_split_script,
        ),
        (
            StoreId::Retain,
            config.retain_store_split_policy,
            &config.retain_store_split_script,
        ),
    ];
    let scripts = stores.into_iter();
    let scripts = scripts.filter(|(_, policy, _)| *policy == SplitPolicy::Script);
    scripts
        .filter_map(|(store, _, file)| Some((store, file.clone()?)))
        .collect()
}

/// Reads the scripts for a start.
///
/// # Errors
/// Each file that cannot be used, and why.
pub(crate) fn read(config: &Config) -> Result<SplitScripts, Vec<StartError>> {
    let scripts = SplitScripts::default();
    let mut problems = Vec::new();
    for (store, path) in files(config) {
        match Script::read(&path) {
            Ok(script) => scripts.replace(store, Box::new(script)),
            Err(fault) => problems.push(StartError::File {
                kind: KIND,
                path,
                source: std::io::Error::other(fault),
            }),
        }
    }
    match problems.is_empty() {
        true => Ok(scripts),
        false => Err(problems),
    }
}

/// Reads the scripts again.
pub(crate) fn reload(scripts: &SplitScripts, config: &Config, reread: &mut Reread) {
    for (store, path) in files(config) {
        let script = Script::read(&path);
        reread.tell(KIND, vec![path], script.is_ok());
        match script {
            Ok(script) => scripts.replace(store, Box::new(script)),
            Err(fault) => {
                let (store_name, cause) = (store.name(), fault.cause.name());
                tracing::error!(store = store_name, cause, error = %fault, "the split script is not reloaded");
                scripts.refuse(store, fault);
            }
        }
    }
}

/// Stores whose script has failed and is not mended, and what people are told of each.
pub(crate) fn faults(store: Option<&Store>) -> Vec<(String, String)> {
    let scripts = store.map(|store| store.splits().scripts());
    let fault = |id: StoreId| {
        let standing = scripts.as_ref()?.fault(id)?;
        let (name, fault) = (id.name(), &standing.fault);
        let detail = match standing.has_script {
            true => format!(
                "the split script of the {name} store was not read again, and the one before stays in force: {fault}"
            ),
            false => format!(
                "the split script of the {name} store has failed, and `load` decides until it is mended and read again: {fault}"
            ),
        };
        Some((name.to_owned(), detail))
    };
    StoreId::ALL.into_iter().filter_map(fault).collect()
}

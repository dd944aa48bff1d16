//! What can be found wrong with outlets without running them.

use admin::api::EventKind;
use config::Config;
use outlets::{Program, Transfer};

use super::events::kind;
use crate::start_error::StartError;

/// What is wrong with the outlets and inlets of a configuration: URLs, templates, rules, kinds of events, and the files that they name.
pub(crate) fn check(config: &Config) -> impl Iterator<Item = StartError> + '_ {
    Transfer::all(config).filter_map(|transfer| {
        let why = problem(&transfer).err()?;
        let (kind, name) = (transfer.kind(), transfer.name().to_owned());
        Some(StartError::Outlet { kind, name, why })
    })
}

/// What is wrong with one of them.
pub(super) fn problem(transfer: &Transfer) -> Result<(), String> {
    let events = match transfer {
        Transfer::Outlet(outlet) => outlet.filters.as_slice(),
        Transfer::Inlet(_) => &[],
    };
    let events = events.iter();
    let mut kinds = events.filter_map(|filter| filter.strip_prefix(outlets::EVENTS));
    match kinds.find(|name| kind(name).is_none()) {
        Some(name) => {
            let known = EventKind::ALL.map(EventKind::name).join(", ");
            Err(format!("there are no events {name}; there are {known}"))
        }
        None => Program::check(transfer),
    }
}

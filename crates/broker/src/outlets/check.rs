//! What can be found wrong with outlets without running them.

use admin::api::EventKind;
use config::Config;
use outlets::Definition;

use super::events::kind;
use crate::start_error::StartError;

/// What is wrong with the outlets of a configuration: URLs, and the files that they name.
pub(crate) fn check(config: &Config) -> impl Iterator<Item = StartError> + '_ {
    let definitions = config.outlets.iter().filter_map(Definition::of);
    definitions.filter_map(|definition| {
        let filters = definition.filters.iter();
        let mut kinds = filters.filter_map(|filter| filter.strip_prefix(outlets::EVENTS));
        let why = match kinds.find(|name| kind(name).is_none()) {
            Some(name) => {
                let known = EventKind::ALL.map(EventKind::name).join(", ");
                format!("there are no events {name}; there are {known}")
            }
            None => outlets::check(&definition).err()?,
        };
        let name = definition.name;
        Some(StartError::Outlet { name, why })
    })
}

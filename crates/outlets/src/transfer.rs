//! What a process is for: an outlet, or an inlet.

use config::Config;
use serde::{Deserialize, Serialize};

use crate::definition::Definition;
use crate::inlet::InletDefinition;

/// An outlet or an inlet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Transfer {
    /// Messages of the node go to another system.
    Outlet(Box<Definition>),
    /// Messages of another system come to the node.
    Inlet(Box<InletDefinition>),
}

impl Transfer {
    /// The outlets and inlets of a configuration that was checked.
    pub fn all(config: &Config) -> impl Iterator<Item = Self> + '_ {
        let outlets = config.outlets.iter().filter_map(Definition::of);
        let inlets = config.inlets.iter().filter_map(InletDefinition::of);
        let outlets = outlets.map(|outlet| Self::Outlet(Box::new(outlet)));
        outlets.chain(inlets.map(|inlet| Self::Inlet(Box::new(inlet))))
    }

    /// Its name, which no other one has.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Outlet(outlet) => &outlet.name,
            Self::Inlet(inlet) => &inlet.name,
        }
    }

    /// The client identifier of its connection to the node.
    #[must_use]
    pub fn client_id(&self) -> String {
        match self {
            Self::Outlet(outlet) => outlet.client_id(),
            Self::Inlet(inlet) => inlet.client_id(),
        }
    }

    /// `outlet` or `inlet`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Outlet(_) => "outlet",
            Self::Inlet(_) => "inlet",
        }
    }

    /// Whether it has rules, which may not end.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        match self {
            Self::Outlet(outlet) => !outlet.rules.is_empty(),
            Self::Inlet(_) => false,
        }
    }

    /// Its topic filters: those of an outlet at the node, those of an inlet at its source.
    #[must_use]
    pub fn filters(&self) -> &[String] {
        match self {
            Self::Outlet(outlet) => &outlet.filters,
            Self::Inlet(inlet) => inlet.filters(),
        }
    }

    /// Says what only the node knows. `cluster`: what tells this cluster from others, of letters and digits; `former_filters`: those
    /// that the session of [`Self::client_id`] has.
    pub fn complete(&mut self, cluster: &str, former_filters: Vec<String>) {
        match self {
            Self::Outlet(outlet) => {
                cluster.clone_into(&mut outlet.cluster);
                outlet.former_filters = former_filters;
            }
            Self::Inlet(inlet) => cluster.clone_into(&mut inlet.cluster),
        }
    }
}

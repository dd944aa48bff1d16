//! What a changed configuration means for a running node.

use crate::{
    catalog::{catalog, join, show},
    declare::{Section, Slot},
    options::Config,
};

/// The options that differ between two configurations, by full path, in the order of declaration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadDiff {
    /// Take effect at SIGHUP.
    pub applied: Vec<&'static str>,
    /// Take effect at the next start only.
    pub needs_restart: Vec<&'static str>,
}

impl Config {
    /// Compares what runs with what was loaded anew. A list of listeners counts as one option.
    pub fn reload_diff(old: &Self, new: &Self) -> ReloadDiff {
        let (before, after) = (values(old), values(new));
        let mut diff = ReloadDiff::default();
        for listed in catalog() {
            let value = |values: &[(String, String)]| {
                values
                    .iter()
                    .find(|(path, _)| *path == listed.path)
                    .map(|(_, shown)| shown.clone())
            };
            if value(&before) == value(&after) {
                continue;
            }
            if listed.spec.live {
                diff.applied.push(&listed.path);
            } else {
                diff.needs_restart.push(&listed.path);
            }
        }
        diff
    }
}

/// Each option's path and shown value.
fn values(config: &Config) -> Vec<(String, String)> {
    let mut values = Vec::new();
    flatten(&mut config.clone(), "", &mut values);
    values
}

fn flatten(section: &mut dyn Section, path: &str, values: &mut Vec<(String, String)>) {
    for entry in section.entries() {
        let path = join(path, entry.spec.key);
        match entry.slot {
            Slot::Section(inner) => flatten(inner, &path, values),
            slot @ (Slot::Setting(_) | Slot::List(_)) => {
                values.push((path, show(slot, entry.spec)))
            }
        }
    }
}

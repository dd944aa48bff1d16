//! All options in one flat list, in the order of their declaration.

use std::sync::LazyLock;

use crate::{
    declare::{List, Section, Slot, Spec},
    options::Config,
};

/// One option or group under its full path.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Such as `limits.connection.receiveMaximum`; items of a list have no index.
    pub(crate) path: String,
    pub(crate) spec: &'static Spec,
}

/// Follows from the declarations alone, so it is computed once.
static CATALOG: LazyLock<Vec<Listed>> = LazyLock::new(|| {
    let mut listed = Vec::new();
    collect(&mut Config::default(), "", &mut listed);
    listed
});

/// Every option and group.
pub(crate) fn catalog() -> &'static [Listed] {
    &CATALOG
}

/// `key` below `path`.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// A list as YAML on one line.
pub(crate) fn show_list(list: &mut dyn List) -> String {
    let items: Vec<String> = list.items().into_iter().map(show_section).collect();
    format!("[{}]", items.join(", "))
}

fn show_section(section: &mut dyn Section) -> String {
    let fields: Vec<String> = section
        .entries()
        .into_iter()
        .map(|entry| format!("{}: {}", entry.spec.key, show(entry.slot, entry.spec)))
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// A value as YAML on one line; unset is `null`.
pub(crate) fn show(slot: Slot<'_>, spec: &Spec) -> String {
    match slot {
        Slot::Setting(setting) => setting
            .show(spec)
            .map_or_else(|| "null".to_owned(), |text| quoted(&text)),
        Slot::Section(section) => show_section(section),
        Slot::List(list) => show_list(list),
    }
}

/// `text` as a YAML scalar, in quotes unless it is certainly plain.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
        && text != "null";
    if plain {
        text.to_owned()
    } else {
        format!("{text:?}")
    }
}

fn collect(section: &mut dyn Section, path: &str, listed: &mut Vec<Listed>) {
    for entry in section.entries() {
        let path = join(path, entry.spec.key);
        listed.push(Listed {
            path: path.clone(),
            spec: entry.spec,
        });
        match entry.slot {
            Slot::Setting(_) => {}
            Slot::Section(inner) => collect(inner, &path, listed),
            Slot::List(list) => collect(&mut *list.item(), &path, listed),
        }
    }
}

//! What each option is and who set it, for people who ask a running node.

use std::collections::BTreeMap;
use std::path::Path;

use crate::catalog::{join, show};
use crate::declare::{Section, Slot};
use crate::options::Config;
use crate::problem::Origin;

/// All options of a configuration in the order of their declaration. A list, such as that of listeners, is one option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing(Vec<OptionRow>);

/// An option that a node runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionRow {
    /// Such as `limits.connection.receiveMaximum`.
    pub key: String,
    /// YAML on one line; `null` if it is unset. Passwords and queries of URLs are left out.
    pub value: String,
    /// Who set it.
    pub origin: Origin,
    /// Whether SIGHUP applies a new value.
    pub is_live: bool,
    /// The value that counts from the next start on, if it is another.
    pub at_restart: Option<String>,
}

impl Listing {
    pub(crate) fn new(config: &Config, set_by: &BTreeMap<String, Origin>) -> Self {
        let mut rows = Vec::new();
        collect(&mut config.clone(), "", set_by, &mut rows);
        Self(rows)
    }

    /// In the order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = &OptionRow> {
        self.0.iter()
    }

    /// Whether nothing was loaded yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The configuration was loaded again: what SIGHUP applies is as it is there, the rest waits for a start.
    pub fn reload(&mut self, loaded: Self) {
        for (row, new) in self.0.iter_mut().zip(loaded.0) {
            debug_assert_eq!(row.key, new.key, "options are declared once, in one order");
            if row.is_live {
                *row = new;
            } else {
                row.at_restart = (new.value != row.value).then_some(new.value);
            }
        }
    }
}

impl Origin {
    /// A word for it: `default`, `file`, `environment`, `argument`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(..) => "file",
            Self::Environment(_) => "environment",
            Self::Argument(_) | Self::DataDir => "argument",
        }
    }

    /// Where exactly: file and line, variable, or option of the command line; nothing for a default.
    pub fn place(&self) -> Option<String> {
        let of_file = |path: &Path, line: u64| match line {
            0 => path.display().to_string(),
            line => format!("{}:{line}", path.display()),
        };
        match self {
            Self::Default => None,
            Self::File(path, line) => Some(of_file(path, *line)),
            Self::Environment(name) => Some(name.clone()),
            // Its value is the option's.
            Self::Argument(_) => Some("--set".to_owned()),
            Self::DataDir => Some("--data-dir".to_owned()),
        }
    }
}

fn collect(
    section: &mut dyn Section,
    path: &str,
    set_by: &BTreeMap<String, Origin>,
    rows: &mut Vec<OptionRow>,
) {
    for entry in section.entries() {
        let key = join(path, entry.spec.key);
        match entry.slot {
            Slot::Section(inner) => collect(inner, &key, set_by, rows),
            slot @ (Slot::Setting(_) | Slot::List(_)) => rows.push(OptionRow {
                value: without_secrets(&show(slot, entry.spec)),
                origin: set_by.get(&key).cloned().unwrap_or(Origin::Default),
                is_live: entry.spec.live,
                at_restart: None,
                key,
            }),
        }
    }
}

/// Text in which `…` stands for what is between `://` and `@` of a URL, and for what is behind its `?`.
fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let ends = |byte: char| matches!(byte, '/' | '?' | '#' | ',' | '"' | ' ' | '}');
        let end = behind.find(ends).unwrap_or(behind.len());
        rest = match behind.get(..end).and_then(|host| host.rfind('@')) {
            Some(at) => {
                shown.push('…');
                behind.get(at..).unwrap_or_default()
            }
            None => behind,
        };
        // A URL is quoted, and a quote in it is escaped.
        let mut quotes = rest.match_indices('"').map(|(at, _)| at);
        let is_end = |at: &usize| !rest.get(..*at).is_some_and(|before| before.ends_with('\\'));
        let end = quotes.find(is_end).unwrap_or(rest.len());
        let (url, behind) = rest.split_at(end);
        if let Some((before, _query)) = url.split_once('?') {
            shown.push_str(before);
            shown.push_str("?…");
            rest = behind;
        }
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Loader;

    fn listing(yaml: &str, sets: &[&str]) -> Listing {
        let mut loader = Loader::default();
        loader.file(Path::new("a.yml"), yaml.as_bytes());
        for set in sets {
            loader.argument(set);
        }
        loader.finish().expect("it is right").listing
    }

    fn row<'a>(listing: &'a Listing, key: &str) -> &'a OptionRow {
        listing.iter().find(|row| row.key == key).expect(key)
    }

    #[test]
    fn each_option_says_who_set_it() {
        let yaml = "limits:\n  session:\n    queueMessages: 7\nlog:\n  level: debug\n";
        let listing = listing(yaml, &["log.level=warn"]);
        for (key, value, word, place) in [
            ("limits.session.queueMessages", "7", "file", Some("a.yml:3")),
            ("log.level", "warn", "argument", Some("--set")),
            ("log.format", "text", "default", None),
        ] {
            let row = row(&listing, key);
            let said = (&*row.value, row.origin.word(), row.origin.place());
            assert_eq!(said, (value, word, place.map(str::to_owned)), "{key}");
        }
    }

    #[test]
    fn what_a_reload_does_not_apply_waits_for_a_start() {
        let before = "limits:\n  session:\n    queueMessages: 7\nhttp:\n  port: 9000\n";
        let after = before.replace('7', "8").replace("9000", "9001");
        let mut runs = listing(before, &[]);
        runs.reload(listing(&after, &[]));
        let queue = row(&runs, "limits.session.queueMessages");
        assert_eq!((&*queue.value, &queue.at_restart), ("8", &None));
        let port = row(&runs, "http.port");
        let waits = Some("9001".to_owned());
        assert_eq!((&*port.value, &port.at_restart), ("9000", &waits));
        // It is set back: nothing waits.
        runs.reload(listing(before, &[]));
        assert_eq!(row(&runs, "http.port").at_restart, None);
    }

    #[test]
    fn passwords_and_queries_of_urls_are_left_out() {
        for (text, shown) in [
            ("null", "null"),
            ("\"https://a.example/b@c\"", "\"https://a.example/b@c\""),
            ("\"https://u:p@a.example/\"", "\"https://…@a.example/\""),
            (
                "[{url: \"http://u:p@q@a\"}, {url: \"x://:s@b?c\"}]",
                "[{url: \"http://…@a\"}, {url: \"x://…@b?…\"}]",
            ),
            (
                "[{url: \"http://a/b?key=s\\\"t}&x=://u\", n: 1}]",
                "[{url: \"http://a/b?…\", n: 1}]",
            ),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }
}

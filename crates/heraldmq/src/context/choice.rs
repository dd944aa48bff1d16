//! Which broker a command asks, by its options, the environment, and the contexts.
//!
//! Invariant: the key of a context goes with the URL of that context only.
//!
//! Deliberately absent: reading keys, and requests.

use std::env;
use std::path::PathBuf;

use super::file::{Context, Contexts};
use crate::failure::Failure;

/// What commands ask if nothing names a broker.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8091";

pub(crate) const URL_VARIABLE: &str = "HERALDMQ_URL";
pub(crate) const CONTEXT_VARIABLE: &str = "HERALDMQ_CONTEXT";
pub(crate) const KEY_FILE_VARIABLE: &str = "HERALDMQ_KEY_FILE";

/// A variable of the environment; an empty one is as one that is not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The options of a command that name a broker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) url: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
}

/// The broker that a command asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) url: String,
    /// The name of the context that the URL is of.
    pub(crate) context: Option<String>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
}

impl Choice {
    /// The first of: the URL of the options, their context, the URL of the environment, its context, the context in use,
    /// [`DEFAULT_URL`]. The contexts are read only if none of the URLs comes first.
    ///
    /// # Errors
    /// `contexts` fails, or there is no context of the name.
    pub(crate) fn new(
        options: &Options,
        variable: impl Fn(&str) -> Option<String>,
        contexts: impl FnOnce() -> Result<Contexts, Failure>,
    ) -> Result<Self, Failure> {
        let at = |url: String, context: Option<(String, Context)>| {
            let (name, context) = context.unzip();
            let (key_file, ca_file) = match context {
                Some(of) => (of.key_file, of.ca_file),
                None => (None, None),
            };
            let in_environment = || variable(KEY_FILE_VARIABLE).map(PathBuf::from);
            Self {
                url,
                context: name,
                key_file: options
                    .key_file
                    .clone()
                    .or(key_file)
                    .or_else(in_environment),
                ca_file: options.ca_file.clone().or(ca_file),
            }
        };
        if let Some(url) = &options.url {
            return Ok(at(url.clone(), None));
        }
        if let (None, Some(url)) = (&options.context, variable(URL_VARIABLE)) {
            return Ok(at(url, None));
        }
        let contexts = contexts()?;
        let named = match (&options.context, variable(CONTEXT_VARIABLE)) {
            (Some(name), _) => Some((name.clone(), "--context")),
            (None, Some(name)) => Some((name, CONTEXT_VARIABLE)),
            (None, None) => None,
        };
        let name = match named {
            Some((name, by)) if !contexts.contexts.contains_key(&name) => {
                return Err(Failure::Usage(format!("{by}: {}", contexts.unknown(&name))));
            }
            Some((name, _)) => Some(name),
            None => contexts.in_use.clone(),
        };
        let found = name.and_then(|name| {
            let context = contexts.contexts.get(&name)?.clone();
            Some((name, context))
        });
        let url = match &found {
            Some((_, context)) => context.url.as_str(),
            None => DEFAULT_URL,
        };
        Ok(at(url.to_owned(), found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(in_use: bool) -> Contexts {
        let in_use = if in_use { "\"a\"" } else { "null" };
        let text = format!(
            r#"{{"in_use": {in_use}, "contexts": {{"a": {{"url": "http://a", "key_file": "/a.key", "ca_file": "/a.pem"}},
            "b": {{"url": "http://b"}}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// The URL, the key file and the CA file that are chosen, with all three variables or none of them and options.
    fn choose(url: &str, context: &str, variables: &[(&str, &str)], in_use: bool) -> [String; 3] {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let options = Options {
            url: given(url),
            context: given(context),
            ..Options::default()
        };
        let variable = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let choice = Choice::new(&options, variable, || Ok(contexts(in_use))).unwrap();
        let path =
            |path: Option<PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
        [choice.url, path(choice.key_file), path(choice.ca_file)]
    }

    #[test]
    fn what_is_nearer_to_the_command_comes_first() {
        let url = (URL_VARIABLE, "http://e");
        let context = (CONTEXT_VARIABLE, "b");
        let key = (KEY_FILE_VARIABLE, "/e.key");
        let all = [url, context, key];
        for (given, expected) in [
            (
                choose("http://o", "", &all, true),
                ["http://o", "/e.key", ""],
            ),
            (choose("http://o", "", &[], true), ["http://o", "", ""]),
            // Also if the URL is that of the context: no context is looked at.
            (choose("http://a", "", &[], true), ["http://a", "", ""]),
            (
                choose("", "a", &all, false),
                ["http://a", "/a.key", "/a.pem"],
            ),
            (choose("", "b", &all, true), ["http://b", "/e.key", ""]),
            (choose("", "", &all, true), ["http://e", "/e.key", ""]),
            (choose("", "", &[url], true), ["http://e", "", ""]),
            (choose("", "", &[context], true), ["http://b", "", ""]),
            (
                choose("", "", &[key], true),
                ["http://a", "/a.key", "/a.pem"],
            ),
            (choose("", "", &[], false), [DEFAULT_URL, "", ""]),
        ] {
            assert_eq!(given, expected);
        }
    }

    #[test]
    fn options_replace_parts_of_a_context() {
        let options = Options {
            context: Some("a".to_owned()),
            key_file: Some("/o.key".into()),
            ca_file: Some("/o.pem".into()),
            ..Options::default()
        };
        let choice = Choice::new(&options, |_| None, || Ok(contexts(false))).unwrap();
        assert_eq!(choice.key_file, options.key_file);
        assert_eq!(choice.ca_file, options.ca_file);
    }

    #[test]
    fn an_unknown_context_is_a_wrong_command_line_and_urls_read_no_file() {
        let options = Options {
            context: Some("c".to_owned()),
            ..Options::default()
        };
        let refused = Choice::new(&options, |_| None, || Ok(contexts(true))).unwrap_err();
        let expected = "--context: there is no context `c`; there are: a, b";
        assert_eq!(refused, Failure::Usage(expected.to_owned()));
        let options = Options {
            url: Some("http://o".to_owned()),
            ..Options::default()
        };
        let broken = || Err(Failure::Usage("broken".to_owned()));
        Choice::new(&options, |_| None, broken).unwrap();
    }
}

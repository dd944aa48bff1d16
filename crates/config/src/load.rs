//! From defaults, file, environment and command line to one [`Config`].
//!
//! Each layer is applied over the one before: defaults, file, environment, `--set`, `--data-dir`.
//! All problems of all layers are collected before giving up. Nothing is read from the process:
//! the caller hands over environment and arguments.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::{
    catalog::{catalog, join},
    check,
    declare::{List, Section, Slot},
    listing::Listing,
    nearest::nearest,
    node::{self, Node, Pair, Value},
    options::Config,
    problem::{ConfigError, Nearest, Origin, Problem, Shown, Violation},
};

/// Largest configuration file, in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Problems after which the rest of a file is not looked at.
const MAX_PROBLEMS: usize = 50;

/// Variables with the prefix that are no options: the first one would be the group `log`, which cannot be set as a whole; the others
/// are of the commands that ask a broker, and often stand in the shell that starts one.
const NOT_OPTIONS: [&str; 4] = [
    "HERALDMQ_LOG",
    "HERALDMQ_URL",
    "HERALDMQ_KEY_FILE",
    "HERALDMQ_CONTEXT",
];

const PREFIX: &str = "HERALDMQ_";

/// Groups and beginnings of names that are so much the broker's own that a variable without [`PREFIX`] which begins like
/// one is a mistake, also if the rest is mistyped. They are the words of the published reports.
const OWN_WORDS: [&str; 6] = [
    "mqttServerConfig.",
    "clusterConfig.",
    "session_store_",
    "inbox_store_",
    "retain_store_",
    "dist_worker_",
];

/// How options begin that the environment may hold without the prefix, as the published reports do.
const BARE_WORDS: [&str; 3] = ["session_store_", "inbox_store_", "retain_store_"];

/// A configuration that is complete and consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The options.
    pub config: Config,
    /// What the operator should know although it is no error; one line each.
    pub warnings: Vec<String>,
    /// The same options for people.
    pub listing: Listing,
}

impl Config {
    /// Puts the configuration together.
    ///
    /// `env` may hold the whole environment: names that do not begin with `HERALDMQ_` have no effect, and a
    /// warning if an option is called so; `HERALDMQ_LOG`, `HERALDMQ_URL`, `HERALDMQ_KEY_FILE` and `HERALDMQ_CONTEXT` are passed over. Each entry of `sets` is `key=value`.
    ///
    /// # Errors
    /// Every problem that was found, in the order of the layers. Checks across options run only
    /// if each option by itself is right.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        sets: &[String],
        data_dir: Option<PathBuf>,
    ) -> Result<Loaded, ConfigError> {
        let mut loader = Loader::default();
        if let Some(path) = file {
            match read(path) {
                Ok(bytes) => loader.file(path, &bytes),
                Err(violation) => loader.complain(Origin::File(path.to_owned(), 0), violation),
            }
        }
        loader.environment(env);
        for set in sets {
            loader.argument(set);
        }
        if let Some(path) = data_dir {
            loader.data_dir(path);
        }
        loader.finish()
    }
}

/// Reads at most [`MAX_FILE_BYTES`], whatever kind of file it is.
fn read(path: &Path) -> Result<Vec<u8>, Violation> {
    let unreadable = |error: std::io::Error| Violation::Unreadable(error.to_string());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(bytes)
}

/// Where the values of a layer come from.
enum Layer<'a> {
    /// A `tcpListener` here replaces the default one.
    File(&'a Path),
    /// A single value; in a list of one object it changes that object.
    Override(&'a Origin),
}

impl Layer<'_> {
    fn origin(&self, line: u64) -> Origin {
        match self {
            Self::File(path) => Origin::File(path.to_path_buf(), line),
            Self::Override(origin) => (*origin).clone(),
        }
    }
}

#[derive(Default)]
pub(crate) struct Loader {
    config: Config,
    reader: Reader,
    warnings: Vec<String>,
}

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
    /// Which origin set an option last, for checks across options.
    set_by: BTreeMap<String, Origin>,
}

impl Loader {
    /// Applies the bytes of a configuration file.
    pub(crate) fn file(&mut self, path: &Path, bytes: &[u8]) {
        let at = |line| Origin::File(path.to_owned(), line);
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE_BYTES) {
            return self.complain(at(0), Violation::TooLarge(MAX_FILE_BYTES));
        }
        let source = match std::str::from_utf8(bytes) {
            Ok(source) => source,
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                return self.complain(at(line.try_into().unwrap_or(0)), Violation::NotUtf8);
            }
        };
        match node::parse(source) {
            Ok(root) => self
                .reader
                .section(&mut self.config, &root, "", &Layer::File(path)),
            Err(error) => self.complain(at(error.line), Violation::Yaml(error.reason)),
        }
    }

    /// Applies the variables that are meant for the broker, in the order of their names.
    fn environment(&mut self, env: impl Iterator<Item = (String, String)>) {
        let (variables, others): (BTreeMap<String, String>, BTreeMap<String, String>) =
            env.partition(|(name, _)| starts_with(name, PREFIX) || is_bare(name));
        for name in others.keys() {
            if let Some(meant) = meant_without_prefix(name) {
                self.warnings.push(format!(
                    "environment variable {} has no effect; did you mean `{meant}`?",
                    Shown(name)
                ));
            }
        }
        let mut seen = BTreeSet::new();
        for (name, value) in variables {
            let upper = name.to_ascii_uppercase();
            if NOT_OPTIONS.contains(&upper.as_str()) {
                continue;
            }
            let known = catalog()
                .iter()
                .find(|listed| variable(&listed.path) == upper || listed.path == name);
            let origin = Origin::Environment(name);
            match known {
                Some(listed) if !seen.insert(&listed.path) => {
                    self.complain(
                        origin,
                        Violation::SetTwice {
                            key: listed.path.clone(),
                        },
                    );
                }
                Some(listed) => self.set(&listed.path, &value, &origin),
                None if is_service_link(&upper, &value) => {}
                None => {
                    let violation = unknown_variable(&upper);
                    self.complain(origin, violation);
                }
            }
        }
    }

    pub(crate) fn argument(&mut self, argument: &str) {
        let origin = Origin::Argument(argument.to_owned());
        let Some((key, value)) = argument.split_once('=') else {
            return self.complain(origin, Violation::NotAnAssignment);
        };
        if catalog().iter().any(|listed| listed.path == key) {
            self.set(key, value, &origin);
        } else {
            self.complain(origin, unknown_key(key));
        }
    }

    fn data_dir(&mut self, path: PathBuf) {
        if path.as_os_str().is_empty() {
            let (expected, found) = ("a path".to_owned(), "nothing".to_owned());
            let violation = Violation::Value {
                key: "dataDir".to_owned(),
                expected,
                found,
            };
            return self.complain(Origin::DataDir, violation);
        }
        self.config.data_dir = path;
        let key = "dataDir".to_owned();
        self.reader.set_by.insert(key, Origin::DataDir);
    }

    /// Sets the option at `path`, which exists, as if a file held just that.
    fn set(&mut self, path: &str, value: &str, origin: &Origin) {
        let leaf = Node {
            line: 0,
            value: node::scalar(value),
        };
        let root = path.rsplit('.').fold(leaf, |node, key| Node {
            line: 0,
            value: Value::Map(vec![Pair {
                key: key.to_owned(),
                line: 0,
                node,
            }]),
        });
        self.reader
            .section(&mut self.config, &root, "", &Layer::Override(origin));
    }

    fn complain(&mut self, origin: Origin, violation: Violation) {
        self.reader.complain(origin, violation);
    }

    pub(crate) fn finish(mut self) -> Result<Loaded, ConfigError> {
        if self.reader.problems.is_empty() {
            for (key, statement) in check::conflicts(&self.config) {
                let origin = self
                    .reader
                    .set_by
                    .get(key)
                    .cloned()
                    .unwrap_or(Origin::Default);
                self.complain(
                    origin,
                    Violation::Conflict {
                        key: key.to_owned(),
                        statement,
                    },
                );
            }
        }
        if self.reader.problems.is_empty() {
            let mut warnings = self.warnings;
            warnings.extend(check::warnings(&self.config));
            Ok(Loaded {
                listing: Listing::new(&self.config, &self.reader.set_by),
                config: self.config,
                warnings,
            })
        } else {
            Err(ConfigError {
                problems: self.reader.problems,
            })
        }
    }
}

impl Reader {
    fn complain(&mut self, origin: Origin, violation: Violation) {
        self.problems.push(Problem { origin, violation });
    }

    fn section(&mut self, section: &mut dyn Section, node: &Node, path: &str, layer: &Layer<'_>) {
        let pairs = match &node.value {
            // A group without content, as in `limits:`, is left as it is.
            Value::Null => return,
            Value::Map(pairs) => pairs,
            other @ (Value::Scalar(_) | Value::List(_)) => {
                let key = if path.is_empty() { "the file" } else { path };
                return self.refuse(layer.origin(node.line), key, "a map of options", other);
            }
        };
        let mut defaults = section.fresh();
        for Pair { key, line, node } in pairs {
            match self.problems.len() {
                0..MAX_PROBLEMS => {}
                MAX_PROBLEMS => {
                    return self.complain(layer.origin(*line), Violation::TooManyProblems);
                }
                _ => return,
            }
            let path = join(path, key);
            let entry = section
                .entries()
                .into_iter()
                .find(|entry| entry.spec.key == key);
            let default = defaults
                .entries()
                .into_iter()
                .find(|entry| entry.spec.key == key);
            let (Some(entry), Some(default)) = (entry, default) else {
                let violation = if key.contains('.') {
                    Violation::DottedKey { key: path }
                } else {
                    unknown_key(&path)
                };
                self.complain(layer.origin(*line), violation);
                continue;
            };
            let origin = layer.origin(if node.line == 0 { *line } else { node.line });
            self.set_by.insert(path.clone(), origin.clone());
            match (entry.slot, default.slot) {
                (Slot::Section(inner), _) => self.section(inner, node, &path, layer),
                (Slot::List(list), _) => self.list(list, node, &path, layer),
                (Slot::Setting(setting), Slot::Setting(default)) => {
                    let taken = match &node.value {
                        Value::Null => {
                            let text = default.show(entry.spec).unwrap_or_default();
                            setting.take(&text, entry.spec)
                        }
                        value => setting.read(value, entry.spec),
                    };
                    if !taken {
                        let expected = setting.expected(entry.spec);
                        self.refuse(origin, &path, &expected, &node.value);
                    }
                }
                // The same group has the same slots.
                (Slot::Setting(_), _) => {}
            }
        }
    }

    fn list(&mut self, list: &mut dyn List, node: &Node, path: &str, layer: &Layer<'_>) {
        match (&node.value, layer) {
            (Value::Null, _) => {}
            (Value::Map(_), Layer::File(_)) => {
                list.clear();
                self.section(list.add(), node, path, layer);
            }
            (Value::List(nodes), Layer::File(_)) => {
                list.clear();
                for (index, node) in nodes.iter().enumerate() {
                    self.section(list.add(), node, &format!("{path}[{index}]"), layer);
                }
            }
            (Value::Map(_), Layer::Override(origin)) => match list.items().as_mut_slice() {
                [] => self.section(list.add(), node, path, layer),
                [only] => self.section(*only, node, path, layer),
                several => {
                    let violation = Violation::SeveralItems {
                        key: path.to_owned(),
                        items: several.len(),
                    };
                    self.complain((*origin).clone(), violation);
                }
            },
            (other, _) => {
                let expected = "a map of options or a list of them";
                self.refuse(layer.origin(node.line), path, expected, other);
            }
        }
    }

    fn refuse(&mut self, origin: Origin, key: &str, expected: &str, value: &Value) {
        let (key, expected) = (key.to_owned(), expected.to_owned());
        self.complain(
            origin,
            Violation::Value {
                key,
                expected,
                found: value.found(),
            },
        );
    }
}

fn unknown_key(path: &str) -> Violation {
    let known: Vec<&str> = catalog()
        .iter()
        .map(|listed| listed.path.as_str())
        .collect();
    let nearest = nearest(&without_indexes(path), &known);
    Violation::UnknownKey {
        key: path.to_owned(),
        nearest,
    }
}

/// As [`unknown_key`], in the words of the environment.
fn unknown_variable(name: &str) -> Violation {
    let paths: Vec<String> = catalog()
        .iter()
        .map(|listed| listed.path.to_ascii_uppercase())
        .collect();
    let known: Vec<&str> = paths.iter().map(String::as_str).collect();
    let path = name.strip_prefix(PREFIX).unwrap_or(name).replace("__", ".");
    let nearest = match nearest(&path, &known) {
        Nearest::OtherCase(path) => Nearest::Similar(variable(&path)),
        Nearest::Similar(path) => Nearest::Similar(variable(&path)),
        Nearest::Remote(path) => Nearest::Remote(variable(&path)),
    };
    Violation::UnknownKey {
        key: name.to_owned(),
        nearest,
    }
}

/// The variable that somebody meant who has set one without `HERALDMQ_`; `None` if it is nothing of the broker's.
///
/// A single word such as `LOG` or `DATADIR` is left alone, as other programs have such variables too.
fn meant_without_prefix(name: &str) -> Option<String> {
    let path = name.replace("__", ".");
    let is_own = OWN_WORDS.iter().any(|word| starts_with(&path, word));
    if !is_own && !path.contains('.') {
        return None;
    }
    let known: Vec<&str> = catalog()
        .iter()
        .map(|listed| listed.path.as_str())
        .collect();
    match nearest(&path, &known) {
        Nearest::OtherCase(path) => Some(variable(&path)),
        Nearest::Similar(path) | Nearest::Remote(path) => is_own.then(|| variable(&path)),
    }
}

/// Whether a variable has the name of an option of the stores as it stands in the file.
fn is_bare(name: &str) -> bool {
    let mut words = BARE_WORDS.iter();
    words.any(|word| name.starts_with(word)) && catalog().iter().any(|listed| listed.path == name)
}

/// Whether `text` begins with `start`, letter case aside.
fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len())
        .is_some_and(|found| found.eq_ignore_ascii_case(start))
}

/// The environment variable of an option.
pub(crate) fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "__").to_ascii_uppercase())
}

/// `tcpListener[1].port` as `tcpListener.port`.
fn without_indexes(path: &str) -> String {
    let parts = path
        .split('.')
        .map(|part| part.split('[').next().unwrap_or(part));
    parts.collect::<Vec<_>>().join(".")
}

/// Whether a variable was put there by Kubernetes or Docker because a service is called
/// `heraldmq`, as in `HERALDMQ_SERVICE_HOST` and `HERALDMQ_PORT=tcp://10.0.0.1:1883`. An error
/// for these would keep the broker from starting at all beside its own service.
fn is_service_link(name: &str, value: &str) -> bool {
    let transport = ["tcp://", "udp://"]
        .iter()
        .any(|scheme| value.starts_with(scheme));
    let numbered = name.split_once("_PORT_").is_some_and(|(_, rest)| {
        rest.starts_with(|first: char| first.is_ascii_digit())
            && (rest.contains("_TCP") || rest.contains("_UDP"))
    });
    numbered
        || (transport && name.ends_with("_PORT"))
        || name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::options;

    options! {
        /// Settings of a kind that the broker does not have yet.
        struct Future {
            /// Voters of each shard.
            fixed "inbox_store_replica_voter_count" => inbox_store_replica_voter_count: u16 = 3, range 1..=9;
            /// Authentication, in this order.
            live "authenticators" => authenticators: Vec<Authenticator>;
        }

        /// One authenticator.
        struct Authenticator {
            /// What it is called.
            live "name" => name: String = "first".to_owned();
            /// The server it asks.
            group "server" => server: Server;
        }

        /// A server.
        struct Server {
            /// Its port.
            fixed "port" => port: u16 = 1;
        }
    }

    #[test]
    fn names_with_underscores_and_lists_of_nested_groups_need_nothing_new() {
        let source = "
inbox_store_replica_voter_count: 5
authenticators:
  - name: a
  - server: {port: 99}
  - server: {port: x}
";
        let mut future = Future::default();
        let mut reader = Reader::default();
        let root = node::parse(source).expect("this is YAML");
        reader.section(&mut future, &root, "", &Layer::File(Path::new("f")));
        assert_eq!(future.inbox_store_replica_voter_count, 5);
        assert_eq!(future.authenticators[0].name, "a");
        assert_eq!(future.authenticators[1].server.port, 99);
        assert_eq!(
            ConfigError {
                problems: reader.problems
            }
            .to_string(),
            "f:6: authenticators[2].server.port: expected a whole number 0 to 65535, found \"x\""
        );
        assert_eq!(
            variable("inbox_store_replica_voter_count"),
            "HERALDMQ_INBOX_STORE_REPLICA_VOTER_COUNT"
        );
    }
}

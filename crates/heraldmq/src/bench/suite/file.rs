//! A suite as a person writes it: the keys of the file, and what becomes of them.
//!
//! Invariant: a suite that was read names scenarios that can be played and brokers that can be told apart.
//!
//! Where to read next: `bench/suites/quick.yml` for an example.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU8;
use std::path::{Component, Path};
use std::str::FromStr;
use std::time::Duration;

use loadtest::Plan;
use mqtt_proto::ProtocolVersion;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::launch::Launch;
use crate::bench::quantity::{Time, read_from_text};
use crate::bench::run::{parse_duration, parse_version};
use crate::bench::scenario::{Chosen, Scenario, Share, is_file};
use crate::bench::systems::{Pids, Watched};
use crate::bench::{target, yaml};
use crate::failure::Failure;

/// How long to measure, if the file does not say.
const DURATION: Duration = Duration::from_secs(10);

/// Load before the measurement, if the file does not say.
const WARM_UP: Duration = Duration::from_secs(2);

/// What a file says.
pub(super) struct SuiteFile {
    /// As the file says; its own name if it does not.
    pub(super) title: String,
    /// At least one; no name twice.
    pub(super) brokers: Vec<Broker>,
    /// At least one.
    pub(super) turns: Vec<Turn>,
    /// How often each broker plays each of the turns; above 0.
    pub(super) repeat: u8,
}

/// A scenario that each of the brokers plays.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) chosen: Chosen,
    /// What was chosen, read.
    pub(super) scenario: Scenario,
    /// Above 0.
    pub(super) duration: Duration,
    pub(super) warm_up: Duration,
    /// As many as the connections need, if `None`.
    pub(super) workers: Option<u16>,
    pub(super) protocol: ProtocolVersion,
    /// Seconds; 0 for none.
    pub(super) keep_alive: u16,
}

/// A broker.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "BrokerKeys")]
pub(super) struct Broker {
    pub(super) name: String,
    pub(super) source: Source,
    /// At least one HOST:PORT.
    pub(super) addresses: Vec<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

/// Where a broker comes from.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Source {
    /// The suite starts it for each run, and ends it.
    Launch(Launch),
    /// It runs already; how to watch it.
    Running(Watched),
}

impl SuiteFile {
    /// Reads a file, and the workload files that it names.
    ///
    /// # Errors
    /// One of the files cannot be read, or not played.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let document: Document = yaml::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let turn = |(number, run): (usize, &RunKeys)| {
            run.turn(&document.defaults, folder)
                .map_err(|failure| match failure {
                    Failure::Usage(message) => {
                        Failure::Usage(format!("{}: runs[{number}]: {message}", path.display()))
                    }
                    other => other,
                })
        };
        let turns: Result<Vec<Turn>, Failure> =
            document.runs.iter().enumerate().map(turn).collect();
        let stem = || path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            turns: turns?,
            title: document.title.unwrap_or_else(|| stem().into_owned()),
            brokers: document.brokers,
            repeat: document.repeat.map_or(1, NonZeroU8::get),
        })
    }
}

#[derive(Deserialize, Debug)]
#[serde(try_from = "DocumentKeys")]
struct Document {
    title: Option<String>,
    defaults: RunKeys,
    brokers: Vec<Broker>,
    runs: Vec<RunKeys>,
    repeat: Option<NonZeroU8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentKeys {
    title: Option<String>,
    #[serde(default)]
    defaults: RunKeys,
    brokers: Vec<Broker>,
    runs: Vec<Run>,
    repeat: Option<NonZeroU8>,
}

impl TryFrom<DocumentKeys> for Document {
    type Error = String;

    fn try_from(keys: DocumentKeys) -> Result<Self, String> {
        let DocumentKeys {
            title,
            defaults,
            brokers,
            runs,
            repeat,
        } = keys;
        if brokers.is_empty() || runs.is_empty() {
            return Err("a suite needs at least one of `brokers` and one of `runs`".to_owned());
        }
        if defaults.scenario.is_some() {
            return Err("`defaults` names no scenario; each of `runs` does".to_owned());
        }
        for (number, broker) in brokers.iter().enumerate() {
            if brokers[..number].iter().any(|b| b.name == broker.name) {
                return Err(format!("two brokers are named {:?}", broker.name));
            }
        }
        let runs = runs.into_iter().map(|run| run.0).collect();
        Ok(Self {
            title,
            defaults,
            brokers,
            runs,
            repeat,
        })
    }
}

/// What can be said of a run, and of all runs in `defaults`.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunKeys {
    scenario: Option<ScenarioName>,
    scale: Option<Share>,
    rate_scale: Option<Share>,
    duration: Option<Above0>,
    warm_up: Option<Time>,
    workers: Option<NonZeroU8>,
    protocol: Option<Version>,
    keep_alive: Option<u16>,
}

impl RunKeys {
    /// `folder` is where workload files are looked for.
    fn turn(&self, defaults: &Self, folder: &Path) -> Result<Turn, Failure> {
        let name = match &self.scenario {
            Some(ScenarioName(name)) if is_file(name) => {
                folder.join(name).to_string_lossy().into_owned()
            }
            Some(ScenarioName(name)) => name.clone(),
            None => return Err(Failure::Usage("`scenario` is missing".to_owned())),
        };
        let or = |own: &Option<Share>, other: &Option<Share>| {
            own.clone().or_else(|| other.clone()).unwrap_or_default()
        };
        let chosen = Chosen {
            name,
            second: None,
            scale: or(&self.scale, &defaults.scale),
            rate_scale: or(&self.rate_scale, &defaults.rate_scale),
        };
        Ok(Turn {
            scenario: chosen.scenario()?,
            chosen,
            duration: self
                .duration
                .or(defaults.duration)
                .map_or(DURATION, |time| time.0),
            warm_up: self
                .warm_up
                .or(defaults.warm_up)
                .map_or(WARM_UP, |time| time.0),
            workers: self
                .workers
                .or(defaults.workers)
                .map(|workers| u16::from(workers.get())),
            protocol: self
                .protocol
                .or(defaults.protocol)
                .map_or(ProtocolVersion::V5, |version| version.0),
            keep_alive: self.keep_alive.or(defaults.keep_alive).unwrap_or(0),
        })
    }
}

/// An item of `runs`: the name of a scenario alone, or with keys.
struct Run(RunKeys);

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameOrKeys;
        impl<'de> Visitor<'de> for NameOrKeys {
            type Value = RunKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a scenario, or keys of which `scenario` is one")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<RunKeys, E> {
                let scenario = Some(name.parse().map_err(E::custom)?);
                Ok(RunKeys {
                    scenario,
                    ..RunKeys::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<RunKeys, A::Error> {
                let keys = RunKeys::deserialize(MapAccessDeserializer::new(keys))?;
                match keys.scenario {
                    Some(_) => Ok(keys),
                    None => Err(A::Error::missing_field("scenario")),
                }
            }
        }
        from.deserialize_any(NameOrKeys).map(Self)
    }
}

/// A name that a report has, or that of a file.
#[derive(Clone, Debug)]
struct ScenarioName(String);

impl FromStr for ScenarioName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if !is_file(name) {
            let plan = name.parse::<Plan>();
            plan.map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(Self(name.to_owned()))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BrokerKeys {
    name: String,
    command: Option<Vec<String>>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    address: OneOrMany<Address>,
    pid: Option<OneOrMany<u32>>,
    metrics: Option<OneOrMany<String>>,
    username: Option<String>,
    password: Option<String>,
}

impl TryFrom<BrokerKeys> for Broker {
    type Error = String;

    fn try_from(keys: BrokerKeys) -> Result<Self, String> {
        let source = source(keys.command, keys.files, keys.pid, keys.metrics);
        let source = source.map_err(|wrong| format!("{:?}: {wrong}", keys.name))?;
        let addresses: Vec<String> = keys.address.0.into_iter().map(|a| a.0).collect();
        Ok(Self {
            name: keys.name,
            source,
            addresses,
            username: keys.username,
            password: keys.password,
        })
    }
}

fn source(
    command: Option<Vec<String>>,
    files: BTreeMap<String, String>,
    pid: Option<OneOrMany<u32>>,
    metrics: Option<OneOrMany<String>>,
) -> Result<Source, &'static str> {
    match command {
        Some(command) if command.is_empty() => Err("`command` is empty"),
        Some(_) if pid.is_some() || metrics.is_some() => Err(
            "`pid` and `metrics` are for a broker that runs already; a command's process is watched",
        ),
        Some(_) if !files.keys().all(|name| is_plain(name)) => {
            Err("`files` have names without folders")
        }
        Some(command) => Ok(Source::Launch(Launch { command, files })),
        None if !files.is_empty() => Err("`files` are for a `command`"),
        None => Ok(Source::Running(Watched {
            pid: pid.map_or_else(Vec::new, |pid| vec![Pids::Given(pid.0)]),
            metrics: metrics.map_or_else(Vec::new, |metrics| metrics.0),
        })),
    }
}

/// Whether it names a file in a folder, and none elsewhere.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(first)), None) if first == name
    )
}

/// HOST:PORT.
struct Address(String);

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        target::parse(text).map(Self)
    }
}

/// A scalar, or a list of at least one.
struct OneOrMany<T>(Vec<T>);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for Either<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one, or a list")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
                text.parse().map(|one| vec![one]).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Vec<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = items.next_element::<String>()? {
                    all.push(text.parse().map_err(A::Error::custom)?);
                }
                match all.is_empty() {
                    true => Err(A::Error::custom("the list is empty")),
                    false => Ok(all),
                }
            }
        }
        from.deserialize_any(Either(PhantomData)).map(Self)
    }
}

/// A time above 0.
#[derive(Clone, Copy, Debug)]
struct Above0(Duration);

impl FromStr for Above0 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Self)
    }
}

#[derive(Clone, Copy, Debug)]
struct Version(ProtocolVersion);

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        parse_version(text).map(Self)
    }
}

read_from_text!(ScenarioName, Above0, Version);

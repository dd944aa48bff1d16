//! `heraldmq bench suite`: a list of scenarios against each of several brokers, in one report.
//!
//! Invariant: what was measured is on disk before the next run begins; a run that fails costs no other.
//!
//! Where to read next: `suite/file.rs` for the keys of the file, `launch.rs` for the brokers.

mod file;
#[cfg(test)]
mod fixture;
mod table;

use std::path::PathBuf;

use loadtest::prepare_descriptors;
use report::{Record, Setting};

use self::file::{Broker, Source, SuiteFile, Turn};
use self::table::{Row, cpu_us_per_message, table};
use super::observers::{Observers, Observing};
use super::outputs::{Outputs, print};
use super::require::Require;
use super::run::{How, Request};
use super::systems::{Pids, Watched};
use text_table::units::counted;

use crate::failure::{Failure, complain};
use crate::transport_options::TransportOptions;

/// A file that lists runs and brokers.
#[derive(clap::Args)]
pub(super) struct Suite {
    /// The list, such as bench/suites/quick.yml.
    file: PathBuf,
    #[command(flatten)]
    outputs: Outputs,
    #[command(flatten)]
    observing: Observing,
    #[command(flatten)]
    require: Require,
}

/// What came of the runs so far.
#[derive(Default)]
struct Results {
    /// In the order of the runs.
    records: Vec<Record>,
    rows: Vec<Row>,
    /// Runs, repetitions too.
    played: usize,
    /// Of those.
    failed: usize,
}

impl Suite {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let suite = SuiteFile::read(&self.file)?;
        let observers = self.observing.open()?;
        // Now, because the runs are too long to find out afterwards that nothing can be kept.
        self.outputs.open()?;
        // Brokers inherit it.
        prepare_descriptors();
        let interrupt = observers.interrupt();
        let mut results = Results::default();
        for (number, turn) in suite.turns.iter().enumerate() {
            let count = suite.turns.len();
            complain(&format!(
                "{} of {count}: {}",
                number + 1,
                turn.scenario.name()
            ));
            self.play(&suite, turn, &observers, &mut results)?;
            if interrupt.is_set() {
                break;
            }
        }
        print(&table(&results.rows).to_string());
        if interrupt.is_set() {
            let message = "interrupted; what was measured until then is kept";
            return Err(Failure::Runtime(message.to_owned()));
        }
        match results.failed {
            0 => self.require.judge(&results.records),
            failed => Err(Failure::Runtime(format!(
                "{failed} of {} failed",
                counted(results.played as u64, "run", "runs")
            ))),
        }
    }

    /// Runs one scenario against each broker and keeps what came of it. The brokers take turns, so that
    /// whatever else the machine does meets all of them alike.
    fn play(
        &self,
        suite: &SuiteFile,
        turn: &Turn,
        observers: &Observers,
        results: &mut Results,
    ) -> Result<(), Failure> {
        let mut of_brokers = vec![Vec::new(); suite.brokers.len()];
        for _ in 0..suite.repeat {
            for (number, broker) in suite.brokers.iter().enumerate() {
                if observers.interrupt().is_set() {
                    break;
                }
                let outcome = measure(broker, turn, observers);
                of_brokers[number].extend(results.note(broker, outcome));
                let medians = of_brokers.iter().filter_map(|runs| median(runs));
                let so_far: Vec<Record> = results.records.iter().cloned().chain(medians).collect();
                self.outputs.open()?.write(&suite.title, &so_far)?;
            }
        }
        for (broker, runs) in suite.brokers.iter().zip(of_brokers) {
            let record = median(&runs);
            results.rows.push(match &record {
                Some(record) => Row::Measured(Box::new(record.clone())),
                None => Row::Failed(turn.scenario.name(), broker.name.clone()),
            });
            results.records.extend(record);
        }
        Ok(())
    }
}

impl Results {
    /// Says and counts what came of a run; its record, if there is one.
    fn note(&mut self, broker: &Broker, outcome: Result<Record, Failure>) -> Option<Record> {
        let name = &broker.name;
        self.played += 1;
        match outcome {
            Ok(record) => {
                complain(&format!("  {name}: {}", table::sentence(&record)));
                for warning in &record.warnings {
                    complain(&format!("  {name}: warning: {warning}"));
                }
                return Some(record);
            }
            Err(
                Failure::Runtime(message)
                | Failure::Usage(message)
                | Failure::OldFolder(message)
                | Failure::NotFound(message)
                | Failure::Missed(message)
                | Failure::Changed(message),
            ) => {
                complain(&format!("  {name}: failed: {message}"));
            }
            Err(Failure::TimedOut) => complain(&format!("  {name}: failed: timed out")),
        }
        self.failed += 1;
        None
    }
}

/// Plays a scenario once, against a broker of its own if the suite starts it.
fn measure(broker: &Broker, turn: &Turn, observers: &Observers) -> Result<Record, Failure> {
    let (watched, started) = match &broker.source {
        Source::Running(watched) => (watched.clone(), None),
        Source::Launch(launch) => {
            let started = launch.start(&broker.addresses, observers.interrupt())?;
            let watched = Watched {
                pid: vec![Pids::Given(vec![started.pid()])],
                metrics: Vec::new(),
            };
            (watched, Some(started))
        }
    };
    let how = how(broker, turn, watched);
    let mut request = Request::new(&turn.chosen, &turn.scenario, &broker.addresses, &how);
    request.is_started_afresh = started.is_some();
    let outcome = request.record(observers);
    let Some(mut started) = started else {
        return outcome;
    };
    if let Some(death) = started.death() {
        return Err(Failure::Runtime(match outcome {
            Err(Failure::Runtime(message)) => format!("{message}\n{death}"),
            _ => death,
        }));
    }
    let mut record = outcome?;
    record.settings.push(Setting {
        name: "broker".to_owned(),
        value: started.command().to_owned(),
    });
    Ok(record)
}

fn how(broker: &Broker, turn: &Turn, watched: Watched) -> How {
    How {
        duration: Some(turn.duration),
        warm_up_messages: None,
        warm_up: turn.warm_up,
        watched,
        workers: turn.workers,
        agent: Vec::new(),
        token: String::new(),
        transport: TransportOptions::default(),
        protocol: turn.protocol,
        keep_alive: turn.keep_alive,
        username: broker.username.clone(),
        password: broker.password.clone(),
        label: Some(broker.name.clone()),
        broker: None,
    }
}

/// The one in the middle by CPU per message, with the spread of all of them.
fn median(runs: &[Record]) -> Option<Record> {
    let cost = |record: &Record| cpu_us_per_message(record).unwrap_or(0.0);
    let mut runs: Vec<&Record> = runs.iter().collect();
    runs.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    let mut record = Record::clone(runs.get(runs.len() / 2)?);
    if let [first, .., last] = runs.as_slice() {
        let (count, least, most) = (runs.len(), cost(first), cost(last));
        record.settings.push(Setting {
            name: "median of".to_owned(),
            value: format!("{count} runs, {least:.1} to {most:.1} µs CPU per message"),
        });
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_runs_the_one_of_middling_cost_stays_and_says_what_the_others_cost() {
        let of_cost = |label: &str, cpu_user_s: f64| {
            let mut record = fixture::record(label);
            record.system[0].cpu_user_s = cpu_user_s;
            record
        };
        let single = vec![of_cost("a", 0.02)];
        assert_eq!(median(&single).as_ref(), single.first());
        let three = vec![of_cost("c", 0.03), of_cost("a", 0.01), of_cost("b", 0.02)];
        let middle = median(&three).unwrap();
        assert_eq!(middle.label, "b");
        let spread = "3 runs, 10.0 to 20.0 µs CPU per message";
        assert_eq!(middle.settings[0].value, spread);
        assert_eq!(median(&[]), None);
    }
}

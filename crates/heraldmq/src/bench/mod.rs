//! `heraldmq bench`: the load tests of the published reports, by the names they have there.
//!
//! Deliberately absent: everything that plays or counts, which is the `loadtest` crate, and everything
//! that shows records, which is the `report` crate. This is the command line of both.
//!
//! Where to read next: `run.rs`.

mod about;
mod agent;
mod cold_start;
mod doctor;
mod endless;
mod exposition;
mod find_max;
mod interrupt;
mod launch;
mod live;
mod node;
mod observers;
mod outputs;
mod parts;
mod premises;
mod quantity;
mod require;
mod run;
mod scenario;
pub(crate) mod size;
mod slopes;
mod suite;
mod systems;
mod target;
mod workload_file;
mod yaml;

use std::path::PathBuf;

use clap::Subcommand;

use self::agent::Serve;
use self::doctor::Doctor;
use self::endless::{Conn, Pub, Sub};
use self::outputs::print;
use self::run::Run;
use self::scenario::{Chosen, describe, list};
use self::slopes::MeasureSlopes;
use self::suite::Suite;
use report::Record;

use crate::failure::Failure;

/// Load-test any MQTT broker with the scenarios of the published reports.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq bench list
  heraldmq bench plan 2k_2k_qos0_p32_100mps_1n --scale 1/10
  heraldmq bench run 2k_2k_qos0_p32_100mps_1n --scale 1/10 --target 127.0.0.1:1883
  heraldmq bench run 50k_50k_qos1_p1024_1mps --scale 1/10 --target a:1883,b:1883 --workers 2 \\
      --pid \"$(pidof mosquitto)\" --html run.html --json run.json
  heraldmq bench run bench/workloads/mixed.yml --target 127.0.0.1:1883
  heraldmq bench suite bench/suites/quick.yml --html quick.html
  heraldmq bench compare before.json after.json
  heraldmq bench conn -c 5000 -R 500 -h 127.0.0.1
  heraldmq bench sub -c 100 -t bench/%i -q 1 -h 127.0.0.1
  heraldmq bench pub -c 100 -t bench/%i -q 1 -I 10 -h 127.0.0.1
  heraldmq bench doctor conn-tcp-1M-5K_1n_true

Exit codes: 0 the run, or each run of a suite, ended as planned, whatever it measured; 1 it did not; 2 wrong
command line or file; 4 it ended as planned, and missed a criterion of --require.";

#[derive(Subcommand)]
enum Command {
    /// Show all scenarios of the reports with their published figures.
    List,
    /// Show how a scenario or a workload file is interpreted, and run nothing.
    Plan(Chosen),
    /// Run a scenario and print what was measured.
    ///
    /// The load is open-loop: latency is measured from the moment at which a message was due. CPU is in percent of the
    /// whole machine, as in the reports.
    Run(Box<Run>),
    /// Run a list of scenarios against each of several brokers, and write one report.
    Suite(Suite),
    /// Show two runs side by side.
    Compare(Compare),
    Conn(Box<Conn>),
    Sub(Box<Sub>),
    Pub(Box<Pub>),
    Doctor(Doctor),
    Slopes(MeasureSlopes),
    Agent(Serve),
    /// Play a share of a run; `run` and `agent` start it.
    #[command(hide = true)]
    Worker,
    /// Play a share of the clients of `conn`, `sub` and `pub`, which start it.
    #[command(hide = true)]
    Clients,
}

/// Two records.
#[derive(clap::Args)]
struct Compare {
    /// A file that `heraldmq bench run --json` wrote.
    before: PathBuf,
    /// Another such file.
    after: PathBuf,
    /// Also write the comparison to this file: one page that opens offline.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = match &arguments.command {
        Command::List => list(),
        Command::Plan(chosen) => describe(chosen)?,
        Command::Run(run) => return run.run(),
        Command::Suite(suite) => return suite.run(),
        Command::Compare(compare) => compare.run()?,
        Command::Conn(conn) => return conn.run(),
        Command::Sub(sub) => return sub.run(),
        Command::Pub(publish) => return publish.run(),
        Command::Doctor(doctor) => doctor.run()?,
        Command::Slopes(slopes) => slopes.run()?,
        Command::Agent(agent) => return agent.run(),
        Command::Worker => return agent::work(),
        Command::Clients => return agent::work_without_end(),
    };
    print(&text);
    Ok(())
}

impl Compare {
    /// Runs that are called the same are told apart by their files.
    fn named(&self, mut before: Record, mut after: Record) -> [Record; 2] {
        if before.label == after.label {
            for (record, path) in [(&mut before, &self.before), (&mut after, &self.after)] {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                record.label = format!("{} ({stem})", record.label);
            }
        }
        [before, after]
    }

    fn run(&self) -> Result<String, Failure> {
        let before = outputs::read_records(&self.before)?;
        let after = outputs::read_records(&self.after)?;
        let [before, after] = match (before.as_slice(), after.as_slice()) {
            ([before], [after]) => [before.clone(), after.clone()],
            _ => {
                let message = "compare takes two files with one run each; a suite has several";
                return Err(Failure::Usage(message.to_owned()));
            }
        };
        let [before, after] = self.named(before, after);
        let text = report::compare(&before, &after);
        if let Some(path) = &self.html {
            let title = format!("{} and {}", before.label, after.label);
            outputs::write_file(path, &report::page(&title, &[before, after]))?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// The outcome of `bench` with these arguments.
    fn outcome(arguments: &[&str]) -> Result<(), Failure> {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            arguments: Arguments,
        }
        let line = ["bench"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).map_err(|e| Failure::Usage(e.to_string()))?;
        run(&cli.arguments)
    }

    #[test]
    fn wrong_command_lines_are_usage_and_what_the_machine_lacks_is_not() {
        let name = "2k_2k_qos0_p32_100mps_1n";
        let target = ["--target", "localhost:1"];
        for wrong in [
            ["plan", "100_100_qos0_p1024_50mps"].as_slice(),
            &["plan", "nonsense"],
            &["plan", name, "--scale", "0"],
            &["run", name],
            &["run", name, "--target", "localhost"],
            &["run", name, "--target", "localhost:1", "--duration", "0s"],
            &["run", name, "--target", "localhost:1", "--workers", "0"],
            &["run", name, "--target", "localhost:1", "--protocol", "4"],
            &[
                "run",
                name,
                "--target",
                "localhost:1",
                "--find-max",
                "p98<1ms",
            ],
        ] {
            let outcome = outcome(wrong);
            assert!(
                matches!(outcome, Err(Failure::Usage(_))),
                "{wrong:?}: {outcome:?}"
            );
        }
        assert_eq!(outcome(&["plan", name]), Ok(()));
        let name = "100M publishers, 500 APPLICATION subscribers, 1 h";
        let line = [["run", name].as_slice(), &target, &["--workers", "1"]].concat();
        match outcome(&line) {
            Err(Failure::Runtime(message)) => assert!(message.contains("--scale 1/"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

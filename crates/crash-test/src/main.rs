//! The `crash-test` command: plays a run against a broker, or damages files for other tests.
//!
//! Exit code 0: all promises were kept; 1: some were not, or the broker did not come back; 2: wrong
//! arguments.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand, ValueEnum};
use crash_test::cast::Numbers;
use crash_test::chance::Chance;
use crash_test::faults::{Filesystem, flip_bit, tear_newest};
use crash_test::run::{Fault, Options, Run, Summary, Unsynced};
use crash_test::subject::{Kind, Subject};

/// Kills brokers and looks for what was lost.
#[derive(Parser)]
#[command(name = "crash-test", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays rounds of work that each end in a fault, and verifies what arrives.
    Run(Play),
    /// Cuts the last bytes off the newest file of a folder.
    Tear {
        /// The folder; subfolders are searched, too.
        folder: PathBuf,
        /// At most so many bytes.
        #[arg(long, default_value_t = 4096)]
        bytes: u64,
        /// Repeats a choice.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Flips one bit of a file.
    Flip {
        /// The file.
        file: PathBuf,
        /// Of the byte; any byte if not given.
        #[arg(long)]
        offset: Option<u64>,
        /// Repeats a choice.
        #[arg(long)]
        seed: Option<u64>,
    },
}

#[derive(Args)]
struct Play {
    /// How many rounds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repeats the choices of a run (not its timing).
    #[arg(long)]
    seed: Option<u64>,
    /// What ends a round.
    #[arg(long, value_enum, default_value = "kill")]
    fault: FaultName,
    /// Publishers.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    publishers: usize,
    /// Subscribers, besides watchers of wills and members of the shared subscription.
    #[arg(long, default_value_t = 8)]
    subscribers: usize,
    /// Members of the shared subscription.
    #[arg(long, default_value_t = 3)]
    members: usize,
    /// Clients with wills.
    #[arg(long, default_value_t = 5)]
    mourned: usize,
    /// Shards of each store of HeraldMQ; its own choice if not given.
    #[arg(long)]
    shards: Option<u16>,
    /// The broker under test.
    #[arg(long, value_enum, default_value = "heraldmq")]
    subject: SubjectName,
    /// Its program; HERALDMQ_BIN or a release build beside this program if not given.
    #[arg(long)]
    program: Option<PathBuf>,
    /// A setting of HeraldMQ, key=value; may be given several times.
    #[arg(long = "set")]
    settings: Vec<String>,
    /// Where the broker listens; its HTTP port is the next.
    #[arg(long, default_value_t = 24_100)]
    port: u16,
    /// Rounds between drains.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    drain_every: u32,
    /// What makes renames and unlinks durable.
    #[arg(long, value_enum, default_value = "strict")]
    filesystem: FilesystemName,
    /// What survives a loss of power although it was not synced.
    #[arg(long, value_enum, default_value = "either")]
    unsynced: UnsyncedName,
    /// Seconds without any progress after which what is missing counts as lost.
    #[arg(long, default_value_t = 5)]
    patience: u64,
    /// A folder for data and log, kept; a temporary one if not given.
    #[arg(long)]
    work: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FaultName {
    Kill,
    Power,
    Full,
    Fsync,
    Leave,
    Stop,
    Cut,
}

#[derive(Clone, Copy, ValueEnum)]
enum SubjectName {
    Heraldmq,
    Mosquitto,
}

#[derive(Clone, Copy, ValueEnum)]
enum FilesystemName {
    Strict,
    Ext4,
}

#[derive(Clone, Copy, ValueEnum)]
enum UnsyncedName {
    Lost,
    Torn,
    Either,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("must be a number".to_owned()),
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(play) => play.play(),
        Command::Tear {
            folder,
            bytes,
            seed,
        } => tear_newest(&folder, bytes, &mut chance(seed)).map_or_else(
            |error| Err(error.to_string()),
            |(path, cut)| say(&format!("{cut} bytes cut off {}", path.display())),
        ),
        Command::Flip { file, offset, seed } => flip_bit(&file, offset, &mut chance(seed))
            .map_or_else(
                |error| Err(error.to_string()),
                |at| say(&format!("a bit flipped at byte {at} of {}", file.display())),
            ),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            let _ = writeln!(io::stderr(), "crash-test: {message}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> Result<ExitCode, String> {
    writeln!(io::stdout(), "{text}").map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn chance(seed: Option<u64>) -> Chance {
    Chance::new(seed.unwrap_or_else(some_seed))
}

fn some_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64 % 1_000_000_000)
}

impl Play {
    fn play(self) -> Result<ExitCode, String> {
        let options = self.options();
        let work = Work::open(self.work.as_deref()).map_err(|error| error.to_string())?;
        let subject = self.subject(&work)?;
        let mut out = io::stdout();
        let header = format!(
            "crash-test: {} rounds of {}, seed {}, {}",
            options.rounds,
            name(self.fault),
            options.seed,
            subject.program.display()
        );
        say(&header)?;
        let began = Instant::now();
        let run = Run::new(options, subject, &mut out).map_err(|error| error.to_string())?;
        let summary = run
            .play()
            .map_err(|error| format!("seed {}: {error}", options.seed))?;
        say(&describe(&summary, began.elapsed()))?;
        Ok(if summary.violations.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn options(&self) -> Options {
        Options {
            rounds: self.rounds,
            seed: self.seed.unwrap_or_else(some_seed),
            fault: match self.fault {
                FaultName::Kill => Fault::Kill,
                FaultName::Power => Fault::Power,
                FaultName::Full => Fault::Full,
                FaultName::Fsync => Fault::Fsync,
                FaultName::Leave => Fault::Leave,
                FaultName::Stop => Fault::Stop,
                FaultName::Cut => Fault::Cut,
            },
            numbers: Numbers {
                publishers: self.publishers,
                subscribers: self.subscribers,
                members: self.members,
                mourned: self.mourned,
            },
            drain_every: self.drain_every,
            filesystem: match self.filesystem {
                FilesystemName::Strict => Filesystem::Strict,
                FilesystemName::Ext4 => Filesystem::Ext4,
            },
            unsynced: match self.unsynced {
                UnsyncedName::Lost => Unsynced::Lost,
                UnsyncedName::Torn => Unsynced::Torn,
                UnsyncedName::Either => Unsynced::Either,
            },
            patience: Duration::from_secs(self.patience),
        }
    }

    fn subject(&self, work: &Work) -> Result<Subject, String> {
        let (kind, default) = match self.subject {
            SubjectName::Heraldmq => (Kind::HeraldMq, herald_program()?),
            SubjectName::Mosquitto => (Kind::Mosquitto, PathBuf::from("mosquitto")),
        };
        Ok(Subject {
            kind,
            program: self.program.clone().unwrap_or(default),
            work: work.path.clone(),
            port: self.port,
            shards: self.shards,
            settings: self.settings.clone(),
        })
    }
}

fn herald_program() -> Result<PathBuf, String> {
    if let Some(program) = std::env::var_os("HERALDMQ_BIN") {
        return Ok(program.into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.ancestors().nth(2).unwrap_or(Path::new("."));
    Ok(target.join("release/heraldmq"))
}

/// The folder of a run, removed in the end if nobody asked for it.
struct Work {
    path: PathBuf,
    is_temporary: bool,
}

impl Work {
    fn open(wanted: Option<&Path>) -> io::Result<Self> {
        let path = wanted.map_or_else(
            || std::env::temp_dir().join(format!("crash-test-{}", std::process::id())),
            Path::to_owned,
        );
        std::fs::create_dir_all(&path)?;
        Ok(Self {
            path: path.canonicalize()?,
            is_temporary: wanted.is_none(),
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn name(fault: FaultName) -> String {
    fault
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

fn describe(summary: &Summary, took: Duration) -> String {
    let mut text = format!(
        "{} messages, {} acknowledged, {} received, in {:.1} s",
        summary.messages,
        summary.acknowledged,
        summary.receipts,
        took.as_secs_f64()
    );
    if summary.taken_back > 0 {
        text += &format!("; {} unsynced changes taken back", summary.taken_back);
    }
    if summary.refused > 0 {
        text += &format!("; {} writes and syncs refused", summary.refused);
    }
    for (kind, count) in &summary.violations {
        text += &format!("\n{count} times: {} [{kind:?}]", kind.statement());
    }
    if summary.violations.is_empty() {
        text += "\nevery promise was kept";
    }
    text
}

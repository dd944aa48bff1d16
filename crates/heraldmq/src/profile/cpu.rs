//! `heraldmq profile cpu`.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admin::api::CpuProfile;
use text_table::{Table, units};

use super::pprof::Sampled;
use super::stacks::{NamedStack, Seen};
use super::symbols::Symbols;
use super::{flame, path_of, pprof, stacks};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::output::{fitted, print};

/// The most bytes of an answer: 10,000 stacks of 128 places.
const LONGEST: u64 = 64 << 20;

/// Functions that are printed.
const PRINTED: usize = 20;

/// Write where the CPU time of a node goes: a flame graph (cpu.svg) and a file for pprof (cpu.pb.gz).
///
/// The node takes 199 samples for each second of CPU time that it uses, one profile at a time; only administrators may make one. Names of
/// functions come from the symbols of the node's build, which are looked for in this program, in heraldmq.debug beside it, and in
/// /usr/lib/debug, where the package heraldmq-dbgsym has them.
#[derive(clap::Args)]
pub(super) struct CpuArguments {
    #[command(flatten)]
    port: HttpPort,
    /// How long the node samples, 1 to 60 s.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=60), conflicts_with = "from")]
    seconds: u16,
    /// The identifier or name of the node; the node that is asked passes the request on. Without it, that node.
    #[arg(long, value_name = "NODE", conflicts_with = "from")]
    node: Option<String>,
    /// The folder for cpu.svg and cpu.pb.gz; it is made if it is not there.
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// The file with the symbols of the node's build.
    #[arg(long, value_name = "FILE")]
    symbols: Option<PathBuf>,
    /// Print the broker's answer unchanged, as JSON with addresses, and write no files.
    #[arg(long, conflicts_with_all = ["symbols", "from"])]
    json: bool,
    /// Make the files of an answer that --json has printed, and ask no broker.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

pub(super) fn run(arguments: &CpuArguments) -> Result<(), Failure> {
    let text = match &arguments.from {
        Some(file) => fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?,
        None => {
            let port = &arguments.port;
            let path = path_of(port, arguments.node.as_ref(), "profile/cpu")?;
            let seconds = arguments.seconds;
            let path = format!("{path}?seconds={seconds}");
            port.post_long(&path, Duration::from_secs(seconds.into()), LONGEST)?
        }
    };
    if arguments.json {
        return print(&(text + "\n"));
    }
    let profile: CpuProfile = parse(&text)?;
    if profile.stacks.is_empty() {
        let why =
            "the node used too little CPU time for a sample, so that there is nothing to show";
        return Err(Failure::Runtime(why.into()));
    }
    let symbols = Symbols::find(&profile, arguments.symbols.as_deref())?;
    let stacks = stacks::named(&profile, &symbols)?;
    let folder = &arguments.output;
    let unusable = |path: &Path, error| Failure::Runtime(format!("{}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| unusable(folder, error))?;
    let (graph, pprof) = (folder.join("cpu.svg"), folder.join("cpu.pb.gz"));
    let create = |path: &Path| {
        let file = File::create(path).map_err(|error| unusable(path, error))?;
        Ok::<_, Failure>(BufWriter::new(file))
    };
    let title = title(&profile);
    flame::write(&title, &stacks, create(&graph)?).map_err(|error| unusable(&graph, error))?;
    let sampled = Sampled {
        hertz: i64::try_from(profile.hertz.0).unwrap_or(i64::MAX),
        lasted_ns: i64::try_from(profile.lasted_ms.0.saturating_mul(1_000_000)).unwrap_or(i64::MAX),
    };
    pprof::write(&stacks, sampled, create(&pprof)?).map_err(|error| unusable(&pprof, error))?;
    print(&format!(
        "{}\n{}{} and {}\n",
        fitted(table(&stacks), false),
        summary(&profile),
        graph.display(),
        pprof.display()
    ))
}

fn title(profile: &CpuProfile) -> String {
    let name = match profile.node_name.as_str() {
        "" => profile.node.to_string(),
        name => name.to_owned(),
    };
    let seconds = profile.lasted_ms.0 as f64 / 1_000.0;
    format!(
        "CPU of node {name}, HeraldMQ {}, {seconds:.0} s",
        profile.version
    )
}

/// How much was seen, and what follows are the files.
fn summary(profile: &CpuProfile) -> String {
    let cpu = profile.cpu_ms.0 as f64 / 1_000.0;
    let lost = match profile.lost.0 {
        0 => String::new(),
        lost => format!(", {} more lost", units::count(lost)),
    };
    format!(
        "{} of {cpu:.1} s of CPU time{lost}; in ",
        units::counted(profile.samples.0, "sample", "samples")
    )
}

fn table(stacks: &[NamedStack]) -> Table {
    let all: i64 = stacks.iter().map(|stack| stack.count).sum();
    let percent = |count: i64| format!("{:.1} %", count as f64 * 100.0 / all.max(1) as f64);
    let mut table = Table::new(["ITSELF", "WITH CALLS", "FUNCTION"]).with_text([2]);
    for seen in stacks::functions(stacks).into_iter().take(PRINTED) {
        let Seen {
            function,
            itself,
            total,
        } = seen;
        table.row([percent(itself), percent(total), function]);
    }
    table
}

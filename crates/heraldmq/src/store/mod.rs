//! `heraldmq store`: what the data folder of a broker holds, whether all of it can be read, how its node
//! goes on when the others are gone, and damage for trials.
//!
//! Invariants: only `recover` and `damage` change anything in the folder; a folder that a broker uses is refused.
//!
//! Deliberately absent: reading and judging, which is `store::survey`; what `recover` does, which is
//! `store::recover`.

mod damage;
mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use store::{Folder, LostShards, NodeSurvey, Others};
use store_state::api::{PerStore, ShardNumber, StoreId};

use crate::failure::Failure;
use crate::serve::data_dir;
use damage::Wishes;

/// Inspect, verify and repair the data folder of a stopped broker.
///
/// `inspect` and `verify` read the whole folder and change nothing in it; no broker can start on the folder meanwhile.
/// `recover` is for a cluster that has permanently lost a majority of its nodes, and for a node whose log is damaged if
/// no other node has the lost data. `damage` is for trials with copies of data folders.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq store inspect /var/lib/heraldmq
  heraldmq store inspect /var/lib/heraldmq --json | jq .stores
  heraldmq store verify /var/lib/heraldmq && heraldmq serve --data-dir /var/lib/heraldmq

Exit codes: 0 the folder was read, and `verify` found no error; 1 errors were found, or the folder cannot be
read, is in use, or is not a data folder; 2 wrong command line.";

#[derive(Subcommand)]
enum Command {
    /// Show what a data folder contains.
    ///
    /// Shows sessions, queued and retained messages by shard, the fullest inboxes, the log, and the log entries that a
    /// broker would apply again when it starts.
    #[command(after_help = EXAMPLES)]
    Inspect {
        #[command(flatten)]
        place: Place,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read a whole data folder and report errors.
    ///
    /// Prints OK, or one line for each finding: store, shard, key and what is wrong. An incomplete end of the log,
    /// which a broker repairs when it starts, is only a note.
    #[command(after_help = EXAMPLES)]
    Verify(Place),
    /// Let a node continue alone after its cluster has permanently lost its majority, or without data lost to damage.
    ///
    /// With --majority-is-lost, messages that the lost nodes acknowledged and this node does not have are lost, and the
    /// lost nodes must never start with their old folders again. Run this on one node only, evict the lost nodes, and
    /// let the other remaining nodes join with empty folders. See docs/operate/cluster.md.
    Recover {
        #[command(flatten)]
        place: Place,
        /// Confirm that the other nodes are gone for good.
        #[arg(long, required_unless_present = "accept_damage")]
        majority_is_lost: bool,
        /// Continue without the data of this shard, such as inbox/0, that damage to the log has lost; may be repeated.
        ///
        /// Prints which entries of the shard's log are lost. What was acknowledged in these entries is gone, unless the
        /// shard's tables have it. The command refuses a shard of which other nodes have replicas, because these nodes
        /// send the missing data. Without --majority-is-lost, nothing else changes.
        #[arg(long, value_name = "STORE/SHARD", value_parser = shard)]
        accept_damage: Vec<(StoreId, ShardNumber)>,
        /// Start again, empty, each shard of which this node has no replica, because no remaining node has one.
        ///
        /// What these shards held is lost: sessions and wills, subscriptions and queued messages, or retained
        /// messages. All other members of the cluster are evicted, so that none of them comes back with its old
        /// folder. Without the option such shards stay without a leader.
        #[arg(long, requires = "majority_is_lost")]
        begin_lost_shards_anew: bool,
    },
    /// Damage a data folder on purpose, to see how a broker reports it. Never use it on data that matters.
    ///
    /// Changes or removes one file, chosen by a seed, as a failing disk would. With a copy of a folder you can see what
    /// `verify` reports, how a broker starts, and how your alerts and operators react. The damage cannot be undone.
    /// Prints what was changed; the same seed causes the same damage to the same files. See docs/operate/damage.md.
    #[command(after_help = DAMAGE_EXAMPLES)]
    Damage {
        /// The data folder of a stopped broker. Stores in other folders stay unchanged.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The seed of all random choices.
        #[arg(long, value_name = "N")]
        seed: u64,
        #[command(flatten)]
        wishes: Wishes,
        /// Confirm that the contents of the folder may be lost.
        #[arg(long, required = true)]
        yes_destroy_data: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

const DAMAGE_EXAMPLES: &str = "\
Examples:
  cp -a /var/lib/heraldmq /tmp/copy
  heraldmq store damage /tmp/copy --seed 1 --yes-destroy-data
  heraldmq store verify /tmp/copy
  heraldmq store damage /tmp/copy --seed 2 --kind flip --files log --at-end --yes-destroy-data

Exit codes: 0 one file is damaged; 1 the folder is in use, is no data folder, or has no such file; 2 wrong
command line.";

/// Where the stores are.
#[derive(clap::Args)]
struct Place {
    /// The data folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder of the session store, if it has moved since the broker last ran.
    #[arg(long, value_name = "DIR")]
    session_store: Option<PathBuf>,
    /// Folder of the inbox store, if it has moved since the broker last ran.
    #[arg(long, value_name = "DIR")]
    inbox_store: Option<PathBuf>,
    /// Folder of the retain store, if it has moved since the broker last ran.
    #[arg(long, value_name = "DIR")]
    retain_store: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    data_dir::keep_private();
    match &arguments.command {
        Command::Inspect { place, json } => inspect(place, *json),
        Command::Verify(place) => verify(place),
        Command::Recover {
            place,
            majority_is_lost,
            accept_damage,
            begin_lost_shards_anew,
        } => {
            if !accept_damage.is_empty() {
                let others = match majority_is_lost {
                    true => Others::AreLost,
                    false => Others::MayVote,
                };
                accept(place, accept_damage, others)?;
            }
            match majority_is_lost {
                true => recover(place, *begin_lost_shards_anew),
                false => Ok(()),
            }
        }
        Command::Damage {
            folder,
            seed,
            wishes,
            json,
            ..
        } => damage(folder, *seed, wishes, *json),
    }
}

fn inspect(place: &Place, json: bool) -> Result<(), Failure> {
    let survey = place.survey()?;
    print(&if json {
        serde_json::to_string_pretty(&survey)
            .map_err(|error| Failure::Runtime(error.to_string()))?
            + "\n"
    } else {
        text::inspection(&survey)
    });
    Ok(())
}

fn verify(place: &Place) -> Result<(), Failure> {
    let survey = place.survey()?;
    print(&text::verdict(&survey));
    let found = survey.findings.len() as u64 + survey.more_findings;
    match found {
        0 => Ok(()),
        _ => Err(Failure::Runtime(format!(
            "{}: {found} {} wrong",
            survey.folder.display(),
            if found == 1 { "thing is" } else { "things are" }
        ))),
    }
}

fn recover(place: &Place, begins_lost: bool) -> Result<(), Failure> {
    let failed = |error: String| Failure::Runtime(error);
    let folder = Folder::open(&place.folder).map_err(|error| failed(error.to_string()))?;
    let lost = match begins_lost {
        true => LostShards::BeginAnew {
            now_ms: now_ms(&folder)?,
        },
        false => LostShards::Leave,
    };
    let recovered = store::recover(&folder, &place.elsewhere()?, lost);
    broker::go_on_alone(&place.folder).map_err(failed)?;
    let recovered = recovered.map_err(|error| failed(error.to_string()))?;
    print(&text::recovery(&recovered));
    if begins_lost {
        let evicted = broker::evict_others(&place.folder).map_err(failed)?;
        print(&text::evicted(&evicted));
    }
    Ok(())
}

/// The shard that is meant: a store and a number.
fn shard(text: &str) -> Result<(StoreId, ShardNumber), String> {
    let (store, number) = text.split_once('/').unwrap_or((text, ""));
    let store = StoreId::ALL.into_iter().find(|id| id.name() == store);
    let number = number.parse().ok();
    store.zip(number).ok_or_else(|| {
        "a store and the number of its shard are wanted: session/0, inbox/0, retain/0 or control/0".to_owned()
    })
}

fn accept(place: &Place, shards: &[(StoreId, ShardNumber)], others: Others) -> Result<(), Failure> {
    let failed = |error: String| Failure::Runtime(error);
    let folder = Folder::open(&place.folder).map_err(|error| failed(error.to_string()))?;
    let accepted = store::accept_damage(&folder, &place.elsewhere()?, shards, others);
    let accepted = accepted.map_err(|error| failed(error.to_string()))?;
    print(&text::accepted(&accepted));
    Ok(())
}

fn damage(folder: &Path, seed: u64, wishes: &Wishes, json: bool) -> Result<(), Failure> {
    let done = damage::damage(folder, seed, wishes)?;
    print(&if json {
        serde_json::to_string(&done).map_err(|error| Failure::Runtime(error.to_string()))? + "\n"
    } else {
        format!("{done}\n")
    });
    Ok(())
}

/// Unix time in ms. Shards that begin anew take their epochs and terms from it: a clock that is behind could give some that
/// the lost shards have given.
fn now_ms(folder: &Folder) -> Result<u64, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.ok().and_then(|now| u64::try_from(now.as_millis()).ok());
    let last_alive_ms = folder.last_alive_ms().unwrap_or(0);
    now_ms.filter(|now| *now >= last_alive_ms).ok_or_else(|| {
        let why = "the system clock is behind the time at which this node last ran: set it first";
        Failure::Runtime(why.to_owned())
    })
}

impl Place {
    fn survey(&self) -> Result<NodeSurvey, Failure> {
        let survey = store::survey(&self.folder, &self.elsewhere()?);
        survey.map_err(|error| Failure::Runtime(error.to_string()))
    }

    /// The folders of the three stores that are not in the data folder.
    fn elsewhere(&self) -> Result<PerStore<Option<PathBuf>>, Failure> {
        let absolute = |folder: &Option<PathBuf>| {
            let folder = folder.as_deref().map(std::path::absolute).transpose();
            folder.map_err(|error| Failure::Runtime(error.to_string()))
        };
        Ok(PerStore {
            session: absolute(&self.session_store)?,
            inbox: absolute(&self.inbox_store)?,
            retain: absolute(&self.retain_store)?,
            control: None,
        })
    }
}

/// A reader that stopped listening changes nothing about the outcome.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

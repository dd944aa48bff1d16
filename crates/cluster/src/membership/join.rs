//! How a node comes to its cluster: from its file, by asking a member, or by beginning one when nobody it knows of has one
//! (`founding.rs`).

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::folder::record::Record;
use crate::links::connect::dial;
use crate::members::list::Place;
use crate::membership::error::StartError;
use crate::membership::founding::{Answer, Hold, Waiting, judge};
use crate::protocol::handshake::{Admission, Identity, Purpose, Words};
use crate::protocol::refusal::{Failure, Refusal};
use crate::state::connect_error::ConnectError;
use crate::state::shared::Shared;

/// Between two rounds of asking all seeds.
const ROUND: Duration = Duration::from_millis(500);

/// Between two lines in the log that say what is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns when this node knows its cluster, with whether its data folder has had no stamps before.
pub(crate) async fn belong(shared: &Shared) -> Result<bool, StartError> {
    let is_first = shared.begin_stamps()?;
    if let Some(mut record) = shared.read_record()? {
        if record.evicted.contains(&shared.options.node) {
            return Err(StartError::Evicted);
        }
        note_address(shared, &record.members)?;
        if shared.options.accepts_folder {
            accept_folders(&mut record);
        }
        shared.belong(record);
        return Ok(is_first);
    }
    let record = match find_member(shared).await? {
        Some(found) => join(shared, found)?,
        None => begin(shared),
    };
    shared.write_record(&record)?;
    note_address(shared, &[])?;
    shared.belong(record);
    Ok(is_first)
}

/// The folders of all members are taken as they are: how often the others were started is not known any more, so nothing that
/// is kept of their starts counts.
fn accept_folders(record: &mut Record) {
    for member in &mut record.members {
        member.incarnation = 0;
    }
    tracing::warn!(
        members = record.members.len(),
        "started with --accept-folder: the data folder is taken as it is, and what it remembers of the other members' \
         folders is forgotten. If a folder is an old copy, what its node has acknowledged since then may be lost"
    );
}

/// Says if the node is not where it was: perhaps somebody has mistaken the folder for another node's.
fn note_address(shared: &Shared, members: &[Place]) -> Result<(), StartError> {
    let place = shared.place();
    let known = members.iter().find(|other| other.address == place.address);
    if let Some(other) = known {
        tracing::warn!(
            node = format_args!("{:016x}", place.node),
            address = place.address,
            member = format_args!("{:016x}", other.node),
            "the data folder is that of another node than the one that the cluster knows at this address"
        );
    }
    if let Some(before) = shared.note_address(&place.address)? {
        tracing::warn!(
            node = format_args!("{:016x}", place.node),
            before,
            now = place.address,
            "the data folder is that of a node which had another address: the other nodes now use this one"
        );
    }
    Ok(())
}

fn begin(shared: &Shared) -> Record {
    let record = Record {
        // 0 means none.
        cluster: rand::random_range(1..=u64::MAX),
        env: shared.options.env.clone(),
        node: shared.options.node,
        gossip_key: rand::random(),
        evicted: Default::default(),
        members: Vec::new(),
        welcome: None,
    };
    tracing::info!(
        cluster = format_args!("{:016x}", record.cluster),
        "a new cluster begins"
    );
    record
}

/// A member that lets this node in, what it tells, and the version that was agreed on.
type Found = (Identity, Admission, u16);

fn join(shared: &Shared, found: Found) -> Result<Record, StartError> {
    let (peer, admission, version) = found;
    let words = Words::decode(&admission.welcome, version);
    let words = words.ok_or_else(|| StartError::Welcome("it makes no sense".to_owned()))?;
    let welcome = words.welcome.into();
    let welcomed = shared.handler.welcomed(&welcome);
    welcomed.map_err(StartError::Welcome)?;
    shared.handler.noted(version, &words.note);
    tracing::info!(
        cluster = format_args!("{:016x}", peer.cluster),
        member = peer.place.address,
        "joined a cluster"
    );
    Ok(Record {
        cluster: peer.cluster,
        env: peer.env,
        node: shared.options.node,
        gossip_key: admission.gossip_key,
        evicted: admission.evicted.into_iter().collect(),
        members: admission.members,
        welcome: Some(welcome.to_vec()),
    })
}

/// Asks all seeds, again and again, until a member is found, or a cluster is to be begun: `None`.
async fn find_member(shared: &Shared) -> Result<Option<Found>, StartError> {
    let began = Instant::now();
    let mut said: Option<Instant> = None;
    let own = Waiting {
        place: shared.place(),
        founds: shared.options.bootstrap,
    };
    while !shared.options.give_up.load(Relaxed) {
        let mut problems = Vec::new();
        let addresses = shared.seeds.resolve(&mut problems).await;
        let mut answers: Vec<Answer> = problems.into_iter().map(Answer::Unknown).collect();
        let asking = addresses.iter().map(|address| ask(shared, address));
        for asked in join_all(asking).await {
            match asked? {
                Asked::LetsIn(found) => return Ok(Some(*found)),
                Asked::Answers(answer) => answers.push(answer),
            }
        }
        answers.extend(shared.seeds.heard.said().map(Answer::Unknown));
        let judged = judge(&own, &answers, began.elapsed(), shared.options.found_after);
        match judged {
            Ok(()) => return Ok(None),
            Err(Hold::Listens) => {}
            Err(hold) if said.is_none_or(|said| said.elapsed() >= PATIENCE) => {
                // While nodes are started together, some are not there yet.
                let lasts = said.is_some();
                say(&shared.options.env, &hold, &answers, lasts);
                said = Some(Instant::now());
            }
            Err(_) => {}
        }
        sleep(ROUND).await;
    }
    Err(StartError::GivenUp)
}

/// What came of asking one address.
enum Asked {
    LetsIn(Box<Found>),
    Answers(Answer),
}

async fn ask(shared: &Shared, (address, host): &(SocketAddr, String)) -> Result<Asked, StartError> {
    // A node need not be able to reach itself by the way that others take.
    if shared.seeds.is_own(address) {
        return Ok(Asked::Answers(Answer::Itself));
    }
    let unknown = |what: String| Answer::Unknown(format!("{address}: {what}"));
    let answer = match dial(shared, *address, host, Purpose::Join, None).await {
        Ok(dialled) => match dialled.admission {
            Some(admission) => {
                let found = (dialled.peer, admission, dialled.version);
                return Ok(Asked::LetsIn(Box::new(found)));
            }
            None => unknown("it tells nothing".to_owned()),
        },
        Err(ConnectError::Failure(Failure::They {
            refusal: Refusal::Itself,
            ..
        })) => Answer::Itself,
        Err(ConnectError::Failure(Failure::Waits(other))) => Answer::Waits(other),
        Err(ConnectError::Io(error))
            if address.ip().is_loopback() && error.kind() == ErrorKind::ConnectionRefused =>
        {
            Answer::Nobody
        }
        Err(ConnectError::Failure(Failure::They {
            refusal: Refusal::Evicted,
            proven: true,
        })) => return Err(StartError::Evicted),
        Err(error) => unknown(error.to_string()),
    };
    Ok(Asked::Answers(answer))
}

/// Says what is waited for.
fn say(env: &str, hold: &Hold, answers: &[Answer], lasts: bool) {
    match hold {
        Hold::Unknown(unknown) => {
            let tried = unknown.join("; ");
            if !lasts {
                tracing::info!(
                    env,
                    tried,
                    "waits for other nodes before it founds a cluster"
                );
                return;
            }
            tracing::warn!(
                env,
                tried,
                "waits before it founds a cluster (bootstrap): a member of an existing cluster may be down at these addresses; \
                 each one has to say that it belongs to no cluster. If no node will ever be there, remove the address from \
                 clusterConfig.seedEndpoints"
            );
        }
        Hold::Other(other) => {
            let founder = &other.place.address;
            tracing::info!(env, founder, "waits for another node to found the cluster");
        }
        Hold::NotAllowed | Hold::Listens => {
            let tried = answers.iter().filter_map(|answer| match answer {
                Answer::Itself | Answer::Nobody => None,
                Answer::Waits(other) => Some(format!("{}: it waits as well", other.place.address)),
                Answer::Unknown(why) => Some(why.clone()),
            });
            let tried = tried.collect::<Vec<_>>().join("; ");
            tracing::warn!(env, tried, "waits for a member of the cluster to join");
        }
    }
}

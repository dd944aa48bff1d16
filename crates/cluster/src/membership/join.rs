//! How a node comes to its cluster: from its file, by beginning one, or by asking a member.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{Instant, sleep};

use crate::folder::record::Record;
use crate::links::connect::dial;
use crate::members::list::Place;
use crate::membership::error::StartError;
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
    let record = match shared.options.bootstrap {
        true => begin(shared),
        false => join(shared).await?,
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

async fn join(shared: &Shared) -> Result<Record, StartError> {
    let (peer, admission, version) = find_member(shared).await?;
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

/// Asks all seeds, again and again.
async fn find_member(shared: &Shared) -> Result<(Identity, Admission, u16), StartError> {
    let mut said: Option<Instant> = None;
    while !shared.options.give_up.load(Relaxed) {
        let mut problems = Vec::new();
        for (address, host) in resolve(shared, &mut problems).await {
            match dial(shared, address, &host, Purpose::Join, None).await {
                Ok(dialled) => match dialled.admission {
                    Some(admission) => return Ok((dialled.peer, admission, dialled.version)),
                    None => problems.push(format!("{address}: it tells nothing")),
                },
                Err(ConnectError::Failure(failure)) => match failure {
                    Failure::They {
                        refusal: Refusal::Itself,
                        ..
                    } => {}
                    Failure::They {
                        refusal: Refusal::Evicted,
                        proven: true,
                    } => return Err(StartError::Evicted),
                    failure => problems.push(format!("{address}: {failure}")),
                },
                Err(error) => problems.push(format!("{address}: {error}")),
            }
        }
        if said.is_none_or(|said| said.elapsed() >= PATIENCE) {
            let env = &shared.options.env;
            let tried = problems.join("; ");
            tracing::warn!(env, tried, "waits for a member of the cluster to join");
            said = Some(Instant::now());
        }
        sleep(ROUND).await;
    }
    Err(StartError::GivenUp)
}

/// The addresses of all seeds, with the names that their certificates must have.
pub(crate) async fn resolve(
    shared: &Shared,
    problems: &mut Vec<String>,
) -> Vec<(SocketAddr, String)> {
    let mut found = Vec::new();
    for endpoint in endpoints(shared) {
        match lookup_host(&endpoint).await {
            Ok(addresses) => {
                let host = crate::links::connect::host_of(&endpoint);
                found.extend(addresses.map(|address| (address, host.to_owned())));
            }
            Err(error) => problems.push(format!("{endpoint}: {error}")),
        }
    }
    found
}

fn endpoints(shared: &Shared) -> Vec<String> {
    let options = &shared.options;
    let mut endpoints = options.seeds.clone();
    let domain = options.domain.as_ref();
    endpoints.extend(domain.map(|domain| format!("{domain}:{}", options.port)));
    endpoints.extend(shared.more_seeds.lock().iter().cloned());
    endpoints
}

//! A node that was started shows its data folder to the other members, and takes part in nothing before they have
//! confirmed that it is not an old copy.
//!
//! A majority of the members, this node included, has to agree, and all others that can be reached; each one that
//! refuses decides. Those that answered remember this start, on their disks, before they answer. While the node
//! runs, and when it stops in order, it tells them how far it has come: a copy that was made while it ran is
//! refused as well.
//!
//! Somebody may have a node take its folder as it is (`--accept-folder`): then nobody is waited for longer than members that
//! can be reached take to answer. A refusal decides all the same, because only the one who starts the refusing member can
//! have it forget what it remembers.
//!
//! Deliberately absent: what is compared, which is `folder/stamps.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::links::connect::{dial, dial_endpoint};
use crate::members::reach::Reach;
use crate::membership::error::StartError;
use crate::protocol::handshake::Purpose;
use crate::protocol::refusal::{Failure, ShutOut};
use crate::state::connect_error::ConnectError;
use crate::state::shared::Shared;

/// Between two attempts to reach the same member.
const AGAIN: Duration = Duration::from_millis(250);

/// How often is looked whether enough have answered.
const LOOK: Duration = Duration::from_millis(50);

/// Seeds are asked as well when the members are not found where they were.
const SEEDS: Duration = Duration::from_millis(500);

/// Between two lines in the log that say what is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has the folder confirmed. Returns when it is, or when all known members were asked in vain; then they are asked
/// again and again beside all else, and [`Shared::admitted`] tells when they have answered.
pub(crate) async fn begin(shared: &Arc<Shared>, is_first: bool) -> Result<(), StartError> {
    let asked_all = CancellationToken::new();
    let patience = shared.options.timings.down;
    let asking = Asking::new(shared.clone(), is_first).run(asked_all.clone());
    let mut asking = Box::pin(asking);
    tokio::select! {
        outcome = &mut asking => return outcome.map_err(|reason| match reason {
            ShutOut::Evicted => StartError::Evicted,
            reason => StartError::ShutOut(reason),
        }),
        () = asked_all.cancelled() => {}
        () = sleep(patience) => {}
    }
    let shared = shared.clone();
    tokio::spawn(async move {
        if let Err(reason) = asking.await {
            shared.shut_out(reason);
        }
    });
    Ok(())
}

/// What came of asking one member.
type Asked = (u64, Result<(), ConnectError>);

struct Asking {
    shared: Arc<Shared>,
    is_first: bool,
    begun: Instant,
    /// Members that have confirmed.
    confirmed: BTreeSet<u64>,
    /// Why members have not.
    problems: BTreeMap<u64, String>,
    /// Those that are being asked.
    asked: BTreeSet<u64>,
    answers: FuturesUnordered<BoxFuture<'static, Asked>>,
}

impl Asking {
    fn new(shared: Arc<Shared>, is_first: bool) -> Self {
        Self {
            shared,
            is_first,
            begun: Instant::now(),
            confirmed: BTreeSet::new(),
            problems: BTreeMap::new(),
            asked: BTreeSet::new(),
            answers: FuturesUnordered::new(),
        }
    }

    async fn run(mut self, asked_all: CancellationToken) -> Result<(), ShutOut> {
        let mut look = interval(LOOK);
        let mut seeds = ask_seeds(self.shared.clone());
        let mut said = self.begun;
        loop {
            self.ask_members();
            tokio::select! {
                Some((node, outcome)) = self.answers.next() => self.note(node, outcome)?,
                found = &mut seeds => {
                    for (node, outcome) in found {
                        self.note(node, outcome)?;
                    }
                    seeds = ask_seeds(self.shared.clone());
                }
                _ = look.tick() => {}
            }
            let members = self.members();
            if self.is_confirmed(&members) {
                self.conclude(&members);
                return Ok(());
            }
            if members.iter().all(|node| self.has_answered(*node)) && !members.is_empty() {
                asked_all.cancel();
            }
            if said.elapsed() >= PATIENCE {
                said = Instant::now();
                self.complain(&members);
            }
        }
    }

    fn members(&self) -> BTreeSet<u64> {
        let roster = self.shared.roster.lock();
        roster.others().map(|known| known.place.node).collect()
    }

    /// Asks those that have not confirmed and are not being asked.
    fn ask_members(&mut self) {
        for node in self.members() {
            if self.confirmed.contains(&node) || !self.asked.insert(node) {
                continue;
            }
            let wait = match self.problems.contains_key(&node) {
                true => AGAIN,
                false => Duration::ZERO,
            };
            let shared = self.shared.clone();
            let asking = async move {
                sleep(wait).await;
                (node, ask(&shared, node).await)
            };
            self.answers.push(asking.boxed());
        }
    }

    fn note(&mut self, node: u64, outcome: Result<(), ConnectError>) -> Result<(), ShutOut> {
        self.asked.remove(&node);
        match outcome {
            Ok(()) => {
                self.problems.remove(&node);
                self.confirmed.insert(node);
            }
            Err(error) => {
                if let Some(reason) = error.why_shut_out() {
                    return Err(reason);
                }
                self.problems.insert(node, error.to_string());
            }
        }
        Ok(())
    }

    fn has_answered(&self, node: u64) -> bool {
        self.confirmed.contains(&node) || self.problems.contains_key(&node)
    }

    fn is_confirmed(&self, members: &BTreeSet<u64>) -> bool {
        let timings = &self.shared.options.timings;
        let elapsed = self.begun.elapsed();
        if members.is_empty() {
            // Members that the folder does not know of dial this node.
            return self.is_first || elapsed >= 2 * timings.backoff_max;
        }
        let all_answered = members.iter().all(|node| self.has_answered(*node));
        let is_enough = self.has_majority(members) || self.shared.stamps.lock().is_alone();
        let is_accepted = self.shared.options.accepts_folder;
        (is_enough && all_answered) || ((is_enough || is_accepted) && elapsed >= timings.down)
    }

    /// Of all members; this node is one of them.
    fn has_majority(&self, members: &BTreeSet<u64>) -> bool {
        let agreeing = self.confirmed.intersection(members).count() + 1;
        2 * agreeing > members.len() + 1
    }

    fn conclude(&self, members: &BTreeSet<u64>) {
        if self.has_majority(members) {
            self.shared.stamps.lock().set_alone(false);
        }
        if self.shared.options.accepts_folder {
            self.tell_acceptance(members);
        }
        self.shared.admitted.send_replace(true);
        tracing::debug!(
            members = self.confirmed.len(),
            "the data folder is confirmed"
        );
    }

    /// Somebody has had this node take its folder as it is.
    fn tell_acceptance(&self, members: &BTreeSet<u64>) {
        if !self.has_majority(members) {
            tracing::warn!(
                confirmed = self.confirmed.len(),
                open = self.open(members),
                "takes part in shards with a data folder that no majority of the members has confirmed (--accept-folder); \
                 evict those that will never come back"
            );
        } else if self.shared.stamps.lock().has_taken_older() {
            tracing::warn!(
                "takes data folders of other members that are older than what this one remembered (--accept-folder)"
            );
        } else {
            tracing::warn!(
                "--accept-folder was not needed: a majority of the members has confirmed the data folder, and theirs are not \
                 older than what this node remembered"
            );
        }
    }

    fn complain(&self, members: &BTreeSet<u64>) {
        tracing::warn!(
            confirmed = self.confirmed.len(),
            open = self.open(members),
            "takes no part in shards before a majority of the members has confirmed that the data folder is not an \
             old copy; evict those that will never come back, or, if no majority will, start this node with \
             --accept-folder once"
        );
    }

    /// Those that have not confirmed, and why.
    fn open(&self, members: &BTreeSet<u64>) -> String {
        let open = members.difference(&self.confirmed);
        let open: Vec<String> = open
            .map(|node| {
                let address = self.shared.address_of(*node);
                let problem = self.problems.get(node);
                let problem = problem.map_or("it has not answered", String::as_str);
                format!("{node:016x} at {address}: {problem}")
            })
            .collect();
        open.join("; ")
    }
}

/// Shows the folder to a member. Success: the member remembers it as it is now.
async fn ask(shared: &Arc<Shared>, node: u64) -> Result<(), ConnectError> {
    let endpoint = shared.address_of(node);
    let dialled = dial_endpoint(shared, &endpoint, Purpose::Join, Some(node)).await?;
    shared.greet(&dialled.peer).map_err(Failure::We)?;
    if let Some(told) = &dialled.admission {
        shared.take_in(told, dialled.version);
    }
    Ok(())
}

/// Shows the folder to whoever is found at the seeds.
fn ask_seeds(shared: Arc<Shared>) -> BoxFuture<'static, Vec<Asked>> {
    let asking = async move {
        sleep(SEEDS).await;
        let mut found = Vec::new();
        for (address, host) in shared.seeds.resolve(&mut Vec::new()).await {
            match dial(&shared, address, &host, Purpose::Join, None).await {
                Ok(dialled) => {
                    let outcome = shared.greet(&dialled.peer);
                    if let (Ok(()), Some(told)) = (&outcome, &dialled.admission) {
                        shared.take_in(told, dialled.version);
                    }
                    let outcome = outcome.map_err(|refusal| Failure::We(refusal).into());
                    found.push((dialled.peer.place.node, outcome));
                }
                // It is not known whose words these are: that of a node of which nothing is known.
                Err(error) if error.why_shut_out().is_some() => found.push((0, Err(error))),
                Err(_) => {}
            }
        }
        found
    };
    asking.boxed()
}

/// Tells the members how far this node has come, again and again, and once more when it stops in order. Runs until
/// the cluster stops.
pub(crate) async fn keep(shared: Arc<Shared>) {
    loop {
        let is_last = timeout(shared.options.timings.stamp, shared.stops.cancelled())
            .await
            .is_ok();
        if let Err(error) = advance(&shared).await {
            shared.complain("this node", "stamp", &error);
        }
        if is_last {
            shared.stopped.cancel();
            return;
        }
    }
}

async fn advance(shared: &Arc<Shared>) -> Result<(), crate::RecordError> {
    let reached: Vec<u64> = {
        let members = shared.members();
        let others = members.nodes.values();
        let reached = others.filter(|member| !matches!(member.reach, Reach::Down { .. }));
        let reached = reached.map(|member| member.node);
        reached
            .filter(|node| *node != shared.options.node)
            .collect()
    };
    if reached.is_empty() {
        return Ok(());
    }
    shared.stamps.lock().advance();
    shared.keep_stamps_now().await?;
    let asked = reached.iter().map(|node| ask(shared, *node));
    for outcome in join_all(asked).await {
        // Who cannot be reached now is told with the next connection.
        if let Some(reason) = outcome.err().and_then(|error| error.why_shut_out()) {
            shared.shut_out(reason);
        }
    }
    Ok(())
}

/// Tells the members that this node stops, and waits until they know, for at most `limit`. Blocks.
pub(crate) fn tell_end(shared: &Shared, limit: Duration) {
    let deadline = std::time::Instant::now() + limit;
    shared.stops.cancel();
    while shared.is_serving.load(Relaxed)
        && !shared.stopped.is_cancelled()
        && std::time::Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

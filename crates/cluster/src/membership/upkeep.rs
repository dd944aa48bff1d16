//! The task that keeps the list of members: takes what gossip says, tells what this node is, and finds the
//! others again when they are lost.

use std::sync::Arc;
use std::time::Duration;

use chitchat::ChitchatHandle;
use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::folder::spoken::Kept;
use crate::folder::stamps::Stamp;
use crate::links::link;
use crate::members::reach::Reach;
use crate::membership::gossip::{Rumour, listen, tell};
use crate::protocol::refusal::ShutOut;
use crate::state::shared::Shared;

/// How often the list is looked at, if nothing is known to have changed.
const LOOK: Duration = Duration::from_millis(100);

/// How often nodes that are not in reach are looked for.
const SEEK: Duration = Duration::from_secs(1);

/// Runs until the cluster stops.
pub(crate) async fn run(shared: Arc<Shared>, gossip: Arc<ChitchatHandle>) {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = shared.changed.notified() => {}
        }
        shared.calls.expire(shared.clock.now_ms());
        tell(&gossip, &shared).await;
        for rumour in listen(&gossip).await {
            believe(&shared, rumour);
        }
        link::reconcile(&shared);
        shared.refresh();
    }
}

fn believe(shared: &Shared, rumour: Rumour) {
    if rumour.evicted.contains(&shared.options.node) {
        shared.shut_out(ShutOut::Evicted);
    }
    believe_stamps(shared, rumour.place.node, &rumour.stamps);
    let mut roster = shared.roster.lock();
    let mut result = roster.learn(rumour.place, Some(rumour.details));
    for node in rumour.evicted {
        if node != shared.options.node {
            result = result.and(roster.evict(node).map(|_| ()));
        }
    }
    drop(roster);
    if result.is_err() {
        shared.complain(
            "gossip",
            "full",
            "there are more members or evicted nodes than there may be",
        );
    }
}

/// What a member remembers of data folders.
fn believe_stamps(shared: &Shared, teller: u64, told: &[(u64, Vec<Stamp>)]) {
    let own = shared.options.node;
    if teller == own {
        return;
    }
    let roster = shared.roster.lock();
    let mut known = shared.stamps.lock();
    for (node, stamps) in told {
        if *node == own {
            known.is_remembered(teller, stamps);
        } else if let (Some(newest), Some(_)) = (stamps.iter().max(), roster.place(*node)) {
            known.was_told(*node, *newest);
        }
    }
}

/// Keeps the file `cluster` as the list is, and what is remembered of members and of the versions that they speak. Runs
/// until the cluster stops.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut look = interval(SEEK);
    loop {
        look.tick().await;
        shared.forget_stamps();
        let keeping = shared.clone();
        let kept = tokio::task::spawn_blocking(move || {
            keeping.keep_record()?;
            keeping.keep_stamps()?;
            let kept = Kept::of(&keeping.roster.lock(), &keeping.options.kept_info);
            keeping.spoken_file.keep(kept)
        });
        let kept = kept.await;
        if let Ok(Err(error)) = kept {
            shared.complain("this node", "record", &error);
        }
    }
}

/// While this node is alone or some are not in reach, gossips to all addresses that are known of them. Runs
/// until the cluster stops.
pub(crate) async fn seek(shared: Arc<Shared>, gossip: Arc<ChitchatHandle>) {
    loop {
        let members = shared.members();
        let lost: Vec<_> = members
            .nodes
            .values()
            .filter(|member| member.reach != Reach::Up)
            .collect();
        if !lost.is_empty() || members.nodes.len() <= 1 {
            let mut addresses = shared.seeds.resolve(&mut Vec::new()).await;
            let looks = lost
                .iter()
                .map(|member| shared.seeds.names.look_up(&member.address));
            for found in join_all(looks).await.into_iter().flatten() {
                addresses.extend(found.into_iter().map(|address| (address, String::new())));
            }
            for (address, _) in addresses {
                // It fails only when gossip has ended.
                let _ = gossip.gossip(address);
            }
        }
        sleep(SEEK).await;
    }
}

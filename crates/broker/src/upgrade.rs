//! The level of the cluster: who knows which, who holds it up, and when it is raised.
//!
//! | Input | What follows |
//! |---|---|
//! | a second has passed | the shards led here that are below the wanted level are raised, if each member knows that level |
//! | a person finishes the upgrade | the highest level that each member knows is wanted, here and, by gossip, everywhere |
//! | each member has known a higher level for `clusterConfig.raiseLevelAfterSeconds` | the same |
//! | a shard here is at a level | that level is wanted for all, and nodes that do not know it are refused |
//!
//! Invariants: no level is wanted that a member is not known to know, also one that is down; what is wanted only rises.
//!
//! Deliberately absent: what a level changes (`store_state::LEVELS`), and how a shard is raised (`store`).

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::cluster::{LevelChange, LevelNumber, LevelStatus, NodeBehind, NodeId, Refusal, Seconds};
use cluster::{Cluster, Member};
use parking_lot::Mutex;
use store::{Levels, NodeLevels, ReplicaFault};
use store_state::{LEVELS, Level};

/// How often shards that are below the wanted level are raised.
pub(crate) const ROUND: Duration = Duration::from_secs(1);

/// What a member tells of itself: the levels of its replicas, as a number or two of them with a hyphen.
pub(crate) const LEVELS_HERE: &str = "levels";

/// What a member tells of the level that is wanted.
pub(crate) const WANTED: &str = "raise";

/// What a member tells of its replicas that cannot be used: how many there are.
pub(crate) const FAULTS: &str = "faults";

/// Under this name a member says how many of its replicas were found to hold something else than the others.
pub(crate) const DIFFERENCES: &str = "differences";

/// After this time in which each member has known a higher level, people are told.
const MIXED: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A number in decimal digits.
fn told(text: Option<&String>) -> Option<Level> {
    text?.parse().ok().map(Level)
}

/// The levels that a member tells of.
fn levels_told(text: &str) -> Option<NodeLevels> {
    let (lowest, highest) = text.split_once('-').unwrap_or((text, text));
    Some(NodeLevels {
        lowest: Level(lowest.parse().ok()?),
        highest: Level(highest.parse().ok()?),
    })
}

fn to_tell(levels: NodeLevels) -> String {
    match levels.lowest == levels.highest {
        true => levels.lowest.to_string(),
        false => format!("{}-{}", levels.lowest, levels.highest),
    }
}

/// What is known of the levels of a cluster at one moment.
struct Standing {
    /// The lowest of all replicas, and the highest, as far as members tell.
    levels: NodeLevels,
    /// The highest level that each member is known to know.
    known_to_all: Level,
    /// The highest that anybody wants.
    wanted: Level,
    behind: Vec<NodeBehind>,
}

/// What people call a member.
pub(crate) type NameOf = fn(&Member) -> &str;

/// Who has the shards of a node.
pub(crate) trait HasLevels: Send + Sync {
    /// Their levels.
    fn levels(&self) -> &Levels;
}

/// Raises the shards of a node.
pub(crate) struct Upgrade {
    store: Arc<dyn HasLevels>,
    cluster: Option<Arc<Cluster>>,
    /// What people call a member.
    name_of: NameOf,
    /// `clusterConfig.raiseLevelAfterSeconds`; `None`: only a person raises the level.
    raise_after: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What a person has wanted at this node.
    wanted: Option<Level>,
    /// Since when each member has known a level, and which.
    since: Option<(Level, Instant)>,
    /// Since when shards have been below the highest level that a node of the cluster knows.
    mixed_since: Option<Instant>,
    /// What the others were told last: levels, how many replicas cannot be used, and how many differ.
    told: Option<(String, usize, usize)>,
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}

impl Upgrade {
    pub(crate) fn new(
        store: Arc<dyn HasLevels>,
        cluster: Option<(Arc<Cluster>, NameOf)>,
        raise_after: Option<Duration>,
    ) -> Self {
        let (cluster, name_of) = match cluster {
            Some((cluster, name_of)) => (Some(cluster), name_of),
            None => (None, (|_| "") as NameOf),
        };
        Self {
            store,
            cluster,
            name_of,
            raise_after,
            state: Mutex::default(),
        }
    }

    /// Looks at all members.
    fn standing(&self) -> Standing {
        let own = self.store.levels().here();
        let mut standing = Standing {
            levels: own,
            known_to_all: Level::NEWEST,
            wanted: self.state.lock().wanted.unwrap_or(Level::OLDEST),
            behind: Vec::new(),
        };
        if own.highest.is_said() {
            standing.wanted = standing.wanted.max(own.highest);
        }
        let Some(cluster) = &self.cluster else {
            return standing;
        };
        let members = cluster.members();
        if members.nodes.is_empty() {
            // Who they are is not known yet.
            standing.known_to_all = own.lowest;
        }
        for member in members.nodes.values() {
            if let Some(wanted) = told(member.info.get(WANTED)) {
                standing.wanted = standing.wanted.max(wanted);
            }
            if member.node == cluster.node() {
                continue;
            }
            if let Some(levels) = member
                .info
                .get(LEVELS_HERE)
                .and_then(|text| levels_told(text))
            {
                standing.levels.lowest = standing.levels.lowest.min(levels.lowest);
                standing.levels.highest = standing.levels.highest.max(levels.highest);
            }
            let spoken = cluster.spoken(member.node);
            let knows = spoken.map_or(Level::OLDEST, |spoken| {
                Level::of_protocol(spoken.versions.newest)
            });
            standing.known_to_all = standing.known_to_all.min(knows);
            if knows < Level::NEWEST {
                let why = match spoken {
                    Some(_) => format!("it knows the levels up to {knows}"),
                    None => "it has not been heard since its last start: which levels it knows is not known"
                        .to_owned(),
                };
                standing.behind.push(NodeBehind {
                    node: NodeId(member.node),
                    name: (self.name_of)(member).to_owned(),
                    version: member.version.clone(),
                    reason: why,
                });
            }
        }
        standing
    }

    /// What people are told.
    pub(crate) fn status(&self) -> LevelStatus {
        let standing = self.standing();
        let NodeLevels { lowest, highest } = standing.levels;
        let left = self.raise_after.and_then(|after| {
            let (level, since) = self.state.lock().since?;
            (level == standing.known_to_all && lowest < level)
                .then(|| Seconds(after.saturating_sub(since.elapsed()).as_secs()))
        });
        let later = LEVELS.iter().filter(|facts| facts.level > lowest);
        LevelStatus {
            lowest: LevelNumber(lowest.0),
            highest: LevelNumber(highest.0),
            possible: LevelNumber(standing.known_to_all.max(lowest).0),
            known: LevelNumber(Level::NEWEST.0),
            held_up_by: standing.behind,
            changes: later
                .map(|facts| LevelChange {
                    level: LevelNumber(facts.level.0),
                    programs: facts.programs.to_owned(),
                    changes: facts.changes.to_owned(),
                })
                .collect(),
            raised_in: left,
        }
    }

    /// A person wants the highest level that each member knows.
    ///
    /// # Errors
    /// A member holds it up, or is not known to know a higher level than the shards have.
    pub(crate) fn finish(&self) -> Result<(), Refusal> {
        let standing = self.standing();
        let lowest = standing.levels.lowest;
        if !standing.behind.is_empty() {
            let mut why = "the upgrade is not finished".to_owned();
            for holds in &standing.behind {
                let name = if holds.name.is_empty() {
                    "unnamed"
                } else {
                    &holds.name
                };
                // Memory takes what is written to it.
                let _ = write!(why, "; node {} ({name}): {}", holds.node, holds.reason);
            }
            why += ". Start or upgrade it, or evict it";
            return Err(Refusal::Conflict(why));
        }
        if lowest < standing.known_to_all {
            tracing::info!(from = %lowest, to = %standing.known_to_all, "the upgrade is finished by hand");
            self.want(standing.known_to_all);
        }
        Ok(())
    }

    fn want(&self, level: Level) {
        let mut state = self.state.lock();
        if state.wanted.is_none_or(|wanted| wanted < level) {
            state.wanted = Some(level);
            drop(state);
            self.tell_others(WANTED, &level.to_string());
        }
    }

    /// A second has passed.
    pub(crate) async fn round(&self) {
        let standing = self.standing();
        let own = self.store.levels().here();
        self.tell(own);
        if own.highest.is_said()
            && let Some(cluster) = &self.cluster
            && let Some(facts) = own.highest.facts()
        {
            let required = cluster.require(facts.protocol.0);
            debug_assert!(
                required.is_ok(),
                "a node speaks what goes with the levels that it knows"
            );
        }
        if self.is_due(&standing) {
            tracing::info!(
                from = %standing.levels.lowest,
                to = %standing.known_to_all,
                "the upgrade is finished: each node has known the level for clusterConfig.raiseLevelAfterSeconds"
            );
            self.want(standing.known_to_all);
        }
        let level = standing.wanted.min(standing.known_to_all);
        if level.is_said() && own.lowest < level {
            self.store.levels().raise(level).await;
        }
    }

    /// Whether each member has known a higher level for long enough.
    fn is_due(&self, standing: &Standing) -> bool {
        let mut state = self.state.lock();
        let level = standing.known_to_all;
        let lowest = standing.levels.lowest;
        if lowest >= Level::NEWEST {
            state.mixed_since = None;
        } else {
            state.mixed_since.get_or_insert_with(Instant::now);
        }
        if lowest >= level || !level.is_said() {
            state.since = None;
            return false;
        }
        let since = match state.since {
            Some((of, since)) if of == level => since,
            _ => {
                let now = Instant::now();
                state.since = Some((level, now));
                now
            }
        };
        self.raise_after
            .is_some_and(|after| since.elapsed() >= after)
    }

    fn tell_others(&self, key: &str, value: &str) {
        if let Some(Err(error)) = self
            .cluster
            .as_ref()
            .map(|cluster| cluster.set_info(key, value))
        {
            tracing::error!(key, %error, "the others cannot be told");
        }
    }

    fn tell(&self, own: NodeLevels) {
        let (faults, differences) = {
            let levels = self.store.levels();
            (levels.faults().len(), levels.differences().len())
        };
        let told = (to_tell(own), faults, differences);
        let mut state = self.state.lock();
        if state.told.as_ref() != Some(&told) {
            self.tell_others(LEVELS_HERE, &told.0);
            self.tell_others(FAULTS, &faults.to_string());
            self.tell_others(DIFFERENCES, &differences.to_string());
            state.told = Some(told);
        }
    }

    /// What a person should see to: replicas that cannot be used, here and at other members. Each by what tells it apart, and
    /// what is said of it.
    pub(crate) fn faults(&self) -> Vec<(String, String)> {
        let own = self.store.levels().faults().into_iter().map(|fault| {
            let ReplicaFault { store, shard, why } = fault;
            let detail = format!("the replica of shard {shard} of the {store} store on this node cannot be used: {why}");
            (format!("{store} {shard}"), detail)
        });
        let elsewhere =
            self.told_elsewhere(FAULTS, "cannot be used: its log and its /readyz say why");
        own.chain(elsewhere).collect()
    }

    /// What a person should know of: replicas that held something else than the others, here and at other members; as
    /// [`Upgrade::faults`].
    pub(crate) fn differences(&self) -> Vec<(String, String)> {
        let own = self.store.levels().differences().into_iter().map(|fault| {
            let ReplicaFault { store, shard, why } = fault;
            let detail = format!("shard {shard} of the {store} store: {why}");
            (format!("{store} {shard}"), detail)
        });
        let elsewhere = self.told_elsewhere(
            DIFFERENCES,
            "held something else than the others in the last hour: its log says what became of them",
        );
        own.chain(elsewhere).collect()
    }

    /// What other members say of replicas of theirs by a number under this name.
    fn told_elsewhere(&self, name: &str, what: &str) -> Vec<(String, String)> {
        let mut told = Vec::new();
        if let Some(cluster) = &self.cluster {
            for member in cluster.members().nodes.values() {
                let count = member.info.get(name).and_then(|text| text.parse().ok());
                if let Some(count @ 1_u32..) = count.filter(|_| member.node != cluster.node()) {
                    let (node, called) = (member.node, (self.name_of)(member));
                    let replicas = match count {
                        1 => "1 replica".to_owned(),
                        _ => format!("{count} replicas"),
                    };
                    let detail = format!("node {node:016x} ({called}) has {replicas} that {what}");
                    told.push((format!("node {node:016x}"), detail));
                }
            }
        }
        told
    }

    /// What a person should see to: the cluster has been between two levels for a week.
    pub(crate) fn mixed(&self) -> Option<String> {
        let since = self.state.lock().mixed_since?;
        if since.elapsed() < MIXED {
            return None;
        }
        let LevelStatus {
            lowest,
            known,
            held_up_by,
            ..
        } = self.status();
        let names: Vec<String> = held_up_by
            .iter()
            .map(|holds| holds.node.to_string())
            .collect();
        let who = match names.is_empty() {
            true => "every node knows it: finish the upgrade".to_owned(),
            false => format!("held up by {}", names.join(", ")),
        };
        Some(format!(
            "shards have been at level {} for a week, and this node knows level {}: {who}",
            lowest.0, known.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_told_as_they_are_read() {
        for (lowest, highest, text) in [(3, 3, "3"), (3, 4, "3-4")] {
            let levels = NodeLevels {
                lowest: Level(lowest),
                highest: Level(highest),
            };
            assert_eq!(to_tell(levels), text);
            assert_eq!(levels_told(text), Some(levels));
        }
        for wrong in ["", "-", "3-", "x", "3-x"] {
            assert_eq!(levels_told(wrong), None, "{wrong}");
        }
    }
}

//! Policies that the operator brings: what one is asked, what it may answer, and what follows if it fails.
//!
//! ```text
//!  file ─► replace ─► a script in force ─► asked each second ─► fails ─► stopped: `load` decides, until replace
//! ```
//!
//! Invariants: an answer that cannot be carried out is a failure; a script that has failed is not asked again.
//!
//! Deliberately absent: the language (`split-script`), files (the broker).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use store_state::api::{PerStore, Slot, StoreId};

use crate::peers::member::ShardId;
use crate::shard::load::{Busyness, Total};
use crate::splitting::options::SplitOptions;
use crate::splitting::policy::{Candidate, Hold, NodeView, Verdict, Why};

/// What a node knows of one of its stores when it asks a script.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StoreView {
    /// The store.
    pub store: StoreId,
    /// Replicas of its shards here.
    pub replicas: usize,
    /// Since the last split of the store that this node has made by itself; `None`: it has made none.
    pub since_split: Option<Duration>,
    /// What the configuration says of splits of the store.
    pub options: SplitOptions,
}

/// A policy from outside. It knows what it is given, and no clock.
pub trait SplitScript: Send {
    /// A second begins, with a new allowance of CPU time for all shards of the store.
    fn begin_second(&mut self, node: &NodeView, store: &StoreView);

    /// What the script says of a shard that this node leads and that has been measured for ten seconds.
    ///
    /// # Errors
    /// The script has failed, in this second or before. It is not asked again.
    fn decide(
        &mut self,
        shard: &Candidate,
        busyness: &Busyness,
    ) -> Result<ScriptAnswer, ScriptFault>;
}

/// What a script says of a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScriptAnswer {
    /// It is to be split.
    Split {
        /// The first slot of the upper half.
        at: Slot,
        /// Why.
        why: Why,
    },
    /// It is not, and why.
    Hold(Why),
    /// The allowance of the second is used up: the script was not asked.
    Deferred,
}

/// A kind of failure of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptCause {
    /// The file cannot be read.
    File,
    /// It is no script.
    Syntax,
    /// The script has ended with an error.
    Runtime,
    /// It has used up its operations, CPU time, memory or depth of calls.
    Operations,
    /// It has answered what is no answer, or names a slot at which the shard cannot be split.
    Answer,
}

impl ScriptCause {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::File,
        Self::Syntax,
        Self::Runtime,
        Self::Operations,
        Self::Answer,
    ];

    /// A word for it, in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Syntax => "syntax",
            Self::Runtime => "runtime",
            Self::Operations => "operations",
            Self::Answer => "answer",
        }
    }
}

/// Why a script is not followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptFault {
    /// The kind.
    pub cause: ScriptCause,
    /// The line of the script, from 1 on, if one is to blame.
    pub line: Option<usize>,
    /// What is wrong.
    pub reason: Why,
}

impl fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(self.reason.as_str())
    }
}

impl std::error::Error for ScriptFault {}

/// A failure that is not mended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandingFault {
    /// What has failed.
    pub fault: ScriptFault,
    /// A script from before the failure decides on; otherwise `load` does.
    pub has_script: bool,
}

/// The scripts of a node's stores, which can be replaced while the node runs. Clones are the same.
#[derive(Clone, Default)]
pub struct SplitScripts(Arc<Mutex<PerStore<Place>>>);

#[derive(Default)]
struct Place {
    /// `None`: there is none, or it has failed.
    script: Option<Box<dyn SplitScript>>,
    fault: Option<ScriptFault>,
    counts: [Total; ScriptCause::ALL.len()],
    /// The shard that is asked about first in the next second.
    next: Option<ShardId>,
}

impl fmt::Debug for SplitScripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SplitScripts")
    }
}

impl SplitScripts {
    /// This script is in force from the next second on, and what failed before is mended.
    pub fn replace(&self, store: StoreId, script: Box<dyn SplitScript>) {
        let place = &mut self.0.lock()[store];
        place.script = Some(script);
        place.fault = None;
        place.next = None;
    }

    /// A new script cannot be used: the one before stays in force, if it works.
    pub fn refuse(&self, store: StoreId, fault: ScriptFault) {
        self.0.lock()[store].note(fault);
    }

    /// What of a store is not mended.
    #[must_use]
    pub fn fault(&self, store: StoreId) -> Option<StandingFault> {
        let places = self.0.lock();
        let place = &places[store];
        place.fault.clone().map(|fault| StandingFault {
            fault,
            has_script: place.script.is_some(),
        })
    }

    /// How often a script of each store has failed since the process began, by cause.
    #[must_use]
    pub fn failures(&self) -> PerStore<[(ScriptCause, Total); 5]> {
        let places = self.0.lock();
        PerStore::from_fn(|store| {
            let count = |cause| (cause, places[store].counts[cause as usize]);
            ScriptCause::ALL.map(count)
        })
    }

    /// The verdicts of a store's script on its shards. `None`: there is no script that works.
    pub(crate) fn ask(
        &self,
        candidates: &[Candidate],
        node: &NodeView,
        store: &StoreView,
    ) -> Option<BTreeMap<ShardId, Verdict>> {
        let place = &mut self.0.lock()[store.store];
        let script = place.script.as_mut()?;
        let of_store = candidates.iter().filter(|shard| shard.id.0 == store.store);
        let mut shards: Vec<&Candidate> = of_store.collect();
        shards.sort_unstable_by_key(|shard| shard.id);
        let is_before = |shard: &&Candidate| place.next.is_some_and(|next| shard.id < next);
        let first = shards.iter().take_while(|shard| is_before(shard)).count();
        shards.rotate_left(first);
        place.next = None;
        script.begin_second(node, store);
        let mut verdicts = BTreeMap::new();
        for shard in shards {
            let answer = match &shard.busyness {
                None => Ok(Verdict::Hold(Hold::New)),
                Some(busyness) => {
                    let answer = script.decide(shard, busyness);
                    answer.and_then(|answer| verdict(answer, busyness))
                }
            };
            match answer {
                Ok(verdict) => {
                    if verdict == Verdict::Hold(Hold::Deferred) {
                        place.next.get_or_insert(shard.id);
                    }
                    verdicts.insert(shard.id, verdict);
                }
                Err(fault) => {
                    let (store, cause) = (store.store.name(), fault.cause.name());
                    tracing::warn!(
                        store, cause, shard = shard.id.1, error = %fault,
                        "the split script has failed: `load` decides until the script is read again"
                    );
                    place.script = None;
                    place.note(fault);
                    return None;
                }
            }
        }
        Some(verdicts)
    }
}

impl Place {
    fn note(&mut self, fault: ScriptFault) {
        self.counts[fault.cause as usize].0 += 1;
        self.fault = Some(fault);
    }
}

/// What an answer means for a shard.
fn verdict(answer: ScriptAnswer, busyness: &Busyness) -> Result<Verdict, ScriptFault> {
    match answer {
        ScriptAnswer::Split { at, why } => {
            let range = busyness.range;
            if range.first < at.0 && at.0 <= range.last {
                let why = Some(why);
                return Ok(Verdict::Split { at, why });
            }
            let reason = format!(
                "the script splits a shard with the slots {} to {} at slot {}",
                range.first, range.last, at.0
            );
            Err(ScriptFault {
                cause: ScriptCause::Answer,
                line: None,
                reason: Why::new(&reason),
            })
        }
        ScriptAnswer::Hold(why) => Ok(Verdict::Hold(Hold::Script(why))),
        ScriptAnswer::Deferred => Ok(Verdict::Hold(Hold::Deferred)),
    }
}

#[cfg(test)]
mod tests {
    use store_state::SlotRange;

    use super::*;
    use crate::shard::load::Operations;

    /// Asked about two shards a second; what it says of the shards that it has been asked about.
    struct TwoASecond {
        left: usize,
        says: fn(u16) -> Result<ScriptAnswer, ScriptFault>,
    }

    impl SplitScript for TwoASecond {
        fn begin_second(&mut self, _: &NodeView, _: &StoreView) {
            self.left = 2;
        }

        fn decide(&mut self, shard: &Candidate, _: &Busyness) -> Result<ScriptAnswer, ScriptFault> {
            if self.left == 0 {
                return Ok(ScriptAnswer::Deferred);
            }
            self.left -= 1;
            (self.says)(shard.id.1)
        }
    }

    fn shard(number: u16) -> Candidate {
        Candidate {
            id: (StoreId::Inbox, number),
            thread: 0,
            busyness: Some(Busyness {
                range: SlotRange {
                    first: number,
                    last: number + 99,
                },
                least: Duration::ZERO,
                least_cpu: Duration::ZERO,
                half: None,
                hottest: None,
                operations: Operations::default(),
            }),
        }
    }

    fn scripts(says: fn(u16) -> Result<ScriptAnswer, ScriptFault>) -> SplitScripts {
        let scripts = SplitScripts::default();
        scripts.replace(StoreId::Inbox, Box::new(TwoASecond { left: 0, says }));
        scripts
    }

    /// The shards that the script was asked about in a second; `None`: there is none that works.
    fn second(scripts: &SplitScripts) -> Option<Vec<u16>> {
        let node = NodeView {
            threads: Vec::new(),
            led_here: Duration::ZERO,
            led_elsewhere: Vec::new(),
            replicas: PerStore::default(),
            process_cpu: 0.0,
            has_all_members: true,
        };
        let store = StoreView {
            store: StoreId::Inbox,
            replicas: 5,
            since_split: None,
            options: SplitOptions::default(),
        };
        let shards = [400, 300, 200, 100, 0].map(shard);
        let verdicts = scripts.ask(&shards, &node, &store)?;
        assert_eq!(verdicts.len(), 5);
        let asked = verdicts.iter();
        let asked = asked.filter(|(_, verdict)| **verdict != Verdict::Hold(Hold::Deferred));
        Some(asked.map(|(id, _)| id.1).collect())
    }

    #[test]
    fn a_script_without_time_for_all_shards_is_asked_about_them_in_turns() {
        let scripts = scripts(|_| Ok(ScriptAnswer::Hold(Why::new(""))));
        let seconds: Vec<_> = (0..5).filter_map(|_| second(&scripts)).collect();
        assert_eq!(
            seconds,
            [[0, 100], [200, 300], [0, 400], [100, 200], [300, 400]]
        );
        assert_eq!(scripts.fault(StoreId::Inbox), None);
    }

    #[test]
    fn a_script_that_splits_outside_of_its_shard_is_asked_no_more() {
        let at_first = scripts(|first| {
            let why = Why::new("");
            Ok(ScriptAnswer::Split {
                at: Slot(first),
                why,
            })
        });
        let behind = scripts(|first| {
            let (at, why) = (Slot(first + 100), Why::new(""));
            Ok(ScriptAnswer::Split { at, why })
        });
        for scripts in [at_first, behind] {
            assert_eq!(second(&scripts), None);
            let standing = scripts.fault(StoreId::Inbox).expect("it has failed");
            assert_eq!(standing.fault.cause, ScriptCause::Answer);
            assert!(!standing.has_script);
            // It is not asked again, and counted once.
            assert_eq!(second(&scripts), None);
            let counts = scripts.failures()[StoreId::Inbox];
            assert!(
                counts.contains(&(ScriptCause::Answer, Total(1))),
                "{counts:?}"
            );
        }
        let last = scripts(|first| {
            let (at, why) = (Slot(first + 99), Why::new(""));
            Ok(ScriptAnswer::Split { at, why })
        });
        assert_eq!(second(&last), Some(vec![0, 100]));
    }

    fn fault() -> ScriptFault {
        ScriptFault {
            cause: ScriptCause::Syntax,
            line: Some(3),
            reason: Why::new("no"),
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_ends_no_script() {
        let scripts = scripts(|_| Ok(ScriptAnswer::Hold(Why::new(""))));
        scripts.refuse(StoreId::Inbox, fault());
        assert!(second(&scripts).is_some());
        let standing = scripts.fault(StoreId::Inbox).expect("an alarm");
        assert!(standing.has_script);
        assert_eq!(standing.fault.to_string(), "line 3: no");
        let says = |_| Ok(ScriptAnswer::Hold(Why::new("")));
        scripts.replace(StoreId::Inbox, Box::new(TwoASecond { left: 0, says }));
        assert_eq!(scripts.fault(StoreId::Inbox), None);
    }
}

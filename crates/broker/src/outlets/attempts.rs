//! The processes of one outlet, one after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outlets::{Command, Definition, Report};
use tokio::sync::watch;

use super::process::Process;
use super::{Outlets, Wish};
use crate::inspect::Inspect;
use crate::node::Node;

/// How long after the end of a process the next one starts: doubled up to the longest with each that ended soon.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a process may take to stop: longer than it waits for what is with its target.
const LEAVE: Duration = Duration::from_secs(7);

/// More filters than an outlet can have.
const MOST_FILTERS: usize = 1_000;

/// A process that has run for so long has not ended soon.
const SOON: Duration = Duration::from_secs(60);

impl Outlets {
    /// Runs processes of an outlet until it is to do nothing here. Gives its name.
    pub(super) async fn attempts(
        &self,
        inspect: &Arc<Inspect>,
        name: String,
        mut wishes: watch::Receiver<Option<Wish>>,
    ) -> String {
        let mut pause = PAUSE;
        loop {
            let wish = wishes.borrow_and_update().clone();
            let Some(wish) = wish else {
                return name;
            };
            let begun = Instant::now();
            let ended = self.attempt(inspect, &wish, &mut wishes).await;
            let why = ended.err();
            let is_failed = why.is_some();
            if let Some(why) = &why {
                tracing::warn!(outlet = %name, %why, "the process of the outlet has ended");
            }
            self.note(&name, |standing| {
                standing.handle_end(why, Instant::now());
            });
            if !is_failed {
                continue;
            }
            if begun.elapsed() > SOON {
                pause = PAUSE;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = wishes.wait_for(|next| next.as_ref().is_none_or(|next| next.definition != wish.definition)) => {
                    if changed.is_err() {
                        return name;
                    }
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Runs one process until it ends, or something else is wished of it than a pause.
    ///
    /// # Errors
    /// Why it could not be started, or has ended by itself.
    async fn attempt(
        &self,
        inspect: &Arc<Inspect>,
        wish: &Wish,
        wishes: &mut watch::Receiver<Option<Wish>>,
    ) -> Result<(), String> {
        let name = &wish.definition.name;
        let mut process = Process::start(&self.program, &self.connections)
            .map_err(|error| format!("it could not be started: {error}"))?;
        self.note(name, |standing| standing.handle_begin(process.id()));
        let mut definition = Definition::clone(&wish.definition);
        definition.cluster.clone_from(&self.cluster);
        definition.former_filters = filters(&inspect.node, &definition.client_id());
        let begin = Command::Begin {
            definition: Box::new(definition),
            is_paused: wish.is_paused,
        };
        let mut is_paused = wish.is_paused;
        process.tell(&begin).await;
        loop {
            tokio::select! {
                report = process.next() => match report {
                    Some(report) => self.handle_report(name, report),
                    None => return Err(process.end().await),
                },
                changed = wishes.changed() => {
                    let next = wishes.borrow_and_update().clone();
                    match next {
                        Some(next) if changed.is_ok() && next.definition == wish.definition => {
                            if next.is_paused != is_paused {
                                is_paused = next.is_paused;
                                process.tell(&Command::Pause(is_paused)).await;
                            }
                        }
                        _ => {
                            self.stop(name, &mut process).await;
                            process.end().await;
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Has a process take leave, and hears its last reports. One that hangs, as on a file system that does not answer, says nothing
    /// and does not end: its end is not waited for longer than [`LEAVE`].
    async fn stop(&self, name: &str, process: &mut Process) {
        let leaves = async {
            process.tell(&Command::Stop).await;
            while let Some(report) = process.next().await {
                self.handle_report(name, report);
            }
        };
        if tokio::time::timeout(LEAVE, leaves).await.is_err() {
            tracing::warn!(outlet = %name, "the process of the outlet does not stop; it is killed");
        }
    }

    fn handle_report(&self, name: &str, report: Report) {
        self.note(name, |standing| {
            standing.handle_report(report, Instant::now());
        });
    }
}

/// The filters that the session of an outlet has, as far as this node leads its shard: without a session none.
fn filters(node: &Node, client_id: &str) -> Vec<String> {
    let inspect = node.store().inspect();
    let stored = inspect.subscriptions(client_id, "", MOST_FILTERS).found();
    let stored = stored.into_iter().flatten();
    stored
        .map(|subscription| subscription.filter.into())
        .collect()
}

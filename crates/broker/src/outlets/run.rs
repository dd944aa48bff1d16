//! Who runs the outlets of a node: where each is to be, and its processes, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::problem::Problem;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use outlets::{Caution, Command, Program, Report, Told, Transfer};
use tokio::sync::watch;

use super::caution::{Deaths, Manner};
use super::known::Outlets;
use super::process::{Ending, Process};
use super::rim::{Rim, pause_topic};
use super::standing::Place;

/// How often it is looked where outlets are to be, and whether they are paused.
const LOOKS: Duration = Duration::from_secs(1);

/// How long after the end of a process the next one starts: doubled up to the longest with each that ended soon.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a process may take to stop: longer than it waits for what is with its target.
const LEAVE: Duration = Duration::from_secs(7);

/// A process that has run for so long has not ended soon.
const SOON: Duration = Duration::from_secs(60);

/// What a process is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wish {
    transfer: Arc<Transfer>,
    is_paused: bool,
}

/// What is known of what an outlet is to do here.
enum Looked {
    /// This; `None`: nothing.
    Wish(Option<Wish>),
    /// It is not known. One that runs goes on, and one that does not has to know first whether it is paused.
    Unknown(Problem),
}

/// Runs the outlets as long as it is polled.
pub(crate) async fn run(outlets: &Outlets, rim: &dyn Rim) {
    let mut here: BTreeMap<String, watch::Sender<Option<Wish>>> = BTreeMap::new();
    let mut running: FuturesUnordered<BoxFuture<'_, String>> = FuturesUnordered::new();
    loop {
        let is_idle = running.is_empty() && outlets.wanted().0.is_empty();
        tokio::select! {
            // A permit that is left says that something has changed before.
            () = outlets.changed.notified() => {}
            () = tokio::time::sleep(LOOKS), if !is_idle => {}
            Some(name) = running.next() => {
                here.remove(&name);
                outlets.handle_running(running.len());
            }
        }
        let (wanted, is_stopping) = outlets.wanted();
        for (name, sender) in &here {
            if is_stopping || !wanted.iter().any(|transfer| transfer.name() == name) {
                sender.send_replace(None);
            }
        }
        if is_stopping {
            outlets.handle_running(running.len());
            continue;
        }
        let looks = wanted
            .into_iter()
            .map(|transfer| look(outlets, rim, transfer));
        for (name, looked) in join_all(looks).await {
            let wish = match looked {
                Looked::Wish(wish) => wish,
                Looked::Unknown(problem) => {
                    tracing::debug!(outlet = %name, ?problem, "whether the outlet is paused is not known");
                    continue;
                }
            };
            match (here.get(&name), wish) {
                (Some(sender), wish) => {
                    sender.send_if_modified(|before| {
                        let is_changed = *before != wish;
                        *before = wish;
                        is_changed
                    });
                }
                (None, Some(wish)) => {
                    let (sender, wishes) = watch::channel(Some(wish));
                    here.insert(name.clone(), sender);
                    running.push(attempts(outlets, rim, name, wishes).boxed());
                }
                (None, None) => {}
            }
        }
        outlets.handle_running(running.len());
    }
}

/// What an outlet is to do here.
async fn look(outlets: &Outlets, rim: &dyn Rim, transfer: Arc<Transfer>) -> (String, Looked) {
    let name = transfer.name().to_owned();
    let place = rim.place(&transfer.client_id());
    outlets.note(&name, |standing| standing.place = place);
    if place != Place::Here {
        return (name, Looked::Wish(None));
    }
    match rim.is_retained(pause_topic(&name)).await {
        Ok(is_paused) => {
            outlets.note(&name, |standing| standing.is_paused = is_paused);
            let wish = Wish {
                transfer,
                is_paused,
            };
            (name, Looked::Wish(Some(wish)))
        }
        Err(problem) => (name, Looked::Unknown(problem)),
    }
}

/// Runs processes of an outlet until it is to do nothing here. Gives its name.
async fn attempts(
    outlets: &Outlets,
    rim: &dyn Rim,
    name: String,
    mut wishes: watch::Receiver<Option<Wish>>,
) -> String {
    let mut pause = PAUSE;
    let mut deaths = Deaths::default();
    let mut judged: Option<Arc<Transfer>> = None;
    loop {
        let wish = wishes.borrow_and_update().clone();
        let Some(wish) = wish else {
            return name;
        };
        // Other rules have ended on nothing.
        if judged.as_ref() != Some(&wish.transfer) {
            deaths = Deaths::default();
            judged = Some(Arc::clone(&wish.transfer));
        }
        let begun = Instant::now();
        let ended = attempt(outlets, rim, &wish, &mut deaths, &mut wishes).await;
        let (why, manner) = match ended {
            Ok(()) => (None, Manner::Orderly),
            Err(Ending { why, manner }) => (Some(why), manner),
        };
        let has_rules = wish.transfer.has_rules();
        let found = deaths
            .handle_end(manner, begun.elapsed())
            .filter(|_| has_rules);
        if let Some(position) = &found {
            tracing::warn!(outlet = %name, %position, "a rule of the outlet did not end on a message, which is refused");
        }
        let is_failed = why.is_some();
        if let Some(why) = &why {
            tracing::warn!(outlet = %name, %why, "the process of the outlet has ended");
        }
        outlets.note(&name, |standing| {
            standing.handle_end(why, Instant::now());
        });
        if !is_failed {
            continue;
        }
        // Each message that is found out is one less.
        if begun.elapsed() > SOON || found.is_some() {
            pause = PAUSE;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = wishes.wait_for(|next| next.as_ref().is_none_or(|next| next.transfer != wish.transfer)) => {
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
/// Why it could not be started, or has ended by itoutlets.
async fn attempt(
    outlets: &Outlets,
    rim: &dyn Rim,
    wish: &Wish,
    deaths: &mut Deaths,
    wishes: &mut watch::Receiver<Option<Wish>>,
) -> Result<(), Ending> {
    let name = wish.transfer.name();
    let program = Program::of(&wish.transfer).path();
    let started = program.and_then(|program| {
        let started = Process::start(&program, &outlets.connections);
        started.map_err(|error| format!("it could not be started: {error}"))
    });
    let mut process = started.map_err(|why| Ending {
        manner: Manner::Orderly,
        why,
    })?;
    outlets.note(name, |standing| standing.handle_begin(process.id()));
    let mut transfer = Transfer::clone(&wish.transfer);
    let former_filters = rim.filters(&transfer.client_id());
    transfer.complete(&outlets.cluster, former_filters);
    let begin = Command::Begin {
        transfer,
        is_paused: wish.is_paused,
        caution: match wish.transfer.has_rules() {
            true => deaths.handle_begin(),
            false => Caution::default(),
        },
    };
    let mut is_paused = wish.is_paused;
    process.tell(&begin).await;
    loop {
        tokio::select! {
            told = process.next() => match told {
                Some(Told::Report(report)) => handle_report(outlets, name, *report),
                Some(Told::Evaluating(position)) => deaths.handle_evaluating(position),
                None => return Err(process.end().await),
            },
            changed = wishes.changed() => {
                let next = wishes.borrow_and_update().clone();
                match next {
                    Some(next) if changed.is_ok() && next.transfer == wish.transfer => {
                        if next.is_paused != is_paused {
                            is_paused = next.is_paused;
                            process.tell(&Command::Pause(is_paused)).await;
                        }
                    }
                    _ => {
                        stop(outlets, name, &mut process).await;
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
async fn stop(outlets: &Outlets, name: &str, process: &mut Process) {
    let leaves = async {
        process.tell(&Command::Stop).await;
        while let Some(told) = process.next().await {
            if let Told::Report(report) = told {
                handle_report(outlets, name, *report);
            }
        }
    };
    if tokio::time::timeout(LEAVE, leaves).await.is_err() {
        tracing::warn!(outlet = %name, "the process of the outlet does not stop; it is killed");
    }
}

fn handle_report(outlets: &Outlets, name: &str, report: Report) {
    outlets.note(name, |standing| {
        standing.handle_report(report, Instant::now());
    });
}

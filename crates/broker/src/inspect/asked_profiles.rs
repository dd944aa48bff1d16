//! Profiles of the process of one node that another node asks for.
//!
//! A CPU profile takes longer than an answer may: the node that is asked begins it, the other one asks for it each second, and then
//! gets it in parts that fit into answers.
//!
//! Invariant: a CPU profile that nobody asks for ends, sampled or not, so that nothing is kept for a node that is gone. Until then, or
//! until all of it has been sent, no other node begins one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admin::api::CpuProfile;
use admin::cluster::NodeId;
use admin::page::MissingReason;
use admin::problem::{Kind, Problem};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use inspection::{ANSWER_BYTES, Amount, Answer, ProfileAnswer, ProfileQuestion, Question, Refusal};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::gather;
use super::memory;
use super::profiles::{begin_cpu, threads_here};
use super::state::Inspect;
use super::wire::{ToApi as _, ToWire as _};

/// How long an answer may take: as long as any question between nodes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a node asks for a profile that another one makes.
const AGAIN: Duration = Duration::from_secs(1);

/// A profile that nobody has asked for as long ends.
const SILENCE: Duration = Duration::from_secs(10);

/// How long after the end of its time a profile may still be in the making.
const LATE: Duration = Duration::from_secs(30);

/// The most bytes of a profile: 10,000 stacks of 128 places have some 10 MB.
const LONGEST: usize = 64 << 20;

/// The CPU profile that another node has asked for last.
#[derive(Debug, Default)]
pub(super) struct AskedProfile(Mutex<Option<Arc<Held>>>);

#[derive(Debug)]
struct Held {
    number: Amount,
    /// When it was asked for last.
    heard: Mutex<Instant>,
    /// As JSON, when it is made.
    text: OnceLock<String>,
    /// Its last part has been sent.
    fetched: AtomicBool,
}

impl Held {
    fn new(number: Amount) -> Arc<Self> {
        Arc::new(Self {
            number,
            heard: Mutex::new(Instant::now()),
            text: OnceLock::new(),
            fetched: AtomicBool::new(false),
        })
    }

    /// Ends when nobody asks for it any more.
    async fn silence(&self) {
        loop {
            let ends = *self.heard.lock() + SILENCE;
            if Instant::now() >= ends {
                return;
            }
            sleep_until(ends).await;
        }
    }
}

impl AskedProfile {
    /// Keeps a profile while it is asked for. It is refused, and so ends, while another one is kept of which a part is still to be sent.
    fn keep(
        self: &Arc<Self>,
        number: Amount,
        made: BoxFuture<'static, Result<CpuProfile, Problem>>,
    ) -> Result<(), Refusal> {
        let held = Held::new(number);
        {
            let mut place = self.0.lock();
            if place
                .as_ref()
                .is_some_and(|of| !of.fetched.load(Ordering::Relaxed))
            {
                let why = format!(
                    "another CPU profile of this process is under way: the node that has asked for it gets it within {} s",
                    SILENCE.as_secs()
                );
                return Err(Refusal::Conflict(why));
            }
            *place = Some(Arc::clone(&held));
        }
        let place = Arc::clone(self);
        tokio::spawn(async move {
            let making = async {
                let text = match made.await {
                    Ok(profile) => {
                        // Some MB are not written where other nodes are answered.
                        let text = spawn_blocking(move || profile.to_wire().encode());
                        text.await.map_err(memory::failed)
                    }
                    Err(problem) => Err(problem),
                };
                match text {
                    // It is made once.
                    Ok(text) => drop(held.text.set(text)),
                    Err(problem) => {
                        let why = problem.detail;
                        tracing::error!(why, "a CPU profile for another node is not made");
                        return;
                    }
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = making => {}
                () = held.silence() => {}
            }
            let mut place = place.0.lock();
            if place.as_ref().is_some_and(|of| Arc::ptr_eq(of, &held)) {
                *place = None;
            }
        });
        Ok(())
    }

    /// The part of a profile that begins at a byte of its JSON.
    fn part(&self, number: Amount, from: Amount) -> Result<ProfileAnswer, Refusal> {
        let held = self.0.lock().clone();
        let Some(held) = held.filter(|held| held.number == number) else {
            let why = "this node does not have the profile any more".to_owned();
            return Err(Refusal::Unknown(why));
        };
        *held.heard.lock() = Instant::now();
        let Some(text) = held.text.get() else {
            return Ok(ProfileAnswer::CpuGoesOn);
        };
        let rest = usize::try_from(from.0).ok();
        let rest = rest.and_then(|from| text.get(from..)).ok_or_else(|| {
            Refusal::Unknown("the profile has no part that begins there".to_owned())
        })?;
        // As a string of JSON it gets twice as long at most, and answers have room for that.
        let (part, others) = rest.split_at(rest.floor_char_boundary(ANSWER_BYTES));
        if others.is_empty() {
            held.fetched.store(true, Ordering::Relaxed);
        }
        Ok(ProfileAnswer::Cpu {
            text: part.to_owned(),
            more: !others.is_empty(),
        })
    }
}

/// Answers another node.
pub(super) async fn here(
    inspect: &Arc<Inspect>,
    question: ProfileQuestion,
) -> Result<ProfileAnswer, Refusal> {
    match question {
        ProfileQuestion::Threads => {
            let usage = threads_here(inspect).await.map_err(refusal)?;
            Ok(ProfileAnswer::Threads(usage.to_wire()))
        }
        ProfileQuestion::Memory => {
            let profile = memory::profile(Arc::clone(inspect)).await;
            Ok(ProfileAnswer::Memory(profile.map_err(refusal)?.to_wire()))
        }
        ProfileQuestion::BeginCpu { seconds } => {
            let lasts = Duration::from_secs(seconds.clamp(1, 60).into());
            let made = begin_cpu(inspect, lasts).await.map_err(refusal)?;
            // Two profiles never begin in the same millisecond, nor one of a process and one of the process before.
            let profile = Amount(inspect.node.rim.clock.now_ms());
            inspect.asked_profile.keep(profile, made)?;
            Ok(ProfileAnswer::CpuBegun { profile })
        }
        ProfileQuestion::Cpu { profile, from } => inspect.asked_profile.part(profile, from),
    }
}

fn refusal(problem: Problem) -> Refusal {
    match problem.kind {
        Kind::Conflict => Refusal::Conflict(problem.detail),
        _ => Refusal::Unavailable(problem.detail),
    }
}

/// Asks a node about its process.
pub(super) async fn there(
    inspect: &Arc<Inspect>,
    node: NodeId,
    question: ProfileQuestion,
) -> Result<ProfileAnswer, Problem> {
    let status = inspect.control.status();
    let nodes = gather::nodes(&status, &inspect.name);
    let question = |_| Question::Profile(question.clone());
    let answers = gather::some(inspect, &nodes, &[node], question, PATIENCE).await;
    let version = || {
        let member = status.nodes.iter().find(|member| member.node == node);
        member.map_or_else(String::new, |member| member.version.clone())
    };
    match answers.into_iter().next().map(|of| of.answer) {
        Some(Ok(Answer::Profile(Ok(answer)))) => Ok(answer),
        Some(Ok(Answer::Profile(Err(refusal)))) => Err(refused(node, refusal)),
        Some(Ok(_)) => Err(other(node)),
        Some(Err(reason)) => Err(unanswered(node, reason, &version())),
        None => Err(unanswered(node, MissingReason::Down, "")),
    }
}

/// Begins a CPU profile of another node. What it gives is the profile, or why it has none.
pub(super) async fn begin_there(
    inspect: Arc<Inspect>,
    node: NodeId,
    lasts: Duration,
) -> Result<BoxFuture<'static, Result<CpuProfile, Problem>>, Problem> {
    let seconds = u16::try_from(lasts.as_secs()).unwrap_or(u16::MAX);
    let begin = ProfileQuestion::BeginCpu { seconds };
    match there(&inspect, node, begin).await? {
        ProfileAnswer::CpuBegun { profile } => {
            let part = move |from| {
                let inspect = Arc::clone(&inspect);
                let question = ProfileQuestion::Cpu { profile, from };
                async move { there(&inspect, node, question).await }.boxed()
            };
            Ok(fetch(node, lasts, part).boxed())
        }
        _ => Err(other(node)),
    }
}

/// Asks for the parts of a profile, by the bytes at which they begin, until it has all of them.
async fn fetch(
    node: NodeId,
    lasts: Duration,
    part: impl Fn(Amount) -> BoxFuture<'static, Result<ProfileAnswer, Problem>>,
) -> Result<CpuProfile, Problem> {
    let latest = Instant::now() + lasts + LATE;
    let mut answered = Instant::now();
    let mut all = String::new();
    loop {
        let answer = match part(Amount(all.len() as u64)).await {
            // A node under load, which is what profiles are made of, may answer the next time: it keeps the profile as long.
            Err(problem)
                if matches!(problem.kind, Kind::NotReady | Kind::TooManyRequests)
                    && answered.elapsed() < SILENCE =>
            {
                sleep(AGAIN).await;
                continue;
            }
            answer => answer?,
        };
        answered = Instant::now();
        match answer {
            ProfileAnswer::CpuGoesOn if answered < latest => sleep(AGAIN).await,
            ProfileAnswer::Cpu { text, more } => {
                // A node that sends nothing, or no end, is not asked for ever.
                if (more && text.is_empty()) || all.len() + text.len() > LONGEST {
                    return Err(other(node));
                }
                all.push_str(&text);
                if !more {
                    break;
                }
            }
            _ => return Err(other(node)),
        }
    }
    let profile = inspection::CpuProfile::decode(&all).map_err(|_| other(node))?;
    Ok(profile.to_api())
}

fn refused(node: NodeId, refusal: Refusal) -> Problem {
    let (kind, why) = match refusal {
        Refusal::Conflict(why) | Refusal::Unknown(why) => (Kind::Conflict, why),
        Refusal::Unavailable(why) => (Kind::NotReady, why),
    };
    Problem::new(kind, format!("node {node}: {why}")).with("node", node.to_string())
}

fn unanswered(node: NodeId, reason: MissingReason, version: &str) -> Problem {
    let (kind, why) = match reason {
        MissingReason::Version => (
            Kind::Conflict,
            format!(
                "node {node} runs HeraldMQ {version}, which answers about its process only at its own HTTP port"
            ),
        ),
        MissingReason::Busy => (
            Kind::TooManyRequests,
            format!("node {node} answers many other questions"),
        ),
        MissingReason::Down | MissingReason::NoLeader => (
            Kind::NotReady,
            format!("node {node} cannot be reached from the node that was asked"),
        ),
        MissingReason::Timeout | MissingReason::Failed => (
            Kind::NotReady,
            format!(
                "node {node} did not answer within {} s, or could not; at its own HTTP port it takes as long as it needs",
                PATIENCE.as_secs()
            ),
        ),
    };
    Problem::new(kind, why).with("node", node.to_string())
}

pub(super) fn other(node: NodeId) -> Problem {
    let why = format!("node {node} answers something else than it was asked");
    Problem::new(Kind::Internal, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(places: usize) -> CpuProfile {
        let amount = admin::api::Amount;
        CpuProfile {
            node: NodeId(7),
            node_name: "a".into(),
            version: "1".into(),
            hertz: amount(199),
            lasted_ms: amount(1_000),
            cpu_ms: amount(10),
            samples: amount(1),
            lost: amount(0),
            threads: Vec::new(),
            modules: Vec::new(),
            places: (0..places).map(|place| format!("0:{place:x}ü")).collect(),
            functions: None,
            stacks: Vec::new(),
        }
    }

    fn whole(asked: &AskedProfile, number: Amount) -> (usize, String) {
        let (mut parts, mut all) = (0, String::new());
        loop {
            let from = Amount(all.len() as u64);
            let Ok(ProfileAnswer::Cpu { text, more }) = asked.part(number, from) else {
                panic!("a part is refused");
            };
            let answer = ProfileAnswer::Cpu {
                text: text.clone(),
                more,
            };
            assert!(Answer::Profile(Ok(answer)).encode().len() < 2 << 20);
            parts += 1;
            all.push_str(&text);
            if !more {
                return (parts, all);
            }
        }
    }

    /// Waits until the thread that writes the JSON is done.
    async fn until_made(asked: &AskedProfile, number: Amount) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while asked.part(number, Amount(1 << 40)) == Ok(ProfileAnswer::CpuGoesOn) {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Fetches a profile of 10 s from a node that answers with these, and with the last for ever. Also how often it was asked.
    async fn fetched(
        answers: Vec<Result<ProfileAnswer, Kind>>,
    ) -> (Result<CpuProfile, Kind>, usize) {
        let asked = std::cell::Cell::new(0);
        let part = |_| {
            let answer = answers[asked.get().min(answers.len() - 1)].clone();
            asked.set(asked.get() + 1);
            std::future::ready(answer.map_err(|kind| Problem::new(kind, "why"))).boxed()
        };
        let fetched = fetch(NodeId(7), Duration::from_secs(10), part).await;
        (fetched.map_err(|problem| problem.kind), asked.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_does_not_answer_for_a_moment_is_asked_again() {
        let made = profile(3);
        let text = made.clone().to_wire().encode();
        let (first, last) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let part = |text: &str, more| {
            Ok(ProfileAnswer::Cpu {
                text: text.to_owned(),
                more,
            })
        };
        let answers = vec![
            Ok(ProfileAnswer::CpuGoesOn),
            Err(Kind::NotReady),
            Err(Kind::TooManyRequests),
            part(first, true),
            Err(Kind::NotReady),
            part(last, false),
        ];
        assert_eq!(fetched(answers).await, (Ok(made), 6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_does_not_send_its_profile_is_not_asked_for_ever() {
        let begun = Instant::now();
        let goes_on = Ok(ProfileAnswer::CpuGoesOn);
        let (failed, _) = fetched(vec![goes_on]).await;
        assert_eq!(failed, Err(Kind::Internal));
        assert!(begun.elapsed() <= Duration::from_secs(10) + LATE + AGAIN);
        let begun = Instant::now();
        let (failed, _) = fetched(vec![Err(Kind::NotReady)]).await;
        assert_eq!(failed, Err(Kind::NotReady));
        assert!(begun.elapsed() <= SILENCE + AGAIN);
        assert_eq!(
            fetched(vec![Err(Kind::Conflict)]).await,
            (Err(Kind::Conflict), 1)
        );
        let endless = |text: String| Ok(ProfileAnswer::Cpu { text, more: true });
        let (failed, asked) = fetched(vec![endless("x".repeat(1 << 20))]).await;
        assert_eq!((failed, asked), (Err(Kind::Internal), 65));
        let (failed, asked) = fetched(vec![endless(String::new())]).await;
        assert_eq!((failed, asked), (Err(Kind::Internal), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_profile_is_sent_in_parts_and_kept_while_it_is_asked_for() {
        let asked = Arc::new(AskedProfile::default());
        let (number, made) = (Amount(5), profile(100_000));
        let is_made = made.clone();
        let after = async move {
            sleep(Duration::from_secs(30)).await;
            Ok(is_made)
        };
        asked.keep(number, after.boxed()).unwrap();
        for _ in 0..29 {
            sleep(AGAIN).await;
            let part = asked.part(number, Amount(0));
            assert_eq!(part, Ok(ProfileAnswer::CpuGoesOn));
        }
        sleep(2 * AGAIN).await;
        let another = || asked.keep(Amount(6), std::future::pending().boxed());
        assert!(matches!(another(), Err(Refusal::Conflict(_))));
        until_made(&asked, number).await;
        let (parts, all) = whole(&asked, number);
        assert!(parts > 1, "{parts}");
        let read = inspection::CpuProfile::decode(&all).unwrap();
        assert_eq!(read.to_api(), made);
        for (number, from) in [(Amount(4), 0), (number, 1 << 40)] {
            let part = asked.part(number, Amount(from));
            assert!(matches!(part, Err(Refusal::Unknown(_))), "{part:?}");
        }
        assert_eq!(another(), Ok(()));
        sleep(SILENCE + AGAIN).await;
        assert!(asked.0.lock().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_profile_that_nobody_asks_for_ends() {
        let asked = Arc::new(AskedProfile::default());
        let sampling = Arc::new(());
        let ends = Arc::downgrade(&sampling);
        let never = async move {
            let _ends_with_this = sampling;
            std::future::pending().await
        };
        asked.keep(Amount(5), never.boxed()).unwrap();
        sleep(SILENCE - AGAIN).await;
        assert!(ends.upgrade().is_some());
        sleep(2 * AGAIN).await;
        assert!(ends.upgrade().is_none() && asked.0.lock().is_none());
    }

    #[test]
    fn a_node_of_an_earlier_version_is_named_with_it() {
        let problem = unanswered(NodeId(7), MissingReason::Version, "0.0.9");
        assert_eq!(problem.kind, Kind::Conflict);
        assert!(
            problem.detail.contains("runs HeraldMQ 0.0.9"),
            "{}",
            problem.detail
        );
        let problem = unanswered(NodeId(7), MissingReason::Down, "0.0.9");
        assert_eq!(problem.kind, Kind::NotReady);
    }
}

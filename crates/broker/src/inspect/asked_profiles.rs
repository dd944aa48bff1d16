//! Profiles of the processes of other nodes.
//!
//! A CPU profile takes longer than an answer may: the node that is asked begins it, this one asks for it each second, and then gets it in
//! parts that fit into answers (`kept_profile.rs`).

use std::sync::Arc;
use std::time::Duration;

use admin::api::CpuProfile;
use admin::cluster::NodeId;
use admin::page::MissingReason;
use admin::problem::{Kind, Problem};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use inspection::{
    Amount, Answer, MessagesAnswer, MessagesQuestion, ProfileAnswer, ProfileQuestion, Question,
    Refusal,
};
use tokio::time::{Instant, sleep};

use super::gather;
use super::kept_profile::SILENCE;
use super::state::Inspect;
use super::wire::ToApi as _;

/// How long an answer may take: as long as any question between nodes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a node asks for a profile that another one makes.
const AGAIN: Duration = Duration::from_secs(1);

/// How long after the end of its time a profile may still be in the making.
const LATE: Duration = Duration::from_secs(30);

/// The most bytes of a profile: 10,000 stacks of 128 places have some 10 MB.
const LONGEST: usize = 64 << 20;

/// Asks another node about its process.
pub(super) struct OtherProfiles {
    inspect: Arc<Inspect>,
    node: NodeId,
}

impl OtherProfiles {
    /// Asks this node.
    pub(super) fn new(inspect: Arc<Inspect>, node: NodeId) -> Self {
        Self { inspect, node }
    }

    /// Asks it one question.
    ///
    /// # Errors
    /// Why it does not answer.
    pub(super) async fn ask(&self, question: ProfileQuestion) -> Result<ProfileAnswer, Problem> {
        let Self { inspect, node } = self;
        let node = *node;
        let status = inspect.control.status();
        let nodes = gather::nodes(&status, &inspect.name);
        let question = |_| Question::Messages(MessagesQuestion::Profile(question.clone()));
        let answers = gather::some(inspect, &nodes, &[node], question, PATIENCE).await;
        let version = || {
            let member = status.nodes.iter().find(|member| member.node == node);
            member.map_or_else(String::new, |member| member.version.clone())
        };
        match answers.into_iter().next().map(|of| of.answer) {
            Some(Ok(Answer::Messages(MessagesAnswer::Profile(answer)))) => {
                answer.map_err(|refusal| refused(node, refusal))
            }
            Some(Ok(_)) => Err(other(node)),
            Some(Err(reason)) => Err(unanswered(node, reason, &version())),
            None => Err(unanswered(node, MissingReason::Down, "")),
        }
    }

    /// Begins a CPU profile of it. What it gives is the profile, or why it has none.
    ///
    /// # Errors
    /// Why none begins.
    pub(super) async fn begin_cpu(
        self,
        lasts: Duration,
    ) -> Result<BoxFuture<'static, Result<CpuProfile, Problem>>, Problem> {
        let seconds = u16::try_from(lasts.as_secs()).unwrap_or(u16::MAX);
        let node = self.node;
        match self.ask(ProfileQuestion::BeginCpu { seconds }).await? {
            ProfileAnswer::CpuBegun { profile } => {
                let asked = Arc::new(self);
                let part = move |from| {
                    let asked = Arc::clone(&asked);
                    let question = ProfileQuestion::Cpu { profile, from };
                    async move { asked.ask(question).await }.boxed()
                };
                Ok(fetch(node, lasts, part).boxed())
            }
            _ => Err(other(node)),
        }
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
    use super::super::wire::ToWire as _;
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

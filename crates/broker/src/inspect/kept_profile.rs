//! The CPU profile of this process that another node has asked for, kept until that node has all parts of it.
//!
//! Invariant: a CPU profile that nobody asks for ends, sampled or not, so that nothing is kept for a node that is gone. Until then, or
//! until all of it has been sent, no other node begins one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admin::api::CpuProfile;
use admin::problem::Problem;
use futures_util::future::BoxFuture;
use inspection::{ANSWER_BYTES, Amount, ProfileAnswer, Refusal};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::memory;
use super::wire::ToWire as _;

/// A profile that nobody has asked for as long ends.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// The CPU profile that another node has asked for last.
#[derive(Debug, Default)]
pub(super) struct KeptProfile(Mutex<Option<Arc<Held>>>);

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

impl KeptProfile {
    /// Keeps a profile while it is asked for. It is refused, and so ends, while another one is kept of which a part is still to be sent.
    pub(super) fn keep(
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
    pub(super) fn part(&self, number: Amount, from: Amount) -> Result<ProfileAnswer, Refusal> {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use inspection::{Answer, MessagesAnswer};
    use tokio::time::sleep;

    use super::super::wire::ToApi as _;
    use super::*;

    /// How often it is asked for.
    const AGAIN: Duration = Duration::from_secs(1);

    fn profile(places: usize) -> CpuProfile {
        let amount = admin::api::Amount;
        CpuProfile {
            node: admin::cluster::NodeId(7),
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

    fn whole(asked: &KeptProfile, number: Amount) -> (usize, String) {
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
            assert!(
                Answer::Messages(MessagesAnswer::Profile(Ok(answer)))
                    .encode()
                    .len()
                    < 2 << 20
            );
            parts += 1;
            all.push_str(&text);
            if !more {
                return (parts, all);
            }
        }
    }

    /// Waits until the thread that writes the JSON is done.
    async fn until_made(asked: &KeptProfile, number: Amount) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while asked.part(number, Amount(1 << 40)) == Ok(ProfileAnswer::CpuGoesOn) {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_profile_is_sent_in_parts_and_kept_while_it_is_asked_for() {
        let asked = Arc::new(KeptProfile::default());
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
        let asked = Arc::new(KeptProfile::default());
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
}

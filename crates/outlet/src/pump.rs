//! The pump of one outlet: what goes to the target when, and what is acknowledged to the broker.
//!
//! Purpose: see the crate. Calls come from one task: inputs are the `handle_…` methods, after each of which the caller takes all
//! [`Pump::poll_action`]s; [`Pump::poll_deadline`] says when [`Pump::handle_deadline`] is to be called.
//!
//! ```text
//! Opening ─► Collecting ─► Delivering ─ all ─► Collecting
//!    │  ▲                    │      │
//!    │  │                    │      └─ refused, given up ─► Letting ─► Collecting, or Opening
//!    ▼  │                    │                                │  ▲
//!  Waiting ◄─ Delivery::Retry┘        LetterOutcome::Failed ─► Waiting
//!
//! Collecting, Waiting ◄─► Paused;    any ─ fenced ─► Fenced, for good
//! ```
//!
//! After each attempt whose outcome is not known the target is opened again, since it may say what it has.
//!
//! Entries of the queue are in the order in which the session gave them. The first `sent` of those that are not finished are with
//! the target. An entry leaves at the front when it is finished and its message is acknowledged, or cannot be any more.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backoff::Backoff;
use crate::item::{Attempt, Item, Milliseconds, Position, Total};

/// What a batch has at most. A message that is longer goes alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// Messages, at least 1.
    pub messages: usize,
    /// Bytes of the messages in memory.
    pub bytes: usize,
    /// How long the first message waits for others.
    pub linger: Milliseconds,
}

/// What an outlet is configured with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Of each batch.
    pub batch: BatchLimits,
    /// Bytes of messages that wait here, beyond which no more are read ([`Pump::wants_more`]).
    pub memory: usize,
    /// How long a batch is tried before its messages become dead letters; `None`: for ever.
    pub give_up: Option<Milliseconds>,
    /// Whether dead letters are published. Without, a message that the target refuses is dropped, and counted.
    pub has_dead_letters: bool,
}

/// Where an outlet stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The target is being opened.
    Opening,
    /// The next batch is being collected; perhaps nothing waits.
    Collecting,
    /// A batch is with the target.
    Delivering {
        /// From 1.
        attempt: Attempt,
    },
    /// An attempt has failed.
    Waiting {
        /// When the next one is made.
        until: Milliseconds,
        /// The attempt that failed.
        attempt: Attempt,
    },
    /// A dead letter is being published.
    Letting,
    /// Somebody has paused the outlet. What was with the target then is finished first; an attempt that is to be repeated waits.
    Paused,
    /// Another node has the outlet. Nothing is done any more.
    Fenced,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Open the target; [`Pump::handle_opened`] or [`Pump::handle_open_error`] says what came of it.
    Open,
    /// Give these messages to the target, in this order; [`Pump::handle_delivery`] says what came of it.
    Deliver(Vec<Arc<Item>>),
    /// Acknowledge the oldest messages that the present connection of the session has given and that are not acknowledged yet, so
    /// many.
    Acknowledge(usize),
    /// Publish a dead letter; [`Pump::handle_letter`] says what came of it.
    Letter {
        /// The message.
        item: Arc<Item>,
        /// Why the target does not have it.
        why: Arc<str>,
        /// How often it was tried.
        attempts: Attempt,
    },
}

/// What the target says of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// It has all messages, and keeps them.
    All,
    /// It does not take one of them, and never will.
    Refused {
        /// Which one.
        which: Refusal,
        /// For the dead letter.
        why: Arc<str>,
    },
    /// It does not take some of them, and never will. It has the others: only for targets that keep no position, as a position beyond a
    /// message that was refused says that the target has that.
    Except {
        /// Their places, ascending, at least one, and why, for the dead letter of each.
        refused: Vec<(usize, Arc<str>)>,
    },
    /// It has some of them, and may take the others later: only for targets that keep no position, as for [`Delivery::Except`].
    Part {
        /// The places of those that it has, ascending; none of the batch, some, but not all.
        done: Vec<usize>,
        /// How long it asks to be left alone.
        after: Option<Milliseconds>,
        /// For those who look at the outlet.
        why: Arc<str>,
    },
    /// It may take them later. Whether it has them is not known.
    Retry {
        /// How long it asks to be left alone.
        after: Option<Milliseconds>,
        /// For those who look at the outlet.
        why: Arc<str>,
    },
    /// Another node has the outlet.
    Fenced,
}

/// Which message of a batch a target refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The one at this place. It has those before it, and none behind it.
    At(usize),
    /// It does not say; it has none of the batch.
    One,
}

/// Why a target cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// It may be possible later; also if the target knows no such user, which somebody may mend.
    Retry(Arc<str>),
    /// Another node has the outlet.
    Fenced,
}

/// What became of a dead letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LetterOutcome {
    /// A session or stream has it.
    Stored,
    /// Nobody subscribes to it, so it is dropped (`dead_letter_unclaimed`).
    Unclaimed,
    /// It was not acknowledged.
    Failed(Arc<str>),
}

/// What an outlet has done since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Messages that the target has taken.
    pub delivered: Total,
    /// Messages that the target had already when it was opened, and that were left out.
    pub left_out: Total,
    /// Attempts that failed.
    pub retries: Total,
    /// Messages that became dead letters.
    pub dead: Total,
    /// Dead letters that nobody subscribes to.
    pub unclaimed: Total,
    /// Messages that the target or a rule refused, of an outlet without dead letters.
    pub refused: Total,
    /// Messages that a rule did not let go on.
    pub filtered: Total,
}

/// The pump.
#[derive(Debug)]
pub struct Pump {
    options: Options,
    phase: Phase,
    is_paused: bool,
    /// The target was opened, and no attempt has failed since.
    is_open: bool,
    queue: VecDeque<Entry>,
    /// Of the entries that are not finished, so many at the front are with the target, or are to be tried again, or become dead
    /// letters.
    sent: usize,
    /// Bytes of the entries.
    bytes: usize,
    /// Entries whose source is [`Source::Before`].
    before: usize,
    /// Entries that a rule refuses.
    refusals: usize,
    /// What the target said that it has when it was opened last.
    target_has: Option<Position>,
    /// Entries at the front among which is one that the target refused without saying which.
    suspects: usize,
    /// So many of the suspects are in the next batch.
    halved: usize,
    /// When the batch that is with the target was first given to it.
    first_try: Milliseconds,
    last_error: Option<Arc<str>>,
    backoff: Backoff,
    figures: Figures,
    actions: VecDeque<Action>,
}

/// [`State`], with what is to be done after a pause.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Opening {
        attempt: Attempt,
    },
    Idle,
    Delivering {
        attempt: Attempt,
    },
    Letting(Letters),
    Waiting {
        until: Milliseconds,
        attempt: Attempt,
        then: Then,
    },
    Fenced,
}

/// The entries at the front that become dead letters, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Letters {
    /// Why, of each in its turn.
    reasons: VecDeque<Arc<str>>,
    attempts: Attempt,
    /// Of the letter that is under way.
    attempt: Attempt,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Then {
    Open,
    Letter(Letters),
}

#[derive(Debug)]
struct Entry {
    item: Arc<Item>,
    source: Source,
    is_finished: bool,
    /// Why a rule refuses it: it is never given to the target.
    refusal: Option<Arc<str>>,
}

/// Where the acknowledgement of an entry goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The present connection has given it.
    Here,
    /// A connection before the present one has given it; it will come again.
    Before,
    /// The session does not have it: it has dropped it, or never kept it.
    Gone,
}

impl Pump {
    /// A pump whose target is to be opened. `seed`: for pauses, another one for each outlet and each start.
    #[must_use]
    pub fn new(options: Options, seed: u64) -> Self {
        Self {
            options,
            phase: Phase::Opening {
                attempt: Attempt::FIRST,
            },
            is_paused: false,
            is_open: false,
            queue: VecDeque::new(),
            sent: 0,
            bytes: 0,
            before: 0,
            refusals: 0,
            target_has: None,
            suspects: 0,
            halved: 0,
            first_try: Milliseconds::default(),
            last_error: None,
            backoff: Backoff::new(seed),
            figures: Figures::default(),
            actions: VecDeque::from([Action::Open]),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Opening { .. } => State::Opening,
            Phase::Idle | Phase::Waiting { .. } if self.is_paused => State::Paused,
            Phase::Idle => State::Collecting,
            Phase::Delivering { attempt } => State::Delivering { attempt },
            Phase::Letting(_) => State::Letting,
            Phase::Waiting { until, attempt, .. } => State::Waiting { until, attempt },
            Phase::Fenced => State::Fenced,
        }
    }

    /// What it has done.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Why the last attempt failed, also while the next one is made; `None`: it did not.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Messages that wait here, and their bytes in memory.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.queue.len(), self.bytes)
    }

    /// Whether more messages are to be read from the session.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.bytes < self.options.memory && self.phase != Phase::Fenced
    }

    /// The next thing to do; `None`: nothing until the next input.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Self::handle_deadline`] is to be called; `None`: not before the next input.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Milliseconds> {
        match self.phase {
            _ if self.is_paused => None,
            Phase::Waiting { until, .. } => Some(until),
            Phase::Idle => {
                let first = self.unfinished().next()?;
                Some(first.item.received.after(self.options.batch.linger))
            }
            _ => None,
        }
    }

    /// A deadline has passed, or may have.
    pub fn handle_deadline(&mut self, now: Milliseconds) {
        let Phase::Waiting {
            until,
            attempt,
            then,
        } = &self.phase
        else {
            self.proceed(now);
            return;
        };
        if now < *until || self.is_paused {
            return;
        }
        let attempt = attempt.next();
        match then.clone() {
            Then::Open => self.open(attempt),
            Then::Letter(letters) => self.letter(Letters { attempt, ..letters }),
        }
    }

    /// The target is open, and says that it has everything up to a position if it keeps any.
    ///
    /// # Panics
    /// It was not being opened.
    pub fn handle_opened(&mut self, has: Option<Position>, now: Milliseconds) {
        let Phase::Opening { attempt } = self.phase else {
            unreachable!("a target that was not being opened is open");
        };
        (self.target_has, self.is_open) = (has, true);
        if self.sent == 0 {
            self.last_error = None;
        }
        self.phase = Phase::Idle;
        let mut sent = self.sent;
        for entry in &mut self.queue {
            let was_sent = !entry.is_finished && sent > 0;
            sent -= usize::from(was_sent);
            let is_left_out = leave_out(entry, has, &mut self.figures);
            self.sent -= usize::from(was_sent && is_left_out);
        }
        self.acknowledge();
        if self.sent > 0 {
            self.deliver(attempt);
        } else {
            self.proceed(now);
        }
    }

    /// The target could not be opened.
    ///
    /// # Panics
    /// It was not being opened.
    pub fn handle_open_error(&mut self, error: OpenError, now: Milliseconds) {
        let Phase::Opening { attempt } = self.phase else {
            unreachable!("a target that was not being opened could not be opened");
        };
        match error {
            OpenError::Fenced => self.fence(),
            OpenError::Retry(why) if self.gives_up(now) => {
                self.figures.retries += 1;
                self.refuse(self.sent, why, attempt, now);
            }
            OpenError::Retry(why) => self.wait(attempt, None, why, Then::Open, now),
        }
    }

    /// A message of the session. After a new connection of the session those that were not acknowledged come again, in their order.
    pub fn handle_item(&mut self, item: Item, now: Milliseconds) {
        self.take(item, None, false, now);
    }

    /// As [`Self::handle_item`], of a message that a rule does not let go on: it is acknowledged in its turn.
    pub fn handle_filtered(&mut self, item: Item, now: Milliseconds) {
        let payload = bytes::Bytes::new();
        self.take(Item { payload, ..item }, None, true, now);
    }

    /// As [`Self::handle_item`], of a message that a rule refuses: in its turn it becomes a dead letter, or is dropped.
    pub fn handle_refused(&mut self, item: Item, why: Arc<str>, now: Milliseconds) {
        self.take(item, Some(why), false, now);
    }

    /// Whether a message that a rule refuses has not become a dead letter yet, or is not acknowledged.
    #[must_use]
    pub fn has_refusal(&self) -> bool {
        self.refusals > 0
    }

    fn take(
        &mut self,
        item: Item,
        refusal: Option<Arc<str>>,
        is_filtered: bool,
        now: Milliseconds,
    ) {
        if self.phase == Phase::Fenced {
            return;
        }
        let is_stored = item.position.is_some();
        while is_stored && self.before > 0 {
            let mut sources = self.queue.iter().map(|entry| entry.source);
            let at = sources.position(|source| source == Source::Before);
            let at = at.expect("entries of before are counted");
            self.before -= 1;
            let entry = &mut self.queue[at];
            if entry.item.position == item.position {
                entry.source = Source::Here;
                self.acknowledge();
                self.proceed(now);
                return;
            }
            // The session has dropped it: its queue has limits, too.
            entry.source = Source::Gone;
            let before = self.queue.range(..at).filter(|entry| !entry.is_finished);
            if before.count() >= self.sent && !self.queue[at].is_finished {
                self.bytes -= self.queue[at].item.bytes();
                self.refusals -= usize::from(self.queue[at].refusal.is_some());
                self.queue.remove(at);
                self.suspects = 0;
            }
        }
        let source = if is_stored {
            Source::Here
        } else {
            Source::Gone
        };
        let mut entry = Entry {
            item: Arc::new(item),
            source,
            is_finished: is_filtered,
            refusal,
        };
        self.figures.filtered += usize::from(is_filtered);
        self.refusals += usize::from(entry.refusal.is_some());
        leave_out(&mut entry, self.target_has, &mut self.figures);
        self.bytes += entry.item.bytes();
        self.queue.push_back(entry);
        self.acknowledge();
        self.proceed(now);
    }

    /// The connection to the broker is closed: what was not acknowledged comes again on the next one.
    pub fn handle_source_closed(&mut self) {
        for entry in &mut self.queue {
            if entry.source == Source::Here {
                entry.source = Source::Before;
                self.before += 1;
            }
        }
    }

    /// What the target says of the batch that it was given.
    ///
    /// # Panics
    /// It was given none, or refuses a message that was not in it.
    pub fn handle_delivery(&mut self, delivery: Delivery, now: Milliseconds) {
        let Phase::Delivering { attempt } = self.phase else {
            unreachable!("a target answers a batch that it was not given");
        };
        match delivery {
            Delivery::All => {
                self.last_error = None;
                self.finish(self.sent);
                self.proceed(now);
            }
            Delivery::Refused { which, why } => self.handle_refusal(which, why, attempt, now),
            Delivery::Except { refused } => self.handle_refusals(refused, attempt, now),
            Delivery::Part { done, after, why } => {
                assert!(
                    done.len() < self.sent,
                    "a target that has all messages says so"
                );
                self.finish_among(done.len(), |place| done.binary_search(&place).is_ok());
                let goes_on = !done.is_empty();
                if goes_on {
                    self.first_try = now;
                }
                let attempt = if goes_on { Attempt::FIRST } else { attempt };
                self.handle_retry(after, why, attempt, now);
            }
            Delivery::Retry { after, why } => self.handle_retry(after, why, attempt, now),
            Delivery::Fenced => self.fence(),
        }
    }

    fn handle_retry(
        &mut self,
        after: Option<Milliseconds>,
        why: Arc<str>,
        attempt: Attempt,
        now: Milliseconds,
    ) {
        self.is_open = false;
        if self.gives_up(now) {
            self.figures.retries += 1;
            self.refuse(self.sent, why, attempt, now);
        } else {
            self.wait(attempt, after, why, Then::Open, now);
        }
    }

    /// Whether what was tried has been tried for long enough.
    fn gives_up(&self, now: Milliseconds) -> bool {
        let tried = now.0.saturating_sub(self.first_try.0);
        let most = self.options.give_up;
        self.sent > 0 && most.is_some_and(|most| tried >= most.0)
    }

    fn handle_refusal(
        &mut self,
        which: Refusal,
        why: Arc<str>,
        attempt: Attempt,
        now: Milliseconds,
    ) {
        match which {
            Refusal::At(place) => {
                assert!(
                    place < self.sent,
                    "a target refuses a message that it was not given"
                );
                self.finish_delivered(place);
                self.sent = 1;
                self.refuse(1, why, attempt, now);
            }
            Refusal::One if self.sent == 1 => self.refuse(1, why, attempt, now),
            Refusal::One => {
                self.last_error = Some(why);
                self.figures.retries += 1;
                self.suspects = self.sent;
                self.halved = self.sent / 2;
                self.phase = Phase::Idle;
                self.sent = 0;
                self.proceed(now);
            }
        }
    }

    fn handle_refusals(
        &mut self,
        refused: Vec<(usize, Arc<str>)>,
        attempt: Attempt,
        now: Milliseconds,
    ) {
        assert!(
            !refused.is_empty() && refused.iter().all(|(place, _)| *place < self.sent),
            "a target refuses a message that it was not given"
        );
        let delivered = self.sent - refused.len();
        self.finish_among(delivered, |place| {
            let found = refused.binary_search_by_key(&place, |(place, _)| *place);
            found.is_err()
        });
        let reasons = refused.into_iter().map(|(_, why)| why);
        self.refuse_each(reasons.collect(), attempt, now);
    }

    /// The target has those messages of the batch, so many, whose places are said to be among them.
    fn finish_among(&mut self, count: usize, is_delivered: impl Fn(usize) -> bool) {
        let unfinished = self.queue.iter_mut().filter(|entry| !entry.is_finished);
        for (place, entry) in unfinished.take(self.sent).enumerate() {
            entry.is_finished = is_delivered(place);
        }
        self.figures.delivered += count;
        self.sent -= count;
        self.suspects = 0;
        self.acknowledge();
    }

    /// What became of a dead letter.
    ///
    /// # Panics
    /// None was under way.
    pub fn handle_letter(&mut self, outcome: LetterOutcome, now: Milliseconds) {
        let Phase::Letting(mut letters) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            unreachable!("a dead letter that was not published is answered");
        };
        match outcome {
            LetterOutcome::Failed(why) => {
                let attempt = letters.attempt;
                self.wait(attempt, None, why, Then::Letter(letters), now);
                return;
            }
            LetterOutcome::Unclaimed => self.figures.unclaimed += 1,
            LetterOutcome::Stored => {}
        }
        self.figures.dead += 1;
        self.sent -= 1;
        self.mark_finished(1);
        letters.reasons.pop_front();
        if letters.reasons.is_empty() {
            self.proceed(now);
        } else {
            self.letter(Letters {
                attempt: Attempt::FIRST,
                ..letters
            });
        }
    }

    /// Somebody pauses the outlet, or ends the pause; what failed before it is then tried at once.
    pub fn handle_pause(&mut self, is_paused: bool, now: Milliseconds) {
        self.is_paused = is_paused;
        if let Phase::Waiting { until, .. } = &mut self.phase
            && !is_paused
        {
            *until = now;
        }
        self.handle_deadline(now);
    }

    /// Gives the next batch to the target if there is one and its time has come.
    fn proceed(&mut self, now: Milliseconds) {
        if self.phase != Phase::Idle || self.is_paused {
            return;
        }
        if !self.is_open {
            self.open(Attempt::FIRST);
            return;
        }
        let first = self.unfinished().next();
        if let Some(why) = first.and_then(|first| first.refusal.clone()) {
            self.sent = 1;
            self.refuse(1, why, Attempt::FIRST, now);
            return;
        }
        let BatchLimits {
            messages,
            bytes,
            linger,
        } = self.options.batch;
        let most = match self.suspects {
            0 => messages.max(1),
            suspects => self.halved.clamp(1, suspects),
        };
        let first = self.unfinished().next().map(|first| first.item.received);
        let is_due = first.is_some_and(|first| now >= first.after(linger));
        let is_large = self.queue.len() >= most || self.bytes >= bytes.min(self.options.memory);
        let has_ends = self.suspects > 0 || self.refusals > 0;
        if !is_due && !is_large && !has_ends {
            // Each message comes by here: what follows looks at all of a batch.
            return;
        }
        let (mut count, mut sum, mut is_full) = (0, 0, self.suspects > 0);
        for entry in self.unfinished() {
            let size = entry.item.bytes();
            if count == most || entry.refusal.is_some() || (count > 0 && sum + size > bytes) {
                is_full = true;
                break;
            }
            count += 1;
            sum += size;
        }
        is_full |= count == most || sum >= bytes || self.bytes >= self.options.memory;
        if count > 0 && (is_full || is_due) {
            self.sent = count;
            self.first_try = now;
            self.deliver(Attempt::FIRST);
        }
    }

    fn open(&mut self, attempt: Attempt) {
        self.phase = Phase::Opening { attempt };
        self.actions.push_back(Action::Open);
    }

    fn unfinished(&self) -> impl Iterator<Item = &Entry> {
        self.queue.iter().filter(|entry| !entry.is_finished)
    }

    fn deliver(&mut self, attempt: Attempt) {
        self.phase = Phase::Delivering { attempt };
        let batch = self.unfinished().take(self.sent);
        let batch = batch.map(|entry| Arc::clone(&entry.item)).collect();
        self.actions.push_back(Action::Deliver(batch));
    }

    /// These messages at the front are refused.
    /// So many at the front are refused, for the same reason.
    fn refuse(&mut self, count: usize, why: Arc<str>, attempts: Attempt, now: Milliseconds) {
        let reasons = std::iter::repeat_n(why, count);
        self.refuse_each(reasons.collect(), attempts, now);
    }

    /// Those at the front are refused, each for its reason.
    fn refuse_each(&mut self, reasons: VecDeque<Arc<str>>, attempts: Attempt, now: Milliseconds) {
        self.last_error = reasons.back().map(Arc::clone);
        let count = reasons.len();
        if !self.options.has_dead_letters {
            self.figures.refused += count;
            self.sent -= count;
            self.mark_finished(count);
            self.phase = Phase::Idle;
            self.proceed(now);
            return;
        }
        self.letter(Letters {
            reasons,
            attempts,
            attempt: Attempt::FIRST,
        });
    }

    fn letter(&mut self, letters: Letters) {
        let item = self
            .unfinished()
            .next()
            .map(|entry| Arc::clone(&entry.item));
        let item = item.expect("a dead letter has a message, which is not finished");
        let why = letters.reasons.front();
        self.actions.push_back(Action::Letter {
            item,
            why: why
                .map(Arc::clone)
                .expect("each dead letter has its reason"),
            attempts: letters.attempts,
        });
        self.phase = Phase::Letting(letters);
    }

    fn wait(
        &mut self,
        attempt: Attempt,
        asked: Option<Milliseconds>,
        why: Arc<str>,
        then: Then,
        now: Milliseconds,
    ) {
        self.last_error = Some(why);
        self.figures.retries += 1;
        let until = now.after(self.backoff.pause(attempt, asked));
        self.phase = Phase::Waiting {
            until,
            attempt,
            then,
        };
    }

    fn fence(&mut self) {
        self.phase = Phase::Fenced;
        self.actions.clear();
        self.queue.clear();
        (self.sent, self.bytes, self.suspects) = (0, 0, 0);
        (self.before, self.refusals) = (0, 0);
    }

    /// The target has the whole batch.
    fn finish(&mut self, count: usize) {
        self.finish_delivered(count);
        self.sent = 0;
        self.phase = Phase::Idle;
    }

    /// The target has the first messages of the batch.
    fn finish_delivered(&mut self, count: usize) {
        self.figures.delivered += count;
        self.mark_finished(count);
    }

    fn mark_finished(&mut self, count: usize) {
        let unfinished = self.queue.iter_mut().filter(|entry| !entry.is_finished);
        for entry in unfinished.take(count) {
            entry.is_finished = true;
        }
        self.suspects = self.suspects.saturating_sub(count);
        self.halved = self.suspects;
        self.acknowledge();
    }

    /// Acknowledges what is finished, in the order of the session.
    fn acknowledge(&mut self) {
        let mut count = 0;
        while let Some(entry) = self.queue.front()
            && entry.is_finished
            && entry.source != Source::Before
        {
            count += usize::from(entry.source == Source::Here);
            self.bytes -= entry.item.bytes();
            self.refusals -= usize::from(entry.refusal.is_some());
            self.queue.pop_front();
        }
        if count > 0 {
            self.actions.push_back(Action::Acknowledge(count));
        }
    }
}

/// Finishes an entry that the target has already, and says whether it is one.
fn leave_out(entry: &mut Entry, target_has: Option<Position>, figures: &mut Figures) -> bool {
    let is_there = match (target_has, entry.item.position) {
        (Some(has), Some(position)) => has.covers(position),
        _ => false,
    };
    let is_left_out = !entry.is_finished && is_there;
    if is_left_out {
        entry.is_finished = true;
        figures.left_out += 1;
    }
    is_left_out
}

#[cfg(test)]
mod tests;

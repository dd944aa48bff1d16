//! An inlet: what is published at the node, and what is acknowledged to the other broker when.
//!
//! Purpose: an inlet takes the messages of a durable session at another broker to its node. Calls come from one task: inputs are the
//! `handle_…` methods, after each of which the caller asks [`Inlet::poll_action`], [`Inlet::poll_publish`] and
//! [`Inlet::poll_deadline`].
//!
//! ```text
//! other broker ─ handle_message ─► Inlet ─ poll_publish ─► node
//!              ◄─ Acknowledge ──────┘ ◄──── handle_answer ─┘
//!
//! Connecting ─► Connected ─ pause ─► Leaving ─► Paused ─ resume ─► Connecting
//!     │  ▲          │
//!     ▼  │          │ connection lost
//!   Waiting ◄───────┘
//! ```
//!
//! Invariants: a message is acknowledged only when the node has taken it, or its drop is counted. Acknowledgements have the order of
//! the messages [MQTT-4.6.0-2]. When the connection to the other broker ends, messages that it sends again are forgotten here; what
//! the node has of them was counted. Messages wait here with [`InletOptions`] at most, and one message more.
//!
//! Deliberately absent: clock, connections, and what a message is (`M`), or its acknowledgement (`A`).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backoff::Backoff;
use crate::item::{Attempt, Milliseconds, Total};

/// What waits at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InletOptions {
    /// Messages.
    pub messages: usize,
    /// Bytes of the messages in memory.
    pub bytes: usize,
}

/// Where an inlet stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InletState {
    /// The other broker is being connected to.
    Connecting,
    /// It may send messages.
    Connected {
        /// It has accepted the topic filters.
        is_subscribed: bool,
    },
    /// It could not be reached, or the connection was lost.
    Waiting {
        /// Of the attempt that comes next.
        attempt: Attempt,
        /// When that is.
        until: Milliseconds,
    },
    /// A pause has begun; the node still has messages that it has not answered.
    Leaving,
    /// There is a pause, and no connection.
    Paused,
}

/// What the caller does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InletAction<A> {
    /// Connects to the other broker, and subscribes.
    Connect,
    /// Ends the connection to the other broker, or the attempt to make one.
    Disconnect,
    /// Acknowledges a message to the other broker.
    Acknowledge(A),
}

/// What a message is known by until the node has answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MessageNumber(u64);

/// What the node says of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeAnswer {
    /// It has the message.
    Taken,
    /// It takes none for the moment.
    Busy(Arc<str>),
    /// It refuses the message, which is dropped.
    Refused(Arc<str>),
}

/// Why a message is not published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InletDrop {
    /// It cannot be published, and why.
    Refused(Arc<str>),
    /// It goes in a circle of brokers.
    Looped,
}

/// Counts since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InletFigures {
    /// Messages that the node has taken, and those that were dropped as they went in a circle.
    pub delivered: Total,
    /// Messages that were dropped as they cannot be published, or as the node refuses them.
    pub refused: Total,
    /// Messages that were dropped as they went in a circle of brokers.
    pub looped: Total,
    /// Connections that failed or were lost, and answers of the node that it takes nothing for the moment.
    pub retries: Total,
}

/// Failures in succession.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Failures(u32);

impl Failures {
    fn more(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// How far a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// It is to be published.
    Waiting,
    /// The node has not answered.
    Published,
    /// It is published, or dropped.
    Finished,
}

#[derive(Debug)]
struct Held<M, A> {
    number: MessageNumber,
    progress: Progress,
    /// `None`: it is not to be published any more.
    message: Option<M>,
    bytes: usize,
    /// `None`: it is not acknowledged, as of QoS 0.
    answer: Option<A>,
}

/// An inlet. `M`: a message; `A`: what acknowledges one to the other broker.
#[derive(Debug)]
pub struct Inlet<M, A> {
    options: InletOptions,
    state: InletState,
    is_paused: bool,
    /// Failed attempts in succession.
    failed: Failures,
    backoff: Backoff,
    /// The node takes nothing before this.
    busy_until: Option<Milliseconds>,
    /// Answers in succession that it takes nothing.
    busy: Failures,
    /// In the order of their arrival.
    held: VecDeque<Held<M, A>>,
    bytes: usize,
    next: MessageNumber,
    /// No message before it waits to be published.
    first_waiting: MessageNumber,
    actions: VecDeque<InletAction<A>>,
    figures: InletFigures,
    last_error: Option<Arc<str>>,
}

impl<M, A> Inlet<M, A> {
    /// An inlet that connects at once, or has a pause. `seed`: another one for each inlet and each start.
    #[must_use]
    pub fn new(options: InletOptions, is_paused: bool, seed: u64) -> Self {
        let mut inlet = Self {
            options,
            state: InletState::Paused,
            is_paused,
            failed: Failures(0),
            backoff: Backoff::new(seed),
            busy_until: None,
            busy: Failures(0),
            held: VecDeque::new(),
            bytes: 0,
            next: MessageNumber(0),
            first_waiting: MessageNumber(0),
            actions: VecDeque::new(),
            figures: InletFigures::default(),
            last_error: None,
        };
        if !is_paused {
            inlet.connect();
        }
        inlet
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> InletState {
        self.state
    }

    /// Counts since the start.
    #[must_use]
    pub fn figures(&self) -> InletFigures {
        self.figures
    }

    /// What failed last; `None`: nothing since the connection was made.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Whether the node has said that it takes nothing for the moment, how often in succession; 0: it has not.
    #[must_use]
    pub fn busy(&self) -> u32 {
        self.busy.0
    }

    /// Messages that wait here, and their bytes.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.held.len(), self.bytes)
    }

    /// Whether more is to be read from the other broker. Until it is connected, its answers are read anyway.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        match self.state {
            InletState::Connecting => true,
            InletState::Connected { .. } => {
                self.bytes < self.options.bytes && self.held.len() < self.options.messages
            }
            InletState::Waiting { .. } | InletState::Leaving | InletState::Paused => false,
        }
    }

    /// What the caller does next.
    pub fn poll_action(&mut self) -> Option<InletAction<A>> {
        self.actions.pop_front()
    }

    /// The message that is published next; [`Self::handle_published`] or [`Self::handle_answer`] says what became of that.
    #[must_use]
    pub fn poll_publish(&self) -> Option<(MessageNumber, &M)> {
        if self.busy_until.is_some() {
            return None;
        }
        let first = self.place(self.first_waiting);
        let mut held = self.held.range(first..);
        let next = held.find(|held| held.progress == Progress::Waiting)?;
        next.message.as_ref().map(|message| (next.number, message))
    }

    /// When [`Self::handle_deadline`] is to be called; `None`: for nothing.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Milliseconds> {
        let until = match self.state {
            InletState::Waiting { until, .. } => Some(until),
            _ => None,
        };
        until.into_iter().chain(self.busy_until).min()
    }

    /// Time has passed.
    pub fn handle_deadline(&mut self, now: Milliseconds) {
        if self.busy_until.is_some_and(|until| until <= now) {
            self.busy_until = None;
        }
        if let InletState::Waiting { until, .. } = self.state
            && until <= now
        {
            self.connect();
        }
    }

    /// The other broker has accepted the client, and may send messages of its session.
    pub fn handle_connected(&mut self) {
        if self.state == InletState::Connecting {
            self.state = InletState::Connected {
                is_subscribed: false,
            };
        }
    }

    /// The other broker has accepted the topic filters.
    pub fn handle_subscribed(&mut self) {
        if let InletState::Connected { is_subscribed } = &mut self.state {
            *is_subscribed = true;
            self.failed = Failures(0);
            self.last_error = None;
        }
    }

    /// The other broker could not be reached, or the connection to it is over. What it has not got an acknowledgement of, it sends again.
    pub fn handle_connection_lost(&mut self, why: Arc<str>, now: Milliseconds) {
        match self.state {
            InletState::Connecting | InletState::Connected { .. } => {
                self.figures.retries += 1;
                self.last_error = Some(why);
                self.failed = self.failed.more();
                let until = now.after(self.backoff.pause(Attempt(self.failed.0), None));
                let attempt = Attempt(self.failed.0).next();
                self.state = InletState::Waiting { attempt, until };
            }
            InletState::Leaving => self.leave(),
            InletState::Waiting { .. } | InletState::Paused => {}
        }
        self.forget();
        let of_it = |action: &InletAction<A>| matches!(action, InletAction::Acknowledge(_));
        self.actions.retain(|action| !of_it(action));
    }

    /// The other broker has sent a message. `answer`: `None`: it is not acknowledged. What comes while a pause begins comes again
    /// after it, but for messages without acknowledgement.
    pub fn handle_message(&mut self, message: M, bytes: usize, answer: Option<A>) {
        if self.is_left_out(answer.is_some()) {
            return;
        }
        self.bytes += bytes;
        self.hold(Progress::Waiting, Some(message), bytes, answer);
    }

    /// The other broker has sent a message that is not published.
    pub fn handle_drop(&mut self, why: InletDrop, answer: Option<A>) {
        if self.is_left_out(answer.is_some()) {
            return;
        }
        match why {
            InletDrop::Looped => {
                self.figures.looped += 1;
                self.figures.delivered += 1;
            }
            InletDrop::Refused(why) => {
                self.figures.refused += 1;
                self.last_error = Some(why);
            }
        }
        self.hold(Progress::Finished, None, 0, answer);
        self.release();
    }

    /// A message has gone to the node. `is_answered`: whether the node says what became of it.
    pub fn handle_published(&mut self, number: MessageNumber, is_answered: bool) {
        if is_answered {
            if let Some(held) = self.find(number) {
                held.progress = Progress::Published;
            }
            self.first_waiting = self.first_waiting.max(MessageNumber(number.0 + 1));
        } else {
            self.handle_answer(number, NodeAnswer::Taken, Milliseconds(0));
        }
    }

    /// The node has said what became of a message, or it cannot be published at all.
    pub fn handle_answer(&mut self, number: MessageNumber, answer: NodeAnswer, now: Milliseconds) {
        match answer {
            NodeAnswer::Taken => {
                self.figures.delivered += 1;
                self.busy = Failures(0);
                self.finish(number);
            }
            NodeAnswer::Refused(why) => {
                self.figures.refused += 1;
                self.last_error = Some(why);
                self.finish(number);
            }
            NodeAnswer::Busy(why) => {
                self.figures.retries += 1;
                self.last_error = Some(why);
                // One pause for all that were under way.
                if self.busy_until.is_none() {
                    self.busy = self.busy.more();
                    let pause = self.backoff.pause(Attempt(self.busy.0), None);
                    self.busy_until = Some(now.after(pause));
                }
                if let Some(held) = self.find(number) {
                    held.progress = Progress::Waiting;
                    self.first_waiting = self.first_waiting.min(number);
                }
            }
        }
        self.release();
    }

    /// A pause begins or ends. What the node has got is finished first; what it has not comes again after the pause.
    pub fn handle_pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        match (self.state, is_paused) {
            (InletState::Connected { .. }, true) => {
                self.state = InletState::Leaving;
                self.drop_waiting();
                self.release();
            }
            (InletState::Connecting, true) => self.leave(),
            (InletState::Waiting { .. }, true) => self.state = InletState::Paused,
            (InletState::Paused | InletState::Waiting { .. }, false) => {
                self.failed = Failures(0);
                self.busy_until = None;
                self.connect();
            }
            // What was left out comes again only after a new connection.
            (InletState::Leaving, _)
            | (InletState::Paused, true)
            | (InletState::Connecting | InletState::Connected { .. }, false) => {}
        }
    }

    fn connect(&mut self) {
        self.state = InletState::Connecting;
        self.actions.push_back(InletAction::Connect);
    }

    /// Ends the connection for a pause, which may be over already.
    fn leave(&mut self) {
        self.forget();
        self.actions.push_back(InletAction::Disconnect);
        self.state = InletState::Paused;
        if !self.is_paused {
            self.connect();
        }
    }

    fn is_left_out(&self, is_acknowledged: bool) -> bool {
        is_acknowledged && !matches!(self.state, InletState::Connected { .. })
    }

    fn hold(&mut self, progress: Progress, message: Option<M>, bytes: usize, answer: Option<A>) {
        let number = self.next;
        self.next = MessageNumber(number.0 + 1);
        self.held.push_back(Held {
            number,
            progress,
            message,
            bytes,
            answer,
        });
    }

    /// Where a message stands, or the next one after it.
    fn place(&self, number: MessageNumber) -> usize {
        self.held.partition_point(|held| held.number < number)
    }

    /// `None`: it was forgotten, as its connection is over.
    fn find(&mut self, number: MessageNumber) -> Option<&mut Held<M, A>> {
        let place = self.place(number);
        let found = self.held.get_mut(place);
        found.filter(|held| held.number == number)
    }

    fn finish(&mut self, number: MessageNumber) {
        if let Some(held) = self.find(number) {
            held.progress = Progress::Finished;
            held.message = None;
            let bytes = std::mem::take(&mut held.bytes);
            self.bytes -= bytes;
        }
    }

    /// Acknowledges what is finished at the front.
    fn release(&mut self) {
        while let Some(front) = self.held.front()
            && front.progress == Progress::Finished
        {
            let answer = self.held.pop_front().and_then(|held| held.answer);
            self.actions.extend(answer.map(InletAction::Acknowledge));
        }
        if self.state == InletState::Leaving && self.held.iter().all(|held| held.answer.is_none()) {
            self.leave();
        }
    }

    /// Forgets what waits to be published and comes again, and what stands behind it: its acknowledgement would overtake.
    fn drop_waiting(&mut self) {
        let mut is_cut = false;
        self.retain(|held| {
            is_cut |= held.answer.is_some() && held.progress == Progress::Waiting;
            held.answer.is_none() || !is_cut
        });
    }

    /// Forgets what comes again.
    fn forget(&mut self) {
        self.retain(|held| held.answer.is_none());
    }

    fn retain(&mut self, keep: impl FnMut(&Held<M, A>) -> bool) {
        self.held.retain(keep);
        self.bytes = self.held.iter().map(|held| held.bytes).sum();
    }
}

#[cfg(test)]
mod tests;

//! What sessions that have ended, or are away, leave to their shared groups: this node hands over what the inbox shards that
//! it leads have.
//!
//! | call | when | costs |
//! |---|---|---|
//! | [`Legacies::handle_told`] | a shard says that a session has left something | a question for a page of it, or a place in a list |
//! | [`Legacies::handle_page`] | the page has come; gives the messages that members are to get | – |
//! | [`Legacies::handle_given`] | for each of these that a member has got, or that its inbox is asked to take | – |
//! | [`Legacies::handle_all_given`] | once after these | the next question, if nobody is to answer |
//! | [`Legacies::handle_target`] | an inbox has answered | the same |
//! | [`Legacies::handle_timer`] | while something could not be handed over | a question for each such legacy |
//!
//! Invariant: the shard keeps a message until a member of the group has it, or nobody is in the group. Until
//! then it tells whoever leads it; by their origin, messages that two nodes hand over reach an inbox shard once.

pub(crate) mod asked;
mod known;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use store_state::api::Store as _;
use store_state::inbox::{InboxReply, Item, Origin};

use self::asked::{Asked, PageNumber};
use self::known::{Known, Legacy};
use crate::clients::{LoopIo, Timer};
use crate::inbox::{InboxNumber, Sequence};
use crate::pending::{Answer, Pending};
use crate::rim::Rim;
use crate::turn::{Base, Turn};

/// Legacies that a loop hands over at the same time, of as many clients: of each, a page is in memory.
///
/// Limit: what sessions have left to shared groups, that a loop hands over at once | {} sessions; of each
/// {legacy::PAGE.0} messages or {legacy::PAGE.1:bytes} | waits in the shard
const AT_ONCE: usize = 64;

/// How long a legacy waits of which something could not be handed over.
const RETRY_MS: u64 = 1_000;

/// The legacies that a loop hands over.
#[derive(Debug, Default)]
pub(crate) struct Legacies {
    known: Known,
    /// Those that are under way.
    pages: BTreeMap<PageNumber, Page>,
    next: PageNumber,
}

/// A page of a legacy that is handed over.
#[derive(Debug)]
struct Page {
    legacy: Legacy,
    /// Messages on it; 0: it has not come.
    messages: usize,
    /// Those that others have.
    done: Vec<Sequence>,
    /// Inboxes that were asked to take one and have not answered.
    asked: usize,
}

/// What became of a message of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    /// A member has it, or nobody is to have it.
    Done,
    /// The inbox of a member is asked to take it.
    Asked,
    /// It stays where it is: it is not known whether there are members.
    Stays,
}

impl Legacies {
    /// A session has left something.
    pub(crate) fn handle_told<R: Rim>(
        &mut self,
        base: &mut Base<R>,
        client: Box<str>,
        inbox: InboxNumber,
    ) {
        if self.known.handle_told(Legacy { client, inbox }) {
            self.begin(base);
        }
    }

    fn begin<R: Rim>(&mut self, base: &mut Base<R>) {
        base.stats.legacies.set(self.known.known() as u64);
        while self.known.under_way() < AT_ONCE
            && let Some(legacy) = self.known.begin()
        {
            self.ask_for_page(base, legacy, Vec::new());
        }
    }

    /// Tells the shard what others have, and asks for what they are to have next.
    fn ask_for_page<R: Rim>(&mut self, base: &mut Base<R>, legacy: Legacy, done: Vec<Sequence>) {
        let op = legacy.hand_over(base.node.store(), done);
        let number = self.next;
        self.next = PageNumber(number.0 + 1);
        let page = Page {
            legacy,
            messages: 0,
            done: Vec::new(),
            asked: 0,
        };
        self.pages.insert(number, page);
        base.ask_inbox(Pending::Handover(Asked::Page(number)), op);
    }

    fn page(&mut self, number: PageNumber) -> &mut Page {
        let page = self.pages.get_mut(&number);
        page.expect("a page stays until all that was asked for it is answered")
    }

    /// The shard has said what others are to have next. Gives that, each by its origin; [`Self::handle_given`] is told what became
    /// of each, and then [`Self::handle_all_given`] that these were all.
    pub(crate) fn handle_page<R: Rim>(
        &mut self,
        base: &mut Base<R>,
        number: PageNumber,
        answer: Answer,
    ) -> Vec<(Sequence, Origin, Item)> {
        let Answer::Inbox(InboxReply::LeftBehind(items)) = answer else {
            return Vec::new();
        };
        if items.is_empty() {
            let page = self.pages.remove(&number);
            let page = page.expect("a page stays until all that was asked for it is answered");
            self.handed_over(base, &page.legacy);
            return Vec::new();
        }
        let page = self.page(number);
        page.messages = items.len();
        let legacy = &page.legacy;
        let items = items.into_iter().map(|(sequence, item)| {
            let sequence = Sequence(sequence);
            let origin = legacy.origin(base.node.store(), sequence);
            (sequence, origin, item)
        });
        items.collect()
    }

    /// What became of a message of a page.
    pub(crate) fn handle_given(&mut self, number: PageNumber, sequence: Sequence, given: Given) {
        let page = self.page(number);
        match given {
            Given::Done => page.done.push(sequence),
            Given::Asked => page.asked += 1,
            Given::Stays => {}
        }
    }

    /// What was to be given is given, as far as it can be.
    pub(crate) fn handle_all_given<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        number: PageNumber,
    ) {
        // Nothing is left of it if the page was empty.
        if self.pages.contains_key(&number) {
            self.go_on(turn, number);
        }
    }

    /// A member's inbox has answered.
    pub(crate) fn handle_target<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        (number, sequence): (PageNumber, Sequence),
        answer: &Answer,
    ) {
        let page = self.page(number);
        page.asked -= 1;
        if let Answer::Inbox(InboxReply::Published { .. }) = answer {
            page.done.push(sequence);
        }
        self.go_on(turn, number);
    }

    /// Goes on with the next page when nobody is to answer for this one any more.
    fn go_on<R: Rim, Io: LoopIo>(&mut self, turn: &mut Turn<'_, R, Io>, number: PageNumber) {
        if self.page(number).asked > 0 {
            return;
        }
        let page = self.pages.remove(&number);
        let Page {
            legacy,
            messages,
            done,
            ..
        } = page.expect("it was there");
        if messages > 0 && done.len() == messages {
            return self.ask_for_page(turn.base, legacy, done);
        }
        if !done.is_empty() {
            let op = legacy.hand_over(turn.base.node.store(), done);
            turn.base.tell_inbox(op);
        }
        if self.known.handle_stuck(legacy) {
            let at = turn.io.now_ms() + RETRY_MS;
            turn.io.arm(at, Timer::Legacies.to_bits());
        }
        self.begin(turn.base);
    }

    /// Tries again with what could not be handed over. What another node leads by now is its business.
    pub(crate) fn handle_timer<R: Rim>(&mut self, base: &mut Base<R>) {
        let node = &base.node;
        self.known.retry(|client| {
            let store = node.store();
            let shard = store.inbox_shard(store.inbox_slot(client));
            let peers = node.peers();
            peers.is_some_and(|peers| peers.is_led_elsewhere(&**node, shard))
        });
        self.begin(base);
    }

    /// Nothing is left of a legacy: all shards are to forget its messages, in a while.
    fn handed_over<R: Rim>(&mut self, base: &mut Base<R>, legacy: &Legacy) {
        self.known.handle_done(legacy);
        base.forget_everywhere(&legacy.publisher(), u64::MAX);
        self.begin(base);
    }
}

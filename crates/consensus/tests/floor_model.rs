//! Every order of events among three voters of which one loses the end of its log and begins below a floor.
//!
//! Purpose: an argument for the rules of `src/floor.rs` that does not rest on an argument. The search visits every
//! state that the voters can reach within [`TERMS`] terms and [`ENTRIES`] entries, and with each rule left out it
//! finds a state that must not be.
//!
//! What is counted on, and why it leaves no order of events out: a leader learns of an acknowledgement at once, and
//! commits at once, because later it would only commit less. A request of a leader may arrive at any later time,
//! also after the leader has crashed, since [`Led`] keeps what it can have sent. A candidate may count the votes that it has at
//! any later time. An answer to the question for the end waits at the asking replica for any time.
//!
//! States that differ only in what no event can depend on any more count as one ([`State::simplify`]): without that
//! there are ten times as many, and nothing else is found.
//!
//! The log of a replica is synced with each append, but for a leader's, which sends entries that are not synced. A
//! leader that steps down has synced them: its vote goes through the same log.
//!
//! Deliberately absent: changes of the members, snapshots (a replica that has one has what it stands for), and
//! pre-votes, which change nothing that is kept.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

const VOTERS: usize = 3;

/// The voter whose log is damaged. The other two are alike.
const HURT: usize = 0;

const TERMS: u8 = 3;
const ENTRIES: usize = 2;

/// Later than each entry of the same term.
const MAX: u8 = ENTRIES as u8 + 1;

/// The term of an entry, and how many entries the log has up to it. (0, 0): there is none.
type Id = (u8, u8);

/// The terms of a log's entries. One leader alone writes the entries of a term: those of the same term at the same
/// place are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Entries {
    len: u8,
    terms: [u8; ENTRIES],
}

impl Entries {
    fn id(&self, len: u8) -> Id {
        match len {
            0 => (0, 0),
            _ => (self.terms[len as usize - 1], len),
        }
    }

    fn last(&self) -> Id {
        self.id(self.len)
    }

    fn has(&self, id: Id) -> bool {
        id.1 <= self.len && self.id(id.1) == id
    }

    fn begins_with(&self, other: &Self) -> bool {
        self.has(other.last())
    }

    fn cut(&self, len: u8) -> Self {
        let mut cut = Self {
            len: self.len.min(len),
            ..Self::default()
        };
        let count = cut.len as usize;
        cut.terms[..count].copy_from_slice(&self.terms[..count]);
        cut
    }

    fn push(&mut self, term: u8) {
        self.terms[self.len as usize] = term;
        self.len += 1;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Role {
    #[default]
    Follows,
    Campaigns,
    Leads,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Replica {
    term: u8,
    /// One more than the voter that it has voted for or follows; 0: none in this term.
    voted: u8,
    role: Role,
    log: Entries,
    /// How many entries are synced: all, unless the replica leads.
    synced: u8,
    /// Of a candidate: who has voted for it, one bit each.
    votes: u8,
    /// Of a leader: how many entries each other voter has acknowledged.
    acknowledged: [u8; VOTERS],
}

/// What the leader of a term can have sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Led {
    /// One more than the voter; 0: nobody has led.
    by: u8,
    log: Entries,
}

/// What a leader has said of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct End {
    term: u8,
    last: Id,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct State {
    replicas: [Replica; VOTERS],
    led: [Led; TERMS as usize + 1],
    /// What has been acknowledged to clients.
    committed: Entries,
    /// The first term in which each entry was. The leaders of later terms must have it.
    committed_in: [u8; ENTRIES],
    was_damaged: bool,
    /// Of the hurt replica.
    floor: Option<Id>,
    answer: Option<End>,
}

/// A rule that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// After an orderly end, the floor is the entry that was the last one. No error.
    ExactFloor,
    FloorIsLastEntryLeft,
    FloorEndsAtRestart,
    CampaignsBelowFloor,
    VotesForAnybody,
    AnswerFromBeforeTheRestart,
    AnswerOfEarlierTerm,
    AnswerBeforeItsEntryIsHere,
    OlderVoteCounts,
    LeaderResumes,
}

type Violation = &'static str;

impl State {
    fn is_below_floor(&self, id: Id) -> bool {
        self.floor.is_some_and(|floor| id < floor)
    }

    /// All states that are one event away, and whether a rule of Raft is broken there.
    fn visit_next(&self, planted: Planted, visit: &mut impl FnMut(Self, Option<Violation>)) {
        for voter in 0..VOTERS {
            self.campaign(voter, planted, visit);
            self.win(voter, visit);
            self.write(voter, visit);
            self.crash(voter, planted, visit);
            for other in 0..VOTERS {
                self.ask_for_vote(voter, other, planted, visit);
                self.learn_term(voter, other, visit);
            }
            for term in 1..=TERMS {
                self.append(term, voter, visit);
            }
        }
        self.damage(planted, visit);
        self.ask_for_end(planted, visit);
        self.end_floor(planted, visit);
    }

    fn campaign(
        &self,
        voter: usize,
        planted: Planted,
        visit: &mut impl FnMut(Self, Option<Violation>),
    ) {
        let replica = &self.replicas[voter];
        let is_below = voter == HURT
            && planted != Planted::CampaignsBelowFloor
            && self.is_below_floor(replica.log.last());
        if replica.role == Role::Leads || replica.term == TERMS || is_below {
            return;
        }
        let mut next = *self;
        let replica = &mut next.replicas[voter];
        replica.adopt(replica.term + 1, voter as u8 + 1);
        replica.role = Role::Campaigns;
        replica.votes = 1 << voter;
        visit(next, None);
    }

    fn ask_for_vote(
        &self,
        candidate: usize,
        voter: usize,
        planted: Planted,
        visit: &mut impl FnMut(Self, Option<Violation>),
    ) {
        let (asks, asked) = (&self.replicas[candidate], &self.replicas[voter]);
        let is_free = asked.term < asks.term || asked.term == asks.term && asked.voted == 0;
        let is_below = voter == HURT
            && planted != Planted::VotesForAnybody
            && self.is_below_floor(asks.log.last());
        let lacks = asks.log.last() < asked.log.last();
        if asks.role != Role::Campaigns || !is_free || is_below || lacks {
            return;
        }
        let mut next = *self;
        next.replicas[voter].adopt(asks.term, candidate as u8 + 1);
        next.replicas[candidate].votes |= 1 << voter;
        visit(next, None);
    }

    /// What was acknowledged in terms before this one.
    fn committed_before(&self, term: u8) -> Entries {
        let in_terms = self.committed_in.iter();
        let count = in_terms.take_while(|of| (1..term).contains(of)).count();
        self.committed.cut(count as u8)
    }

    fn win(&self, voter: usize, visit: &mut impl FnMut(Self, Option<Violation>)) {
        let replica = &self.replicas[voter];
        if replica.role != Role::Campaigns || replica.votes.count_ones() < 2 {
            return;
        }
        let mut next = *self;
        let led = &mut next.led[replica.term as usize];
        let violation = if led.by != 0 {
            Some("two lead in a term")
        } else if !replica
            .log
            .begins_with(&self.committed_before(replica.term))
        {
            Some("a leader lacks what was acknowledged")
        } else {
            None
        };
        *led = Led {
            by: voter as u8 + 1,
            log: replica.log,
        };
        let replica = &mut next.replicas[voter];
        replica.role = Role::Leads;
        replica.votes = 0;
        visit(next, violation);
    }

    /// A leader appends an entry, or syncs.
    fn write(&self, voter: usize, visit: &mut impl FnMut(Self, Option<Violation>)) {
        let replica = &self.replicas[voter];
        if replica.role != Role::Leads {
            return;
        }
        if (replica.log.len as usize) < ENTRIES {
            let mut next = *self;
            let replica = &mut next.replicas[voter];
            replica.log.push(replica.term);
            next.led[replica.term as usize].log = replica.log;
            visit(next, None);
        }
        if replica.synced < replica.log.len {
            let mut next = *self;
            next.replicas[voter].synced = replica.log.len;
            let violation = next.commit(voter);
            visit(next, violation);
        }
    }

    fn crash(
        &self,
        voter: usize,
        planted: Planted,
        visit: &mut impl FnMut(Self, Option<Violation>),
    ) {
        // A candidate or a follower that crashes forgets nothing, and need not act again.
        if self.replicas[voter].role == Role::Leads || voter == HURT && self.floor.is_some() {
            let mut next = *self;
            next.restart(voter, planted);
            visit(next, None);
        }
    }

    fn restart(&mut self, voter: usize, planted: Planted) {
        let replica = &mut self.replicas[voter];
        let resumes = planted == Planted::LeaderResumes && replica.role == Role::Leads;
        replica.log = replica.log.cut(replica.synced);
        replica.stand_down();
        if resumes {
            replica.role = Role::Leads;
        }
        if voter == HURT {
            if planted != Planted::AnswerFromBeforeTheRestart {
                self.answer = None;
            }
            if planted == Planted::FloorEndsAtRestart {
                self.floor = None;
            }
        }
    }

    /// A replica hears of a later term, from anybody.
    fn learn_term(
        &self,
        voter: usize,
        from: usize,
        visit: &mut impl FnMut(Self, Option<Violation>),
    ) {
        let term = self.replicas[from].term;
        if self.replicas[voter].term < term {
            let mut next = *self;
            next.replicas[voter].adopt(term, 0);
            visit(next, None);
        }
    }

    /// A request of the leader of a term arrives, with as many entries of its log as there may be.
    fn append(&self, term: u8, voter: usize, visit: &mut impl FnMut(Self, Option<Violation>)) {
        let led = &self.led[term as usize];
        let replica = &self.replicas[voter];
        if led.by == 0 || led.by == voter as u8 + 1 || replica.term > term {
            return;
        }
        let leader = led.by as usize - 1;
        for len in 0..=led.log.len {
            let mut next = *self;
            let replica = &mut next.replicas[voter];
            replica.adopt(term, led.by);
            let sent = led.log.cut(len);
            if !replica.log.begins_with(&sent) {
                replica.log = sent;
                replica.synced = len;
            }
            let leads = &mut next.replicas[leader];
            let mut violation = None;
            if leads.role == Role::Leads && leads.term == term {
                let acknowledged = &mut leads.acknowledged[voter];
                *acknowledged = len.max(*acknowledged);
                violation = next.commit(leader);
            }
            visit(next, violation);
        }
    }

    /// The leader counts who has its entries, and answers its clients.
    fn commit(&mut self, leader: usize) -> Option<Violation> {
        let replica = &self.replicas[leader];
        let has = |voter: usize, len: u8| match voter == leader {
            true => replica.synced >= len,
            false => replica.acknowledged[voter] >= len,
        };
        let is_agreed = |len: &u8| {
            let count = (0..VOTERS).filter(|voter| has(*voter, *len)).count();
            replica.log.id(*len).0 == replica.term && count >= 2
        };
        let len = (1..=replica.log.len).rev().find(is_agreed)?;
        let agreed = replica.log.cut(len);
        let (replica, before) = (*replica, self.committed);
        if !agreed.begins_with(&before) && !before.begins_with(&agreed) {
            return Some("two entries were acknowledged at the same place");
        }
        if agreed.len > before.len {
            self.committed = agreed;
        }
        for of in &mut self.committed_in[..len as usize] {
            *of = match *of {
                0 => replica.term,
                known => known.min(replica.term),
            };
        }
        let later = &self.led[replica.term as usize + 1..];
        let lacks = |led: &Led| led.by != 0 && !led.log.begins_with(&agreed);
        later
            .iter()
            .any(lacks)
            .then_some("a later leader lacks what was acknowledged")
    }

    /// The hurt replica is started again and has lost some of its last entries.
    fn damage(&self, planted: Planted, visit: &mut impl FnMut(Self, Option<Violation>)) {
        let before = &self.replicas[HURT];
        if self.was_damaged || before.log.len == 0 {
            return;
        }
        for len in 0..before.synced {
            // An orderly end has left a record.
            let is_orderly = planted == Planted::ExactFloor;
            let records: &[bool] = if is_orderly { &[true] } else { &[true, false] };
            for has_record in records {
                let mut next = *self;
                next.was_damaged = true;
                let lost = before.log.cut(before.synced);
                next.restart(HURT, planted);
                let replica = &mut next.replicas[HURT];
                replica.log = lost.cut(len);
                replica.synced = len;
                if planted == Planted::OlderVoteCounts {
                    // What is left of the log has an older vote.
                    let term = replica.log.last().0.max(replica.term - 1);
                    replica.adopt(term, 0);
                } else if !*has_record {
                    // It leaves the terms behind in which it may have voted.
                    if replica.term == TERMS {
                        continue;
                    }
                    replica.adopt(replica.term + 1, HURT as u8 + 1);
                }
                let floor = match planted {
                    Planted::ExactFloor => lost.last(),
                    Planted::FloorIsLastEntryLeft => replica.log.last(),
                    _ => (replica.term, MAX),
                };
                next.floor = Some(floor);
                visit(next, None);
            }
        }
    }

    /// A leader says how far its log reaches.
    fn ask_for_end(&self, planted: Planted, visit: &mut impl FnMut(Self, Option<Violation>)) {
        if self.floor.is_none()
            && (planted != Planted::AnswerFromBeforeTheRestart || self.was_damaged)
        {
            return;
        }
        for leader in self.replicas.iter().filter(|of| of.role == Role::Leads) {
            let mut next = *self;
            next.answer = Some(End {
                term: leader.term,
                last: leader.log.last(),
            });
            visit(next, None);
        }
    }

    /// The hurt replica finds that its log has passed its floor, or has all that a leader had.
    fn end_floor(&self, planted: Planted, visit: &mut impl FnMut(Self, Option<Violation>)) {
        let Some(floor) = self.floor else {
            return;
        };
        let replica = &self.replicas[HURT];
        let log = replica.log.cut(replica.synced);
        let is_answered = self.answer.is_some_and(|end| {
            let is_later = end.term >= floor.0 || planted == Planted::AnswerOfEarlierTerm;
            let is_here = log.has(end.last) || planted == Planted::AnswerBeforeItsEntryIsHere;
            is_later && is_here
        });
        if log.last() >= floor || is_answered {
            let mut next = *self;
            (next.floor, next.answer) = (None, None);
            visit(next, None);
        }
    }

    /// Forgets what no event can depend on any more, so that fewer states are different.
    fn simplify(&mut self, planted: Planted) {
        let replicas = self.replicas;
        for (term, led) in (0..).zip(&mut self.led) {
            let may_hear =
                (0..VOTERS).any(|voter| led.by != voter as u8 + 1 && replicas[voter].term <= term);
            let earlier_leads = |of: &Replica| of.role == Role::Leads && of.term < term;
            if !may_hear && !replicas.iter().any(earlier_leads) {
                led.log = Entries::default();
                if replicas.iter().all(|of| of.term > term) {
                    led.by = 0;
                }
            }
        }
        let committed = self.committed;
        for replica in &mut self.replicas {
            let may_be_asked = |of: &Replica| {
                of.term < replica.term || of.term == replica.term && of.role == Role::Campaigns
            };
            if !replicas.iter().any(may_be_asked) {
                replica.voted = 0;
            }
            if replica.role == Role::Leads {
                let log = replica.log;
                for len in &mut replica.acknowledged {
                    let is_counted = log.id(*len).0 < replica.term;
                    if is_counted || committed.len >= *len && committed.has(log.id(*len)) {
                        *len = 0;
                    }
                }
            }
        }
        let floor = self.floor.unwrap_or_default();
        let is_refused = |end: &mut End| end.term < floor.0;
        if planted != Planted::AnswerOfEarlierTerm && self.was_damaged {
            self.answer.take_if(is_refused);
        }
    }

    /// The state as a number. The two voters that are alike are in the order of what they are.
    fn key(&self) -> u128 {
        let [first, second] = [1, 2].map(|voter| self.replicas[voter].outline());
        let order = if first <= second {
            [0, 1, 2]
        } else {
            [0, 2, 1]
        };
        let place = |one_more: u8| match one_more {
            0 => 0,
            _ => order[one_more as usize - 1] as u64 + 1,
        };
        let mut voters = 0;
        for voter in order {
            let replica = &self.replicas[voter];
            let mut key = replica.outline() << 2 | place(replica.voted);
            for other in order {
                let of = replica.votes >> other & 1 | replica.acknowledged[other] << 1;
                key = key << 3 | u64::from(of);
            }
            voters = voters << 23 | u128::from(key);
        }
        let mut rest = self.committed.outline();
        for led in &self.led[1..] {
            rest = rest << 6 | place(led.by) << 4 | led.log.outline();
        }
        for of in self.committed_in {
            rest = rest << 2 | u64::from(of);
        }
        let (floor, answer) = (
            self.floor.unwrap_or((0, 0)),
            self.answer.unwrap_or_default(),
        );
        let marks = [
            u8::from(self.was_damaged) << 1 | u8::from(self.floor.is_some()),
            floor.0 << 2 | floor.1,
            u8::from(self.answer.is_some()) << 2 | answer.term,
            answer.last.0 << 2 | answer.last.1,
        ];
        for mark in marks {
            rest = rest << 4 | u64::from(mark);
        }
        voters << 59 | u128::from(rest)
    }
}

impl Entries {
    fn outline(&self) -> u64 {
        u64::from(self.terms[0] << 2 | self.terms[1])
    }
}

impl Replica {
    /// What it is, but for what names other voters.
    fn outline(&self) -> u64 {
        let of = [self.term, self.role as u8, self.synced];
        of.iter()
            .fold(self.log.outline(), |key, part| key << 2 | u64::from(*part))
    }

    /// Takes up a vote of this term or a later one, and whoever led or campaigned does so no more.
    fn adopt(&mut self, term: u8, voted: u8) {
        self.term = term;
        self.voted = voted;
        self.synced = self.log.len;
        self.stand_down();
    }

    fn stand_down(&mut self) {
        self.role = Role::Follows;
        self.votes = 0;
        self.acknowledged = [0; VOTERS];
    }
}

/// A hash of keys whose bits are few and everywhere.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u128(&mut self, key: u128) {
        let folded = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (key >> 64) as u64;
        let mixed = (folded ^ folded >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ mixed >> 32;
    }
}

struct Outcome {
    states: usize,
    violation: Option<(Violation, State)>,
}

/// Visits states in the order of their distance from the start, until one breaks a rule or there are no more.
fn search(planted: Planted) -> Outcome {
    let mut seen: HashSet<u128, BuildHasherDefault<Mix>> = HashSet::default();
    let start = State::default();
    seen.insert(start.key());
    let mut waiting = VecDeque::from([start]);
    let mut violation = None;
    while let Some(state) = waiting.pop_front() {
        state.visit_next(planted, &mut |next, broken| {
            if let Some(why) = broken {
                violation.get_or_insert((why, next));
            }
            if next == state {
                return;
            }
            let mut next = next;
            next.simplify(planted);
            if seen.insert(next.key()) {
                waiting.push_back(next);
            }
        });
        if violation.is_some() {
            break;
        }
    }
    Outcome {
        states: seen.len(),
        violation,
    }
}

#[test]
fn a_floor_of_all_terms_until_now_keeps_what_was_acknowledged() {
    let outcome = search(Planted::Nothing);
    assert_eq!(outcome.violation, None);
    assert!(outcome.states > 100_000, "{} states", outcome.states);
}

#[test]
fn a_floor_at_the_last_entry_of_an_orderly_end_keeps_what_was_acknowledged() {
    assert_eq!(search(Planted::ExactFloor).violation, None);
}

/// With the rule left out, a state is found in which what was acknowledged is lost.
fn assert_is_needed(planted: Planted) {
    let found = search(planted).violation.map(|(why, _)| why);
    let is_loss = found.is_some_and(|why| why.contains("leader lacks what was acknowledged"));
    assert!(is_loss, "{planted:?}: {found:?}");
}

#[test]
fn each_rule_of_votes_is_needed() {
    assert_is_needed(Planted::FloorIsLastEntryLeft);
    assert_is_needed(Planted::FloorEndsAtRestart);
    assert_is_needed(Planted::CampaignsBelowFloor);
    assert_is_needed(Planted::VotesForAnybody);
    assert_is_needed(Planted::OlderVoteCounts);
    assert_is_needed(Planted::LeaderResumes);
}

#[test]
fn each_rule_of_the_floor_s_end_is_needed() {
    assert_is_needed(Planted::AnswerFromBeforeTheRestart);
    assert_is_needed(Planted::AnswerOfEarlierTerm);
    assert_is_needed(Planted::AnswerBeforeItsEntryIsHere);
}

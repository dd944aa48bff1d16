//! The rules: what becomes of sessions and wills.
//!
//! Sections 3.1.2.5, 3.1.2.11.2, 3.1.3.2.2 and 3.1.4 of MQTT 5.0. A client of 3.1.1 with Clean Session 1
//! claims with a clean start and no expiry, one with 0 without clean start and an expiry that is the
//! server's; its will has no delay.

use std::sync::Arc;

use super::held::{self, HELD_MS, HeldWill};
use super::machine::SessionMachine;
use super::older_wills;
use super::record::{Owner, Record};
use super::{
    Claimed, OfAnotherUser, SessionEnd, SessionOutlet, SessionReply, StoredWill, TakenFrom,
    WillAtClose,
};

/// Clients that one part of an operation ends or closes at most: well under a millisecond.
///
/// Limit: sessions or messages that one part of an operation ends (expiry, end of a node) | {} | the next part
/// follows
const AT_ONCE: usize = 256;

/// A claim that has waited for so long, in ms, was sent while nobody led the shard. Its client may have given it up, and
/// connected elsewhere. The clocks of nodes differ by less.
const WAITED_MS: u64 = 1_000;

/// What a CONNECT says.
pub(super) struct Claim<'a> {
    pub(super) client: &'a str,
    pub(super) owner: Owner,
    pub(super) clean_start: bool,
    pub(super) expiry: u32,
    pub(super) will: Option<&'a StoredWill>,
    pub(super) asked_ms: u64,
    pub(super) user: Option<&'a str>,
    pub(super) of_another_user: OfAnotherUser,
    /// The will of a connection to another process is held.
    pub(super) holds: bool,
    /// It may have been carried out before.
    pub(super) again: bool,
}

/// The session of a client without a connection ends before its time, unless the client has connected since.
pub(super) fn end_absent(
    machine: &mut SessionMachine,
    client: &str,
    epoch: u64,
    outlet: &mut dyn SessionOutlet,
) -> SessionReply {
    let is_it = |record: &Record| record.epoch == epoch && record.owner.is_none();
    if !machine.records.get(client).is_some_and(is_it) {
        return SessionReply::Stale;
    }
    match machine.take(client) {
        Some((client, record)) => {
            machine.end(&client, record, SessionEnd::Operator, outlet);
            SessionReply::Done
        }
        None => SessionReply::Stale,
    }
}

impl SessionMachine {
    pub(super) fn claim(
        &mut self,
        claim: &Claim<'_>,
        now: u64,
        outlet: &mut dyn SessionOutlet,
    ) -> SessionReply {
        // Nobody would ever disconnect the client.
        if claim.owner.has_ended(&self.nodes) {
            return SessionReply::Stale;
        }
        let has_waited = claim.asked_ms.saturating_add(WAITED_MS) <= now;
        if claim.holds && has_waited && self.is_given_up(claim) {
            return SessionReply::Stale;
        }
        self.pass_time(claim.client, now, outlet);
        let record = self.records.get(claim.client);
        let is_anothers = record.is_some_and(|record| record.is_of_another(claim.user));
        if is_anothers && claim.of_another_user == OfAnotherUser::Refuse {
            return SessionReply::NotOwner;
        }
        let (client, before) = match self.take(claim.client) {
            Some((client, record)) => (client, Some(record)),
            None => (claim.client.into(), None),
        };
        let owner = before.as_ref().and_then(|record| record.owner);
        let superseded = before.as_ref().map_or(0, |record| record.epoch);
        let discards = claim.clean_start || is_anothers;
        let session = before.and_then(|record| {
            let is_elsewhere = |owner| claim.holds && owner != claim.owner;
            let held_for = record.owner.filter(|owner| is_elsewhere(*owner));
            let holds = held_for.map(|owner| (owner, now + HELD_MS));
            self.supersede(&client, record, discards, holds, outlet)
        });
        let inbox = session.as_ref().is_some_and(|session| session.inbox);
        let held = self.held.first_of(claim.client);
        let earliest = older_wills::earliest(&self.firing, &self.held, claim.client);
        let taken_from = older_wills::taken_from((claim.owner, owner), superseded, held, earliest);
        let claimed = Claimed {
            epoch: self.next_epoch,
            resumed: session.is_some(),
            had_inbox: inbox || self.ending.has(&client),
            taken_from,
        };
        self.next_epoch += 1;
        self.unsaved.touch_machine();
        self.connect(client, claimed.epoch, claim, session, now);
        SessionReply::Claimed(claimed)
    }

    /// What a claim of this process was answered, if it was carried out before. An earlier CONNECT of the
    /// client, given up before it was answered, may have asked for something else.
    pub(super) fn claimed_before(&self, claim: &Claim<'_>) -> Option<Claimed> {
        let record = self.records.get(claim.client)?;
        let is_this_claim = record.owner == Some(claim.owner)
            && record.expiry == claim.expiry
            && record.user.as_deref() == claim.user
            && (record.incarnation == record.epoch || !claim.clean_start)
            && is_same_will(record.will.as_deref(), claim.will);
        is_this_claim.then(|| Claimed {
            epoch: record.epoch,
            resumed: record.incarnation != record.epoch,
            had_inbox: record.inbox || self.ending.has(claim.client),
            taken_from: TakenFrom::Unknown,
        })
    }

    /// Whether the client has connected to another process after it sent this CONNECT: it has given it up, and
    /// is not to be taken from there. Clocks of nodes differ; then it is as if it had not, or it is refused and
    /// the client connects again.
    pub(super) fn is_given_up(&self, claim: &Claim<'_>) -> bool {
        let record = self.records.get(claim.client);
        record.is_some_and(|record| {
            let is_elsewhere = record.owner.is_some_and(|owner| owner != claim.owner);
            is_elsewhere && record.since > claim.asked_ms
        })
    }

    /// A connection begins, and with it a session unless one goes on.
    fn connect(
        &mut self,
        client: Arc<str>,
        epoch: u64,
        claim: &Claim<'_>,
        session: Option<Record>,
        now: u64,
    ) {
        if let Some(will) = claim.will {
            self.unsaved.touch_will(&client, epoch, Some(will));
        }
        let (incarnation, inbox) = session.map_or((epoch, false), |session| {
            (session.incarnation, session.inbox)
        });
        let record = Record {
            epoch,
            incarnation,
            owner: Some(claim.owner),
            since: now,
            expiry: claim.expiry,
            inbox: inbox || claim.expiry > 0,
            user: claim.user.map(Box::from),
            will: claim.will.cloned().map(Box::new),
        };
        self.put(client, record);
    }

    /// The client has a new connection, which ends the one it had, if it still had it. Gives back the
    /// session if that goes on [MQTT-3.1.2-5]. `discards`: it does not, for a clean start or another user. `holds`:
    /// the process of the connection may know that the will is discarded, and has until then to say so.
    fn supersede(
        &mut self,
        client: &Arc<str>,
        mut record: Record,
        discards: bool,
        holds: Option<(Owner, u64)>,
        outlet: &mut dyn SessionOutlet,
    ) -> Option<Record> {
        // [MQTT-3.1.2-4] [MQTT3-3.1.2-6] a clean start discards it; without an expiry interval it ends
        // with its connection.
        let ends = discards || record.expiry == 0;
        if let Some(will) = record.will.take() {
            if will.delay > 0 && !ends {
                // [MQTT-3.1.3-9] the client is back within the delay.
                self.unsaved.touch_will(client, record.epoch, None);
            } else if let Some((owner, until)) = holds {
                // [MQTT-3.1.2-10] unless the client has sent DISCONNECT.
                let held = HeldWill { will, owner, until };
                self.hold(client, record.epoch, held, outlet);
            } else {
                // [MQTT-3.1.2-8] due when the connection was closed, which is now.
                self.fire(client, record.epoch, will, outlet);
            }
        }
        if ends {
            self.end(client, record, SessionEnd::CleanStart, outlet);
            return None;
        }
        Some(record)
    }

    /// A will is to be published, unless it turns out that it is discarded.
    fn hold(
        &mut self,
        client: &Arc<str>,
        epoch: u64,
        held: HeldWill,
        outlet: &mut dyn SessionOutlet,
    ) {
        self.unsaved.touch_held(client, epoch, false);
        self.held.insert(Arc::clone(client), epoch, held);
        if self.held.len() > held::MOST
            && let Some((_, first, epoch)) = self.held.first_deadline()
        {
            self.release_held(&first, epoch, outlet);
        }
    }

    /// A will that was held is to be published.
    fn release_held(&mut self, client: &str, epoch: u64, outlet: &mut dyn SessionOutlet) {
        if let Some((client, held)) = self.held.remove(client, epoch) {
            self.unsaved.touch_held(&client, epoch, true);
            self.fire(&client, epoch, held.will, outlet);
        }
    }

    /// A will that was held, if it was, is discarded.
    fn discard_held(&mut self, client: &str, epoch: u64) {
        if let Some((client, _)) = self.held.remove(client, epoch) {
            self.unsaved.touch_held(&client, epoch, true);
            self.unsaved.touch_will(&client, epoch, None);
        }
    }

    pub(super) fn disconnect(
        &mut self,
        (client, epoch): (&str, u64),
        expiry: u32,
        will: WillAtClose,
        now: u64,
        outlet: &mut dyn SessionOutlet,
    ) -> SessionReply {
        match self.records.get(client) {
            Some(record) if record.epoch == epoch => {}
            _ if self.held.get(client, epoch).is_some() => {
                // It was taken over before this came.
                match will {
                    WillAtClose::Discard => self.discard_held(client, epoch),
                    WillAtClose::Keep => self.release_held(client, epoch, outlet),
                }
                return SessionReply::Done;
            }
            _ => return SessionReply::Stale,
        }
        // Its node was taken for dead, and its will may have been published; or this is a repetition.
        let Some((client, mut record)) = self.take_connected(client) else {
            return SessionReply::Stale;
        };
        record.expiry = expiry;
        record.inbox |= expiry > 0;
        // [MQTT-3.14.4-3] [MQTT-3.1.2-10] [MQTT3-3.14.4-3] [MQTT3-3.1.2-10]
        if will == WillAtClose::Discard && record.will.take().is_some() {
            self.unsaved.touch_will(&client, epoch, None);
        }
        self.close(client, record, now, outlet);
        SessionReply::Done
    }

    /// The will of a connection that goes on for a moment. As at its close, but that it may go on.
    pub(super) fn will_due(
        &mut self,
        client: &str,
        epoch: u64,
        outlet: &mut dyn SessionOutlet,
    ) -> SessionReply {
        if self.held.get(client, epoch).is_some() {
            self.release_held(client, epoch, outlet);
            return SessionReply::Done;
        }
        let is_connection = |record: &&Record| record.epoch == epoch && record.owner.is_some();
        let Some(record) = self.records.get(client).filter(is_connection) else {
            return SessionReply::Stale;
        };
        let has_delay = |will: &StoredWill| will.delay > 0 && record.expiry > 0;
        if record.will.as_deref().is_some_and(|will| !has_delay(will))
            && let Some((client, mut record)) = self.take(client)
        {
            if let Some(will) = record.will.take() {
                self.fire(&client, epoch, will, outlet);
            }
            self.put(client, record);
        }
        SessionReply::Done
    }

    /// The will of a connection that goes on is not to be published.
    pub(super) fn discard_will(&mut self, client: &str, epoch: u64) -> SessionReply {
        if self.held.get(client, epoch).is_some() {
            self.discard_held(client, epoch);
            return SessionReply::Done;
        }
        let is_connection = |record: &&Record| record.epoch == epoch && record.owner.is_some();
        if self.records.get(client).filter(is_connection).is_none() {
            return SessionReply::Stale;
        }
        if let Some((client, mut record)) = self.take(client) {
            if record.will.take().is_some() {
                self.unsaved.touch_will(&client, epoch, None);
            }
            self.put(client, record);
        }
        SessionReply::Done
    }

    /// `last_alive`: when the node's earlier process was last known to run, and not in the future. `None`: some
    /// clients that were connected to that are left.
    pub(super) fn node_up(
        &mut self,
        process: Owner,
        last_alive: u64,
        outlet: &mut dyn SessionOutlet,
    ) -> Option<SessionReply> {
        let mut left = match self.left.take() {
            Some(left) => left,
            None if process.has_ended(&self.nodes) => return Some(SessionReply::Stale),
            None => {
                let Owner { node, incarnation } = process;
                self.nodes.insert(node, incarnation);
                self.unsaved.touch_machine();
                let unsaved = &mut self.unsaved;
                self.held.hasten(process, last_alive, |client, epoch| {
                    unsaved.touch_held(client, epoch, true);
                });
                self.records.left_by(node, incarnation).into_iter()
            }
        };
        for client in left.by_ref().take(AT_ONCE) {
            self.telling(&client, outlet, |machine, outlet| {
                if let Some((client, record)) = machine.take_connected(&client) {
                    // The process may have run a little longer than is known: no connection ended
                    // before it began.
                    let at = last_alive.max(record.since);
                    machine.close(client, record, at, outlet);
                }
            });
        }
        if left.len() == 0 {
            return Some(SessionReply::Done);
        }
        self.left = Some(left);
        None
    }

    /// The connection is gone since `at`.
    fn close(
        &mut self,
        client: Arc<str>,
        mut record: Record,
        at: u64,
        outlet: &mut dyn SessionOutlet,
    ) {
        record.owner = None;
        record.since = at;
        // [MQTT-4.1.0-1] only now may the session end.
        if record.expiry == 0 {
            return self.end(&client, record, SessionEnd::Disconnect, outlet);
        }
        // [MQTT-3.1.2-8] [MQTT3-3.1.2-8]
        if let Some(will) = record.will.take_if(|will| will.delay == 0) {
            self.fire(&client, record.epoch, will, outlet);
        }
        // [MQTT-3.1.2-23]
        self.put(client, record);
    }

    /// `None`: some deadlines that have come are left.
    pub(super) fn due(&mut self, now: u64, outlet: &mut dyn SessionOutlet) -> Option<SessionReply> {
        for _ in 0..AT_ONCE {
            if let Some((at, client, epoch)) = self.held.first_deadline()
                && at <= now
            {
                self.release_held(&client, epoch, outlet);
                continue;
            }
            let Some((_, client)) = self.records.first_deadline().filter(|(at, _)| *at <= now)
            else {
                return Some(SessionReply::Done);
            };
            let client = Arc::clone(client);
            self.telling(&client, outlet, |machine, outlet| {
                machine.fall_due(&client, outlet);
            });
        }
        None
    }

    /// What was due for a client till now has happened, whether or not [`Self::due`] was asked for yet.
    fn pass_time(&mut self, client: &str, now: u64, outlet: &mut dyn SessionOutlet) {
        let due = |record: &Record| record.deadline().is_some_and(|at| at <= now);
        while self.records.get(client).is_some_and(due) {
            self.fall_due(client, outlet);
        }
    }

    /// The deadline of a record has come: the end of the session, or before that its will.
    fn fall_due(&mut self, client: &str, outlet: &mut dyn SessionOutlet) {
        let Some((client, mut record)) = self.take(client) else {
            return;
        };
        if record.ends_at() == record.deadline() {
            // [MQTT-4.1.0-2]
            return self.end(&client, record, SessionEnd::Expired, outlet);
        }
        // [MQTT-3.1.2-8]
        if let Some(will) = record.will.take() {
            self.fire(&client, record.epoch, will, outlet);
        }
        self.put(client, record);
    }

    /// The session is over, and its record is gone.
    fn end(
        &mut self,
        client: &Arc<str>,
        record: Record,
        why: SessionEnd,
        outlet: &mut dyn SessionOutlet,
    ) {
        // [MQTT-3.1.2-8] the end of the session comes before the delay.
        if let Some(will) = record.will {
            self.fire(client, record.epoch, will, outlet);
        }
        if record.inbox {
            self.ending.insert(Arc::clone(client), record.epoch, ());
            self.unsaved.touch_ending(client, record.epoch, false);
            outlet.ended(client, record.epoch, Some(why));
        }
    }

    /// The will is due. [MQTT-3.1.2-10] The record does not have it any more; its row in the tables
    /// stays as it is until it is published.
    fn fire(
        &mut self,
        client: &Arc<str>,
        epoch: u64,
        will: Box<StoredWill>,
        outlet: &mut dyn SessionOutlet,
    ) {
        outlet.fire(client, epoch, &will);
        self.firing.insert(Arc::clone(client), epoch, will);
    }

    fn take(&mut self, client: &str) -> Option<(Arc<str>, Record)> {
        self.unsaved.settle_session(client, &self.records);
        let (client, record) = self.records.take(client)?;
        self.unsaved.touch_session(&client, &record, true);
        Some((client, record))
    }

    fn take_connected(&mut self, client: &str) -> Option<(Arc<str>, Record)> {
        self.records.get(client)?.owner?;
        self.take(client)
    }

    /// Adds the record of a client that has none, or whose record was taken.
    fn put(&mut self, client: Arc<str>, record: Record) {
        self.unsaved.settle_session(&client, &self.records);
        self.unsaved.touch_session(&client, &record, false);
        self.records.put(client, record);
    }
}

fn is_same_will(one: Option<&StoredWill>, other: Option<&StoredWill>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return one.is_none() && other.is_none();
    };
    let told = |will: &StoredWill| {
        let StoredWill {
            message,
            message_expiry,
            delay,
        } = will;
        (message.qos, message.retain, *message_expiry, *delay)
    };
    one.message.body == other.message.body && told(one) == told(other)
}

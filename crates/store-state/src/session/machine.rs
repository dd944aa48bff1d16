//! The machine: what is asked of it, and what it can be read for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::by_epoch::ByEpoch;
use super::held::HeldWills;
use super::older_wills;
use super::record::Owner;
use super::records::Records;
use super::rules::{Claim, end_absent};
use super::tables::Unsaved;
use super::{
    ClaimByUser, ClaimRequest, OfAnotherUser, SessionOp, SessionOutlet, SessionReply, StoredWill,
};
use crate::{
    Changes, Header, Level, LoadError, Machine, NameHash, Slots, Survey, Table, TableError,
};

/// The sessions of one shard. All of them are in memory; the tables are read only at the start.
#[derive(Debug)]
pub struct SessionMachine {
    /// What the next connection gets.
    pub(super) next_epoch: u64,
    /// The highest incarnation of each node.
    pub(super) nodes: BTreeMap<u64, u64>,
    pub(super) records: Records,
    /// Wills that are being published.
    pub(super) firing: ByEpoch<Box<StoredWill>>,
    /// Wills that may have been discarded.
    pub(super) held: HeldWills,
    /// Sessions that have ended and whose inboxes are being removed, by their last epoch.
    pub(super) ending: ByEpoch<()>,
    pub(super) unsaved: Unsaved,
    /// While [`SessionOp::NodeUp`] is not done: clients that it has yet to disconnect.
    pub(super) left: Option<std::vec::IntoIter<Arc<str>>>,
}

/// How much a session shard holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionCounts {
    /// Clients with a session or a connection.
    pub records: usize,
    /// Of these, those that are connected.
    pub connected: usize,
    /// Of these records, those with a will that is neither due nor discarded.
    pub wills: usize,
    /// Wills that are being published.
    pub firing: usize,
    /// Wills of connections that were taken over, and that may have been discarded.
    pub held: usize,
    /// Sessions that have ended and whose inboxes are being removed.
    pub ending: usize,
}

impl Machine for SessionMachine {
    type Op = SessionOp;
    type Reply = SessionReply;
    type Outlet = dyn SessionOutlet;

    fn load(slots: Slots, table: &dyn Table) -> Result<Self, LoadError> {
        super::tables::load(slots, table)
    }

    fn lowered(&self, op: SessionOp, level: Level) -> Option<SessionOp> {
        let is_later = matches!(op, SessionOp::End { .. });
        (!is_later || level >= Level::SPLITS).then_some(op)
    }

    fn slot(op: &SessionOp, hash: NameHash) -> Option<u16> {
        match op {
            SessionOp::NodeUp { .. } | SessionOp::Due => None,
            SessionOp::Claim(ClaimRequest { client, .. })
            | SessionOp::ClaimAgain(ClaimRequest { client, .. })
            | SessionOp::ClaimBy(ClaimByUser {
                request: ClaimRequest { client, .. },
                ..
            })
            | SessionOp::ClaimByAgain(ClaimByUser {
                request: ClaimRequest { client, .. },
                ..
            })
            | SessionOp::ClaimHolding(ClaimByUser {
                request: ClaimRequest { client, .. },
                ..
            })
            | SessionOp::ClaimHoldingAgain(ClaimByUser {
                request: ClaimRequest { client, .. },
                ..
            })
            | SessionOp::Disconnect { client, .. }
            | SessionOp::Fired { client, .. }
            | SessionOp::Gone { client, .. }
            | SessionOp::WillDue { client, .. }
            | SessionOp::DiscardWill { client, .. }
            | SessionOp::FireAgain { client, .. }
            | SessionOp::End { client, .. } => Some(hash.slot_of(client)),
        }
    }

    fn apply_part(
        &mut self,
        header: &Header,
        op: &SessionOp,
        _table: &dyn Table,
        outlet: &mut Self::Outlet,
    ) -> Result<Option<SessionReply>, TableError> {
        Ok(self.decide(header.now_ms, op, outlet))
    }

    fn unsaved_bytes(&self) -> usize {
        self.unsaved.bytes()
    }

    fn collect_part(&mut self, rows: usize, changes: &mut Changes) -> bool {
        super::tables::collect_part(self, rows, changes)
    }

    fn saved_part(&mut self, _rows: usize) -> bool {
        self.unsaved.saved();
        true
    }

    fn survey(slots: Slots, table: &dyn Table) -> Survey {
        super::survey::survey(slots, table)
    }
}

impl SessionMachine {
    /// When [`SessionOp::Due`] will do something next, Unix time in ms.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let records = self.records.first_deadline().map(|(at, _)| at);
        let held = self.held.first_deadline().map(|(at, ..)| at);
        records.into_iter().chain(held).min()
    }

    /// Tells again of all wills that are being published and all inboxes that are being removed: after
    /// a start, nobody else knows.
    pub fn outstanding(&self, outlet: &mut dyn SessionOutlet) {
        for (client, epoch, will) in self.firing.iter() {
            outlet.fire(client, epoch, will);
        }
        for (client, epoch, ()) in self.ending.iter() {
            outlet.ended(client, epoch, None);
        }
    }

    /// The node that a client is connected to with the connection's epoch, and the epoch that its session began with.
    #[must_use]
    pub fn find(&self, client: &str) -> Option<(Option<(u64, u64)>, u64)> {
        let record = self.records.get(client)?;
        let owner = record.owner.map(|owner| (owner.node, record.epoch));
        Some((owner, record.incarnation))
    }

    /// The highest incarnation of a node that is known; 0: none.
    #[must_use]
    pub fn incarnation_of(&self, node: u64) -> u64 {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    /// Whether there is a record of a client: a session, a connection, a will that is being published,
    /// or an inbox that is being removed.
    #[must_use]
    pub fn known(&self, client: &str) -> bool {
        self.records.get(client).is_some()
            || self.firing.has(client)
            || self.ending.has(client)
            || self.held.has(client)
    }

    /// Whether a will of an earlier connection of a client than its present one is not published yet, and not discarded.
    #[must_use]
    pub fn awaits_wills(&self, client: &str) -> bool {
        let before = self.records.get(client).map_or(u64::MAX, |r| r.epoch);
        let earliest = older_wills::earliest(&self.firing, &self.held, client);
        earliest.is_some_and(|epoch| epoch < before)
    }

    /// Whether a client's session belongs to another user than this one; `None`: an anonymous client.
    #[must_use]
    pub fn is_of_another(&self, client: &str, user: Option<&str>) -> bool {
        let record = self.records.get(client);
        record.is_some_and(|record| record.is_of_another(user))
    }

    /// Visits the clients that are [`Self::known`], once each, in no order.
    pub fn for_each_known(&self, mut visit: impl FnMut(&str)) {
        for (client, _) in self.records.iter() {
            visit(client);
        }
        for client in self.firing.clients() {
            if self.records.get(client).is_none() {
                visit(client);
            }
        }
        for client in self.ending.clients() {
            if self.records.get(client).is_none() && !self.firing.has(client) {
                visit(client);
            }
        }
        for client in self.held.clients() {
            let is_visited = self.records.get(client).is_some();
            if !is_visited && !self.firing.has(client) && !self.ending.has(client) {
                visit(client);
            }
        }
    }

    /// For metrics.
    #[must_use]
    pub fn counts(&self) -> SessionCounts {
        SessionCounts {
            records: self.records.len(),
            connected: self.records.connected(),
            wills: self.records.wills(),
            firing: self.firing.len(),
            held: self.held.len(),
            ending: self.ending.len(),
        }
    }

    /// `None`: not all of it is done.
    fn decide(
        &mut self,
        now: u64,
        op: &SessionOp,
        outlet: &mut dyn SessionOutlet,
    ) -> Option<SessionReply> {
        Some(match op {
            SessionOp::NodeUp {
                node,
                incarnation,
                last_alive_ms,
            } => {
                let process = Owner {
                    node: *node,
                    incarnation: *incarnation,
                };
                return self.node_up(process, (*last_alive_ms).min(now), outlet);
            }
            SessionOp::Claim(request) => self.decide_claim(&anonymous(request), now, outlet),
            SessionOp::ClaimAgain(request) => {
                self.decide_claim(&again(anonymous(request)), now, outlet)
            }
            SessionOp::ClaimBy(by) => self.decide_claim(&by_user(by), now, outlet),
            SessionOp::ClaimByAgain(by) => self.decide_claim(&again(by_user(by)), now, outlet),
            SessionOp::ClaimHolding(by) => self.decide_claim(&holding(by), now, outlet),
            SessionOp::ClaimHoldingAgain(by) => self.decide_claim(&again(holding(by)), now, outlet),
            SessionOp::Disconnect {
                client,
                epoch,
                expiry,
                will,
            } => self.telling(client, outlet, |machine, outlet| {
                machine.disconnect((client, *epoch), *expiry, *will, now, outlet)
            }),
            SessionOp::Fired { client, epoch } => self.telling(client, outlet, |machine, _| {
                if let Some((client, _)) = machine.firing.remove(client, *epoch) {
                    machine.unsaved.touch_will(&client, *epoch, None);
                }
                SessionReply::Done
            }),
            SessionOp::Gone { client, epoch } => self.telling(client, outlet, |machine, _| {
                if let Some((client, ())) = machine.ending.remove(client, *epoch) {
                    machine.unsaved.touch_ending(&client, *epoch, true);
                }
                SessionReply::Done
            }),
            SessionOp::WillDue { client, epoch } => self.will_due(client, *epoch, outlet),
            SessionOp::DiscardWill { client, epoch } => {
                self.telling(client, outlet, |machine, _| {
                    machine.discard_will(client, *epoch)
                })
            }
            SessionOp::FireAgain { client, epoch } => {
                match self.firing.get(client, *epoch) {
                    Some(will) => outlet.fire(client, *epoch, will),
                    None => return Some(SessionReply::Stale),
                }
                SessionReply::Done
            }
            SessionOp::End { client, epoch } => self.telling(client, outlet, |machine, outlet| {
                end_absent(machine, client, *epoch, outlet)
            }),
            SessionOp::Due => return self.due(now, outlet),
        })
    }

    fn decide_claim(
        &mut self,
        claim: &Claim<'_>,
        now: u64,
        outlet: &mut dyn SessionOutlet,
    ) -> SessionReply {
        if claim.again {
            if let Some(claimed) = self.claimed_before(claim) {
                return SessionReply::Claimed(claimed);
            }
            if self.is_given_up(claim) {
                return SessionReply::Stale;
            }
        }
        self.telling(claim.client, outlet, |machine, outlet| {
            machine.claim(claim, now, outlet)
        })
    }

    /// Does something with a client, and tells if it is known from now on, or not any more.
    pub(super) fn telling<R>(
        &mut self,
        client: &str,
        outlet: &mut dyn SessionOutlet,
        act: impl FnOnce(&mut Self, &mut dyn SessionOutlet) -> R,
    ) -> R {
        let before = self.known(client);
        let result = act(self, outlet);
        let known = self.known(client);
        if known != before {
            outlet.known(client, known);
        }
        result
    }
}

fn anonymous(request: &ClaimRequest) -> Claim<'_> {
    let ClaimRequest {
        client,
        node,
        node_incarnation,
        clean_start,
        expiry,
        will,
        asked_ms,
    } = request;
    Claim {
        client,
        owner: Owner {
            node: *node,
            incarnation: *node_incarnation,
        },
        clean_start: *clean_start,
        expiry: *expiry,
        will: will.as_ref(),
        asked_ms: *asked_ms,
        user: None,
        of_another_user: OfAnotherUser::Refuse,
        holds: false,
        again: false,
    }
}

fn by_user(by: &ClaimByUser) -> Claim<'_> {
    let ClaimByUser {
        request,
        user,
        of_another_user,
    } = by;
    Claim {
        user: user.as_deref(),
        of_another_user: *of_another_user,
        ..anonymous(request)
    }
}

fn holding(by: &ClaimByUser) -> Claim<'_> {
    Claim {
        holds: true,
        ..by_user(by)
    }
}

/// The sender does not know whether the claim was carried out.
fn again(claim: Claim<'_>) -> Claim<'_> {
    Claim {
        again: true,
        ..claim
    }
}

/// The clients that a machine has a record of; in no order.
pub fn clients(machine: &SessionMachine) -> impl Iterator<Item = &str> {
    machine.records.iter().map(|(client, _)| &**client)
}

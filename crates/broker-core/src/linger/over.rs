//! How lingering ends.

use net_api::Key;
use store_state::api::Store as _;
use store_state::inbox::InboxOp;

use super::asked::Asked;
use super::{Linger, Lingering};
use crate::clients::{Clients, LoopIo, Timer};
use crate::key::SessionKey;
use crate::pending::Pending;
use crate::rim::Rim;
use crate::share::{FILTER, units};
use crate::turn::{Base, Effect, Turn};

impl Linger {
    /// The time that the loop was armed for.
    pub(crate) fn handle_timer<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        holder: Key,
    ) {
        if let Some(lingering) = Self::lingering_mut(turn.clients, holder) {
            lingering.armed_ms = 0;
        }
        self.end_if_over(turn, holder);
        if Self::is_lingering(turn.clients, holder) && !Self::is_over(turn.clients, holder) {
            Self::arm(turn, holder);
        }
    }

    /// Routes have stayed long enough, if nobody has taken them over or is about to.
    pub(super) fn end_if_over<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        holder: Key,
    ) {
        if Self::is_lingering(turn.clients, holder)
            && let Some(lingering) = Self::lingering_mut(turn.clients, holder)
            && lingering.until_ms <= turn.io.now_ms()
            && !std::mem::replace(&mut lingering.is_over, true)
        {
            self.over.push_back(holder);
        }
        self.end_next(turn);
    }

    /// Whether the time is over of an entry that only holds routes; of this lingering, not of one before it.
    fn is_over(clients: &Clients, holder: Key) -> bool {
        Self::is_lingering(clients, holder)
            && Self::lingering(clients, holder).is_some_and(|of| of.is_over)
    }

    /// The other nodes have taken this one for dead: none of the sessions is to linger any longer.
    pub(crate) fn handle_fence<R: Rim, Io: LoopIo>(&mut self, turn: &mut Turn<'_, R, Io>) {
        let all: Vec<Key> = turn.clients.keys().collect();
        for holder in all {
            if let Some(lingering) = Self::lingering_mut(turn.clients, holder) {
                lingering.until_ms = 0;
                self.end_if_over(turn, holder);
            }
        }
    }

    /// The process ends: inboxes are detached, so that the store takes what comes for them from now on.
    pub(crate) fn handle_shutdown<R: Rim>(base: &Base<R>, clients: &Clients) {
        for holder in clients.keys() {
            if let Some(op) = Self::detachment(base, clients, holder) {
                base.tell_inbox(op);
            }
        }
    }

    /// The session is another node's: its routes can go, and its inbox is detached unless that node has it.
    pub(crate) fn handle_later_elsewhere<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        client_id: &str,
    ) {
        let home = turn.base.node.registry.find(client_id);
        let holder = home.filter(|home| home.loop_index() == turn.base.index);
        if let Some(holder) = holder.map(SessionKey::key)
            && Self::is_lingering(turn.clients, holder)
        {
            if let Some(op) = Self::detachment(turn.base, turn.clients, holder) {
                turn.base.tell_inbox(op);
            }
            self.end(turn, holder);
        }
    }

    /// Asks to detach the next inbox of those whose time is over.
    fn end_next<R: Rim, Io: LoopIo>(&mut self, turn: &mut Turn<'_, R, Io>) {
        while self.ending.is_none()
            && let Some(holder) = self.over.pop_front()
        {
            if !Self::is_over(turn.clients, holder) {
                // A client that connects is to have it. If that comes to nothing, the timer is armed again.
                if let Some(lingering) = Self::lingering_mut(turn.clients, holder) {
                    lingering.is_over = false;
                }
            } else if turn.io.has_done_enough() {
                self.over.push_front(holder);
                let now_ms = turn.io.now_ms();
                turn.io.arm(now_ms, Timer::Linger(holder).to_bits());
                return;
            } else if let Some(op) = Self::detachment(turn.base, turn.clients, holder) {
                self.ending = Some(holder);
                let asked = Pending::Linger(Asked::End(holder));
                turn.base.ask_inbox(asked, op);
            }
        }
    }

    /// Detaches the inbox of a session that lingers. If there was a later connection elsewhere, it changes nothing.
    fn detachment<R: Rim>(base: &Base<R>, clients: &Clients, holder: Key) -> Option<InboxOp> {
        let lingering = Self::lingering(clients, holder)?;
        lingering.subscriptions.as_ref()?;
        let client_id = clients.get(holder)?.session.client_id();
        Some(InboxOp::Detach {
            session: base.node.store().client_name(client_id).into(),
            epoch: lingering.epoch.0,
            sent: 0,
        })
    }

    /// The inbox is detached, and whoever routes to its shard knows it: the routes to this node can go.
    pub(super) fn handle_detached<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        holder: Key,
    ) {
        self.ending = None;
        if Self::is_over(turn.clients, holder) {
            self.end(turn, holder);
        } else if let Some(lingering) = Self::lingering_mut(turn.clients, holder) {
            lingering.is_over = false;
        }
        self.end_next(turn);
    }

    /// Takes routes out, with the entry that holds them.
    pub(super) fn end<R: Rim, Io: LoopIo>(&mut self, turn: &mut Turn<'_, R, Io>, holder: Key) {
        let Some(Lingering { subscriptions, .. }) = Self::lingering_mut(turn.clients, holder)
        else {
            return;
        };
        let subscriptions = subscriptions.take();
        if let Some(subscriptions) = subscriptions {
            self.count(turn.base, -1);
            let bytes = &turn.base.stats.subscription_bytes;
            bytes.sub(subscriptions.bytes());
            let session_key = turn.base.session_key(holder);
            let all = subscriptions.subscriptions();
            // Many clients with many of them go in several turns.
            turn.io.charge(units(all.len()).saturating_mul(FILTER));
            turn.base.node.routes.unsubscribe_all(session_key, all);
        }
        turn.base.add(Effect::Forget(holder));
    }
}

//! What parts want done above them is carried out.

use mqtt_proto::{ReasonCode, peek_frame};
use net_api::Key;

use super::ClientLoop;
use crate::clients::{LoopIo, Timer};
use crate::end::Ends;
use crate::inbox::Epoch;
use crate::linger::Linger;
use crate::rim::Rim;
use crate::turn::Effect;

impl<R: Rim> ClientLoop<R> {
    /// Carries out what was added, in that order, and what that adds.
    #[inline]
    pub(crate) fn carry_out(&mut self, io: &mut impl LoopIo) {
        while let Some(effect) = self.base.next_effect() {
            self.carry_out_one(io, effect);
        }
    }

    fn carry_out_one(&mut self, io: &mut impl LoopIo, effect: Effect) {
        match effect {
            Effect::End(key, reason) => self.end_connection(io, key, reason),
            Effect::Forget(key) => self.forget_client(io, key),
            Effect::Logout(key) => {
                let client = self.clients.get_mut(key);
                let login = client.and_then(|client| client.login.take());
                let expires_at = login.and_then(|login| login.expires_at());
                self.expiries.replace(key, expires_at, None);
            }
            Effect::LoginRenewed { key, before, now } => {
                if self.expiries.replace(key, before, now) {
                    io.arm(io.now_ms(), Timer::LoginExpiry.to_bits());
                }
            }
            Effect::TellPeers => self.flush_peers_soon(io),
            Effect::HeldFrames(key) => {
                self.handle_kept(io, key, false);
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.handle_frames_handled(&mut turn, key);
            }
            Effect::DeliverTo(key, delivery) => self.deliver_to(io, key, *delivery),
            Effect::Distribute(message, source) => {
                self.distribute(io, &message, *source);
            }
            Effect::Redispatch { deliveries, except } => self.redispatch(io, deliveries, except),
            Effect::DenyDelivery {
                key,
                delivery,
                is_stored,
            } => self.deny_delivery(io, key, *delivery, is_stored),
            Effect::CloseOlder(asked) => {
                let (asker, older) = *asked;
                self.close_older(io, asker, older, true);
            }
            Effect::WillPublished { client, epoch } => {
                let wills = &mut self.parts.wills;
                wills.handle_published(&mut self.base, &client, Epoch(epoch));
            }
            Effect::WillUnpublished { client, epoch } => {
                let (parts, mut turn) = self.turn(io);
                parts
                    .wills
                    .handle_unpublished(&mut turn, client, Epoch(epoch));
            }
        }
    }

    /// Disconnects a client, with or without a session. What it has sent is handled before.
    pub(super) fn end_connection(&mut self, io: &mut impl LoopIo, key: Key, reason: ReasonCode) {
        if !self.abandon(io, key) {
            self.handle_kept(io, key, true);
            let (parts, mut turn) = self.turn(io);
            let below = (&mut parts.linger, &mut parts.backpressure);
            Ends::handle_kick(&mut turn, below, key, reason);
        }
    }

    /// Handles the packets that were kept, until the session is held again; if `all`, in any case.
    pub(super) fn handle_kept(&mut self, io: &mut impl LoopIo, key: Key, all: bool) {
        let Some(hold) = self
            .clients
            .get_mut(key)
            .and_then(|client| client.rare.get_mut(|of| &mut of.hold))
        else {
            return;
        };
        let kept = hold.take_kept();
        let mut rest = kept.as_slice();
        while let Ok(Some(frame)) = peek_frame(rest, None) {
            let Some((packet, after)) = rest.split_at_checked(frame.len()) else {
                break;
            };
            if let Err(violated) = self.handle_frame(io, key, packet) {
                if let Some(connection) = self.clients.get(key).and_then(|c| c.connection) {
                    self.close_violator(io, connection, &violated);
                }
                return;
            }
            rest = after;
            let Some(client) = self.clients.get_mut(key) else {
                return;
            };
            if !all
                && client
                    .rare
                    .get_mut(|of| &mut of.hold)
                    .is_some_and(|hold| hold.keep_rest(rest))
            {
                return;
            }
        }
    }

    /// At shutdown everybody is told, and disconnected.
    pub(super) fn disconnect_all(&mut self, io: &mut impl LoopIo) {
        let elsewhere = self.base.drained.is_some()
            || self.base.settings.limits.policy.server_reference.is_some();
        let reason = if elsewhere {
            ReasonCode::UseAnotherServer
        } else {
            ReasonCode::ServerShuttingDown
        };
        for key in self.clients.online() {
            self.end_connection(io, key, reason);
            self.carry_out(io);
        }
        Linger::handle_shutdown(&self.base, &self.clients);
        io.close_untagged();
    }
}

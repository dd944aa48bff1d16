//! Users of databases are looked up again while their clients are connected: who is gone is disconnected, and rights
//! that have changed are judged as those of a changed rule file are.
//!
//! Invariant: a database that gives no answer changes nothing.
//!
//! Deliberately absent: when each user is looked up (`rechecks.rs`), and what rules say (`access.rs`).

use std::sync::Arc;

use authentication_api::{DatabaseUser, Identity, Verdict};
use mqtt_proto::ReasonCode;
use net_api::Key;

use crate::clients::{BetweenLoops, LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::excerpt::excerpt;
use crate::rights::rechecks::Next;
use crate::rim::Rim;

impl<R: Rim> ClientLoop<R> {
    /// Looks the next user up, if one is due. `answer`: what has come of the one before.
    pub(crate) fn recheck(
        &mut self,
        io: &mut impl LoopIo,
        answer: Option<(Arc<DatabaseUser>, Verdict)>,
    ) {
        match answer {
            Some((user, Verdict::Allow(identity))) => {
                for key in self.unjudged.rechecks.clients_of(&user) {
                    change_rights(self, io, key, &identity);
                }
                self.go_on_soon(io);
            }
            Some((user, Verdict::Deny(denial))) if denial.is_guess() => {
                for key in self.unjudged.rechecks.clients_of(&user) {
                    end_connection(self, io, key);
                }
            }
            Some((_, Verdict::Deny(_))) | None => {}
        }
        let every = self.base.settings.recheck;
        match self.unjudged.rechecks.next(io.now_ms(), every) {
            Next::Nobody => {}
            Next::At(at_ms) => io.arm(at_ms, Timer::Recheck.to_bits()),
            Next::User(user) => {
                let asked = Arc::clone(&user);
                let answered = move |verdict| BetweenLoops::LookedUp(user, verdict).into();
                self.base.node.rim.look_up(self.base.index, asked, answered);
            }
        }
    }
}

/// A client has these rights now. If they are others than before, what it has is judged anew.
fn change_rights<R: Rim>(
    this: &mut ClientLoop<R>,
    io: &mut impl LoopIo,
    key: Key,
    identity: &Identity,
) {
    if let Some(client) = this.clients.get_mut(key)
        && client.connection.is_some()
    {
        let access = client.access.as_ref();
        let is_same = match access {
            Some(access) => access.has_rights_of(identity),
            None => identity.rules.is_none() && !identity.is_superuser,
        };
        if !is_same {
            let login = client.login.as_ref();
            let username = login.and_then(|login| login.username()).map(Box::from);
            client.access = None;
            client.judged = this.rules.wrapping_sub(1);
            let identity = Identity {
                username,
                ..identity.clone()
            };
            let (parts, mut turn) = this.turn(io);
            parts.rights.grant(&mut turn, key, identity);
            this.unjudged.clients.insert(key);
        }
    }
}

/// A client's user is not in the database any more.
fn end_connection<R: Rim>(this: &mut ClientLoop<R>, io: &mut impl LoopIo, key: Key) {
    if let Some(client) = this.clients.get(key)
        && let Some(left_out) = this.base.node.lines.refusals.take(io.now_ms())
    {
        tracing::info!(
            client_id = &*excerpt(client.session.client_id()),
            left_out,
            "a user was removed and its client is disconnected"
        );
    }
    this.base.end(key, ReasonCode::NotAuthorized);
}

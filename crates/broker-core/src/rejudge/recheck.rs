//! Users of databases are looked up again while their clients are connected: who is gone is disconnected, and rights
//! that have changed are judged as those of a changed rule file are.
//!
//! Invariant: a database that gives no answer changes nothing.
//!
//! Deliberately absent: when each user is looked up (`rechecks.rs`), and what rules say (`access.rs`).

use std::sync::Arc;

use authentication_api::{DatabaseUser, Verdict};

use crate::clients::{BetweenLoops, LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::rights::rechecks::Next;
use crate::rights::rules::{change_rights, end_connection};
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
                    if change_rights(self, io, key, &identity) {
                        self.unjudged.clients.insert(key);
                    }
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

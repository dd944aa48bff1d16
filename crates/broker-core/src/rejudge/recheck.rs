//! Users of databases are looked up again while their clients are connected: who is gone is disconnected, and rights
//! that have changed are judged as those of a changed rule file are.
//!
//! Invariant: a database that gives no answer changes nothing.
//!
//! Deliberately absent: when each user is looked up (`rechecks.rs`), and what rules say (`rights/access.rs`).

use std::sync::Arc;

use authentication_api::{DatabaseUser, Verdict};

use super::rechecks::Next;
use super::{Rejudge, end_without_user};
use crate::clients::{BetweenLoops, LoopIo, Timer};
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::turn::{Base, Turn};

impl Rejudge {
    /// Looks the next user up, if one is due.
    pub(crate) fn handle_recheck_timer<R: Rim>(&mut self, base: &Base<R>, io: &mut impl LoopIo) {
        match self
            .unjudged
            .rechecks
            .next(io.now_ms(), base.settings.recheck)
        {
            Next::Nobody => {}
            Next::At(at_ms) => io.arm(at_ms, Timer::Recheck.to_bits()),
            Next::User(user) => {
                let asked = Arc::clone(&user);
                let answered = move |verdict| BetweenLoops::LookedUp(user, verdict).into();
                base.node.rim.look_up(base.index, asked, answered);
            }
        }
    }

    /// A user was looked up. Those of its clients that are connected by now have the rights that it has now, or are
    /// disconnected; then the next one is looked up.
    pub(crate) fn handle_looked_up<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        user: &Arc<DatabaseUser>,
        verdict: &Verdict,
    ) {
        match verdict {
            Verdict::Allow(identity) => {
                for key in self.unjudged.rechecks.clients_of(user) {
                    if self.change_rights(turn, rights, key, identity) {
                        self.unjudged.add(key);
                    }
                }
                self.arm(turn.io);
            }
            Verdict::Deny(denial) if denial.is_guess() => {
                for key in self.unjudged.rechecks.clients_of(user) {
                    end_without_user(turn, key);
                }
            }
            Verdict::Deny(_) => {}
        }
        self.handle_recheck_timer(turn.base, turn.io);
    }
}

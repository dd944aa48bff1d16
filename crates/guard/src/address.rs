//! What an address as a whole may cost: logins that are judged at the same time, and logins that fail.
//!
//! Many clients may have one address. So an address is never shut out: what its failed logins have used up comes back
//! at a rate, and holds up only those who could be guessing. A user name that has failed there does not use up what is
//! for names that have not, so that one device with a wrong password, or guesses of a thousand accounts, leave the rest
//! of the address its share.

use crate::budget::{Allowance, Budget};
use crate::limits::Limits;
use crate::slow_start::Logins;

/// Failures of an address by user names that have not failed there before, at once: more than most addresses have
/// clients whose first login after a start of the broker is yet to come.
const FIRST_FAILURES: Logins = Logins(1_200);

/// Logins of an address.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Address {
    /// Logins that are being judged.
    under_way: Logins,
    first: Budget,
    again: Budget,
}

/// Which of an address's budgets a login takes its share of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// None: its user has logged in from there, or the credentials are known to have been right.
    None,
    /// The user name has not failed there.
    First,
    /// It has.
    Again,
}

impl Address {
    /// Lets a login through to be judged, unless too many are being judged or the share is used up.
    pub(crate) fn begin(&mut self, limits: &Limits, share: Share, now_ms: u64) -> bool {
        let has_room = limits
            .logins
            .is_none_or(|most| self.under_way < Logins(most.get()));
        let begins = has_room && self.take(limits, share, now_ms);
        if begins {
            self.under_way.add_one();
        }
        begins
    }

    /// A login has failed at another node.
    pub(crate) fn charge(&mut self, limits: &Limits, share: Share, now_ms: u64) {
        self.take(limits, share, now_ms);
    }

    /// A login is judged, or given up.
    pub(crate) fn end(&mut self) {
        self.under_way.remove_one();
    }

    /// A login that has taken a share has not failed.
    pub(crate) fn give_back(&mut self, share: Share) {
        match share {
            Share::None => {}
            Share::First => self.first.give_back(),
            Share::Again => self.again.give_back(),
        }
    }

    /// What has failed counts no more.
    pub(crate) fn forgive(&mut self) {
        self.first = Budget::default();
        self.again = Budget::default();
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way == Logins(0) && self.first.is_full() && self.again.is_full()
    }

    fn take(&mut self, limits: &Limits, share: Share, now_ms: u64) -> bool {
        let Some(per_minute) = limits.failed_logins_of_address else {
            return true;
        };
        let per_minute = Logins(per_minute.get());
        match share {
            Share::None => true,
            Share::First => {
                let burst = FIRST_FAILURES.max(per_minute);
                self.first.take(Allowance { burst, per_minute }, now_ms)
            }
            Share::Again => {
                let burst = per_minute;
                self.again.take(Allowance { burst, per_minute }, now_ms)
            }
        }
    }
}

//! Clients are spread over the nodes of a cluster: while this node has more than its share, some of those that connect are sent
//! on, and those that are connected are moved.
//!
//! Invariant: of the clients that connect at a loop, no more are sent on than the advice says, every second one at most: a client
//! that comes back gets in before long.
//!
//! Deliberately absent: who has how many clients, and what the share is (`broker/src/spreading`).

use std::cell::Cell;

use mqtt_proto::{ProtocolVersion, ReasonCode};
use mqtt_session::Policy;

use super::policy_with;
use crate::clients::{Advice, SentOn};

/// The advice counts in thousandths.
const WHOLE: u16 = 1_000;

/// A loop's part in it.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    advice: Option<Advice>,
    /// The policy of the settings with another node; `None`: none is known, or the settings name one.
    elsewhere: Option<Box<Policy>>,
    /// Thousandths of a client that have not been sent on yet.
    rest: Cell<u16>,
}

impl Spread {
    /// The node has more than its share, or not any more.
    pub(crate) fn handle_advice(&mut self, advice: Option<&Advice>, policy: &Policy) {
        self.advice = advice.cloned();
        let elsewhere = advice.and_then(|advice| advice.elsewhere.as_deref());
        self.elsewhere = policy_with(policy, elsewhere);
    }

    /// Clients are moved to another node.
    pub(crate) fn handle_move(&mut self, elsewhere: Option<&str>, policy: &Policy) {
        self.elsewhere = policy_with(policy, elsewhere);
    }

    /// With what a client that connects is sent on. `is_plain`: it can go to the node that the advice names.
    pub(crate) fn judge(
        &self,
        version: ProtocolVersion,
        is_plain: impl FnOnce() -> bool,
    ) -> Option<ReasonCode> {
        let advice = self.advice.as_ref()?;
        let is_told = version == ProtocolVersion::V5 && self.elsewhere.is_some() && is_plain();
        if advice.whom == SentOn::Told && !is_told {
            return None;
        }
        let rest = self.rest.get() + advice.share.0.min(WHOLE / 2);
        self.rest.set(rest % WHOLE);
        (rest >= WHOLE).then_some(ReasonCode::UseAnotherServer)
    }

    /// The policy for the last packet of a client that is sent on.
    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.elsewhere.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Thousandths;

    const FIVE: ProtocolVersion = ProtocolVersion::V5;
    const FOUR: ProtocolVersion = ProtocolVersion::V3_1_1;

    fn advised(share: u16, whom: SentOn) -> Spread {
        let mut spread = Spread::default();
        let advice = Advice {
            elsewhere: Some("10.0.0.2:1883".to_owned()),
            share: Thousandths(share),
            whom,
        };
        spread.handle_advice(Some(&advice), &Policy::default());
        spread
    }

    fn sent_on(spread: &Spread, version: ProtocolVersion, is_plain: bool, clients: usize) -> usize {
        let judged = (0..clients).map(|_| spread.judge(version, || is_plain));
        judged.flatten().count()
    }

    #[test]
    fn nobody_is_sent_on_without_advice() {
        assert_eq!(sent_on(&Spread::default(), FIVE, true, 100), 0);
        let mut spread = advised(500, SentOn::All);
        spread.handle_advice(None, &Policy::default());
        assert_eq!(sent_on(&spread, FIVE, true, 100), 0);
        assert!(spread.policy().is_none());
    }

    #[test]
    fn as_many_are_sent_on_as_is_advised_and_half_at_most() {
        for (share, expected) in [(0, 0), (1, 1), (250, 250), (500, 500), (1_000, 500)] {
            let spread = advised(share, SentOn::All);
            assert_eq!(sent_on(&spread, FOUR, false, 1_000), expected, "{share}");
        }
        // Whoever comes back at once gets in.
        let spread = advised(500, SentOn::All);
        let judged: Vec<bool> = (0..6)
            .map(|_| spread.judge(FIVE, || true).is_some())
            .collect();
        assert!(
            judged.windows(2).all(|pair| !(pair[0] && pair[1])),
            "{judged:?}"
        );
    }

    #[test]
    fn only_who_can_be_told_where_to_go_is_sent_there() {
        for (version, is_plain, expected) in [(FIVE, true, 50), (FIVE, false, 0), (FOUR, true, 0)] {
            let spread = advised(500, SentOn::Told);
            assert_eq!(sent_on(&spread, version, is_plain, 100), expected);
        }
        let spread = advised(500, SentOn::Told);
        let policy = spread.policy().expect("a policy");
        assert_eq!(policy.server_reference.as_deref(), Some("10.0.0.2:1883"));
    }
}

//! What clients of a node that is drained are told.

use mqtt_session::Policy;

/// What clients of a node that is drained are told.
#[derive(Debug)]
pub(crate) struct Drained {
    /// The settings' policy, with a node that clients without TLS and WebSocket can go to. `None`: none is
    /// known, or the settings name one.
    pub(super) elsewhere: Option<Box<Policy>>,
    /// When clients were first disconnected.
    pub(crate) since_ms: Option<u64>,
}

impl Drained {
    pub(crate) fn new(policy: &Policy, elsewhere: Option<&str>, since_ms: Option<u64>) -> Self {
        Self {
            elsewhere: policy_with(policy, elsewhere),
            since_ms,
        }
    }
}

/// The settings' policy, with a node that clients can go to. `None`: none is known, or the settings name one.
pub(crate) fn policy_with(policy: &Policy, elsewhere: Option<&str>) -> Option<Box<Policy>> {
    let reference = elsewhere.filter(|_| policy.server_reference.is_none());
    reference.map(|reference| {
        Box::new(Policy {
            server_reference: Some(reference.into()),
            ..policy.clone()
        })
    })
}

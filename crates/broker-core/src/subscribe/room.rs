//! Room for the filters of a SUBSCRIBE: that of the session, of its user, and of the node.

use std::sync::atomic::Ordering;

use mqtt_session::{Pattern, Timestamp, pattern_of};

use crate::node::{Node, Pressure};
use crate::quotas::{self, Share};
use crate::rim::Rim;
use crate::settings::Settings;

/// What a session may still subscribe to.
#[derive(Debug)]
pub(crate) struct Room {
    /// Bytes of filters, by the limits of the session and of the node.
    bytes: usize,
    /// Patterns of wildcards, by the limit of the node.
    patterns: usize,
    /// Those that filters of this packet have taken room for.
    taken: Vec<Pattern>,
    /// What is left of the user's share.
    user: Option<(Box<str>, quotas::Room)>,
}

impl Room {
    /// `session`: bytes of filters that the session may still have. None is left while memory is scarce.
    pub(crate) fn new<R: Rim>(
        settings: &Settings,
        node: &Node<R>,
        session: u64,
        user: Option<&str>,
        now_ms: u64,
    ) -> Self {
        let left =
            |most: u64, used: u64| usize::try_from(most.saturating_sub(used)).unwrap_or(usize::MAX);
        let session = left(session, 0);
        let inboxes = node.inbox_filters.load(Ordering::Relaxed) as u64;
        let used = node.subscription_bytes() + inboxes;
        let of_node = left(settings.node_subscription_bytes, used);
        let bytes = match node.pressure() {
            Pressure::None => session.min(of_node),
            Pressure::StopReading | Pressure::Refuse => 0,
        };
        let share = settings.user_share();
        let user = user.zip(share).map(|(user, share)| {
            let is_used = |pattern: &_| node.routes.has_pattern(pattern);
            let room = node.quotas.room(user, share, Timestamp(now_ms), is_used);
            (user.into(), room)
        });
        Self {
            bytes,
            patterns: settings
                .node_wildcard_patterns
                .saturating_sub(node.routes.patterns()),
            taken: Vec::new(),
            user,
        }
    }

    /// Whether there is room for one more filter; then it is taken.
    pub(crate) fn take<R: Rim>(&mut self, filter: &str, node: &Node<R>) -> bool {
        let is_new =
            |pattern: &Pattern| !self.taken.contains(pattern) && !node.routes.has_pattern(pattern);
        let new = pattern_of(filter).filter(is_new);
        let bytes = self.bytes.checked_sub(filter.len());
        let patterns = self.patterns.checked_sub(usize::from(new.is_some()));
        let left = bytes
            .zip(patterns)
            .filter(|_| self.user_has_room(filter, node));
        if let Some((bytes, patterns)) = left {
            self.bytes = bytes;
            self.patterns = patterns;
            self.taken.extend(new);
        }
        left.is_some()
    }

    fn user_has_room<R: Rim>(&mut self, filter: &str, node: &Node<R>) -> bool {
        self.user.as_mut().is_none_or(|(user, room)| {
            room.take(filter, |pattern| node.quotas.has_pattern(user, pattern))
        })
    }
}

impl Settings {
    /// What one user may have; `None`: as much as there is.
    fn user_share(&self) -> Option<Share> {
        let percent = self.node_user_share;
        let of = |whole: usize| whole / 100 * percent + whole % 100 * percent / 100;
        let bytes = usize::try_from(self.node_subscription_bytes).unwrap_or(usize::MAX);
        (percent < 100).then(|| Share {
            bytes: of(bytes),
            patterns: of(self.node_wildcard_patterns),
        })
    }
}

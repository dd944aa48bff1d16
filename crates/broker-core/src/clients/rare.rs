//! What most clients do not have most of the time, together behind one box.
//!
//! Invariant: the box is there only while something is in it. So an idle client has none.

use std::sync::Arc;

use net_api::RateBucket;

use crate::backpressure::held::Hold;
use crate::connect::joining::Joining;
use crate::linger::Kept;
use crate::retained::backlog::Replay;
use crate::shared::groups::Gauge;
use crate::subscribe::parts::Parts;

/// Parts of a client that most do without.
#[derive(Debug, Default)]
pub(crate) struct Rare(Option<Box<RareParts>>);

#[derive(Debug)]
pub(crate) struct RareParts {
    /// Shows shared groups the session's room; only with shared subscriptions.
    pub(crate) gauge: Option<Arc<Gauge>>,
    /// Retained messages still to be sent.
    pub(crate) replay: Option<Box<Replay>>,
    pub(crate) hold: Option<Box<Hold>>,
    /// The CONNECT still waits for the store.
    pub(crate) joining: Option<Box<Joining>>,
    /// A SUBSCRIBE or UNSUBSCRIBE that is not answered.
    pub(crate) parts: Option<Box<Parts>>,
    /// Routes that outlive connections.
    pub(crate) kept: Option<Box<Kept>>,
    /// Of its publications; `None`: they have no rate.
    pub(crate) publish_rate: Option<RateBucket>,
}

const NONE: RareParts = RareParts {
    gauge: None,
    replay: None,
    hold: None,
    joining: None,
    parts: None,
    kept: None,
    publish_rate: None,
};

/// What a client has that has none of them.
const EMPTY: &RareParts = &NONE;

impl RareParts {
    fn is_empty(&self) -> bool {
        self.gauge.is_none()
            && self.replay.is_none()
            && self.hold.is_none()
            && self.joining.is_none()
            && self.parts.is_none()
            && self.kept.is_none()
            && self.publish_rate.is_none()
    }
}

impl Rare {
    /// Of the box, and of those of its parts; not what these hold.
    pub(crate) fn heap_bytes(&self) -> usize {
        fn boxed<T>(part: Option<&T>) -> usize {
            part.map_or(0, size_of_val)
        }
        self.0.as_deref().map_or(0, |parts| {
            size_of::<RareParts>()
                + boxed(parts.replay.as_deref())
                + boxed(parts.hold.as_deref())
                + boxed(parts.joining.as_deref())
                + boxed(parts.parts.as_deref())
                + boxed(parts.kept.as_deref())
        })
    }

    #[inline]
    pub(crate) fn get(&self) -> &RareParts {
        self.0.as_deref().unwrap_or(EMPTY)
    }

    /// One of them, if it is there.
    #[inline]
    pub(crate) fn get_mut<T>(
        &mut self,
        part: impl FnOnce(&mut RareParts) -> &mut Option<T>,
    ) -> Option<&mut T> {
        part(self.0.as_mut()?).as_mut()
    }

    /// One of them, made if it is not there.
    pub(crate) fn make<T: Default>(
        &mut self,
        part: impl FnOnce(&mut RareParts) -> &mut Option<T>,
    ) -> &mut T {
        let parts = self.0.get_or_insert_with(|| Box::new(NONE));
        part(parts).get_or_insert_default()
    }

    /// Takes one of them out, if it is there.
    pub(crate) fn take<T>(
        &mut self,
        part: impl FnOnce(&mut RareParts) -> &mut Option<T>,
    ) -> Option<T> {
        let taken = part(self.0.as_mut()?).take();
        self.0.take_if(|parts| parts.is_empty());
        taken
    }

    /// Puts one of them in the place of what is there.
    pub(crate) fn set<T>(
        &mut self,
        part: impl FnOnce(&mut RareParts) -> &mut Option<T>,
        value: Option<T>,
    ) {
        if value.is_none() {
            self.take(part);
            return;
        }
        let parts = self.0.get_or_insert_with(|| Box::new(NONE));
        *part(parts) = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_goes_with_what_was_last_in_it() {
        let mut rare = Rare::default();
        assert!(rare.get().hold.is_none());
        rare.set(|of| &mut of.kept, None);
        assert!(rare.0.is_none());
        rare.make(|of| &mut of.hold);
        rare.make(|of| &mut of.gauge);
        assert!(rare.take(|of| &mut of.hold).is_some());
        assert!(rare.get_mut(|of| &mut of.hold).is_none());
        assert!(rare.get().gauge.is_some());
        rare.set(|of| &mut of.gauge, None);
        assert!(rare.0.is_none());
    }
}

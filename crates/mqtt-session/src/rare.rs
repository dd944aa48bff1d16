//! What most sessions do not have, together behind one box.
//!
//! Invariant: the box is there only while something is in it.

use crate::alias::{InboundAliases, OutboundAliases};
use crate::will::Will;

/// Parts of a session that most do without.
#[derive(Debug, Default)]
pub(crate) struct Rare(Option<Box<RareParts>>);

#[derive(Debug)]
pub(crate) struct RareParts {
    pub(crate) username: Option<Box<str>>,
    pub(crate) will: Option<Box<Will>>,
    pub(crate) inbound_aliases: Option<Box<InboundAliases>>,
    pub(crate) outbound_aliases: Option<Box<OutboundAliases>>,
    /// The client's Maximum Packet Size in bytes; `u32::MAX`: none.
    pub(crate) client_maximum_packet_size: u32,
}

impl Default for RareParts {
    fn default() -> Self {
        Self {
            username: None,
            will: None,
            inbound_aliases: None,
            outbound_aliases: None,
            client_maximum_packet_size: u32::MAX,
        }
    }
}

impl RareParts {
    fn is_empty(&self) -> bool {
        self.username.is_none()
            && self.will.is_none()
            && self.inbound_aliases.is_none()
            && self.outbound_aliases.is_none()
            && self.client_maximum_packet_size == u32::MAX
    }
}

impl Rare {
    pub(crate) fn new(parts: RareParts) -> Self {
        Self((!parts.is_empty()).then(|| Box::new(parts)))
    }

    /// The user name of the last CONNECT.
    pub(crate) fn username(&self) -> Option<&str> {
        self.0.as_ref()?.username.as_deref()
    }

    pub(crate) fn will(&self) -> Option<&Will> {
        self.0.as_ref()?.will.as_deref()
    }

    pub(crate) fn take_will(&mut self) -> Option<Box<Will>> {
        let will = self.0.as_mut()?.will.take();
        self.free_empty();
        will
    }

    /// The client's Maximum Packet Size in bytes; `u32::MAX`: none.
    #[inline]
    pub(crate) fn client_maximum_packet_size(&self) -> u32 {
        self.0
            .as_ref()
            .map_or(u32::MAX, |parts| parts.client_maximum_packet_size)
    }

    /// The aliases that the client has set; made if it has set none yet.
    pub(crate) fn make_inbound_aliases(&mut self) -> &mut InboundAliases {
        let parts = self.0.get_or_insert_default();
        parts.inbound_aliases.get_or_insert_default()
    }

    #[inline]
    pub(crate) fn outbound_aliases(&mut self) -> Option<&mut OutboundAliases> {
        self.0.as_mut()?.outbound_aliases.as_deref_mut()
    }

    /// Topic aliases end with their network connection.
    pub(crate) fn drop_aliases(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.inbound_aliases = None;
            parts.outbound_aliases = None;
        }
        self.free_empty();
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let Some(parts) = &self.0 else {
            return 0;
        };
        let inbound = parts.inbound_aliases.as_ref();
        let outbound = parts.outbound_aliases.as_ref();
        size_of::<RareParts>()
            + parts.username.as_ref().map_or(0, |name| name.len())
            + parts.will.as_ref().map_or(0, |will| will.heap_bytes())
            + inbound.map_or(0, |aliases| aliases.heap_bytes())
            + outbound.map_or(0, |aliases| aliases.heap_bytes())
    }

    fn free_empty(&mut self) {
        self.0.take_if(|parts| parts.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_goes_when_nothing_is_in_it() {
        assert!(Rare::new(RareParts::default()).0.is_none());
        let mut rare = Rare::default();
        rare.make_inbound_aliases();
        assert!(rare.heap_bytes() > 0);
        rare.drop_aliases();
        assert_eq!(rare.heap_bytes(), 0);
        let named = RareParts {
            username: Some("user".into()),
            ..RareParts::default()
        };
        let mut rare = Rare::new(named);
        rare.drop_aliases();
        assert!(rare.take_will().is_none());
        assert_eq!(rare.username(), Some("user"));
    }
}

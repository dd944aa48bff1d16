//! Where somebody who watches is in what happens on all nodes.

use std::collections::BTreeMap;
use std::fmt;

use crate::{NodeId, Place};

/// Nodes of which a position knows, which is more than a cluster has.
const PLACES: usize = 128;

/// A place on each node that somebody who watches has heard of. As text it comes with each event, and back.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Position(BTreeMap<NodeId, Place>);

impl Position {
    /// Of 128 nodes at most; `None`: it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let place = |part: &str| {
            let mut parts = part.split('-');
            let node = NodeId::try_from(parts.next()?.to_owned()).ok()?;
            let place = Place(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            parts.next().is_none().then_some((node, place))
        };
        let places: Option<BTreeMap<_, _>> = text.split('.').map(place).collect();
        places.filter(|places| places.len() <= PLACES).map(Self)
    }

    /// The place on a node; `None`: nothing of it was heard.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<Place> {
        self.0.get(&node).copied()
    }

    /// What is on a node before a place was heard.
    pub fn set(&mut self, node: NodeId, place: Place) {
        self.0.insert(node, place);
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (node, Place(incarnation, next))) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{node}-{incarnation}-{next}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_text_and_back() {
        for text in [
            "000000000000002a-7-0",
            "000000000000002a-7-9.5f3a90c2d1e4b867-1-18446744073709551615",
        ] {
            assert_eq!(Position::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "x",
            "2a",
            "000000000000002a-7",
            "000000000000002a-7-1-2",
            "000000000000002a-7--1",
        ] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
        let place = |node: usize| format!("{node:x}-1-1");
        let of = |nodes: usize| (1..=nodes).map(place).collect::<Vec<_>>().join(".");
        assert!(Position::parse(&of(PLACES)).is_some());
        assert!(Position::parse(&of(PLACES + 1)).is_none());
    }
}

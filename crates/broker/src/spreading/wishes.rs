//! What people have asked of the nodes: to move clients, or to stop that. Nodes tell each other as a fact in gossip. No I/O.
//!
//! Invariant: no client is moved twice within [`HOUR`]: only those are moved that came before the first wish of the last hour was
//! made. Who was moved because of it, from whichever node, came after that.

use std::time::Duration;

/// How long a wish counts.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// Wishes that are remembered at most: the first, which says who may be moved, and the latest.
const LIMIT: usize = 64;

/// How far ahead of this node's time a wish may be. One of a later time would stand in the way of all that follow.
const AHEAD: Duration = Duration::from_secs(60);

/// That clients are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    /// When it was made, in ms of the cluster's time: what tells wishes apart.
    pub(super) made: MadeMs,
    pub(super) rate: Rate,
}

/// Milliseconds of the cluster's time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct MadeMs(pub(super) u64);

/// How fast clients are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rate {
    /// As fast as a node is drained.
    AsDrained,
    /// Clients per second; 0: none any more.
    PerSecond(u32),
}

impl Wish {
    /// As it is told.
    pub(super) fn to_text(self) -> String {
        let rate = match self.rate {
            Rate::AsDrained => "default".to_owned(),
            Rate::PerSecond(clients) => clients.to_string(),
        };
        format!("{} {rate}", self.made.0)
    }

    /// `None`: it makes no sense, or a later program says more than is known here.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let (made, rate) = text.split_once(' ')?;
        let rate = match rate {
            "default" => Rate::AsDrained,
            clients => Rate::PerSecond(clients.parse().ok()?),
        };
        let made = MadeMs(made.parse().ok()?);
        Some(Self { made, rate })
    }
}

/// Clients that are to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order {
    pub(super) wish: Wish,
    /// Only those that came before.
    pub(super) before: MadeMs,
}

/// The wishes that a node has heard of.
#[derive(Debug, Default)]
pub(super) struct Wishes(Vec<Wish>);

impl Wishes {
    /// Another look at what members tell. What is to be done, if that is news: the latest wish, if it was not heard before.
    pub(super) fn handle_told(
        &mut self,
        told: impl Iterator<Item = Wish>,
        now: MadeMs,
    ) -> Option<Order> {
        let is_over = |wish: &Wish| now.0 >= wish.made.0.saturating_add(HOUR.as_millis() as u64);
        self.0.retain(|wish| !is_over(wish));
        let mut newest: Option<Wish> = None;
        for wish in told {
            let is_ahead = wish.made.0 > now.0.saturating_add(AHEAD.as_millis() as u64);
            if is_over(&wish) || is_ahead || self.0.contains(&wish) {
                continue;
            }
            if self.0.len() >= LIMIT {
                self.0.remove(1);
            }
            self.0.push(wish);
            newest = newest.max_by_made(wish);
        }
        let wish = newest?;
        let is_latest = self.0.iter().all(|known| known.made <= wish.made);
        // Those of a person who stops it move nobody.
        let moves = |known: &&Wish| known.rate != Rate::PerSecond(0) || **known == wish;
        let before = self.0.iter().filter(moves).map(|known| known.made).min()?;
        is_latest.then_some(Order { wish, before })
    }
}

trait Newest {
    fn max_by_made(self, wish: Wish) -> Option<Wish>;
}

impl Newest for Option<Wish> {
    fn max_by_made(self, wish: Wish) -> Option<Wish> {
        match self {
            Some(known) if known.made >= wish.made => Some(known),
            _ => Some(wish),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(made_s: u64, rate: Rate) -> Wish {
        Wish {
            made: MadeMs(made_s * 1_000),
            rate,
        }
    }

    fn told(wishes: &mut Wishes, told: &[Wish], at_s: u64) -> Option<(Wish, u64)> {
        let order = wishes.handle_told(told.iter().copied(), MadeMs(at_s * 1_000));
        order.map(|order| (order.wish, order.before.0 / 1_000))
    }

    #[test]
    fn wishes_are_read_as_they_are_told() {
        for rate in [
            Rate::AsDrained,
            Rate::PerSecond(0),
            Rate::PerSecond(u32::MAX),
        ] {
            let wish = wish(7, rate);
            assert_eq!(Wish::of_text(&wish.to_text()), Some(wish));
        }
        for text in ["", "1", "x 1", "1 -1", "1 1 1"] {
            assert_eq!(Wish::of_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_wish_is_carried_out_once() {
        let (mut wishes, one) = (Wishes::default(), wish(100, Rate::AsDrained));
        assert_eq!(told(&mut wishes, &[one], 100), Some((one, 100)));
        assert_eq!(told(&mut wishes, &[one, one], 101), None);
        // A node that was started later hears of it as well, and has nobody who came before.
        assert_eq!(told(&mut Wishes::default(), &[one], 900), Some((one, 100)));
        assert_eq!(told(&mut Wishes::default(), &[one], 3_700), None);
    }

    #[test]
    fn a_client_is_moved_once_an_hour() {
        let (mut wishes, one) = (Wishes::default(), wish(100, Rate::AsDrained));
        let two = wish(2_000, Rate::PerSecond(9));
        told(&mut wishes, &[one], 100);
        assert_eq!(told(&mut wishes, &[one, two], 2_000), Some((two, 100)));
        let three = wish(3_701, Rate::AsDrained);
        assert_eq!(
            told(&mut wishes, &[two, three], 3_701),
            Some((three, 2_000))
        );
    }

    #[test]
    fn the_latest_wish_counts() {
        let (one, stop) = (wish(100, Rate::AsDrained), wish(110, Rate::PerSecond(0)));
        let mut wishes = Wishes::default();
        assert_eq!(told(&mut wishes, &[stop, one], 111), Some((stop, 100)));
        // One that comes late is not carried out.
        let late = wish(105, Rate::AsDrained);
        assert_eq!(told(&mut wishes, &[late], 112), None);
        let again = wish(120, Rate::AsDrained);
        assert_eq!(told(&mut wishes, &[again], 120), Some((again, 100)));
    }

    #[test]
    fn wishes_are_remembered_up_to_a_limit() {
        let mut wishes = Wishes::default();
        for made in 0..1_000 {
            let latest = wish(made, Rate::AsDrained);
            assert_eq!(told(&mut wishes, &[latest], 1_000), Some((latest, 0)));
        }
        assert_eq!(wishes.0.len(), LIMIT);
    }

    #[test]
    fn a_wish_of_a_later_time_is_not_believed() {
        let mut wishes = Wishes::default();
        let (late, now) = (wish(10_000, Rate::AsDrained), wish(100, Rate::AsDrained));
        assert_eq!(told(&mut wishes, &[late, now], 100), Some((now, 100)));
    }
}

//! The places of the connections to the HTTP port.
//!
//! Purpose: each connection that is open has a place. It waits (it has sent nothing, or a part of a request, or its last
//! answer is sent), answers, or answers a probe. When all places are taken, a new connection gets the place of one that waits:
//! the oldest of the address that has the most of them.
//!
//! Invariant: answers and probes together have fewer places than there are, so that one that waits is found whenever a place
//! is needed; and answers never take the places of probes. A connection that answers keeps its place.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// One place in so many, and at least [`LEAST_SPARE`], is for no answer of the API.
const SPARE: usize = 8;
const LEAST_SPARE: usize = 4;

/// What monitors ask for.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Whether a monitor asks for this path. Such requests have places of their own, and are answered where connections are served.
pub(crate) fn is_probe(path: &str) -> bool {
    PROBES.contains(&path)
}

/// The places of a port.
#[derive(Debug)]
pub(crate) struct Places(Mutex<Table>);

#[derive(Debug)]
struct Table {
    most: usize,
    most_answers: usize,
    most_probes: usize,
    answers: usize,
    probes: usize,
    open: BTreeMap<Number, Open>,
    /// Counts up: numbers of connections, and the order in which they began to wait.
    next: Number,
}

/// Of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Number(u64);

#[derive(Debug)]
struct Open {
    network: IpAddr,
    state: State,
    gives_way: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waits { since: u64 },
    Answers(Work),
}

/// What a connection does when it does not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// It answers a request of the API or of the dashboard.
    Answer,
    /// It answers a monitor.
    Probe,
}

/// A connection that was let in.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Which.
    pub(crate) number: Number,
    /// Is notified when it is to be closed, because another one gets its place.
    pub(crate) gives_way: Arc<Notify>,
    /// Another one is closed for it.
    pub(crate) replaces: bool,
}

impl Places {
    /// So many.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let spare = (most / SPARE).max(LEAST_SPARE);
        Arc::new(Self(Mutex::new(Table {
            most,
            most_answers: most.saturating_sub(spare).max(1),
            most_probes: (spare / 2).max(1),
            answers: 0,
            probes: 0,
            open: BTreeMap::new(),
            next: Number(0),
        })))
    }

    /// A connection is open, and waits.
    pub(crate) fn admit(&self, from: IpAddr) -> Admitted {
        let mut table = self.0.lock();
        let replaced = match table.open.len() >= table.most {
            true => table.gives_way(),
            false => None,
        };
        let replaces = replaced.is_some();
        if let Some(number) = replaced
            && let Some(open) = table.open.remove(&number)
        {
            open.gives_way.notify_one();
        }
        let number = Number(table.tick());
        let gives_way = Arc::new(Notify::new());
        let open = Open {
            network: network(from),
            state: State::Waits { since: number.0 },
            gives_way: Arc::clone(&gives_way),
        };
        table.open.insert(number, open);
        Admitted {
            number,
            gives_way,
            replaces,
        }
    }

    /// A connection has work from now on; false: there is no place for that, or it has none itself any more.
    pub(crate) fn begin(&self, number: Number, work: Work) -> bool {
        let mut table = self.0.lock();
        let is_free = match work {
            Work::Answer => table.answers < table.most_answers,
            Work::Probe => table.probes < table.most_probes,
        };
        is_free && table.set(number, |_| State::Answers(work))
    }

    /// A connection waits from now on.
    pub(crate) fn wait(&self, number: Number) {
        self.0.lock().set(number, |since| State::Waits { since });
    }

    /// A connection has no place any more.
    pub(crate) fn leave(&self, number: Number) {
        let mut table = self.0.lock();
        if let Some(open) = table.open.remove(&number) {
            table.count(open.state, false);
        }
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.next.0 += 1;
        self.next.0
    }

    fn set(&mut self, number: Number, state: impl FnOnce(u64) -> State) -> bool {
        let state = state(self.tick());
        let open = self.open.get_mut(&number);
        let before = open.map(|open| std::mem::replace(&mut open.state, state));
        if let Some(before) = before {
            self.count(before, false);
            self.count(state, true);
        }
        before.is_some()
    }

    fn count(&mut self, state: State, begins: bool) {
        let counted = match state {
            State::Waits { .. } => return,
            State::Answers(Work::Answer) => &mut self.answers,
            State::Answers(Work::Probe) => &mut self.probes,
        };
        match begins {
            true => *counted += 1,
            false => *counted -= 1,
        }
    }

    /// The one whose place another one gets.
    fn gives_way(&self) -> Option<Number> {
        let waiting = || {
            self.open
                .iter()
                .filter_map(|(number, open)| match open.state {
                    State::Waits { since } => Some((open.network, since, *number)),
                    State::Answers(_) => None,
                })
        };
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (network, ..) in waiting() {
            *counts.entry(network).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let oldest = waiting()
            .filter(|(network, ..)| counts[network] == most)
            .min_by_key(|(_, since, _)| *since);
        oldest.map(|(.., number)| number)
    }
}

/// What counts as one address: of IPv6 the network of 64 bits, which one host may have as a whole.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "127.0.0.1";

    fn admit(places: &Places, from: &str) -> Admitted {
        places.admit(from.parse().unwrap())
    }

    /// Which of these are open.
    fn open(places: &Places, all: &[Admitted]) -> Vec<usize> {
        let table = places.0.lock();
        let is_open = |(index, admitted): (usize, &Admitted)| {
            table.open.contains_key(&admitted.number).then_some(index)
        };
        all.iter().enumerate().filter_map(is_open).collect()
    }

    #[test]
    fn the_oldest_that_waits_gives_its_place_to_a_new_one() {
        let places = Places::new(16);
        let mut all: Vec<_> = (0..16).map(|_| admit(&places, HERE)).collect();
        assert!(all.iter().all(|admitted| !admitted.replaces));
        assert!(places.begin(all[0].number, Work::Answer));
        // The second one has answered: the third one is the oldest.
        assert!(places.begin(all[1].number, Work::Answer));
        places.wait(all[1].number);
        for _ in 0..2 {
            let new = admit(&places, HERE);
            assert!(new.replaces);
            all.push(new);
        }
        let expected: Vec<_> = [0, 1].into_iter().chain(4..18).collect();
        assert_eq!(open(&places, &all), expected);
        // Whoever has given way answers nothing.
        assert!(!places.begin(all[2].number, Work::Answer));
    }

    #[test]
    fn an_address_with_many_connections_takes_its_own_places() {
        let places = Places::new(16);
        let one = admit(&places, "10.0.0.1");
        let of_net = ["2001:db8::1", "2001:db8::2", "2001:db8::3"];
        let many: Vec<_> = (0..100)
            .map(|index| admit(&places, of_net[index % 3]))
            .collect();
        assert_eq!(open(&places, &[one]), [0]);
        assert_eq!(open(&places, &many), Vec::from_iter(85..100));
    }

    #[test]
    fn answers_leave_places_for_probes_and_for_those_who_wait() {
        let places = Places::new(16);
        let all: Vec<_> = (0..16).map(|_| admit(&places, HERE)).collect();
        let answers = all
            .iter()
            .filter(|one| places.begin(one.number, Work::Answer));
        assert_eq!(answers.count(), 12);
        let probes = all[12..]
            .iter()
            .filter(|one| places.begin(one.number, Work::Probe));
        assert_eq!(probes.count(), 2);
        let new = admit(&places, HERE);
        assert!(new.replaces);
        assert_eq!(open(&places, &all), Vec::from_iter((0..14).chain([15])));
        // A place that is given back is taken by the next one.
        places.leave(all[0].number);
        places.wait(all[12].number);
        assert!(places.begin(new.number, Work::Answer));
        assert!(places.begin(all[12].number, Work::Probe));
        places.leave(all[0].number);
        assert!(!places.begin(all[15].number, Work::Answer));
    }
}

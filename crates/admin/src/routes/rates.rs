//! The rates of a client that is watched: what has grown since the answer before.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::api::{At, ClientRates, WatchedClient};
use crate::backend::Gathered;
use crate::cluster::NodeId;

/// How often the nodes are asked.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// What was known of a client when its node was last asked.
#[derive(Debug)]
pub(super) struct Rates {
    pub(super) client_id: String,
    pub(super) due: Instant,
    before: BTreeMap<NodeId, WatchedClient>,
    asked: Instant,
}

impl Rates {
    pub(super) fn new(client_id: String, now: Instant) -> Self {
        Self {
            client_id,
            due: now,
            before: BTreeMap::new(),
            asked: now,
        }
    }

    /// The nodes have answered what they have counted.
    pub(super) fn handle(
        &mut self,
        counted: Gathered<Vec<WatchedClient>>,
        now: Instant,
    ) -> ClientRates {
        let elapsed = now.saturating_duration_since(self.asked);
        self.asked = now;
        self.due = now + EVERY;
        let mut grown: Option<[u64; 4]> = None;
        for of_node in &counted.all {
            let before = self.before.get(&of_node.node);
            // A node that has begun anew to count knows nothing of the time before.
            let before = before.filter(|before| before.since_ms == of_node.since_ms);
            if let Some(before) = before {
                let sums = grown.get_or_insert_default();
                let counts = counts(of_node).into_iter().zip(counts(before));
                for (sum, (now, then)) in sums.iter_mut().zip(counts) {
                    *sum = sum.saturating_add(now.saturating_sub(then));
                }
            }
        }
        let all = counted.all.into_iter();
        self.before = all.map(|of_node| (of_node.node, of_node)).collect();
        let rates = grown.map(|counts| counts.map(|count| rate(count, elapsed.as_secs_f64())));
        let [messages_in, bytes_in, messages_out, bytes_out] = match rates {
            Some(rates) => rates.map(Some),
            None => [None; 4],
        };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = unix.unwrap_or_default().as_millis();
        ClientRates {
            at: At::unix_ms(u64::try_from(unix_ms).unwrap_or(u64::MAX)),
            span_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            messages_in_per_s: messages_in,
            bytes_in_per_s: bytes_in,
            messages_out_per_s: messages_out,
            bytes_out_per_s: bytes_out,
            partial: counted.partial,
        }
    }
}

fn counts(of: &WatchedClient) -> [u64; 4] {
    [of.messages_in, of.bytes_in, of.messages_out, of.bytes_out]
}

fn rate(count: u64, elapsed_s: f64) -> f64 {
    (count as f64 / elapsed_s.max(0.001) * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(of: &[(u64, u64, u64)]) -> Gathered<Vec<WatchedClient>> {
        let all = of
            .iter()
            .map(|&(node, since_ms, messages_in)| WatchedClient {
                node: NodeId(node),
                since_ms,
                messages_in,
                bytes_in: 10 * messages_in,
                messages_out: 0,
                bytes_out: 0,
            });
        Gathered {
            all: all.collect(),
            partial: Vec::new(),
        }
    }

    #[test]
    fn what_has_grown_is_told_of_nodes_that_counted_all_the_time() {
        let begin = Instant::now();
        let at = |s| begin + Duration::from_secs(s);
        let mut rates = Rates::new("a".into(), begin);
        let mut told = |of: &[(u64, u64, u64)], s| {
            let told = rates.handle(counted(of), at(s));
            (told.span_ms, told.messages_in_per_s, told.bytes_in_per_s)
        };
        assert_eq!(told(&[(1, 5, 7)], 1), (1_000, None, None));
        // A late answer: the same rate over a longer time.
        assert_eq!(told(&[(1, 5, 27)], 3), (2_000, Some(10.0), Some(100.0)));
        // It comes to another node, and the first one forgets it.
        let two = [(1, 5, 28), (2, 9, 0)];
        assert_eq!(told(&two, 4), (1_000, Some(1.0), Some(10.0)));
        assert_eq!(told(&[(2, 9, 3)], 5), (1_000, Some(3.0), Some(30.0)));
        assert_eq!(told(&[(2, 11, 1)], 6), (1_000, None, None));
        assert_eq!(told(&[], 7), (1_000, None, None));
    }
}

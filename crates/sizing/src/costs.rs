//! What a cluster costs a month, term by term.

use crate::needs::{Needs, Resource};
use crate::prices::{Machine, Prices, Pricing};

/// Seconds of a month of 730 hours.
const MONTH_S: f64 = 730.0 * 3600.0;

const GB: f64 = 1e9;
const MB: f64 = 1e6;

/// A disk of a network takes so many bytes in one operation.
const OPERATION_BYTES: f64 = 262_144.0;

/// A log syncs so often at most: one sync is under way at a time, and a disk of a network takes 0.7 ms for one.
const SYNCS_MOST: f64 = 1_500.0;

/// How a cluster is bought.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Purchase<'a> {
    /// How machines are paid for; `None`: by the list price.
    pub pricing: Option<&'a Pricing>,
    /// Zones over which nodes are spread evenly, 1 or more.
    pub zones: f64,
}

/// A part of what a month costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// What for.
    pub what: &'static str,
    /// How many there are of it.
    pub count: f64,
    /// Of what.
    pub of: &'static str,
    /// What each costs a month.
    pub each: f64,
}

impl Cost {
    /// What all of them cost a month.
    #[must_use]
    pub fn month(&self) -> f64 {
        self.count * self.each
    }
}

/// What machines are called in [`Cost::what`].
pub const MACHINES: &str = "machines";
/// What the space on disks is called there; the other terms of disks begin with it.
pub const DISKS: &str = "disks";
/// What traffic is called there.
pub const ZONE_TRAFFIC: &str = "traffic between zones";

/// All terms, without those that cost nothing. `left`: nodes that carry all of the load while others are down; `disk_gib`: of each node.
pub(crate) fn costs(
    needs: &Needs,
    prices: &Prices,
    purchase: &Purchase<'_>,
    machine: &Machine,
    [nodes, left]: [f64; 2],
    disk_gib: f64,
) -> Vec<Cost> {
    let written = needs.sum(Resource::DiskWrites) / left;
    let operations = written / OPERATION_BYTES + (needs.durable_writes() / left).min(SYNCS_MOST);
    let beyond = |used: f64, included: f64| nodes * (used - included).max(0.0);
    let (op, mb) = (&prices.disk_operations, &prices.disk_throughput);
    let crossing = needs.between_nodes() * share_of_other_zones(nodes, purchase.zones);
    let cost = |what, count, of, each| Cost {
        what,
        count,
        of,
        each,
    };
    let mut costs = vec![
        cost(MACHINES, nodes, "machines", machine.price(purchase.pricing)),
        cost(DISKS, nodes * disk_gib, "GiB", prices.disk_gib_month),
        cost(
            "disks, operations beyond what is included",
            beyond(operations, op.included),
            "operations/s",
            op.month,
        ),
        cost(
            "disks, throughput beyond what is included",
            beyond(written / MB, mb.included),
            "MB/s",
            mb.month,
        ),
        cost(
            ZONE_TRAFFIC,
            crossing * MONTH_S / GB,
            "GB, out and in",
            2.0 * prices.zone_traffic.gb_each_way,
        ),
    ];
    costs.retain(|cost| cost.month() > 0.0);
    costs
}

/// Of the traffic of a node with others, what goes to nodes in other zones.
fn share_of_other_zones(nodes: f64, zones: f64) -> f64 {
    let zones = zones.min(nodes);
    if nodes <= 1.0 || zones <= 1.0 {
        return 0.0;
    }
    (nodes - nodes / zones) / (nodes - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Demand;
    use crate::fit::tests::{prices, slopes};
    use crate::prices::{Beyond, Traffic};

    fn dear() -> Prices {
        Prices {
            disk_operations: Beyond {
                included: 100.0,
                month: 0.01,
                source: String::new(),
            },
            disk_throughput: Beyond {
                included: 1.0,
                month: 2.0,
                source: String::new(),
            },
            zone_traffic: Traffic {
                gb_each_way: 0.05,
                source: String::new(),
            },
            ..prices()
        }
    }

    /// What, count and price of each term.
    fn of(demand: &Demand, zones: f64, pricing: Option<&Pricing>) -> Vec<(&'static str, f64, f64)> {
        let needs = Needs::of(demand, &slopes(), 3.0);
        let purchase = Purchase { pricing, zones };
        let prices = dear();
        let costs = costs(
            &needs,
            &prices,
            &purchase,
            &prices.machines[0],
            [3.0, 2.0],
            20.0,
        );
        let rounded = |cost: &Cost| (cost.what, cost.count.round(), cost.month().round());
        costs.iter().map(rounded).collect()
    }

    #[test]
    fn each_part_is_a_term() {
        let idle = Demand::default();
        assert_eq!(
            of(&idle, 3.0, None),
            [(MACHINES, 3.0, 150.0), (DISKS, 60.0, 6.0)]
        );
        // 1,000 messages of 150 bytes in the log of each of three voters, 3 x 10^3 in all: 1,500 syncs of each node that is left; 450 kB/s.
        let durable = Demand {
            publishes_per_s: 1_000.0,
            deliveries_per_s: 1_000.0,
            durable_per_s: 1_000.0,
            payload_bytes: 100.0,
            topic_bytes: 15.0,
            voters: 3.0,
            ..idle
        };
        // Two copies of 200 bytes for the replicas, and two thirds of the messages cross to their receivers: all to other zones.
        let gb = (2_000.0 + 2_000.0 / 3.0) * 200.0 * MONTH_S / GB;
        let terms = of(&durable, 3.0, None);
        assert_eq!(
            terms[2].1,
            (3.0 * (1_500.0_f64 + 225_000.0 / 262_144.0 - 100.0)).round()
        );
        assert_eq!(terms[3], (ZONE_TRAFFIC, gb.round(), (gb * 0.1).round()));
        assert!(
            of(&durable, 1.0, None)
                .iter()
                .all(|term| term.0 != ZONE_TRAFFIC)
        );
        // 100 times as much: 22.5 MB/s of each node, of which 1 is included.
        let much = Demand {
            publishes_per_s: 100_000.0,
            deliveries_per_s: 100_000.0,
            durable_per_s: 100_000.0,
            ..durable
        };
        let throughput = of(&much, 1.0, None)[3];
        assert_eq!((throughput.1, throughput.2), (65.0, 129.0));
    }

    #[test]
    fn a_way_to_pay_changes_machines_only() {
        let half = Pricing {
            name: "half".to_owned(),
            share: 0.5,
            estimate: false,
            source: String::new(),
        };
        assert_eq!(
            of(&Demand::default(), 1.0, Some(&half)),
            [(MACHINES, 3.0, 75.0), (DISKS, 60.0, 6.0)]
        );
        let mut machine = dear().machines[0].clone();
        machine.months.insert("half".to_owned(), 7.0);
        assert_eq!(machine.price(Some(&half)), 7.0);
        assert_eq!(machine.price(None), 50.0);
    }

    #[test]
    fn nodes_of_other_zones_get_their_share() {
        assert_eq!(share_of_other_zones(1.0, 3.0), 0.0);
        assert_eq!(share_of_other_zones(3.0, 1.0), 0.0);
        assert_eq!(share_of_other_zones(3.0, 3.0), 1.0);
        // No more zones than nodes.
        assert_eq!(share_of_other_zones(2.0, 3.0), 1.0);
        // Six of the eight others.
        assert_eq!(share_of_other_zones(9.0, 3.0), 0.75);
    }
}

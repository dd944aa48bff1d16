//! The cheapest cluster that carries a demand.

use crate::costs::{Cost, Purchase, costs};
use crate::demand::Demand;
use crate::needs::{Needs, Resource};
use crate::prices::{Machine, Prices};
use crate::slopes::Slopes;

/// Of its cores, memory and network a node uses so much at most, while as many nodes are down as may be: above it latencies grow,
/// and there is nothing left for what was not thought of.
pub const USED_MOST: f64 = 0.6;

/// Of a disk: tables are written anew while they are compacted.
const DISK_USED_MOST: f64 = 0.5;

/// Clusters of more nodes are not looked at.
const NODES_MOST: u32 = 200;

const GIB: f64 = (1_u64 << 30) as f64;

/// Disks are bought in whole ones of so many GiB at least.
const DISK_LEAST_GIB: f64 = 20.0;

/// Nodes of a kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// What each is.
    pub machine: Machine,
    /// How many.
    pub nodes: f64,
    /// GiB of disk of each.
    pub disk_gib: f64,
    /// What a month costs, term by term.
    pub costs: Vec<Cost>,
    /// What a month costs.
    pub month: f64,
    /// The resource that is used most while as many nodes are down as may be, and its share.
    pub tightest: (Resource, f64),
}

/// The cheapest cluster of each kind of machine that carries the demand, cheapest first; empty: none does.
#[must_use]
pub fn fit(
    demand: &Demand,
    slopes: &Slopes,
    prices: &Prices,
    purchase: &Purchase<'_>,
) -> Vec<Cluster> {
    let of_kind = |machine: &Machine| cheapest(demand, slopes, prices, purchase, machine);
    let mut clusters: Vec<Cluster> = prices.machines.iter().filter_map(of_kind).collect();
    clusters.sort_by(|one, other| one.month.total_cmp(&other.month));
    clusters
}

/// Nodes that there are at least: a majority of voters survives what may fail.
fn least_nodes(demand: &Demand) -> u32 {
    let quorum = if demand.may_fail > 0.0 {
        2.0 * demand.may_fail + 1.0
    } else {
        1.0
    };
    quorum.max(demand.voters) as u32
}

fn cheapest(
    demand: &Demand,
    slopes: &Slopes,
    prices: &Prices,
    purchase: &Purchase<'_>,
    machine: &Machine,
) -> Option<Cluster> {
    (least_nodes(demand)..=NODES_MOST).find_map(|nodes| {
        let nodes = f64::from(nodes);
        let needs = Needs::of(demand, slopes, nodes);
        // Those that are left carry all of it.
        let left = nodes - demand.may_fail;
        let share = |resource, of_node: f64| needs.sum(resource) / left / of_node;
        let network = machine.network_gbps * 1e9 / 8.0;
        let shares = [
            (Resource::Cores, share(Resource::Cores, machine.cores)),
            (
                Resource::Memory,
                share(Resource::Memory, machine.memory_gib * GIB),
            ),
            (Resource::NetworkIn, share(Resource::NetworkIn, network)),
            (Resource::NetworkOut, share(Resource::NetworkOut, network)),
        ];
        let tightest = shares
            .into_iter()
            .max_by(|one, other| one.1.total_cmp(&other.1))?;
        if tightest.1 > USED_MOST {
            return None;
        }
        let disk = needs.sum(Resource::Disk) / left / GIB / DISK_USED_MOST;
        let disk_gib = disk.max(DISK_LEAST_GIB).ceil();
        let costs = costs(&needs, prices, purchase, machine, [nodes, left], disk_gib);
        Some(Cluster {
            machine: machine.clone(),
            nodes,
            disk_gib,
            month: costs.iter().map(Cost::month).sum(),
            costs,
            tightest,
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::prices::{Beyond, Traffic};
    use crate::slopes::{Batched, OfQuality};

    pub(crate) fn slopes() -> Slopes {
        Slopes {
            measured: String::new(),
            publish_us: OfQuality {
                qos0: 10.0,
                qos1: 11.0,
                qos2: 12.0,
            },
            deliver_us: OfQuality {
                qos0: 20.0,
                qos1: 21.0,
                qos2: 22.0,
            },
            rate: 1_000.0,
            durable_us: flat(50.0),
            replica_us: flat(60.0),
            crossing_us: flat(40.0),
            ping_us: 1.0,
            connect_us: 100.0,
            connect_tls_us: 300.0,
            connection_bytes: 1_000.0,
            connection_tls_bytes: 5_000.0,
            socket_bytes: 5_000.0,
            session_bytes: 700.0,
            session_disk_bytes: 50.0,
            queued_disk_bytes: 60.0,
            retained_bytes: 100.0,
            log_bytes: 50.0,
            node_bytes: 1_000.0,
            node_disk_bytes: 500.0,
        }
    }

    /// Nothing is shared.
    fn flat(us: f64) -> Batched {
        Batched {
            alone: us,
            least: us,
        }
    }

    fn machine(name: &str, cores: f64, month: f64) -> Machine {
        Machine {
            name: name.to_owned(),
            cores,
            memory_gib: 2.0 * cores,
            network_gbps: 10.0,
            month,
            ..Machine::default()
        }
    }

    /// By list prices, in one zone.
    const LIST: Purchase<'_> = Purchase {
        pricing: None,
        zones: 1.0,
    };

    pub(crate) fn prices() -> Prices {
        Prices {
            source: String::new(),
            currency: String::new(),
            disk_gib_month: 0.1,
            machines: vec![machine("small", 2.0, 50.0), machine("large", 32.0, 900.0)],
            disk_operations: Beyond::default(),
            disk_throughput: Beyond::default(),
            zone_traffic: Traffic::default(),
            pricings: Vec::new(),
            plans: Vec::new(),
        }
    }

    /// Name, nodes and price of each, cheapest first.
    fn fitting(demand: &Demand) -> Vec<(String, f64, f64)> {
        let clusters = fit(demand, &slopes(), &prices(), &LIST).into_iter();
        clusters
            .map(|cluster| (cluster.machine.name, cluster.nodes, cluster.month))
            .collect()
    }

    #[test]
    fn what_fails_is_carried_by_the_others() {
        // 0.9 cores, which a small node with 1.2 of them to use carries.
        let little = Demand {
            publishes_per_s: 30_000.0,
            deliveries_per_s: 30_000.0,
            ..Demand::default()
        };
        let of = |name: &str, nodes: f64, month: f64| (name.to_owned(), nodes, month);
        assert_eq!(
            fitting(&little),
            [of("small", 1.0, 52.0), of("large", 1.0, 902.0)]
        );
        // One of three may fail: the two that are left carry 0.9 cores and 0.8 for what crosses.
        let safe = Demand {
            may_fail: 1.0,
            ..little
        };
        assert_eq!(
            fitting(&safe),
            [of("small", 3.0, 156.0), of("large", 3.0, 2_706.0)]
        );
    }

    #[test]
    fn a_cluster_grows_until_it_fits() {
        let much = Demand {
            publishes_per_s: 1_000_000.0,
            deliveries_per_s: 1_000_000.0,
            ..Demand::default()
        };
        let clusters = fit(&much, &slopes(), &prices(), &LIST);
        let large = clusters.iter().find(|c| c.machine.name == "large").unwrap();
        // 30 cores, and 40 for each message that crosses: 56.7 of three nodes with 57.6 to use, of two only 38.4 of 50.
        assert_eq!(large.nodes, 3.0);
        assert_eq!(large.tightest.0, Resource::Cores);
        assert!(large.tightest.1 <= USED_MOST);
        let memory = Demand {
            connections: 20e6,
            ..Demand::default()
        };
        let clusters = fit(&memory, &slopes(), &prices(), &LIST);
        assert!(clusters.iter().all(|c| c.tightest.0 == Resource::Memory));
    }

    #[test]
    fn what_no_cluster_carries_has_none() {
        let endless = Demand {
            publishes_per_s: 1e12,
            ..Demand::default()
        };
        assert_eq!(fitting(&endless), []);
    }

    #[test]
    fn voters_and_failures_say_how_many_nodes_there_are() {
        for (voters, may_fail, least) in [
            (1.0, 0.0, 1),
            (3.0, 0.0, 3),
            (1.0, 1.0, 3),
            (3.0, 2.0, 5),
            (5.0, 1.0, 5),
        ] {
            let demand = Demand {
                voters,
                may_fail,
                ..Demand::default()
            };
            assert_eq!(least_nodes(&demand), least, "{voters} {may_fail}");
        }
    }
}

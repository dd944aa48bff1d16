//! What a scenario takes for granted of the broker under load, as far as that can be known before: nodes, voters, and rates that
//! HeraldMQ's default limits let through.
//!
//! Deliberately absent: refusing to run. Whoever runs a scenario on something else may want to; the report says so.

use loadtest::workload::{Activity, Messages, Pace};
use loadtest::{Plan, Workload};
use text_table::units::counted;

use super::node::Node;

/// The default of `limits.connection.bytesPerSecondIn` and `…Out`.
const LIMIT: f64 = 512.0 * 1024.0;

/// Bytes of a PUBLISH beside its payload, about: headers and a topic of this tool.
const BESIDE: f64 = 40.0;

/// Of a plan, with the targets of a run and the pages of metrics that it reads.
pub(super) fn of_plan(plan: &Plan, targets: &[String], metrics: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    let nodes = plan.nodes as usize;
    if targets.len() < nodes {
        warnings.push(format!(
            "the scenario is for {}, and --target names {}",
            counted(nodes as u64, "node", "nodes"),
            targets.len()
        ));
    }
    if let (Some(wanted), Some(url)) = (plan.voters, metrics.first()) {
        let found = voters(url);
        if let Some(found) = found.filter(|found| *found != wanted as usize) {
            warnings.push(format!(
                "the scenario is for {}, and the inbox shards of the broker have {found}: set \
                 inbox_store_replica_voter_count",
                counted(wanted.into(), "voter", "voters")
            ));
        }
    }
    warnings
}

/// Voters of the inbox shard that has fewest; `None`: the node does not tell.
fn voters(metrics: &str) -> Option<usize> {
    let url = format!("{}/api/v1/cluster", metrics.strip_suffix("/metrics")?);
    let shards = Node::new(&url).voters().ok()?.into_iter();
    let of_inboxes = shards.filter(|(store, _)| store == "inbox");
    of_inboxes.map(|(_, voters)| voters).min()
}

/// Of a load: who would be slowed by the default limits.
pub(super) fn of_rates(workload: &Workload) -> Vec<String> {
    let parts = workload.parts.iter();
    let slowed = parts.filter_map(|part| match &part.activity {
        Activity::Messages(messages) => Some(slowed(&part.name, messages)),
        _ => None,
    });
    slowed.flatten().collect()
}

fn slowed(part: &str, messages: &Messages) -> Vec<String> {
    let per_second = match messages.pace {
        Pace::Open { per_second } => per_second,
        // As fast as the broker takes them: a limit is as fast as it goes.
        Pace::Closed { .. } => 0.0,
    };
    let bytes = messages.payload_len as f64 + BESIDE;
    let topology = &messages.topology;
    let received = per_second * topology.receivers_per_message();
    let sides = [
        ("publisher sends", per_second, topology.publishers(), "In"),
        (
            "subscriber receives",
            received,
            topology.subscribers(),
            "Out",
        ),
    ];
    let above = sides.into_iter().filter_map(|(who, rate, count, option)| {
        let each = rate / count.max(1) as f64 * bytes;
        (each > LIMIT).then(|| {
            format!(
                "{part}: each {who} about {:.0} KiB/s, and HeraldMQ lets 512 through by default: --set \
                 limits.connection.bytesPerSecond{option}=0",
                each / 1024.0
            )
        })
    });
    above.collect()
}

#[cfg(test)]
mod tests {
    use loadtest::workload::Login;
    use mqtt_proto::ProtocolVersion;

    use super::*;

    fn plan(name: &str) -> Plan {
        name.parse().unwrap()
    }

    fn of_rates_of(name: &str) -> Vec<String> {
        of_rates(&plan(name).workload(Login::new(ProtocolVersion::V5)))
    }

    #[test]
    fn fewer_targets_than_nodes_are_said() {
        let targets = |count: usize| vec!["a:1".to_owned(); count];
        let three = plan("5k_5k_qos0_p32_100mps_3n");
        assert_eq!(of_plan(&three, &targets(3), &[]), [""; 0]);
        assert_eq!(of_plan(&three, &targets(4), &[]), [""; 0]);
        let said = of_plan(&three, &targets(1), &[]);
        assert!(
            said[0].contains("3 nodes") && said[0].ends_with("names 1"),
            "{said:?}"
        );
        let alone = plan("conn-tcp-1M-5K_1n_true");
        assert_eq!(of_plan(&alone, &targets(1), &[]), [""; 0]);
    }

    #[test]
    fn rates_above_the_default_limit_are_said() {
        // 300 messages of 256 bytes a second to each of 1,000 members.
        assert_eq!(of_rates_of("300k_3000_qos0_p256_1mps_3n"), [""; 0]);
        // Each member has 4,000 of 1 KiB.
        let said = of_rates_of("share_true_40k_10_qos1_p1024_1mps");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("4156 KiB/s"), "{said:?}");
        assert!(said[0].ends_with("bytesPerSecondOut=0"), "{said:?}");
        let said = of_rates_of("true_1_1_qos0_p1024_1000mps");
        assert_eq!(said.len(), 2, "{said:?}");
    }
}

//! What `heraldmq cluster status` says of damaged replicas.
//!
//! Deliberately absent: what becomes of them; the node says so.

use admin::cluster::{ClusterStatus, DamagedReplica, RecoverySource};
use text_table::{
    Table,
    units::{counted, traffic},
};

/// The damaged replicas of the node that answers, what a person has to do about them, and which other nodes have replicas that cannot
/// be used: each in lines of their own, after an empty line. Empty if there are none.
pub(super) fn damaged(status: &ClusterStatus) -> String {
    let mut parts = Vec::new();
    if !status.damaged.is_empty() {
        parts.push(table(&status.damaged));
    }
    let actions = status.damaged.iter().filter_map(action);
    let others = status.nodes.iter().filter_map(|node| {
        let count = node.unusable_replicas.filter(|count| *count > 0)?;
        let replicas = counted(u64::from(count), "replica", "replicas");
        let (id, name) = (node.node, &node.name);
        (id != status.node).then(|| {
            format!("node {id} ({name}) has {replicas} that cannot be used: `heraldmq cluster status --url` with its address says why\n")
        })
    });
    let lines: String = actions.chain(others).collect();
    if !lines.is_empty() {
        parts.push(lines);
    }
    parts.iter().map(|part| format!("\n{part}")).collect()
}

fn action(replica: &DamagedReplica) -> Option<String> {
    let DamagedReplica { store, shard, .. } = replica;
    let action = replica.action.as_ref()?;
    Some(format!("{store} {shard}: {action}\n"))
}

fn table(replicas: &[DamagedReplica]) -> String {
    let heads = [
        "damaged",
        "shard",
        "for",
        "recovers from",
        "received",
        "state",
        "damage",
    ];
    let mut table = Table::new(heads);
    for replica in replicas {
        let received = replica.received_bytes;
        let source = match replica.recovers_from {
            RecoverySource::OtherReplicas => "other replicas",
            RecoverySource::Nothing => "nothing",
        };
        table.row([
            replica.store.to_string(),
            replica.shard.to_string(),
            format!("{}s", replica.seconds.0),
            source.to_owned(),
            received.map_or("-".to_owned(), |received| traffic(received as f64)),
            replica.state.clone(),
            replica.damage.clone(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::damaged;

    /// What is said of a cluster of two nodes, of which node 1 answers.
    fn said(replicas: Value, unusable_elsewhere: Value) -> String {
        let node = |id: u64, unusable: Value| {
            json!({
                "node": format!("{id:016x}"), "name": format!("mq-{id}"), "address": "h:1", "state": "up", "reach": "up",
                "version": "1.0.0", "incarnation": 1, "unusable_replicas": unusable,
            })
        };
        let status = json!({
            "cluster": null, "env": "Test", "node": "0000000000000001", "shards": [], "damaged": replicas,
            "nodes": [node(1, json!(1)), node(2, unusable_elsewhere)],
        });
        damaged(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn damaged_replicas_are_listed_with_what_a_person_does() {
        let waits = json!({
            "store": "inbox", "shard": 2, "damage": "a block", "seconds": 41, "recovers_from": "other_replicas",
            "state": "waits for node 00000000000000b2", "action": "start it",
        });
        let receives = json!({
            "store": "retain", "shard": 0, "damage": "a file", "seconds": 9, "recovers_from": "other_replicas",
            "state": "receives", "received_bytes": 3_100_000,
        });
        let text = said(json!([waits, receives]), json!(3));
        let expected = "
damaged  shard  for   recovers from  received                            state   damage
inbox        2  41s  other replicas         -  waits for node 00000000000000b2  a block
retain       0   9s  other replicas    3.1 MB                         receives   a file

inbox 2: start it
node 0000000000000002 (mq-2) has 3 replicas that cannot be used: `heraldmq cluster status --url` with its address says why
";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_damaged() {
        assert_eq!(said(json!([]), json!(0)), "");
        assert_eq!(said(json!([]), Value::Null), "");
    }
}

//! What sessions have lost, and who has held whom back: of one node or of all.

use admin::cluster::{NodeId, Reach};
use admin::page::{LARGEST_LIMIT, Missing};
use broker_core::Drops;
use inspection::{At, HolderRow, Limit, SessionDrops};

use super::rows::Own;
use crate::node::Node;

/// What sessions have lost on this node, those first that have lost something last.
pub(super) fn sessions_here(node: &Node, own: &Own, limit: Limit) -> Vec<SessionDrops> {
    let drops = Drops::by_session(&node.drops, rows(limit)).into_iter();
    let row = drops.map(|drops| SessionDrops {
        node: own.node,
        node_name: own.name.clone(),
        dropped: drops.total(),
        reasons: drops
            .counts
            .iter()
            .map(|(reason, count)| (reason.as_str().to_owned(), *count))
            .collect(),
        first: At::unix_ms(drops.first.0),
        last: At::unix_ms(drops.last.0),
        client_id: drops.client_id.into(),
    });
    row.collect()
}

/// Who has held whom back on this node, the latest first.
pub(super) fn holders_here(node: &Node, own: &Own, limit: Limit) -> Vec<HolderRow> {
    let pairs = node.slow.list(rows(limit)).into_iter();
    let row = pairs.map(|pair| HolderRow {
        node: own.node,
        node_name: own.name.clone(),
        subscriber: pair.subscriber.map(String::from),
        durable: pair.is_durable,
        publisher: pair.publisher.into(),
        times: pair.times as u64,
        last: At::unix_ms(pair.last.0),
    });
    row.collect()
}

pub(super) fn rows(limit: Limit) -> usize {
    usize::from(limit.0.min(LARGEST_LIMIT))
}

/// Which nodes are asked: the one that is named, or all.
pub(super) fn asked(nodes: &[(NodeId, String, Reach)], named: Option<NodeId>) -> Vec<NodeId> {
    let nodes = nodes.iter().map(|(node, ..)| *node);
    nodes
        .filter(|node| named.is_none_or(|named| named == *node))
        .collect()
}

pub(super) type Found<T> = (Vec<(NodeId, String, Vec<T>)>, Vec<Missing>);

/// The first rows of all nodes, the latest first.
pub(super) fn first<T>(
    (parts, partial): Found<T>,
    limit: u16,
    last: impl Fn(&T) -> &At,
) -> (Vec<T>, Vec<Missing>) {
    let rows = parts.into_iter().flat_map(|(.., rows)| rows);
    let mut rows: Vec<T> = rows.collect();
    rows.sort_by(|a, b| last(b).cmp(last(a)));
    rows.truncate(limit.into());
    (rows, partial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_all_nodes_come_first() {
        let part = |node: u64, times: &[u64]| {
            let rows = times.iter().map(|time| (node, At::unix_ms(*time)));
            (NodeId(node), String::new(), rows.collect::<Vec<_>>())
        };
        let found = (vec![part(1, &[90, 10]), part(2, &[50, 40])], Vec::new());
        let (rows, partial) = first(found, 3, |(_, last)| last);
        let of: Vec<u64> = rows.into_iter().map(|(node, _)| node).collect();
        assert_eq!((of, partial), (vec![1, 2, 2], Vec::new()));
    }
}

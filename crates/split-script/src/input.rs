//! What a script sees: the constants `shard`, `node` and `store`. Their names say the units.

use std::time::Duration;

use rhai::{Array, Dynamic, FLOAT, INT, Map, Scope};
use store::{Busyness, Candidate, NodeView, StoreView};

/// Threads, and other nodes, that a script is told of, at most.
pub(crate) const LISTED_MOST: usize = 128;

/// The names, for the compiler.
pub(crate) fn names() -> Scope<'static> {
    let mut scope = Scope::new();
    for name in ["node", "store", "shard"] {
        scope.push_constant_dynamic(name, Dynamic::UNIT);
    }
    scope
}

/// `node` and `store`.
pub(crate) fn push_second(scope: &mut Scope<'_>, node: &NodeView, store: &StoreView) {
    let threads = node.threads.iter().take(LISTED_MOST);
    let threads: Array = threads.map(|load| ms(*load)).collect();
    let nodes = node.led_elsewhere.iter().take(LISTED_MOST);
    let nodes: Array = nodes.map(|load| ms(*load)).collect();
    let of_node = map([
        ("threads_ms_per_second", threads.into()),
        ("led_ms_per_second", ms(node.led_here)),
        ("others_led_ms_per_second", nodes.into()),
        ("process_cpu", Dynamic::from_float(node.process_cpu)),
        ("reaches_all_members", node.has_all_members.into()),
    ]);
    scope.push_constant_dynamic("node", of_node);
    let options = &store.options;
    let of_store = map([
        ("name", store.store.name().into()),
        ("replicas", int(store.replicas as u64)),
        ("replicas_most", int(options.shards_most.get().into())),
        ("seconds_since_split", optional(store.since_split, seconds)),
        ("cooldown_seconds", seconds(options.cooldown)),
        ("operation_limit_ns", nanos(options.operation_limit)),
        ("density_most", int(options.density_most.0)),
        (
            "process_cpu_most",
            Dynamic::from_float(options.cpu_usage_most),
        ),
    ]);
    scope.push_constant_dynamic("store", of_store);
}

/// `shard`.
pub(crate) fn push_shard(scope: &mut Scope<'_>, shard: &Candidate, busyness: &Busyness) {
    let half = optional(busyness.half, |half| {
        map([
            ("at", int(half.at.0.into())),
            ("below_percent", int(half.below.0.into())),
        ])
    });
    let hottest = optional(busyness.hottest, |hot| {
        map([
            ("slot", int(hot.slot.0.into())),
            ("percent", int(hot.share.0.into())),
        ])
    });
    let operations = &busyness.operations;
    let of_shard = map([
        ("number", int(shard.id.1.into())),
        ("first_slot", int(busyness.range.first.into())),
        ("last_slot", int(busyness.range.last.into())),
        ("thread_place", int(shard.thread as u64)),
        ("busy_ms_per_second", ms(busyness.least)),
        ("cpu_ms_per_second", ms(busyness.least_cpu)),
        ("half", half),
        ("hottest", hottest),
        ("operations", int(operations.count.0)),
        ("entries", int(operations.entries.0)),
        ("operations_ns", nanos(operations.time)),
    ]);
    scope.push_constant_dynamic("shard", of_shard);
}

fn map<const N: usize>(fields: [(&str, Dynamic); N]) -> Dynamic {
    let fields = fields.into_iter();
    let map: Map = fields.map(|(name, value)| (name.into(), value)).collect();
    map.into()
}

fn optional<T>(value: Option<T>, of: impl FnOnce(T) -> Dynamic) -> Dynamic {
    value.map_or(Dynamic::UNIT, of)
}

fn int(value: u64) -> Dynamic {
    Dynamic::from_int(INT::try_from(value).unwrap_or(INT::MAX))
}

fn nanos(time: Duration) -> Dynamic {
    Dynamic::from_int(INT::try_from(time.as_nanos()).unwrap_or(INT::MAX))
}

fn ms(time: Duration) -> Dynamic {
    Dynamic::from_float(time.as_nanos() as FLOAT / 1e6)
}

fn seconds(time: Duration) -> Dynamic {
    Dynamic::from_float(time.as_secs_f64())
}

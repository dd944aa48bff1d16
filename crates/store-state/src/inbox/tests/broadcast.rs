//! One message for many sessions that sleep.

use super::*;

#[test]
fn a_broadcast_is_stored_once() {
    let sessions = 100_000;
    let payload = "x".repeat(10_000);
    let mut shard = Shard::new();
    for n in 0..sessions {
        shard.sleeper(&format!("client-{n}"), "news");
    }
    shard.checkpoint();
    let reply = shard.publish("news", &payload, QoS::AtLeastOnce);
    assert_eq!(reply, published(sessions, 0));
    // The message once, and for each session less than it takes to name it twice.
    let each = 400 * sessions as usize;
    assert!(shard.machine.unsaved_bytes() < each + 2 * payload.len());
    let changes = shard.checkpoint();
    let of = |kind: u8| {
        let rows = changes.entries.iter().filter(|(key, _)| key[0] == kind);
        let bytes = rows
            .clone()
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
        (rows.count(), bytes.sum::<usize>())
    };
    assert_eq!(of(b'B'), (1, 9 + 1 + 4 + 6 + payload.len() + 1));
    assert_eq!(of(b'C').0, 1);
    let (references, bytes) = of(b'Q');
    assert_eq!(references, sessions as usize);
    assert!(bytes <= 32 * references, "{bytes}");
    assert_eq!(of(b'I').0, sessions as usize);
    assert_eq!(shard.machine.unsaved_bytes(), 0);
    for n in 0..sessions {
        shard.acknowledge(&format!("client-{n}"), 1, 1, &[1]);
    }
    shard.checkpoint();
    let kinds = [b'Q', b'B', b'C'].map(|kind| shard.table.rows_of(kind));
    assert_eq!(kinds, [0, 0, 0]);
    assert_eq!(shard.machine.counts().messages, 0);
}

"""Large messages: what is kept in one piece reaches all replicas, or is refused, and stops nothing."""

from harness.raw import DISCONNECT
from staged.cluster import Cluster

DURABLE = {"session_expiry": 3600}
LARGE = 20 * 1024 * 1024

# For a machine that is busy with other things: some 20 MiB on six disks and links.
LONG_S = 60

SETTINGS = {
    "limits.connection.maximumPacketSize": 32_000_000,
    "limits.connection.bytesPerSecondIn": 0,
    "limits.connection.bytesPerSecondOut": 0,
    "limits.session.queueBytes": 64 * 1024 * 1024,
}


def test_a_message_of_20_mib_is_kept_by_all_replicas_and_stops_nobody(name):
    with Cluster(3, SETTINGS) as cluster:
        a, b, _ = cluster.nodes
        b.client(name, clean=False, props=DURABLE).subscribe(f"{name}/#", qos=1)
        b.client(name, clean=False, props=DURABLE, session_present=True).disconnect()
        payload = bytes(range(256)) * (LARGE // 256)
        with a.client() as sender:
            sender.published(f"{name}/large", payload, qos=1, retain=True, timeout=LONG_S)
            # Each shard goes on, at each node.
            for number, node in enumerate(cluster.nodes):
                with node.client(f"{name}{number}", clean=False, props=DURABLE) as other:
                    other.subscribe(f"{name}/small", qos=1)
            sender.published(f"{name}/small", b"small", qos=1, retain=True, timeout=LONG_S)
        # From another node, after the one that led has been lost: the followers have it.
        cluster.leader().kill()
        cluster.settled()
        left = cluster.running()[-1]
        with left.client(name, clean=False, props=DURABLE, session_present=True) as reader:
            got = reader.take(2, timeout=LONG_S)
            assert [(m.topic, len(m.payload)) for m in got] == [(f"{name}/large", LARGE), (f"{name}/small", 5)]
            assert got[0].payload == payload


def test_a_message_that_would_not_fit_between_nodes_is_refused_by_its_length(name):
    with Cluster(1, SETTINGS) as cluster:
        node = cluster.nodes[0]
        with node.client() as sender:
            sender.send(b"\x30\xff\xff\xff\x7f\x00\x01t")
            assert sender.expect(DISCONNECT).reason == 0x95

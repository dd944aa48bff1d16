"""A will never comes after its client is back (3.1.4): the older connection ends, its will is published or discarded, and
only then CONNACK goes. Clients have a retained will `offline N`, and publish a retained `online N` as soon as they have
CONNACK, N being the number of the connection. What of `offline N` comes after `online N+1` is late."""

import collections
import contextlib
import os
import threading
import time

import pytest
from harness.raw import CONNACK, PINGRESP, PING, PUBACK, PUBLISH, Raw, ack, connect, disconnect, packet, publish
from harness.wait import until
from staged.cluster import Cluster

DURABLE = {"session_expiry": 3600}
# Connections of each test.
ROUNDS = int(os.environ.get("HERALD_ROUNDS", "20"))
# Clients of a node that is killed, or stands still.
CLIENTS = 20
# How long a node stands still, in s: longer than others wait for its answers.
STILL_S = 9
# How long a client tries to come back, in s.
BACK_S = 60

pytestmark = pytest.mark.quick("P6")


class Watcher(threading.Thread):
    """Keeps what a client gets, by topic, and acknowledges it."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.got = client, collections.defaultdict(list)
        # Longer than a test may take.
        self.client.timeout = 600
        self.start()

    def run(self):
        while (packet := self.client.recv()).kind != PINGRESP:
            if packet.kind == PUBLISH:
                self.got[packet.topic].append(packet.payload.decode())
                if packet.qos:
                    self.client.send(ack(PUBACK, packet.pid))

    def end(self):
        """What the broker has sent before it answers is kept."""
        self.client.send(PING)
        self.join()
        self.client.close()

    def late(self):
        """What came after the client was back, by topic."""
        late = {}
        for topic, payloads in self.got.items():
            online = 0
            for payload in payloads:
                what, number = payload.split()
                if what == "online":
                    online = max(online, int(number))
                elif int(number) < online:
                    late.setdefault(topic, []).append((payload, f"online {online}"))
        return late


def watch(cluster, name, nodes=None):
    watchers = []
    for at, node in enumerate(nodes or cluster.nodes):
        for qos in (0, 1):
            client = node.client(f"{name}w{at}{qos}")
            client.subscribe(f"{name}/+", qos=qos)
            watchers.append(Watcher(client))
    keeper = (nodes or cluster.nodes)[0].client(f"{name}wd", clean=False, props=DURABLE)
    keeper.subscribe(f"{name}/+", qos=1)
    return [*watchers, Watcher(keeper)]


def opened(node, client, number, durable):
    """A connection of a client, which has CONNACK, and has said that it is online."""
    topic = client.replace("-", "/")
    fields = {"clean": not durable, "props": DURABLE if durable else None}
    will = {"topic": topic, "payload": f"offline {number}".encode(), "qos": 1, "retain": True}
    raw = Raw(host=node.mqtt[0], port=node.mqtt[1])
    raw.send(connect(client, will=will, **fields))
    connack = raw.recv()
    assert connack.kind == CONNACK, connack
    if connack.reason:
        raw.close()
        return None
    raw.send(publish(topic, f"online {number}".encode(), qos=1, pid=1, retain=True))
    return raw


def back(nodes, client, number, durable):
    """The same, at whichever node lets it in."""
    deadline = time.monotonic() + BACK_S
    while time.monotonic() < deadline:
        for node in nodes:
            with contextlib.suppress(OSError, EOFError, AssertionError):
                if raw := opened(node, client, number, durable):
                    return raw
    raise AssertionError(f"{client} cannot connect")


def answered(raw):
    while (packet := raw.recv()).kind != PUBACK:
        pass
    return packet


def judge(cluster, name, watchers, last, node=None):
    """`last`: by topic, the number of the last connection, which is open. Nothing is late, and the client is online."""
    until(lambda: all(set(last) <= set(w.got) for w in watchers), what="all topics")
    node = node or cluster.nodes[0]
    with node.client(f"{name}end") as client:
        for topic in last:
            client.published(f"{name}/end", b"online 0", qos=1)
    until(lambda: all(f"{name}/end" in w.got for w in watchers), what="the end")
    for watcher in watchers:
        watcher.end()
    assert [watcher.late() for watcher in watchers] == [{}] * len(watchers)
    with node.client(f"{name}r") as reader:
        reader.subscribe(*(topic for topic in last), qos=1)
        retained = {m.topic: m.payload.decode() for m in reader.take(len(last))}
    assert retained == {topic: f"online {number}" for topic, number in last.items()}


def fin(raw):
    raw.close()


def reset(raw):
    raw.reset()


def with_will(raw):
    raw.send(disconnect(reason=4))


def malformed(raw):
    raw.send(packet(0xF0 | 0x0F, b"\x00"))


def none(_):
    pass


@pytest.mark.parametrize("ends", [none, fin, reset, with_will, malformed], ids=lambda ends: ends.__name__)
@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
def test_at_another_node_a_client_is_back_after_its_will(shared, name, durable, ends):
    watchers = watch(shared, name)
    raw = None
    for number in range(1, ROUNDS + 1):
        later = opened(shared.nodes[number % len(shared.nodes)], f"{name}-1", number, durable)
        answered(later)
        if raw:
            raw.close()
        raw = later
        ends(raw)
    last = opened(shared.nodes[0], f"{name}-1", ROUNDS + 1, durable)
    answered(last)
    judge(shared, name, watchers, {f"{name}/1": ROUNDS + 1})
    last.close()


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
def test_at_the_same_node_a_client_is_back_after_its_will(shared, name, durable):
    watchers = watch(shared, name)
    node = shared.nodes[0]
    raw = None
    for number in range(1, ROUNDS + 1):
        later = opened(node, f"{name}-1", number, durable)
        answered(later)
        if raw:
            raw.close()
        raw = later
        if number % 2:
            raw.reset()
    last = opened(node, f"{name}-1", ROUNDS + 1, durable)
    answered(last)
    judge(shared, name, watchers, {f"{name}/1": ROUNDS + 1})
    last.close()


def spread_back(cluster, name, durable, out):
    """Clients of a node that is `out` of service come back at others at once."""
    others = [node for node in cluster.nodes if node is not out]
    connections = {}

    def come_back(n):
        nodes = others[n % 2 :] + others[: n % 2]
        connections[n] = back(nodes, f"{name}-{n}", 2, durable)
        answered(connections[n])

    threads = [threading.Thread(target=come_back, args=(n,), daemon=True) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(connections) == CLIENTS
    return connections


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
@pytest.mark.parametrize("fault", ["killed", "still"])
def test_clients_of_a_node_that_is_out_are_back_after_their_wills(name, durable, fault):
    with Cluster(3) as cluster:
        out = cluster.nodes[1]
        watchers = watch(cluster, name, [n for n in cluster.nodes if n is not out])
        before = [opened(out, f"{name}-{n}", 1, durable) for n in range(CLIENTS)]
        for raw in before:
            answered(raw)
        if fault == "killed":
            out.kill()
        else:
            out.pause()
            resume = threading.Timer(STILL_S, out.resume)
            resume.start()
        connections = spread_back(cluster, name, durable, out)
        if fault == "killed":
            out.start()
        else:
            resume.join()
        cluster.settled()
        judge(cluster, name, watchers, {f"{name}/{n}": 2 for n in range(CLIENTS)})
        for raw in connections.values():
            raw.close()

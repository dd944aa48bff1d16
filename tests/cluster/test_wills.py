"""Wills in a cluster (P6): each is published once, whoever leads the shard that keeps it, and none that its client
has discarded."""

import collections
import contextlib
import os
import threading

import pytest
from harness.raw import PING, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, ack
from harness.wait import until
from staged.cluster import Cluster

DURABLE = {"session_expiry": 3600}
ROUNDS = int(os.environ.get("HERALD_ROUNDS", "6"))
# Clients that die at the same time, on each node.
AT_ONCE = 100
# How long their wills are waited for, of which each comes to many.
WILLS_S = 180


@pytest.fixture(scope="module")
def cluster():
    with Cluster(3) as cluster:
        yield cluster


class Watcher(threading.Thread):
    """Counts what a client gets."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.got = client, collections.Counter()
        # Longer than a test may take.
        self.client.timeout = 600
        self.start()

    def run(self):
        while (packet := self.client.recv()).kind != PINGRESP:
            self.take(packet)

    def take(self, packet):
        if packet.kind == PUBLISH:
            self.got[packet.payload.decode()] += 1
            if packet.qos:
                self.client.send(ack(PUBACK if packet.qos == 1 else PUBREC, packet.pid))
        elif packet.kind == PUBREL:
            self.client.send(ack(PUBCOMP, packet.pid))

    def end(self):
        """What the broker has sent before it answers has been counted."""
        self.client.send(PING)
        self.join()
        self.client.close()


def session_shards(cluster):
    """The node that leads each session shard, as far as one does."""
    nodes = {node.id: node for node in cluster.nodes}
    shards = [s for s in cluster.nodes[0].status()["shards"] if s["store"] == "session"]
    return {shard["shard"]: nodes.get(shard["leader"]) for shard in shards}


class Mover(threading.Thread):
    """Has the session shards led by one node after the other."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.moves, self.ends = cluster, 0, False
        self.start()

    def run(self):
        nodes = self.cluster.nodes
        while not self.ends:
            for shard, leader in session_shards(self.cluster).items():
                if leader:
                    wanted = nodes[(nodes.index(leader) + 1) % len(nodes)]
                    # Refused while nobody leads, because balancing has just moved it.
                    with contextlib.suppress(AssertionError):
                        leader.command("transfer-leader", "session", str(shard), wanted.id)
                        self.moves += 1

    def end(self):
        self.ends = True
        self.join()


def die(cluster, name, number, **fields):
    """Clients of all nodes are lost at once. Returns the payloads of their wills."""
    clients, wills = [], []
    for at, node in enumerate(cluster.nodes):
        for n in range(AT_ONCE):
            payload = f"{number}/{at}/{n}"
            will = {"topic": f"{name}/will/{payload}", "payload": payload.encode(), "qos": n % 3, **fields}
            clients.append(node.client(f"{name}{payload}", will=will))
            wills.append(payload)
    for client in clients:
        client.reset()
    return wills


@pytest.mark.quick("P6")
def test_a_will_is_published_once_while_its_shard_changes_its_leader(cluster, name):
    watchers = []
    for at, node in enumerate(cluster.nodes):
        for qos in range(3):
            client = node.client(f"{name}w{at}{qos}")
            client.subscribe(f"{name}/#", qos=qos)
            watchers.append(Watcher(client))
    members = [node.client(f"{name}m{at}") for at, node in enumerate(cluster.nodes)]
    for member in members:
        member.subscribe(f"$share/{name}/{name}/#", qos=1)
    members = [Watcher(member) for member in members]
    # Somebody who has to have them stored, so that publishing takes a while.
    cluster.nodes[0].client(f"{name}d", clean=False, props=DURABLE).subscribe(f"{name}/#", qos=1)
    wills = []
    for number in range(ROUNDS):
        mover = Mover(cluster)
        wills += die(cluster, name, number)
        until(lambda: mover.moves > 2, WILLS_S, "moves")
        mover.end()
        until(lambda: all(set(wills) <= set(w.got) for w in watchers), WILLS_S, "all wills")
        wills += die(cluster, name, f"{number}last")
        until(lambda: all(set(wills) <= set(w.got) for w in watchers), WILLS_S, "all wills")
    # A group may get them later than others.
    until(lambda: set(wills) <= set().union(*(m.got for m in members)), WILLS_S, "all wills of the group")
    for watcher in watchers + members:
        watcher.end()
    doubled = [{will: n for will, n in watcher.got.items() if n > 1} for watcher in watchers]
    assert doubled == [{}] * len(watchers)
    shared = sum((member.got for member in members), collections.Counter())
    assert {will: n for will, n in shared.items() if n > 1} == {}
    assert set(shared) == set(wills)


def test_a_retained_will_replaces_nothing_that_came_after_it(cluster, name):
    watcher = cluster.nodes[0].client(f"{name}w")
    watcher.subscribe(f"{name}/#", qos=1)
    watcher = Watcher(watcher)
    wills = []
    for number in range(ROUNDS):
        mover = Mover(cluster)
        wills += die(cluster, name, number, retain=True)
        until(lambda: set(wills) <= set(watcher.got), WILLS_S, "all wills")
        with cluster.nodes[number % 3].client() as client:
            for will in wills[-3 * AT_ONCE :]:
                client.published(f"{name}/will/{will}", f"back {will}".encode(), qos=1, retain=True)
        until(lambda: mover.moves > 2, WILLS_S, "moves")
        mover.end()
    watcher.end()
    with cluster.nodes[1].client() as last:
        last.subscribe(f"{name}/will/#", qos=1)
        retained = {message.payload.decode() for message in last.take(len(wills))}
    assert retained == {f"back {will}" for will in wills}


def test_a_will_that_its_client_has_discarded_is_not_published(cluster, name):
    with cluster.nodes[2].client(f"{name}w") as watcher:
        watcher.subscribe(f"{name}/#", qos=1)
        for n in range(100 * ROUNDS):
            here, there = cluster.nodes[n % 3], cluster.nodes[(n + 1) % 3]
            durable = {"clean": False, "props": DURABLE} if n % 2 else {}
            will = {"topic": f"{name}/{n}", "payload": b"gone", "qos": 1}
            with here.client(f"{name}{n}", will=will, **durable) as leaving:
                leaving.send(b"\xe0\x00")
                with there.client(f"{name}{n}", **durable) as client:
                    client.ping()
                    client.disconnect()
        with cluster.nodes[0].client() as last:
            last.published(f"{name}/end", b"end", qos=1)
        seen = [message.topic for message in watcher.until(b"end")]
        assert seen == []


def test_a_will_whose_publication_failed_is_published_when_the_shard_is_back(name):
    with Cluster(3, {"inbox_store_replica_voter_count": 1}) as cluster:
        keeper, other = cluster.leader("inbox"), cluster.follower("inbox")
        group = f"$share/{name}/{name}"
        with other.client(f"{name}s", clean=False, props=DURABLE) as member:
            member.subscribe(group, qos=1)
        dying = other.client(f"{name}w", will={"topic": name, "payload": b"gone", "qos": 1})
        keeper.kill()
        dying.reset()

        def waiting():
            return sum(node.broker.metric("heraldmq_messages_awaiting_members") for node in cluster.running())

        until(waiting, what="a will that waits for members of a group")
        until(lambda: not waiting(), what="that nobody waits for them any more")
        keeper.start()
        cluster.settled()
        with other.client(f"{name}s", clean=False, props=DURABLE, session_present=True) as member:
            assert member.message().payload == b"gone"
            other.client().published(name, b"end", qos=1)
            assert member.until(b"end") == []

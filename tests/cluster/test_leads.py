"""Leads go to nodes that can serve everybody (P9): one that does not reach all nodes that others reach, one whose
links do not hold, and one whose disk is full, let others lead."""

import contextlib
import os
import subprocess

import pytest
from harness import raw
from harness.raw import PUBACK
from harness.wait import until
from staged.cluster import Cluster
from staged.network import may_isolate

DURABLE = {"session_expiry": 3600}
# How long a lead is waited for. Balancing alone moves none away from a node that others reach.
MOVE_S = 120
# Times that leads are balanced.
ROUNDS = 4


@pytest.fixture
def cluster():
    with Cluster(3) as cluster:
        yield cluster


def leads(node) -> set:
    """The nodes that lead shards, as a node says."""
    return {shard["leader"] for shard in node.status()["shards"]}


def links(node) -> int:
    """Other nodes that a node can send to."""
    return node.broker.metric("heraldmq_links_connected", channel="data")


def stored(node, name) -> bool:
    """Whether a durable session of this node gets a message that is published here."""
    with node.client(f"{name}s", clean=False, props=DURABLE) as client:
        client.subscribe(name, qos=1)
        client.published(name, b"x", qos=1)
        return client.message().payload == b"x"


def gives_all(giver, taker):
    """All that one node leads is led by another for a moment."""

    def is_given():
        for shard in giver.status()["shards"]:
            if shard["leader"] == giver.id:
                # Refused while nobody leads, because balancing has just moved it.
                with contextlib.suppress(AssertionError):
                    giver.command("transfer-leader", shard["store"], str(shard["shard"]), taker.id)
        return leads(taker) == {taker.id}

    until(is_given, MOVE_S, "one node to lead everything")


def cut(cluster, one, other):
    cluster.network.cut(one.place, other.place)
    cluster.network.cut(other.place, one.place)


def serves(node, name):
    def tried():
        try:
            return stored(node, name)
        except (AssertionError, OSError):
            return False

    return tried


def test_a_leader_and_a_follower_do_not_reach_each_other(cluster, name):
    middle, one, two = cluster.nodes
    # Both ends lead something, so that the cut is between a leader and a follower for both.
    ends = {one.id, two.id}
    until(lambda: ends <= leads(middle), MOVE_S, "both ends to lead")
    cut(cluster, one, two)
    until(lambda: leads(middle) == {middle.id}, MOVE_S, "the node that reaches both to lead")
    for end in (one, two):
        until(serves(end, f"{name}{end}"), MOVE_S, "durable service")
    cluster.network.heal()
    cluster.spread()


def test_a_leader_whose_link_does_not_hold(cluster, name):
    victim = cluster.leader("inbox")
    others = [node for node in cluster.nodes if node is not victim]
    ident = victim.id
    for _ in range(4):
        cluster.cut_off(victim)
        until(lambda: links(victim) == 0, MOVE_S, "the links to break")
        cluster.network.heal()
        until(lambda: links(victim) == 2, MOVE_S, "the links to be back")
    until(lambda: ident not in leads(others[0]), MOVE_S, "others to lead")
    until(lambda: stored(others[0], name), MOVE_S, "durable service")
    # Without the memory of its lost links, balancing would give leads back: whenever it has to find somebody for those
    # of a node that has all of them, it finds the third one.
    giver, taker = others
    for _ in range(ROUNDS):
        gives_all(giver, taker)
        until(lambda: giver.id in leads(taker), MOVE_S, "leads to be balanced")
        assert ident not in leads(taker)


@pytest.mark.skipif(not may_isolate(), reason="only root can mount a small disk")
def test_a_leader_with_a_full_disk_lets_others_lead(name):
    with Cluster(3, {"limits.connection.bytesPerSecondIn": 0}) as cluster:
        victim = cluster.leader("inbox")
        ident = victim.id
        with small_disk(victim, cluster):
            with cluster.nodes[0].client(f"{name}s", clean=False, props=DURABLE) as reader:
                reader.subscribe(name, qos=1)
            cluster.spread()
            full(victim)
            others = [node for node in cluster.nodes if node is not victim]

            def others_lead():
                # Its disk is found to be full when there is more to write than its log has space for already.
                with others[0].client() as publisher:
                    for _ in range(16):
                        publisher.answer(PUBACK, publisher.publish(name, b"x" * (1 << 18), qos=1))
                return ident not in leads(others[0])

            until(others_lead, MOVE_S, "others to lead")
            for node in cluster.nodes:
                until(serves(node, f"{name}{node}"), MOVE_S, "durable service")
            (victim.data_dir / "filler").unlink()
            cluster.spread()


class small_disk:
    """The node's folder is a file system of its own while this lasts; it is begun anew there."""

    def __init__(self, node, cluster):
        self.node, self.cluster = node, cluster

    def __enter__(self):
        node = self.node
        node.stop()
        saved = node.folder / "saved"
        node.data_dir.rename(saved)
        node.data_dir.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m,mode=700", "tmpfs", node.data_dir], check=True)
        subprocess.run(["cp", "-a", f"{saved}/.", node.data_dir], check=True)
        node.start()
        self.cluster.settled()

    def __exit__(self, *_):
        self.node.kill()
        subprocess.run(["umount", self.node.data_dir], check=True)


def full(node):
    """Nothing is free on the node's disk."""
    with open(node.data_dir / "filler", "wb", buffering=0) as filler:
        while True:
            try:
                filler.write(bytes(1 << 16))
            except OSError:
                break
    disk = os.statvfs(node.data_dir)
    assert disk.f_bavail * disk.f_frsize < 1 << 16

"""Shards are split by hand in a cluster (P3, P4, P5, P6, P12): under a load that uses everything nothing is lost, repeated or
refused, also when nodes are killed at any moment.

`HERALD_SPLITS` is how often each store is split, `HERALD_SPLIT_SEED` draws where.
"""

import contextlib
import os
import random
import threading
import time

import pytest
from harness.wait import until
from staged.cluster import STORES, Cluster
from staged.faults import is_back
from staged.mixed import SETTINGS, MixedLoad
from verify import checks

SPLITS = int(os.environ.get("HERALD_SPLITS", "4"))
SEED = int(os.environ.get("HERALD_SPLIT_SEED", "1"))
# For processes to start, and everything to arrive.
AROUND_S = 300
# Messages that come from one split of a store to the next.
BETWEEN = 50
# How long a split is asked for, while nodes come and go.
SPLIT_S = 60


@pytest.fixture
def cluster():
    with Cluster(3, SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def load(cluster, name):
    # What is published again may go to another member of a shared group, whose inbox is in another shard (README).
    with MixedLoad(cluster.nodes, name) as load:
        load.begin()
        load.history.members_are_apart = True
        load.history.calm = time.monotonic()
        yield load


def shards(node, store) -> dict | None:
    """The shards of a store as a node knows them."""
    status = node.status()
    return status and {shard["shard"]: shard for shard in status["shards"] if shard["store"] == store}


def are_whole(nodes, store, count) -> bool:
    """Whether all nodes know the same shards, which cover all slots, with three voters and a leader each."""
    views = [shards(node, store) for node in nodes]
    if not all(views):
        return False
    places = [sorted((s["first"], s["last"], s["shard"]) for s in view.values()) for view in views]
    if any(place != places[0] for place in places) or len(places[0]) != count:
        return False
    ends = [0] + [last + 1 for _, last, _ in places[0]]
    assert [first for first, _, _ in places[0]] == ends[:-1] and ends[-1] == 65_536, places[0]
    return all(s["leader"] and len(s["voters"]) == 3 and not s["learners"] for view in views for s in view.values())


class Splits(threading.Thread):
    """Has a store split again and again, at random slots."""

    def __init__(self, cluster, load, store, count):
        super().__init__(daemon=True)
        self.receipts = load.history.receipts
        self.cluster, self.store, self.count, self.failure, self.done = cluster, store, count, None, []
        self.random = random.Random(f"{SEED} {store}")
        self.start()

    def run(self):
        try:
            for _ in range(self.count):
                at = self.random.randrange(1, 65_535)
                enough = len(self.receipts) + BETWEEN
                until(lambda: len(self.receipts) >= enough, SPLIT_S, "messages")
                until(lambda: self.is_split(at), SPLIT_S, f"the {self.store} store to be split at {at}")
                self.done.append(at)
        except BaseException as error:  # noqa: BLE001: the test tells it
            self.failure = error

    def is_split(self, at) -> bool:
        """Asks a node until the shard is there: an answer may be lost with the node."""
        node = self.random.choice(self.cluster.running())
        known = shards(node, self.store)
        if not known:
            return False
        if at in known:
            return True
        parent = max(number for number, shard in known.items() if shard["first"] < at)
        with contextlib.suppress(AssertionError, OSError):
            node.command("split", self.store, str(parent), "--at", str(at))
        return at in (shards(node, self.store) or ())


def goes_on(load, thread, timeout):
    load.until(lambda: not thread.is_alive(), timeout, f"the end of {thread}")
    if thread.failure:
        raise thread.failure


def tell(load, what, begin, end):
    found = checks.gaps(load.history, begin, end)
    worst = max(found, key=found.get, default="nobody")
    print(f"gaps {what}: {len(found)} publishers, {checks.distribution(found.values())} ({worst})", flush=True)


@pytest.mark.timeout(AROUND_S + 10 * SPLITS)
def test_stores_are_split_under_load(cluster, load):
    begin = time.monotonic()
    for thread in [Splits(cluster, load, store, SPLITS) for store in STORES]:
        goes_on(load, thread, AROUND_S / 2 + 10 * SPLITS)
    end = time.monotonic()
    print(f"{SPLITS} splits of each store in {end - begin:.0f} s")
    for store in STORES:
        load.until(lambda store=store: are_whole(cluster.nodes, store, SPLITS + 1), 60, f"shards of the {store} store")
    load.go_on()
    tell(load, "while stores are split", begin, end)
    load.finish(60)


@pytest.mark.timeout(AROUND_S + 20 * SPLITS)
def test_nodes_are_killed_while_stores_are_split(cluster, load):
    """Each node in turn, while splits go on."""
    splits = [Splits(cluster, load, store, SPLITS) for store in STORES]
    for round in range(3):
        node = cluster.nodes[round]
        asked = sum(len(thread.done) for thread in splits)
        over = lambda asked=asked: sum(len(t.done) for t in splits) > asked or not any(t.is_alive() for t in splits)
        load.until(over, SPLIT_S, "another split")
        load.history.deaths.append(time.monotonic())
        node.kill()
        load.run_for(1.5)
        node.start(ready=False, seeds=[other.endpoint for other in cluster.nodes if other is not node])
        load.until(lambda node=node: is_back(node), 60, "the node to be back")
        load.history.deaths.append(time.monotonic())
    for thread in splits:
        goes_on(load, thread, AROUND_S / 2 + 20 * SPLITS)
    for store in STORES:
        load.until(lambda store=store: are_whole(cluster.nodes, store, SPLITS + 1), 120, f"shards of the {store} store")
    load.go_on()
    load.finish(90)

"""A cluster of the program `HERALDMQ_BEFORE`, whose nodes are upgraded one after the other under load."""

import signal

import pytest
from harness.broker import BEFORE, BINARY
from staged.cluster import Cluster
from staged.load import FOREVER, Load
from test_api import ask

pytestmark = [
    pytest.mark.skipif(not BEFORE, reason="HERALDMQ_BEFORE names no program of an earlier version"),
    pytest.mark.timeout(400),
]

# Bytes of client identifiers.
LENGTHS = (0, 36, 41, 60_000)
# For the replicas of a debug build to be in step.
STEP_S = 120


def say_nothing_wrong(cluster):
    """No node has met what it cannot read, or lost a shard."""
    said = [
        f"{process.host}: {line}"
        for process in cluster.processes
        for line in process.log_lines
        if line.get("level") == "ERROR"
    ]
    assert not said, said[:5]


def upgrade(node):
    node.binary = BINARY
    node.start(ready=False)


def in_step(cluster) -> bool:
    return cluster._is_settled(cluster.nodes) and cluster._is_spread()


def test_nodes_are_upgraded_one_after_the_other(name):
    with Cluster(3, binary=BEFORE) as cluster:
        with Load(cluster.nodes, name, rate=10, lengths=LENGTHS) as load:
            load.begin()
            for node in cluster.nodes:
                node.broker.signal(signal.SIGTERM)
                load.until(lambda node=node: node.broker.process.poll() is not None, STEP_S, "the end of the process")
                upgrade(node)
                load.until(lambda: in_step(cluster), STEP_S, lambda: f"replicas: {cluster.views(cluster.nodes)}")
                load.go_on()
                load.pause()
                say_nothing_wrong(cluster)
            for node in cluster.nodes:
                node.kill()
            for node in cluster.nodes:
                node.start(ready=False)
            load.until(lambda: in_step(cluster), STEP_S, lambda: f"replicas: {cluster.views(cluster.nodes)}")
            load.go_on()
            load.finish()
        say_nothing_wrong(cluster)


@pytest.mark.parametrize("is_paused", [True, False], ids=["paused", "down"])
def test_a_node_of_the_version_before_follows_what_it_has_missed(is_paused, name):
    """The second node has not met the third since its upgrade: what a request calls a session, the third must
    understand."""
    with Cluster(3, binary=BEFORE) as cluster:
        first, second, last = cluster.nodes
        topics = [f"{name}/{length}" for length in LENGTHS]
        identifiers = dict(zip(topics, [f"{name}{n}".ljust(length, "x") for n, length in enumerate(LENGTHS)]))

        def exchange(node, is_new=False):
            for topic, identifier in identifiers.items():
                with node.client(identifier, clean=False, props=FOREVER, session_present=not is_new) as client:
                    client.subscribe(topic, qos=2)
                    client.published(topic, b"first", qos=2)
                    client.published(topic, b"second", qos=1)
                    assert [m.payload for m in client.take(2)] == [b"first", b"second"]
                    client.disconnect()

        exchange(second, is_new=True)
        if not is_paused:
            last.kill()
        first.stop()
        upgrade(first)
        cluster.settled()
        if is_paused:
            last.pause()
        second.stop()
        upgrade(second)
        cluster.settled()
        exchange(second)
        last.resume() if is_paused else last.start(ready=False)
        cluster.settled(timeout=STEP_S)
        # The majority needs the third from now on.
        first.kill()
        cluster.settled(timeout=STEP_S)
        exchange(second)
        upgrade(first)
        last.stop()
        upgrade(last)
        cluster.settled(timeout=STEP_S)
        exchange(last)
        say_nothing_wrong(cluster)


def test_a_queue_is_emptied_when_all_nodes_can_read_that_and_not_before(name):
    path = f"/api/v1/sessions/{name}/queue"
    with Cluster(3, binary=BEFORE) as cluster:
        first, *others = cluster.nodes
        with first.client(name, props=FOREVER) as away, first.client(f"{name}-publisher") as publisher:
            away.subscribe(f"{name}/#", qos=1)
            away.disconnect()
            for number in range(3):
                publisher.published(f"{name}/{number}", b"1234", qos=1)
        for node in cluster.nodes:
            # Two that cannot read it are a majority of each shard.
            if node is not first:
                status, problem = ask(first, path, "DELETE")
                assert status == 409 and "cannot empty queues" in problem["detail"], problem
            node.stop()
            upgrade(node)
            cluster.settled(timeout=STEP_S)
            say_nothing_wrong(cluster)
        assert len(ask(others[0], path)[1]["items"]) == 3
        assert ask(first, path, "DELETE") == (200, {"removed": 3, "bytes": 12, "complete": True})
        cluster.settled(timeout=STEP_S)
        say_nothing_wrong(cluster)

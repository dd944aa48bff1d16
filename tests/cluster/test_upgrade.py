"""A cluster of the program `HERALDMQ_BEFORE`, whose nodes are upgraded one after the other under load."""

import pytest
from harness.broker import BEFORE, BINARY
from staged.cluster import Cluster
from staged.load import FOREVER, Load
from staged.upgrade import STEP_S, change, finish, in_step, level_of, raised, say_nothing_wrong, upgrade
from test_api import ask

pytestmark = [
    pytest.mark.skipif(not BEFORE, reason="HERALDMQ_BEFORE names no program of an earlier version"),
    pytest.mark.timeout(400),
]

# Bytes of client identifiers.
LENGTHS = (0, 36, 41, 60_000)


def test_nodes_are_upgraded_one_after_the_other(name):
    with Cluster(3, binary=BEFORE) as cluster:
        with Load(cluster.nodes, name, rate=10, lengths=LENGTHS) as load:
            load.begin()
            for node in cluster.nodes:
                change(load, cluster, node, BINARY)
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
    everything = {"removed": 3, "bytes": 12, "complete": True}
    with Cluster(3, binary=BEFORE) as cluster:
        first, *others = cluster.nodes

        def fill():
            with first.client(name, props=FOREVER) as away, first.client(f"{name}-publisher") as publisher:
                away.subscribe(f"{name}/#", qos=1)
                away.disconnect()
                for number in range(3):
                    publisher.published(f"{name}/{number}", b"1234", qos=1)

        def is_refused() -> bool:
            status, problem = ask(first, path, "DELETE")
            return status == 409 and "cannot empty queues" in problem["detail"]

        fill()
        for node in cluster.nodes:
            # Two that cannot read it are a majority of each shard.
            if node is not first and not can_trim(first):
                assert is_refused()
            node.stop()
            upgrade(node)
            cluster.settled(timeout=STEP_S)
            say_nothing_wrong(cluster)
        assert len(ask(others[0], path)[1]["items"]) == 3
        if not can_trim(first):
            # One of them may go back.
            assert ask(first, path, "DELETE")[0] == 409
            split = first.asked("split", "inbox", "0")
            assert split.returncode == 1 and "the upgrade of the cluster is not finished" in split.stderr, split
            assert len(ask(others[0], path)[1]["items"]) == 3
            assert finish(first).returncode == 0
            raised(cluster)
        assert ask(first, path, "DELETE") == (200, everything)
        cluster.settled(timeout=STEP_S)
        say_nothing_wrong(cluster)


def can_trim(node) -> bool:
    """Whether the program before empties queues, too."""
    return level_of(node.data_dir) >= 3

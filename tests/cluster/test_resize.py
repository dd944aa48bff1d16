"""Nodes with numbers in their names: a cluster made smaller, and a drain that is waited for."""

import pytest
from harness.raw import DISCONNECT
from harness.wait import until
from staged.cluster import Cluster

DURABLE = {"session_expiry": 3600}
USE_ANOTHER_SERVER = 0x9C


class Numbered(Cluster):
    """Its nodes are called mq-0, mq-1 and so on."""

    def add(self):
        node = super().add()
        node.sets = {**node.sets, "clusterConfig.nodeName": f"mq-{len(self.nodes) - 1}"}
        return node


@pytest.fixture
def cluster():
    with Numbered(3, {"clusterConfig.drainClientsPerSecond": 1000}) as cluster:
        yield cluster


def members(node) -> set[str]:
    return {member["node"] for member in node.status()["nodes"]}


def failed(node, *args) -> str:
    """What a command says that fails."""
    done = node.asked(*args)
    assert done.returncode == 1, done.stdout
    return done.stderr


@pytest.mark.quick
def test_nodes_with_a_number_from_the_size_on_leave(cluster, name):
    first, second, third = cluster.nodes
    identifiers = [node.id for node in cluster.nodes]
    client = third.client(name, clean=False, props=DURABLE)
    client.subscribe(name, qos=1)
    assert "nothing to do" in first.command("resize", "3", "--wait")

    # It says who would leave, the highest first, and nothing happens.
    judged = first.command("resize", "1", "--dry-run").splitlines()
    assert [line.split(":")[0] for line in judged] == ["possible"] * 2
    assert [identifier in line for identifier, line in zip(reversed(identifiers), judged)] == [True, True]
    assert "1 client" in judged[0] and "(mq-2)" in judged[0]
    assert {member["state"] for member in first.status()["nodes"]} == {"up"}

    # A node that is down cannot leave, and then none does.
    second.kill()
    until(lambda: {m["reach"] for m in first.status()["nodes"] if m["node"] == identifiers[1]} == {"down"}, what="down")
    said = failed(first, "resize", "1", "--wait", "60")
    assert "(mq-1) is down" in said and "evict" in said
    assert third.status()["node"] == identifiers[2]
    assert {m["state"] for m in first.status()["nodes"] if m["node"] == identifiers[2]} == {"up"}
    second.start()
    cluster.settled()

    printed = first.command("resize", "2", "--wait", "55")
    assert f"left: node {identifiers[2]} (mq-2)" in printed
    client.expect(DISCONNECT, reason=USE_ANOTHER_SERVER)
    assert third.broker.wait() == 0
    assert members(first) == set(identifiers[:2])
    with second.client(name, clean=False, props=DURABLE, session_present=True) as back, first.client() as sender:
        sender.published(name, b"there", qos=1)
        assert back.message().payload == b"there"
    assert "nothing to do" in first.command("resize", "2", "--wait")


def test_several_nodes_leave_at_once(cluster):
    first, *rest = cluster.nodes
    printed = first.command("resize", "1", "--wait", "55").splitlines()
    assert [line.split("(")[1].split(")")[0] for line in printed[:2]] == ["mq-2", "mq-1"]
    assert [node.broker.wait() for node in rest] == [0, 0]
    assert members(first) == {first.id}


def test_nodes_without_numbers_are_not_resized():
    with Cluster(2, {"clusterConfig.nodeName": "same"}) as cluster:
        assert "no node has a name that ends in a number" in failed(cluster.nodes[0], "resize", "1")


@pytest.mark.quick
def test_a_drain_is_waited_for(cluster, name):
    asked, drained, _ = cluster.nodes
    identifier = drained.id
    with drained.client(name) as client:
        printed = asked.command("drain", "mq-1", "--wait", "55")
        assert f"done: node {identifier} (mq-1) is empty" in printed
        client.expect(DISCONNECT, reason=USE_ANOTHER_SERVER)
    status = asked.status()
    assert identifier not in {shard["leader"] for shard in status["shards"]}
    assert drained.command("drain", "--wait", "55").endswith("is empty\n")


def test_a_drain_that_takes_too_long_says_what_is_left():
    with Numbered(2, {"clusterConfig.drainClientsPerSecond": 1}) as cluster:
        _, drained = cluster.nodes
        clients = [drained.client(f"c{number}", clean=False, props=DURABLE) for number in range(30)]
        said = failed(drained, "drain", "--wait", "1")
        assert "after 1 s: it still has" in said and "clients" in said
        for client in clients:
            client.close()

"""Nodes with numbers in their names: a cluster made smaller, nodes that leave and come back, and a drain that is waited for."""

import socket
import urllib.error
import urllib.request

import pytest
from harness.raw import DISCONNECT
from harness.wait import DEADLINE_S, until
from staged.cluster import HTTP, Cluster

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
@pytest.mark.parametrize("bootstrap", [False, True])
def test_a_node_that_left_comes_back_as_a_new_one(cluster, name, bootstrap):
    first, second, third = cluster.nodes
    # With `bootstrap` it is the founder: it does not found again.
    leaver = first if bootstrap else third
    asked = second
    (leaver.data_dir / "notes.txt").write_text("a person's")
    identifiers = {leaver.id}
    for round in range(2):
        with leaver.client(name, clean=False, props=DURABLE) as client:
            client.subscribe(name, qos=1)
        asked.command("leave", leaver.id)
        assert leaver.broker.wait() == 0
        assert (leaver.data_dir / "left").exists()
        leaver.start(bootstrap=bootstrap, seeds=[node.endpoint for node in cluster.nodes])
        cluster.settled()
        assert leaver.id not in identifiers
        identifiers.add(leaver.id)
        assert members(asked) == {node.id for node in cluster.nodes}
        assert not (leaver.data_dir / "left").exists()
        assert leaver.broker.find("the data folder was emptied: its node had left the cluster")
        # Its sessions went to others meanwhile.
        leaver.client(name, clean=False, props=DURABLE, session_present=True).close()
    assert (leaver.data_dir / "notes.txt").read_text() == "a person's"
    # It is a member like others from now on.
    before = leaver.id
    leaver.stop()
    leaver.start(bootstrap=bootstrap)
    cluster.settled()
    assert leaver.id == before


def test_a_node_that_left_founds_no_cluster(cluster):
    first, second, third = cluster.nodes
    second.command("leave", first.id)
    assert first.broker.wait() == 0
    second.kill()
    third.kill()
    # Nobody answers: it waits, and so it does after another start.
    for _ in range(2):
        first.start(bootstrap=True, seeds=[second.endpoint], ready=False)
        until(lambda: first.broker.find("waits for a member of the cluster to join"), what="that it waits")
        assert not first.broker.find("a new cluster begins")
        assert (first.data_dir / "left").exists()
        first.kill()
    first.start(bootstrap=True, seeds=[second.endpoint], ready=False)
    second.start(ready=False)
    third.start(ready=False, seeds=[second.endpoint])
    cluster.settled()
    assert not (first.data_dir / "left").exists()


def test_a_node_can_wait_after_it_has_left():
    with Numbered(2, {"clusterConfig.afterLeave": "wait"}) as cluster:
        keeper, leaver = cluster.nodes
        before = leaver.id
        keeper.command("leave", before)

        def answer(path) -> int | None:
            request = urllib.request.Request(f"http://{leaver.place.address}:{HTTP}{path}")
            try:
                return urllib.request.urlopen(request, timeout=DEADLINE_S).status
            except urllib.error.HTTPError as error:
                return error.code
            except OSError:
                return None

        until(lambda: leaver.broker.find("this node has left its cluster and waits to be stopped"), what="that it waits")
        until(lambda: (answer("/healthz"), answer("/readyz")) == (200, 503), what="answers")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(leaver.mqtt, DEADLINE_S)
        assert leaver.broker.process.poll() is None
        assert members(keeper) == {keeper.id}
        leaver.stop()
        leaver.start()
        cluster.settled()
        assert leaver.id != before


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

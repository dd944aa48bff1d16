"""Nodes are added and taken away under load."""

from harness import raw
from harness.raw import DISCONNECT
from harness.wait import until
from staged.cluster import Cluster
from staged.load import Load

DURABLE = {"session_expiry": 3600}

# Time for replicas to move.
MOVE_S = 120


def voters(node) -> set:
    """The nodes that have a voting replica of anything."""
    return {voter for shard in node.status()["shards"] for voter in shard["voters"]}


def replicas(node) -> list[int]:
    return [len(shard["voters"]) for shard in node.status()["shards"]]


def test_a_cluster_grows_and_shrinks_under_load(name):
    with Cluster(1) as cluster:
        first = cluster.nodes[0]
        # The load sees nodes only when they serve.
        serving = [first]
        with Load(serving, name) as load:
            load.begin()
            for size in (2, 3, 4):
                node = cluster.add()
                node.start()
                cluster.settled()
                serving.append(node)
                load.go_on(5)
                if size == 3:
                    load.until(lambda: set(replicas(first)) == {3}, MOVE_S, lambda: f"three voters: {replicas(first)}")
            leaver = cluster.nodes[1]
            identifier = leaver.id
            leaver.command("leave")
            serving.remove(leaver)
            load.until(lambda: identifier not in voters(first), MOVE_S, lambda: f"other voters than {identifier}")
            load.until(
                lambda: identifier not in {n["node"] for n in first.status()["nodes"]}, MOVE_S, "a member less"
            )
            load.until(lambda: set(replicas(first)) == {3}, MOVE_S, lambda: f"three voters: {replicas(first)}")
            leaver.kill()
            load.go_on()
            load.finish()


def test_a_drained_node_has_no_clients_and_leads_nothing(name):
    with Cluster(3, {"clusterConfig.drainClientsPerSecond": 1000}) as cluster:
        drained = cluster.leader()
        other = next(node for node in cluster.nodes if node is not drained)
        clients = [drained.client(f"{name}{n}", clean=False, props=DURABLE) for n in range(50)]
        identifier = drained.id
        drained.command("drain")
        for client in clients:
            # Use another server, or server moved.
            assert client.expect(DISCONNECT).reason in (0x9C, 0x9D)
            client.expect_closed()

        def is_drained():
            status = other.status()
            node = next(n for n in status["nodes"] if n["node"] == identifier)
            return node["state"] == "draining" and identifier not in {s["leader"] for s in status["shards"]}

        until(is_drained, MOVE_S, lambda: f"a drained node: {other.status()}")
        # Whoever comes is sent on, and is served elsewhere.
        with drained.broker.raw() as late:
            late.send(raw.connect(f"{name}0", clean=False, props=DURABLE))
            assert late.recv().reason in (0x9C, 0x9D)
        other.client(f"{name}0", clean=False, props=DURABLE, session_present=True).disconnect()
        drained.stop()
        drained.start()
        cluster.settled()
        drained.client(f"{name}1", clean=False, props=DURABLE, session_present=True).disconnect()


def test_a_shard_is_led_by_the_node_that_is_asked_for():
    with Cluster(3) as cluster:
        leader, follower = cluster.leader(), cluster.follower()
        leader.command("transfer-leader", "inbox", "0", follower.id)
        until(lambda: cluster.leader() is follower, what="the transfer")

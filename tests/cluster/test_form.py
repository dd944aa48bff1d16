"""How a cluster is formed, comes back, and keeps strangers out."""

import urllib.error
import urllib.request

import pytest
from harness.wait import DEADLINE_S, until
from staged.cluster import HTTP, STORES, Cluster

DURABLE = {"session_expiry": 3600}


@pytest.fixture
def cluster():
    with Cluster(3) as cluster:
        yield cluster


@pytest.mark.quick
def test_the_reports_configuration_forms_a_cluster(cluster):
    views = Cluster.views(cluster.nodes)
    assert len({view["cluster"] for view in views}) == 1
    assert {view["env"] for view in views} == {"Test"}
    ids = {view["node"] for view in views}
    assert len(ids) == 3

    def replicas():
        return {s["store"]: s["voters"] for s in cluster.nodes[0].status()["shards"]}

    # Three voters each, when the last node has caught up.
    until(lambda: all(set(replicas()[store]) == ids for store in STORES), what=replicas)


def test_nodes_without_a_host_have_the_address_of_their_route_to_the_seeds(name):
    with Cluster(0) as cluster:
        nodes = [cluster.add() for _ in range(3)]
        if not nodes[0].place.prefix:
            pytest.skip("only root can give each node a network of its own")
        for node in nodes:
            node.host = None
            node.start(bootstrap=node is nodes[0])
        cluster.spread()
        addresses = {n["address"] for n in nodes[0].status()["nodes"]}
        assert addresses == {node.endpoint for node in nodes}
        with nodes[1].client(name) as receiver, nodes[2].client() as sender:
            receiver.subscribe(name)
            sender.published(name, b"found", qos=1)
            assert receiver.message().payload == b"found"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_it_comes_back_in_any_order(cluster, name, order, end):
    first, _, last = cluster.nodes
    identifier = first.status()["cluster"]
    with last.client(name, clean=False, props=DURABLE) as receiver, first.client() as sender:
        receiver.subscribe(name, qos=1)
        receiver.disconnect()
        sender.published(name, b"kept", qos=1, retain=True)
    for node in cluster.nodes:
        getattr(node, end)()
    for n in order:
        # Without bootstrap. The first has no majority to be ready with.
        cluster.nodes[n].start(ready=False)
    cluster.settled()
    assert first.status()["cluster"] == identifier
    with first.client(name, clean=False, props=DURABLE, session_present=True) as receiver:
        assert receiver.message().payload == b"kept"
    with last.client() as reader:
        reader.subscribe(name)
        assert reader.message(retain=True).payload == b"kept"


def test_bootstrap_counts_once(cluster):
    first = cluster.nodes[0]
    identifier = first.status()["cluster"]
    first.stop()
    first.start(bootstrap=True)
    cluster.settled()
    assert {view["cluster"] for view in Cluster.views(cluster.nodes)} == {identifier}


def answer(node, path) -> int | None:
    """The status code; `None` if nobody listens."""
    try:
        with urllib.request.urlopen(f"http://{node.place.address}:{HTTP}{path}", timeout=DEADLINE_S) as got:
            return got.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_a_node_waits_for_a_seed_that_comes_later():
    with Cluster(0) as cluster:
        one, two = cluster.add(), cluster.add()
        two.start(ready=False)
        until(lambda: answer(two, "/healthz") == 200, what="a sign of life")
        assert (answer(two, "/readyz"), answer(two, "/metrics")) == (503, 503)
        one.start(bootstrap=True)
        cluster.settled()
        until(lambda: answer(two, "/readyz") == 200, what="its readiness")


def says(node, *words) -> bool:
    """Whether a line of the node's log has all these words."""
    return any(all(word in line for word in words) for line in list(node.broker.log_text))


def test_a_node_of_another_env_is_refused_and_both_say_so(cluster):
    member, stranger = cluster.nodes[0], cluster.add()
    stranger.start(env="Other", ready=False)
    until(lambda: says(stranger, "Test", "Other"), what="the stranger's words")
    until(lambda: any(says(node, "Other") for node in cluster.nodes[:3]), what="a member's words")
    assert len(member.status()["nodes"]) == 3


def test_a_node_of_another_cluster_is_not_heard_and_members_say_so(cluster):
    member, stranger = cluster.nodes[0], cluster.add()
    stranger.start(bootstrap=True, seeds=[stranger.endpoint])
    stranger.stop()
    stranger.start()
    words = (f"gossip from {stranger.place.address}", "not of this cluster")
    until(lambda: says(member, *words), what="a member's words")
    assert len(member.status()["nodes"]) == 3


def test_a_wiped_node_is_a_new_one(cluster):
    keeper, _, lost = cluster.nodes
    before = lost.id
    lost.kill()
    lost.wipe()
    lost.start()
    after = lost.id
    assert after != before
    keeper.command("evict", before)
    cluster.settled()

    def members():
        status = keeper.status()
        return {n["node"] for n in status["nodes"]}, {v for s in status["shards"] for v in s["voters"]}

    until(lambda: all(before not in some and after in some for some in members()), what=members)


def test_an_evicted_node_is_refused(cluster):
    keeper, _, evicted = cluster.nodes
    identifier = evicted.id
    evicted.stop()
    keeper.command("evict", identifier)
    evicted.start(ready=False)
    until(lambda: says(evicted, "evicted"), what="the evicted node's words")
    assert identifier not in {n["node"] for n in keeper.status()["nodes"]}

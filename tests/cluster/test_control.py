"""What people ask of a cluster: its state, its change, and how its nodes stop."""

import json

import pytest
from harness import raw
from harness.broker import run
from harness.raw import DISCONNECT
from harness.wait import until
from staged.cluster import HTTP, MQTT, STORES, Cluster

DURABLE = {"session_expiry": 3600}
MOVE_S = 120
# More entries than a voter may lack that is to become one.
LAG = 100
USE_ANOTHER_SERVER = 0x9C


@pytest.fixture
def cluster():
    with Cluster(3, {"clusterConfig.drainClientsPerSecond": 1000}) as cluster:
        yield cluster


def refused(node, what, *args) -> str:
    """What the command says that fails."""
    url = f"http://{node.place.address}:{HTTP}"
    done = run("cluster", what, "--url", url, "--token-file", node.cluster.token, *args)
    assert done.returncode == 1, done.stdout
    return done.stderr


def others(cluster, node):
    return [n for n in cluster.nodes if n is not node]


def shard(node, store="inbox", number=0) -> dict:
    return next(s for s in node.status()["shards"] if (s["store"], s["shard"]) == (store, number))


def has_three_voters(cluster):
    until(lambda: all(len(s["voters"]) == 3 for s in cluster.nodes[0].status()["shards"]), MOVE_S, "three voters each")


@pytest.mark.quick
def test_all_nodes_tell_the_same(cluster):
    with cluster.nodes[1].client("one"), cluster.nodes[1].client("two"):

        def connections(node):
            return [n["connections"] for n in node.status()["nodes"] if n["node"] == cluster.nodes[1].id]

        until(lambda: all(connections(node) == [2] for node in cluster.nodes), what="two connections")
    for node in cluster.nodes:
        status = node.status()
        assert len(status["nodes"]) == 3
        assert {n["state"] for n in status["nodes"]} == {"up"}
        assert all(len(n["node"]) == 16 for n in status["nodes"])
        assert {s["store"] for s in status["shards"]} == {"session", "inbox", "retain"}
    printed = cluster.nodes[0].command("status")
    assert all(node.id in printed for node in cluster.nodes)


@pytest.mark.quick
def test_all_nodes_tell_the_load_of_a_shard(cluster, name):
    asked = cluster.nodes[0]
    leader = cluster.leader()
    with asked.client(name + "s", props=DURABLE) as subscriber, asked.client(name + "p") as publisher:
        subscriber.subscribe(name, qos=1)

        def load(node) -> dict | None:
            publisher.published(name, b"x" * 100)
            subscriber.take(1)
            return shard(node).get("load")

        def is_loaded(node) -> bool:
            load_now = load(node)
            return load_now is not None and all(load_now[key] > 0 for key in ("apply_us", "propose_us", "log_bytes"))

        for node in cluster.nodes:
            until(lambda node=node: is_loaded(node), what="a load")
        # All of it is caused by one session.
        assert until(lambda: load(asked), what="a load")["half"]["below"] in (0, 99, 100)
        assert 0 < leader.broker.metric("heraldmq_shard_half_slot", store="inbox", shard="0") < 65_536
        assert leader.broker.metric("heraldmq_shard_cpu_seconds_total", store="inbox", shard="0", part="apply") > 0
    until(lambda: shard(asked).get("load") is None, what="no load")


def test_any_node_can_be_asked_for_another_leader(cluster):
    has_three_voters(cluster)
    for _ in range(3):
        leader = cluster.leader()
        asked, wanted = others(cluster, leader)
        asked.command("transfer-leader", "inbox", "0", wanted.id)
        until(lambda: shard(asked)["leader"] == wanted.id, what="the transfer")


def test_what_there_is_not_is_refused(cluster):
    node = cluster.nodes[0]
    stranger = "00000000000000aa"
    assert "404" in refused(node, "transfer-leader", "inbox", "9", node.id)
    assert "404" in refused(node, "transfer-leader", "inbox", "0", stranger)
    assert "404" in refused(node, "evict", stranger)
    assert "409" in refused(node, "evict", node.id)


def test_a_drained_node_sends_its_clients_to_others(cluster, name):
    has_three_voters(cluster)
    drained = cluster.leader()
    elsewhere = {f"{node.place.address}:{MQTT}" for node in others(cluster, drained)}
    five = drained.client(f"{name}5", clean=False, props=DURABLE)
    old = drained.client(f"{name}4", version=4)
    drained.command("drain")
    assert five.expect(DISCONNECT, reason=USE_ANOTHER_SERVER).props["server_reference"] in elsewhere
    five.expect_closed()
    old.expect_closed()
    with drained.broker.raw() as late:
        late.send(raw.connect(f"{name}5"))
        answer = late.recv()
        assert answer.reason == USE_ANOTHER_SERVER
        assert answer.props["server_reference"] in elsewhere
    with drained.broker.raw(version=4) as late:
        late.send(raw.connect(f"{name}4", version=4))
        assert late.recv().reason == 3
    witness = others(cluster, drained)[0]

    def leads():
        return {s["leader"] for s in witness.status()["shards"]}

    until(lambda: drained.id not in leads(), what="the end of its leads")
    assert all(drained.id in s["voters"] for s in witness.status()["shards"])
    witness.client(f"{name}5", clean=False, props=DURABLE, session_present=True).close()


def test_a_drained_node_lets_clean_clients_read_what_is_queued(cluster, name):
    drained, other, _ = cluster.nodes
    with (
        drained.client(name, props={"receive_maximum": 1}) as reader,
        drained.client(f"{name}i") as idle,
        other.client(f"{name}p") as publisher,
    ):
        reader.subscribe(name, qos=1)
        for number in range(50):
            publisher.published(name, str(number), qos=1)
        drained.command("drain")
        # Clients are disconnected, and this one is not.
        idle.expect(DISCONNECT, reason=USE_ANOTHER_SERVER)
        assert [int(message.payload) for message in reader.take(50)] == list(range(50))
        reader.expect(DISCONNECT, reason=USE_ANOTHER_SERVER)


def test_a_will_with_a_delay_waits_for_the_client_to_come_elsewhere(cluster, name):
    drained, other, _ = cluster.nodes
    with other.client(f"{name}w") as witness:
        witness.subscribe(f"{name}/#", qos=1)

        def with_will(node, number, **fields):
            will = {"topic": f"{name}/{number}", "payload": b"will", "qos": 1, "props": {"will_delay": 10}}
            return node.client(f"{name}{number}", clean=False, props=DURABLE, will=will, **fields)

        back, gone = with_will(drained, 1), with_will(drained, 2)
        drained.command("drain")
        for client in (back, gone):
            client.expect(DISCONNECT, reason=USE_ANOTHER_SERVER)
        with with_will(other, 1, session_present=True):
            assert witness.message().topic == f"{name}/2"
            # As long as the other would have needed as well.
            witness.ping()


def test_a_lone_node_is_not_drained():
    with Cluster(1) as cluster:
        for what in ("drain", "leave"):
            assert "no other node is up" in refused(cluster.nodes[0], what)
        cluster.nodes[0].client("one").disconnect()


def test_a_node_that_leaves_ends_and_is_forgotten(cluster, name):
    cluster.add().start()
    cluster.settled()
    leaver = cluster.nodes[1]
    identifier, rest = leaver.id, others(cluster, leaver)
    client = leaver.client(name, clean=False, props=DURABLE)
    client.subscribe(name, qos=1)
    leaver.command("leave")
    client.expect(DISCONNECT, reason=USE_ANOTHER_SERVER)

    def is_forgotten(node):
        status = node.status()
        is_member = identifier in {n["node"] for n in status["nodes"]}
        votes = identifier in {voter for s in status["shards"] for voter in s["voters"]}
        assert is_member or not votes, f"it is forgotten before others have its replicas: {status}"
        return not is_member

    until(lambda: all([is_forgotten(node) for node in rest]), MOVE_S, "nobody remembers")
    assert leaver.broker.wait() == 0
    with rest[0].client(name, clean=False, props=DURABLE, session_present=True) as back, rest[1].client() as sender:
        sender.published(name, b"there", qos=1)
        assert back.message().payload == b"there"


def test_a_node_leaves_while_another_voter_is_down(cluster, name):
    cluster.add().start()
    cluster.spread()
    voters = shard(cluster.nodes[0])["voters"]
    leaver, down = [node for node in cluster.nodes if node.id in voters][:2]
    rest = [node for node in cluster.nodes if node not in (leaver, down)]
    with rest[0].client(name, clean=False, props=DURABLE) as client, rest[1].client() as sender:
        client.subscribe(name, qos=1)
        down.kill()
        for number in range(LAG):
            sender.published(name, str(number), qos=1)
            assert int(client.message().payload) == number
        leaver.command("leave")
        assert leaver.broker.wait(MOVE_S) == 0
        sender.published(name, b"there", qos=1)
        assert client.message().payload == b"there"


def test_an_evicted_node_leaves_nothing_behind(cluster, name):
    has_three_voters(cluster)
    evicted, keeper, _ = cluster.nodes
    identifier = evicted.id
    will = {"topic": f"{name}/will", "payload": b"gone", "qos": 1}
    with (
        evicted.client(name, clean=False, props=DURABLE, will=will),
        keeper.client(f"{name}w") as witness,
    ):
        witness.subscribe(f"{name}/will", qos=1)
        evicted.kill()
        keeper.command("evict", identifier)
        assert witness.message().payload == b"gone"

    def voters():
        return {voter for s in keeper.status()["shards"] for voter in s["voters"]}

    until(lambda: identifier not in voters(), MOVE_S, voters)


def test_the_only_voter_of_a_shard_is_not_evicted_by_accident(name):
    with Cluster(2) as cluster:
        keeper, evicted = cluster.nodes
        identifier = evicted.id
        only = [s for s in keeper.status()["shards"] if s["voters"] == [identifier]]
        assert only, keeper.status()
        shards = [f"{s['store']} {s['shard']}" for s in only]
        evicted.kill()
        said = refused(keeper, "evict", identifier)
        assert "409" in said and "force" in said
        assert all(shard in said for shard in shards)
        # Nothing has happened.
        evicted.start()
        cluster.settled()
        evicted.kill()
        keeper.command("evict", identifier, "--force")
        until(lambda: identifier not in {n["node"] for n in keeper.status()["nodes"]}, what="the eviction")

        def told():
            status, body = keeper.broker.http("/readyz")
            # It serves clean sessions.
            assert status == 200
            return {line for line in body.splitlines() if line.startswith("no node leads")}

        expected = {f"no node leads shard {s['shard']} of the {s['store']} store" for s in only}
        until(lambda: told() == expected, what=told)
        counts = {s: keeper.broker.metric("heraldmq_store_shards_without_leader", store=s) for s in STORES}
        assert counts == {s: sum(shard["store"] == s for shard in only) for s in STORES}
        with keeper.client(name) as client:
            client.subscribe(name)
            client.publish(name, b"here")
            assert client.message().payload == b"here"


def test_a_second_eviction_waits_for_the_replicas_of_the_first(cluster):
    has_three_voters(cluster)
    keeper, first, second = cluster.nodes
    identifiers = first.id, second.id
    first.kill()
    second.kill()

    def down():
        return {n["node"] for n in keeper.status()["nodes"] if n["reach"] == "down"}

    until(lambda: down() == set(identifiers), what=down)
    for identifier in identifiers:
        assert "409" in refused(keeper, "evict", identifier)
    first.start(ready=False)
    cluster.settled()
    keeper.command("evict", identifiers[1])


def test_a_rolling_restart_loses_nothing(cluster, name):
    has_three_voters(cluster)
    sent = 0
    receiver_node = cluster.nodes[2]
    receiver_node.client(name, clean=False, props=DURABLE).subscribe(name, qos=1)
    for node in cluster.nodes:
        sender_node = others(cluster, node)[0]
        with sender_node.client() as sender:
            for _ in range(20):
                sender.published(name, str(sent), qos=1)
                sent += 1
            node.broker.signal(15)
            while node.broker.process.poll() is None:
                sender.published(name, str(sent), qos=1)
                sent += 1
            assert node.broker.wait() == 0
            node.start()
            cluster.settled()
            has_three_voters(cluster)
    with cluster.nodes[0].client(name, clean=False, props=DURABLE, session_present=True) as receiver:
        got = [int(message.payload) for message in receiver.take(sent)]
    assert sorted(set(got)) == list(range(sent))


@pytest.mark.quick
def test_a_shard_without_a_leader_names_the_one_of_before(cluster):
    cluster.add().start()
    cluster.spread()
    leader = cluster.leader()
    identifier, voters = leader.id, shard(leader)["voters"]
    stopped = [node for node in cluster.nodes if node.id in voters and node is not leader]
    asked = next(node for node in cluster.nodes if node.id not in voters)
    assert len(stopped) == 2
    for node in stopped:
        node.kill()

    def says(node) -> tuple:
        return shard(node)["leader"], shard(node).get("last_leader")

    # It runs, and the asked node, which is no voter, reaches it.
    for node in (asked, leader):
        until(lambda node=node: says(node) == (None, identifier), what=lambda node=node: says(node))
    assert f"none (was {identifier})" in asked.command("status")

    def alarms() -> set[str]:
        found = json.loads(asked.broker.http("/api/v1/alarms")[1])["items"]
        return {alarm["subject"] for alarm in found if alarm["name"] == "no_leader"}

    until(lambda: "inbox 0" in alarms(), what=alarms)
    for node in stopped:
        node.start(ready=False)
    cluster.settled()
    assert "last_leader" not in shard(asked)

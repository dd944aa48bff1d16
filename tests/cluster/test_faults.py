"""What clients notice when nodes, links and disks fail under load: recovery, and not a broken promise.

P1, P4, P5, P6, P9. Each test forms a cluster, breaks something, repairs it, and judges the whole history.
"""

import datetime
import json
import time

import pytest
from harness import raw
from harness.bench import Started
from harness.raw import CONNACK, DISCONNECT, PUBACK
from harness.wait import DEADLINE_S, until
from staged.cluster import MQTT, Cluster
from staged.load import Load

# How long a fault lasts, in seconds; longer than it takes to be noticed and acted upon.
FAULT_S = 10

CUT_OFF = "no contact with a majority of the cluster: messages of transient sessions follow the last known routes"


@pytest.fixture
def cluster():
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def load(cluster, name):
    with Load(cluster.nodes, name) as load:
        load.begin()
        yield load


def survives(cluster, load, break_, repair):
    """Publishing goes on during the fault and after it, and in the end nothing is missing."""
    fault = time.monotonic()
    break_()
    load.go_on()
    load.tell_recovery(fault)
    load.run_for(max(0, fault + FAULT_S - time.monotonic()))
    repaired = time.monotonic()
    repair()
    cluster.settled()
    load.go_on()
    load.tell_recovery(repaired)
    load.finish()


@pytest.mark.parametrize("role", [pytest.param("leader", marks=pytest.mark.quick("P1", "P4", "P5", "P6")), "follower"])
def test_a_node_is_killed(cluster, load, role):
    victim = getattr(cluster, role)()
    survives(cluster, load, victim.kill, victim.start)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_node_stops_for_a_while(cluster, load, role):
    victim = getattr(cluster, role)()
    survives(cluster, load, victim.pause, victim.resume)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_node_is_cut_off(cluster, load, role):
    victim = getattr(cluster, role)()
    survives(cluster, load, lambda: cluster.cut_off(victim), cluster.network.heal)


@pytest.mark.parametrize("direction", ["heard", "hears"])
def test_a_link_is_cut_in_one_direction(cluster, load, direction):
    leader, other = cluster.leader(), cluster.follower()
    sender, receiver = (leader, other) if direction == "heard" else (other, leader)
    survives(cluster, load, lambda: cluster.network.cut(sender.place, receiver.place), cluster.network.heal)


def test_two_followers_do_not_reach_each_other(cluster, load):
    leader = cluster.leader()
    one, two = (node for node in cluster.nodes if node is not leader)

    def cut():
        cluster.network.cut(one.place, two.place)
        cluster.network.cut(two.place, one.place)

    survives(cluster, load, cut, cluster.network.heal)


def test_the_disk_of_a_leader_is_slow(cluster, name):
    victim = cluster.leader()
    victim.stop()
    victim.slow_disk()
    victim.start()
    cluster.settled()
    with Load(cluster.nodes, name) as load:
        load.begin()
        survives(cluster, load, lambda: victim.disk.delay(200), lambda: victim.disk.delay(0))


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_the_clock_of_a_leader_jumps(cluster, name, jump):
    victim = cluster.leader()
    victim.stop()
    victim.false_clock()
    victim.start()
    cluster.settled()
    with Load(cluster.nodes, name) as load:
        load.begin()
        survives(cluster, load, lambda: victim.clock.jump(jump), lambda: victim.clock.jump(0))


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_the_load_test_misses_nothing_when_a_node_dies_for_good(cluster, tmp_path, role):
    plan, record = tmp_path / "plan.yml", tmp_path / "record.json"
    plan.write_text("name: pairs\nparts:\n  - pairs: {pairs: 30, rate: 20, payload: 64, qos: 1, clean_session: false}\n")
    targets = ",".join(f"{node.place.address}:{MQTT}" for node in cluster.nodes)
    victim = getattr(cluster, role)()
    with Started("run", plan, "--target", targets, "--duration", "12s", "--json", record) as bench:

        def connections():
            return sum(node["connections"] for node in cluster.nodes[0].status()["nodes"])

        until(lambda: connections() == 60, what="all clients")
        victim.kill()
        ended = bench.end(timeout=3 * DEADLINE_S)
    assert ended.returncode == 0, ended.stderr
    counts = json.loads(record.read_text())["counts"]
    assert counts["acknowledged"] == counts["sent"] > 0
    # At least once: what was not acknowledged when the node died may have been stored.
    assert (counts["lost"], counts["delivered"] - counts["duplicated"]) == (0, counts["sent"])


@pytest.mark.quick("P1", "P4")
def test_all_nodes_are_killed_at_once(cluster, load):
    fault = time.monotonic()
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start(ready=False)
    cluster.settled()
    load.go_on()
    load.tell_recovery(fault)
    load.finish()


def test_nodes_are_restarted_one_after_another(cluster, load):
    for node in cluster.nodes:
        node.stop()
        load.go_on(5)
        node.start(ready=False)
        cluster.settled()
    load.finish()


@pytest.mark.parametrize("expiry", [0, 3600])
def test_a_will_is_published_when_a_node_stops_that_does_not_reach_its_readers(cluster, name, expiry):
    keeper, witness, victim = cluster.leaders_apart()
    with witness.client(f"{name}s", props={"session_expiry": 3600}) as reader:
        reader.subscribe(name, qos=1)
        will = {"topic": name, "payload": b"gone", "qos": 1}
        mourned = victim.client(f"{name}w", will=will, props={"session_expiry": expiry})
        cluster.network.cut(victim.place, keeper.place)
        cluster.network.cut(keeper.place, victim.place)
        victim.stop()
        mourned.expect(DISCONNECT)
        assert reader.message().payload == b"gone"
        cluster.network.heal()
        victim.start()
        cluster.settled()
        witness.client(f"{name}a").published(name, b"after", qos=1)
        assert reader.message().payload == b"after"


def test_a_will_waits_for_the_shard_of_its_readers(name):
    with Cluster(3, {"inbox_store_replica_voter_count": 1}) as cluster:
        keeper, other = cluster.leader("inbox"), cluster.follower("inbox")
        durable = {"session_expiry": 3600}
        with keeper.client(f"{name}s", props=durable) as reader:
            reader.subscribe(name, qos=1)
        mourned = other.client(f"{name}w", will={"topic": name, "payload": b"gone", "qos": 1})
        keeper.kill()
        mourned.close()

        def owed():
            return sum(node.broker.metric("heraldmq_store_requests_pending", store="inbox") for node in cluster.running())

        # All that can be refused has been.
        until(lambda: owed() == 1, what="the will to be all that waits")
        keeper.start()
        cluster.settled()
        with other.client(f"{name}s", clean=False, props=durable, session_present=True) as reader:
            assert reader.message().payload == b"gone"


def test_what_a_session_leaves_to_its_group_outlives_the_node_that_keeps_it(cluster, name):
    keeper, witness, home = cluster.leaders_apart()
    group = f"$share/{name}/{name}"
    with witness.client(f"{name}d", props={"session_expiry": 3600}) as leaver:
        leaver.subscribe(group, qos=1)
    witness.client(f"{name}s").published(name, b"left", qos=1)
    heir = home.client(f"{name}h")
    heir.subscribe(group, qos=1)
    home.pause()
    until(lambda: keeper.broker.metric("heraldmq_peers_unknown") == 1, what="a group without known members")
    # Its session ends before CONNACK; and there is nobody to take what it leaves.
    witness.client(f"{name}d").close()
    keeper.kill()
    home.resume()
    assert heir.message().payload == b"left"


# ---- without a majority ------------------------------------------------------------------------


def knocks(node, client_id):
    """A connection whose CONNECT the node has read."""
    connect = raw.connect(client_id, clean=False, props={"session_expiry": 3600})

    def heard():
        return node.broker.metric("heraldmq_received_bytes_total")

    before = heard()
    client = raw.Raw(node.mqtt[1], host=node.mqtt[0], timeout=DEADLINE_S)
    client.send(connect)
    until(lambda: heard() >= before + len(connect), what="the CONNECT to be read")
    return client


def is_let_in(node, client_id, client):
    """The client, connected. If it is refused, because others may have been there before, it tries again."""
    while (answer := client.expect(CONNACK)).reason != 0:
        assert answer.reason == 0x88
        client.expect_closed()
        client = knocks(node, client_id)
    return client


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_last_of_connects_that_are_given_up_has_the_session(cluster, name, elsewhere):
    # P5: by the order in which they came, not that in which they are decided on.
    leader = cluster.leader("session")
    node, other = (n for n in cluster.nodes if n is not leader)
    last = other if elsewhere else node
    with last.client(f"{name}0", clean=False, props={"session_expiry": 3600}) as client:
        client.disconnect()
    cluster.network.cut(node.place, other.place)
    cluster.network.cut(other.place, node.place)
    leader.pause()
    clients = {}
    for client_id in (f"{name}{n}" for n in range(4)):
        for _ in range(10):
            knocks(node, client_id).close()
        clients[client_id] = knocks(last, client_id)
    # By less the clocks of the nodes may differ.
    came = time.monotonic()
    until(lambda: time.monotonic() > came + 1.5, what="the CONNECTs to have waited")
    cluster.network.heal()
    leader.resume()
    clients = {client_id: is_let_in(last, client_id, client) for client_id, client in clients.items()}
    expected = 0 if elsewhere else len(clients)
    until(lambda: node.broker.metric("heraldmq_connections_open") == expected, what="the others to be closed")
    for client in clients.values():
        client.ping()
        client.disconnect()


def test_clean_clients_of_a_cut_off_node_are_served(cluster, name):
    # P10
    victim, other = cluster.follower(), cluster.leader()
    with victim.client(f"{name}c") as before:
        before.published(name, qos=1)
        cluster.cut_off(victim)

        def knows():
            """Publishing goes on while it is not known yet that no leader of any shard is going to answer."""
            before.published(name, qos=1)
            return victim.broker.find(CUT_OFF)

        until(knows, what="the node to know that it is cut off")
        before.published(name, qos=1)
    exchange(victim, name)
    # The identifier is owned on both sides, and by the later connection after that.
    earlier, later = victim.client(name), other.client(name)
    cluster.network.heal()
    earlier.timeout = DEADLINE_S
    earlier.expect(DISCONNECT, reason=0x8E)
    earlier.expect_closed()
    later.ping()
    later.close()


def exchange(node, name):
    """Clean clients of one node send each other messages of each QoS."""
    with node.client(f"{name}a") as sender, node.client(f"{name}b") as receiver:
        receiver.subscribe(name, qos=2)
        for qos in (0, 1, 2):
            payload = b"here, %d" % qos
            sender.published(name, payload, qos=qos)
            assert receiver.message().payload == payload


def test_clean_clients_of_a_node_that_is_started_alone_are_served(cluster, name):
    # P10
    node, *others = cluster.nodes
    durable = dict(clean=False, props={"session_expiry": 3600})
    with node.client(f"{name}d", **durable) as client:
        client.subscribe(f"{name}/later", qos=1)
        client.disconnect()
    for each in cluster.nodes:
        each.kill()
    node.start()
    with node.client(f"{name}c") as early:
        # Not before others have had the time in which they are usually heard.
        early.published(name, qos=1)
        acknowledged = datetime.datetime.now(datetime.UTC)
        (line,) = until(lambda: node.broker.find(CUT_OFF), what="the node to be cut off")
        assert datetime.datetime.fromisoformat(line["timestamp"]) <= acknowledged
    exchange(node, name)
    with node.client(f"{name}s") as member, node.client(f"{name}p") as sender:
        member.subscribe(f"$share/{name}/{name}/shared", qos=1)
        sender.published(f"{name}/shared", b"one", qos=1)
        assert member.message().payload == b"one"
    # What has to be kept is not.
    with raw.Raw(node.mqtt[1], host=node.mqtt[0], timeout=DEADLINE_S) as client:
        client.connect(f"{name}d", reason=0x88, **durable)
    with node.client(f"{name}r") as retaining:
        assert retaining.answer(PUBACK, retaining.publish(name, b"kept", qos=1, retain=True)).reason >= 0x80
    for other in others:
        other.start(ready=False)
    cluster.settled()
    with others[0].client(f"{name}a") as sender:
        sender.published(f"{name}/later", b"when all are back", qos=1)
    with others[1].client(f"{name}d", session_present=True, **durable) as client:
        assert client.message().payload == b"when all are back"


def test_a_will_that_no_majority_could_record_is_published_all_the_same(cluster, name):
    """P10: a clean client is let in where nobody leads its session shard."""
    left, *others = cluster.nodes
    for node in others:
        node.kill()
    with left.client(f"{name}s") as reader:
        reader.subscribe(name, qos=1)
        until(lambda: left.broker.find(CUT_OFF), what="the node to be cut off")
        left.client(f"{name}w", will=dict(topic=name, payload=b"gone", qos=1)).reset()
        assert reader.message().payload == b"gone"

"""A node whose clock is wrong: what expires does so when it should, on whichever node (MQTT-3.3.2-6).

The nodes go by the median of their clocks.
"""

import pytest
from harness.wait import until
from staged.cluster import Cluster

WRONG_S = 600
EXPIRY_S = 60
# What is left of it while a test runs.
LEFT_S = range(EXPIRY_S - 15, EXPIRY_S + 1)


@pytest.fixture(scope="module", params=[WRONG_S, -WRONG_S], ids=["ahead", "behind"])
def wrong(request):
    """A node of three whose clock is wrong, and one whose clock is right."""
    with Cluster(3) as cluster:
        wrong, right, _ = cluster.nodes
        wrong.stop()
        wrong.false_clock()
        wrong.clock.jump(request.param)
        wrong.start()
        cluster.spread()
        yield wrong, right


@pytest.fixture(params=["from the wrong", "to the wrong"])
def way(request, wrong):
    """Where a message is published, and where it is read."""
    return wrong if request.param == "from the wrong" else wrong[::-1]


@pytest.fixture(params=["the wrong leads", "the right leads"])
def leader(request, wrong):
    return wrong[request.param == "the right leads"]


def lead(node, store):
    """Has a node lead the shards of a store."""

    def leads():
        shard = next(s for s in node.status()["shards"] if s["store"] == store)
        return shard["leader"] == node.id

    if not leads():
        node.command("transfer-leader", store, "0", node.id)
    until(leads, what="the leader")


def test_a_message_for_a_connected_session(way, name):
    sender_node, receiver_node = way
    with receiver_node.client(f"{name}r") as receiver, sender_node.client(f"{name}s") as sender:
        receiver.subscribe(name, qos=1)
        sender.published(name, b"short", qos=1, props={"message_expiry": EXPIRY_S})
        assert receiver.message().props["message_expiry"] in LEFT_S


def test_a_message_for_an_absent_session(way, leader, name):
    sender_node, receiver_node = way
    lead(leader, "inbox")
    durable = {"session_expiry": 3600}
    with sender_node.client(f"{name}r", clean=False, props=durable) as receiver:
        receiver.subscribe(name, qos=1)
    with sender_node.client(f"{name}s") as sender:
        sender.published(name, b"short", qos=1, props={"message_expiry": EXPIRY_S})
    with receiver_node.client(f"{name}r", clean=False, props=durable, session_present=True) as receiver:
        assert receiver.message().props["message_expiry"] in LEFT_S


def test_a_retained_message(way, leader, name):
    sender_node, receiver_node = way
    lead(leader, "retain")
    with sender_node.client(f"{name}s") as sender:
        sender.published(name, b"short", qos=1, retain=True, props={"message_expiry": EXPIRY_S})
    with receiver_node.client(f"{name}r") as receiver:
        receiver.subscribe(name, qos=1)
        assert receiver.message().props["message_expiry"] in LEFT_S


def test_a_session_and_a_will_outlive_a_change_of_the_leader(wrong, leader, name):
    other = next(node for node in wrong if node is not leader)
    lead(other, "session")
    witness = other.client(f"{name}w")
    witness.subscribe(f"{name}/#", qos=1)

    def gone(number, delay):
        will = {"topic": f"{name}/{number}", "payload": b"will", "qos": 1, "props": {"will_delay": delay}}
        props = {"session_expiry": EXPIRY_S}
        other.client(f"{name}{number}", clean=False, props=props, will=will).close()

    gone(60, EXPIRY_S)
    gone(5, 5)
    lead(leader, "session")
    # The one that is due comes, and when it has, the other one is not due.
    assert witness.message().topic == f"{name}/5"
    with leader.client(f"{name}60", clean=False, session_present=True):
        witness.publish(f"{name}/end", b"end")
        assert witness.until(b"end") == []
    witness.close()


def test_a_wrong_clock_is_told(wrong):
    node, right = wrong

    def offsets(asked):
        return {n["node"]: n.get("clock_offset_ms") for n in asked.status()["nodes"]}

    for asked in wrong:
        until(lambda: None not in offsets(asked).values(), what=lambda: offsets(asked))
        found = {name: round(ms / 1000) for name, ms in offsets(asked).items()}
        assert abs(found.pop(node.id)) == WRONG_S
        assert set(found.values()) == {0}
    assert abs(round(node.broker.metric("heraldmq_clock_offset_seconds"))) == WRONG_S
    assert round(right.broker.metric("heraldmq_clock_offset_seconds")) == 0
    assert any("set it right" in line for line in node.broker.log_text)
    assert not any("set it right" in line for line in right.broker.log_text)

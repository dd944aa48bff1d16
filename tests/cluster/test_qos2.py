"""QoS 2 of durable publishers that go on at another node while the first one has their messages still."""

import pytest
from harness import raw
from harness.raw import PUBCOMP, PUBREC, PUBREL
from harness.wait import until
from staged.cluster import Cluster

DURABLE = {"session_expiry": 3600}


@pytest.fixture
def cluster():
    with Cluster(3) as started:
        yield started


def publish_and_release(client, topic, payload, dup):
    client.send(raw.publish(topic, payload, qos=2, pid=1, dup=dup))
    client.answer(PUBREC, 1, 15)
    client.send(raw.ack(PUBREL, 1))
    client.answer(PUBCOMP, 1, 15)


def leaders_of_inboxes(node) -> set:
    return {shard["leader"] for shard in node.status()["shards"] if shard["store"] == "inbox"}


@pytest.mark.quick("P4")
@pytest.mark.parametrize("goes_on", [False, True], ids=["stops", "goes_on"])
def test_what_a_cut_off_node_sends_late_happens_once_and_hides_nothing(cluster, name, goes_on):
    """Its copy comes after PUBCOMP, when the identifier is free for the next message. [MQTT-4.3.3-2]"""
    leader = cluster.leader("inbox")
    first, second = (node for node in cluster.nodes if node is not leader)
    with second.client(f"{name}s", clean=False, props=DURABLE) as subscriber:
        subscriber.subscribe(name, qos=2)
    publisher = first.client(f"{name}p", clean=False, props=DURABLE)
    cluster.network.cut(first.place, leader.place)
    cluster.network.cut(leader.place, first.place)
    publisher.publish(name, b"1", qos=2, pid=1)
    # The node has handled it.
    publisher.ping()
    publisher.reset()
    expected = [b"1"]
    with second.client(f"{name}p", clean=False, props=DURABLE, session_present=True) as publisher:
        publish_and_release(publisher, name, b"1", dup=True)
        until(lambda: leader.id not in leaders_of_inboxes(second), what="another leader")
        cluster.network.heal()
        cluster.settled()
        # Behind the first message, if the node sends that.
        with first.client() as last:
            last.published(name, b"end", qos=2)
        if goes_on:
            publish_and_release(publisher, name, b"2", dup=False)
            expected.append(b"2")
    with second.client() as last:
        last.published(name, b"really the end", qos=2)
    with second.client(f"{name}s", clean=False, props=DURABLE, session_present=True) as subscriber:
        got = [message.payload for message in subscriber.until(b"really the end")]
    assert [payload for payload in got if payload in (b"1", b"2")] == expected

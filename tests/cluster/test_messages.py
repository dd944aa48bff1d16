"""What clients of different nodes have to do with each other, while nothing fails.

Messages: P3 (SUBACK means effective), P4 (a session resumes completely, also elsewhere), P5 (one owner).
"""

import pytest
from harness import raw
from harness.raw import CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from harness.wait import Stopwatch, until
from staged.cluster import Cluster

DURABLE = {"session_expiry": 3600}

pytestmark = pytest.mark.quick("P3", "P4", "P5")

# Subscriptions made and published to at once, from another node.
AT_ONCE = 200


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_reach_other_nodes_in_order(three, name, version, qos):
    a, b, c = three
    with b.client(f"{name}b", version=version) as one, c.client(f"{name}c") as other, a.client(f"{name}a") as sender:
        one.subscribe(f"{name}/+", qos=qos)
        other.subscribe(f"{name}/x", qos=2)
        for n in range(100):
            sender.published(f"{name}/x", f"{n}".encode(), qos=qos)
        for receiver in (one, other):
            got = receiver.take(100)
            assert [m.payload for m in got] == [f"{n}".encode() for n in range(100)]
            assert {m.qos for m in got} == {qos}


@pytest.mark.parametrize("durable", [False, True])
def test_a_message_after_suback_arrives_from_any_node(three, name, durable):
    a, b, c = three
    props = DURABLE if durable else None
    with b.client(f"{name}b", clean=not durable, props=props) as receiver, a.client() as first, c.client() as second:
        for n in range(AT_ONCE):
            sender = (first, second)[n % 2]
            topic = f"{name}/{n}"
            receiver.subscribe(topic, qos=1)
            sender.publish(topic, b"now", qos=n // 2 % 2)
            assert receiver.message(topic=topic).payload == b"now"


@pytest.mark.quick("P2")
def test_a_message_for_many_absent_sessions_is_written_once(three, name):
    """By each of the nodes, whatever the number of sessions."""
    a, b, c = three
    count, size, sessions = 20, 10_000, 100
    for number in range(sessions):
        with a.client(f"{name}{number}", clean=False, props=DURABLE) as absent:
            absent.subscribe(f"{name}/#", qos=1)

    def written():
        return sum(node.broker.metric("heraldmq_store_log_written_bytes_total") for node in three)

    before = written()
    with b.client() as sender:
        for number in range(count):
            sender.published(f"{name}/x", str(number).ljust(size).encode(), qos=1)
    # Each session gets all of it, and a copy for each would be a hundred times as much. What else is written meanwhile, as the ends of
    # sessions of other tests, is less than it.
    assert written() - before < 10 * len(three) * count * size
    for number in (0, sessions - 1):
        with c.client(f"{name}{number}", clean=False, props=DURABLE, session_present=True) as back:
            assert [int(message.payload) for message in back.take(count)] == list(range(count))


def test_a_message_after_unsuback_does_not_arrive(three, name):
    a, b, _ = three
    with b.client(f"{name}b") as receiver, a.client() as sender:
        receiver.subscribe(name, f"{name}/end")
        receiver.unsubscribe(name)
        sender.publish(name, b"no")
        sender.publish(f"{name}/end", b"end")
        assert receiver.until(b"end") == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_shared_group_gets_each_message_once(three, name, qos):
    members = [node.client(f"{name}{n}") for n, node in enumerate(three)]
    with three[0].client() as sender:
        for member in members:
            member.subscribe(f"$share/{name}/{name}", qos=qos)
            member.subscribe(f"{name}/end", qos=qos)
        sent = {f"{n}".encode() for n in range(60)}
        for payload in sent:
            sender.published(name, payload, qos=qos)
        sender.published(f"{name}/end", b"end", qos=qos)
        got = [m.payload for member in members for m in member.until(b"end")]
    assert sorted(got) == sorted(sent)
    for member in members:
        member.close()


def test_retained_messages_are_on_all_nodes(three, name):
    a, *others = three
    with a.client() as sender:
        for value in (b"1", b"2"):
            sender.published(f"{name}/x", value, qos=1, retain=True)
            for node in others:
                with node.client() as reader:
                    reader.subscribe(f"{name}/#")
                    assert reader.message(retain=True).payload == value
        sender.published(f"{name}/x", b"", qos=1, retain=True)
    for node in others:
        with node.client() as reader:
            reader.subscribe(f"{name}/#")
            reader.publish(f"{name}/end", b"end")
            assert reader.until(b"end") == []


def test_a_will_is_heard_on_other_nodes(three, name):
    a, b, _ = three
    with b.client(f"{name}b") as watcher:
        watcher.subscribe(name, qos=1)
        will = {"topic": name, "payload": b"gone", "qos": 1}
        with a.client(f"{name}a", will=will):
            pass  # Closes without DISCONNECT.
        assert watcher.message().payload == b"gone"


# ---- sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_a_connection_elsewhere_takes_over(three, name, durable):
    fields = {"clean": not durable, "props": DURABLE if durable else None}
    a, b, c = three
    held = a.client(name, **fields)
    for node in (b, c, a):
        new = node.client(name, session_present=durable, **fields)
        # Session taken over.
        held.expect(DISCONNECT, reason=0x8E)
        held.expect_closed()
        held = new
    held.disconnect()


def test_many_take_one_identifier_and_one_keeps_it(three, name):
    clients = [three[n % 3].broker.raw() for n in range(12)]
    for client in clients:
        client.send(raw.connect(name, clean=False, props=DURABLE))
    # Whoever is disconnected was connected before or is refused; one stays, and is served.
    served, connected = set(clients), set()

    def one_is_left():
        for client in list(served):
            if not client.has_come():
                continue
            try:
                got = client.recv()
            except raw.Closed:
                served.discard(client)
                continue
            assert got.kind == CONNACK or (got.kind == DISCONNECT and got.reason == 0x8E), got
            if got.kind == CONNACK:
                connected.add(client)
        return len(served) == 1 and served <= connected

    until(one_is_left, what="one connection")
    served.pop().ping()


def test_a_queue_is_read_on_another_node(three, name):
    a, b, c = three
    with b.client(name, clean=False, props=DURABLE) as receiver:
        receiver.subscribe(f"{name}/#", qos=2)
    with a.client() as sender:
        for n in range(200):
            sender.published(f"{name}/x", f"{n}".encode(), qos=1 + n % 2)
    with c.client(name, clean=False, props=DURABLE, session_present=True) as receiver:
        assert [m.payload for m in receiver.take(200)] == [f"{n}".encode() for n in range(200)]


def test_what_was_in_flight_is_sent_again_on_another_node(three, name):
    a, b, c = three
    with b.client(name, clean=False, props=DURABLE) as receiver, a.client() as sender:
        receiver.subscribe(name, qos=2)
        for payload in (b"one", b"two", b"three"):
            sender.published(name, payload, qos=2)
        one, two, three_ = (receiver.expect(PUBLISH) for _ in range(3))
        receiver.send(raw.ack(PUBREC, one.pid))
        receiver.expect(PUBREL, pid=one.pid)
    with c.client(name, clean=False, props=DURABLE, session_present=True) as receiver:
        again = [receiver.recv() for _ in range(3)]
        # In the order in which they were sent (§4.4, §4.6).
        assert [(p.kind, p.pid) for p in again] == [(PUBREL, one.pid), (PUBLISH, two.pid), (PUBLISH, three_.pid)]
        assert all(p.dup for p in again[1:])
        receiver.send(raw.ack(PUBCOMP, one.pid))


def test_a_message_of_qos_2_is_released_on_another_node(three, name):
    a, b, c = three
    with c.client(f"{name}c") as receiver:
        receiver.subscribe(name, qos=2)
        with a.client(name, clean=False, props=DURABLE) as sender:
            sender.publish(name, b"once", qos=2, pid=7)
            sender.answer(PUBREC, 7)
        with b.client(name, clean=False, props=DURABLE, session_present=True) as sender:
            # Sent again, because PUBREC could have been lost.
            sender.publish(name, b"once", qos=2, pid=7, dup=True)
            sender.answer(PUBREC, 7)
            sender.send(raw.ack(PUBREL, 7))
            sender.answer(PUBCOMP, 7)
            sender.published(name, b"end", qos=2)
        assert [m.payload for m in receiver.until(b"end")] == [b"once"]


def test_a_session_that_ends_elsewhere_is_gone_everywhere(three, name):
    a, b, c = three
    with a.client(name, clean=False, props=DURABLE) as client:
        client.subscribe(name, qos=1)
    with b.client(name, clean=True):
        pass
    with c.client() as sender:
        sender.published(name, b"nobody", qos=1)
    with c.client(name, clean=False, props=DURABLE, session_present=False) as client:
        client.subscribe(f"{name}/end")
        client.publish(f"{name}/end", b"end")
        assert client.until(b"end") == []


def test_a_publisher_of_another_node_is_told_that_nobody_subscribes(three, name):
    a, b, _ = three
    with b.client() as receiver, a.client() as sender:
        sender.publish(name, b"x", qos=1, pid=1)
        assert sender.answer(PUBACK, 1).reason == 0x10
        receiver.subscribe(name, qos=1)
        sender.publish(name, b"x", qos=1, pid=2)
        assert sender.answer(PUBACK, 2).reason == 0
        assert receiver.message().payload == b"x"


def test_what_is_left_of_retained_messages_comes_on_another_node(three, name):
    first, second, _ = three
    topics = {f"{name}/{n}" for n in range(400)}
    with first.client(f"{name}p") as publisher:
        for topic in topics:
            publisher.published(topic, b"on", qos=2, retain=True)
    with first.client(name, clean=False, props=DURABLE) as client:
        client.subscribe(f"{name}/+", qos=2)
        got = [client.message().topic for _ in range(100)]
        # What it has acknowledged is read when this is answered, though messages are left that it has not read.
        client.published(f"{name}p", qos=1)
    with second.client(name, clean=False, props=DURABLE, session_present=True) as client:
        got += [client.message().topic for _ in range(300)]
        client.ping()
    assert sorted(got) == sorted(topics)


@pytest.fixture
def unlimited():
    """Three nodes whose clients may send and be sent as much as they like."""
    sets = {f"limits.connection.bytesPerSecond{way}": 0 for way in ("In", "Out")}
    with Cluster(3, sets) as cluster:
        yield cluster.nodes


def test_long_retained_messages_reach_a_durable_session_of_another_node(unlimited, name):
    """17 MiB of them fit neither into one message between nodes nor into one entry of the log."""
    first, second, third = unlimited
    payload = bytes(1 << 20)
    with first.client(f"{name}p") as publisher:
        for n in range(17):
            publisher.published(f"{name}/{n:02}", payload, qos=1, retain=True)
    # Whichever node leads its shard: two of the three nodes ask another one.
    for n, node in enumerate(unlimited):
        with node.client(f"{name}{n}", clean=False, props=DURABLE) as client:
            client.subscribe(f"{name}/+", qos=1)
            got = [m.topic for m in client.take(17)]
            assert sorted(got) == [f"{name}/{n:02}" for n in range(17)]
    # The shards go on.
    with second.client(f"{name}0", clean=False, props=DURABLE, session_present=True) as client:
        client.subscribe(f"{name}/end", qos=1)
        with third.client() as sender:
            sender.published(f"{name}/end", b"end", qos=1)
        assert client.message(topic=f"{name}/end").payload == b"end"


def test_a_slow_durable_session_costs_publishers_to_other_nodes_a_tenth(name):
    """P8, P11: that others receive the messages is known wherever these are connected."""
    with Cluster(3, {"limits.session.queueMessages": 40}) as cluster:
        a, b, c = cluster.nodes
        with (
            a.client(f"{name}s", props={**DURABLE, "receive_maximum": 10}) as slow,
            b.client(f"{name}p") as publisher,
            c.client(f"{name}o") as other,
        ):
            slow.subscribe(name, qos=1)
            other.subscribe(name, qos=1)
            clock, taken = Stopwatch(), 0
            while clock.seconds() < 4:
                publisher.published(name, b"x")
                other.message()
                taken += 1
                if taken % 8 == 0:
                    # Its queue stays about three quarters full.
                    slow.message()
            held = sum(n.broker.metric("heraldmq_publisher_backpressure_durable_seconds_total") for n in cluster.nodes)
            # A tenth, and on a busy machine some of each wait that ends late; without the limit nearly all of the time.
            assert 0 < held <= clock.seconds() / 2

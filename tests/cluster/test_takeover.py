"""One client identifier on several nodes (P5): the later connection has it, and nothing is lost by that (P4)."""

import threading

import pytest
from harness import raw
from harness.raw import DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from harness.wait import until

pytestmark = pytest.mark.quick("P5")

DURABLE = {"session_expiry": 3600}
TAKEN_OVER = 0x8E

# Times that a client goes to another node.
HOPS = 200


def session(durable):
    return {"clean": not durable, "props": DURABLE if durable else None}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
def test_the_later_connection_has_the_client_whatever_its_session_is(three, name, earlier, later):
    a, b, c = three
    for first, second in ((a, b), (b, c), (c, a)):
        held = first.client(name, **session(earlier))
        with second.client(name, **session(later)) as new:
            held.expect(DISCONNECT, reason=TAKEN_OVER)
            held.expect_closed()
            new.ping()
            new.disconnect()


def test_a_client_that_is_gone_is_not_looked_for(three, name):
    for n in range(12):
        with three[n % 3].client(name) as client:
            client.ping()
            client.disconnect()


def test_a_client_of_3_1_1_is_closed_without_a_word(three, name):
    a, b, _ = three
    held = a.client(name, version=4)
    with b.client(name, version=4):
        held.expect_closed()


@pytest.mark.parametrize("durable", [False, True])
def test_the_will_of_a_connection_that_is_taken_over_is_published_once(three, name, durable):
    a, b, c = three
    will = {"topic": f"{name}/will", "payload": b"gone", "qos": 1}
    with c.client(f"{name}c") as watcher:
        watcher.subscribe(f"{name}/#", qos=1)
        held = a.client(name, will=will, **session(durable))
        with b.client(name, **session(durable)) as new:
            held.expect(DISCONNECT, reason=TAKEN_OVER)
            assert watcher.message().payload == b"gone"
            new.published(f"{name}/end", b"end", qos=1)
            assert watcher.until(b"end") == []
            new.disconnect()


def test_a_delayed_will_is_not_published_when_the_session_goes_on_elsewhere(three, name):
    a, b, c = three
    will = {"topic": f"{name}/will", "payload": b"gone", "qos": 1, "props": {"will_delay": 1}}
    with c.client(f"{name}c") as watcher:
        watcher.subscribe(f"{name}/#", qos=1)
        held = a.client(name, will=will, **session(True))
        with b.client(name, session_present=True, **session(True)) as new:
            held.expect(DISCONNECT, reason=TAKEN_OVER)
            new.published(f"{name}/end", b"end", qos=1)
            assert watcher.until(b"end") == []
            new.disconnect()


class Hopper:
    """A client that takes its session from node to node, and answers what comes."""

    def __init__(self, name):
        self.name, self.seen, self.unreleased = name, [], set()

    def hop(self, node, *, answered, leave):
        """Answers so many packets there; the publisher never ends, so that they come."""
        client = node.client(self.name, session_present=True, **session(True))
        for _ in range(answered):
            self.take(client, client.recv())
        if leave:
            client.close()
        return client

    def take(self, client, packet):
        if packet.kind == PUBLISH:
            if packet.qos == 2:
                if packet.pid not in self.unreleased:
                    self.seen.append(packet.payload)
                self.unreleased.add(packet.pid)
                client.send(raw.ack(PUBREC, packet.pid))
            else:
                self.seen.append(packet.payload)
                client.send(raw.ack(PUBACK, packet.pid))
        elif packet.kind == PUBREL:
            self.unreleased.discard(packet.pid)
            client.send(raw.ack(PUBCOMP, packet.pid))
        else:
            assert packet.kind == DISCONNECT and packet.reason == TAKEN_OVER, packet


def publish_until(stopped, node, topic, sent):
    with node.client() as sender:
        while not stopped.is_set():
            qos = 1 + len(sent) % 2
            payload = f"{qos} {len(sent)}".encode()
            sent.append(payload)
            sender.published(topic, payload, qos=qos)


def is_heard_of(publisher, client, topic):
    """Messages of QoS 0 come, which they do as soon as the publisher's node knows the routes of the client's."""

    def comes():
        publisher.publish(topic, b"probe")
        return client.has_come()

    until(comes, what="a message of QoS 0")
    publisher.publish(topic, b"last probe")
    assert {message.payload for message in client.until(b"last probe")} == {b"probe"}


def test_another_node_takes_a_session_whose_routes_linger(three, name):
    a, b, c = three
    # Their routes stay for seconds, in which the metric is to be seen.
    many = 9_000

    def lingering():
        return a.broker.metric("heraldmq_sessions_routed_after_disconnect")

    before = lingering()
    with c.client(f"{name}p") as publisher:
        client = a.client(name, **session(True))
        client.subscribe(*(f"{name}/{number}" for number in range(many)), qos=1)
        client.subscribe(f"{name}/0")
        # What the subscriptions owe is looked for after SUBACK.
        publisher.published(f"{name}/1", b"online")
        client.message(payload="online")
        client.close()
        until(lambda: lingering() == before + 1, what="a session that lingers")
        publisher.published(f"{name}/1", b"away")
        with b.client(name, session_present=True, **session(True)) as client:
            client.message(payload="away", dup=False)
            is_heard_of(publisher, client, f"{name}/0")
            # The routes at the first node bring nothing twice.
            seen = []
            for first in ("0", "end 0"):
                wanted = {first.encode(), first.replace("0", "1").encode()}
                for qos, payload in enumerate(sorted(wanted)):
                    publisher.published(f"{name}/0", payload, qos=qos)
                while not wanted <= set(seen):
                    seen.append(client.message().payload)
            assert sorted(seen) == [b"0", b"1", b"end 0", b"end 1"]
            until(lambda: lingering() == before, what="the end of the lingering")
            client.disconnect()
        with a.client(name, session_present=True, **session(True)) as client:
            is_heard_of(publisher, client, f"{name}/0")
            client.disconnect()


def test_a_client_that_hops_between_nodes_loses_nothing(three, name):
    hopper = Hopper(name)
    with three[0].client(name, **session(True)) as client:
        client.subscribe(name, qos=2)
    stopped, sent = threading.Event(), []
    publisher = threading.Thread(target=publish_until, args=(stopped, three[0], name, sent))
    publisher.start()
    held = []
    for n in range(HOPS):
        held.append(hopper.hop(three[n % 3], answered=n % 5 % 4, leave=n % 4 == 0))
    stopped.set()
    publisher.join()
    with three[0].client() as sender:
        sender.published(name, b"end", qos=2)
    with three[1].client(name, session_present=True, **session(True)) as client:
        while b"end" not in hopper.seen:
            hopper.take(client, client.recv())
    for client in held:
        client.close()
    assert set(sent) <= set(hopper.seen)
    exactly_once = [payload for payload in hopper.seen if payload.startswith(b"2")]
    assert len(exactly_once) == len(set(exactly_once))


def test_a_publisher_that_hops_between_nodes_is_heard_once(three, name):
    with three[0].client(f"{name}r") as receiver, three[1].client(f"{name}d", **session(True)) as durable:
        for client in (receiver, durable):
            client.subscribe(name, qos=2)
        held = [three[0].client(name, **session(True))]
        for n in range(HOPS // 4):
            # Nothing is heard of PUBREC: another node has the session before.
            held[-1].send(raw.publish(name, f"{n}".encode(), qos=2, pid=n + 1))
            sender = three[(n + 1) % 3].client(name, session_present=True, **session(True))
            sender.publish(name, f"{n}".encode(), qos=2, pid=n + 1, dup=True)
            sender.answer(PUBREC, n + 1)
            sender.send(raw.ack(PUBREL, n + 1))
            sender.answer(PUBCOMP, n + 1)
            held.append(sender)
        held[-1].published(name, b"end", qos=2)
        for client in (receiver, durable):
            assert [m.payload for m in client.until(b"end")] == [f"{n}".encode() for n in range(HOPS // 4)]
    for client in held:
        client.close()

"""Limits and back-pressure (P7, P8): delay instead of loss, drops that are counted and named,
memory that stays put, refusals with their code."""

import contextlib
import re
import resource
import signal
import threading

import pytest

from harness import raw
from harness.broker import BASE, Broker
from harness.raw import CONNACK, DISCONNECT, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, Raw, ack
from harness.wait import DEADLINE_S, Stopwatch, until
from test_authentication import passwd

MIB = 1 << 20


def held_now(broker) -> int:
    """Publishers that wait for a subscriber."""
    return int(broker.metric("heraldmq_publishers_paused"))


def drops_of(broker, client_id):
    return [d for d in broker.drops() if d["client_id"] == client_id]


def pauses(broker, kind) -> int:
    """How often reads or writes have been put off, by the reason."""
    return int(broker.metric(f"heraldmq_{kind}_pauses_total"))


# ---- rates: delay, never loss ------------------------------------------------------------------


@pytest.mark.parametrize("direction, qos", [("In", 0), ("In", 1), ("Out", 1)])
def test_bytes_per_second(name, direction, qos):
    # limits.connection.bytesPerSecondIn / Out: a token bucket; everything arrives, later
    rate, count, size = 50_000, 150, 1000
    sets = {f"limits.connection.bytesPerSecond{d}": rate if d == direction else 0 for d in ("In", "Out")}
    with Broker(sets) as broker, broker.client(name) as subscriber, broker.client(name + "p") as publisher:
        subscriber.subscribe(name, qos=qos)
        clock = Stopwatch()
        for number in range(count):
            publisher.publish(name, str(number).ljust(size), qos=qos)
        got = [int(m.payload) for m in subscriber.take(count)]
        assert got == list(range(count))
        # The bucket may start full: at most one second's worth passes at once.
        assert clock.seconds() >= (count * size - rate) / rate * 0.8
        assert (pauses(broker, "read_rate") > 0, pauses(broker, "write_rate") > 0) == (direction == "In", direction == "Out")
        assert broker.drop_totals() == {} or not any(broker.drop_totals().values())


def test_a_throttled_client_does_not_slow_others(name):
    # The bucket is the connection's own: it is empty for half a minute, meanwhile another client is served.
    with Broker({"limits.connection.bytesPerSecondIn": 2_000}) as broker:
        with broker.client(name) as greedy, broker.client(name + "o") as other:
            other.subscribe(name, name + "o")
            greedy.send(*(raw.publish(name, b"x" * 1000) for _ in range(60)))
            until(lambda: pauses(broker, "read_rate"), what="an empty bucket")
            slow = 0
            for number in range(10):
                other.publish(name + "o", str(number))
                slow += len(other.until(str(number)))
            assert slow < 60


def test_no_limit(name):
    # 0 = no limit
    with Broker({"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}) as broker:
        with broker.client(name) as client:
            client.subscribe(name)
            for _ in range(10):
                client.publish(name, b"x" * MIB)
                client.message()
            assert pauses(broker, "read_rate") == pauses(broker, "write_rate") == 0


def test_publishes_per_second(name):
    # limits.connection.publishesPerSecond: the same, counted in packets
    with Broker({"limits.connection.publishesPerSecond": 50}) as broker, broker.client(name) as client:
        client.subscribe(name)
        clock = Stopwatch()
        for number in range(150):
            client.publish(name, str(number))
        assert [int(m.payload) for m in client.take(150)] == list(range(150))
        assert clock.seconds() >= 1.6
        assert pauses(broker, "publish_rate") > 0


# ---- slow consumers ----------------------------------------------------------------------------


def test_slow_consumer_qos0(name):
    # P7, P8: 60 MB at one who reads nothing: dropped, named, counted; memory stays in its limit;
    # the publisher is not held, a healthy consumer loses nothing
    sets = {"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}
    count, size = 30_000, 2000
    with Broker(sets) as broker, broker.client(name + "p") as publisher, broker.client(name + "h") as healthy:
        slow = broker.raw(receive_buffer=8192)
        slow.connect(name)
        slow.subscribe(name)
        healthy.subscribe(name)
        seen = []

        def read():
            while len(seen) < count:
                seen.append(healthy.message().payload[:6])

        reader = threading.Thread(target=read)
        reader.start()
        before = broker.rss()
        for first in range(0, count, 100):
            publisher.send(*(raw.publish(name, f"{n:06}".encode().ljust(size)) for n in range(first, first + 100)))
            # As fast as the healthy one reads: it is never more than 2 MB behind.
            until(lambda first=first: len(seen) > first - 1000, what="the healthy consumer")
        reader.join(DEADLINE_S)
        assert seen == [f"{n:06}".encode() for n in range(count)]
        # limits.session.queueBytes is 16 MiB; the rest is room for buffers and the allocator.
        assert broker.rss() - before < 48 * MIB
        dropped = drops_of(broker, name)
        assert dropped and dropped[0]["topic"] == name and dropped[0]["qos"] == 0 and dropped[0]["reason"]
        assert dropped[0]["bytes"] >= size
        total = broker.drop_totals()[dropped[0]["reason"]]
        assert 0 < total <= count
        # P7: what was sent is delivered or counted, one by one.
        publisher.ping()
        for _ in range(count - total):
            slow.expect(PUBLISH)
        # And it is served again.
        publisher.publish(name, b"again")
        slow.message(payload="again")
        slow.close()


def test_what_a_durable_session_was_not_sent_at_the_close_is_counted(name):
    # P7: QoS 0 for a client that is connected is in no inbox; it goes with the connection
    count, size = 50, 200_000
    sets = {"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}
    with Broker(sets) as broker, broker.client(name + "p") as publisher:
        slow = broker.raw(receive_buffer=8192)
        slow.connect(name, props={"session_expiry": 60})
        slow.subscribe(name)
        for number in range(count):
            publisher.publish(name, str(number).ljust(size))
        publisher.ping()
        assert drops_of(broker, name) == []
        slow.reset()
        dropped = until(lambda: drops_of(broker, name), what="the drops")
        assert {(d["topic"], d["qos"], d["reason"], d["bytes"]) for d in dropped} == {(name, 0, "offline_qos0", size)}
        until(lambda: broker.drop_totals()["offline_qos0"] == len(drops_of(broker, name)), what="as many are counted")


def test_slow_consumer_qos1_holds_the_publisher_back(name):
    # limits.connection.holdPublisherMs: PUBACK waits while the queue is full; nothing is lost
    sets = {"limits.session.queueMessages": 50, "limits.connection.holdPublisherMs": 60_000}
    with (
        Broker(sets) as broker,
        broker.client(name, props={"receive_maximum": 10}) as slow,
        broker.client(name + "p") as publisher,
    ):
        slow.subscribe(name, qos=1)
        count = 150
        # More than is read at once: the loop of the subscriber may be another one, and busy.
        publisher.send(*(raw.publish(name, str(n).ljust(2000), qos=1, pid=n + 1) for n in range(count)))
        until(lambda: held_now(broker), what="the publisher is held back")
        # About the queue's length; how much before or behind it the broker stops is not promised.
        handled = int(broker.metric("heraldmq_publishes_received_total", qos="1"))
        assert 25 < handled < count
        acked = 25
        for _ in range(acked):
            publisher.expect(PUBACK)
        assert held_now(broker) == 1
        # The consumer comes back to life.
        assert [int(m.payload) for m in slow.take(count)] == list(range(count))
        while acked < count:
            assert publisher.expect(PUBACK).reason < 0x80
            acked += 1
        assert drops_of(broker, name) == []


@pytest.mark.parametrize("kept", [PUBACK, PUBREC, PUBCOMP])
@pytest.mark.parametrize("expiry", [0, 600])
def test_one_acknowledgement_that_is_kept_back_stops_nothing(broker, name, expiry, kept):
    # [MQTT-3.3.4-9] [MQTT-4.4.0-1] as long as Receive Maximum leaves quota, messages go on
    qos, count, props = 1 if kept == PUBACK else 2, 5_000, {"session_expiry": expiry, "receive_maximum": 20}
    with broker.client(name, props=props) as client, broker.client(f"{name}p") as publisher:
        client.subscribe(name, qos=qos)
        numbers, first = [], None
        while len(numbers) < count:
            batch = range(len(numbers), len(numbers) + 100)
            publisher.send(*(raw.publish(name, str(n), qos=qos, pid=n % 100 + 1) for n in batch))
            for _ in batch:
                publisher.expect(PUBACK if qos == 1 else PUBREC, reason=0)
            if qos == 2:
                publisher.send(*(ack(PUBREL, n % 100 + 1) for n in batch))
                for _ in batch:
                    publisher.expect(PUBCOMP)
            while len(numbers) <= batch[-1] or (qos == 2 and last != "released"):
                got = client.recv()
                if got.kind == PUBLISH:
                    numbers.append(int(got.payload))
                    first, last = first or got.pid, got.pid
                elif got.pid == last:
                    last = "released"
                answer = PUBCOMP if got.kind == PUBREL else PUBACK if qos == 1 else PUBREC
                if (got.pid, answer) != (first, kept):
                    client.send(ack(answer, got.pid))
        assert numbers == list(range(count))
        client.ping()
        shown = broker.api(f"/api/v1/clients/{name}")
        assert (shown["in_flight"], shown["waits_for"]) == (1, None)
        if expiry == 0:
            return
        client.reset()
        publisher.published(name, "later", qos=1)
    with broker.client(name, clean=False, session_present=True, props=props) as client:
        # What it has not acknowledged, and nothing else, comes again.
        if kept == PUBCOMP:
            client.expect(PUBREL, pid=first)
            client.send(ack(PUBCOMP, first))
        else:
            client.message(pid=first, dup=True, payload="0")
        client.message(dup=False, payload="later")
        client.ping()
        assert broker.api(f"/api/v1/clients/{name}")["in_flight"] == 0


@pytest.mark.parametrize("expiry", [0, 600])
def test_a_client_that_acknowledges_nothing_is_named(broker, name, expiry):
    props = {"session_expiry": expiry, "receive_maximum": 2}
    with broker.client(name, props=props) as client, broker.client(f"{name}p") as publisher:
        client.subscribe(name, qos=1)
        for number in range(3):
            publisher.published(name, str(number), qos=1)
        pids = [client.expect(PUBLISH, payload=str(number)).pid for number in range(2)]

        def waits_for():
            return broker.api(f"/api/v1/clients/{name}")["waits_for"]

        until(lambda: waits_for() == "receive_maximum", what="why it gets no more")
        client.send(ack(PUBACK, pids[1]))
        client.message(payload="2")
        until(lambda: waits_for() is None, what="nothing waits")


@pytest.mark.parametrize("hold_ms", [60_000, 300])
def test_a_durable_session_that_fills_up_holds_the_publisher_back(name, hold_ms):
    # P8: for moments, at three quarters of the queue, and for holdPublisherMs in all
    sets = {"limits.session.queueMessages": 400, "limits.connection.holdPublisherMs": hold_ms}
    with (
        Broker(sets) as broker,
        broker.client(name, props={"session_expiry": 60, "receive_maximum": 10}) as slow,
        broker.client(name + "p") as publisher,
    ):
        slow.subscribe(name, qos=1)
        stored = 280
        publisher.send(*(raw.publish(name, str(n), qos=1, pid=publisher.next_pid()) for n in range(stored)))
        for _ in range(stored):
            publisher.expect(PUBACK, reason=0)

        def held():
            nonlocal stored
            publisher.published(name, str(stored))
            stored += 1
            # While PUBLISH packets wait, PINGREQ is answered.
            publisher.send(raw.publish(name + "/nobody", qos=1, pid=publisher.next_pid()), raw.PING)
            return [publisher.recv().kind for _ in range(2)] == [PINGRESP, PUBACK]

        assert not held()
        until(held, what="the publisher is held back")
        assert stored >= 300
        if hold_ms == 300:
            until(lambda: not any(held() for _ in range(3)), what="it is held back no longer")
            assert stored < 400
        # The consumer comes back to life.
        assert [int(m.payload) for m in slow.take(stored)] == list(range(stored))
        slow.ping()
        assert not held()
        assert drops_of(broker, name) == []


def test_a_slow_durable_session_costs_publishers_to_others_a_tenth(name):
    # P8, P11: it is held for limits.connection.holdUnearnedMs, then a tenth of the time, whether the session stalls or hovers
    sets = {"limits.session.queueMessages": 40}
    with (
        Broker(sets) as broker,
        broker.client(name, props={"session_expiry": 60, "receive_maximum": 10}) as slow,
        broker.client(name + "o") as other,
        broker.client(name + "p") as publisher,
    ):
        slow.subscribe(name, qos=1)
        other.subscribe(name, qos=1)
        clock = Stopwatch()
        hovered = 0
        while clock.seconds() < 3:
            publisher.published(name, b"x")
            other.message()
            if hovered % 8 == 0:
                # It takes some, and its queue stays about three quarters full.
                slow.message()
            hovered += 1
        held = broker.metric("heraldmq_publisher_backpressure_durable_seconds_total")
        # A tenth, and on a busy machine some of each wait that ends late; without the limit it is nearly all of the time.
        assert 0 < held <= clock.seconds() / 2
        assert broker.metric("heraldmq_publisher_backpressure_skipped_total") > 0
        (row,) = broker.api("/api/v1/backpressure")["items"]
        assert (row["subscriber"], row["publisher"], row["durable"]) == (name, name + "p", True)


# A publisher of the same event loop is held back from its next message on; one of another loop when that loop hears of it.
ONE_LOOP = {"eventLoops": 1}


def test_holding_ends(name):
    # After holdPublisherMs the policy decides (dropNewest): dropped, counted, and it goes on
    sets = {**ONE_LOOP, "limits.session.queueMessages": 20, "limits.connection.holdPublisherMs": 300}
    with (
        Broker(sets) as broker,
        broker.client(name, props={"receive_maximum": 5}) as slow,
        broker.client(name + "p") as publisher,
    ):
        slow.subscribe(name, qos=1)
        clock = Stopwatch()
        for number in range(27):
            publisher.publish(name, str(number), qos=1, pid=number + 1)
            publisher.expect(PUBACK, pid=number + 1)
        assert clock.seconds() >= 0.25
        dropped = until(lambda: drops_of(broker, name), what="a drop in the ring")
        got = [int(m.payload) for m in slow.take(27 - len(dropped))]
        assert got == list(range(len(got))), "dropNewest keeps the oldest, in order"


def test_subscribers_that_stall_one_after_the_other_do_not_hold_a_publisher_each_time(name):
    # P11: the first holds its publisher for holdPublisherMs; who comes anew to do the same, and has never drained,
    # holds it no more for nine times as long
    sets = {**ONE_LOOP, "limits.session.queueMessages": 20, "limits.connection.holdPublisherMs": 2_000}

    def count(metric):
        line = re.search(rf"^heraldmq_{metric}_total (\d+)$", broker.http("/metrics")[1], re.M)
        return int(line[1])

    def publish_to(staller):
        staller.subscribe(name, qos=1)
        for number in range(27):
            publisher.publish(name, str(number), qos=1, pid=number + 1)
            publisher.expect(PUBACK, pid=number + 1)

    with Broker(sets) as broker, broker.client(name + "p") as publisher:
        for number in range(4):
            with broker.client(f"{name}{number}", props={"receive_maximum": 5}) as staller:
                publish_to(staller)
            assert count("publisher_backpressure") == 1
        assert count("publisher_backpressure_expired") == 1
        assert count("publisher_backpressure_skipped") > 0
        line = "a subscriber does not keep up; publishers to it are held back"
        held = until(lambda: broker.find(line, client_id=f"{name}0"), what="the line")
        assert [line["publisher"] for line in held] == [name + "p"]


@pytest.mark.parametrize("reads", [False, True])
def test_who_never_read_does_not_hold_up_what_others_get_too(name, reads):
    # P11: a subscriber that has acknowledged messages has earned that its publishers wait for it
    sets = {"limits.session.queueMessages": 20, "limits.connection.holdPublisherMs": 60_000}
    with (
        Broker(sets) as broker,
        broker.client(name, props={"receive_maximum": 5}) as staller,
        broker.client(name + "o") as other,
        broker.client(name + "p") as publisher,
    ):
        staller.subscribe("#", qos=1)
        other.subscribe(name, qos=1)
        read = 200 if reads else 0
        for number in range(read):
            publisher.published(name, str(number))
            for receiver in (staller, other):
                assert int(receiver.message().payload) == number
        publisher.send(*(raw.publish(name, str(n), qos=1, pid=n + 1) for n in range(read, read + 100)))
        if reads:
            line = "a subscriber does not keep up; publishers to it are held back"
            until(lambda: broker.find(line, client_id=name), what="a publisher that waits")
            assert held_now(broker) == 1
            assert [int(m.payload) for m in staller.take(100)] == list(range(read, read + 100))
            assert drops_of(broker, name) == []
        assert [int(m.payload) for m in other.take(100)] == list(range(read, read + 100))
        if not reads:
            # It held the publisher for a moment.
            assert broker.metric("heraldmq_publisher_backpressure_expired_total") == 1
            assert {drop["reason"] for drop in drops_of(broker, name)} == {"queue_full_messages"}


def test_held_publishers_do_not_hold_others(name):
    # P8: one publisher waits, another one to another topic does not
    sets = {"limits.session.queueMessages": 10, "limits.connection.holdPublisherMs": 600_000}
    with Broker(sets) as broker, broker.client(name, props={"receive_maximum": 1}) as slow:
        with broker.client(name + "p") as held, broker.client(name + "o") as other:
            slow.subscribe(name, qos=1)
            held.send(*(raw.publish(name, b"x", qos=1, pid=n + 1) for n in range(50)))
            until(lambda: held_now(broker) == 1, what="a publisher that waits")
            other.subscribe(name + "o", qos=1)
            for _ in range(50):
                other.published(name + "o", b"x")
                other.message()
            assert held_now(broker) == 1


# ---- queues of sessions that are away ------------------------------------------------------------


@pytest.mark.parametrize("policy, kept", [("dropNewest", range(0, 10)), ("dropOldest", range(15, 25))])
@pytest.mark.parametrize("qos", [1, 2])
def test_queue_limit_in_messages(name, policy, kept, qos):
    sets = {
        "limits.session.queueMessages": 10,
        "limits.session.queueFull": policy,
        "limits.connection.holdPublisherMs": 0,
    }
    with Broker(sets) as broker:
        with broker.client(name, props={"session_expiry": 60}) as client:
            client.subscribe(name, qos=qos)
            client.disconnect()
        with broker.client(name + "p") as publisher:
            for number in range(25):
                publisher.published(name, str(number), qos=qos)
        dropped = drops_of(broker, name)
        assert len(dropped) == 15
        assert broker.drop_totals()[dropped[0]["reason"]] == 15
        with broker.client(name, clean=False, session_present=True) as client:
            assert [int(m.payload) for m in client.take(10)] == list(kept)
            client.ping()


def fill(broker, name, count=10):
    """A session that is away, and whose queue is full."""
    with broker.client(name, props={"session_expiry": 60}) as client:
        client.subscribe(name, qos=1)
        client.disconnect()
    with broker.client() as publisher:
        for number in range(count):
            publisher.published(name, str(number))


def test_a_full_queue_refuses_nobody_by_default(name):
    # P1: who is away loses what its queue has no room for, counted (P7); others, and the publisher, do not notice
    with Broker({"limits.session.queueMessages": 10}) as broker:
        fill(broker, name)
        with broker.client(name + "p") as publisher, broker.client(name + "o") as other:
            other.subscribe(name, qos=1)
            for number in range(10, 15):
                publisher.published(name, str(number))
                assert other.message().payload == str(number).encode()
        (row,) = broker.api("/api/v1/drops/sessions")["items"]
        assert (row["client_id"], row["dropped"], row["reasons"]) == (name, 5, {"queue_full_messages": 5})
        assert row["first"] <= row["last"]
        assert len(drops_of(broker, name)) == 5
        full = "the queue of a session is full; messages are dropped for it (limits.session)"
        (line,) = until(lambda: broker.find(full), what="the line")
        assert (line["client_id"], line["dropped"]) == (name, 1)
        assert broker.metric("heraldmq_inboxes_full") == 1
        assert broker.metric("heraldmq_sessions_away", longer_than="1d") == 0
        with broker.client(name, clean=False, session_present=True) as client:
            assert [int(m.payload) for m in client.take(10)] == list(range(10))
            client.ping()
            until(lambda: broker.metric("heraldmq_inboxes_full") == 0, what="room in the queue")


def test_a_full_queue_refuses_where_it_is_set(name):
    # P1: queueFull: refuse; the publisher knows what is not kept by all
    with Broker({"limits.session.queueMessages": 10, "limits.session.queueFull": "refuse"}) as broker:
        with broker.client(name, props={"session_expiry": 60}) as client:
            client.subscribe(name, qos=1)
            client.disconnect()
        with broker.client(name + "p") as publisher:
            reasons = [publisher.answer(PUBACK, publisher.publish(name, str(n), qos=1)).reason for n in range(12)]
            assert reasons == 10 * [0] + 2 * [0x97]
        with broker.client(name, clean=False, session_present=True) as client:
            assert [int(m.payload) for m in client.take(10)] == list(range(10))
            client.ping()


def test_who_has_been_away_for_long_refuses_nothing(name):
    # limits.session.queueFullAwaySeconds
    sets = {
        "limits.session.queueMessages": 10,
        "limits.session.queueFull": "refuse",
        "limits.session.queueFullAwaySeconds": 1,
    }
    with Broker(sets) as broker:
        fill(broker, name)
        with broker.client(name + "p") as publisher:

            def publishes():
                return publisher.answer(PUBACK, publisher.publish(name, b"more", qos=1)).reason == 0

            until(publishes, what="a session that has been away for a second")
            assert drops_of(broker, name)


def test_queue_limit_in_bytes(name):
    sets = {
        "limits.session.queueBytes": 10_000,
        "limits.session.queueFull": "dropNewest",
        "limits.connection.holdPublisherMs": 0,
    }
    with Broker(sets) as broker:
        with broker.client(name, props={"session_expiry": 60}) as client:
            client.subscribe(name, qos=1)
            client.disconnect()
        with broker.client(name + "p") as publisher:
            for number in range(30):
                publisher.published(name, str(number).ljust(1000))
        dropped = len(drops_of(broker, name))
        assert 20 <= dropped <= 25
        with broker.client(name, clean=False, session_present=True) as client:
            assert [int(m.payload) for m in client.take(30 - dropped)] == list(range(30 - dropped))
            client.ping()


# ---- the ring of recent drops --------------------------------------------------------------------


def test_recent_drops(name):
    # limits.node.recentDrops bounds the ring, never the counters; newest first; ?limit=
    with Broker({"limits.node.recentDrops": 5}) as broker:
        with broker.client(name, props={"maximum_packet_size": 100}) as client, broker.client(name + "p") as publisher:
            client.subscribe(name + "/+")
            for number in range(20):
                publisher.published(f"{name}/{number}", b"x" * 200, qos=1)
            until(lambda: sum(broker.drop_totals().values()) == 20, what="20 drops")
            ring = broker.drops()
            assert [d["topic"] for d in ring] == [f"{name}/{n}" for n in (19, 18, 17, 16, 15)]
            assert set(ring[0]) == {"at", "node", "node_name", "role", "client_id", "topic", "reason", "qos", "bytes"}
            assert [d["topic"] for d in broker.drops(limit=2)] == [f"{name}/19", f"{name}/18"]


# ---- limits with refusals ------------------------------------------------------------------------


def test_connections(name):
    # limits.node.connections
    with Broker({"limits.node.connections": 3}) as broker:
        clients = [broker.client(f"{name}{n}") for n in range(3)]
        with broker.raw() as client:
            client.send(raw.connect(name))
            client.expect_refused(0x97, 0x89, 0x88, None)
        for client in clients:
            client.ping()
        clients[0].disconnect()

        def connects():
            try:
                broker.client(name).disconnect()
                return True
            except (AssertionError, ConnectionError):
                return False

        until(connects, what="a connection in the place that is free")


def test_connections_per_second(name):
    # limits.node.connectionsPerSecond: further ones wait, and all get in
    with Broker({"limits.node.connectionsPerSecond": 10}) as broker:
        clock = Stopwatch()
        clients = [broker.raw() for _ in range(25)]
        for number, client in enumerate(clients):
            client.send(raw.connect(f"{name}{number}"))
        for client in clients:
            client.expect(CONNACK, reason=0)
            client.close()
        assert clock.seconds() >= 1.2


def test_sessions(name):
    # limits.node.sessions: 0x97
    with Broker({"limits.node.sessions": 3}) as broker:
        for number in range(3):
            broker.client(f"{name}{number}", props={"session_expiry": 60}).disconnect()
        with broker.raw() as client:
            client.send(raw.connect(name, props={"session_expiry": 60}))
            client.expect_refused(0x97)
        # A session that exists may come back.
        with broker.client(f"{name}1", clean=False, session_present=True) as client:
            client.disconnect(0, {"session_expiry": 0} if "session_expiry" in client.connack.props else None)


@pytest.mark.parametrize("version, reason", [(5, 0x97), (4, 0x80)])
def test_subscriptions(name, version, reason):
    # limits.session.subscriptions
    with Broker({"limits.session.subscriptions": 3}) as broker, broker.client(name, version=version) as client:
        client.subscribe("a", "b", "c", "d", expect=[0, 0, 0, reason])
        client.subscribe("b", qos=1)  # one that exists is replaced
        client.unsubscribe("a")
        client.subscribe("e")
        client.subscribe("f", expect=[reason])


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
@pytest.mark.parametrize("version, reason", [(5, 0x97), (4, 0x80)])
def test_wildcard_patterns(name, version, reason, durable):
    # limits.session.wildcardPatterns: sets of levels that are `+`, however many filters have them
    props = {"session_expiry": 60} if durable and version == 5 else {}
    how = {"version": version, "clean": not durable, **({"props": props} if props else {})}
    with Broker({"limits.session.wildcardPatterns": 2}) as broker:
        with broker.client(name, **how) as client:
            client.subscribe("a/+", "b/+", "c/#", "+/a", "a/+/+", "d", expect=[0, 0, 0, 0, reason, 0])
            client.subscribe("c/+/#")
            client.subscribe("+/+", expect=[reason])
            client.unsubscribe("+/a")
            client.subscribe("+/+")
            client.subscribe("+/b", expect=[reason])
        if durable:
            # They count when the session goes on, too.
            with broker.client(name, **how) as client:
                client.subscribe("x/+")
                client.subscribe("+/b", expect=[reason])
@pytest.mark.parametrize("clean", [True, False])
def test_subscription_bytes(name, clean):
    # limits.session.subscriptionBytes: of the filters, counted down again by UNSUBSCRIBE
    with Broker({"limits.session.subscriptionBytes": 10}) as broker:
        with broker.client(name, clean=clean, **({} if clean else {"props": {"session_expiry": 60}})) as client:
            client.subscribe("1234", "123456", "1", expect=[0, 0, 0x97])
            client.subscribe("1234", "12345", expect=[0, 0x97])
            client.unsubscribe("123456")
            client.subscribe("12345", "12", "1", expect=[0, 0x97, 0])
            assert broker.metric("heraldmq_subscription_filters_bytes") == 10
        if not clean:
            with broker.client(name, clean=False, session_present=True, props={"session_expiry": 60}) as client:
                client.subscribe("2", expect=[0x97])
                assert broker.metric("heraldmq_subscription_filters_bytes") == 10
        until(lambda: broker.metric("heraldmq_subscription_filters_bytes") == 0, what="filters to be gone")


def test_subscription_bytes_of_a_node(name):
    # limits.node.subscriptionBytes: of all clients that are connected
    with Broker({"limits.node.subscriptionBytes": 10}) as broker:
        with broker.client(name) as client:
            client.subscribe("12345678")
            with broker.client(name + "2") as other:
                other.subscribe("12", "3", expect=[0, 0x97])
                client.unsubscribe("12345678")
                other.subscribe("12345678")


def codes_of(client, filter) -> list[int]:
    """What a SUBSCRIBE is answered with."""
    pid = client.next_pid()
    client.send(raw.subscribe(pid, [(filter, 0)], version=client.version))
    return client.answer(SUBACK, pid).reasons


def test_subscription_bytes_of_absent_sessions(name):
    # limits.node.subscriptionBytes: what sessions have that are away counts too
    props = {"session_expiry": 60}
    with Broker({"limits.node.subscriptionBytes": 10}) as broker:
        with broker.client(name, props=props) as client:
            client.subscribe("12345678")
            client.disconnect()
        until(lambda: broker.metric("heraldmq_inbox_filters_bytes") == 8, what="the filters of the inbox")
        with broker.client(name + "2") as other:
            other.subscribe("12", "3", expect=[0, 0x97])
        with broker.client(name, props={"session_expiry": 0}) as client:
            client.disconnect()
        with broker.client(name + "2") as other:
            until(lambda: codes_of(other, "1234567890") == [0], what="room after the end of the session")


def test_wildcard_patterns_of_a_node(name):
    # limits.node.wildcardPatterns: of all sessions, also of those that are away
    props = {"session_expiry": 60}
    with Broker({"limits.node.wildcardPatterns": 3}) as broker:
        with broker.client(name, props=props) as client:
            client.subscribe("a/+", "+/a")
            client.disconnect()
        with broker.client(name + "2") as other:
            # Two filters of one new pattern take room once.
            other.subscribe("b/+", "a", "+/+", "+/+/x", "a/a/+", "+/b/#", "#", expect=[0, 0, 0, 0, 0x97, 0, 0])
            assert broker.metric("heraldmq_wildcard_patterns") == 3
            other.unsubscribe("+/+", "+/+/x")
            other.subscribe("a/a/+")


@pytest.mark.parametrize("what", ["patterns", "bytes"])
def test_a_user_has_a_share(name, what, tmp_path):
    # limits.node.userShare: many sessions of one user, connected or away, leave room for others
    filters = [f"{'a/' * n}+" for n in range(8)] if what == "patterns" else [f"{n}".ljust(300, "x") for n in range(8)]
    sets = {"limits.node.wildcardPatterns": 16} if what == "patterns" else {"limits.node.subscriptionBytes": 4_800}
    file = tmp_path / "passwords"
    for user in ("alice", "bob"):
        passwd(file, user, "x")
    chain = [{"kind": "passwordFile", "file": str(file)}]
    with Broker(sets, config={**BASE, "authentication": {"chain": chain}}) as broker:

        def subscribes(client_id, user, filter):
            with broker.client(client_id, username=user, password=b"x", props={"session_expiry": 60}) as client:
                code = codes_of(client, filter)
                client.disconnect()
            return code

        codes = [subscribes(f"{name}{n}", "alice", filter) for n, filter in enumerate(filters)]
        assert codes == 4 * [[0]] + 4 * [[0x97]]
        assert subscribes(f"{name}0", "alice", filters[0]) == [0]
        assert subscribes(f"{name}b", "bob", filters[4]) == [0]
        # A session that ends makes room.
        with broker.client(f"{name}0", username="alice", password=b"x", props={"session_expiry": 0}) as client:
            client.disconnect()
        if what == "bytes":
            until(lambda: subscribes(f"{name}9", "alice", filters[7]) == [0], what="room after the end of a session")


def test_memory_of_subscriptions(name):
    # P8: filters as long as they may be cost at most four times what was sent
    sets = {
        "limits.topic.length": 65_535,
        "limits.session.subscriptionBytes": 1 << 40,
        "limits.connection.bytesPerSecondIn": 0,
    }
    with Broker(sets) as broker, broker.client(name) as client:
        before, sent = broker.rss(), 0
        for number in range(500):
            filters = [f"{number}/+/".ljust(65_000, "x")]
            sent += len(filters[0])
            client.subscribe(*filters)
        assert broker.rss() - before < 4 * sent


TOPIC_LIMITS = [({"limits.topic.levels": 4}, "a/b/c/d", "a/b/c/d/e"), ({"limits.topic.length": 20}, "x" * 20, "x" * 21)]


@pytest.mark.parametrize("sets, good, bad", TOPIC_LIMITS, ids=["levels", "length"])
def test_topic_limits(name, sets, good, bad):
    # limits.topic: 0x90 for a name, 0x8F for a filter (4.13, tables 3-4 and 3-8)
    with Broker(sets) as broker:
        with broker.client(name) as client:
            client.subscribe(good)
            client.publish(good, b"x")
            client.message(payload="x")
            client.subscribe(bad, expect=[0x8F])
            client.publish(bad, b"x", qos=1, pid=9)
            got = client.recv()
            assert got.kind in (PUBACK, DISCONNECT) and got.reason == 0x90, got
        with broker.client(name, version=4) as client:
            client.subscribe(bad, expect=[0x80])
            client.ping()


def test_retained_messages(name):
    # retain.maxMessages: one more is refused with 0x97, replacing one is possible
    with Broker({"retain.maxMessages": 3, "sys.intervalSeconds": 0}) as broker, broker.client(name) as client:
        for number in range(3):
            client.published(f"{name}/{number}", b"kept", retain=True)
        client.publish(f"{name}/3", b"too many", qos=1, pid=500, retain=True)
        client.expect(PUBACK, pid=500, reason=0x97)
        client.published(f"{name}/0", b"replaced", retain=True)
        client.subscribe(f"{name}/+")
        assert sorted(m.topic for m in client.take(3)) == [f"{name}/{n}" for n in range(3)]
        client.ping()


def test_clients_do_not_take_the_files_of_the_store(name):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))

    # In one broker: clients that come and go, more than there are descriptors for, and several files of the log.
    sets = {"limits.connection.bytesPerSecondIn": 0, "limits.session.queueBytes": 256 * MIB}
    with Broker(sets, preexec_fn=few) as broker, broker.client() as publisher:
        told = broker.find("file descriptors")[0]
        assert told["limit"] == 300 and told["kept_back"] + told["for_clients"] == 300
        assert broker.metric("heraldmq_descriptors_kept_back") == told["kept_back"]
        most = told["for_clients"]
        assert broker.metric("heraldmq_connection_descriptors") == most

        def taken():
            return broker.metric("heraldmq_connection_descriptors_taken")

        def is_alarm():
            return any(alarm["name"] == "descriptors" for alarm in broker.api("/api/v1/alarms")["items"])

        with broker.client(f"{name}-away", clean=True, props={"session_expiry": 3600}) as durable:
            durable.subscribe(f"{name}/#", qos=1)
        for number in range(3):
            until(lambda: taken() == 1, what="only the publisher")
            until(lambda: not is_alarm(), what="the end of the alarm")
            with contextlib.ExitStack() as stack:
                crowd = []
                for place in range(300):
                    crowd.append(stack.enter_context(Raw(broker.port)))
                    crowd[-1].send(raw.connect(f"{name}-{place}"))
                until(lambda: taken() == most, what="all places taken")
                until(is_alarm, what="the alarm")
                assert broker.metric("heraldmq_accept_waits_total") > number
                for _ in range(24):
                    for _ in range(8):
                        publisher.publish(f"{name}/{number}", b"x" * (MIB // 8), qos=1)
                    for _ in range(8):
                        publisher.expect(PUBACK)
                assert broker.http("/healthz")[0] == 200
                # Who waits in the listener gets in as others go.
                for client in crowd[: -most // 2]:
                    client.close()
                for client in crowd[-most // 2 :]:
                    client.expect(CONNACK)
        assert broker.metric("heraldmq_accept_errors_total") == 0
        assert broker.process.poll() is None


@pytest.mark.parametrize("version, reason", [(5, 0x97), (4, 3)])
def test_memory_refusal(name, version, reason):
    # limits.node.memoryRefuse: below what any process needs, so it is reached at once
    with Broker({"limits.node.memoryHighWater": 1_000_000, "limits.node.memoryRefuse": 1_000_000}) as broker:

        def refused():
            with broker.raw(version) as client:
                client.send(raw.connect(name, version=version))
                got = client.expect(CONNACK)
                if got.reason == 0:
                    return False
                assert got.reason == reason
                client.expect_closed()
                return True

        until(refused, what="a refusal for lack of memory")


def test_memory_high_water(name):
    # limits.node.memoryHighWater: reading of publishers stops; what was sent waits, and is not lost
    scarce = {"limits": {"node": {"memoryHighWater": 1_000_000, "memoryRefuse": 1 << 40}}}
    with Broker() as broker:
        with broker.client(name) as client:
            client.subscribe(name)
            broker.write_config({**BASE, **scarce})
            broker.signal(signal.SIGHUP)
            until(lambda: broker.find("memory is scarce"), what="the memory mark")
            # A subscription that exists may be replaced.
            client.subscribe(name, name + "/more", expect=[0, 0x97])
            sent = 0

            def is_put_off():
                # Memory is looked at now and then: the first messages may pass.
                nonlocal sent
                client.publish(name, str(sent))
                sent += 1
                return pauses(broker, "memory")

            until(is_put_off, what="a publisher that is not read")
            passed = int(broker.metric("heraldmq_publishes_received_total", qos="0"))
            assert passed < sent
            assert [int(m.payload) for m in client.take(passed)] == list(range(passed))
            # Others are served until they publish.
            with broker.client(name + "o") as other:
                other.ping()
                other.publish(name + "/nobody", b"x")
                until(lambda: pauses(broker, "memory") == 2, what="another publisher that is not read")
            assert not client.has_come()
            broker.write_config(BASE)
            broker.signal(signal.SIGHUP)
            assert [int(m.payload) for m in client.take(sent - passed)] == list(range(passed, sent))


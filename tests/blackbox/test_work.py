"""Work in proportion (P11): what one client sends costs others their fair share at most. Counted, not timed."""

import contextlib

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import PINGRESP, PUBACK, SUBACK, UNSUBACK
from harness.wait import Stopwatch, until

# One loop, so that clients are in each other's way; no rates.
ALONE = {
    "eventLoops": 1,
    "limits.connection.bytesPerSecondIn": 0,
    "limits.connection.bytesPerSecondOut": 0,
}


def pings_until(bystander, client) -> int:
    """How many pings of a bystander are answered one after the other before a client gets anything."""
    pings = 0
    while not client.has_come():
        bystander.send(raw.PING)
        bystander.expect(PINGRESP)
        pings += 1
    return pings


@pytest.mark.parametrize("durable", [False, True])
def test_a_long_subscribe_is_worked_off_in_parts(name, durable):
    fields = {"clean": False, "props": {"session_expiry": 60}} if durable else {}
    count = 100_000
    filters = [f"{number:x}" for number in range(count)]
    with Broker(ALONE) as broker, broker.client(name + "b") as bystander:
        with broker.client(name, **fields) as client:

            def is_served_meanwhile():
                client.send(raw.subscribe(7, [(filter, 1) for filter in filters]))
                first = pings_until(bystander, client)
                suback = client.expect(SUBACK, pid=7)
                # The order of the codes is that of the filters.
                assert suback.reasons == [1] * 10_000 + [0x97] * (count - 10_000)
                client.send(raw.unsubscribe(8, filters))
                second = pings_until(bystander, client)
                unsuback = client.expect(UNSUBACK, pid=8)
                assert unsuback.reasons == [0] * 10_000 + [0x11] * (count - 10_000)
                return min(first, second) > 20

            # Once: while this program itself does not run, it cannot ping. In one part there is time for one of them.
            until(is_served_meanwhile, what="twenty pings while a packet is worked off")
            # What came meanwhile is handled behind that.
            client.send(raw.subscribe(9, [(filter, 1) for filter in filters[:1000]]), raw.PING)
            client.expect(SUBACK, pid=9)
            client.expect(PINGRESP)
            client.published("3e7", b"x")
            client.message(topic="3e7", payload="x")


def test_a_long_subscribe_that_names_a_filter_twice(name):
    # The last options count, in whichever parts of the packet they stand.
    with Broker(ALONE) as broker, broker.client(name) as client:
        filters = [(f"{name}/{number}", 0) for number in range(600)]
        client.send(raw.subscribe(7, [*filters, *((filter, 1) for filter, _ in reversed(filters)), filters[5], filters[5]]))
        assert client.expect(SUBACK, pid=7).reasons == [0] * 600 + [1] * 600 + [0, 0]
        for number, qos in [(0, 1), (599, 1), (5, 0)]:
            client.publish(f"{name}/{number}", b"x", qos=1, pid=9)
            got = [client.recv(), client.recv()]
            assert {packet.kind for packet in got} == {raw.PUBLISH, PUBACK}
            message = next(packet for packet in got if packet.kind == raw.PUBLISH)
            assert message.qos == qos
            if qos:
                client.send(raw.ack(PUBACK, message.pid))


@pytest.mark.parametrize("flood", ["pings", "releases"])
def test_small_packets_take_turns(name, flood):
    small = {"pings": raw.PING, "releases": raw.ack(raw.PUBREL, 7)}[flood]
    with Broker(ALONE) as broker, broker.client(name) as client, broker.client(name + "b") as bystander:
        before = broker.metric("heraldmq_loop_turns_total")
        count = 16_000
        client.send(small * count)
        for _ in range(count):
            client.recv()
        bystander.ping()
        turns = broker.metric("heraldmq_loop_turns_total") - before
        assert turns >= count // 1024, turns


def test_the_log_of_refused_filters_is_one_short_line(name):
    client_id = name.ljust(60_000, "c")
    filters = ["a#" + "f" * 300] * 1250
    with Broker(ALONE) as broker, broker.client(client_id) as client:
        before = sum(map(len, broker.log_text))
        packet = raw.subscribe(7, [(filter, 0) for filter in filters])
        client.send(packet)
        assert set(client.expect(SUBACK, pid=7).reasons) == {0x8F}
        client.ping()
        line = until(lambda: broker.find("subscriptions are refused"), what="the line")[0]
        assert line["refused"] == line["of"] == len(filters)
        assert line["client_id"].startswith(name) and len(line["client_id"]) < 100
        assert len(line["filters"]) < 500
        assert sum(map(len, broker.log_text)) - before < 2_000
        # Further packets have their lines limited, to ten a second.
        clock = Stopwatch()
        for _ in range(200):
            client.send(packet)
            client.expect(SUBACK, pid=7)
        lines = len(broker.find("subscriptions are refused"))
        assert lines < min(200, 20 + 11 * clock.seconds()), lines


@pytest.mark.parametrize("qos", [0, 1])
def test_many_receivers_get_their_messages_in_order(name, qos):
    receivers, messages = 3000, 12
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker({**ALONE, "limits.connection.receiveMaximum": 1000}))
        publisher = stack.enter_context(broker.client(name + "p"))
        other = stack.enter_context(broker.client(name + "q"))
        clients = [stack.enter_context(broker.client(f"{name}{number}")) for number in range(receivers)]
        for client in clients:
            client.subscribe(name, f"{name}/{client is clients[-1]}")
        publisher.send(
            *(raw.publish(name, str(n), qos=qos, pid=n + 1 if qos else None) for n in range(messages)),
        )
        # Another publisher does not wait until all have got theirs.
        other.publish(f"{name}/True", b"other", qos=1, pid=1)
        other.expect(PUBACK, pid=1)
        for client in clients:
            expected = messages + (client is clients[-1])
            got = [client.message().payload for _ in range(expected)]
            assert [payload for payload in got if payload != b"other"] == [b"%d" % n for n in range(messages)]
        if qos:
            assert [publisher.expect(PUBACK).pid for _ in range(messages)] == list(range(1, messages + 1))
        publisher.ping()
        assert broker.metric("heraldmq_deliveries_put_off_total") >= messages
        assert broker.metric("heraldmq_publisher_delivery_pauses_total") >= 1
        until(lambda: broker.metric("heraldmq_deliveries_waiting") == 0, what="all deliveries")


GROUPS = 6_000


def in_groups(client, topic, qos, groups=GROUPS):
    """Makes a client the only member of many shared groups."""
    client.send(raw.subscribe(7, [(f"$share/{number:x}/{topic}", qos) for number in range(groups)], version=client.version))
    assert set(client.expect(SUBACK, pid=7).reasons) == {qos}


@pytest.mark.parametrize("qos", [0, 1])
def test_many_shared_groups_get_their_messages_in_order_and_in_turns(name, qos):
    messages = 5
    with contextlib.ExitStack() as stack:
        sets = {**ALONE, "limits.connection.receiveMaximum": 65_535, "limits.session.queueMessages": 100_000}
        broker = stack.enter_context(Broker(sets))
        publisher, other, member = [stack.enter_context(broker.client(name + role)) for role in "pqm"]
        in_groups(member, name, qos)
        publisher.send(*(raw.publish(name, str(n), qos=1, pid=n + 1) for n in range(messages)))
        # Another publisher does not wait until all groups have got theirs.
        other.publish(f"{name}/else", b"other", qos=1, pid=1)
        other.expect(PUBACK, pid=1)
        waiting = broker.metric("heraldmq_deliveries_put_off_total")
        got = []
        for _ in range(messages * GROUPS):
            message = member.message(topic=name)
            got.append(message.payload)
            if qos:
                member.send(raw.ack(PUBACK, message.pid))
        # The groups get a message before any of them gets the next one.
        assert got == [b"%d" % n for n in range(messages) for _ in range(GROUPS)]
        assert [publisher.expect(PUBACK).pid for _ in range(messages)] == list(range(1, messages + 1))
        assert waiting >= 1 and broker.metric("heraldmq_deliveries_put_off_total") >= messages
        assert broker.metric("heraldmq_publisher_delivery_pauses_total") >= 1
        until(lambda: broker.metric("heraldmq_deliveries_waiting") == 0, what="all deliveries")


def test_who_goes_before_many_shared_groups_have_its_message(name):
    sets = {**ALONE, "limits.connection.receiveMaximum": 65_535}
    with Broker(sets) as broker, broker.client(name + "m") as member:
        in_groups(member, name, 0)
        with broker.client(name + "p") as publisher:
            publisher.send(raw.publish(name, b"x", qos=1, pid=1), raw.disconnect())
        for _ in range(GROUPS):
            assert member.message(topic=name).payload == b"x"
        assert broker.drop_totals().get("no_group_member", 0) == 0


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_many_shared_groups_keep_what_is_acknowledged_and_what_a_shutdown_meets(name, end, tmp_path):
    """At once after PUBACK, the broker is killed. Or it is stopped while a message of QoS 0 is delivered."""
    sets = {**ALONE, "limits.connection.receiveMaximum": 65_535, "limits.session.queueMessages": 100_000}
    fields = {"clean": False, "props": {"session_expiry": 600}}
    with Broker(sets, data_dir=tmp_path) as broker:
        with broker.client(name + "m", **fields) as member:
            in_groups(member, name, 1)
        with broker.client(name + "p") as publisher:
            if end == "kill":
                publisher.send(raw.publish(name, b"x", qos=1, pid=1))
                publisher.expect(PUBACK, pid=1)
                broker.kill()
            else:
                publisher.send(raw.publish(name, b"x"), raw.PING)
                publisher.expect(PINGRESP)
                assert broker.stop() == 0
    with Broker(sets, data_dir=tmp_path) as broker:
        with broker.client(name + "m", session_present=True, **fields) as member:
            for _ in range(GROUPS):
                message = member.message(topic=name)
                if message.qos:
                    member.send(raw.ack(PUBACK, message.pid))
            member.ping()

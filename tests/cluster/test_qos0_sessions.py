"""Messages of QoS 0 to sessions that leave and come back, published at another node: in order (MQTT-4.6.0-6), and none is lost
uncounted."""

import pytest
from harness.numbered import Publisher, Reader
from harness.wait import until

pytestmark = pytest.mark.quick("P4")

DURABLE = {"clean": False, "props": {"session_expiry": 3600}}
STORED = 8_000
RETURNS = 10


def dropped(nodes):
    return sum(node.broker.metric("heraldmq_messages_dropped_total", reason="offline_qos0") for node in nodes)


def qos_of(what):
    return {"0": lambda _: 0, "1": lambda _: 1, "mixed": lambda number: number % 2}[what]


@pytest.mark.parametrize("qos", ["0", "1", "mixed"])
def test_what_comes_directly_waits_for_what_was_kept(three, name, qos):
    a, b, _ = three
    with a.client(name, **DURABLE) as client:
        client.subscribe(f"{name}/t", qos=0)
        client.disconnect()
    publisher = Publisher(b.client(), f"{name}/t", qos_of(qos))
    while publisher.last < STORED:
        publisher.publish()
    publisher.start()
    reader = Reader(qos_of(qos))
    with a.client(name, session_present=True, **DURABLE) as client:
        reader.read_until(client, STORED + 600)
        last = publisher.end()
        reader.read_until(client, last)
    assert reader.backwards() == []


@pytest.mark.parametrize("qos", ["0", "1", "mixed"])
def test_who_leaves_and_comes_back_gets_all_in_order(three, name, qos):
    before = dropped(three)
    publisher = Publisher(three[1].client(), f"{name}/t", qos_of(qos))
    reader = Reader(qos_of(qos))
    with three[0].client(name, **DURABLE) as client:
        client.subscribe(f"{name}/t", qos=0)
        publisher.start()
        reader.read_until(client, 100)
        reader.leave(client)
    for _ in range(RETURNS):
        with three[0].client(name, session_present=True, **DURABLE) as client:
            reader.read_until(client, publisher.last + 100)
            reader.leave(client)
        away = publisher.last
        until(lambda away=away: publisher.last > away + 100, what="messages while it is away")
    with three[0].client(name, session_present=True, **DURABLE) as client:
        reader.read_until(client, publisher.last + 100)
        last = publisher.end()
        reader.read_until(client, last)
    assert reader.backwards() == []
    # What the last return has missed is counted when the broker knows that it does not come.
    until(lambda: dropped(three) - before == reader.missed(last), what="as many drops as messages that were missed")
    assert len(reader.numbers) == len(set(reader.numbers))

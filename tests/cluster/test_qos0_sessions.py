"""Messages of QoS 0 to sessions that leave and come back, published at another node: in order (MQTT-4.6.0-6)."""

import pytest
from harness.numbered import Publisher, Reader
from harness.wait import until

pytestmark = pytest.mark.quick("P4")

DURABLE = {"clean": False, "props": {"session_expiry": 3600}}
STORED = 8_000
RETURNS = 10


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
    with three[0].client(name, **DURABLE) as client:
        client.subscribe(f"{name}/t", qos=0)
        client.disconnect()
    publisher = Publisher(three[1].client(), f"{name}/t", qos_of(qos))
    publisher.start()
    reader = Reader(qos_of(qos))
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

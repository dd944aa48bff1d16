"""Messages of QoS 0 to sessions that leave and come back: in order (MQTT-4.6.0-6)."""

import pytest
from harness.broker import Broker
from harness.numbered import Publisher, Reader
from harness.wait import until

DURABLE = {"clean": False, "props": {"session_expiry": 3600}}
STORED = 8_000
RETURNS = 10


@pytest.fixture(scope="module")
def broker():
    with Broker({"eventLoops": 2, "limits.session.queueMessages": 100_000}) as broker:
        yield broker


def qos_of(what):
    return {"0": lambda _: 0, "1": lambda _: 1, "mixed": lambda number: number % 2}[what]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", ["0", "1", "mixed"])
def test_what_comes_directly_waits_for_what_was_kept(broker, name, qos, version):
    session = {"clean": False, "version": version, "props": DURABLE["props"] if version == 5 else None}
    with broker.client(name, **session) as client:
        client.subscribe(f"{name}/t", qos=0)
        client.disconnect()
    publisher = Publisher(broker.client(), f"{name}/t", qos_of(qos))
    while publisher.last < STORED:
        publisher.publish()
    publisher.start()
    reader = Reader(qos_of(qos))
    with broker.client(name, session_present=True, **session) as client:
        reader.read_until(client, STORED + 600)
        last = publisher.end()
        reader.read_until(client, last)
    assert reader.backwards() == []


@pytest.mark.parametrize("qos", ["0", "1", "mixed"])
def test_who_leaves_and_comes_back_gets_all_in_order(broker, name, qos):
    with broker.client(name, **DURABLE) as client:
        client.subscribe(f"{name}/t", qos=0)
        client.disconnect()
    publisher = Publisher(broker.client(), f"{name}/t", qos_of(qos))
    publisher.start()
    reader = Reader(qos_of(qos))
    for _ in range(RETURNS):
        with broker.client(name, session_present=True, **DURABLE) as client:
            reader.read_until(client, publisher.last + 100)
            reader.leave(client)
        away = publisher.last
        until(lambda away=away: publisher.last > away + 100, what="messages while it is away")
    with broker.client(name, session_present=True, **DURABLE) as client:
        reader.read_until(client, publisher.last + 100)
        last = publisher.end()
        reader.read_until(client, last)
    assert reader.backwards() == []

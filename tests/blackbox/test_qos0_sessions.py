"""Messages of QoS 0 to sessions that leave and come back: in order (MQTT-4.6.0-6), and none is lost uncounted."""

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


def dropped(broker):
    return broker.metric("heraldmq_messages_dropped_total", reason="offline_qos0")


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
    before = dropped(broker)
    publisher = Publisher(broker.client(), f"{name}/t", qos_of(qos))
    reader = Reader(qos_of(qos))
    with broker.client(name, **DURABLE) as client:
        client.subscribe(f"{name}/t", qos=0)
        publisher.start()
        reader.read_until(client, 100)
        reader.leave(client)
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
    # What the last return has missed is counted when the broker knows that it does not come.
    until(lambda: dropped(broker) - before == reader.missed(last), what="as many drops as messages that were missed")
    assert len(reader.numbers) == len(set(reader.numbers))

"""Publishers that wait: the API, the command line and the log say why, by which option, and for how long."""

import pytest

from harness import raw
from harness.broker import BASE, Broker, run
from harness.raw import PUBACK
from harness.wait import until

GATEWAY = {
    "name": "gateway",
    "match": {"clientId": ["gateway-*"]},
    "limits": {"connection": {"publishesPerSecond": 1000}},
}


def held(broker, client_id):
    return broker.api(f"/api/v1/clients/{client_id}")["held"]


def held_now(broker, client_id):
    """How a client waits, if it does so now and has for a part of the last minute."""
    found = held(broker, client_id)
    return found if found and found["since"] and found["share_percent"] > 0 else None


def goes_on(broker, client_id):
    """Whether a client that has waited does so no more."""
    found = held(broker, client_id)
    return found is None or found["since"] is None


def shown(broker, *args):
    out = run(*args, "--url", f"http://127.0.0.1:{broker.http_port}")
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_who_sends_more_bytes_than_it_may_is_named_with_the_option(name):
    with Broker({"limits.connection.bytesPerSecondIn": 100_000}) as broker:
        with broker.client(name) as publisher, broker.client(name + "-idle"):
            publisher.send(*(raw.publish(name, bytes(10_000)) for _ in range(40)))
            found = until(lambda: held_now(broker, name), what="the wait")
            assert found["reason"] == "bytes_per_second", found
            assert (found["option"], found["limit"]) == ("limits.connection.bytesPerSecondIn", 100_000)
            assert found["subscriber"] is None and found["share_percent"] <= 100
            (row,) = broker.api("/api/v1/clients?order=held")["items"]
            assert (row["client_id"], row["held"]["reason"]) == (name, "bytes_per_second")
            page = shown(broker, "client", name)
            assert "sends more bytes per second than it may" in page
            assert "limits.connection.bytesPerSecondIn = 100000" in page
            table = shown(broker, "clients", "--held")
            assert "bytes_per_second" in table and name + "-idle" not in table
            publisher.ping()
            until(lambda: goes_on(broker, name), what="the end of the wait")
            assert held(broker, name)["share_percent"] > 0
            assert held(broker, name + "-idle") is None
            assert broker.metric("heraldmq_connections_held_seconds_total", reason="bytes_per_second") > 0


def test_who_publishes_more_than_its_class_may_is_named_with_the_option_of_the_class(name):
    config = {**BASE, "clientClasses": [GATEWAY], "limits": {"connection": {"publishesPerSecond": 10}}}
    gateway = f"gateway-{name}"
    with Broker(config=config) as broker, broker.client(name) as device, broker.client(gateway) as publisher:
        for client, messages in ((device, 60), (publisher, 4000)):
            client.send(b"".join(raw.publish(name, b"x") for _ in range(messages)))
        expected = {name: ("limits.connection.publishesPerSecond", 10)}
        expected[gateway] = ("clientClasses[gateway].limits.connection.publishesPerSecond", 1000)
        for client_id, option in expected.items():
            found = until(lambda: held_now(broker, client_id), what="the wait")
            assert found["reason"] == "publishes_per_second", found
            assert (found["option"], found["limit"]) == option
        rows = broker.api("/api/v1/clients?order=held")["items"]
        assert {row["client_id"] for row in rows} == {name, gateway}
        shares = [row["held"]["share_percent"] for row in rows]
        assert shares == sorted(shares, reverse=True)
        for client, client_id in ((device, name), (publisher, gateway)):
            client.ping()
            until(lambda: goes_on(broker, client_id), what="the end of the wait")


def test_whom_a_full_queue_holds_back_is_told_whose(name):
    sets = {"limits.session.queueMessages": 50, "limits.connection.holdPublisherMs": 60_000}
    slow, fast = f"{name}-slow", f"{name}-fast"
    with (
        Broker(sets) as broker,
        broker.client(slow, props={"receive_maximum": 10}) as subscriber,
        broker.client(fast) as publisher,
    ):
        subscriber.subscribe(name, qos=1)
        count = 150
        publisher.send(*(raw.publish(name, str(n).ljust(2000), qos=1, pid=n + 1) for n in range(count)))
        found = until(lambda: held_now(broker, fast), what="the wait")
        assert (found["reason"], found["subscriber"]) == ("subscriber_queue", slow), found
        assert (found["option"], found["limit"]) == ("limits.connection.holdPublisherMs", 60_000)
        assert slow in shown(broker, "client", fast)
        assert [int(m.payload) for m in subscriber.take(count)] == list(range(count))
        for _ in range(count):
            publisher.expect(PUBACK)
        until(lambda: goes_on(broker, fast), what="the end of the wait")


@pytest.mark.parametrize("order", ["share", "HELD"])
def test_an_order_that_the_list_does_not_have_is_refused(order):
    with Broker() as broker:
        status, body = broker.http(f"/api/v1/clients?order={order}")
        assert status == 400 and "identifier or held" in body

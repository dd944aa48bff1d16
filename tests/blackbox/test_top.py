"""Who is busy: `/top` and `heraldmq top`."""

import pytest

from harness.broker import Broker, run
from harness.events import Stream
from harness.wait import until
from test_api import keys, request  # noqa: F401


@pytest.fixture(scope="module")
def stage(keys):  # noqa: F811
    with Broker({"http.keyFile": keys["file"]}) as broker:
        yield broker


def top(broker, of, name, **query):
    """Rows of clients and topics of this test."""
    query = "".join(f"&{key}={value}" for key, value in query.items())
    items = broker.api(f"/api/v1/top/{of}?limit=500{query}")["items"]
    return [row for row in items if (row.get("client_id") or row.get("topic")).startswith(name)]


def names(rows):
    return [row.get("client_id") or row["topic"] for row in rows]


def test_the_busiest_come_first(stage, name):
    most, long, reader = f"{name}-most", f"{name}-long", f"{name}-reader"
    with stage.client(most) as many, stage.client(long) as few, stage.client(reader) as subscriber:
        subscriber.subscribe(f"{name}/#", qos=1)

        def is_told():
            for n in range(12):
                many.published(f"{name}/a", f"{n}".encode(), qos=1)
            few.published(f"{name}/b", bytes(20_000), qos=1)
            for _ in range(13):
                subscriber.message()
            return len(top(stage, "publishers", name)) == 2 and top(stage, "subscribers", name, by="delay")

        until(is_told, what="the end of a window in which both have published")
        publishers = {order: top(stage, "publishers", name, by=order) for order in ("messages", "bytes")}
        topics = {order: top(stage, "topics", name, by=order) for order in ("messages", "bytes")}
        subscribers = {order: top(stage, "subscribers", name, by=order) for order in ("messages", "bytes", "delay")}
        assert names(publishers["messages"]) == [most, long] and names(publishers["bytes"]) == [long, most]
        assert names(topics["messages"]) == [f"{name}/a", f"{name}/b"] and names(topics["bytes"]) == [f"{name}/b", f"{name}/a"]
        assert all(names(rows) == [reader] for rows in subscribers.values())
        first, second = publishers["messages"]
        # Less than a thousand a second are all counted. A window may begin and end between those of one and of the other.
        assert first["messages_per_s"] > 2 * second["messages_per_s"] > 0 and first["uncounted_per_s"] == 0
        assert second["bytes_per_s"] == pytest.approx(20_000 * second["messages_per_s"])
        assert first["node_name"] == subscribers["delay"][0]["node_name"] and first["delay_max_ms"] is None
        by_delay = subscribers["delay"][0]
        assert 0 < by_delay["delay_mean_ms"] <= by_delay["delay_max_ms"]
        words = {"PUBLISHER", "SUBSCRIBER", "SLOWEST", "TOPIC", most, reader, f"{name}/a"}

        def not_shown():
            is_told()
            shown = run("top", "--times", "1", "--every", "1", "--rows", "100", "--url", f"http://127.0.0.1:{stage.http_port}")
            assert shown.returncode == 0, shown.stderr
            return {word for word in words if word not in shown.stdout}

        # The window before it may be one in which nobody has published.
        until(lambda: not not_shown(), what="all of them in the terminal")
    until(lambda: not top(stage, "publishers", name), what="a window in which nobody has published")


def test_an_order_that_a_list_does_not_have_is_refused(stage):
    for of in ("publishers", "topics"):
        status, problem = request(stage, "GET", f"/api/v1/top/{of}?by=delay")
        assert status == 400 and problem["accepted"] == "messages or bytes", problem


def test_a_client_that_is_watched_is_counted_whole(stage, name):
    with stage.client(f"{name}-publisher") as publisher, stage.client(name) as client:
        client.subscribe(f"{name}/#", qos=1)
        path = f"/api/v1/clients/{name}/watch"
        with Stream("127.0.0.1", stage.http_port, path=path, seconds=600) as stream:
            assert stream.next() == ("hello", {"step_ms": 1000})
            # Nothing is known before the second answer.
            kind, first = stream.next()
            assert kind == "rates" and first["messages_in_per_s"] is None and first["partial"] == []
            sums = [0.0, 0.0, 0.0]
            for n in range(30):
                publisher.published(f"{name}/in", b"12345", qos=1)
                client.message()
                if n % 3 == 0:
                    client.published("elsewhere", bytes(100), qos=1)
            while sums[0] < 29.5:
                kind, rates = stream.next()
                assert kind == "rates", rates
                for at, field in enumerate(("messages_out_per_s", "messages_in_per_s", "bytes_in_per_s")):
                    sums[at] += rates[field] * rates["span_ms"] / 1000
            # Rates have two digits, and times are whole ms.
            assert [round(count) for count in sums[:2]] == [30, 10] and sums[2] == pytest.approx(1000, rel=0.01)
            client.disconnect()
            events = stream.until(lambda kind, _: kind == "client.disconnected")
            assert events[-1][1]["client_id"] == name
            events = stream.until(lambda kind, data: kind == "rates" and data["messages_in_per_s"] is None)


def test_a_watch_ends_when_it_was_to(stage, name):
    with Stream("127.0.0.1", stage.http_port, path=f"/api/v1/clients/{name}/watch", seconds=1) as stream:
        assert stream.until(lambda kind, _: kind == "end")[-1] == ("end", {"reason": "time"})
        assert stream.next() is None
    shown = run("events", "--client", name, "--rates", "--for", "2", "--url", f"http://127.0.0.1:{stage.http_port}")
    assert shown.returncode == 0 and "in -/s, - B/s  out -/s" in shown.stdout, shown
    status, problem = request(stage, "GET", f"/api/v1/clients/{name}/watch?seconds=3601")
    assert status == 400 and problem["accepted"] == "1 to 3600", problem

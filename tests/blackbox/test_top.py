"""Who is busy: `/top` and `heraldmq top`."""

import pytest

from harness.broker import Broker, run
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
        # Less than a thousand a second are all counted.
        assert first["messages_per_s"] >= 10 * second["messages_per_s"] > 0 and first["uncounted_per_s"] == 0
        assert second["bytes_per_s"] == pytest.approx(20_000 * second["messages_per_s"])
        assert first["node_name"] == subscribers["delay"][0]["node_name"] and first["delay_max_ms"] is None
        by_delay = subscribers["delay"][0]
        assert 0 < by_delay["delay_mean_ms"] <= by_delay["delay_max_ms"]
        shown = run("top", "--times", "1", "--every", "1", "--rows", "100", "--url", f"http://127.0.0.1:{stage.http_port}")
        assert shown.returncode == 0, shown.stderr
        for word in ("PUBLISHER", "SUBSCRIBER", "SLOWEST", "TOPIC", most, reader, f"{name}/a"):
            assert word in shown.stdout, shown.stdout
    until(lambda: not top(stage, "publishers", name), what="a window in which nobody has published")


def test_an_order_that_a_list_does_not_have_is_refused(stage):
    for of in ("publishers", "topics"):
        status, problem = request(stage, "GET", f"/api/v1/top/{of}?by=delay")
        assert status == 400 and problem["accepted"] == "messages or bytes", problem

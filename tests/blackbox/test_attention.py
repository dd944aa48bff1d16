"""Alarms of counts: messages that are dropped, and queues that are full."""

from harness import raw
from harness.broker import Broker, run
from harness.wait import until


def alarms(broker, query=""):
    return {alarm["name"]: alarm for alarm in broker.api(f"/api/v1/alarms{query}")["items"]}


def test_drops_and_a_full_queue_are_alarms_until_they_are_over(name):
    # Each fills the queue, and 70 are dropped: more than 1 a second in a minute.
    sets = {"limits.session.queueMessages": 10, "limits.session.queueFull": "dropNewest"}
    with Broker(sets) as broker, broker.client(f"{name}-p") as publisher:
        with broker.client(name, props={"session_expiry": 600}) as subscriber:
            subscriber.subscribe(name, qos=1)
        until(lambda: broker.api(f"/api/v1/clients/{name}")["state"] == "away", what="the departure")
        assert alarms(broker) == {}
        for pid in range(1, 81):
            publisher.send(raw.publish(name, b"x", qos=1, pid=pid))
        found = until(lambda: len(alarms(broker)) == 2 and alarms(broker), what="two alarms", timeout=30)
        assert "the queue of 1 session is full" in found["queues_full"]["detail"]
        assert "1 messages per second" not in found["dropping"]["detail"]
        assert "queue_full" in found["dropping"]["detail"]
        out = run("alarms", "--url", f"http://127.0.0.1:{broker.http_port}")
        assert "dropping" in out.stdout and "queues_full" in out.stdout
        # The nodes are as they should be.
        health = broker.api("/api/v1/health")
        assert health["alarms"] != [] and health["state"] == "ok"
        with broker.client(name, clean=False, props={"session_expiry": 600}) as subscriber:
            subscriber.take(10)
        until(lambda: alarms(broker) == {}, what="the end of both", timeout=120)
        assert alarms(broker, "?state=ended").keys() == {"dropping", "queues_full"}

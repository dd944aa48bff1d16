"""Messages that queues do not keep: by age, by the size of a class or of the node; who lags, and how far."""

import signal
import time

import yaml
from harness import raw
from harness.broker import BASE, Broker, run
from harness.wait import until
from test_classes import drained, gone_away, state


# How long a message is kept: longer than it takes to publish a hundred.
AGE_S = 12


def application(session=(), **own):
    return {"name": "application", "match": {"clientId": ["*-app"]}, "limits": {"session": dict(session)}, **own}


def dropped(broker, reason) -> float:
    return broker.metric("heraldmq_messages_dropped_total", reason=reason)


def waiting(broker, client_id) -> int:
    return state(broker, client_id)["queue"]["messages"]


def publish(broker, topic, numbers, payload=b""):
    """With an acknowledgement each: they are queued."""
    with broker.client("publisher") as publisher:
        for number in numbers:
            publisher.published(topic, b"%d " % number + payload, qos=1)


def numbers_of(payloads) -> list[int]:
    return [int(payload.split(b" ")[0]) for payload in payloads]


def test_a_message_that_is_older_than_its_class_keeps_it_is_dropped_also_across_a_restart(tmp_path, name):
    device, app = f"{name}-dev", f"{name}-app"
    config = {**BASE, "clientClasses": [application(session={"queueAgeSeconds": AGE_S})]}
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        for client_id in (device, app):
            gone_away(broker, client_id, f"{name}/#")
        publish(broker, f"{name}/a", range(100))
        assert waiting(broker, app) == 100
        begun = time.time()
        broker.kill()
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        publish(broker, f"{name}/a", range(100, 120))
        young_at = time.time()
        until(lambda: waiting(broker, app) <= 20, what="the older ones to go")
        # Not before their time, and nothing that is younger.
        assert time.time() - begun >= AGE_S
        left = waiting(broker, app)
        assert left == 20 or time.time() - young_at >= AGE_S
        until(lambda: dropped(broker, "retention_age") == 120, what="the others to go")
        assert time.time() - young_at >= AGE_S and waiting(broker, app) == 0
        drop = next(drop for drop in broker.drops() if drop["client_id"] == app)
        assert (drop["reason"], drop["topic"]) == ("retention_age", f"{name}/a")
        # Devices keep theirs, and what comes from now on is kept.
        assert numbers_of(drained(broker, device)) == list(range(120))
        publish(broker, f"{name}/a", [7])
        assert numbers_of(drained(broker, app)) == [7]


def test_a_connected_client_that_is_too_slow_loses_what_it_was_not_sent(name):
    app = f"{name}-app"
    config = {**BASE, "clientClasses": [application(session={"queueAgeSeconds": 2})]}
    with Broker(config=config) as broker:
        with broker.client(app, props={"session_expiry": 600, "receive_maximum": 3}) as client:
            client.subscribe(f"{name}/#", qos=2)
            with broker.client("publisher") as publisher:
                for number in range(1_000):
                    publisher.published(f"{name}/{number}", str(number), qos=1)
            until(lambda: waiting(broker, app) < 400, what="the older ones to go")
            lost = int(dropped(broker, "retention_age"))
            # What the session has been given is delivered, and each message either comes or is counted.
            received = []
            until(lambda: dropped(broker, "retention_age") + waiting(broker, app) == 1_000, what="a rest")
            lost, left = int(dropped(broker, "retention_age")), waiting(broker, app)
            for _ in range(left):
                received.append(int(client.message().payload))
            assert lost + len(received) == 1_000
            assert received == sorted(received) and len(set(received)) == len(received)
            client.ping()


def test_the_oldest_of_the_largest_queue_go_when_a_class_has_too_much(name):
    small, large, device = f"{name}-1-app", f"{name}-2-app", f"{name}-dev"
    config = {**BASE, "clientClasses": [application(queuedBytes=300_000)]}
    with Broker(config=config) as broker:
        gone_away(broker, small, f"{name}/small")
        for client_id in (large, device):
            gone_away(broker, client_id, f"{name}/#")
        publish(broker, f"{name}/small", range(50), b"x" * 900)
        publish(broker, f"{name}/large", range(50, 500), b"x" * 900)
        of_class = lambda what: broker.metric(f"heraldmq_class_waiting_{what}", **{"class": "application"})
        until(lambda: 0 < of_class("bytes") <= 300_000, what="less bytes")
        until(lambda: of_class("messages") == waiting(broker, large) + 50, what="fresh figures")
        assert waiting(broker, small) == 50 and waiting(broker, device) == 500
        left = waiting(broker, large)
        assert 150 < left < 260 and dropped(broker, "retention_bytes") == 500 - left
        named = broker.metric("heraldmq_session_waiting_messages", **{"class": "application", "client": large})
        assert named == left
        # The oldest ones have gone.
        assert numbers_of(drained(broker, large)) == list(range(500 - left, 500))
        # A limit of the node, by a reload: of all classes, the largest queue.
        until(lambda: of_class("messages") == 50, what="fresh figures")
        broker.write_config(yaml.safe_dump({**config, "limits": {"node": {"queuedBytes": 200_000}}}))
        broker.signal(signal.SIGHUP)
        until(lambda: waiting(broker, device) < 200, what="the limit of the node")
        assert waiting(broker, small) == 50
        until(lambda: dropped(broker, "retention_bytes") == 1_000 - left - waiting(broker, device), what="counts")


def test_the_log_says_who_lags_and_who_has_caught_up(name):
    app, device = f"{name}-app", f"{name}-dev"
    config = {**BASE, "clientClasses": [application(session={"queueAgeWarnSeconds": 1})]}
    with Broker(config=config) as broker:
        for client_id in (app, device):
            gone_away(broker, client_id, f"{name}/#")
        publish(broker, f"{name}/a", range(3))
        until(lambda: broker.find("a session lags behind", client=app, messages=3), what="the log line")
        age = lambda: broker.metric("heraldmq_class_oldest_age_seconds", **{"class": "application"})
        assert age() >= 1 and not broker.find("a session has caught up")
        assert len(drained(broker, app)) == 3
        until(lambda: broker.find("a session has caught up", client=app), what="the log line")
        assert not broker.find("a session lags behind", client=device)
        assert len(broker.find("a session lags behind")) == 1


# More than any disk has.
ALL_OF_IT = 2**60
NO_SPACE = "the disk has little space left: nothing is queued for clients of a class that are away"


def test_classes_leave_space_on_the_disk_by_their_own_marks(name):
    device, app, connected = f"{name}-dev", f"{name}-app", f"{name}-on"
    config = {**BASE, "clientClasses": [application(session={"queueDiskFree": 0})]}
    closed = lambda broker, of: broker.metric("heraldmq_class_closed", **{"class": of})

    def reload(broker, **session):
        broker.write_config(yaml.safe_dump({**config, "limits": {"session": session}}))
        broker.signal(signal.SIGHUP)

    with Broker(config=config) as broker:
        for client_id in (device, app):
            gone_away(broker, client_id, f"{name}/#")
        publish(broker, f"{name}/a", range(3))
        reload(broker, queueDiskFree=ALL_OF_IT)
        until(lambda: closed(broker, "device") == 1, what="devices to be closed")
        assert closed(broker, "application") == 0
        until(lambda: broker.find(NO_SPACE, **{"class": "device"}), what="its line")
        with broker.client(connected, props={"session_expiry": 600}) as client:
            client.subscribe(f"{name}/#", qos=1)
            publish(broker, f"{name}/a", range(3, 8))
            # What passes through a queue of its class still does.
            assert [numbers_of([client.message().payload])[0] for _ in range(5)] == list(range(3, 8))
        assert (waiting(broker, device), waiting(broker, app)) == (3, 8)
        assert dropped(broker, "disk_high_water") == 5
        drop = next(drop for drop in broker.drops() if drop["reason"] == "disk_high_water")
        assert (drop["client_id"], drop["topic"]) == (device, f"{name}/a")
        alarms = lambda: [alarm["name"] for alarm in broker.api("/api/v1/health")["alarms"]]
        until(lambda: "disk_high_water" in alarms(), what="the alarm")
        assert broker.metric("heraldmq_disk_free_bytes") > 0
        # With `refuse`, the publisher is told.
        reload(broker, queueDiskFree=ALL_OF_IT, queueFull="refuse")
        with broker.client("refused") as publisher:
            def answer():
                pid = publisher.publish(f"{name}/b", b"8 ", qos=1)
                return publisher.answer(raw.PUBACK, pid).reason

            until(lambda: answer() == 0x97, what="a refusal")
        reload(broker, queueDiskFree=0)
        until(lambda: closed(broker, "device") == 0, what="devices to be open")
        again = "the disk has space again for queues of a class"
        until(lambda: broker.find(again, **{"class": "device"}), what="its line")
        publish(broker, f"{name}/a", [9])
        assert numbers_of(drained(broker, device)) == [0, 1, 2, 9]


def test_an_alarm_has_a_begin_and_an_end_that_outlive_a_restart(tmp_path):
    def alarms(broker, query=""):
        rows = broker.api(f"/api/v1/alarms{query}")["items"]
        return [row for row in rows if row["name"] == "disk_high_water"]

    folder = tmp_path / "data"
    config = {**BASE, "limits": {"session": {"queueDiskFree": ALL_OF_IT}}}
    with Broker(config=config, data_dir=folder) as broker:
        until(lambda: alarms(broker), what="the alarm")
        (first,) = alarms(broker)
        assert first["since"] and first["until"] is None
        assert alarms(broker, "?state=ended") == []
    with Broker(config=config, data_dir=folder) as broker:
        until(lambda: alarms(broker), what="the alarm after a restart")
        assert alarms(broker) == [first]
        broker.write_config(yaml.safe_dump(BASE))
        broker.signal(signal.SIGHUP)
        until(lambda: not alarms(broker), what="its end")
        (ended,) = alarms(broker, "?state=ended")
        assert ended["since"] == first["since"] < ended["until"]
        listed = run("alarms", "--ended", "--url", f"http://127.0.0.1:{broker.http_port}", "--no-header").stdout
        assert "disk_high_water" in listed and ended["until"] in listed

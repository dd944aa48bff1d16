"""What happens, as it happens: `/events`."""

import queue
import signal
import subprocess
import threading

import pytest

from harness.broker import BINARY, Broker, run
from harness.events import Stream
from harness.wait import until
from test_api import keys, request  # noqa: F401

# Of a node at once.
STREAMS = 32

# Events that a node keeps.
KEPT = 16_384


@pytest.fixture(scope="module")
def stage(keys):  # noqa: F811
    options = {"http.keyFile": keys["file"], "limits.session.queueMessages": 5}
    with Broker(options) as broker:
        yield broker


def watch(broker, **query):
    stream = Stream("127.0.0.1", broker.http_port, **query)
    assert stream.status == 200
    assert stream.next() == ("hello", {"step_ms": 500})
    return stream


def told(events, *fields):
    return [(name, *(data[field] for field in fields)) for name, data in events]


def test_each_client_is_told_in_order_to_those_who_ask_for_it(stage, name):
    with watch(stage, prefix=name) as all_of_them, watch(stage, client_id=f"{name}b") as only_b:
        with stage.client(f"{name}a") as a, stage.client(f"{name}b") as b:
            a.disconnect()
            until(lambda: stage.api(f"/api/v1/clients?prefix={name}a")["items"] == [], what="the end of a")
            b.close()
            expected = [
                ("client.connected", f"{name}a", None),
                ("client.connected", f"{name}b", None),
                ("client.disconnected", f"{name}a", "DISCONNECT"),
                ("client.disconnected", f"{name}b", "the connection was closed without DISCONNECT"),
            ]
            events = all_of_them.until(lambda kind, data: told([(kind, data)], "client_id", "reason")[0] == expected[-1])
            assert told(events, "client_id", "reason") == expected
            numbers = [int(data["seq"]) for _, data in events]
            assert numbers == sorted(set(numbers))
            first = events[0][1]
            assert first["address"].startswith("127.0.0.1:") and first["node"] and first["at"].endswith("Z")
            events = only_b.until(lambda kind, _: kind == "client.disconnected")
            assert told(events, "client_id") == [(kind, f"{name}b") for kind in ("client.connected", "client.disconnected")]


def test_a_stream_goes_on_where_another_one_ended(stage, name):
    with watch(stage, prefix=name) as stream:
        stage.client(f"{name}1").close()
        stream.until(lambda kind, _: kind == "client.disconnected")
        last = stream.last
    stage.client(f"{name}2").close()
    for how in ({"last": last}, {"after": last}):
        with watch(stage, prefix=name, **how) as stream:
            events = stream.until(lambda kind, _: kind == "client.disconnected")
            assert told(events, "client_id") == [
                ("client.connected", f"{name}2"),
                ("client.disconnected", f"{name}2"),
            ]
    status, problem = request(stage, "GET", "/api/v1/events?after=x")
    assert (status, problem["parameter"]) == (400, "after")


def test_a_stream_begins_with_what_is_kept_since_a_time(stage, name):
    with watch(stage, prefix=name) as stream:
        stage.client(f"{name}1").close()
        stage.client(f"{name}2").close()
        events = stream.until(lambda kind, data: (kind, data["client_id"]) == ("client.disconnected", f"{name}2"))
        last = stream.last
    since = next(data["at"] for _, data in events if data["client_id"] == f"{name}2")
    kept = [event for event in events if event[1]["at"] >= since]
    stage.client(f"{name}3").close()
    with watch(stage, prefix=name, since=since) as stream:
        seen = stream.until(lambda kind, data: (kind, data["client_id"]) == ("client.disconnected", f"{name}3"))
        assert seen[: len(kept)] == kept and len(seen) == len(kept) + 2
        stage.client(f"{name}4").close()
        stream.until(lambda _, data: data["client_id"] == f"{name}4")
    # A browser that reconnects.
    with watch(stage, prefix=name, since=since, last=last) as stream:
        assert stream.next()[1]["client_id"] == f"{name}3"
    # Of the future there is nothing yet, and the stream goes on.
    with watch(stage, prefix=name, since="2100-01-01T00:00:00Z") as stream:
        stage.client(f"{name}5").close()
        assert stream.next()[1]["client_id"] == f"{name}5"
    status, problem = request(stage, "GET", f"/api/v1/events?since={since}&after={last}")
    assert (status, problem["parameter"]) == (400, "after")
    status, problem = request(stage, "GET", "/api/v1/events?since=x")
    assert (status, problem["parameter"]) == (400, "since")


def test_drops_are_told_with_client_reason_and_topic(stage, name):
    durable = {"session_expiry": 600}
    with stage.client(f"{name}away", props=durable) as client:
        client.subscribe(f"{name}/#", qos=1)
        client.disconnect()
    until(lambda: stage.api(f"/api/v1/clients/{name}away")["state"] == "away", what="the absence")
    with watch(stage, type="message.dropped", topic=f"{name}/#") as stream, stage.client(name) as publisher:
        for _ in range(12):
            publisher.published(f"{name}/t", qos=1)
        count = 0
        while count < 7:
            [(_, data)] = stream.until(lambda *_: True)
            assert data["client_id"] == f"{name}away" and data["topic"] == f"{name}/t"
            assert data["reason"] == "queue_full_messages"
            count += data["count"]
        assert count == 7


def test_who_has_changed_something_by_http_is_told(stage, keys, name):  # noqa: F811
    operator = keys["operator"].read_text().strip()
    message = {"topic": f"{name}/t", "payload": "x"}
    path = f"/api/v1/clients/{name}"
    with watch(stage, type="api.change") as stream, stage.client(name):
        # Requests that read, one that fails, and one that publishes are no changes.
        assert request(stage, "GET", "/api/v1/clients", key=operator)[0] == 200
        assert request(stage, "DELETE", f"{path}x", key=operator)[0] == 404
        assert request(stage, "POST", "/api/v1/publish", message, key=operator)[0] == 200
        stage.client(f"{name}-stored", clean=False, props={"session_expiry": 60}).close()
        assert request(stage, "POST", "/api/v1/queue", {"client_id": f"{name}-stored"}, key=operator)[0] == 200
        assert request(stage, "DELETE", path, key=operator)[0] == 200
        [(_, data)] = stream.until(lambda *_: True)
        assert data["user"] == "operator" and data["address"].startswith("127.0.0.1:")
        assert data["detail"] == f"DELETE {path}", data


def test_what_rules_deny_is_told_with_the_action(tmp_path, name):
    rules = tmp_path / "rules.acl"
    rules.write_text("deny all publish secret/#\ndeny all subscribe secret/#\nallow all publish #\n")
    settings = {"authorization.file": rules, "authorization.noMatch": "allow"}
    with Broker(settings) as broker, watch(broker, type="right.denied") as stream, broker.client(name) as client:
        for _ in range(3):
            client.publish("secret/a", qos=0)
        count = 0
        while count < 3:
            [(_, data)] = stream.until(lambda *_: True)
            assert (data["client_id"], data["reason"], data["topic"]) == (name, "publish", "secret/a")
            count += data["count"]
        assert count == 3


def test_a_split_is_told_by_the_leader(tmp_path, name):
    token = tmp_path / "token"
    token.write_text("of-the-test")
    with Broker({"http.tokenFile": token}, data_dir=tmp_path / "data") as broker:
        types = "shard.split,api.change,message.dropped"
        with watch(broker, type=types) as stream, broker.client(name) as client:
            # What is there when the node looks at its shards for the first time is no event; drops are told when it has.
            client.publish("$SYS/a", b"")
            stream.until(lambda kind, _: kind == "message.dropped")
            body = {"store": "inbox", "shard": 0, "at": 32_768}
            status, problem = request(broker, "POST", "/api/v1/cluster/split", body, key="of-the-test")
            assert status == 204, problem
            events = stream.until(lambda kind, _: kind == "shard.split")
            told_of = {kind: data["detail"] for kind, data in events}
            assert told_of["shard.split"] == "inbox 0 into it and inbox 32768"
            assert told_of["api.change"] == "POST /api/v1/cluster/split", told_of


def test_subscriptions_that_are_added_and_removed_are_told(stage, name):
    types = "subscription.added,subscription.removed"
    with watch(stage, prefix=name, type=types) as stream:
        for client_id, fields in ((f"{name}a", {}), (f"{name}b", {"props": {"session_expiry": 600}})):
            with stage.client(client_id, **fields) as client:
                client.subscribe(f"{name}/#", qos=0)
                # A subscription that replaces another one is no further one.
                client.subscribe(f"{name}/#", qos=1)
                client.unsubscribe(f"{name}/none")
                client.unsubscribe(f"{name}/#")
                client.subscribe(f"{name}/last")
            events = stream.until(lambda _, data: data["topic"] == f"{name}/last")
            assert told(events, "client_id", "topic") == [
                ("subscription.added", client_id, f"{name}/#"),
                ("subscription.removed", client_id, f"{name}/#"),
                ("subscription.added", client_id, f"{name}/last"),
            ]
    with watch(stage, type=types) as stream, stage.client(name) as client:
        client.subscribe(*(f"{name}/{number}" for number in range(500)))
        count = 0
        while count < 500:
            [(kind, data)] = stream.until(lambda *_: True)
            assert kind == "subscription.added"
            count += data["count"] or 1
        assert count == 500 and data["count"], data


def test_streams_leave_the_places_of_requests_free_and_are_bounded(stage):
    streams = [watch(stage) for _ in range(STREAMS)]
    status, problem = request(stage, "GET", "/api/v1/events")
    assert (status, problem["limit"]) == (429, "streams")
    assert request(stage, "GET", "/api/v1/clients")[0] == 200
    for stream in streams:
        stream.close()
    until(lambda: Stream("127.0.0.1", stage.http_port).status == 200, what="a place")


def test_who_is_too_slow_and_who_watched_an_earlier_process_learn_of_the_gap(tmp_path, name):
    with Broker(data_dir=tmp_path / "data") as broker:
        with watch(broker, prefix=name) as stream:
            broker.client(f"{name}first").close()
            stream.until(lambda kind, _: kind == "client.disconnected")
            last = stream.last
        for _ in range(KEPT // 2 + 100):
            broker.client(f"{name}x").close()
        until(lambda: broker.metric("heraldmq_connections") == 0, what="the end of all clients")
        with watch(broker, prefix=name, last=last) as stream:
            kind, gap = stream.next()
            assert kind == "gap" and gap["count"] >= 200, gap
            assert stream.next()[1]["client_id"] == f"{name}x"
    with Broker(data_dir=tmp_path / "data") as broker:
        with watch(broker, prefix=name, last=last) as stream:
            kind, gap = stream.next()
            assert kind == "gap" and gap["count"] is None


def test_refusals_are_told_and_a_key_that_is_removed_ends_its_streams(tmp_path, name):
    file = tmp_path / "keys.json"
    key = run("api-key", "add", file, "--name", "k", "--role", "viewer").stdout.strip()
    options = {"http.keyFile": file, "http.anonymous": "none", "allowAnonymous": False}
    with Broker(options) as broker:
        assert Stream("127.0.0.1", broker.http_port).status == 401
        with watch(broker, key=key, type="client.refused") as stream:
            broker.client(name, reason=0x87).close()
            [(_, data)] = stream.until(lambda *_: True)
            assert data["client_id"] == name and data["reason"]
            assert run("api-key", "remove", file, key.split("_")[1]).returncode == 0
            broker.signal(signal.SIGHUP)
            assert stream.until(lambda kind, _: kind == "end")[-1] == ("end", {"reason": "not-authenticated"})
            assert stream.next() is None


def test_the_command_prints_a_line_for_each_event(stage, name):
    url = f"http://127.0.0.1:{stage.http_port}"
    shown = subprocess.Popen(
        [BINARY, "events", "--prefix", name, "--url", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        # The stream may begin behind an event: clients come until one is seen.
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in shown.stdout], daemon=True).start()

        def seen():
            stage.client(f"{name}\x1b[2J").close()
            return None if lines.empty() else lines.get()

        line = until(seen, what="a line")
        assert "\x1b" not in line and "client." in line and f"{name}\\u{{1b}}[2J" in line
    finally:
        shown.kill()
        shown.wait()
    done = run("events", "--for", "1", "--json", "--url", url)
    assert done.returncode == 0, done.stderr
    done = run("events", "--type", "nothing", "--url", url)
    assert done.returncode == 1 and "types of events" in done.stderr


def test_sessions_that_begin_and_end_are_told_with_the_reason(stage, keys, name):  # noqa: F811
    kinds = "session.begun,session.ended"
    with watch(stage, type=kinds, prefix=name) as stream:
        # A session that ends with its connection is none that begins or ends for others.
        stage.client(f"{name}-clean").close()
        for ends, expiry in (("disconnect", 600), ("clean_start", 600), ("expired", 1), ("operator", 600)):
            client = stage.client(f"{name}-{ends}", clean=False, props={"session_expiry": expiry})
            if ends == "disconnect":
                client.disconnect(0, {"session_expiry": 0})
            client.close()
        # It goes on, and does not begin again.
        until(lambda: stage.api(f"/api/v1/clients?prefix={name}-operator")["items"][0]["state"] == "away", what="its end")
        stage.client(f"{name}-operator", clean=False, props={"session_expiry": 600}).close()
        stage.client(f"{name}-clean_start", clean=True).close()
        until(lambda: stage.api(f"/api/v1/clients?prefix={name}-operator")["items"][0]["state"] == "away", what="its end")
        operator = keys["operator"].read_text().strip()
        assert request(stage, "DELETE", f"/api/v1/sessions/{name}-operator", key=operator)[0] == 200
        ends = {"disconnect", "clean_start", "expired", "operator"}
        seen = []
        while len(seen) < 8:
            kind, data = stream.next()
            seen.append((kind, data["client_id"].removeprefix(f"{name}-"), data["reason"]))
        assert sorted(seen) == sorted([("session.begun", end, None) for end in ends] + [("session.ended", end, end) for end in ends])

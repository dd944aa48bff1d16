"""Outlets: messages of a durable session of the broker's own go to another system, and are acknowledged when that has them.

Absent on purpose: clusters (tests/cluster/test_outlets.py).
"""

import hashlib
import hmac
import json
import os
import pathlib
import random
import signal
import subprocess
import threading

import pytest
import yaml

from harness.broker import BASE, Broker, run
from harness.mosquitto import Mosquitto
from harness.postgres import free_port
from harness.pki import Authority
from harness.sinks import HttpSink
from harness.wait import until
from test_api import keys, request  # noqa: F401

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operate"

# Short times, so that what is tried again is tried soon.
SOON = {"lingerMs": 1}


def outlet(name="lake", filter="plant/#", **options) -> dict:
    return {"name": name, "source": {"filter": filter}, "batch": SOON, **options}


def configured(*outlets, **more) -> dict:
    return {**BASE, "outlets": list(outlets), **more}


def with_keys(keys, *outlets) -> dict:
    return configured(*outlets, http={"port": 0, "keyFile": str(keys["file"])})


def post(broker, keys, path, body=None) -> tuple[int, object]:
    return request(broker, "POST", path, body, key=keys["operator"].read_text().strip())


def to_file(path, **options) -> dict:
    return outlet(target={"file": {"path": str(path), **options}})


def to_http(sink, **options) -> dict:
    return outlet(target={"http": {"url": sink.url, "timeoutSeconds": 5, **options}})


def row(broker, name="lake") -> dict:
    return broker.api(f"/api/v1/outlets/{name}")


def figures(broker, name="lake") -> dict:
    return row(broker, name)["figures"]


def running(broker, name="lake") -> dict:
    """Waits until the outlet has subscribed."""
    return until(lambda: (r := row(broker, name))["figures"] and r["state"] == "running" and r, what=lambda: row(broker, name))


def lines(path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def texts(path) -> list[str]:
    return [line["text"] for line in lines(path)]


def numbered(count, start=0) -> list[str]:
    return [f"m{number:06}" for number in range(start, start + count)]


def publish(broker, payloads, topic="plant/a", qos=1):
    with broker.client() as client:
        for payload in payloads:
            client.published(topic, payload.encode(), qos=qos)


def drained(broker, name="lake"):
    until(lambda: figures(broker, name)["lag_messages"] == 0, what=lambda: row(broker, name))


def test_messages_are_appended_to_a_file_with_what_belongs_to_them(tmp_path):
    path = tmp_path / "out.ndjson"
    with Broker(config=configured(to_file(path))) as broker:
        running(broker)
        with broker.client() as client:
            client.published("plant/a", b"one", qos=1, retain=True)
            client.published("plant/b", b'{"temp": 41.50}', qos=2, props={"user_property": [("unit", "K"), ("hmq-position", "9.9")]})
            client.publish("plant/c", b"\xff\x00")
            client.published("other", b"not this")
        found = until(lambda: len(lines(path)) == 3 and lines(path), what=lambda: path.read_text())
        first, second, third = found
        assert (first["topic"], first["text"], first["qos"], first["retain"]) == ("plant/a", "one", 1, True)
        # The digits are those of the publisher.
        assert '"json":{"temp": 41.50}' in path.read_text()
        assert second["properties"] == [["unit", "K"]]
        assert (third["base64"], third["qos"]) == ("/wA=", 0) and "position" not in third
        incarnation, sequence = map(int, first["position"].split("."))
        assert second["position"] == f"{incarnation}.{sequence + 1}"
        drained(broker)
        until(lambda: figures(broker)["delivered"] == 3)
        assert broker.metric("heraldmq_outlet_delivered_total", outlet="lake") == 3
        assert broker.metric("heraldmq_outlet_state", outlet="lake", state="running") == 1


def test_a_template_says_what_is_written(tmp_path):
    path = tmp_path / "out.csv"
    record = "${topic[1]},${payload./temp:-none},${qos}"
    with Broker(config=configured(to_file(path, record=record))) as broker:
        running(broker)
        publish(broker, ['{"temp": 41.5}', "x"])
        until(lambda: path.exists() and path.read_text() == "a,41.5,1\na,none,1\n", what=lambda: path.read_text())


def test_what_came_while_nothing_ran_goes_on_and_nothing_twice(tmp_path):
    """The broker is killed, and so is the outlet's process: each message is once in the file."""
    path, data = tmp_path / "out.ndjson", tmp_path / "data"
    with Broker(config=configured(to_file(path)), data_dir=data) as broker:
        running(broker)
        publish(broker, numbered(50))
        broker.kill()
        broker.wait()
    with Broker(config=configured(to_file(path)), data_dir=data) as broker:
        process = running(broker)["figures"]["process"]
        publish(broker, numbered(50, 50))
        os.kill(process, signal.SIGKILL)
        publish(broker, numbered(50, 100))
        until(lambda: len(texts(path)) >= 150, what=lambda: row(broker))
        drained(broker)
        assert texts(path) == numbered(150)
        found = figures(broker)
        assert found["starts"] == 2 and "signal: 9" in found["last_end"]


def test_a_file_that_was_written_beyond_what_counts_is_cut(tmp_path):
    """As after a power loss between the write of a batch and the note of it."""
    path, data = tmp_path / "out.ndjson", tmp_path / "data"
    with Broker(config=configured(to_file(path)), data_dir=data) as broker:
        running(broker)
        publish(broker, numbered(3))
        drained(broker)
        assert broker.stop() == 0
    with path.open("a") as file:
        file.write('{"topic":"half')
    with Broker(config=configured(to_file(path)), data_dir=data) as broker:
        publish(broker, numbered(3, 3))
        until(lambda: path.read_text().count("\n") == 6, what=lambda: path.read_text())
        assert texts(path) == numbered(6)


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path):
    path, old = tmp_path / "out.ndjson", tmp_path / "old.ndjson"
    with Broker(config=configured(to_file(path))) as broker:
        running(broker)
        publish(broker, numbered(3))
        drained(broker)
        path.rename(old)
        publish(broker, numbered(3, 3))
        until(lambda: texts(path) == numbered(3, 3), what=lambda: row(broker))
        assert texts(old) == numbered(3)


def test_a_full_disk_loses_nothing(tmp_path):
    """The file may not grow beyond a limit of the process, until it may."""
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "out.ndjson"
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.getuid() != 0 or os.system(" ".join(mount)) != 0:
        pytest.skip("only root can make a small disk")
    try:
        with Broker(config=configured(to_file(path))) as broker:
            running(broker)
            publish(broker, [f"{text}{'x' * 1000}" for text in numbered(100)])
            failed = until(lambda: (f := figures(broker))["last_error"] and f, what=lambda: row(broker))
            assert "No space left" in failed["last_error"] and row(broker)["state"] == "retrying"
            assert failed["lag_messages"] > 0
            os.system(f"mount -o remount,size=1m {folder}")
            until(lambda: len(lines(path)) == 100, what=lambda: row(broker))
            assert [text[:7] for text in texts(path)] == numbered(100)
            drained(broker)
            until(lambda: figures(broker)["last_error"] is None)
    finally:
        os.system(f"umount {folder}")


def test_requests_have_what_the_configuration_says(tmp_path):
    headers, secret = tmp_path / "headers", tmp_path / "secret"
    headers.write_text("Authorization: Bearer abc\n")
    secret.write_text("hush\n")
    with HttpSink() as sink:
        options = {"headersFile": str(headers), "secretFile": str(secret), "body": "array", "method": "PUT"}
        with Broker(config=configured(to_http(sink, **options))) as broker:
            running(broker)
            publish(broker, numbered(2))
            until(lambda: sum(len(json.loads(body)) for body in sink.bodies) == 2, what=lambda: row(broker))
            method, path, got, body = sink.requests[0]
            assert (method, path) == ("PUT", "/in")
            assert got["authorization"] == "Bearer abc" and got["content-type"] == "application/json"
            assert got["x-hmq-outlet"] == "lake"
            expected = hmac.new(b"hush", body, hashlib.sha256).hexdigest()
            assert got["x-hmq-signature"] == f"sha256={expected}"
            assert "hush" not in json.dumps(row(broker))


def test_a_raw_body_is_the_payload(tmp_path):
    with HttpSink() as sink:
        with Broker(config=configured(to_http(sink, body="raw"))) as broker:
            running(broker)
            publish(broker, ["one", "two"], topic="plant/ü b")
            until(lambda: sink.bodies == [b"one", b"two"], what=lambda: row(broker))
            headers = sink.requests[0][2]
            assert headers["x-hmq-topic"] == "plant/%C3%BC%20b" and headers["x-hmq-qos"] == "1"
            assert "." in headers["x-hmq-position"]


def test_requests_go_together_and_messages_of_a_topic_in_order():
    topics = ["slow", "a", "b", "c"]
    # A batch is full with all messages of a part of the test.
    options = {**outlet(target={"http": {"body": "raw", "concurrency": 3}}), "batch": {"messages": 80, "lingerMs": 60_000}}
    with HttpSink() as sink:
        options["target"]["http"]["url"] = sink.url
        with Broker(config=configured(options)) as broker:
            held = threading.Event()
            sink.answer = lambda body: 200 if not body.startswith(b"slow") or held.wait(30) else 500
            running(broker)
            with broker.client() as client:
                for number in range(20):
                    for topic in topics:
                        client.published(f"plant/{topic}", f"{topic} {number}".encode(), qos=1)
            # Messages of other topics overtake the first one that has no answer, and none of its topic does.
            until(lambda: len(sink.bodies) == 60, what=lambda: len(sink.bodies))
            assert 2 <= sink.together <= 3
            held.set()
            drained(broker)
            for topic in topics:
                of_topic = [body.decode() for body in sink.bodies if body.startswith(topic.encode())]
                assert of_topic == [f"{topic} {number}" for number in range(20)]
            # What the server has does not come again when another request fails.
            sink.answers = [200] * 10 + [503]
            with broker.client() as client:
                for number in range(80):
                    client.published(f"plant/{number % 7}", f"m{number}".encode(), qos=1)
            drained(broker)
            until(lambda: figures(broker)["delivered"] == 160, what=lambda: row(broker))
            assert figures(broker)["retries"] == 1
            assert len(sink.bodies) == len(set(sink.bodies)) == 160


def test_a_server_that_fails_in_all_ways_gets_everything_in_order(tmp_path):
    with HttpSink() as sink:
        sink.answers = [500, "reset", (429, {"retry-after": "1"}), 401, 503]
        with Broker(config=configured(to_http(sink))) as broker:
            running(broker)
            publish(broker, numbered(20))
            seen = until(lambda: (f := figures(broker))["last_error"] and f, what=lambda: row(broker))
            assert seen["lag_messages"] > 0
            until(lambda: len(sink.texts()) >= 20, what=lambda: row(broker))
            assert sink.texts() == numbered(20)
            drained(broker)
            assert figures(broker)["retries"] >= 5


def test_an_answer_that_is_lost_doubles_one_batch_at_most(tmp_path):
    with HttpSink() as sink:
        sink.answers = ["late"]
        with Broker(config=configured(to_http(sink))) as broker:
            running(broker)
            publish(broker, ["only"])
            until(lambda: sink.texts() == ["only", "only"], what=lambda: row(broker))
            first, second = sink.lines()
            # By which the server can tell that it is the same message.
            assert first["position"] == second["position"]
            drained(broker)


def test_a_server_that_hangs_holds_nobody_else_up(tmp_path):
    with HttpSink() as sink:
        sink.hold.clear()
        path = tmp_path / "out.ndjson"
        other = {**to_file(path), "name": "other"}
        with Broker(config=configured(to_http(sink, timeoutSeconds=3600), other)) as broker:
            running(broker, "other")
            publish(broker, numbered(10))
            until(lambda: texts(path) == numbered(10), what=lambda: row(broker, "other"))
            until(lambda: sink.arrived == 1)
            until(lambda: figures(broker)["lag_messages"] == 10, what=lambda: row(broker))
            sink.hold.set()
            until(lambda: sink.texts() == numbered(10), what=lambda: row(broker))
            drained(broker)


def test_what_the_server_refuses_becomes_a_dead_letter_and_the_rest_goes_on(tmp_path):
    def judge(body):
        return 422 if b"poison" in body else 200

    with HttpSink() as sink:
        sink.answer = judge
        config = {**to_http(sink), "deadLetter": {"topic": "dead/lake"}}
        config["batch"] = {"messages": 8, "lingerMs": 100}
        with Broker(config=configured(config)) as broker:
            running(broker)
            with broker.client() as watcher:
                watcher.subscribe("dead/#", qos=1)
                payloads = numbered(20)
                payloads[7] = payloads[13] = "poison"
                publish(broker, payloads)
                for _ in range(2):
                    letter = watcher.message(topic="dead/lake", payload=b"poison", qos=1)
                    properties = dict(letter.props["user_property"])
                    assert properties["hmq-outlet"] == "lake" and properties["hmq-topic"] == "plant/a"
                    assert "422" in properties["hmq-reason"] and "." in properties["hmq-position"]
            until(lambda: len(sink.texts()) == 18, what=lambda: row(broker))
            assert sink.texts() == [payload for payload in payloads if payload != "poison"]
            drained(broker)
            found = until(lambda: (f := figures(broker))["delivered"] == 18 and f)
            # What was refused is no failure of the outlet.
            assert found["failing_s"] is None
            assert (found["dead"], found["dropped"]["dead_letter_unclaimed"], found["dropped"]["refused"]) == (2, 0, 0)


def test_each_drop_has_its_reason(tmp_path):
    """Dead letters that nobody subscribes to, and refusals without a topic for them."""
    with HttpSink() as sink:
        sink.answer = 400
        config = {**to_http(sink), "deadLetter": {"topic": "dead/lake"}}
        without = {**to_http(sink), "name": "without"}
        with Broker(config=configured(config, without)) as broker:
            running(broker)
            running(broker, "without")
            publish(broker, ["x"])
            drained(broker)
            drained(broker, "without")
            until(lambda: figures(broker)["dropped"]["dead_letter_unclaimed"] == 1, what=lambda: row(broker))
            until(lambda: figures(broker, "without")["dropped"]["refused"] == 1)

            def dropped(outlet, reason):
                return broker.metric("heraldmq_outlet_dropped_total", outlet=outlet, reason=reason)

            assert dropped("lake", "dead_letter_unclaimed") == 1 and dropped("lake", "refused") == 0
            assert dropped("without", "refused") == 1


def test_a_pause_outlives_the_broker(tmp_path, keys):
    path, data = tmp_path / "out.ndjson", tmp_path / "data"
    # The pause is a retained message, which no rule ends.
    config = {**with_keys(keys, to_file(path)), "retain": {"maxAgeSeconds": 1}}
    with Broker(config=config, data_dir=data) as broker:
        running(broker)
        publish(broker, numbered(1))
        until(lambda: texts(path) == numbered(1))
        assert post(broker, keys, "/api/v1/outlets/lake/pause")[0] == 204
        until(lambda: row(broker)["state"] == "paused")
        publish(broker, numbered(1, 1))
        with broker.client() as client:
            client.published("witness", b"x", qos=1, retain=True)
        until(lambda: broker.api("/api/v1/retained?filter=witness")["items"] == [], what="the end of a retained message")
        broker.kill()
        broker.wait()
    with Broker(config=config, data_dir=data) as broker:
        until(lambda: row(broker)["state"] == "paused")
        publish(broker, numbered(1, 2))
        until(lambda: figures(broker)["waiting_messages"] == 2, what=lambda: row(broker))
        assert texts(path) == numbered(1)
        assert post(broker, keys, "/api/v1/outlets/lake/resume")[0] == 204
        until(lambda: texts(path) == numbered(3), what=lambda: row(broker))
        status, body = post(broker, keys, "/api/v1/outlets/unknown/pause")
        assert status == 404 and "unknown" in body["detail"]


def test_a_reload_adds_changes_and_removes_outlets(tmp_path):
    first, second = tmp_path / "first.ndjson", tmp_path / "second.ndjson"
    with Broker(config=configured()) as broker:
        assert broker.api("/api/v1/outlets")["items"] == []
        broker.write_config(configured(to_file(first)))
        broker.signal(signal.SIGHUP)
        until(lambda: broker.api("/api/v1/outlets")["items"], what="the outlet")
        running(broker)
        publish(broker, ["one"])
        until(lambda: texts(first) == ["one"])
        changed = {**to_file(second), "source": {"filter": "other/#"}}
        broker.write_config(configured(changed))
        broker.signal(signal.SIGHUP)
        until(lambda: row(broker)["filters"] == ["other/#"] and running(broker), what=lambda: row(broker))
        until(lambda: figures(broker)["starts"] == 2)
        running(broker)
        # The session has no filter of before any more.
        until(lambda: [s["filter"] for s in broker.api("/api/v1/clients/$outlet%2Flake%2F0/subscriptions")["items"]] == ["other/#"])
        publish(broker, ["not this"])
        publish(broker, ["two"], topic="other/x")
        until(lambda: texts(second) == ["two"], what=lambda: row(broker))
        broker.write_config(configured())
        broker.signal(signal.SIGHUP)
        until(lambda: broker.api("/api/v1/outlets")["items"] == [])
        until(lambda: broker.api("/api/v1/clients/$outlet%2Flake%2F0")["state"] != "connected")


def test_an_outlet_begins_with_the_retained_messages_if_it_is_told_to(tmp_path):
    path = tmp_path / "out.ndjson"
    with Broker(config=configured()) as broker:
        with broker.client() as client:
            client.published("plant/a", b"kept", qos=1, retain=True)
        config = to_file(path)
        config["source"]["retained"] = True
        broker.write_config(configured(config))
        broker.signal(signal.SIGHUP)
        until(lambda: texts(path) == ["kept"], what=lambda: broker.api("/api/v1/outlets"))
        assert "position" in lines(path)[0] and lines(path)[0]["retain"]
        publish(broker, ["next"])
        until(lambda: texts(path) == ["kept", "next"], what=lambda: row(broker))


def test_another_broker_gets_the_messages_and_its_outage_loses_none(tmp_path):
    with Broker() as target:
        port, kept = target.port, target
        with kept.client("watcher", clean=False, props={"session_expiry": 600}) as watcher:
            watcher.subscribe("from/#", qos=1)
        mqtt = {"url": f"mqtt://127.0.0.1:{port}", "topic": "from/${topic}"}
        with Broker(config=configured(outlet(target={"mqtt": mqtt}))) as broker:
            running(broker)
            publish(broker, numbered(30))
            until(lambda: figures(broker)["delivered"] == 30, what=lambda: row(broker))
            with kept.client("watcher", clean=False, props={"session_expiry": 600}) as watcher:
                got = [watcher.message(topic="from/plant/a", qos=1) for _ in range(30)]
                assert [message.payload.decode() for message in got] == numbered(30)
                assert "hmq-position" in dict(got[0].props["user_property"])


def test_mosquitto_gets_the_messages_also_with_a_wrong_password_first(tmp_path):
    folder = tmp_path / "edge"
    folder.mkdir()
    password = tmp_path / "password"
    password.write_text("wrong\n")
    passwords = folder / "passwords"
    port = free_port()
    assert os.system(f"mosquitto_passwd -c -b {passwords} out right >/dev/null 2>&1") == 0
    config = folder / "m.conf"
    config.write_text(f"listener {port} 127.0.0.1\npassword_file {passwords}\nallow_anonymous false\nuser root\n")
    edge = subprocess.Popen(["mosquitto", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        mqtt = {"url": f"mqtt://127.0.0.1:{port}", "user": "out", "passwordFile": str(password)}
        with Broker(config=configured(outlet(target={"mqtt": mqtt}))) as broker:

            def is_refused():
                found = figures(broker)
                return found and "refuses the client" in (found["last_error"] or "")

            until(is_refused, what=lambda: row(broker))
            publish(broker, numbered(5))
            sub = subprocess.Popen(
                ["mosquitto_sub", "-p", str(port), "-u", "out", "-P", "right", "-t", "plant/#", "-C", "5", "-q", "1"],
                stdout=subprocess.PIPE,
                text=True,
            )
            until(lambda: broker.metric("heraldmq_outlet_retries_total", outlet="lake") >= 1)
            password.write_text("right\n")
            out, _ = sub.communicate(timeout=60)
            assert out.split() == numbered(5)
            drained(broker)
    finally:
        edge.terminate()
        edge.wait()


def test_events_reach_a_webhook(keys):
    with HttpSink() as sink:
        config = to_http(sink, body="raw")
        config["source"] = {"events": ["client.connected", "api.change"]}
        with Broker(config=with_keys(keys, config)) as broker:
            running(broker)
            with broker.client("visitor") as client:
                client.ping()
            banned = post(broker, keys, "/api/v1/bans", {"client": "nobody", "seconds": 60, "reason": "a test"})
            assert banned[0] == 201

            def events():
                return [json.loads(body) for body in list(sink.bodies)]

            def told():
                return {(event["type"], event.get("client_id")) for event in events()}

            until(lambda: ("client.connected", "visitor") in told(), what=events)
            until(lambda: any(event["type"] == "api.change" for event in events()), what=events)
            assert {event["type"] for event in events()} == {"client.connected", "api.change"}
            assert sink.requests[0][2]["x-hmq-topic"].startswith("$hmq/event/")


# How often something is killed; `scripts/soak outlets` plays more.
ROUNDS = int(os.environ.get("HERALD_OUTLET_ROUNDS", "6"))


def test_kills_anywhere_lose_nothing_and_double_nothing_in_a_file(tmp_path):
    """In each round the outlet's process, or the broker, is killed while messages go through, at a moment that the seed says."""
    chance = random.Random(int(os.environ.get("HERALD_SEED", "1"), 0))
    path, data = tmp_path / "out.ndjson", tmp_path / "data"
    config = configured(to_file(path))
    acknowledged = 0
    broker = Broker(config=config, data_dir=data)
    try:
        running(broker)
        for _ in range(ROUNDS):
            process = until(lambda: figures(broker) and figures(broker)["process"], what=lambda: row(broker))
            victim = chance.choice(["process", "broker"])
            count = chance.randrange(1, 200)
            at = chance.randrange(count)
            with broker.client() as client:
                for number in range(count):
                    client.published("plant/a", f"m{acknowledged:06}".encode(), qos=1)
                    acknowledged += 1
                    if number == at and victim == "process":
                        kill_if_there(process)
            if victim == "broker":
                broker.kill()
                broker.wait()
                broker.close()
                broker = Broker(config=config, data_dir=data)
        until(lambda: len(lines(path)) >= acknowledged, what=lambda: row(broker))
        drained(broker)
        assert texts(path) == numbered(acknowledged)
    finally:
        broker.close()


def kill_if_there(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


# The recipes of the pages, as they stand there.


def recipe(page, **replaced) -> dict:
    text = (DOCS / page).read_text()
    block = text.split("```yaml\n")[1].split("```")[0]
    for old, new in replaced.values():
        assert old in block
        block = block.replace(old, new)
    return yaml.safe_load(block)


def test_the_recipe_for_a_file(tmp_path):
    path = tmp_path / "lake.ndjson"
    config = recipe("outlets-file.md", path=("lake.ndjson", str(path)))
    with Broker(config={**BASE, **config}) as broker:
        running(broker, "lake")
        publish(broker, ['{"temp": 3}', "x"], topic="plant/7/state")
        expected = '{"device":"7","value":3}\n{"device":"7","value":null}\n'
        until(lambda: path.exists() and path.read_text() == expected, what=lambda: path.read_text())


def test_the_recipe_for_an_http_server(tmp_path):
    headers, secret = tmp_path / "hook.headers", tmp_path / "hook.secret"
    headers.write_text("Authorization: Bearer abc\n")
    secret.write_text("hush")
    authority = Authority(tmp_path)
    with HttpSink(authority) as sink:
        config = recipe(
            "outlets-http.md",
            url=("https://example.com/in", sink.url),
            headers=("hook.headers", f"{headers}\n        caFile: {authority.path}"),
            secret=("hook.secret", str(secret)),
        )
        with Broker(config={**BASE, **config}) as broker:
            running(broker, "hook")
            publish(broker, ["one"])
            until(lambda: sink.texts() == ["one"], what=lambda: row(broker, "hook"))
            assert sink.requests[0][2]["authorization"] == "Bearer abc"


def test_the_recipe_for_another_broker(tmp_path):
    password = tmp_path / "centre.password"
    password.write_text("secret")
    with Broker() as centre:
        config = recipe(
            "outlets-mqtt.md",
            url=("127.0.0.1:1883", f"127.0.0.1:{centre.port}"),
            password=("centre.password", str(password)),
        )
        with Broker(config={**BASE, **config}) as broker, centre.client() as watcher:
            running(broker, "centre")
            watcher.subscribe("site-1/#", qos=1)
            publish(broker, ["one"])
            watcher.message(topic="site-1/plant/a", payload=b"one", qos=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "a b"}, "expected a name"),
        ({"source": {"filter": "a/#/b"}}, "no topic filter"),
        ({"source": {"events": "client.born"}}, "there are no events client.born"),
        ({"target": {}}, "expected one target"),
        ({"target": {"file": {"path": "x"}, "http": {"url": "http://x"}}}, "expected one target"),
        ({"target": {"http": {"url": "ftp://x"}}}, "expected a URL"),
        ({"target": {"file": {"path": "x", "record": "${nothing}"}}}, "a message has no nothing"),
        ({"deadLetter": {"topic": "a/#"}}, "is no topic"),
        ({"target": {"mqtt": {"url": "mqtt://u:p@h"}}}, "without path, user name and password"),
        ({"target": {"http": {"url": "http://h", "headersFile": "/nonexistent"}}}, "/nonexistent"),
    ],
)
def test_check_config_says_what_is_wrong(tmp_path, options, said):
    path = tmp_path / "conf.yml"
    path.write_text(json.dumps({"outlets": [{**to_file(tmp_path / "out"), **options}]}))
    done = run("check-config", str(path))
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_the_command_line_shows_pauses_and_tests(tmp_path, keys):
    path = tmp_path / "out.ndjson"
    config = with_keys(keys, to_file(path))
    with Broker(config=config) as broker:
        running(broker)
        publish(broker, ["x"])
        until(lambda: figures(broker)["delivered"] == 1)
        url = f"--url=http://127.0.0.1:{broker.http_port}"
        token = f"--token-file={keys['operator']}"
        listed = run("outlet", "list", url)
        assert listed.returncode == 0 and "lake" in listed.stdout and "running" in listed.stdout
        assert run("outlet", "pause", "lake", url, token).returncode == 0
        until(lambda: row(broker)["state"] == "paused")
        shown = run("outlet", "show", "lake", url)
        assert "paused" in shown.stdout and str(path) in shown.stdout
        assert run("outlet", "resume", "lake", url, token).returncode == 0
        tested = run("outlet", "test", "lake", "--config", str(broker.config_path))
        assert tested.returncode == 0 and "can be written" in tested.stdout
        missing = run("outlet", "test", "sea", "--config", str(broker.config_path))
        assert missing.returncode == 2 and "no outlet called sea" in missing.stderr


def test_clients_cannot_be_an_outlet(tmp_path):
    with Broker(config=configured(to_file(tmp_path / "out"))) as broker:
        running(broker)
        with broker.raw() as client:
            client.connect("$outlet/lake/0", reason=0x85)
        with broker.client() as client:
            client.subscribe("$hmq/#", qos=1, expect=[0x87])


def test_a_stop_leaves_no_process_and_loses_nothing(tmp_path):
    path, data = tmp_path / "out.ndjson", tmp_path / "data"
    with Broker(config=configured(to_file(path)), data_dir=data) as broker:
        process = running(broker)["figures"]["process"]
        publish(broker, numbered(20))
        assert broker.stop() == 0
        until(lambda: not os.path.exists(f"/proc/{process}"), what="the end of the process")
    with Broker(config=configured(to_file(path)), data_dir=data) as broker:
        process = running(broker)["figures"]["process"]
        drained(broker)
        assert texts(path) == numbered(20)
        broker.kill()
        broker.wait()
        # A node that is gone leaves no process either.
        until(lambda: not os.path.exists(f"/proc/{process}"), what="the end of the process")

"""Inlets: messages of another broker are published here, and acknowledged there when this broker has them.

Absent on purpose: clusters (tests/cluster/test_inlets.py).
"""

import collections
import contextlib
import json
import os
import random
import signal
import subprocess

import pytest

from harness.broker import BASE, Broker, run
from harness.postgres import free_port
from harness.raw import Closed, Raw
from harness.wait import until
from test_api import keys  # noqa: F401
from test_outlets import figures, kill_if_there, numbered, outlet, post, recipe, row, running

DURABLE = {"clean": False, "props": {"session_expiry": 600}}


def inlet(url, filter="#", name="site", topic="${topic}", **more) -> dict:
    options = {key: more.pop(key) for key in list(more) if key not in ("retain",)}
    return {"name": name, "from": {"mqtt": {"url": url, "filter": filter, **options}}, "topic": topic, **more}


def configured(*inlets, **more) -> dict:
    return {**BASE, "inlets": list(inlets), **more}


def url(broker) -> str:
    return f"mqtt://127.0.0.1:{broker.port}"


class Other:
    """Context manager around a Mosquitto, the other broker, which can be killed and started again."""

    def __init__(self, folder, *lines):
        folder.mkdir(exist_ok=True)
        self.port, self.process = free_port(), None
        self.config = folder / "m.conf"
        saved = ["persistence true", f"persistence_location {folder}/", "autosave_interval 1", "autosave_on_changes true"]
        access = [] if any("allow_anonymous" in line for line in lines) else ["allow_anonymous true"]
        text = [f"listener {self.port} 127.0.0.1", "user root", "max_queued_messages 0", *access, *saved, *lines]
        self.config.write_text("\n".join(text) + "\n")
        self.start()

    def start(self):
        self.process = subprocess.Popen(["mosquitto", "-c", str(self.config)], stderr=subprocess.DEVNULL)
        until(lambda: self.publish("up", "x", qos=0) == 0, what="mosquitto")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def publish(self, topic, *payloads, qos=1, options=()) -> int:
        lines = "".join(f"{payload}\n" for payload in payloads)
        command = ["mosquitto_pub", "-p", str(self.port), "-V", "5", "-t", topic, "-q", str(qos), "-l", *options]
        return subprocess.run(command, input=lines, text=True, stderr=subprocess.DEVNULL).returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def test_mosquitto_s_messages_come_with_what_belongs_to_them(tmp_path):
    with Other(tmp_path / "other") as other:
        # Retained before there is an inlet.
        assert other.publish("cmd/kept", "old", options=["-r"]) == 0
        with Broker(config=configured()) as broker, broker.client() as watcher:
            watcher.subscribe("site1/#", qos=1)
            config = inlet(url(other), filter="cmd/#", topic="site1/${topic[1..]}")
            broker.write_config(configured(config))
            broker.signal(signal.SIGHUP)
            until(lambda: broker.api("/api/v1/outlets")["items"], what="the inlet")
            running(broker, "site")
            watcher.message(topic="site1/kept", payload=b"old", qos=1)
            options = ["-D", "publish", "user-property", "unit", "K", "-D", "publish", "content-type", "text/plain"]
            options += ["-D", "publish", "response-topic", "reply/here", "-D", "publish", "correlation-data", "c7"]
            options += ["-D", "publish", "message-expiry-interval", "1000"]
            assert other.publish("cmd/a/b", "one", options=options) == 0
            got = watcher.message(topic="site1/a/b", payload=b"one", qos=1)
            assert ("unit", "K") in got.props["user_property"]
            assert got.props["content_type"] == "text/plain" and got.props["response_topic"] == "reply/here"
            assert got.props["correlation_data"] == b"c7"
            assert 900 < got.props["message_expiry"] <= 1000
            path = dict(got.props["user_property"])["hmq-path"]
            assert path.startswith("~") and len(path) == 13
            assert other.publish("cmd/now", "zero", qos=0) == 0
            watcher.message(topic="site1/now", payload=b"zero", qos=0)
            # What was retained there is retained here, with its topic here.
            kept = broker.api("/api/v1/retained?filter=site1/%23")["items"]
            assert [item["topic"] for item in kept] == ["site1/kept"]
            listed = row(broker, "site")
            assert (listed["direction"], listed["target"], listed["filters"]) == ("in", "mqtt", ["cmd/#"])
            assert listed["figures"]["lag_messages"] is None
            until(lambda: figures(broker, "site")["delivered"] == 3, what=lambda: row(broker, "site"))
            assert broker.metric("heraldmq_outlet_delivered_total", outlet="site") == 3


def test_a_wrong_password_is_told_and_mended_in_its_file(tmp_path):
    folder, password = tmp_path / "other", tmp_path / "password"
    folder.mkdir()
    password.write_text("wrong\n")
    passwords = folder / "passwords"
    assert os.system(f"mosquitto_passwd -c -b {passwords} centre right >/dev/null 2>&1") == 0
    port = free_port()
    config = folder / "m.conf"
    config.write_text(f"listener {port} 127.0.0.1\npassword_file {passwords}\nallow_anonymous false\nuser root\n")
    other = subprocess.Popen(["mosquitto", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        access = {"user": "centre", "passwordFile": str(password)}
        with Broker(config=configured(inlet(f"mqtt://127.0.0.1:{port}", **access))) as broker:

            def is_refused():
                found = figures(broker, "site")
                return found and "refuses the client" in (found["last_error"] or "")

            until(is_refused, what=lambda: row(broker, "site"))
            assert row(broker, "site")["state"] in ("retrying", "opening")
            password.write_text("right\n")
            running(broker, "site")
            tested = run("outlet", "test", "site", "--config", str(broker.config_path))
            assert tested.returncode == 0 and "MQTT 5.0" in tested.stdout, tested.stderr
    finally:
        other.terminate()
        other.wait()


def test_messages_that_cannot_be_published_are_dropped_with_a_reason(tmp_path):
    with Broker() as other:
        config = inlet(url(other), filter="in/#", topic="${property.to:-x}/${topic[1]}")
        with Broker(config=configured(config)) as broker, broker.client() as watcher, other.client() as client:
            watcher.subscribe("#", qos=1)
            running(broker, "site")

            def to(where):
                return {"user_property": [("to", where)]}

            client.published("in/a", b"own", qos=1, props=to("$hmq/event"))
            client.published("in/a", b"sys", qos=1, props=to("$SYS"))
            client.published("in/a", b"wild", qos=1, props=to("a/+"))
            client.published("in", b"lacks", qos=1)
            mine = {"user_property": [("hmq-path", ",".join(str(number) for number in range(8)))]}
            client.published("in/a", b"long", qos=1, props=mine)
            client.published("in/b", b"good", qos=1)
            watcher.message(topic="x/b", payload=b"good", qos=1)
            found = until(lambda: (f := figures(broker, "site"))["dropped"]["refused"] == 4 and f, what=lambda: row(broker, "site"))
            assert "topic[1]" in found["last_error"] and found["dropped"]["bridge_loop"] == 1 and found["starts"] == 1
            until(lambda: broker.metric("heraldmq_outlet_dropped_total", outlet="site", reason="refused") == 4)
            assert broker.metric("heraldmq_outlet_dropped_total", outlet="site", reason="bridge_loop") == 1


@pytest.mark.parametrize("kind", ["mosquitto", "heraldmq"])
def test_an_inlet_and_an_outlet_of_everything_bring_each_message_once(tmp_path, kind):
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(Other(tmp_path / "other") if kind == "mosquitto" else Broker())
        both = {
            "inlets": [inlet(url(other), name="from")],
            "outlets": [outlet(name="to", filter="#", target={"mqtt": {"url": url(other)}})],
        }
        broker = stack.enter_context(Broker(config={**BASE, **both}))
        running(broker, "from")
        running(broker, "to")
        here = stack.enter_context(broker.client())
        here.subscribe("#", qos=1)
        there = stack.enter_context(Raw(other.port))
        there.connect("there")
        there.subscribe("#", qos=1)
        publisher = stack.enter_context(broker.client())
        publisher.published("a/here", b"h", qos=1)
        for watcher in (here, there):
            watcher.message(topic="a/here", payload=b"h", qos=1)
        assert subprocess.run(["mosquitto_pub", "-p", str(other.port), "-t", "a/there", "-m", "t", "-q", "1"]).returncode == 0
        for watcher in (here, there):
            watcher.message(topic="a/there", payload=b"t", qos=1)
        # Each was dropped where it came back.
        until(lambda: figures(broker, "from")["dropped"]["bridge_loop"] == 1, what=lambda: row(broker, "from"))
        until(lambda: figures(broker, "to")["dropped"]["bridge_loop"] == 1, what=lambda: row(broker, "to"))
        publisher.published("end", b"e", qos=1)
        for watcher in (here, there):
            watcher.message(topic="end", payload=b"e", qos=1)


def test_a_pause_leaves_messages_at_the_other_broker(tmp_path, keys):
    http = {"port": 0, "keyFile": str(keys["file"])}
    with Broker() as other:
        config = configured(inlet(url(other), filter="a/#"), http=http)
        with Broker(config=config) as broker, broker.client() as watcher, other.client() as client:
            watcher.subscribe("a/#", qos=1)
            running(broker, "site")
            client.published("a/x", b"before", qos=1)
            watcher.message(topic="a/x", payload=b"before", qos=1)
            assert post(broker, keys, "/api/v1/outlets/site/pause")[0] == 204
            until(lambda: row(broker, "site")["state"] == "paused", what=lambda: row(broker, "site"))
            until(lambda: other.api("/api/v1/clients/hmq-site")["state"] != "connected")
            client.published("a/x", b"meanwhile", qos=1)
            assert figures(broker, "site")["delivered"] == 1
            assert post(broker, keys, "/api/v1/outlets/site/resume")[0] == 204
            watcher.message(topic="a/x", payload=b"meanwhile", qos=1)


class Publisher:
    """Context manager around a client that sends a message again, on another connection, until it is acknowledged."""

    def __init__(self, port):
        self.port, self.client = port, None

    def publish(self, topic, payload):
        def is_acknowledged():
            try:
                if self.client is None:
                    self.client = Raw(self.port)
                    self.client.connect("publisher")
                self.client.published(topic, payload, qos=1)
            except (OSError, Closed, AssertionError):
                self.close()
                return False
            return True

        until(is_acknowledged, what="an acknowledgement")

    def close(self):
        if self.client:
            self.client.close()
        self.client = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# How often something is killed.
ROUNDS = int(os.environ.get("HERALD_OUTLET_ROUNDS", "6"))


@pytest.mark.parametrize("kind", ["mosquitto", "heraldmq"])
def test_kills_anywhere_lose_nothing(tmp_path, kind):
    """In each round the inlet's process, the broker, or the other broker is killed while messages go through."""
    chance = random.Random(int(os.environ.get("HERALD_SEED", "1"), 0))
    data, port = tmp_path / "data", free_port()
    with contextlib.ExitStack() as stack:
        if kind == "mosquitto":
            other = stack.enter_context(Other(tmp_path / "other"))
            there = other.port
        else:
            there = free_port()
            other_config = {**BASE, "mqttServerConfig": {"tcpListener": {"host": "127.0.0.1", "port": there}}}
            other = Broker(config=other_config, data_dir=tmp_path / "other")
        config = configured(inlet(f"mqtt://127.0.0.1:{there}", filter="in/#"))
        broker = Broker(config=config, data_dir=data)
        try:
            with broker.client("watcher", **DURABLE) as watcher:
                watcher.subscribe("in/#", qos=1)
            running(broker, "site")
            acknowledged: list[str] = []
            for _ in range(ROUNDS):
                process = until(lambda: figures(broker, "site") and figures(broker, "site")["process"], what=lambda: row(broker, "site"))
                # What Mosquitto has not saved is lost by its own kill, acknowledged or not.
                victim = chance.choice(["process", "broker", "other"] if kind == "heraldmq" else ["process", "broker"])
                texts = numbered(chance.randrange(20, 200), len(acknowledged))
                at = chance.randrange(len(texts))
                with Publisher(there) as publisher:
                    for number, text in enumerate(texts):
                        if number == at and victim == "process":
                            kill_if_there(process)
                        elif number == at and victim == "broker":
                            broker.kill()
                            broker.wait()
                            broker.close()
                        elif number == at:
                            other.kill()
                            other.wait()
                            other.close()
                            other = Broker(config=other_config, data_dir=tmp_path / "other")
                        publisher.publish("in/a", text.encode())
                acknowledged += texts
                if victim == "broker":
                    broker = Broker(config=config, data_dir=data)
            running(broker, "site")
            seen = collections.Counter()
            with broker.client("watcher", **DURABLE) as watcher:
                while set(acknowledged) - set(seen):
                    message = watcher.message(topic="in/a", qos=1)
                    seen[message.payload.decode()] += 1
            doubled = sum(count - 1 for count in seen.values())
            print(f"{doubled} of {len(acknowledged)} came again")
            assert doubled <= ROUNDS * 1_000
        finally:
            broker.close()
            if kind == "heraldmq":
                other.close()


def test_an_inlet_is_not_throttled_like_a_device(tmp_path):
    """Two MiB, at a limit of 64 KiB/s for clients here, are there at once."""
    slow = {"connection": {"bytesPerSecondIn": 65_536}}
    with Broker() as other:
        config = configured(inlet(url(other), filter="big/#"), limits=slow)
        with Broker(config=config) as broker, other.client() as client:
            running(broker, "site")
            for _ in range(32):
                client.published("big/x", b"x" * 65_536, qos=1)
            until(lambda: figures(broker, "site")["delivered"] == 32, what=lambda: row(broker, "site"))
            assert broker.metric("heraldmq_read_rate_pauses_total") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "a b"}, "expected a name"),
        ({"name": "lake"}, "an inlet and an outlet are called lake"),
        ({"from": {}}, "expected one source: `from.mqtt.url`, `from.kafka.servers` or `from.nats.url`"),
        ({"from": {"mqtt": {"url": "http://x", "filter": "a"}}}, "expected a URL"),
        ({"from": {"mqtt": {"url": "mqtt://x"}}}, "expected `from.mqtt.filter`"),
        ({"from": {"mqtt": {"url": "mqtt://x", "filter": "a/#/b"}}}, "no topic filter"),
        ({"from": {"mqtt": {"url": "mqtt://u:p@x", "filter": "a"}}}, "without path, user name and password"),
        ({"topic": "${nothing}"}, "a message has no nothing"),
        ({"topic": "a/+/${topic}"}, "has a wildcard"),
        ({"topic": "$$hmq/${topic}"}, "topics of the broker only"),
    ],
)
def test_check_config_says_what_is_wrong(tmp_path, options, said):
    path = tmp_path / "conf.yml"
    lake = outlet(target={"file": {"path": str(tmp_path / "out")}})
    path.write_text(json.dumps({"outlets": [lake], "inlets": [{**inlet("mqtt://x"), **options}]}))
    done = run("check-config", str(path))
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_the_recipe(tmp_path):
    password = tmp_path / "site1.password"
    password.write_text("secret")
    with Broker() as other:
        config = recipe(
            "inlets.md",
            url=("127.0.0.1:1883", f"127.0.0.1:{other.port}"),
            password=("site1.password", str(password)),
        )
        with Broker(config={**BASE, **config}) as broker, broker.client() as watcher, other.client() as client:
            running(broker, "site1")
            watcher.subscribe("site1/#", qos=1)
            client.published("state/pump", b"on", qos=1)
            watcher.message(topic="site1/pump", payload=b"on", qos=1)
            listed = run("outlet", "list", f"--url=http://127.0.0.1:{broker.http_port}")
            assert "site1" in listed.stdout and " in " in listed.stdout

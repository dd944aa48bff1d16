"""Inlets from Kafka: a real server, one for the module.

Absent on purpose: what all inlets have in common (test_inlets.py), mechanisms of logins (test_outlets_kafka.py), clusters of Kafka.
"""

import collections
import contextlib
import json
import os
import random
import signal

import pytest

from harness.broker import BASE, Broker, run
from harness.kafka import PASSWORD
from harness.wait import until
from test_api import keys  # noqa: F401
from test_inlets import DURABLE
from test_outlets import ROUNDS, figures, kill_if_there, numbered, outlet, post, publish, recipe, row, running
from test_outlets_kafka import login, server  # noqa: F401

pytestmark = pytest.mark.skipif("HERALD_KAFKA" not in os.environ, reason="there is no Kafka: need_kafka of scripts/tools.sh")


@pytest.fixture
def topic(request, server) -> str:
    """A topic of its own for each test, with three partitions; its group is `hmq-site-TOPIC`."""
    name = "in." + request.node.name.replace("test_", "").translate(str.maketrans("[]", "--"))[:100]
    server.topic(name, 3)
    return name


def level(topic) -> str:
    return topic.replace(".", "/")


def from_kafka(server, topics, name="site", **options) -> dict:
    more = {key: options.pop(key) for key in ["topic"] if key in options}
    first = topics if isinstance(topics, str) else topics[0]
    kafka = {"servers": server.url, "topics": topics, "group": f"hmq-site-{first}", "timeoutSeconds": 5, **options}
    return {"name": name, "from": {"kafka": kafka}, **more}


def configured(*inlets, **more) -> dict:
    return {**BASE, "inlets": list(inlets), **more}


def failed(broker, said) -> dict:
    """Waits until the inlet has failed, and says so."""

    def has_failed():
        found = figures(broker, "site")
        return found and said in (found["last_error"] or "") and found

    return until(has_failed, what=lambda: row(broker, "site"))


def finished(broker, server, topic):
    """Waits until the group has committed all."""
    until(lambda: server.behind(f"hmq-site-{topic}", topic) == 0, what=lambda: row(broker, "site"))


def test_records_come_with_key_and_headers_and_are_committed(server, topic):
    with Broker(config=configured(from_kafka(server, topic, topic="kafka/${topic[1..]}"))) as broker, broker.client() as watcher:
        watcher.subscribe("kafka/#", qos=1)
        running(broker, "site")
        headers = [
            ("unit", b"K"),
            ("unit", "°C".encode()),
            ("binary", b"\xff"),
            ("content-type", b"text/x"),
            ("hmq-response-topic", "re/ü".encode()),
            ("hmq-correlation", b"\xff\x00"),
            ("hmq-payload-format", b"1"),
            ("hmq-topic", b"plant/a.b"),
            ("hmq-position", b"9.9"),
        ]
        server.published(topic, b"one", key=b"k1", headers=headers)
        got = watcher.message(topic=level(topic).replace("in/", "kafka/"), payload=b"one", qos=1)
        properties = got.props.pop("user_property")
        path, place = dict(properties)["hmq-path"], dict(properties)["kafka-position"]
        assert path.startswith("~") and len(path) == 13 and place.startswith(f"{topic}-") and place.endswith("-0")
        wanted = [("kafka-position", place), ("kafka-key", "k1"), ("unit", "K"), ("unit", "°C"), ("hmq-topic", "plant/a.b"), ("hmq-path", path)]
        assert properties == wanted
        wanted = {"content_type": "text/x", "response_topic": "re/ü", "correlation_data": b"\xff\x00", "payload_format": 1}
        assert got.props == wanted
        server.published(topic, None, key=b"k1")
        assert watcher.message(payload=b"", qos=1).topic == got.topic
        finished(broker, server, topic)
        found = row(broker, "site")
        assert (found["direction"], found["target"], found["place"], found["filters"]) == ("in", "kafka", server.url, [topic])


def test_the_records_of_a_key_come_in_their_order(server, topic):
    with Broker(config=configured(from_kafka(server, topic))) as broker, broker.client() as watcher:
        watcher.subscribe("#", qos=1)
        running(broker, "site")
        server.publish_all(topic, [(f"k{number % 7}".encode(), f"{number}".encode()) for number in range(3000)])
        by_key: dict[str, list] = {}
        for _ in range(3000):
            message = watcher.message(qos=1)
            by_key.setdefault(dict(message.props["user_property"])["kafka-key"], []).append(int(message.payload))
        assert by_key == {f"k{number}": list(range(number, 3000, 7)) for number in range(7)}
        finished(broker, server, topic)


@pytest.mark.parametrize(("deliver", "wanted"), [("new", ["m000003"]), ("all", numbered(4))])
def test_a_new_group_begins_where_it_is_told_to_and_leaves_nothing_out_from_then_on(server, topic, deliver, wanted):
    for text in numbered(3):
        server.published(topic, text.encode(), key=b"k")
    with Broker(config=configured()) as broker, broker.client() as watcher:
        watcher.subscribe("in/#", qos=1)
        broker.write_config(configured(from_kafka(server, topic, deliver=deliver)))
        broker.signal(signal.SIGHUP)
        until(lambda: broker.api("/api/v1/outlets")["items"], what="the inlet")
        process = running(broker, "site")["figures"]["process"]
        # Where it has begun is kept, though it has read nothing from then on.
        kill_if_there(process)
        server.published(topic, b"m000003", key=b"k")
        seen: dict[str, None] = {}
        while "m000003" not in seen:
            seen[watcher.message(topic=level(topic), qos=1).payload.decode()] = None
        assert list(seen) == wanted
        finished(broker, server, topic)


def test_what_is_missing_or_wrong_is_told_and_waited_for(tmp_path, server):
    name, password = "in.missing", tmp_path / "password"
    password.write_text("wrong\n")
    with Broker(config=configured(from_kafka(server, name, **login(server, password)))) as broker, broker.client() as watcher:
        watcher.subscribe("in/#", qos=1)
        found = failed(broker, "uthentication failed")
        assert "wrong" not in json.dumps(found)
        password.write_text(PASSWORD + "\n")
        failed(broker, f"Kafka has no topic {name}")
        server.topic(name)
        running(broker, "site")
        server.published(name, b"x")
        watcher.message(topic="in/missing", payload=b"x", qos=1)


def test_a_server_that_hangs_is_an_error_and_loses_nothing(server, topic):
    with Broker(config=configured(from_kafka(server, topic, timeoutSeconds=2))) as broker, broker.client() as watcher:
        watcher.subscribe("in/#", qos=1)
        running(broker, "site")
        server.published(topic, b"m000000", key=b"k")
        watcher.message(payload=b"m000000", qos=1)
        server.signal(signal.SIGSTOP)
        try:
            until(lambda: figures(broker, "site")["last_error"], what=lambda: row(broker, "site"))
        finally:
            server.signal(signal.SIGCONT)
        server.published(topic, b"m000001", key=b"k")
        while watcher.message(qos=1).payload != b"m000001":
            pass
        finished(broker, server, topic)


def test_records_that_cannot_be_published_are_dropped_with_a_reason_and_the_group_goes_on(server, topic):
    limits = {"connection": {"maximumPacketSize": 100_000}}
    inlet = from_kafka(server, topic, topic="in/${property.to:-x}")
    with Broker(config=configured(inlet, limits=limits)) as broker, broker.client() as watcher:
        watcher.subscribe("in/#", qos=1)
        running(broker, "site")
        server.published(topic, b"x" * 200_000, key=b"k")
        for name in ["+", "a#"]:
            server.published(topic, b"x", key=b"k", headers=[("to", name.encode())])
        # It passed a cluster too often.
        server.published(topic, b"x", key=b"k", headers=[("hmq-path", ",".join(str(number) for number in range(8)).encode())])
        server.published(topic, b"end", key=b"k")
        watcher.message(topic="in/x", payload=b"end", qos=1)
        found = until(lambda: (f := figures(broker, "site"))["delivered"] == 2 and f, what=lambda: row(broker, "site"))
        assert (found["dropped"]["refused"], found["dropped"]["bridge_loop"], found["starts"]) == (3, 1, 1)
        finished(broker, server, topic)


def test_a_pause_leaves_records_in_the_topic(server, topic, keys):  # noqa: F811
    http = {"port": 0, "keyFile": str(keys["file"])}
    with Broker(config=configured(from_kafka(server, topic), http=http)) as broker, broker.client() as watcher:
        watcher.subscribe("in/#", qos=1)
        running(broker, "site")
        server.published(topic, b"before", key=b"k")
        watcher.message(payload=b"before", qos=1)
        assert post(broker, keys, "/api/v1/outlets/site/pause")[0] == 204
        until(lambda: row(broker, "site")["state"] == "paused", what=lambda: row(broker, "site"))
        # The pause has committed it.
        finished(broker, server, topic)
        server.published(topic, b"meanwhile", key=b"k")
        assert figures(broker, "site")["delivered"] == 1
        assert post(broker, keys, "/api/v1/outlets/site/resume")[0] == 204
        watcher.message(payload=b"meanwhile", qos=1)
        until(lambda: figures(broker, "site")["delivered"] == 2, what=lambda: row(broker, "site"))


def test_an_inlet_and_an_outlet_of_everything_bring_each_message_once(server, topic):
    filters, target = f"{level(topic)}/#", {"kafka": {"servers": server.url, "topic": topic}}
    both = {"inlets": [from_kafka(server, topic, name="from")], "outlets": [outlet(name="to", filter=filters, target=target)]}
    with Broker(config={**BASE, **both}) as broker, broker.client() as watcher:
        watcher.subscribe("in/#", qos=1)
        running(broker, "from")
        running(broker, "to")
        publish(broker, ["here"], topic=level(topic))
        watcher.message(payload=b"here", qos=1)
        # It came back, and was dropped.
        until(lambda: figures(broker, "from")["dropped"]["bridge_loop"] == 1, what=lambda: row(broker, "from"))
        server.published(topic, b"there", key=b"k")
        watcher.message(payload=b"there", qos=1)
        until(lambda: figures(broker, "to")["dropped"]["bridge_loop"] == 1, what=lambda: row(broker, "to"))
        assert sorted(server.texts(topic)) == ["here", "there"]


def test_kills_anywhere_lose_nothing(tmp_path, server, topic):
    """In each round the inlet's process, the broker or Kafka is killed while records are written."""
    chance = random.Random(int(os.environ.get("HERALD_SEED", "1"), 0))
    data, config = tmp_path / "data", configured(from_kafka(server, topic))
    acknowledged: list[str] = []
    broker = Broker(config=config, data_dir=data)
    try:
        with broker.client("watcher", **DURABLE) as watcher:
            watcher.subscribe("in/#", qos=1)
        running(broker, "site")
        victims = ["process", "broker", "server"] * (ROUNDS // 3 + 1)
        for victim in victims[: max(ROUNDS // 2, 3)]:
            process = until(lambda: figures(broker, "site") and figures(broker, "site")["process"], what=lambda: row(broker, "site"))
            texts = numbered(chance.randrange(20, 200), len(acknowledged))
            at = chance.randrange(len(texts))
            server.publish_all(topic, [(text.encode(), text.encode()) for text in texts[:at]])
            if victim == "process":
                kill_if_there(process)
            elif victim == "broker":
                broker.kill()
                broker.wait()
                broker.close()
            else:
                server.kill()
                server.start()
            server.publish_all(topic, [(text.encode(), text.encode()) for text in texts[at:]])
            acknowledged += texts
            if victim == "broker":
                broker = Broker(config=config, data_dir=data)
        seen = collections.Counter()
        with broker.client("watcher", **DURABLE) as watcher:
            while set(acknowledged) - set(seen):
                seen[watcher.message(topic=level(topic), qos=1).payload.decode()] += 1
        doubled = sum(count - 1 for count in seen.values())
        print(f"{doubled} of {len(acknowledged)} came again")
        assert doubled <= ROUNDS * 1_000
        finished(broker, server, topic)
    finally:
        broker.close()


def test_the_recipe(tmp_path, server):
    password = tmp_path / "plant.password"
    password.write_text(PASSWORD)
    for name in ["plant.commands", "plant.state"]:
        server.topic(name)
    servers = ("k1:9093, k2:9093", server.login_url)
    files = {"ca": ("kafka-ca.pem", str(server.authority.path)), "password": ("plant.password", str(password))}
    config = recipe("inlets-kafka.md", servers=servers, **files)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(config={**BASE, **config}))
        running(broker, "plant")
        watcher = stack.enter_context(broker.client())
        watcher.subscribe("kafka/#", qos=1)
        server.published("plant.state", b"one")
        watcher.message(topic="kafka/state", payload=b"one", qos=1)
        tested = run("outlet", "test", "plant", "--config", str(broker.config_path))
        said = tested.stdout + tested.stderr
        assert tested.returncode == 0 and "the topic plant.commands has partitions: 1; the topic plant.state has partitions: 1" in said, said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"servers": "k1"}, "from.kafka.servers: k1 is no HOST:PORT"),
        ({"servers": []}, "expected one source"),
        ({"topics": []}, "from.kafka.topics: expected the topics"),
        ({"topics": ["a", "^b.*"]}, "from.kafka.topics: ^b.* is no topic of Kafka"),
        ({"group": "x" * 256}, "from.kafka.group: "),
        ({"deliver": "last"}, "deliver"),
        ({"caFile": "x.pem"}, "from.kafka.tls: "),
        ({"sasl": {"user": "in"}}, "`user` and `passwordFile` go together"),
        ({"tls": True, "caFile": "/nonexistent"}, "/nonexistent"),
    ],
)
def test_check_config_says_what_is_wrong(tmp_path, options, said):
    path = tmp_path / "conf.json"
    kafka = {"servers": "k1:9092", "topics": "plant", **options}
    path.write_text(json.dumps({"inlets": [{"name": "site", "from": {"kafka": kafka}}]}))
    done = run("check-config", str(path))
    assert done.returncode == 2 and said in done.stderr, done.stderr

"""Inlets from NATS: a real server, with streams in files.

Absent on purpose: what all inlets have in common (test_inlets.py), how one logs in (test_outlets_nats.py), clusters of NATS.
"""

import collections
import contextlib
import json
import os
import random
import signal

import pytest

from harness.broker import BASE, Broker, run
from harness.nats import NatsServer
from harness.wait import until
from test_api import keys  # noqa: F401
from test_inlets import DURABLE
from test_outlets import ROUNDS, figures, kill_if_there, numbered, outlet, post, publish, recipe, row, running


@pytest.fixture
def server(tmp_path):
    with NatsServer(tmp_path / "nats") as server:
        with server.client() as nats:
            nats.stream("PLANT", "plant.>")
        yield server


def from_nats(server, name="site", topic="${topic}", **options) -> dict:
    nats = {"url": server.url, "stream": "PLANT", "timeoutSeconds": 5, **options}
    return {"name": name, "from": {"nats": nats}, "topic": topic}


def configured(*inlets, **more) -> dict:
    return {**BASE, "inlets": list(inlets), **more}


def failed(broker, said) -> dict:
    """Waits until the inlet has failed, and says so."""

    def has_failed():
        found = figures(broker, "site")
        return found and said in (found["last_error"] or "") and found

    return until(has_failed, what=lambda: row(broker, "site"))


def open_at(server, durable="hmq-site", **login) -> int:
    """Messages that the consumer has given, and that are not acknowledged."""
    with server.client(**login) as nats:
        return nats.api(f"CONSUMER.INFO.PLANT.{durable}")["num_ack_pending"]


def test_messages_come_with_their_headers_and_are_acknowledged(server):
    with Broker(config=configured(from_nats(server, topic="nats/${topic[1..]}"))) as broker, broker.client() as watcher:
        watcher.subscribe("nats/#", qos=1)
        running(broker, "site")
        headers = [
            ("unit", "K"),
            ("unit", "°C"),
            ("Nats-Msg-Id", "7"),
            ("content-type", "text/x"),
            ("hmq-response-topic", "re/%C3%BC"),
            ("hmq-correlation", "/wA="),
            ("hmq-payload-format", "1"),
            ("hmq-topic", "plant/a.b"),
            ("hmq-position", "9.9"),
        ]
        with server.client() as nats:
            nats.published("plant.a%2Eb.ü", b"one", headers)
            nats.published("plant.x", b"")
        got = watcher.message(topic="nats/a.b/ü", payload=b"one", qos=1)
        properties = got.props.pop("user_property")
        path = dict(properties)["hmq-path"]
        assert path.startswith("~") and len(path) == 13
        assert properties == [("nats-sequence", "1"), ("hmq-topic", "plant/a.b"), ("unit", "K"), ("unit", "°C"), ("hmq-path", path)]
        wanted = {"content_type": "text/x", "response_topic": "re/ü", "correlation_data": b"\xff\x00", "payload_format": 1}
        assert got.props == wanted
        assert dict(watcher.message(topic="nats/x", payload=b"", qos=1).props["user_property"])["nats-sequence"] == "2"
        until(lambda: figures(broker, "site")["delivered"] == 2, what=lambda: row(broker, "site"))
        until(lambda: open_at(server) == 0, what=lambda: row(broker, "site"))
        found = row(broker, "site")
        assert (found["direction"], found["target"], found["place"], found["filters"]) == ("in", "nats", server.url, [])


@pytest.mark.parametrize(("deliver", "wanted"), [("new", ["m000003"]), ("all", numbered(4))])
def test_a_new_consumer_begins_where_it_is_told_to(server, deliver, wanted):
    with server.client() as nats:
        for text in numbered(3):
            nats.published("plant.a", text.encode())
        with Broker(config=configured()) as broker, broker.client() as watcher:
            watcher.subscribe("plant/#", qos=1)
            broker.write_config(configured(from_nats(server, deliver=deliver)))
            broker.signal(signal.SIGHUP)
            until(lambda: broker.api("/api/v1/outlets")["items"], what="the inlet")
            running(broker, "site")
            nats.published("plant.a", b"m000003")
            assert [watcher.message(topic="plant/a", qos=1).payload.decode() for _ in wanted] == wanted
            until(lambda: figures(broker, "site")["delivered"] == len(wanted), what=lambda: row(broker, "site"))


def test_subjects_are_those_of_the_configuration_also_after_a_change(server):
    config = from_nats(server, subject=["plant.a.*", "plant.b.>"])
    with Broker(config=configured(config)) as broker, broker.client() as watcher, server.client() as nats:
        watcher.subscribe("plant/#", qos=1)
        running(broker, "site")
        for subject in ["plant.c", "plant.a.1.2", "plant.a.1", "plant.b.1.2"]:
            nats.published(subject, b"x")
        watcher.message(topic="plant/a/1", qos=1)
        watcher.message(topic="plant/b/1/2", qos=1)
        broker.write_config(configured(from_nats(server, subject="plant.c")))
        broker.signal(signal.SIGHUP)
        until(lambda: row(broker, "site")["filters"] == ["plant.c"], what=lambda: row(broker, "site"))
        subjects = until(
            lambda: (c := nats.api("CONSUMER.INFO.PLANT.hmq-site")["config"]).get("filter_subjects") == ["plant.c"]
            or c.get("filter_subject") == "plant.c",
            what=lambda: row(broker, "site"),
        )
        assert subjects
        running(broker, "site")
        nats.published("plant.a.1", b"y")
        nats.published("plant.c", b"y")
        watcher.message(topic="plant/c", payload=b"y", qos=1)


def test_what_is_missing_or_wrong_is_told_and_waited_for(tmp_path):
    password = tmp_path / "password"
    password.write_text("wrong\n")
    login = {"user": "in", "pass": "right"}
    with NatsServer(tmp_path / "nats", "authorization: {user: in, password: right}") as server:
        config = from_nats(server, user="in", passwordFile=str(password))
        with Broker(config=configured(config)) as broker, broker.client() as watcher:
            watcher.subscribe("plant/#", qos=1)
            found = failed(broker, "the server refuses the login")
            assert "wrong" not in json.dumps(found)
            password.write_text("right\n")
            failed(broker, "the stream PLANT: ")
            with server.client(**login) as nats:
                nats.stream("PLANT", "plant.>")
                running(broker, "site")
                nats.published("plant.a", b"x")
                watcher.message(topic="plant/a", payload=b"x", qos=1)


def test_what_is_not_allowed_is_told(tmp_path):
    password = tmp_path / "password"
    password.write_text("right\n")
    rights = 'permissions: {publish: {deny: "$JS.API.CONSUMER.MSG.NEXT.>"}}'
    users = f"authorization: {{users: [{{user: in, password: right, {rights}}}]}}"
    with NatsServer(tmp_path / "nats", users) as server:
        with server.client(user="in", **{"pass": "right"}) as nats:
            nats.stream("PLANT", "plant.>")
        with Broker(config=configured(from_nats(server, user="in", passwordFile=str(password)))) as broker:
            failed(broker, "Permissions Violation for Publish to \"$JS.API.CONSUMER.MSG.NEXT.PLANT.hmq-site\"")


def test_a_consumer_of_another_kind_is_told_and_left_alone(server):
    with server.client() as nats:
        config = {"durable_name": "hmq-site", "ack_policy": "none", "deliver_policy": "all"}
        nats.api("CONSUMER.DURABLE.CREATE.PLANT.hmq-site", stream_name="PLANT", config=config)
        with Broker(config=configured(from_nats(server))) as broker:
            failed(broker, "its acknowledgements are not explicit")
        assert nats.api("CONSUMER.INFO.PLANT.hmq-site")["config"]["ack_policy"] == "none"


def test_a_consumer_that_is_deleted_is_made_again_and_loses_nothing(server):
    with Broker(config=configured(from_nats(server))) as broker, broker.client() as watcher, server.client() as nats:
        watcher.subscribe("plant/#", qos=1)
        running(broker, "site")
        nats.published("plant.a", b"m000000")
        watcher.message(topic="plant/a", payload=b"m000000", qos=1)
        until(lambda: open_at(server) == 0, what=lambda: row(broker, "site"))
        nats.api("CONSUMER.DELETE.PLANT.hmq-site")
        # Nobody has it for the moment.
        nats.published("plant.a", b"m000001")
        watcher.message(topic="plant/a", payload=b"m000001", qos=1)
        until(lambda: figures(broker, "site")["retries"] >= 1, what=lambda: row(broker, "site"))
        until(lambda: figures(broker, "site")["delivered"] == 2, what=lambda: row(broker, "site"))


def test_messages_that_mqtt_cannot_have_are_dropped_with_a_reason(server):
    limits = {"connection": {"maximumPacketSize": 100_000}}
    with Broker(config=configured(from_nats(server), limits=limits)) as broker, broker.client() as watcher, server.client() as nats:
        watcher.subscribe("plant/#", qos=1)
        running(broker, "site")
        nats.published("plant.a", b"x" * 200_000)
        for subject in ["plant.+", "plant.a%2F%23", "plant.a#"]:
            nats.published(subject, b"x")
        # It passed a cluster too often.
        nats.published("plant.a", b"x", [("hmq-path", ",".join(str(number) for number in range(8)))])
        # The text is left out, and the message comes.
        nats.published("plant.a", b"long", [("unit", "a\0b"), ("other", "y")])
        got = watcher.message(topic="plant/a", payload=b"long", qos=1)
        assert "unit" not in dict(got.props["user_property"]) and dict(got.props["user_property"])["other"] == "y"
        found = until(lambda: (f := figures(broker, "site"))["dropped"]["refused"] == 4 and f, what=lambda: row(broker, "site"))
        assert found["dropped"]["bridge_loop"] == 1 and found["starts"] == 1
        until(lambda: open_at(server) == 0, what=lambda: row(broker, "site"))


def test_a_message_larger_than_a_batch_comes_too(tmp_path):
    with NatsServer(tmp_path / "nats", "max_payload: 16777216") as server:
        with server.client() as nats:
            nats.stream("PLANT", "plant.>")
            limits = {"connection": {"maximumPacketSize": 20_000_000}, "session": {"queueBytes": 100_000_000}}
            with Broker(config=configured(from_nats(server), limits=limits)) as broker, broker.client() as watcher:
                watcher.subscribe("plant/#", qos=1)
                running(broker, "site")
                sizes = [3 << 20, 9 << 20, 1, 6 << 20, 6 << 20]
                for size in sizes:
                    nats.published("plant.a", b"x" * size)
                for size in sizes:
                    assert len(watcher.message(topic="plant/a", qos=1).payload) == size


def test_a_pause_leaves_messages_in_the_stream(server, keys):
    http = {"port": 0, "keyFile": str(keys["file"])}
    with Broker(config=configured(from_nats(server), http=http)) as broker, broker.client() as watcher, server.client() as nats:
        watcher.subscribe("plant/#", qos=1)
        running(broker, "site")
        nats.published("plant.a", b"before")
        watcher.message(topic="plant/a", payload=b"before", qos=1)
        assert post(broker, keys, "/api/v1/outlets/site/pause")[0] == 204
        until(lambda: row(broker, "site")["state"] == "paused", what=lambda: row(broker, "site"))
        nats.published("plant.a", b"meanwhile")
        assert open_at(server) == 0 and figures(broker, "site")["delivered"] == 1
        assert post(broker, keys, "/api/v1/outlets/site/resume")[0] == 204
        watcher.message(topic="plant/a", payload=b"meanwhile", qos=1)


def test_an_inlet_and_an_outlet_of_everything_bring_each_message_once(server):
    both = {"inlets": [from_nats(server, name="from")]}
    both["outlets"] = [outlet(name="to", filter="plant/#", target={"nats": {"url": server.url}})]
    with Broker(config={**BASE, **both}) as broker, broker.client() as watcher, server.client() as nats:
        watcher.subscribe("#", qos=1)
        running(broker, "from")
        running(broker, "to")
        publish(broker, ["here"], topic="plant/a")
        watcher.message(topic="plant/a", payload=b"here", qos=1)
        # It came back, and was dropped.
        until(lambda: figures(broker, "from")["dropped"]["bridge_loop"] == 1, what=lambda: row(broker, "from"))
        nats.published("plant.b", b"there")
        watcher.message(topic="plant/b", payload=b"there", qos=1)
        until(lambda: figures(broker, "to")["dropped"]["bridge_loop"] == 1, what=lambda: row(broker, "to"))
        assert nats.count("PLANT") == 2
        publish(broker, ["end"], topic="plant/end")
        watcher.message(topic="plant/end", payload=b"end", qos=1)


def test_kills_anywhere_lose_nothing(tmp_path, server):
    """In each round the inlet's process, the broker or the server is killed while messages go through."""
    chance = random.Random(int(os.environ.get("HERALD_SEED", "1"), 0))
    data, config = tmp_path / "data", configured(from_nats(server))
    acknowledged: list[str] = []
    broker = Broker(config=config, data_dir=data)
    try:
        with broker.client("watcher", **DURABLE) as watcher:
            watcher.subscribe("plant/#", qos=1)
        running(broker, "site")
        victims = ["process", "broker", "server"] * (ROUNDS // 3 + 1)
        chance.shuffle(victims)
        for victim in victims[: max(ROUNDS, 3)]:
            process = until(lambda: figures(broker, "site") and figures(broker, "site")["process"], what=lambda: row(broker, "site"))
            texts = numbered(chance.randrange(20, 200), len(acknowledged))
            at = chance.randrange(len(texts))
            nats = server.client()
            for number, text in enumerate(texts):
                if number == at and victim == "process":
                    kill_if_there(process)
                elif number == at and victim == "broker":
                    broker.kill()
                    broker.wait()
                    broker.close()
                elif number == at:
                    nats.close()
                    server.kill()
                    server.start()
                    nats = server.client()
                nats.published("plant.a", text.encode())
            nats.close()
            acknowledged += texts
            if victim == "broker":
                broker = Broker(config=config, data_dir=data)
        running(broker, "site")
        seen = collections.Counter()
        with broker.client("watcher", **DURABLE) as watcher:
            # What was under way at a kill comes again after half a minute.
            while set(acknowledged) - set(seen):
                message = watcher.message(topic="plant/a", qos=1)
                seen[message.payload.decode()] += 1
        doubled = sum(count - 1 for count in seen.values())
        print(f"{doubled} of {len(acknowledged)} came again")
        assert doubled <= ROUNDS * 1_000
        until(lambda: open_at(server) == 0, what=lambda: row(broker, "site"))
    finally:
        broker.close()


def test_the_recipe(tmp_path):
    password = tmp_path / "plant.password"
    password.write_text("right\n")
    with NatsServer(tmp_path / "nats", 'authorization: {user: heraldmq, password: "right"}') as server:
        with server.client(user="heraldmq", **{"pass": "right"}) as nats, contextlib.ExitStack() as stack:
            nats.stream("PLANT", "plant.>")
            url = ("127.0.0.1:4222", f"127.0.0.1:{server.port}")
            config = recipe("inlets-nats.md", url=url, password=("plant.password", str(password)))
            broker = stack.enter_context(Broker(config={**BASE, **config}))
            running(broker, "plant")
            watcher = stack.enter_context(broker.client())
            watcher.subscribe("nats/#", qos=1)
            nats.published("plant.7.state", b"one")
            watcher.message(topic="nats/7/state", payload=b"one", qos=1)
            tested = run("outlet", "test", "plant", "--config", str(broker.config_path))
            said = tested.stdout + tested.stderr
            assert tested.returncode == 0 and "has the stream PLANT with 1 message, of which the consumer hmq-plant has 0" in said, said


def test_the_command_line_says_what_the_server_has(tmp_path, server):
    path = tmp_path / "conf.json"

    def tested(**options):
        path.write_text(json.dumps({"inlets": [from_nats(server, **options)]}))
        done = run("outlet", "test", "site", "--config", str(path))
        return done.returncode == 0, done.stdout + done.stderr

    is_fine, said = tested()
    assert is_fine and "has the stream PLANT with 0 messages, and no consumer hmq-site yet" in said, said
    is_fine, said = tested(stream="OTHER")
    assert not is_fine and "the stream OTHER: " in said, said
    with server.client() as nats:
        assert nats.api("STREAM.INFO.PLANT")["state"]["consumer_count"] == 0
    server.kill()
    is_fine, said = tested()
    assert not is_fine and server.url in said, said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://n1"}, "is no nats://HOST:PORT"),
        ({"url": []}, "expected one source"),
        ({"stream": None}, "from.nats.stream: expected the stream"),
        ({"stream": "a.b"}, "from.nats.stream: "),
        ({"durable": "a b"}, "from.nats.durable: "),
        ({"subject": "a..b"}, "from.nats.subject: a..b is no subject"),
        ({"subject": ["a", "a.>.b"]}, "from.nats.subject: a.>.b is no subject"),
        ({"deliver": "last"}, "deliver"),
        ({"user": "out"}, "`user` and `passwordFile` go together"),
        ({"tokenFile": "/nonexistent"}, "/nonexistent"),
    ],
)
def test_check_config_says_what_is_wrong(tmp_path, options, said):
    path = tmp_path / "conf.json"
    nats = {"url": "nats://n1", "stream": "PLANT", **options}
    nats = {key: value for key, value in nats.items() if value is not None}
    path.write_text(json.dumps({"inlets": [{"name": "site", "from": {"nats": nats}}]}))
    done = run("check-config", str(path))
    assert done.returncode == 2 and said in done.stderr, done.stderr

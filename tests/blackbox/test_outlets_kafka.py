"""Outlets to Kafka: a real server, one for the module.

Absent on purpose: what all outlets have in common (test_outlets.py), clusters of Kafka.
"""

import json
import os
import random
import shutil
import signal

import pytest

from harness.broker import BASE, Broker, run
from harness.kafka import PASSWORD, USER, Kafka
from harness.wait import until
from test_outlets import ROUNDS, configured, drained, figures, kill_if_there, numbered, outlet, publish, recipe, row, running

pytestmark = pytest.mark.skipif("HERALD_KAFKA" not in os.environ, reason="there is no Kafka: need_kafka of scripts/tools.sh")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def topic(request, server) -> str:
    """A topic of its own for each test, with three partitions."""
    name = request.node.name.replace("test_", "")[:100]
    server.topic(name, 3)
    return name


def kafka(server, topic, **options) -> dict:
    return {"kafka": {"servers": server.url, "topic": topic, "timeoutSeconds": 5, **options}}


def to_kafka(server, topic, **options) -> dict:
    more = {key: options.pop(key) for key in ["source", "deadLetter", "batch", "giveUpSeconds"] if key in options}
    return {**outlet(name="log", target=kafka(server, topic, **options)), **more}


def failed(broker, said) -> dict:
    """Waits until the outlet has failed, and says so."""

    def has_failed():
        found = figures(broker, "log")
        return found and said in (found["last_error"] or "") and found

    return until(has_failed, what=lambda: row(broker, "log"))


def delivered(broker, count):
    until(lambda: figures(broker, "log")["delivered"] >= count, what=lambda: row(broker, "log"))
    drained(broker, "log")


def login(server, password, mechanism="SCRAM-SHA-512") -> dict:
    sasl = {"mechanism": mechanism, "user": USER, "passwordFile": str(password)}
    return {"servers": server.login_url, "tls": True, "caFile": str(server.authority.path), "sasl": sasl}


def test_records_have_key_and_headers_and_the_order_of_their_key(server, topic):
    with Broker(config=configured(to_kafka(server, topic))) as broker:
        running(broker, "log")
        with broker.client() as client:
            properties = [("unit", "K"), ("unit", "°C"), ("two", "a\r\nb"), ("HMQ-topic", "x"), ("hmq-position", "9.9")]
            standard = {"content_type": "text/x", "response_topic": "re/ü", "correlation_data": b"\xff\x00"}
            client.published("plant/a", b"\xff\x00", qos=2, props={"user_property": properties, **standard})
            client.published("plant/empty", b"", qos=1)
            for number in range(300):
                client.published(f"plant/{number % 7}", f"{number}".encode(), qos=1)
        delivered(broker, 302)
        records = server.records(topic)
        by_key: dict[bytes, list] = {}
        for record in records:
            by_key.setdefault(record.key, []).append(record)
        (first,), (empty,) = by_key.pop(b"plant/a"), by_key.pop(b"plant/empty")
        assert (first.value, empty.value) == (b"\xff\x00", b"")
        names = [name for name, _ in first.headers]
        assert names[:5] == ["unit", "unit", "two", "hmq-topic", "hmq-path"]
        assert names[5:] == ["content-type", "hmq-response-topic", "hmq-correlation", "hmq-position"]
        assert [value for _, value in first.headers[:4]] == [b"K", "°C".encode(), b"a\r\nb", b"plant/a"]
        assert [value for _, value in first.headers[5:8]] == [b"text/x", "re/ü".encode(), b"\xff\x00"]
        incarnation, sequence = first.headers[8][1].decode().split(".")
        assert dict(empty.headers)["hmq-position"].decode() == f"{incarnation}.{int(sequence) + 1}"
        for number in range(7):
            of_key = by_key.pop(f"plant/{number}".encode())
            assert [int(record.text) for record in of_key] == list(range(number, 300, 7))
            assert len({record.partition for record in of_key}) == 1
        assert not by_key and len({record.partition for record in records}) > 1
        found = row(broker, "log")
        assert (found["target"], found["place"]) == ("kafka", server.url)


def test_the_topic_and_the_key_are_templates_and_no_client_reaches_other_topics(server):
    for name in ["site.7", "site.a_b"]:
        server.topic(name)
    config = to_kafka(server, "site.${topic[1]}", key="${payload./device}", deadLetter={"topic": "dead/log"}, compression="zstd")
    with Broker(config=configured(config)) as broker:
        running(broker, "log")
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            for name, payload in [("7", '{"device": "d1"}'), ("a b", '{"device": 2}'), ("a_b", '{"device": 3}'), ("7", "{}")]:
                publish(broker, [payload], topic=f"plant/{name}")
            reasons = [dict(watcher.message(topic="dead/log", qos=1).props["user_property"])["hmq-reason"] for _ in range(2)]
        assert "' '" in reasons[0] and "payload./device" in reasons[1], reasons
        drained(broker, "log")
        assert [(record.key, record.text) for record in server.records("site.7")] == [(b"d1", '{"device": "d1"}')]
        assert [record.key for record in server.records("site.a_b")] == [b"3"]


def test_a_topic_that_is_not_there_yet_is_waited_for(server):
    name = "not-there-yet"
    with Broker(config=configured(to_kafka(server, name, timeoutSeconds=2))) as broker:
        running(broker, "log")
        publish(broker, ["m000000"])
        failed(broker, f"Kafka has no topic {name}")
        publish(broker, numbered(4, 1))
        server.topic(name)
        delivered(broker, 5)
        assert server.texts(name) == numbered(5)


def test_what_is_too_large_becomes_a_dead_letter_and_the_rest_goes_on(server):
    name = "small"
    server.topic(name, max_message_bytes=3000)
    config = to_kafka(server, name, deadLetter={"topic": "dead/log"}, batch={"lingerMs": 200})
    with Broker(config=configured(config)) as broker:
        running(broker, "log")
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            # All but one are small enough, and together they are not.
            publish(broker, ["a" * 900, "b" * 900, "c" * 4000, "d" * 900, "e" * 900, "f" * 900])
            letter = watcher.message(topic="dead/log", qos=1)
            assert letter.payload == b"c" * 4000
            assert "max.message.bytes" in dict(letter.props["user_property"])["hmq-reason"]
        delivered(broker, 5)
        assert [text[0] for text in server.texts(name)] == ["a", "b", "d", "e", "f"]
        assert figures(broker, "log")["dead"] == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_login_that_is_refused_is_tried_again_with_the_file_as_it_is_then(tmp_path, server, mechanism):
    name = f"login-{mechanism}"
    server.topic(name)
    password = tmp_path / "password"
    password.write_text("wrong\n")
    options = {**login(server, password, mechanism), "exactlyOnce": mechanism == "PLAIN"}
    with Broker(config=configured(to_kafka(server, name, **options))) as broker:
        found = failed(broker, "uthentication failed")
        assert "wrong" not in json.dumps(found)
        publish(broker, numbered(5))
        password.write_text(PASSWORD + "\n")
        delivered(broker, 5)
        assert server.texts(name) == numbered(5)


def test_a_user_who_may_not_write_is_told(tmp_path, server):
    name = "forbidden"
    server.topic(name)
    server.deny_writing(name)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    with Broker(config=configured(to_kafka(server, name, **login(server, password)))) as broker:
        running(broker, "log")
        publish(broker, numbered(1))
        failed(broker, f"the user may not write to the topic {name}")


def test_an_own_certificate_lets_the_outlet_in(server, topic):
    own = server.authority.issue("outlet")
    tls = {"servers": server.tls_url, "timeoutSeconds": 2, "tls": True, "caFile": str(server.authority.path)}
    with Broker(config=configured(to_kafka(server, topic, **tls))) as broker:
        failed(broker, "certificate")
        publish(broker, numbered(3))
        broker.write_config(configured(to_kafka(server, topic, **tls, certFile=own.cert, keyFile=own.key)))
        broker.signal(signal.SIGHUP)
        delivered(broker, 3)
        assert server.texts(topic) == numbered(3)


def test_a_server_that_hangs_is_an_error_in_time_and_loses_nothing(server, topic):
    with Broker(config=configured(to_kafka(server, topic, timeoutSeconds=1))) as broker:
        running(broker, "log")
        publish(broker, numbered(5))
        delivered(broker, 5)
        server.signal(signal.SIGSTOP)
        try:
            publish(broker, numbered(20, 5))
            failed(broker, "Kafka does not acknowledge in time")
            failed(broker, "no server of Kafka answers in time")
        finally:
            server.signal(signal.SIGCONT)
        delivered(broker, 25)
        # What the server had in its hands when it was given up may be there twice, never in another order.
        assert list(dict.fromkeys(server.texts(topic))) == numbered(25)


def test_kills_anywhere_lose_nothing_and_double_nothing_with_transactions(tmp_path, server, topic):
    """In each round the process of an outlet, the broker or Kafka is killed while messages go through, at a moment that the seed says.
    One outlet has transactions, and one has none."""
    chance = random.Random(int(os.environ.get("HERALD_SEED", "1"), 0))
    once = f"{topic}-once"
    server.topic(once)
    exact = {**to_kafka(server, once, exactlyOnce=True, batch={"messages": 20, "lingerMs": 1}), "name": "once"}
    data, config = tmp_path / "data", configured(to_kafka(server, topic), exact)
    acknowledged = 0
    broker = Broker(config=config, data_dir=data)
    try:
        for name in ["log", "once"]:
            running(broker, name)
        victims = ["once", "broker", "once", "log", "broker", "server"] * (ROUNDS // 6 + 1)
        for victim in victims[: max(ROUNDS, 6)]:
            name = victim if victim in ("log", "once") else "once"
            process = until(lambda: figures(broker, name) and figures(broker, name)["process"], what=lambda: row(broker, name))
            count = chance.randrange(50, 200)
            at = chance.randrange(count)
            with broker.client() as client:
                for number in range(count):
                    client.published("plant/a", f"m{acknowledged:06}".encode(), qos=1)
                    acknowledged += 1
                    if number == at and victim == name:
                        kill_if_there(process)
                    if number == at and victim == "server":
                        server.kill()
            if victim == "server":
                server.start()
            if victim == "broker":
                broker.kill()
                broker.wait()
                broker.close()
                broker = Broker(config=config, data_dir=data)
        for name in ["log", "once"]:
            until(lambda: figures(broker, name), what=lambda: row(broker, name))
            drained(broker, name)
        assert sorted(set(server.texts(topic))) == numbered(acknowledged)
        assert server.texts(once) == numbered(acknowledged)
    finally:
        broker.close()


def test_what_is_committed_and_was_not_acknowledged_is_left_out(tmp_path, server):
    name = "left-out"
    server.topic(name)
    config = configured(to_kafka(server, name, exactlyOnce=True, batch={"lingerMs": 1000}))
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        process = running(broker, "log")["figures"]["process"]
        publish(broker, numbered(20))
        # The process has the messages, and nobody hears its acknowledgements.
        broker.signal(signal.SIGSTOP)
        until(lambda: len(server.texts(name)) == 20)
        kill_if_there(process)
        broker.kill()
        broker.wait()
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        running(broker, "log")
        publish(broker, numbered(5, 20))
        drained(broker, "log")
        assert server.texts(name) == numbered(25)
        until(lambda: figures(broker, "log")["left_out"] == 20, what=lambda: row(broker, "log"))


def test_an_older_process_is_fenced_and_what_it_had_is_there_once(server):
    name = "fenced"
    server.topic(name)
    config = to_kafka(server, name, exactlyOnce=True, positionsTopic="positions-of-fenced")
    with Broker(config=configured(config)) as broker:
        running(broker, "log")
        publish(broker, numbered(5))
        delivered(broker, 5)
        (noted, *_), starts = server.records("positions-of-fenced"), figures(broker, "log")["starts"]
        assert set(json.loads(noted.text)) == {"incarnation", "sequence", "epoch"} and noted.key.endswith(b"/log")
        # As a later process of the outlet, which ends at once.
        server.take_over(f"heraldmq/{noted.key.decode()}")
        publish(broker, numbered(5, 5))
        until(lambda: figures(broker, "log") and figures(broker, "log")["starts"] > starts, what=lambda: row(broker, "log"))
        drained(broker, "log")
        assert server.texts(name) == numbered(10)


def test_what_is_refused_in_a_transaction_becomes_a_dead_letter_and_the_rest_is_there_once(server):
    name = "small-once"
    server.topic(name, max_message_bytes=3000)
    options = {"exactlyOnce": True, "key": "${payload./id:-none}", "batch": {"lingerMs": 200, "bytes": 2500}}
    with Broker(config=configured(to_kafka(server, name, **options, deadLetter={"topic": "dead/log"}))) as broker:
        running(broker, "log")
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            publish(broker, ["a", "b", "c" * 4000, "d", "e"])
            assert watcher.message(topic="dead/log", qos=1).payload == b"c" * 4000
        delivered(broker, 4)
        assert server.texts(name) == ["a", "b", "d", "e"]


def test_the_recipe(tmp_path, server):
    server.topic("plant.7")
    password = tmp_path / "log.password"
    password.write_text(PASSWORD)
    config = recipe(
        "outlets-kafka.md",
        servers=("[k1:9093, k2:9093]", f'["{server.login_url}"]'),
        ca=("kafka-ca.pem", str(server.authority.path)),
        password=("log.password", str(password)),
    )
    with Broker(config={**BASE, **config}) as broker:
        running(broker, "log")
        publish(broker, ["one"], topic="plant/7/state")
        delivered(broker, 1)
        (record,) = server.records("plant.7")
        assert (record.key, record.text, dict(record.headers)["hmq-topic"]) == (b"plant/7/state", "one", b"plant/7/state")


def test_the_command_line_says_what_the_server_has_and_makes_no_topic(tmp_path, server):
    path = tmp_path / "conf.json"

    def tested(topic, **options):
        path.write_text(json.dumps({"outlets": [to_kafka(server, topic, **options)]}))
        done = run("outlet", "test", "log", "--config", str(path))
        return done.returncode == 0, done.stdout + done.stderr

    is_fine, said = tested("nowhere")
    assert not is_fine and "Kafka has no topic nowhere" in said, said
    server.topic("somewhere", 2)
    is_fine, said = tested("somewhere")
    assert is_fine and "the topic somewhere has partitions: 2" in said, said
    is_fine, said = tested("site.${topic[1]}")
    assert is_fine and "brokers: 1" in said, said
    is_fine, said = tested("somewhere", servers="127.0.0.1:1", timeoutSeconds=1)
    assert not is_fine and "no server of Kafka answers in time" in said, said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"servers": "k1"}, "k1 is no HOST:PORT"),
        ({"servers": []}, "expected one target"),
        ({"servers": "SSL://k1:9093"}, "is no HOST:PORT"),
        ({"topic": None}, "topic: expected"),
        ({"topic": "plant/${topic}"}, "topic: a topic of Kafka has"),
        ({"topic": "__${topic}"}, "those of Kafka itself"),
        ({"topic": "${nothing}"}, "a message has no nothing"),
        ({"key": "${nothing}"}, "a message has no nothing"),
        ({"caFile": "/etc/hostname"}, "are for `tls: true`"),
        ({"tls": True, "certFile": "/etc/hostname"}, "`certFile` and `keyFile` go together"),
        ({"tls": True, "caFile": "/nonexistent"}, "/nonexistent"),
        ({"tls": True, "caFile": "/etc/hostname"}, "ssl.ca"),
        ({"sasl": {"user": "a"}}, "`user` and `passwordFile` go together"),
        ({"sasl": {"user": "a", "passwordFile": "/nonexistent"}}, "/nonexistent"),
        ({"compression": "brotli"}, "compression"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
    ],
)
def test_check_config_says_what_is_wrong(tmp_path, options, said):
    path = tmp_path / "conf.json"
    given = {"servers": "k1:9092", "topic": "plant", **options}
    given = {key: value for key, value in given.items() if value is not None}
    path.write_text(json.dumps({"outlets": [outlet(name="log", target={"kafka": given})]}))
    done = run("check-config", str(path))
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_program_that_is_missing_is_named(tmp_path):
    """The broker alone in a folder."""
    alone = tmp_path / "heraldmq"
    shutil.copy(os.environ["HERALDMQ_BIN"], alone)
    path = tmp_path / "conf.json"
    path.write_text(json.dumps({"outlets": [outlet(name="log", target={"kafka": {"servers": "k1:9092", "topic": "plant"}})]}))
    done = run("check-config", str(path), binary=alone)
    assert done.returncode == 2, done.stderr
    assert f"the program heraldmq-outlet-kafka is not installed: there is no {tmp_path}/heraldmq-outlet-kafka" in done.stderr, done.stderr

"""Outlets to NATS: a real server, with streams in files.

Absent on purpose: what all outlets have in common (test_outlets.py), clusters of NATS.
"""

import json
import os
import random
import signal

import pytest

from harness.broker import BASE, Broker, run
from harness.nats import NatsServer, nkey
from harness.pki import Authority
from harness.wait import until
from test_outlets import ROUNDS, configured, drained, figures, kill_if_there, numbered, outlet, publish, recipe, row, running

# Nothing is as large in these tests, so that what is refused is small.
SMALL = "max_payload: 4096"


@pytest.fixture
def server(tmp_path):
    with NatsServer(tmp_path / "nats", SMALL) as server:
        yield server


def to_nats(server, **options) -> dict:
    more = {key: options.pop(key) for key in ["source", "deadLetter", "batch", "giveUpSeconds"] if key in options}
    return {**outlet(name="bus", target={"nats": {"url": server.url, "timeoutSeconds": 5, **options}}), **more}


def texts(server, stream="PLANT", **login) -> list[str]:
    with server.client(**login) as nats:
        return [message.text for message in nats.messages(stream)]


def failed(broker, said) -> dict:
    """Waits until the outlet has failed, and says so."""

    def has_failed():
        found = figures(broker, "bus")
        return found and said in (found["last_error"] or "") and found

    return until(has_failed, what=lambda: row(broker, "bus"))


def delivered(broker, count):
    until(lambda: figures(broker, "bus")["delivered"] >= count, what=lambda: row(broker, "bus"))
    drained(broker, "bus")


def test_messages_arrive_with_headers_and_in_order(server):
    with server.client() as nats:
        nats.stream("PLANT", "plant.>", "%24hmq.>")
    with Broker(config=configured(to_nats(server))) as broker:
        running(broker, "bus")
        with broker.client() as client:
            properties = [("unit", "K"), ("unit", "°C"), ("Nats-Rollup", "all"), ("nats-msg-id", "x"), ("two", "a\r\nb"), ("hmq-position", "9.9")]
            client.published("plant/a.b/ü", b"\xff\x00", qos=2, props={"user_property": properties})
            client.published("plant//c d", b"", qos=1)
        publish(broker, numbered(300))
        delivered(broker, 302)
        with server.client() as nats:
            first, second, *others = nats.messages("PLANT")
        assert (first.subject, first.payload) == ("plant.a%2Eb.ü", b"\xff\x00")
        position = first.headers["hmq-position"][0]
        ids = first.headers["Nats-Msg-Id"]
        assert len(ids) == 1 and ids[0].endswith(f".bus.{position}") and ids[0] != f".bus.{position}"
        assert first.headers == {
            "unit": ["K", "°C"],
            "hmq-topic": ["plant/a.b/%C3%BC"],
            "hmq-path": first.headers["hmq-path"],
            "hmq-position": [position],
            "Nats-Msg-Id": ids,
        }
        assert (second.subject, second.payload, second.headers["hmq-topic"]) == ("plant.%.c%20d", b"", ["plant//c%20d"])
        assert [message.text for message in others] == numbered(300)
        found = row(broker, "bus")
        assert (found["target"], found["place"]) == ("nats", server.url)


def test_no_client_reaches_the_api_of_jetstream_by_its_topic(server):
    with server.client() as nats:
        nats.stream("PLANT", "plant.>", "%24JS.>")
    config = to_nats(server, subject="${topic[1..]}")
    with Broker(config=configured(config)) as broker:
        running(broker, "bus")
        publish(broker, [""], topic="plant/$JS/API/STREAM/DELETE/PLANT")
        delivered(broker, 1)
        with server.client() as nats:
            assert [message.subject for message in nats.messages("PLANT")] == ["%24JS.API.STREAM.DELETE.PLANT"]


def test_a_stream_that_is_not_there_yet_is_waited_for(server):
    with Broker(config=configured(to_nats(server))) as broker:
        running(broker, "bus")
        publish(broker, ["m000000"])
        failed(broker, "no stream of JetStream takes plant.a")
        publish(broker, numbered(4, 1))
        with server.client() as nats:
            nats.stream("PLANT", "plant.>")
        delivered(broker, 5)
        assert texts(server) == numbered(5)


def test_what_jetstream_refuses_becomes_a_dead_letter_and_the_rest_goes_on(server):
    with server.client() as nats:
        nats.stream("PLANT", "plant.>", max_msg_size=2000)
        nats.stream("OTHER", "other.>")
    source, letters = {"filter": ["plant/#", "other/#"]}, {"topic": "dead/bus"}
    config = to_nats(server, stream="PLANT", source=source, deadLetter=letters, batch={"lingerMs": 200})
    with Broker(config=configured(config)) as broker:
        running(broker, "bus")
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            publish(broker, ["m000000", "x" * 3000, "m000001", "y" * 5000])
            publish(broker, ["z"], topic="other/a")
            publish(broker, ["long"], topic="plant/" + "t" * 3000)
            publish(broker, ["m000002"])
            why = {}
            for _ in range(4):
                letter = watcher.message(topic="dead/bus", qos=1)
                why[letter.payload[:4]] = dict(letter.props["user_property"])["hmq-reason"]
        assert "message size exceeds maximum allowed" in why[b"xxxx"], why
        assert "max payload size exceeded" in why[b"yyyy"], why
        assert "expected stream does not match" in why[b"z"], why
        assert "the subject has 3006 bytes" in why[b"long"], why
        drained(broker, "bus")
        assert texts(server) == numbered(3)
        found = until(lambda: (f := figures(broker, "bus"))["delivered"] == 3 and f, what=lambda: row(broker, "bus"))
        assert (found["dead"], found["retries"]) == (4, 0)


LOGIN = 'authorization: {{user: out, password: "{}"}}'


def test_a_login_that_is_refused_is_tried_again_with_the_file_as_it_is_then(tmp_path):
    password = tmp_path / "password"
    password.write_text("wrong\n")
    with NatsServer(tmp_path / "nats", LOGIN.format("right")) as server:
        with server.client(user="out", **{"pass": "right"}) as nats:
            nats.stream("PLANT", "plant.>")
        with Broker(config=configured(to_nats(server, user="out", passwordFile=str(password)))) as broker:
            found = failed(broker, "the server refuses the login")
            assert "wrong" not in json.dumps(found)
            publish(broker, numbered(5))
            password.write_text("right\n")
            delivered(broker, 5)
            assert texts(server, user="out", **{"pass": "right"}) == numbered(5)


def test_a_token_logs_in_and_what_is_not_allowed_is_said(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    with NatsServer(tmp_path / "nats", 'authorization: {token: "secret"}') as server:
        with server.client(auth_token="secret") as nats:
            nats.stream("PLANT", "plant.>")
        with Broker(config=configured(to_nats(server, tokenFile=str(token)))) as broker:
            publish_when_running(broker, 1)
            assert texts(server, auth_token="secret") == numbered(1)
    password = tmp_path / "password"
    password.write_text("right")
    rights = 'permissions: {publish: {deny: "plant.>"}}'
    users = f'authorization: {{users: [{{user: out, password: right, {rights}}}]}}'
    with NatsServer(tmp_path / "other", users) as server:
        with Broker(config=configured(to_nats(server, user="out", passwordFile=str(password)))) as broker:
            running(broker, "bus")
            publish(broker, numbered(1))
            failed(broker, "Permissions Violation for Publish to \"plant.a\"")


def publish_when_running(broker, count):
    running(broker, "bus")
    publish(broker, numbered(count))
    delivered(broker, count)


def test_a_key_logs_in_over_mutual_tls(tmp_path):
    authority = Authority(tmp_path)
    leaf, own = authority.issue("server"), authority.issue("outlet")
    secret, public = nkey()
    seed = tmp_path / "bus.nk"
    seed.write_text(secret + "\n")
    tls = f'tls: {{cert_file: "{leaf.cert}", key_file: "{leaf.key}", ca_file: "{authority.path}", verify: true}}'
    users = f"authorization: {{users: [{{nkey: {public}}}]}}"
    folder = tmp_path / "nats"
    with NatsServer(folder) as server:
        with server.client() as nats:
            nats.stream("PLANT", "plant.>")
        server.stop()
        server.configure(tls, users)
        server.start()
        options = {"credentialsFile": str(seed), "caFile": str(authority.path)}
        both = {"certFile": own.cert, "keyFile": own.key}
        url = server.url.replace("nats://", "tls://")
        with Broker(config=configured(to_nats(server, **options, url=url))) as broker:
            # Without a certificate of its own it is not let in.
            failed(broker, server.url.removeprefix("nats"))
            publish(broker, numbered(3))
            broker.write_config(configured(to_nats(server, **options, **both, url=url)))
            broker.signal(signal.SIGHUP)
            delivered(broker, 3)
        server.stop()
        server.configure()
        server.start()
        assert texts(server) == numbered(3)


def test_a_server_that_hangs_is_an_error_in_time_and_doubles_nothing(server):
    with server.client() as nats:
        nats.stream("PLANT", "plant.>")
    with Broker(config=configured(to_nats(server, timeoutSeconds=1))) as broker:
        publish_when_running(broker, 5)
        server.signal(signal.SIGSTOP)
        try:
            publish(broker, numbered(20, 5))
            failed(broker, "does not acknowledge in time")
            # A new connection is not answered either.
            failed(broker, "does not answer in time")
        finally:
            server.signal(signal.SIGCONT)
        delivered(broker, 25)
        assert texts(server) == numbered(25)


def test_the_next_server_of_the_list_follows_one_that_is_gone(tmp_path):
    with NatsServer(tmp_path / "first") as first, NatsServer(tmp_path / "second") as second:
        for server in [first, second]:
            with server.client() as nats:
                nats.stream("PLANT", "plant.>")
        with Broker(config=configured(to_nats(first, url=[first.url, second.url]))) as broker:
            publish_when_running(broker, 5)
            assert texts(first) == numbered(5)
            first.kill()
            publish(broker, numbered(5, 5))
            delivered(broker, 10)
            assert texts(second) == numbered(5, 5)


def test_kills_anywhere_lose_nothing_and_double_nothing_within_the_window(tmp_path, server):
    """In each round the outlet's process, the broker or the server is killed while messages go through."""
    chance = random.Random(int(os.environ.get("HERALD_SEED", "1"), 0))
    with server.client() as nats:
        nats.stream("PLANT", "plant.>", duplicate_window=3600 * 10**9)
    data, config = tmp_path / "data", configured(to_nats(server))
    acknowledged = 0
    broker = Broker(config=config, data_dir=data)
    try:
        running(broker, "bus")
        # Each of them comes, whatever the seed says.
        victims = ["process", "broker", "server"] * (ROUNDS // 3 + 1)
        chance.shuffle(victims)
        for victim in victims[: max(ROUNDS, 3)]:
            process = until(lambda: figures(broker, "bus") and figures(broker, "bus")["process"], what=lambda: row(broker, "bus"))
            count = chance.randrange(1, 200)
            at = chance.randrange(count)
            with broker.client() as client:
                for number in range(count):
                    client.published("plant/a", f"m{acknowledged:06}".encode(), qos=1)
                    acknowledged += 1
                    if number == at and victim == "process":
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
        until(lambda: figures(broker, "bus"), what=lambda: row(broker, "bus"))
        drained(broker, "bus")
        assert texts(server) == numbered(acknowledged)
    finally:
        broker.close()


def test_the_recipe(tmp_path):
    password = tmp_path / "bus.password"
    password.write_text("right\n")
    with NatsServer(tmp_path / "nats", 'authorization: {user: heraldmq, password: "right"}') as server:
        login = {"user": "heraldmq", "pass": "right"}
        with server.client(**login) as nats:
            nats.stream("PLANT", "plant.>")
        config = recipe("outlets-nats.md", url=("127.0.0.1:4222", f"127.0.0.1:{server.port}"), password=("bus.password", str(password)))
        with Broker(config={**BASE, **config}) as broker:
            running(broker, "bus")
            publish(broker, ["one"], topic="plant/7/state")
            delivered(broker, 1)
            with server.client(**login) as nats:
                (message,) = nats.messages("PLANT")
            assert (message.subject, message.text) == ("plant.7.state", "one")
            assert message.headers["Nats-Expected-Stream"] == ["PLANT"]
            tested = run("outlet", "test", "bus", "--config", str(broker.config_path))
            assert tested.returncode == 0 and "has JetStream and the stream PLANT" in tested.stdout, tested.stdout + tested.stderr


def test_the_command_line_says_what_the_server_has(tmp_path, server):
    path = tmp_path / "conf.json"

    def tested(server, **options):
        path.write_text(json.dumps({"outlets": [to_nats(server, **options)]}))
        done = run("outlet", "test", "bus", "--config", str(path))
        return done.returncode == 0, done.stdout + done.stderr

    is_fine, said = tested(server, subject="plant.${topic[1]}")
    assert not is_fine and "NATS 2." in said and "no stream for plant.>" in said, said
    is_fine, said = tested(server, stream="PLANT")
    assert not is_fine and "stream PLANT" in said and "not found" in said, said
    with server.client() as nats:
        nats.stream("PLANT", "plant.*")
        is_fine, said = tested(server, subject="plant.${topic[1]}")
        assert is_fine and "the stream PLANT for subjects of plant.>" in said, said
        assert nats.count("PLANT") == 0
    with NatsServer(tmp_path / "other", jetstream=False) as other:
        is_fine, said = tested(other)
        assert not is_fine and "without JetStream" in said, said
        other.kill()
        is_fine, said = tested(other)
        assert not is_fine and other.url in said, said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://n1"}, "is no nats://HOST:PORT"),
        ({"url": "nats://u:p@n1"}, "without path, user name and password"),
        ({"url": []}, "expected one target"),
        ({"subject": "plant.*"}, "subject: "),
        ({"subject": "${nothing}"}, "a message has no nothing"),
        ({"stream": "a.b"}, "is no name of a stream"),
        ({"user": "out"}, "`user` and `passwordFile` go together"),
        ({"user": "out", "tokenFile": "/etc/hostname"}, "expected one of"),
        ({"certFile": "/etc/hostname"}, "`certFile` and `keyFile` go together"),
        ({"credentialsFile": "/etc/hostname"}, "no seed of an NKEY"),
        ({"tokenFile": "/nonexistent"}, "/nonexistent"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
    ],
)
def test_check_config_says_what_is_wrong(tmp_path, options, said):
    path = tmp_path / "conf.json"
    path.write_text(json.dumps({"outlets": [outlet(name="bus", target={"nats": {"url": "nats://n1", **options}})]}))
    done = run("check-config", str(path))
    assert done.returncode == 2 and said in done.stderr, done.stderr

"""Classes of clients: limits of their own for those that match, also while they are away."""

import json
import signal

import pytest

from harness.broker import BASE, Broker, run
from harness.raw import PUBACK, PUBCOMP, PUBLISH, PUBREC, connect
from harness.wait import Stopwatch, until
from test_authentication import SECRET, passwd, serve, token

APPLICATION = {
    "name": "application",
    "match": {"clientId": ["*-app", "billing-*"]},
    "limits": {
        "session": {"queueMessages": 50, "subscriptions": 3},
        "connection": {"inflightMaximum": 40, "receiveMaximum": 7},
    },
}


def configured(*classes, **more):
    limits = {"session": {"queueMessages": 5}, "connection": {"inflightMaximum": 3}}
    return {**BASE, "clientClasses": list(classes), "limits": limits, **more}


def state(broker, client_id) -> dict:
    return broker.api(f"/api/v1/clients/{client_id}")


def gone_away(broker, client_id, *filters):
    """A client with subscriptions that is away."""
    with broker.client(client_id, props={"session_expiry": 600}) as client:
        for topic in filters:
            client.subscribe(topic, qos=1)
        client.disconnect()
    until(lambda: state(broker, client_id)["state"] == "away", what="the absence")


def fill(broker, topic, count):
    with broker.client("publisher") as publisher:
        for number in range(count):
            publisher.publish(topic, str(number), qos=0)
        publisher.ping()


def drained(broker, client_id) -> list[bytes]:
    """The payloads that wait for a client that is away."""
    messages = state(broker, client_id)["queue"]["messages"]
    with broker.client(client_id, clean=False, session_present=True, props={"session_expiry": 600}) as client:
        return [client.message().payload for _ in range(messages)]


def test_a_class_has_a_queue_of_its_own_also_after_a_restart_and_a_reload(tmp_path, name):
    device, application = f"{name}-dev", f"{name}-app"
    config = configured(APPLICATION)
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        for client_id in (device, application):
            gone_away(broker, client_id, f"{name}/#")
        assert state(broker, device)["session"]["class"] == "device"
        found = state(broker, application)
        assert found["session"]["class"] == "application"
        assert found["queue"]["limit_messages"] == 50 and state(broker, device)["queue"]["limit_messages"] == 5
        fill(broker, f"{name}/a", 20)
        queues = lambda: [state(broker, of)["queue"]["messages"] for of in (device, application)]
        until(lambda: queues() == [5, 20], what="both queues")
        broker.kill()
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        # The class is stored with the session: its client need not come back for it to count.
        fill(broker, f"{name}/a", 40)
        until(lambda: state(broker, application)["queue"]["messages"] == 50, what="a full queue")
        assert state(broker, device)["queue"]["messages"] == 5
        # Other limits of the class count at once, and what is queued stays.
        larger = {**APPLICATION, "limits": {"session": {"queueMessages": 60}}}
        broker.write_config(configured(larger))
        broker.signal(signal.SIGHUP)
        until(lambda: state(broker, application)["queue"]["limit_messages"] == 60, what="the new limit")
        fill(broker, f"{name}/a", 20)
        until(lambda: state(broker, application)["queue"]["messages"] == 60, what="a full queue")
        assert len(drained(broker, application)) == 60
        assert len(drained(broker, device)) == 5


def test_a_limit_that_is_lowered_leaves_alone_what_waits(tmp_path, name):
    device, application = f"{name}-dev", f"{name}-app"

    def limited(messages):
        of_class = {**APPLICATION, "limits": {"session": {"queueMessages": messages}}}
        return configured(of_class, limits={"session": {"queueMessages": messages}})

    with Broker(config=limited(5_000), data_dir=tmp_path / "data") as broker:
        for client_id in (device, application):
            gone_away(broker, client_id, f"{name}/#")
        fill(broker, f"{name}/a", 2_000)
        queued = lambda: [state(broker, of)["queue"]["messages"] for of in (device, application)]
        until(lambda: queued() == [2_000, 2_000], what="both queues")
        broker.write_config(limited(10))
        broker.signal(signal.SIGHUP)
        for client_id in (device, application):
            until(lambda of=client_id: state(broker, of)["queue"]["limit_messages"] == 10, what="the new limit")
        # One message makes room for one.
        with broker.client("publisher") as publisher:
            for _ in range(3):
                publisher.published(f"{name}/a", b"x", qos=1)
        for client_id in (device, application):
            assert state(broker, client_id)["queue"]["messages"] == 2_000
            assert sum(drop["client_id"] == client_id for drop in broker.drops()) == 3
        broker.kill()
    with Broker(config=limited(10), data_dir=tmp_path / "data") as broker:
        fill(broker, f"{name}/a", 1)
        assert len(drained(broker, application)) == 2_000
        # It is as short as the limit says from when it has been.
        fill(broker, f"{name}/a", 20)

        def is_shorter():
            with broker.client(application, clean=False, props={"session_expiry": 600}):
                pass
            fill(broker, f"{name}/a", 20)
            return state(broker, application)["queue"]["messages"] == 10

        until(is_shorter, what="the limit")


def test_the_class_of_a_session_is_that_of_its_last_connection(tmp_path, name):
    password_file = tmp_path / "users"
    for user in ("app", "dev"):
        passwd(password_file, user, "secret")
    chain = {"chain": [{"kind": "passwordFile", "file": str(password_file)}]}
    by_user = {**APPLICATION, "match": {"user": "app*"}}
    settings = configured(by_user, authentication={**chain, "sessionOfAnotherUser": "newSession"})
    with Broker(config=settings) as broker:

        def connect(user):
            return broker.client(name, clean=False, username=user, password=b"secret", props={"session_expiry": 600})

        for user, of in (("app", "application"), ("dev", "device"), ("app", "application")):
            with connect(user) as client:
                assert state(broker, name)["session"]["class"] == of
                client.disconnect()
            until(lambda: state(broker, name)["state"] == "away", what="the absence")
            assert state(broker, name)["session"]["class"] == of


def test_connections_have_the_limits_of_their_class(name):
    with Broker(config=configured(APPLICATION)) as broker:
        with broker.client("publisher") as publisher:
            for client_id, window, receive_maximum, subscriptions in (
                (f"{name}-dev", 3, 1024, 10_000),
                (f"{name}-app", 40, 7, 3),
            ):
                with broker.client(client_id, clean=True) as client:
                    assert client.connack.props["receive_maximum"] == receive_maximum
                    assert state(broker, client_id)["connection"]["receive_maximum"] == window
                    for number in range(4):
                        granted = [0 if number < subscriptions else 0x97]
                        client.subscribe(f"{name}/{number}", expect=granted)
            # So many are sent before one is acknowledged.
            with broker.client(f"{name}-app") as client:
                client.subscribe(f"{name}/x", qos=1)
                for number in range(40):
                    publisher.published(f"{name}/x", str(number), qos=1)
                for number in range(40):
                    client.expect(PUBLISH, payload=str(number))


def test_a_class_has_a_rate_of_its_own(name):
    slow = {
        "name": "slow",
        "match": {"clientId": "*-slow"},
        "limits": {"connection": {"bytesPerSecondOut": 20_000, "publishesPerSecond": 20}},
    }
    free = {"name": "free", "limits": {"connection": {"bytesPerSecondOut": 0}}}
    with Broker(config=configured(slow, free, limits={})) as broker, broker.client("publisher") as publisher:

        def takes(client_id):
            """Seconds until 100 kB have come, and how often the broker had to wait to write them."""
            before = broker.metric("heraldmq_write_rate_pauses_total")
            with broker.client(client_id) as client:
                client.subscribe(f"{name}/x")
                clock = Stopwatch()
                for _ in range(10):
                    publisher.publish(f"{name}/x", b"x" * 10_000)
                for _ in range(10):
                    client.message()
                return clock.seconds(), broker.metric("heraldmq_write_rate_pauses_total") - before

        # What a burst lets through is less than half of it.
        seconds, pauses = takes(f"{name}-slow")
        assert seconds > 1.5 and pauses > 0
        assert takes(f"{name}-other")[1] == 0
        throttled = broker.metric("heraldmq_publish_rate_pauses_total")
        with broker.client(f"{name}-slow") as client:
            for _ in range(60):
                client.publish(f"{name}/y", b"")
            until(lambda: broker.metric("heraldmq_publish_rate_pauses_total") > throttled, what="a pause")


def test_what_is_wrong_with_classes_is_said(tmp_path):
    broken = [
        ([{"match": {"user": "a"}}], "a name for each class"),
        ([APPLICATION, APPLICATION], "two classes are called application"),
        ([{"name": "device"}], "device is the class of clients that match no other"),
        ([{"name": "a", "match": {"listener": "udp"}}], "found udp"),
        ([{"name": "a", "limits": {"session": {"queueMessages": 0}}}], "queueMessages"),
        ([{"name": "a", "limits": {"session": {"queueMesages": 1}}}], "queueMessages"),
        ([{"name": f"c{n}"} for n in range(33)], "32 classes at most"),
        ([{"name": "x" * 65}], "64 characters"),
    ]
    for classes, said in broken:
        file = tmp_path / "conf.yml"
        file.write_text(json.dumps({"clientClasses": classes}))
        done = run("check-config", file)
        assert done.returncode == 2 and said in done.stderr, (classes, done.stderr)


def test_which_class_and_why(tmp_path):
    file = tmp_path / "conf.yml"
    vip = {"name": "vip", "match": {"user": "root", "listener": ["tls", "wss"]}}
    file.write_text(json.dumps({"clientClasses": [vip, APPLICATION]}))

    def test(*args):
        done = run("class", "test", "--config", file, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert test("--client", "x", "--user", "root", "--listener", "tls") == ["vip", "  vip: matches"]
    assert test("--client", "x", "--user", "root") == [
        "device",
        "  vip: match.listener does not match",
        "  application: match.clientId does not match",
    ]
    assert test("--client", "billing-7") == [
        "application",
        "  vip: match.user does not match",
        "  application: matches",
        "  limits.session.queueMessages: 50",
        "  limits.session.subscriptions: 3",
        "  limits.connection.receiveMaximum: 7",
        "  limits.connection.inflightMaximum: 40",
    ]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_queue_that_refuses_beside_one_that_drops(name, qos):
    refusing = {
        "name": "refusing",
        "match": {"clientId": "*-app"},
        "limits": {"session": {"queueMessages": 3, "queueFull": "refuse"}},
    }
    with Broker(config=configured(refusing)) as broker:
        gone_away(broker, f"{name}-dev", f"{name}/#", f"{name}d/#")
        gone_away(broker, f"{name}-app", f"{name}/#", f"{name}a/#")
        with broker.client("publisher") as publisher:
            codes = {}
            for topic in (f"{name}d/x", f"{name}a/x"):
                codes[topic] = []
                for _ in range(6):
                    pid = publisher.publish(topic, qos=qos)
                    if qos == 1:
                        codes[topic].append(publisher.answer(PUBACK, pid).reason)
                    if qos == 2:
                        answer = publisher.answer(PUBREC, pid)
                        codes[topic].append(answer.reason)
                        if answer.reason < 0x80:
                            publisher.send(bytes([0x62, 2]) + pid.to_bytes(2, "big"))
                            publisher.answer(PUBCOMP, pid)
            publisher.ping()
        if qos:
            assert codes == {f"{name}d/x": [0] * 6, f"{name}a/x": [0] * 3 + [0x97] * 3}
        until(lambda: state(broker, f"{name}-app")["queue"]["messages"] == 3, what="the full queue")
        assert state(broker, f"{name}-dev")["queue"]["messages"] == 5


def test_a_login_names_the_class(tmp_path, name, postgres_server):
    passwd(tmp_path / "users", "alice", "correct horse")
    hashed = (tmp_path / "users").read_text().strip().split(":", 1)[1]
    postgres_server.sql(
        f"""
        CREATE TABLE mqtt_user (username text PRIMARY KEY, password_hash text, class text);
        INSERT INTO mqtt_user VALUES ('row', '{hashed}', 'application'), ('null', '{hashed}', NULL);
        """
    )
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    answers = {"asked": {"result": "allow", "class": "application"}, "unasked": {"result": "allow"}}

    def judge(asked):
        return 200, json.dumps(answers.get(asked["username"], {"result": "ignore"}))

    with serve(judge) as server:
        chain = [
            {"kind": "jwt", "jwt": {"secretFile": str(secret), "classClaim": "class"}},
            {"kind": "http", "http": {"url": server.url}},
            {
                "kind": "postgres",
                "postgres": {
                    "connection": postgres_server.connection,
                    "passwordFile": str(postgres_server.password_file),
                    "query": "SELECT password_hash, class FROM mqtt_user WHERE username = $1",
                },
            },
        ]
        # What the login says comes before what matches.
        matching = {**APPLICATION, "name": "other", "match": {"clientId": "*"}}
        classes = (matching, {**APPLICATION, "match": {"user": "nobody"}})
        with Broker(config=configured(*classes, authentication={"chain": chain})) as broker:
            for username, password, expected in (
                ("token", token(**{"class": "application"}), "application"),
                ("token", token(), "other"),
                ("token", token(**{"class": "device"}), "device"),
                ("token", token(**{"class": "unknown"}), "other"),
                ("asked", b"", "application"),
                ("unasked", b"", "other"),
                ("row", b"correct horse", "application"),
                ("null", b"correct horse", "other"),
            ):
                with broker.client(name, username=username, password=password, clean=True):
                    assert state(broker, name)["session"]["class"] == expected, (username, expected)
            with broker.raw() as client:
                client.send(connect(name, username="token", password=token(**{"class": 7})))
                client.expect_refused(0x86)
            unknown = "a login names a class that the configuration does not have; the client gets the class that it matches"
            assert len(broker.find(unknown, **{"class": "unknown"})) == 1
            broker.write_config(configured(APPLICATION))
            tested = run("class", "test", "--config", broker.config_path, "--client", "x", "--login-class", "application")
            assert tested.stdout.startswith("application\n"), tested

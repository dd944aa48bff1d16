"""The HTTP API and the commands on it: clients, sessions, subscriptions, drops, keys."""

import datetime
import json
import pathlib
import re
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from harness import raw
from harness.broker import BASE, BINARY, Broker, environment, run
from harness.listeners import Listeners
from harness.raw import PUBLISH
from harness.wait import DEADLINE_S, until

ROOT = pathlib.Path(__file__).resolve().parents[2]


def request(broker, method, path, body=None, key=None, headers=None) -> tuple[int, object]:
    """Status and JSON of a request."""
    headers = {"content-type": "application/json", **(headers or {})}
    if key:
        headers["authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{broker.http_port}{path}"
    made = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(made, timeout=DEADLINE_S) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    return status, json.loads(text) if text else None


def walk(broker, path, limit) -> list[dict]:
    """All items of a list, page by page."""
    items, after = [], ""
    while True:
        # Of a busy machine, an event loop may not answer within a second.
        url = f"{path}{'&' if '?' in path else '?'}limit={limit}{after}"
        page = until(lambda url=url: (page := broker.api(url))["partial"] == [] and page, what="a whole page")
        assert len(page["items"]) <= limit
        items += page["items"]
        if page["next"] is None:
            return items
        after = f"&after={page['next']}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A file of keys, and a file with the key of each role."""
    folder = tmp_path_factory.mktemp("keys")
    made = {"file": folder / "keys.json"}
    for role in ("viewer", "operator", "administrator"):
        added = run("api-key", "add", made["file"], "--name", role, "--role", role)
        assert added.returncode == 0, added.stderr
        made[role] = folder / role
        made[role].write_text(added.stdout)
    return made


@pytest.fixture(scope="module")
def stage(keys):
    quiet = {"attention.fullQueues": 0, "attention.dropsPerSecond": 0}
    with Broker({"http.keyFile": keys["file"], "limits.session.queueMessages": 5, **quiet}) as broker:
        broker.operator = keys["operator"].read_text().strip()
        broker.key_file = keys["operator"]
        yield broker


def command(broker, *args, code=0):
    done = run(*args, "--url", f"http://127.0.0.1:{broker.http_port}")
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def test_a_list_has_each_client_once_whether_connected_or_away(stage, name):
    names = [f"{name}/{n:03}" for n in range(60)]
    clients = [stage.client(n, props={"session_expiry": 600}) for n in names[:40]]
    clean = [stage.client(n) for n in names[40:]]
    for client in clients[::2]:
        client.disconnect()
        client.close()
    until(lambda: len(walk(stage, f"/api/v1/clients?prefix={name}&state=away", 50)) == 20, what="20 that are away")
    prefix = urllib.parse.quote(name)
    for limit in (1, 7, 500):
        rows = walk(stage, f"/api/v1/clients?prefix={prefix}", limit)
        assert [row["client_id"] for row in rows] == names
    away = {row["client_id"] for row in rows if row["state"] == "away"}
    assert away == set(names[:40:2])
    assert all(row["durable"] == (row["client_id"] < names[40]) for row in rows)
    table = command(stage, "clients", name, "--limit", 7, "--all")
    assert [line.split()[0] for line in table.splitlines()] == ["CLIENT", *names]
    for client in clients[1::2] + clean:
        client.close()


def test_a_client_in_full_and_its_queue_while_it_is_away(stage, name):
    with stage.client(name, props={"session_expiry": 600}, will=None) as client:
        client.subscribe(f"{name}/+/state", qos=1)
        status, found = request(stage, "GET", f"/api/v1/clients/{name}")
        assert status == 200
        assert found["state"] == "connected" and found["session"]["durable"] is True
        assert found["connection"]["version"] == "5.0" and found["connection"]["listener"] == "tcp"
        assert [row["filter"] for row in found["subscriptions"]["first"]] == [f"{name}/+/state"]
        client.disconnect()
    with stage.client(f"{name}p") as publisher:
        for _ in range(7):
            publisher.published(f"{name}/4/state", b"x", qos=1)
    found = until(lambda: (c := stage.api(f"/api/v1/clients/{name}"))["state"] == "away" and c, what="the absence")
    assert found["queue"]["messages"] == 5 and found["connection"] is None
    assert found["session"]["ends_at"] > found["as_of"]
    assert [drop["reason"] for drop in found["recent_drops"]] == ["queue_full_messages"] * 2
    page = command(stage, "client", name)
    assert page.startswith(f"{name} is away, and its queue is full (5 of 5)")
    drops = walk(stage, f"/api/v1/drops?client={name}", 1)
    assert len(drops) == 2 and {drop["topic"] for drop in drops} == {f"{name}/4/state"}
    assert {drop["role"] for drop in drops} == {"receiver"}
    assert command(stage, "drops", "--client", name).count(f"{name}/4/state") == 2


def test_why_a_message_does_not_arrive(stage, name):
    with (
        stage.client(f"{name}a") as one,
        stage.client(f"{name}b") as other,
        stage.client(f"{name}c", props={"session_expiry": 600}) as away,
    ):
        one.subscribe(f"{name}/+/state")
        other.subscribe(f"{name}/4/State")
        away.subscribe(f"{name}/#", qos=1)
        away.disconnect()
        until(lambda: stage.api(f"/api/v1/clients/{name}c")["state"] == "away", what="the absence")
        question = {"topic": f"{name}/4/state", "qos": 1, "clients": [f"{name}b", f"{name}x"]}
        status, found = request(stage, "POST", "/api/v1/match", question)
        assert status == 200
        got = {receiver["client_id"]: receiver["outcome"] for receiver in found["receivers"]}
        assert got == {f"{name}a": "delivered", f"{name}c": "queued"}
        assert found["counts"] == {"delivered": 1, "queued": 1, "dropped": 0, "groups": 0}
        why = {row["client_id"]: row for row in found["not"]}
        assert why[f"{name}b"]["reason"] == "no_filter" and "case" in why[f"{name}b"]["detail"]
        assert why[f"{name}b"]["closest_filter"] == f"{name}/4/State"
        assert why[f"{name}x"]["reason"] == "no_session"
        table = command(stage, "match", f"{name}/4/state", "-q", 1, "--why", f"{name}b")
        assert "differs in case at level 3" in table
    # Nothing was published.
    assert stage.api(f"/api/v1/clients/{name}c")["queue"]["messages"] == 0


def test_a_connected_client_whose_queue_is_full_does_not_get_a_message(stage, name):
    props = {"session_expiry": 600, "receive_maximum": 1}
    with stage.client(name, props=props) as slow, stage.client(f"{name}p") as publisher:
        slow.subscribe(f"{name}/#", qos=1)
        question = {"topic": f"{name}/t", "qos": 1}

        def outcome(**asked):
            return request(stage, "POST", "/api/v1/match", {**question, **asked})[1]

        assert outcome()["receivers"][0]["outcome"] == "delivered"
        for _ in range(8):
            publisher.published(f"{name}/t", qos=1)
        found = until(lambda: (found := outcome())["counts"]["dropped"] and found, what="the full queue")
        [receiver] = found["receivers"]
        assert (receiver["state"], receiver["outcome"], receiver["reason"]) == ("connected", "dropped", "queue_full_messages")
        assert receiver["detail"] == "5 of 5 messages wait" and found["counts"]["delivered"] == 0
        # What is not kept does not wait there.
        assert outcome(qos=0)["receivers"][0]["outcome"] == "delivered"


def test_clients_are_disconnected_and_sessions_ended_by_operators(stage, keys, name):
    odd = f"{name}/ü %2F?"
    with stage.client(odd, props={"session_expiry": 600}) as client:
        client.subscribe(f"{name}/a", qos=1)
        path = f"/api/v1/clients/{urllib.parse.quote(odd, safe='')}"
        assert request(stage, "DELETE", path)[0] == 401
        assert request(stage, "DELETE", path, key=keys["viewer"].read_text().strip())[0] == 403
        status, gone = request(stage, "DELETE", path, key=stage.operator)
        assert status == 200 and gone["disconnected"] and not gone["session_ended"]
        client.expect_disconnected(0x98)
    # Other tests may have changed something of other clients.
    of_it = lambda: [line for line in stage.find("api.change", method="DELETE") if name in line["path"]]
    (line,) = until(of_it, what="the line of the change")
    assert line["role"] == "operator" and line["result"] == 200
    is_away = lambda: request(stage, "POST", "/api/v1/lookup", {"client_id": odd})[1]["state"] == "away"
    until(is_away, what="the absence")
    options = ("--key-file", keys["operator"])
    assert "is not connected" in command(stage, "disconnect", odd, *options)
    assert "session has ended" in command(stage, "disconnect", "--end-session", odd, *options)
    assert request(stage, "POST", "/api/v1/lookup", {"client_id": odd})[0] == 404
    assert "no node knows" in run("client", odd, "--url", f"http://127.0.0.1:{stage.http_port}").stderr
    command(stage, "kick", odd, *options, code=3)
    with stage.client(odd, session_present=False, clean=False, props={"session_expiry": 600}) as client:
        status, gone = request(stage, "POST", "/api/v1/actions", {"action": "end_session", "client_ids": [odd, "x"]}, stage.operator)
        assert status == 200 and gone[0]["done"]["session_ended"] and gone[1]["problem"]["status"] == 404
        client.expect_disconnected(0x98)
    until(lambda: request(stage, "POST", "/api/v1/lookup", {"client_id": odd})[0] == 404, what="the end of the session")


def subscriptions_path(client_id, filter=None):
    query = "" if filter is None else "?filter=" + urllib.parse.quote(filter, safe="")
    return f"/api/v1/clients/{urllib.parse.quote(client_id, safe='')}/subscriptions{query}"


@pytest.mark.parametrize("version", [5, 4])
@pytest.mark.parametrize("durable", [False, True])
def test_a_connected_client_is_subscribed_as_if_it_had_asked(stage, name, version, durable):
    fields = {"props": {"session_expiry": 600 if durable else 0}} if version == 5 else {"clean": not durable}
    with stage.client(name, version=version, **fields) as client, stage.client(f"{name}p") as publisher:
        publisher.published(f"{name}/old", "kept", qos=1, retain=True)
        path = subscriptions_path(name)
        body = {"filter": f"{name}/+", "qos": 1}
        assert request(stage, "POST", path, body)[0] == 401
        status, made = request(stage, "POST", path, body, stage.operator)
        assert status == 200, made
        assert (made["qos"], made["state"], made["given_filter"]) == (1, "connected", f"{name}/+")
        assert client.message(topic=f"{name}/old").retain
        publisher.published(f"{name}/new", "1", qos=1)
        client.message(topic=f"{name}/new", payload="1", qos=1)
        # Replaced, with an identifier; what the client asks itself meanwhile is answered in its turn.
        replacement = {"filter": f"{name}/+", "qos": 0, "retain_handling": 2, "identifier": 7}
        assert request(stage, "POST", path, replacement, stage.operator)[0] == 200
        assert list(client.subscribe(f"{name}z/#", qos=1).reasons) == [1]
        publisher.published(f"{name}/new", "2", qos=1)
        got = client.message(topic=f"{name}/new", payload="2", qos=0)
        if version == 5:
            assert got.props["subscription_identifier"] in (7, [7])
        (row,) = [row for row in walk(stage, path, 500) if row["filter"] == f"{name}/+"]
        assert (row["qos"], row["identifier"]) == (0, 7)
        status, gone = request(stage, "DELETE", subscriptions_path(name, f"{name}/+"), key=stage.operator)
        assert status == 200 and gone["qos"] is None
        status, problem = request(stage, "DELETE", subscriptions_path(name, f"{name}/+"), key=stage.operator)
        assert status == 404 and problem["kind"] == "subscription"
        publisher.published(f"{name}/new", "3", qos=1)
        publisher.published(f"{name}z/1", "4", qos=1)
        client.message(topic=f"{name}z/1", payload="4")
        publisher.published(f"{name}/old", "", qos=1, retain=True)


def test_a_client_that_is_away_is_subscribed(stage, name):
    with stage.client(f"{name}p") as publisher:
        publisher.published(f"{name}/old", "kept", qos=1, retain=True)
        stage.client(name, props={"session_expiry": 600}).disconnect()
        until(lambda: stage.api(f"/api/v1/clients/{name}")["state"] == "away", what="the absence")
        said = command(stage, "client", name, "--subscribe", f"{name}/#", "-q", 1, "--key-file", stage.key_file)
        assert said == f"{name} (away) is subscribed to {name}/# with QoS 1\n"
        assert request(stage, "POST", subscriptions_path(name), {"filter": f"{name}x/#", "qos": 2}, stage.operator)[0] == 200
        publisher.published(f"{name}/new", "1", qos=1)
        said = command(stage, "client", name, "--unsubscribe", f"{name}x/#", "--key-file", stage.key_file)
        assert "is not subscribed to" in said
        command(stage, "client", name, "--unsubscribe", f"{name}x/#", "--key-file", stage.key_file, code=3)
        publisher.published(f"{name}x/new", "2", qos=1)
        with stage.client(name, clean=False, session_present=True, props={"session_expiry": 600}) as client:
            got = {(p.topic, p.payload, p.retain) for p in (client.message(), client.message())}
            assert got == {(f"{name}/new", b"1", False), (f"{name}/old", b"kept", True)}
            client.published(f"{name}x/new", "3")
            client.published(f"{name}/new", "4")
            client.message(topic=f"{name}/new", payload="4")
        publisher.published(f"{name}/old", "", qos=1, retain=True)
    assert request(stage, "DELETE", f"/api/v1/sessions/{name}", key=stage.operator)[0] == 200


def test_a_queue_says_how_old_it_is(tmp_path, name):
    def oldest(broker):
        at = broker.api(f"/api/v1/clients/{name}")["queue"]["oldest_at"]
        return datetime.datetime.fromisoformat(at).timestamp()

    with Broker(data_dir=tmp_path / "data") as broker, broker.client(f"{name}p") as publisher:
        with broker.client(name, props={"session_expiry": 600}) as client:
            client.subscribe(f"{name}/#", qos=1)
            client.disconnect()
        until(lambda: broker.api(f"/api/v1/clients/{name}")["state"] == "away", what="the absence")
        assert broker.api(f"/api/v1/clients/{name}")["queue"]["oldest_at"] is None
        before = time.time()
        publisher.published(f"{name}/1", qos=1)
        after = time.time()
        # A loop looks at the clock before it reads, and may have to wait for its processor between.
        assert before - 2 <= oldest(broker) <= after + 0.1
        # A message of some seconds later is known to be younger.
        until(lambda: time.time() > after + 3, what="some seconds")
        between = time.time()
        publisher.published(f"{name}/2", qos=1)
        assert oldest(broker) <= after + 0.1
        assert "oldest" in command(broker, "client", name)
    with Broker(data_dir=tmp_path / "data") as broker:
        assert before - 2 <= oldest(broker) <= after + 0.1
        with broker.client(name, clean=False, session_present=True, props={"session_expiry": 600}) as client:
            client.message(topic=f"{name}/1")
            # The second one is not acknowledged.
            client.expect(PUBLISH, topic=f"{name}/2")
            until(lambda: oldest(broker) >= between - 2, what="the younger one alone")


def test_the_rules_and_limits_of_the_client_hold(keys, name, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text(f"deny all subscribe {name}/secret/#\nallow all all #\n")
    settings = {"http.keyFile": keys["file"], "limits.session.subscriptions": 2}
    with Broker(settings, config={**BASE, "authorization": {"file": str(rules)}}) as broker:
        operator = keys["operator"].read_text().strip()

        def code(client_id, filter, **options):
            body = {"filter": filter, **options}
            status, answer = request(broker, "POST", subscriptions_path(client_id), body, operator)
            return answer.get("reason_code", answer.get("pointer", status))

        with broker.client(f"{name}a") as client:
            broker.client(f"{name}b", props={"session_expiry": 600}).disconnect()
            until(lambda: broker.api(f"/api/v1/clients/{name}b")["state"] == "away", what="the absence")
            for who in (f"{name}a", f"{name}b"):
                assert code(who, f"{name}/secret/1") == 0x87
                assert code(who, f"{name}/1") == code(who, f"{name}/2") == code(who, f"{name}/2", qos=1) == 200
                assert code(who, f"{name}/3") == 0x97
                assert code(who, "a/#/b") == "/filter"
                assert code(who, "$share/g/a", no_local=True) == "/no_local"
                assert code(who, "a", qos=3) == "/qos"
                assert code(who, "a", identifier=0) == "/identifier"
                assert code(who, "a", retain_handling=3) == "/retain_handling"
            client.ping()
        assert code(f"{name}c", "a") == 404


def test_a_client_that_subscribes_all_the_time_is_subscribed_between(stage, name):
    with stage.client(name, props={"session_expiry": 600}) as client:
        pids = [client.next_pid() for _ in range(300)]
        client.send(b"".join(raw.subscribe(pid, [(f"{name}/{pid}", pid % 3)]) for pid in pids))
        for number in range(20):
            body = {"filter": f"{name}o/{number}"}

            def is_subscribed(body=body):
                status, answer = request(stage, "POST", subscriptions_path(name), body, stage.operator)
                # XX
                assert status in (200, 504), answer
                return status == 200

            until(is_subscribed, what="a subscription")
        for pid in pids:
            assert list(client.answer(raw.SUBACK, pid).reasons) == [pid % 3]
        assert len(walk(stage, subscriptions_path(name), 500)) == 320
    request(stage, "DELETE", f"/api/v1/sessions/{name}", key=stage.operator)


def test_subscriptions_are_found_however_many_a_client_has(stage, name):
    with stage.client(f"{name}a") as many, stage.client(f"{name}b") as few:
        for number in range(40):
            many.subscribe(f"{name}/{number:02}")
        many.subscribe(f"{name}z/1")
        few.subscribe(f"{name}z/2")
        for limit in (1, 3, 500):
            rows = walk(stage, f"/api/v1/subscriptions?prefix={name}z", limit)
            assert [(row["client_id"], row["filter"]) for row in rows] == [
                (f"{name}a", f"{name}z/1"),
                (f"{name}b", f"{name}z/2"),
            ]
            assert len(walk(stage, f"/api/v1/clients/{name}a/subscriptions", limit)) == 41
            assert len(walk(stage, f"/api/v1/subscriptions?client={name}a", limit)) == 41
            rows = walk(stage, f"/api/v1/subscriptions?client={name}a&prefix={name}z", limit)
            assert [row["filter"] for row in rows] == [f"{name}z/1"]
        assert request(stage, "GET", f"/api/v1/subscriptions?client={name}c")[0] == 404


def test_long_filters_make_no_long_answer(name):
    with Broker({"limits.topic.length": 65_535}) as broker, broker.client(name) as client:
        # With a character that takes six in JSON, each is a page of its own.
        filters = [f"{name}/{number:02}/".ljust(60_000, "\x01") for number in range(12)]
        granted = [f for f in filters if client.subscribe(f).reasons[0] < 0x80]
        path, after, seen = f"/api/v1/clients/{name}/subscriptions", "", []
        while True:
            text = broker.http(f"{path}?limit=500{after}")[1]
            assert len(text) < 2_000_000
            page = json.loads(text)
            seen += [row["filter"] for row in page["items"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert len(granted) > 3 and seen == granted
        assert len(broker.http(f"/api/v1/clients/{name}")[1]) < 2_000_000


def test_keys_are_read_again_and_end(tmp_path, name):
    file = tmp_path / "keys.json"
    added = [run("api-key", "add", file, "--name", f"k{n}", "--role", "operator") for n in range(2)]
    first, second = (done.stdout.strip() for done in added)
    with Broker({"http.keyFile": file, "http.anonymous": "none"}) as broker:
        assert request(broker, "GET", "/api/v1/clients")[0] == 401
        assert broker.http("/metrics")[0] == 200 and broker.http("/readyz")[0] == 200
        assert request(broker, "GET", "/api/v1/clients", key=first)[0] == 200
        listed = run("api-key", "list", file).stdout
        assert "k0" in listed and first.split("_", 2)[2] not in listed
        assert run("api-key", "remove", file, first.split("_")[1]).returncode == 0
        broker.signal(signal.SIGHUP)
        until(lambda: request(broker, "GET", "/api/v1/clients", key=first)[0] == 401, what="the end of the key")
        assert request(broker, "GET", "/api/v1/clients", key=second)[0] == 200


def test_browsers_that_were_sent_here_read_nothing(stage):
    for headers, expected in (
        ({"host": "localhost:8091"}, 200),
        ({"host": "evil.example.com"}, 403),
        ({"x-forwarded-for": "10.0.0.1"}, 401),
    ):
        assert request(stage, "GET", "/api/v1/clients", headers=headers)[0] == expected, headers


def test_each_listener_is_counted_by_itself_and_shows_its_certificate(tmp_path):
    with Listeners(tmp_path) as broker:
        rows = {row["kind"]: row for row in broker.api("/api/v1/listeners")["items"]}
        certificate = rows["tls"]["certificate"]
        assert rows["wss"]["certificate"] == certificate and rows["tcp"]["certificate"] is None
        assert "localhost" in certificate["names"] and certificate["not_before"] < certificate["not_after"]
        for kind in ("tls", "wss"):
            name = "heraldmq_certificate_not_after_timestamp_seconds"
            end = datetime.datetime.fromisoformat(certificate["not_after"])
            assert broker.metric(name, listener=kind, address=rows[kind]["address"]) == end.timestamp()
    host = {"host": "127.0.0.1", "port": 0}
    config = {"mqttServerConfig": {"tcpListener": [host, host]}, "http": {"port": 0}}
    with Broker(config=config) as broker:

        def counts():
            rows = broker.api("/api/v1/listeners")["items"]
            return [(row["connections"], row["accepted"], row["failed_handshakes"]) for row in rows]

        _, second = broker.api("/api/v1/listeners")["items"]
        port = int(second["address"].rpartition(":")[2])
        with raw.Raw(port) as one, raw.Raw(port) as two:
            one.connect("one")
            two.connect("two")
            assert counts() == [(0, 0, 0), (2, 2, 0)]
        until(lambda: counts() == [(0, 0, 0), (0, 2, 0)], what="the ends of both")


def test_nodes_shards_listeners_and_the_document(stage):
    (node,) = stage.api("/api/v1/nodes")["items"]
    assert node["health"]["ready"] is True and node["health"]["shards_led"] == 3
    shards = stage.api("/api/v1/shards")["items"]
    assert [(s["store"], s["first_slot"], s["last_slot"], s["serves"]) for s in shards] == [
        (store, 0, 65535, True) for store in ("session", "inbox", "retain")
    ]
    (listener,) = stage.api("/api/v1/listeners")["items"]
    assert listener["kind"] == "tcp" and listener["certificate"] is None
    assert stage.api("/api/v1/alarms")["items"] == []
    document = stage.api("/api/v1/openapi.json")
    assert document["openapi"].startswith("3.1") and "/api/v1/clients/{client_id}" in document["paths"]
    errors = OpenAPIV31SpecValidator(document).iter_errors()
    assert [("/".join(map(str, error.absolute_path)), error.message) for error in errors] == []


def test_tables_end_quietly_when_nobody_reads_on(stage, name):
    clients = [stage.client(f"{name}{n}") for n in range(20)]
    line = f"{BINARY} clients --url http://127.0.0.1:{stage.http_port} --limit 1 --all | head -1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert done.stdout.startswith("CLIENT ID") and "panicked" not in done.stderr
    for client in clients:
        client.close()


def test_settings_say_who_set_them_and_what_waits_for_a_start():
    def config(queue: int, turn: int) -> str:
        return f"""limits:
  session:
    queueMessages: {queue}
http:
  port: 0
  hosts: [h{turn}.example]
mqttServerConfig: {{tcpListener: {{host: 127.0.0.1, port: 0}}}}
sys: {{intervalSeconds: {turn}}}
"""

    with Broker(config=config(7, 1)) as broker:
        def settings():
            return {row["key"]: row for row in broker.api("/api/v1/settings")["items"]}

        found = settings()
        queue = found["limits.session.queueMessages"]
        assert (queue["value"], queue["origin"]) == ("7", "file")
        # Viewers are not told where files are.
        assert queue["place"] == f"{broker.config_path.name}:3"
        assert found["dataDir"]["value"] == "…" and found["http.hosts"]["value"] != "…"
        assert queue["live"] is True and queue["differs"] == []
        assert found["dataDir"]["place"] == "--data-dir" and found["log.format"]["place"] == "--set"
        assert found["limits.session.queueBytes"]["origin"] == "default"
        broker.write_config(config(8, 2) + "eventLoops: 3\n")
        broker.signal(signal.SIGHUP)
        until(lambda: settings()["limits.session.queueMessages"]["value"] == "8", what="the new value")
        waits = settings()["eventLoops"]
        assert waits["live"] is False and waits["at_restart"] == "3" and waits["value"] != "3"
        table = command(broker, "settings", "limits.session.")
        assert "queueMessages" in table and f"{broker.config_path.name}:3" in table and "queueBytes" not in table
        prefixed = broker.api("/api/v1/settings?prefix=limits.session.")["items"]
        assert prefixed and all(row["key"].startswith("limits.session.") for row in prefixed)


def test_settings_have_no_secrets_and_show_paths_to_operators_alone(keys):
    chain = [{"kind": "http", "http": {"url": "http://127.0.0.1:1/login?key=secret", "tokenFile": str(keys["viewer"])}}]
    with Broker({"http.keyFile": keys["file"]}, config={**BASE, "authentication": {"chain": chain}}) as broker:
        for role in ("viewer", "operator", "administrator"):
            status, page = request(broker, "GET", "/api/v1/settings", key=keys[role].read_text().strip())
            assert status == 200
            text = json.dumps(page)
            assert "key=secret" not in text
            assert "127.0.0.1:1/login" in text
            for path in (keys["file"], keys["viewer"], broker.data_dir, broker.config_path):
                assert (str(path) in text) == (role != "viewer"), (role, path)


def test_counts_and_health(stage, name):
    before = stage.api("/api/v1/stats")["total"]
    with stage.client(name, props={"session_expiry": 600}) as client:
        client.subscribe(f"{name}/#", qos=1)
        client.published(f"{name}/a", b"x" * 100, qos=1)
        client.expect(PUBLISH)

        def grown() -> dict:
            found = stage.api("/api/v1/stats")
            assert [row["counts"] for row in found["nodes"]] == [found["total"]] and found["partial"] == []
            return {key: found["total"][key] - before[key] for key in before}

        # A loop counts bytes at the end of its turn.
        counts = until(lambda: (c := grown())["bytes_out"] > 100 and c, what="the bytes of the message")
        assert counts["messages_in"] == counts["messages_out"] == counts["connects"] == 1
        assert counts["connections"] == counts["sessions"] == counts["subscriptions"] == 1
        assert counts["bytes_in"] > 100
    health = stage.api("/api/v1/health")
    assert health["state"] == "ok" and health["nodes"][0]["ok"] and health["alarms"] == []


RULES = """\
deny user "ann" publish secret/#
allow client "gw" publish up/%c
allow all subscribe #
deny all receive quiet/#
allow all publish plant/#
allow all publish quiet/#
"""


def test_rules_are_tested_and_are_part_of_who_gets_a_message(tmp_path, name):
    rules = tmp_path / "rules.acl"
    # The first rule that matches decides.
    lines = RULES.splitlines()
    rules.write_text("\n".join([lines[3], lines[0], lines[1], lines[2], lines[4], lines[5]]) + "\n")
    settings = {"authorization.file": rules, "authorization.noMatch": "deny"}
    with Broker(settings) as broker:
        for question, may, by, line in [
            ({"client_id": "x", "user": "ann", "action": "publish", "topic": "secret/a"}, False, "file", 2),
            ({"client_id": "gw", "action": "publish", "topic": "up/gw"}, True, "file", 3),
            ({"client_id": "gw", "action": "publish", "topic": "up/other"}, False, "no_match", None),
            ({"client_id": "x", "action": "subscribe", "topic": "$share/g/a/#"}, True, "file", 4),
            ({"client_id": "x", "address": "10.0.0.1", "action": "receive", "topic": "quiet/a"}, False, "file", 1),
        ]:
            status, found = request(broker, "POST", "/api/v1/acl/test", question)
            assert (status, found["may"], found["by"], found["line"]) == (200, may, by, line), question
            assert found["connected"] is False
            assert found["known_by"] == ("question" if {"user", "address"} & question.keys() else "nothing")
        for wrong, pointer in [
            ({"client_id": "x", "action": "write", "topic": "a"}, "/action"),
            ({"client_id": "x", "action": "publish", "topic": "a/#"}, "/topic"),
            ({"client_id": "x", "action": "publish", "topic": "a", "address": "here"}, "/address"),
        ]:
            status, problem = request(broker, "POST", "/api/v1/acl/test", wrong)
            assert (status, problem["pointer"]) == (400, pointer), wrong
        with broker.client(name) as client, broker.client(f"{name}p"):
            client.subscribe("#")
            question = {"topic": "quiet/a", "publisher": f"{name}p"}
            found = request(broker, "POST", "/api/v1/match", question)[1]
            (receiver,) = found["receivers"]
            assert (receiver["outcome"], receiver["reason"]) == ("dropped", "receive_denied")
            assert receiver["rule"]["line"] == 1 and found["counts"]["dropped"] == 1
            assert found["publisher"]["verdict"] == {"may": True, "by": "file", "line": 6}
            assert found["publisher"]["known_by"] == "connection"
            found = request(broker, "POST", "/api/v1/match", {"topic": "plant/a", "publisher": f"{name}p"})[1]
            assert found["receivers"][0]["outcome"] == "delivered" and found["receivers"][0]["rule"] is None
            connected = {"client_id": name, "action": "receive", "topic": "quiet/b"}
            found = request(broker, "POST", "/api/v1/acl/test", connected)[1]
            assert found["connected"] is True and found["may"] is False and found["known_by"] == "connection"
            table = command(broker, "match", "quiet/a", "--publisher", "gw")
            assert "receive_denied: line 1 of the rule file" in table
            # Of a client that nobody knows it is said so, or the question names its user.
            unknown = {"topic": "secret/a", "publisher": f"{name}x"}
            said = request(broker, "POST", "/api/v1/match", unknown)[1]["publisher"]
            assert (said["known_by"], said["user"], said["verdict"]["by"]) == ("nothing", None, "no_match")
            said = request(broker, "POST", "/api/v1/match", {**unknown, "publisher_user": "ann"})[1]["publisher"]
            assert (said["known_by"], said["user"], said["verdict"]["line"]) == ("question", "ann", 2)
            assert "judged as a client without a user" in command(broker, "match", "secret/a", "--publisher", f"{name}x")
            line = command(broker, "match", "secret/a", "--publisher", f"{name}x", "--publisher-user", "ann")
            assert "may not publish it (line 2 of the rule file)" in line and "judged as" not in line


def test_the_rules_that_concern_a_client_are_listed(tmp_path, name):
    rules = tmp_path / "rules.acl"
    rules.write_text(
        'deny user "bob" all\n'
        "# about addresses\n"
        "allow address 10.0.0.0/8 all\n"
        "allow address 127.0.0.1   publish plant/#\n"
        f'allow client "{name}" subscribe "a b/#"\n'
        "deny all all\n"
    )
    with Broker({"authorization.file": rules, "authorization.noMatch": "deny"}) as broker, broker.client(name):

        def listed(**subject):
            status, found = request(broker, "POST", "/api/v1/acl/rules", subject)
            assert (status, found["superuser"], found["more"], found["no_match"]) == (200, False, False, "deny")
            return found, [(rule["line"], rule["text"]) for rule in found["rules"]]

        own = (5, f'allow client "{name}" subscribe "a b/#"')
        found, lines = listed(client_id=name)
        assert lines == [(4, "allow address 127.0.0.1/32 publish plant/#"), own, (6, "deny all all")]
        assert (found["known_by"], found["user"], found["address"]) == ("connection", None, "127.0.0.1")
        # The question names who it is: what is known of the connection does not count.
        found, lines = listed(client_id=name, user="bob")
        assert lines == [(1, 'deny user "bob" all'), own, (6, "deny all all")]
        assert (found["known_by"], found["user"], found["address"]) == ("question", "bob", None)
        found, lines = listed(client_id="nobody")
        assert lines == [(6, "deny all all")] and found["known_by"] == "nothing"
        status, problem = request(broker, "POST", "/api/v1/acl/rules", {"client_id": name, "address": "here"})
        assert (status, problem["pointer"]) == (400, "/address")


def test_rules_about_addresses_are_listed_for_ipv6_and_not_for_a_unix_socket(tmp_path, name):
    rules = tmp_path / "rules.acl"
    rules.write_text("allow address 2001:db8::/32 all\nallow address 127.0.0.1 all\nallow address ::1 all\nallow all all\n")
    sets = {"authorization.file": rules, "allowAnonymous": True}
    with Listeners(tmp_path, sets, proxy={"version": "any", "trustedPeers": "127.0.0.0/8"}) as listeners:
        six, unix = f"{name}-six", f"{name}-unix"
        head = b"PROXY TCP6 2001:db8::7 ::1 40000 1883\r\n"
        with listeners.client_on("tcp", six, head=head), listeners.client_on("unix", unix):
            for client_id, address, lines in [(six, "2001:db8::7", [1, 4]), (unix, None, [4])]:
                status, found = request(listeners, "POST", "/api/v1/acl/rules", {"client_id": client_id})
                assert (status, found["known_by"], found["address"]) == (200, "connection", address), found
                assert [rule["line"] for rule in found["rules"]] == lines
            # A list of clients of an address leaves the port out, and the brackets.
            rows = walk(listeners, f"/api/v1/clients?prefix={name}&address=2001:db8::7", 10)
            assert [row["client_id"] for row in rows] == [six]


def test_sessions_are_those_in_the_stores(stage, name):
    with stage.client(f"{name}d", props={"session_expiry": 600}), stage.client(f"{name}t"):
        rows = walk(stage, f"/api/v1/clients?prefix={name}&durable=true", 10)
        assert [row["client_id"] for row in rows] == [f"{name}d"]
        rows = walk(stage, f"/api/v1/clients?prefix={name}&durable=false", 10)
        assert [row["client_id"] for row in rows] == [f"{name}t"]
        assert f"{name}d" in command(stage, "sessions", name)
        assert f"{name}d" not in command(stage, "sessions", name, "--away")


def test_each_command_of_the_page_does_what_it_says(stage, keys, tmp_path):
    text = (ROOT / "docs/operate/api.md").read_text()
    lines = [line.split(" # ")[0].strip() for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("heraldmq ")]
    assert len(commands) > 10
    (tmp_path / "operator.key").write_text(keys["operator"].read_text())
    away = stage.client("press-18", props={"session_expiry": 600})
    away.disconnect()
    for args in commands:
        with stage.client("press-17", props={"session_expiry": 600}) as client, stage.client("hmi-9"):
            client.subscribe("plant/+/state", "$share/jobs/orders/#", qos=1)
            url = f"http://127.0.0.1:{stage.http_port}"
            if args[:2] == ["context", "add"]:
                args[args.index("--url") + 1] = url
            named = args[0] == "context" or "--context" in args
            at = [] if named else ["--url", url]
            done = run(*args, *at, cwd=tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)})
            assert done.returncode == 0, (args, done.stdout, done.stderr)
            if args[0] == "disconnect":
                client.expect_disconnected(0x98)


def test_why_a_client_has_left(stage, name):
    def departure() -> dict:
        status, found = request(stage, "GET", f"/api/v1/clients/{name}")
        return (status, found["last_departure"])

    assert departure() == (404, None)
    client = stage.client(name, props={"session_expiry": 600})
    client.disconnect()
    until(lambda: departure()[1], what="the departure")
    status, gone = departure()
    assert (status, gone["reason"]) == (200, "DISCONNECT") and gone["address"].startswith("127.0.0.1:")
    assert "Last departure" in command(stage, "client", name)
    with stage.client(name, clean=False, session_present=True) as client:
        request(stage, "DELETE", f"/api/v1/sessions/{name}", key=stage.operator)
        client.expect_disconnected(0x98)
    until(lambda: departure()[0] == 404, what="the end of the session")
    assert departure()[1]["reason"] == "Administrative action"


def test_rules_are_tried_before_they_are_saved(tmp_path, name):
    rules = tmp_path / "rules.acl"
    rules.write_text("deny all all\n")
    with Broker({"authorization.file": rules}) as broker, broker.client(name):
        question = {"client_id": name, "action": "publish", "topic": "plant/a"}

        def judged(path="/api/v1/acl/test", **more):
            status, found = request(broker, "POST", path, {**question, **more})
            assert status == 200, found
            return found

        assert judged()["may"] is False
        found = judged(rules="# tried\nallow address 127.0.0.1 publish plant/#\ndeny all all\n")
        assert (found["may"], found["by"], found["line"], found["known_by"]) == (True, "file", 2, "connection")
        found = judged(rules='allow user "ann" publish plant/#\ndeny all all', user="ann")
        assert (found["may"], found["line"], found["known_by"]) == (True, 1, "question")
        assert judged(rules="deny all publish other/#")["by"] == "no_match"
        listed = request(broker, "POST", "/api/v1/acl/rules", {"client_id": name, "rules": "allow all receive x\n"})[1]
        assert listed["rules"] == [{"by": "file", "line": 1, "text": "allow all receive x"}]
        # Nothing of it is kept.
        assert judged()["may"] is False
        for path in ("/api/v1/acl/test", "/api/v1/acl/rules"):
            body = question if path.endswith("test") else {"client_id": name}
            status, problem = request(broker, "POST", path, {**body, "rules": "allow all publish x\nallow nobody\n"})
            assert (status, problem["pointer"], problem["mistakes"][0]["line"]) == (400, "/rules", 2)
            assert request(broker, "POST", path, {**body, "rules": "#" * 65_537})[0] == 413

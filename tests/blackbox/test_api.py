"""The HTTP API and the commands on it: clients, sessions, subscriptions, drops, keys."""

import json
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from harness.broker import BINARY, Broker, environment, run
from harness.wait import DEADLINE_S, until


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
        page = broker.api(f"{path}{'&' if '?' in path else '?'}limit={limit}{after}")
        assert len(page["items"]) <= limit and page["partial"] == []
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
    with Broker({"http.keyFile": keys["file"], "limits.session.queueMessages": 5}) as broker:
        broker.operator = keys["operator"].read_text().strip()
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
    assert page.startswith(f"{name} is away, and 5 messages wait for it")
    drops = walk(stage, f"/api/v1/drops?client={name}", 1)
    assert len(drops) == 2 and {drop["topic"] for drop in drops} == {f"{name}/4/state"}
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
    (line,) = until(lambda: stage.find("api.change", method="DELETE"), what="the line of the change")
    assert line["role"] == "operator" and line["result"] == 200
    is_away = lambda: request(stage, "POST", "/api/v1/lookup", {"client_id": odd})[1]["state"] == "away"
    until(is_away, what="the absence")
    options = ("--key-file", keys["operator"])
    assert "is not connected" in command(stage, "disconnect", odd, *options)
    assert "session has ended" in command(stage, "disconnect", "--end-session", odd, *options)
    assert request(stage, "POST", "/api/v1/lookup", {"client_id": odd})[0] == 404
    assert "no node knows" in run("client", odd, "--url", f"http://127.0.0.1:{stage.http_port}").stderr
    command(stage, "disconnect", odd, *options, code=3)
    with stage.client(odd, session_present=False, clean=False, props={"session_expiry": 600}) as client:
        status, gone = request(stage, "POST", "/api/v1/actions", {"action": "end_session", "client_ids": [odd, "x"]}, stage.operator)
        assert status == 200 and gone[0]["done"]["session_ended"] and gone[1]["problem"]["status"] == 404
        client.expect_disconnected(0x98)
    until(lambda: request(stage, "POST", "/api/v1/lookup", {"client_id": odd})[0] == 404, what="the end of the session")


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


def test_nodes_shards_listeners_and_the_document(stage):
    (node,) = stage.api("/api/v1/nodes")["items"]
    assert node["health"]["ready"] is True and node["health"]["shards_led"] == 3
    shards = stage.api("/api/v1/shards")["items"]
    assert [(s["store"], s["first_slot"], s["last_slot"], s["serves"]) for s in shards] == [
        (store, 0, 65535, True) for store in ("session", "inbox", "retain")
    ]
    assert stage.api("/api/v1/listeners")["items"][0]["kind"] == "tcp"
    assert stage.api("/api/v1/alarms")["items"] == []
    document = stage.api("/api/v1/openapi.json")
    assert document["openapi"].startswith("3.1") and "/api/v1/clients/{client_id}" in document["paths"]


def test_tables_end_quietly_when_nobody_reads_on(stage, name):
    clients = [stage.client(f"{name}{n}") for n in range(20)]
    line = f"{BINARY} clients --url http://127.0.0.1:{stage.http_port} --limit 1 --all | head -1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert done.stdout.startswith("CLIENT ID") and "panicked" not in done.stderr
    for client in clients:
        client.close()

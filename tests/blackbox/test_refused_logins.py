"""Who was not let in, and why: the client is told little, the operator the cause."""

import json
import socket

import pytest

from harness import raw
from harness.broker import BASE, Broker, run
from harness.listeners import Listeners
from harness.raw import CONNACK, Raw
from harness.wait import until
from test_abuse import connect_code
from test_api import keys, request  # noqa: F401  (a fixture)
from test_authentication import passwd

A, B, C = "127.0.0.2", "127.0.0.3", "127.0.0.4"
WRONG, NOT_AUTHORIZED, BANNED, BAD_ID = 0x86, 0x87, 0x8A, 0x85


def refused(broker, key, **query):
    query = "&".join(f"{name}={value}" for name, value in query.items())
    status, page = request(broker, "GET", f"/api/v1/refused-logins?{query}", key=key)
    assert status == 200, page
    return page["items"]


def causes(rows):
    return {(row["address"], row["user"], row["cause"]): row for row in rows}


@pytest.fixture(scope="module")
def stage(keys, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("refused")
    passwd(folder / "users", "ann", "right")
    passwd(folder / "people", "olga", "right")
    config = {**BASE, "authentication": {"chain": [{"kind": "passwordFile", "file": str(folder / "users")}]}}
    sets = {
        "http.keyFile": keys["file"],
        "http.userFile": folder / "people",
        "abuse.includeLoopback": True,
        "abuse.failedLogins": 2,
        "abuse.failedLoginWaitSeconds": 3600,
        "limits.connection.clientIdLength": 40,
    }
    with Broker(sets, config=config) as broker:
        broker.operator = keys["operator"].read_text().strip()
        broker.viewer = keys["viewer"].read_text().strip()
        broker.key_file = keys["operator"]
        yield broker


def test_each_cause_has_a_row_and_the_client_is_not_told_it(stage, name):
    asks = [
        (A, {"username": "ann", "password": b"one"}, WRONG, "wrong_password"),
        (A, {"username": "eve", "password": b"one"}, WRONG, "unknown_user"),
        (A, {}, NOT_AUTHORIZED, "no_credentials"),
        (B, {"username": "ann", "password": b"right", "client_id": "x" * 41}, BAD_ID, "client_id_not_valid"),
    ]
    for source, fields, code, _ in asks:
        assert connect_code(stage, source, **{"client_id": name[:40], **fields}) == code
    rows = causes(refused(stage, stage.operator))
    for source, fields, _, cause in asks:
        row = rows[(source, fields.get("username"), cause)]
        assert row["client_id"] == fields.get("client_id", name[:40])
        assert (row["listener"], row["count"], row["node_name"]) == ("tcp", 1, row["node_name"])
        assert row["first"] == row["last"] and row["explanation"].endswith(".")
    assert rows[(B, "ann", "client_id_not_valid")]["detail"] == "Client Identifier not valid"
    line = until(lambda: [line for line in stage.find("a client is refused") if line.get("cause") == "unknown_user"])[0]
    assert line["reason"] == "Bad User Name or Password"


def test_a_ban_and_a_wait_are_told_apart_from_a_wrong_password(stage, name):
    for guess in (b"one", b"two", b"three"):
        connect_code(stage, B, username="bob", password=guess)
    rows = causes(refused(stage, stage.operator))
    assert rows[(B, "bob", "unknown_user")]["count"] == 2
    assert rows[(B, "bob", "failed_logins")]["count"] == 1
    status, _ = request(stage, "POST", "/api/v1/bans", {"user": name, "reason": "test"}, stage.operator)
    assert status == 201
    assert connect_code(stage, C, username=name, password=b"right") == BANNED
    assert (C, name, "banned") in causes(refused(stage, stage.operator))


def test_a_connection_that_ends_before_connect_says_what_it_spoke(stage):
    with socket.create_connection(("127.0.0.1", stage.port), 10, (C, 0)) as web:
        web.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert web.recv(100) == b""
    row = until(lambda: causes(refused(stage, stage.operator)).get((C, None, "handshake")))
    assert "HTTP" in row["detail"] and row["client_id"] is None


def test_a_malformed_connect_says_so(stage):
    with Raw(stage.port, source=C) as client:
        client.send(b"\x10\x07\0\x04MQTT\x05\x03")
    row = until(lambda: causes(refused(stage, stage.operator)).get((C, None, "protocol_error")))
    assert row["detail"] == "Malformed Packet"


def test_people_at_the_api_are_in_the_list(stage):
    for user, cause in (("olga", "api_wrong_password"), ("nobody", "api_unknown_user")):
        status, _ = request(stage, "POST", "/api/v1/login", {"user": user, "password": "guess"})
        assert status == 401
        row = causes(refused(stage, stage.operator))[("127.0.0.1", user, cause)]
        assert row["listener"] is None and row["client_id"] is None


def test_only_operators_see_the_list(stage):
    assert request(stage, "GET", "/api/v1/refused-logins", key=stage.viewer)[0] == 403
    assert request(stage, "GET", "/api/v1/refused-logins?node=nowhere", key=stage.operator)[0] == 400
    assert len(refused(stage, stage.operator, limit=1)) <= 1


def test_the_command_shows_the_list(stage, name):
    connect_code(stage, A, client_id="é\n", username=name, password=b"one")
    done = run("refused-logins", "--url", f"http://127.0.0.1:{stage.http_port}", "--key-file", stage.key_file)
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["ADDRESS", "USER", "CLIENT", "TIMES", "LAST", "NODE", "CAUSE", "DETAIL"]
    assert any(row.split()[:2] == [A, name] and "unknown_user" in row for row in rows), done.stdout
    listed = run("refused-logins", "--json", "--limit", "1", "--url", f"http://127.0.0.1:{stage.http_port}", "--key-file", stage.key_file)
    assert json.loads(listed.stdout)["items"][0]["user"] == name


def test_a_handshake_of_tls_that_fails_says_why(keys, tmp_path):  # noqa: F811
    with Listeners(tmp_path, {"http.keyFile": keys["file"]}) as broker:
        with broker.dial("tls") as plain:
            plain.sendall(raw.connect("c"))
            plain.recv(100)
        key = keys["operator"].read_text().strip()
        row = until(lambda: causes(refused(broker, key)).get(("127.0.0.1", None, "handshake")))
        assert row["listener"] == "tls" and row["detail"]


def test_without_authenticators_a_proxied_client_hears_that_none_is_configured(keys):  # noqa: F811
    with Broker({"http.keyFile": keys["file"], "allowAnonymous": False}) as broker:
        with broker.raw() as client:
            client.send(raw.connect("c", version=5))
            assert client.expect(CONNACK).reason == NOT_AUTHORIZED
        key = keys["operator"].read_text().strip()
        assert ("127.0.0.1", None, "no_authenticators") in causes(refused(broker, key))

"""Who may connect: each authenticator with real clients, the chain, and what a failure looks like."""

import contextlib
import http.server
import json
import pathlib
import signal
import socket
import subprocess
import threading
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from harness import raw
from harness.broker import BASE, BINARY, Broker, run
from harness.clock import LIBRARY, Clock
from harness.listeners import Listeners
from harness.paho import Paho, props
from harness.pki import Authority
from harness.raw import Raw
from harness.scram import Scram
from harness.wait import DEADLINE_S, until

BAD_CREDENTIALS, NOT_AUTHORIZED, BAD_METHOD, PROTOCOL_ERROR = 0x86, 0x87, 0x8C, 0x82
NO_LOGIN_WAIT = {"abuse.failedLogins": 0}


def passwd(file, user, password, *options):
    """`heraldmq passwd`, the password on standard input."""
    command = [BINARY, "passwd", str(file), user, "--stdin", *options]
    subprocess.run(command, input=password + "\n", text=True, check=True, capture_output=True, timeout=60)


@contextlib.contextmanager
def broker_with(*chain, **sets):
    config = {**BASE, "authentication": {"chain": list(chain)}}
    with Broker({**NO_LOGIN_WAIT, **sets}, config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    file = tmp_path_factory.mktemp("users") / "passwords"
    passwd(file, "alice", "correct horse")
    passwd(file, "bob", "battery staple")
    return file


@pytest.fixture(scope="module")
def by_password(users):
    with broker_with({"kind": "passwordFile", "file": str(users)}) as broker:
        yield broker


def reload(broker):
    before = len(broker.find("configuration reloaded"))
    broker.signal(signal.SIGHUP)
    until(lambda: len(broker.find("configuration reloaded")) > before, what="the reload")


def refused(broker, *reasons, version=5, client_id="", **fields):
    with broker.raw(version) as client:
        client.send(raw.connect(client_id, version=version, **fields))
        client.expect_refused(*reasons)


# ---- password file ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4, 5])
def test_user_name_and_password(by_password, name, version):
    with by_password.client(name, version=version, username="alice", password=b"correct horse") as client:
        client.subscribe(name)
        client.published(name, b"x")
        assert client.message().payload == b"x"


@pytest.mark.parametrize(
    "fields",
    [
        {"username": "alice", "password": b"wrong"},
        {"username": "alice", "password": b""},
        {"username": "alice"},
        {"username": "nobody", "password": b"correct horse"},
        {"username": "bob", "password": b"correct horse"},
        {"username": "alice:", "password": b"correct horse"},
    ],
)
def test_wrong_credentials(by_password, fields):
    refused(by_password, BAD_CREDENTIALS, **fields)


def test_the_refusal_of_3_1_1(by_password, name):
    refused(by_password, 4, version=4, client_id=name, username="alice", password=b"wrong")
    refused(by_password, 5, version=4, client_id=name)


def test_without_credentials(by_password):
    refused(by_password, NOT_AUTHORIZED)


def test_anonymous_clients_beside_a_chain(users, name):
    with broker_with({"kind": "passwordFile", "file": str(users)}, allowAnonymous=True) as broker:
        with broker.client(name) as client:
            client.ping()
        refused(broker, BAD_CREDENTIALS, username="alice", password=b"wrong")


@pytest.mark.parametrize("version", [4, 5])
def test_a_durable_session_of_a_user(by_password, name, version):
    fields = {"username": "alice", "password": b"correct horse", "clean": False}
    if version == 5:
        fields["props"] = {"session_expiry": 60}
    with by_password.client(name, version=version, session_present=False, **fields) as client:
        client.subscribe(name, qos=1)
    with by_password.client(name + "p", username="bob", password=b"battery staple") as publisher:
        publisher.published(name, b"kept")
    with by_password.client(name, version=version, session_present=True, **fields) as client:
        assert client.message().payload == b"kept"


def test_a_storm_of_logins(by_password, name):
    """Passwords take their time; nobody is lost, and clients that are connected go on."""
    with by_password.client(name, username="bob", password=b"battery staple") as witness:
        clients = [by_password.raw() for _ in range(40)]
        for number, client in enumerate(clients):
            good = number % 2 == 0
            password = b"correct horse" if good else b"wrong"
            client.send(raw.connect(f"{name}-{number}", username="alice", password=password))
        witness.ping()
        for number, client in enumerate(clients):
            if number % 2 == 0:
                client.expect(raw.CONNACK, reason=0)
                client.close()
            else:
                client.expect_refused(BAD_CREDENTIALS)


def test_more_logins_than_may_be_under_way(users, name):
    sets = {"authentication.maxPending": 1, "authentication.hashThreads": 1}
    with broker_with({"kind": "passwordFile", "file": str(users)}, **sets) as broker:
        clients = [broker.raw() for _ in range(12)]
        for number, client in enumerate(clients):
            client.send(raw.connect(f"{name}-{number}", username="alice", password=b"correct horse"))
        for client in clients:
            client.expect(raw.CONNACK, reason=0)
            client.close()


def test_a_client_that_goes_before_the_answer(by_password, name):
    for number in range(10):
        client = by_password.raw()
        client.send(raw.connect(f"{name}-{number}", username="alice", password=b"correct horse"))
        client.reset()
    with by_password.client(name, username="alice", password=b"correct horse") as client:
        client.ping()


def test_takeover_by_logins_at_once(by_password, name):
    """[MQTT-3.1.4-3] each of them gets in, the last stays."""
    clients = [by_password.raw() for _ in range(4)]
    for client in clients:
        client.send(raw.connect(name, username="alice", password=b"correct horse", props={"session_expiry": 60}))
    for client in clients:
        client.expect(raw.CONNACK, reason=0)

    def open_ones():
        still = []
        for client in clients:
            try:
                client.ping()
                still.append(client)
            except (AssertionError, raw.Closed, OSError):
                pass
        return len(still) == 1

    until(open_ones, what="one of four connections to stay")


def test_reloaded_users(tmp_path, name):
    file = tmp_path / "passwords"
    passwd(file, "alice", "old")
    with broker_with({"kind": "passwordFile", "file": str(file)}) as broker:
        with broker.client(name, username="alice", password=b"old") as client:
            passwd(file, "alice", "new")
            reload(broker)
            client.ping()
            with broker.client(name + "2", username="alice", password=b"new") as other:
                other.ping()
            refused(broker, BAD_CREDENTIALS, username="alice", password=b"old")
            # A broken file changes nothing.
            file.write_text("alice\n")
            reload(broker)
            until(lambda: broker.find("authentication not reloaded; it stays as it was"), what="the line")
            with broker.client(name + "3", username="alice", password=b"new") as other:
                other.ping()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_user_that_is_removed_is_disconnected(tmp_path, name, version):
    file = tmp_path / "passwords"
    for user in ("alice", "bob"):
        passwd(file, user, "right")
    lines = file.read_text().splitlines(keepends=True)
    member = {"kind": "passwordFile", "file": str(file)}
    with broker_with(member, allowAnonymous=True) as broker, broker.client(name + "anonymous") as anonymous:
        with broker.client(name + "bob", username="bob", password=b"right", version=version) as bob:
            durable = {"clean": False, "props": {"session_expiry": 60} if version == 5 else None}
            clients = [
                broker.client(f"{name}{n}", username="alice", password=b"right", version=version, **fields)
                for n, fields in enumerate([{}, durable])
            ]
            for client in clients:
                client.subscribe(f"{name}/#", qos=1)
            # A file that cannot be used disconnects nobody.
            file.write_text("alice\n")
            reload(broker)
            for client in clients:
                client.ping()
            file.write_text("".join(line for line in lines if not line.startswith("alice:")))
            reload(broker)
            for client in clients:
                if version == 5:
                    client.expect_disconnected(NOT_AUTHORIZED)
                else:
                    client.expect_closed()
            bob.ping()
            anonymous.ping()
            # Back again, she has her session.
            file.write_text("".join(lines))
            reload(broker)
            fields = {**durable, "session_present": version > 3 or None, "version": version}
            with broker.client(name + "1", username="alice", password=b"right", **fields) as client:
                client.ping()


@pytest.mark.parametrize("content", [None, "alice\n", "alice:plain\n"])
def test_an_unusable_file_is_an_error_at_the_start(tmp_path, content):
    file = tmp_path / "passwords"
    if content is not None:
        file.write_text(content)
    config = tmp_path / "conf.yml"
    config.write_text(json.dumps({**BASE, "authentication": {"chain": {"kind": "passwordFile", "file": str(file)}}}))
    ended = run("serve", "--config", config, "--data-dir", tmp_path / "data")
    assert ended.returncode == 2 and "passwords" in ended.stderr


# ---- whose a session is ----------------------------------------------------------------------

ALICE = {"username": "alice", "password": b"correct horse"}
BOB = {"username": "bob", "password": b"battery staple"}


def durable(version):
    return {"clean": False, "props": {"session_expiry": 60} if version == 5 else None}


@pytest.mark.parametrize("version, code", [(4, 5), (5, NOT_AUTHORIZED)])
def test_another_user_does_not_get_a_session(by_password, name, version, code):
    with by_password.client(name, version=version, **durable(version), **ALICE) as alice:
        alice.subscribe(name, qos=1)
    with by_password.client(name + "p", **BOB) as publisher:
        publisher.published(name, b"kept")
        publisher.published(name, b"in flight")
    # In flight as well: it was sent, and not acknowledged.
    with by_password.client(name, version=version, session_present=True, **durable(version), **ALICE) as alice:
        assert alice.recv().payload == b"kept"
    before = by_password.metric("heraldmq_session_owner_refusals_total")
    for clean in (False, True):
        fields = {**durable(version), "clean": clean}
        refused(by_password, code, version=version, client_id=name, **fields, **BOB)
    assert by_password.metric("heraldmq_session_owner_refusals_total") == before + 2
    with by_password.client(name, version=version, session_present=True, **durable(version), **ALICE) as alice:
        assert [m.payload for m in alice.take(2)] == [b"kept", b"in flight"]


@pytest.mark.parametrize("fields", [{}, {"props": {"session_expiry": 60}}], ids=["clean", "durable"])
def test_another_user_does_not_take_a_connection_over(by_password, name, fields):
    will = {"topic": f"{name}/will", "payload": b"gone", "qos": 1}
    with by_password.client(name + "w", **BOB) as watcher:
        watcher.subscribe(f"{name}/#", qos=1)
        alice = by_password.client(name, will=will, **fields, **ALICE)
        clean = by_password.client(name + "c", **ALICE)
        for of in (name, name + "c"):
            refused(by_password, NOT_AUTHORIZED, client_id=of, **BOB)
            refused(by_password, NOT_AUTHORIZED, client_id=of, **fields, **BOB)
        alice.ping()
        clean.ping()
        watcher.published(f"{name}/end", b"end")
        assert watcher.until("end") == []
        with by_password.client(name, **fields, **ALICE):
            alice.expect_disconnected(0x8E)
            assert watcher.message().payload == b"gone"
        clean.close()


def test_another_user_does_not_end_what_lingers(users, name):
    chain = {"kind": "passwordFile", "file": str(users)}
    # The broker's own topics would be looked up in between.
    with broker_with(chain, **{"sys.intervalSeconds": 0}) as broker:

        def lingering():
            return broker.metric("heraldmq_sessions_routed_after_disconnect")

        def misses(payload):
            publisher.published(f"{name}/1", payload)
            return broker.metric("heraldmq_match_cache_misses_total")

        alice = broker.client(name, **durable(5), **ALICE)
        alice.subscribe(*(f"{name}/{number}" for number in range(5000)), qos=1)
        alice.close()
        until(lambda: lingering() == 1, what="a session that lingers")
        with broker.client(name + "p", **BOB) as publisher:
            before = misses(b"0")
            refused(broker, NOT_AUTHORIZED, client_id=name, **durable(5), **BOB)
            assert (lingering(), misses(b"1")) == (1, before)
            with broker.client(name, session_present=True, **durable(5), **ALICE) as alice:
                assert misses(b"2") == before
                assert [message.payload for message in alice.take(3)] == [b"0", b"1", b"2"]


def test_another_user_gets_a_session_of_his_own_if_so_set(users, name):
    chain = {"kind": "passwordFile", "file": str(users)}
    with broker_with(chain, **{"authentication.sessionOfAnotherUser": "newSession"}) as broker:
        alice = broker.client(name, **durable(5), **ALICE)
        alice.subscribe(name, qos=1)
        alice.published(name, b"in flight")
        with broker.client(name, session_present=False, **durable(5), **BOB) as bob:
            assert alice.recv().payload == b"in flight"
            alice.expect_disconnected(0x8E)
            bob.subscribe(f"{name}/bob")
            bob.published(name, b"nobody")
            bob.published(f"{name}/bob", b"mine", qos=1)
            bob.message(payload="mine")
        with broker.client(name, session_present=False, **durable(5), **ALICE) as alice:
            alice.ping()


def test_whose_a_session_is_survives_a_crash(users, name, tmp_path):
    chain = {"chain": [{"kind": "passwordFile", "file": str(users)}]}
    config = {**BASE, "allowAnonymous": True, "authentication": chain}
    with Broker(NO_LOGIN_WAIT, config=config, data_dir=tmp_path / "data") as broker:
        for of in (name, name + "n"):
            fields = ALICE if of == name else {}
            broker.client(of, **durable(5), **fields).close()
        broker.kill()
    with Broker(NO_LOGIN_WAIT, config=config, data_dir=tmp_path / "data") as broker:
        refused(broker, NOT_AUTHORIZED, client_id=name, **durable(5), **BOB)
        refused(broker, NOT_AUTHORIZED, client_id=name, **durable(5))
        broker.client(name, session_present=True, **durable(5), **ALICE).close()
        # Nobody in particular has made this one.
        broker.client(name + "n", session_present=True, **durable(5)).close()
        broker.client(name + "n", session_present=True, **durable(5), **BOB).close()
        refused(broker, NOT_AUTHORIZED, client_id=name + "n", **durable(5), **ALICE)


# ---- JSON Web Tokens -------------------------------------------------------------------------

SECRET = "a secret of more than thirty-two bytes"


def token(key=SECRET, algorithm="HS256", *, seconds=60, headers=None, **claims):
    claims.setdefault("exp", int(time.time()) + seconds)
    return jwt.encode(claims, key, algorithm, headers=headers).encode()


@pytest.fixture(scope="module")
def by_token(tmp_path_factory):
    file = tmp_path_factory.mktemp("jwt") / "secret"
    file.write_text(SECRET + "\n")
    settings = {
        "secretFile": str(file),
        "issuer": "me",
        "audience": "mqtt",
        "usernameClaim": "sub",
        "leewaySeconds": 0,
    }
    with broker_with({"kind": "jwt", "jwt": settings}) as broker:
        yield broker


GOOD = {"iss": "me", "aud": "mqtt", "sub": "alice"}


def test_a_token(by_token, name):
    with by_token.client(name, username="alice", password=token(**GOOD)) as client:
        client.subscribe(name)
        client.published(name, b"x")
        assert client.message().payload == b"x"


@pytest.mark.parametrize(
    "bad",
    [
        lambda: token(**GOOD, seconds=-10),
        lambda: token(**{**GOOD, "iss": "you"}),
        lambda: token(**{**GOOD, "aud": "other"}),
        lambda: token(**{**GOOD, "sub": "bob"}),
        lambda: token(**GOOD, nbf=int(time.time()) + 1000),
        lambda: token("another secret of more than 32 bytes!", **GOOD),
        lambda: token(**GOOD)[:-3] + b"AAA",
        lambda: token(None, "none", **GOOD),
        lambda: b"a.b.c",
        lambda: b"no token",
        lambda: b"",
    ],
)
def test_bad_tokens(by_token, bad):
    refused(by_token, BAD_CREDENTIALS, username="alice", password=bad())


def test_an_expired_token_disconnects(by_token, name):
    with by_token.client(name, username="alice", password=token(**GOOD, seconds=6)) as client:
        client.ping()
        client.expect_disconnected(NOT_AUTHORIZED)


@pytest.mark.skipif(not pathlib.Path(LIBRARY).exists(), reason="libfaketime is not installed")
def test_a_token_expires_by_the_system_s_clock(tmp_path, name):
    file = tmp_path / "secret"
    file.write_text(SECRET)
    chain = {"chain": [{"kind": "jwt", "jwt": {"secretFile": str(file), "leewaySeconds": 0}}]}
    clock = Clock(tmp_path / "clock")
    with Broker(NO_LOGIN_WAIT, config={**BASE, "authentication": chain}, prefix=clock.prefix) as broker:
        with broker.client(name, username="alice", password=token(seconds=3600)) as client:
            client.ping()
            clock.jump(7200)
            client.expect_disconnected(NOT_AUTHORIZED)


def test_the_rules_of_a_token(by_token, name):
    acl = {"pub": [f"{name}/%u"], "sub": [f"{name}/#"]}
    with by_token.client(name, username="alice", password=token(**GOOD, acl=acl)) as client:
        client.subscribe(f"{name}/#")
        assert client.answer(raw.PUBACK, client.publish(f"{name}/alice", b"x", qos=1)).reason == 0
        assert client.message().payload == b"x"
        assert client.answer(raw.PUBACK, client.publish(f"{name}/bob", qos=1)).reason == NOT_AUTHORIZED
        client.subscribe("other", expect=[NOT_AUTHORIZED])


def test_a_list_of_topics_denies_what_begins_with_a_dollar_too(by_token, name):
    acl = {"sub": ["#"]}
    with by_token.client(name, username="alice", password=token(**GOOD, acl=acl)) as client:
        client.subscribe(f"{name}/#", "#", expect=[0, 0])
        for filter in ("$priv/#", "$share/g/$priv/#", "$queue/$priv/#", "$SYSTEM/#", "$SYS/#"):
            client.subscribe(filter, expect=[NOT_AUTHORIZED])
        assert client.answer(raw.PUBACK, client.publish("$priv/x", qos=1)).reason == NOT_AUTHORIZED


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A key set with an RSA and an elliptic curve key, and their private halves."""
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ec_key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path_factory.mktemp("jwks") / "keys.json"
    rsa_jwk = {**jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key.public_key(), as_dict=True), "kid": "r", "alg": "RS256"}
    ec_jwk = {**jwt.algorithms.ECAlgorithm.to_jwk(ec_key.public_key(), as_dict=True), "kid": "e", "alg": "ES256"}
    file.write_text(json.dumps({"keys": [rsa_jwk, ec_jwk]}))
    return file, rsa_key, ec_key


def test_a_key_set(keys, name):
    file, rsa_key, ec_key = keys
    with broker_with({"kind": "jwt", "jwt": {"jwksFile": str(file)}}) as broker:
        for key, algorithm, kid in [(rsa_key, "RS256", "r"), (ec_key, "ES256", "e")]:
            with broker.client(name, password=token(key, algorithm, headers={"kid": kid}), username="x") as client:
                client.ping()
        # A public key is no secret of HMAC.
        public = rsa_key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        confused = token(public, "HS256", headers={"kid": "r"})
        refused(broker, BAD_CREDENTIALS, username="x", password=confused)
        unknown = token(rsa_key, "RS256", headers={"kid": "other"})
        refused(broker, BAD_CREDENTIALS, username="x", password=unknown)


def test_a_key_that_leaves_the_set_ends_no_connection(keys, tmp_path, name):
    file, rsa_key, ec_key = keys
    both = json.loads(file.read_text())["keys"]
    own = tmp_path / "keys.json"
    own.write_text(json.dumps({"keys": both}))
    with broker_with({"kind": "jwt", "jwt": {"jwksFile": str(own), "leewaySeconds": 0}}) as broker:
        login = {"username": "x", "password": token(rsa_key, "RS256", headers={"kid": "r"}, seconds=6)}
        with broker.client(name, **login) as client:
            own.write_text(json.dumps({"keys": [key for key in both if key["kid"] != "r"]}))
            reload(broker)
            client.ping()
            refused(broker, BAD_CREDENTIALS, **login)
            # It goes on until its token expires.
            client.expect_disconnected(NOT_AUTHORIZED)


def test_a_key_set_from_a_server(keys, name):
    file, rsa_key, _ = keys
    with serve(lambda _: (200, file.read_text())) as server:
        with broker_with({"kind": "jwt", "jwt": {"jwksUrl": server.url}}) as broker:
            until(lambda: server.requests, what="the key set to be read")
            password = token(rsa_key, "RS256", headers={"kid": "r"})
            with broker.client(name, username="x", password=password) as client:
                client.ping()


# ---- client certificates ---------------------------------------------------------------------


def test_a_certificate_names_the_user(tmp_path, name):
    rules = tmp_path / "rules"
    rules.write_text(f"allow user good publish {name}/%u\ndeny all publish #\n")
    ca = Authority(tmp_path, "clients")
    good = ca.issue("good")
    ssl_config = {"clientAuth": "OPTIONAL", "trustCertsFile": ca.path, "crlFile": ca.revoke(ca.issue("revoked"))}
    sets = {**NO_LOGIN_WAIT, "authentication.chain.kind": "tlsIdentity", "authorization.file": rules}
    with Listeners(tmp_path, sets, ssl_config) as broker:
        with Raw(stream=broker.stream("tls", client=good)) as client:
            client.connect(name)
            assert client.answer(raw.PUBACK, client.publish(f"{name}/good", qos=1)).reason in (0x00, 0x10)
            assert client.answer(raw.PUBACK, client.publish(f"{name}/other", qos=1)).reason == NOT_AUTHORIZED
        with Raw(stream=broker.stream("tls", client=good)) as client:
            client.send(raw.connect(name, username="other", password=b"x"))
            client.expect_refused(BAD_CREDENTIALS)
        with Raw(stream=broker.stream("tls")) as client:
            client.send(raw.connect(name))
            client.expect_refused(NOT_AUTHORIZED)


@pytest.mark.parametrize("chain", [False, True])
def test_a_certificate_names_the_user_of_an_anonymous_client(tmp_path, users, name, chain):
    rules = tmp_path / "rules"
    rules.write_text(f"allow user good publish {name}/%u\nallow anonymous publish {name}/anonymous\ndeny all publish #\n")
    ca = Authority(tmp_path, "clients")
    ssl_config = {"clientAuth": "OPTIONAL", "trustCertsFile": ca.path}
    sets = {**NO_LOGIN_WAIT, "allowAnonymous": "true", "authorization.file": rules}
    if chain:
        sets |= {"authentication.chain.kind": "passwordFile", "authentication.chain.file": users}
    with Listeners(tmp_path, sets, ssl_config) as broker:
        for certificate, allowed in ((ca.issue("good"), "good"), (None, "anonymous")):
            with Raw(stream=broker.stream("tls", client=certificate)) as client:
                client.connect(name)
                for topic in ("good", "anonymous"):
                    reason = client.answer(raw.PUBACK, client.publish(f"{name}/{topic}", qos=1)).reason
                    assert reason in ((0x00, 0x10) if topic == allowed else (NOT_AUTHORIZED,)), topic


# ---- HTTP ------------------------------------------------------------------------------------


class Listening(http.server.ThreadingHTTPServer):
    """It takes as many connections at once as the broker opens."""

    request_queue_size = 256


class Server:
    """An HTTP server that answers with (status, text); `requests` are the bodies it got."""

    def __init__(self, answer):
        self.requests: list[dict] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                asked = json.loads(body) if body else {}
                outer.requests.append({**asked, "authorization": self.headers.get("authorization")})
                status, text = answer(asked)
                data = text.encode()
                self.send_response(status)
                if status != 204:
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(data)

            do_GET = do_POST = handle_any

            def log_message(self, *_):
                pass

        self.server = Listening(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/auth"


@contextlib.contextmanager
def serve(answer):
    server = Server(answer)
    thread = threading.Thread(target=server.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()


def judge(asked):
    match asked.get("username"):
        case "alice" if asked.get("password") == "right":
            return 200, json.dumps({"result": "allow"})
        case "plain":
            return 204, ""
        case "gone":
            return 404, ""
        case "odd":
            return 200, "<html>"
        case "broken":
            return 500, ""
        case "ignored":
            return 200, json.dumps({"result": "ignore"})
    return 200, json.dumps({"result": "deny"})


def test_a_server_is_asked(tmp_path, name):
    secret = tmp_path / "token"
    secret.write_text("s3cr3t\n")
    with serve(judge) as server:
        settings = {"url": server.url, "tokenFile": str(secret)}
        with broker_with({"kind": "http", "http": settings}) as broker:
            with broker.client(name, username="alice", password=b"right") as client:
                client.ping()
            asked = server.requests[-1]
            assert asked["clientid"] == name and asked["username"] == "alice"
            assert asked["peerhost"] == "127.0.0.1" and asked["authorization"] == "Bearer s3cr3t"
            with broker.client(name, username="plain", password=b"") as client:
                client.ping()
            for user in ["alice", "mallory", "gone", "odd", "broken", "ignored"]:
                refused(broker, BAD_CREDENTIALS, username=user, password=b"wrong")
            assert not any("wrong" in line or "s3cr3t" in line for line in broker.log_text)


def test_an_answer_that_expires_disconnects(name):
    def answer(_):
        return 200, json.dumps({"result": "allow", "expire_at": int(time.time()) + 6})

    with serve(answer) as server, broker_with({"kind": "http", "http": {"url": server.url}}) as broker:
        with broker.client(name, username="alice", password=b"right") as client:
            client.ping()
            client.expect_disconnected(NOT_AUTHORIZED)


def test_a_dead_server_denies(name):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/auth"
        with broker_with({"kind": "http", "http": {"url": url}}) as broker:
            refused(broker, BAD_CREDENTIALS, username="alice", password=b"right")
            # Why is for the operator alone.
            until(lambda: any("http" in line and "WARN" in line for line in broker.log_text), what="a line in the log")


def test_a_server_that_does_not_answer_denies(name):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/auth"
        with broker_with({"kind": "http", "http": {"url": url, "timeoutMs": 300}}, allowAnonymous=True) as broker:
            with broker.raw() as waiting, broker.client(name) as other:
                waiting.send(raw.connect(name + "2", username="alice", password=b"right"))
                other.ping()
                waiting.expect_refused(BAD_CREDENTIALS)


def test_what_one_does_not_know_the_next_is_asked(users, name):
    with serve(judge) as server:
        chain = [{"kind": "passwordFile", "file": str(users)}, {"kind": "http", "http": {"url": server.url}}]
        with broker_with(*chain) as broker:
            with broker.client(name, username="bob", password=b"battery staple") as client:
                client.ping()
            # The first knows alice, and has the last word about her.
            refused(broker, BAD_CREDENTIALS, username="alice", password=b"right")
            assert server.requests == []
            with broker.client(name, username="plain", password=b"") as client:
                client.ping()
            assert len(server.requests) == 1


# ---- PostgreSQL ------------------------------------------------------------------------------


def test_users_and_their_rules_in_a_database(postgres_server, users, name):
    hashed = next(line for line in users.read_text().splitlines() if line.startswith("alice:")).split(":", 1)[1]
    postgres_server.sql(
        f"""
        CREATE TABLE mqtt_user (username text PRIMARY KEY, password_hash text, is_superuser boolean);
        INSERT INTO mqtt_user VALUES ('alice', '{hashed}', false), ('root', '{hashed}', true);
        CREATE TABLE mqtt_acl (number serial, username text, permission text, action text, topic text);
        INSERT INTO mqtt_acl (username, permission, action, topic) VALUES
            ('alice', 'allow', 'publish', '{name}/%u'), ('alice', 'deny', 'all', '#'), ('root', 'deny', 'all', '#');
        """
    )
    settings = {
        "connection": postgres_server.connection,
        "passwordFile": str(postgres_server.password_file),
        "aclQuery": "SELECT permission, action, topic FROM mqtt_acl WHERE username = $1 ORDER BY number",
    }
    login = {"username": "alice", "password": b"correct horse"}
    with broker_with({"kind": "postgres", "postgres": settings}) as broker:
        with broker.client(name, **login) as client:
            assert client.answer(raw.PUBACK, client.publish(f"{name}/alice", qos=1)).reason in (0x00, 0x10)
            assert client.answer(raw.PUBACK, client.publish(f"{name}/bob", qos=1)).reason == NOT_AUTHORIZED
        with broker.client(name, username="root", password=b"correct horse") as client:
            assert client.answer(raw.PUBACK, client.publish(f"{name}/bob", qos=1)).reason in (0x00, 0x10)
        refused(broker, BAD_CREDENTIALS, username="alice", password=b"wrong")
        refused(broker, BAD_CREDENTIALS, username="' OR 1=1 --", password=b"correct horse")
        # The server goes away and comes back.
        postgres_server.stop()
        refused(broker, BAD_CREDENTIALS, **login)
        postgres_server.start()
        with broker.client(name, **login) as client:
            client.ping()


def test_users_of_a_database_are_looked_up_again(postgres_server, users, name):
    hashed = next(line for line in users.read_text().splitlines() if line.startswith("alice:")).split(":", 1)[1]
    postgres_server.sql(
        f"""
        CREATE TABLE mqtt_user (username text PRIMARY KEY, password_hash text, is_superuser boolean);
        INSERT INTO mqtt_user VALUES ('alice', '{hashed}', false), ('bob', '{hashed}', false), ('root', '{hashed}', true);
        CREATE TABLE mqtt_acl (number serial, username text, permission text, action text, topic text);
        INSERT INTO mqtt_acl (username, permission, action, topic) VALUES ('root', 'deny', 'publish', '#');
        """
    )
    settings = {
        "connection": postgres_server.connection,
        "passwordFile": str(postgres_server.password_file),
        "aclQuery": "SELECT permission, action, topic FROM mqtt_acl WHERE username = $1 ORDER BY number",
    }

    def may_publish(client, topic):
        return client.answer(raw.PUBACK, client.publish(topic, qos=1)).reason != NOT_AUTHORIZED

    sets = {"authentication.recheckSeconds": 1}
    with broker_with({"kind": "postgres", "postgres": settings}, **sets) as broker, contextlib.ExitStack() as stack:

        def client(user, number=0):
            login = {"username": user, "password": b"correct horse"}
            return stack.enter_context(broker.client(f"{name}{user}{number}", **login))

        alices, bob, root = [client("alice", number) for number in range(6)], client("bob"), client("root")
        for alice in alices:
            alice.subscribe(f"{name}/secret", f"{name}/open")
        assert may_publish(root, f"{name}/root")
        # Rights that are withdrawn end subscriptions; those of others stay as they are.
        postgres_server.sql(
            f"""
            INSERT INTO mqtt_acl (username, permission, action, topic) VALUES ('alice', 'deny', 'subscribe', '{name}/secret');
            UPDATE mqtt_user SET is_superuser = false WHERE username = 'root';
            """
        )
        until(lambda: broker.metric("heraldmq_subscriptions_revoked_total") == len(alices), what="the end of subscriptions")
        until(lambda: not may_publish(root, f"{name}/root"), what="a superuser to be none")
        bob.published(f"{name}/secret", b"secret")
        bob.published(f"{name}/open", b"open")
        for alice in alices:
            assert alice.until(b"open") == []
        # A database that does not answer disconnects nobody.
        postgres_server.stop()
        until(lambda: any("postgres" in line and "WARN" in line for line in broker.log_text), what="a line in the log")
        for one in [*alices, bob, root]:
            one.ping()
        postgres_server.start()
        postgres_server.sql("DELETE FROM mqtt_user WHERE username = 'alice'; DELETE FROM mqtt_acl;")
        for alice in alices:
            alice.expect_disconnected(NOT_AUTHORIZED)
        until(lambda: may_publish(root, f"{name}/root"), what="a rule to be gone")
        bob.ping()


# ---- SCRAM -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_scram(tmp_path_factory):
    file = tmp_path_factory.mktemp("scram") / "passwords"
    passwd(file, "alice", "correct horse", "--scram")
    with broker_with({"kind": "scram", "file": str(file)}) as broker:
        yield broker


def method_and(data, method="SCRAM-SHA-256"):
    return {"authentication_method": method, "authentication_data": data}


def scram(client, exchange, method="SCRAM-SHA-256", *, client_id="", **properties):
    """An exchange up to the proof; what comes then is the caller's to expect."""
    client.send(raw.connect(client_id, props={**method_and(exchange.first, method), **properties}))
    # [MQTT-4.12.0-2] [MQTT-4.12.0-5]
    challenge = client.expect(raw.AUTH, reason=0x18)
    assert challenge.props["authentication_method"] == method
    # [MQTT-4.12.0-3]
    client.send(raw.auth(0x18, method_and(exchange.final(challenge.props["authentication_data"]), method)))


@pytest.mark.parametrize("method", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("expiry", [0, 60])
def test_scram(by_scram, name, method, expiry):
    # [MQTT-4.12.0-5] CONNACK names the method as well
    exchange = Scram("alice", "correct horse", method)
    with by_scram.raw() as client:
        scram(client, exchange, method, client_id=name, session_expiry=expiry)
        connack = client.expect(raw.CONNACK, reason=0)
        assert connack.props["authentication_method"] == method
        assert exchange.confirms(connack.props["authentication_data"])
        client.subscribe(name)
        client.published(name, b"x")
        assert client.message().payload == b"x"


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_scram_with_a_wrong_password(by_scram, user):
    # [MQTT-4.12.0-4] an unknown user is challenged as well
    with by_scram.raw() as client:
        scram(client, Scram(user, "wrong"))
        client.expect_refused(NOT_AUTHORIZED)


def test_a_user_of_scram_that_is_removed_is_disconnected(tmp_path, name):
    file = tmp_path / "users"
    for user in ("alice", "bob"):
        passwd(file, user, "right", "--scram")
    with broker_with({"kind": "scram", "file": str(file)}) as broker, broker.raw() as alice, broker.raw() as bob:
        for client, user in ((alice, "alice"), (bob, "bob")):
            scram(client, Scram(user, "right"), client_id=name + user)
            client.expect(raw.CONNACK, reason=0)
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith("alice:")))
        reload(broker)
        alice.expect_disconnected(NOT_AUTHORIZED)
        bob.ping()


def test_scram_out_of_order(by_scram):
    with by_scram.raw() as client:
        client.send(raw.connect("", props=method_and(b"nonsense")))
        client.expect_refused(NOT_AUTHORIZED)
    with by_scram.raw() as client:
        client.send(raw.connect("", props=method_and(b"", "SCRAM-SHA-1")))
        client.expect_refused(BAD_METHOD)
    with by_scram.raw() as client:
        # [MQTT-3.1.0-2]
        client.send(raw.connect("", props=method_and(Scram("alice", "x").first)))
        client.expect(raw.AUTH)
        client.send(raw.connect("", props=method_and(Scram("alice", "x").first)))
        client.expect_refused(PROTOCOL_ERROR)
    for reason, method in [(0x19, "SCRAM-SHA-256"), (0x18, "SCRAM-SHA-512")]:
        with by_scram.raw() as client:
            client.send(raw.connect("", props=method_and(Scram("alice", "x").first)))
            client.expect(raw.AUTH)
            client.send(raw.auth(reason, method_and(b"x", method)))
            client.expect_refused(PROTOCOL_ERROR)
    # [MQTT-3.1.2-30] AUTH or DISCONNECT, and nothing else
    for packet in (raw.PING, raw.publish("a", b""), raw.subscribe(1, [("a", 0)])):
        with by_scram.raw() as client:
            client.send(raw.connect("", props=method_and(Scram("alice", "x").first)))
            client.expect(raw.AUTH)
            client.send(packet)
            client.expect_closed()
    with by_scram.raw() as client:
        client.send(raw.auth(0x18, method_and(b"x")))
        client.expect_closed()


def again(client, exchange, method="SCRAM-SHA-256"):
    client.send(raw.auth(0x19, method_and(exchange.first, method)))
    challenge = client.expect(raw.AUTH, reason=0x18)
    client.send(raw.auth(0x18, method_and(exchange.final(challenge.props["authentication_data"]), method)))


def test_authenticating_again(by_scram, name):
    with by_scram.raw() as client:
        scram(client, Scram("alice", "correct horse"), client_id=name)
        client.expect(raw.CONNACK, reason=0)
        client.subscribe(name)
        exchange = Scram("alice", "correct horse")
        again(client, exchange)
        done = client.expect(raw.AUTH, reason=0)
        assert exchange.confirms(done.props["authentication_data"])
        client.published(name, b"x")
        assert client.message().payload == b"x"
        # [MQTT-4.12.1-2]
        again(client, Scram("alice", "wrong"))
        client.expect_disconnected(NOT_AUTHORIZED)


def test_authenticating_again_by_another_method(by_scram, name):
    # [MQTT-4.12.1-1]
    with by_scram.raw() as client:
        scram(client, Scram("alice", "correct horse"), client_id=name)
        client.expect(raw.CONNACK, reason=0)
        client.send(raw.auth(0x19, method_and(b"x", "SCRAM-SHA-512")))
        client.expect_disconnected(PROTOCOL_ERROR)


def test_paho_by_scram(by_scram, name):
    """A client of the field goes through the first step; paho-mqtt 2 cannot answer a challenge."""
    connect = props("CONNECT", AuthenticationMethod="SCRAM-SHA-1", AuthenticationData=b"x")
    with Paho(by_scram.port, name, connect=connect, wait=False) as client:
        _, reason, _ = client.connected.get(timeout=DEADLINE_S)
        assert reason.value == BAD_METHOD

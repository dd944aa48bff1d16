"""Defence against abuse: limits per address, waits after failed logins, flapping, bans, connections
that never say anything, and the token of the HTTP port; while an ordinary client is served.

Loopback addresses are exempt by default, so most brokers here include them; 127.0.0.1 is the ordinary
client, 127.0.0.2 and others are the peers that misbehave.
"""

import collections
import contextlib
import json
import signal
import socket
import ssl
import threading
import urllib.error
import urllib.request

import pytest

from harness import raw
from harness.broker import BASE, Broker, run
from harness.listeners import Listeners
from harness.raw import CONNACK, Raw
from harness.scram import Scram
from harness.wait import DEADLINE_S, Stopwatch, until
from test_authentication import method_and, passwd, serve
from test_http import metrics

BAD, OTHER = "127.0.0.2", "127.0.0.3"
# Of many connections, whose ports other tests do not find taken.
CROWD = "127.0.0.77"
INCLUDED = {"abuse.includeLoopback": True}
TOKEN = "correct-horse-battery-staple"


def peer(broker, source, version=5) -> Raw:
    return Raw(broker.port, version=version, source=source)


def connected(broker, source, client_id="") -> Raw:
    client = peer(broker, source)
    client.connect(client_id)
    return client


def is_refused(broker, source) -> bool:
    """Whether a connection is closed without a word when it is accepted."""
    with peer(broker, source) as client:
        try:
            client.send(raw.connect(""))
            return client.recv().kind != CONNACK
        except (raw.Closed, ConnectionError):
            return True


def counted(broker, family, **labels) -> float:
    """A metric's value."""
    for sample in metrics(broker)[family].samples:
        if sample.labels == labels:
            return sample.value
    raise AssertionError(f"no {family} with {labels}")


def connect_code(broker, source, version=5, client_id="", **fields) -> int:
    """The code that a CONNECT is answered with."""
    with peer(broker, source, version) as client:
        client.send(raw.connect(client_id, version=version, **fields))
        return client.expect(CONNACK).reason


class Chatter:
    """An ordinary client that talks to itself; all it sends must come back."""

    def __init__(self, broker, name):
        self.client, self.name, self.sent = broker.client(name), name, 0
        self.client.subscribe(name, qos=1)

    def talk(self):
        self.sent += 1
        self.client.published(self.name, str(self.sent), qos=1)
        self.client.message(payload=str(self.sent))

    def __enter__(self):
        self.talk()
        return self

    def __exit__(self, *_):
        self.talk()
        self.client.close()


# ---- limits per address ------------------------------------------------------------------------


def test_connections_per_address(name):
    with Broker({**INCLUDED, "abuse.connectionsPerAddress": 3}) as broker, Chatter(broker, name):
        kept = [connected(broker, BAD) for _ in range(3)]
        assert is_refused(broker, BAD)
        assert not is_refused(broker, OTHER)
        # A place is free when one of them is closed, whatever it had done so far.
        kept.pop().close()
        until(lambda: not is_refused(broker, BAD), what="a place for another connection")
        for client in kept:
            client.close()
        assert counted(broker, "heraldmq_refusals", reason="connections") >= 1


def test_places_come_back_however_connections_end(name):
    # Accepted, refused, disconnected, taken over, lost, reset: each gives its place back.
    with Broker({**INCLUDED, "abuse.connectionsPerAddress": 2, "eventLoops": 2}) as broker:

        def end_in_each_way():
            connected(broker, BAD, name + "a").close()
            connected(broker, BAD, name + "b").reset()
            with connected(broker, BAD, name + "c") as client:
                client.send(raw.disconnect())
                client.expect_closed()
            with peer(broker, BAD) as client:
                client.send(raw.PING)
                client.expect_closed()
            with connected(broker, BAD, name + "d") as old, connected(broker, BAD, name + "d") as new:
                old.expect_disconnected(0x8E)
                new.ping()

        for _ in range(3):
            retried(end_in_each_way)


def retried(action):
    """A place is free a moment after the client has seen the end: tries until the broker knows."""

    def succeeds():
        try:
            action()
        except (raw.Closed, ConnectionError, AssertionError) as error:
            failures.append(error)
            return False
        return True

    failures = []
    until(succeeds, what=lambda: f"success instead of {failures[-1]!r}")


def test_new_connections_per_second(name):
    sets = {**INCLUDED, "abuse.connectionsPerSecondPerAddress": 5}
    with Broker(sets) as broker, Chatter(broker, name) as chatter:
        until(lambda: is_refused(broker, BAD), what="one connection too many in a second")
        chatter.talk()
        assert not is_refused(broker, OTHER)
        until(lambda: not is_refused(broker, BAD), what="the next second")


def test_loopback_is_exempt_by_default(name):
    with Broker({"abuse.connectionsPerAddress": 1, "abuse.connectionsPerSecondPerAddress": 1}) as broker:
        with contextlib.ExitStack() as stack:
            for number in range(5):
                stack.enter_context(broker.client(f"{name}{number}"))


def test_limits_change_at_sighup(name):
    with Broker(INCLUDED) as broker:
        clients = [peer(broker, BAD) for _ in range(3)]
        # They are accepted while there is no limit, and not counted; those that the kernel still has for itself at the
        # reload would be.
        until(lambda: counted(broker, "heraldmq_connections_open") == 3, what="the connections")
        config = {
            "mqttServerConfig": {"tcpListener": {"host": "127.0.0.1", "port": 0}},
            "http": {"port": 0},
            "abuse": {"connectionsPerAddress": 1},
        }
        broker.write_config(config)
        broker.signal(signal.SIGHUP)
        until(lambda: broker.find("configuration reloaded"), what="the reload")
        with connected(broker, BAD):
            assert is_refused(broker, BAD), "the new limit"
        for client in clients:
            client.close()


# ---- failed logins -----------------------------------------------------------------------------

DENYING = {**INCLUDED, "allowAnonymous": False, "abuse.failedLogins": 3}


@pytest.mark.parametrize("version, denied, waits", [(5, 0x87, 0x97), (4, 5, 3)])
def test_failed_logins_make_a_user_name_wait_at_its_address(version, denied, waits):
    with Broker({**DENYING, "abuse.failedLoginWaitSeconds": 3600}) as broker:

        def login(source, user, guess):
            return connect_code(broker, source, version, username=user, password=guess)

        # Whatever passwords it tries.
        assert [login(BAD, "u", b"guess %d" % n) for n in range(3)] == [denied] * 3
        assert login(BAD, "u", b"another") == waits
        refused = until(lambda: [line for line in broker.find("a client is refused") if line["reason"] == "failed_logins"])
        assert refused[0]["user"] == "u" and refused[0]["peer"].startswith(BAD), refused
        assert login(BAD, "v", b"guess") == denied
        assert login(OTHER, "u", b"guess") == denied
        assert counted(broker, "heraldmq_failed_logins") == 5
        assert counted(broker, "heraldmq_refusals", reason="failed_logins") == 1


def test_the_wait_ends():
    with Broker({**DENYING, "abuse.failedLoginWaitSeconds": 1}) as broker:
        for _ in range(3):
            assert connect_code(broker, BAD, username="u") == 0x87
        assert connect_code(broker, BAD, username="u") == 0x97
        until(lambda: connect_code(broker, BAD, username="u") == 0x87, what="the end of the wait")


def judge(asked):
    return 200, json.dumps({"result": "allow" if asked["password"] == "right" else "deny"})


@contextlib.contextmanager
def judging():
    """A broker whose authenticator knows any user by the password "right", and what it was asked."""
    with serve(judge) as server:
        chain = [{"kind": "http", "http": {"url": server.url}}]
        with Broker(INCLUDED, config={**BASE, "authentication": {"chain": chain}}) as broker:
            yield broker, server.requests


class Guesser(threading.Thread):
    """Tries to log in, again and again, until it has done so often and is told to stop."""

    def __init__(self, broker, credentials, often):
        super().__init__(daemon=True)
        self.broker, self.credentials, self.often = broker, credentials, often
        self.codes, self.is_over = [], threading.Event()

    def run(self):
        while not self.is_over.is_set() or len(self.codes) < self.often:
            user, password = self.credentials(len(self.codes))
            with peer(self.broker, BAD) as client:
                client.send(raw.connect("", username=user, password=password))
                try:
                    self.codes.append(client.recv().reason)
                except (raw.Closed, ConnectionError):
                    # It waited for its turn until the time for its CONNECT was over.
                    self.codes.append(None)

    def __enter__(self):
        self.start()
        until(lambda: len(self.codes) >= self.often, what="guesses before others come")
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join(DEADLINE_S)


@pytest.mark.parametrize("is_shared", [False, True], ids=["names of their own", "one user name"])
def test_one_device_with_a_wrong_password_holds_up_nobody_at_its_address(is_shared):
    with judging() as (broker, asked):
        name = (lambda _: "fleet") if is_shared else "device {}".format
        with Guesser(broker, lambda _: (name(0), b"outdated"), often=20) as wrong:
            codes = [
                connect_code(broker, BAD, username=name(number), password=b"right") for number in range(1, 200)
            ]
        assert codes == [0] * 199
        assert set(wrong.codes) == {0x86, 0x97}
        # What it shows is judged five times, and then less and less often.
        assert sum(request["password"] == "outdated" for request in asked) < 20
        listed = run("failed-logins", "--url", f"http://127.0.0.1:{broker.http_port}", "--no-header")
        address, users = listed.stdout.split()[0], listed.stdout.split(maxsplit=5)[-1]
        assert address == BAD and name(0) in users and "device 7" not in users, listed


def test_guesses_of_many_user_names_hold_up_nobody_else_at_their_address():
    with judging() as (broker, asked):
        assert connect_code(broker, BAD, username="user 3", password=b"right") == 0
        guess = lambda number: (f"user {number % 100}", b"guess %d" % number)
        with Guesser(broker, guess, often=150):
            for number in range(100):
                assert connect_code(broker, BAD, username=f"device {number}", password=b"right") == 0
            # Who was right is in at once, however often others have guessed.
            assert connect_code(broker, BAD, username="user 3", password=b"right") == 0
        assert connect_code(broker, OTHER, username="user 4", password=b"right") == 0


def test_guesses_of_many_user_names_from_one_address_are_few():
    with serve(judge) as server:
        chain = [{"kind": "http", "http": {"url": server.url}}]
        sets = {**INCLUDED, "abuse.failedLoginsPerMinutePerAddress": 3, "limits.connection.connectTimeoutMs": 1000}
        with Broker(sets, config={**BASE, "authentication": {"chain": chain}}) as broker:
            clock = Stopwatch()
            guess = lambda number: (f"user {number % 10}", b"guess %d" % number)
            with Guesser(broker, guess, often=16) as guesser:
                pass
            # Each name once, three more, and three a minute.
            most = 10 + 3 + 3 * (1 + int(clock.seconds() / 60))
            assert guesser.codes.count(0x86) <= len(server.requests) <= most
            assert None in guesser.codes, "the others have waited for their turn"


def test_a_password_that_was_corrected_counts_when_files_are_read_again(passwords):
    with with_chain({**passwords, "abuse.failedLoginWaitSeconds": 3600}, "passwordFile") as broker:
        early = {"username": "carol", "password": b"battery staple"}
        until(lambda: connect_code(broker, BAD, **early) == 0x97, what="the wait")
        passwd(passwords["passwords"], "carol", "battery staple")
        broker.signal(signal.SIGHUP)
        until(lambda: connect_code(broker, BAD, **early) == 0, what="the login")


@pytest.fixture(scope="module")
def passwords(tmp_path_factory):
    file = tmp_path_factory.mktemp("abuse") / "passwords"
    for user in ("alice", "bob"):
        passwd(file, user, "correct horse", "--scram")
    return {**INCLUDED, "abuse.failedLogins": 3, "authentication.hashThreads": 1, "passwords": str(file)}


def with_chain(settings, kind) -> Broker:
    sets = dict(settings)
    chain = [{"kind": kind, "file": sets.pop("passwords")}]
    return Broker(sets, config={**BASE, "authentication": {"chain": chain}})


def test_logins_at_the_same_time_fail_no_more_often(passwords):
    with with_chain({**passwords, "abuse.failedLoginWaitSeconds": 3600}, "passwordFile") as broker:
        many = [peer(broker, BAD) for _ in range(60)]
        for client in many:
            client.send(raw.connect("", username="alice", password=b"guess"))
        codes = [client.expect(CONNACK).reason for client in many]
        for client in many:
            client.close()
        assert sorted(codes) == [0x86] * 3 + [0x97] * 57
        assert counted(broker, "heraldmq_failed_logins") == codes.count(0x86)


def test_many_devices_of_one_address_log_in_at_the_same_time(passwords):
    with with_chain(passwords, "passwordFile") as broker:
        many = [peer(broker, BAD) for _ in range(60)]
        for client in many:
            client.send(raw.connect("", username="alice", password=b"correct horse"))
        assert [client.expect(CONNACK).reason for client in many] == [0] * 60
        for client in many:
            client.close()


class SlowJudge:
    """What an HTTP authenticator answers: each login takes `seconds`, until `wanted` have been under way at once."""

    def __init__(self, wanted, seconds=0.1):
        self.changed, self.wanted, self.under_way, self.most = threading.Condition(), wanted, 0, 0
        self.seconds = seconds

    def __call__(self, asked):
        with self.changed:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.wanted, self.seconds)
            self.under_way -= 1
        return 200, json.dumps({"result": "allow" if asked["password"] == "right" else "deny"})


@pytest.mark.parametrize("is_shared", [True, False], ids=["one user name", "names of their own"])
def test_hundreds_of_one_address_are_judged_at_the_same_time(is_shared):
    # Long enough for all to come, also on a busy machine; nobody waits for it otherwise.
    judge = SlowJudge(64, seconds=2)
    with serve(judge) as server, contextlib.ExitStack() as stack:
        chain = [{"kind": "http", "http": {"url": server.url}}]
        sets = {**INCLUDED, "abuse.failedLoginWaitSeconds": 3600}
        broker = stack.enter_context(Broker(sets, config={**BASE, "authentication": {"chain": chain}}))
        devices = [stack.enter_context(peer(broker, BAD)) for _ in range(200)]
        for number, client in enumerate(devices):
            user = "device" if is_shared else f"device{number}"
            client.send(raw.connect("", username=user, password=b"right"))
        assert [client.expect(CONNACK).reason for client in devices] == [0] * 200
        assert judge.most >= 64
        # Guesses from there are few, although all of these have succeeded.
        before = len(server.requests)
        guessing = [stack.enter_context(peer(broker, BAD)) for _ in range(60)]
        for client in guessing:
            client.send(raw.connect("", username="victim", password=b"guess"))
        codes = [client.expect(CONNACK).reason for client in guessing]
        assert sorted(codes) == [0x86] * 5 + [0x97] * 55
        assert len(server.requests) - before == 5


def test_logins_of_one_address_have_a_limit():
    judge = SlowJudge(200)
    with serve(judge) as server, contextlib.ExitStack() as stack:
        chain = [{"kind": "http", "http": {"url": server.url}}]
        sets = {**INCLUDED, "abuse.loginsPerAddress": 12}
        broker = stack.enter_context(Broker(sets, config={**BASE, "authentication": {"chain": chain}}))
        devices = [stack.enter_context(peer(broker, BAD)) for _ in range(60)]
        for client in devices:
            client.send(raw.connect("", username="device", password=b"right"))
        assert [client.expect(CONNACK).reason for client in devices] == [0] * 60
        assert judge.most == 12


def test_a_login_counts_although_its_client_has_gone(passwords):
    with with_chain(passwords, "passwordFile") as broker:
        for _ in range(3):
            with peer(broker, BAD) as client:
                client.send(raw.connect("", username="alice", password=b"guess"))
        until(lambda: counted(broker, "heraldmq_failed_logins") == 3)


def by_scram(client, user, password):
    """The code that a login by SCRAM ends with."""
    exchange = Scram(user, password)
    client.send(raw.connect("", props=method_and(exchange.first)))
    answer = client.recv()
    if answer.kind == raw.AUTH:
        client.send(raw.auth(0x18, method_and(exchange.final(answer.props["authentication_data"]))))
        answer = client.expect(CONNACK)
    return answer.reason


def test_failures_by_scram_count_for_the_account(passwords):
    with with_chain(passwords, "scram") as broker:

        def code(source, user, password):
            with peer(broker, source) as client:
                return by_scram(client, user, password)

        assert [code(BAD, "bob", "guess") for _ in range(2)] == [0x87] * 2
        # A success of somebody else clears his address, and not what he has tried on others.
        assert code(BAD, "alice", "correct horse") == 0
        assert code(BAD, "bob", "guess") == 0x87
        assert code(BAD, "bob", "correct horse") == 0x97
        assert code(BAD, "alice", "correct horse") == 0
        assert code(OTHER, "bob", "correct horse") == 0


def test_guesses_by_scram_are_few_also_between_successes(passwords):
    with with_chain({**passwords, "abuse.failedLoginWaitSeconds": 3600}, "scram") as broker:
        codes, clock = [], Stopwatch()
        for number in range(40):
            with peer(broker, BAD) as client:
                codes.append(by_scram(client, "bob", f"guess {number}"))
            with peer(broker, BAD) as client:
                assert by_scram(client, "alice", "correct horse") == 0
        # Beyond the third one after 1 s, one after 2 s more, one after 4 s more.
        looked_at = codes.count(0x87)
        assert 3 <= looked_at <= 3 + int(clock.seconds() + 1).bit_length()
        assert codes.count(0x97) == 40 - looked_at
        assert counted(broker, "heraldmq_failed_logins") == looked_at


def test_failures_of_authenticating_again_count(passwords):
    with with_chain({**passwords, "abuse.failedLoginWaitSeconds": 3600}, "scram") as broker:
        clock = Stopwatch()

        def guess_again(number):
            """Logs in to an account of its own, and goes on to another one."""
            with peer(broker, BAD) as client:
                assert by_scram(client, "alice", "correct horse") == 0
                guess = Scram("bob", f"guess {number}")
                client.send(raw.auth(0x19, method_and(guess.first)))
                challenge = client.expect(raw.AUTH, reason=0x18)
                client.send(raw.auth(0x18, method_and(guess.final(challenge.props["authentication_data"]))))
                return client.expect(raw.DISCONNECT).reason

        codes = [guess_again(number) for number in range(40)]
        # One more is looked at when a wait has ended, which begins the next, twice as long.
        while codes[-1] != 0x87:
            codes.append(guess_again(len(codes)))
        with peer(broker, BAD) as client:
            assert by_scram(client, "bob", "correct horse") == 0x97
        looked_at = codes.count(0x87)
        assert 3 <= looked_at <= 3 + int(clock.seconds() + 1).bit_length()
        assert counted(broker, "heraldmq_failed_logins") == looked_at


def test_nobody_is_shut_out_by_failures_elsewhere(passwords):
    with with_chain(passwords, "passwordFile") as broker:
        right = {"username": "alice", "password": b"correct horse"}
        assert connect_code(broker, OTHER, **right) == 0
        for number in range(20):
            source = f"127.0.1.{number}"
            assert connect_code(broker, source, username="alice", password=b"guess") == 0x86
        assert connect_code(broker, OTHER, **right) == 0
        assert connect_code(broker, "127.0.2.1", **right) == 0
        assert counted(broker, "heraldmq_abuse_tracked", kind="failed_accounts") == 1


def test_secrets_are_in_no_log():
    with Broker({**DENYING, "log.level": "trace"}) as broker:
        for _ in range(5):
            connect_code(broker, BAD, username="u", password=b"hunter2hunter2")
        with peer(broker, BAD) as client:
            client.send(raw.connect("x", username="u", password=b"hunter2hunter2", flags=0xC3))
            client.expect_refused(0x81, 0x82)
        assert not any("hunter2" in line for line in broker.log_text)


# ---- flapping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_flapping(name, clean):
    sets = {**INCLUDED, "abuse.flappingConnections": 3, "abuse.flappingBanSeconds": 2}
    with Broker(sets) as broker, Chatter(broker, name):

        def connects(client_id, **fields):
            with peer(broker, BAD) as client:
                client.connect(client_id, clean=clean, **fields)
                client.send(raw.disconnect())

        for _ in range(3):
            connects(name + "f")
        with peer(broker, BAD) as client:
            client.send(raw.connect(name + "f", clean=clean))
            client.expect(CONNACK, reason=0)
            client.expect_disconnected(0x98)
        # From wherever; others do as they like.
        assert connect_code(broker, OTHER, client_id=name + "f") == 0x8A
        assert connect_code(broker, OTHER, version=4, client_id=name + "f") == 5
        connects(name + "other")
        until(lambda: connect_code(broker, OTHER, client_id=name + "f") != 0x8A, what="the end of the ban")


# ---- bans --------------------------------------------------------------------------------------


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


def request(broker, method, path, body=None, token=TOKEN):
    """Status and body of a request that changes something."""
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{broker.http_port}{path}"
    made = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(made, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ban(broker, **fields) -> dict:
    status, body = request(broker, "POST", "/api/v1/bans", fields)
    assert status == 201, body
    return json.loads(body)


def bans(broker) -> list[dict]:
    return broker.api("/api/v1/bans")["items"]


def test_a_ban_disconnects_and_keeps_out(name, token_file):
    with Broker({"http.tokenFile": token_file}) as broker, Chatter(broker, name):
        subjects = [{"client": name + "c"}, {"user": name + "u"}, {"address": BAD}, {"address": f"{OTHER}/32"}]
        for subject in subjects:
            source = OTHER if "/" in subject.get("address", "") else BAD
            client = peer(broker, source)
            client.connect(name + "c", username=name + "u")
            made = ban(broker, **subject, reason="abuse")
            client.expect_disconnected(0x98)
            if "address" in subject:
                assert is_refused(broker, source)
            else:
                assert connect_code(broker, OTHER, client_id=name + "c", username=name + "u") == 0x8A
                assert connect_code(broker, OTHER, 4, client_id=name + "c", username=name + "u") == 5
            assert [listed["id"] for listed in bans(broker)] == [made["id"]]
            assert counted(broker, "heraldmq_bans") == 1
            assert request(broker, "DELETE", f"/api/v1/bans/{made['id']}") == (204, "")
            assert connect_code(broker, source, client_id=name + "c", username=name + "u") == 0


def test_a_network_is_banned_as_a_whole(name, token_file):
    with Broker({"http.tokenFile": token_file}) as broker, Chatter(broker, name):
        ban(broker, address="127.0.2.0/23")
        assert is_refused(broker, "127.0.2.1") and is_refused(broker, "127.0.3.254")
        assert not is_refused(broker, "127.0.4.1")


@pytest.mark.parametrize("address", ["::ffff:127.0.2.0/119", "::ffff:127.0.2.1/128"])
def test_a_ban_of_mapped_addresses_is_one_of_ipv4(token_file, address):
    with Broker({"http.tokenFile": token_file}) as broker:
        made = ban(broker, address=address)
        assert made["address"] == ("127.0.2.0/23" if address.endswith("119") else "127.0.2.1/32")
        assert is_refused(broker, "127.0.2.1") and not is_refused(broker, "127.0.4.1")


def test_many_clients_are_disconnected(name, token_file):
    # More than are looked at in one turn would need, in several loops.
    with Broker({"http.tokenFile": token_file, "eventLoops": 2}) as broker, Chatter(broker, name):
        clients = []
        for number in range(100):
            clients.append(connected(broker, BAD if number % 2 else OTHER, f"{name}{number}"))
        ban(broker, address=BAD)
        for number, client in enumerate(clients):
            if number % 2:
                client.expect_disconnected(0x98)
            else:
                client.ping()
            client.close()


def test_bans_end(name, token_file):
    with Broker({"http.tokenFile": token_file}) as broker:
        ban(broker, client=name, seconds=1)
        assert connect_code(broker, BAD, client_id=name) == 0x8A
        until(lambda: connect_code(broker, BAD, client_id=name) == 0, what="the end of the ban")
        assert bans(broker) == []


def test_bans_outlast_a_crash(name, token_file, tmp_path):
    file = tmp_path / "bans.json"
    sets = {"http.tokenFile": token_file, "abuse.banFile": file}
    with Broker(sets) as broker:
        made = ban(broker, client=name, reason="why", seconds=3600)
        broker.kill()
    assert json.loads(file.read_text()) == [made]
    with Broker(sets) as broker:
        assert connect_code(broker, BAD, client_id=name) == 0x8A
        assert bans(broker) == [made]


def test_the_ban_file_is_in_the_data_folder(name, token_file):
    with Broker({"http.tokenFile": token_file}) as broker:
        ban(broker, user=name)
        assert json.loads((broker.data_dir / "bans.json").read_text())[0]["user"] == name


@pytest.mark.parametrize("content", ["", "[{]", '[{"id": 1, "address": "10.0.0.1/8", "created": ""}]'])
def test_a_damaged_ban_file_is_named(content, tmp_path):
    file = tmp_path / "bans.json"
    file.write_text(content)
    broker = Broker({"abuse.banFile": file}, ready=False)
    try:
        assert broker.wait() == 2
        assert any(f"{file} (bans)" in line for line in broker.log_text), broker.log_text
    finally:
        broker.close()


@pytest.mark.parametrize(
    "body, problem",
    [
        ({}, "names one of"),
        ({"client": "a", "user": "b"}, "names one of"),
        ({"address": "10.0.0.1/8"}, "10.0.0.1/8"),
        ({"client": "a", "seconds": 0}, "seconds"),
        ({"client": "a", "second": 1}, "second"),
        ({"client": "a", "reason": "x" * 2000}, "reason"),
    ],
)
def test_wrong_bans(token_file, body, problem):
    with Broker({"http.tokenFile": token_file}) as broker:
        status, answer = request(broker, "POST", "/api/v1/bans", body)
        assert status in (400, 422) and problem in answer
        assert bans(broker) == []
        assert request(broker, "DELETE", "/api/v1/bans/1")[0] == 404


def test_ban_command(name, token_file):
    with Broker({"http.tokenFile": token_file}) as broker:
        node = ["--url", f"http://127.0.0.1:{broker.http_port}"]
        known = [*node, "--token-file", token_file]
        added = run("ban", "add", "--client", name, "--for", "1h", "--reason", "why", *known)
        assert added.returncode == 0 and name in added.stdout, added.stderr
        assert connect_code(broker, BAD, client_id=name) == 0x8A
        listed = run("ban", "list", *node)
        assert listed.returncode == 0 and name in listed.stdout and "why" in listed.stdout
        number = json.loads(run("ban", "list", "--json", *node).stdout)["items"][0]["id"]
        refused = run("ban", "remove", number, *node)
        assert refused.returncode == 1 and "401" in refused.stderr
        assert run("ban", "remove", number, *known).returncode == 0
        assert bans(broker) == []
        assert run("ban", "remove", number, *known).returncode == 1
        assert run("ban", "add", *known).returncode == 2
        # The list comes in pages, and the command prints all of them.
        made = [ban(broker, client=f"{name}{number}")["id"] for number in range(501)]
        first = broker.api("/api/v1/bans?limit=500")
        rest = broker.api(f"/api/v1/bans?limit=500&after={first['next']}")
        assert [listed["id"] for listed in first["items"] + rest["items"]] == made and rest["next"] is None
        assert [listed["id"] for listed in json.loads(run("ban", "list", "--json", *node).stdout)["items"]] == made
        assert run("ban", "list", *node).stdout.count(name) == len(made)


# ---- the HTTP port -----------------------------------------------------------------------------


def test_changes_need_the_token(name, token_file):
    with Broker({"http.tokenFile": token_file}) as broker:
        for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x"):
            assert request(broker, "POST", "/api/v1/bans", {"client": name}, token)[0] == 401
            assert request(broker, "DELETE", "/api/v1/bans/1", token=token)[0] == 401
        assert bans(broker) == []
        # Reading is free.
        assert broker.http("/metrics")[0] == broker.http("/readyz")[0] == 200
        assert not any(TOKEN in line for line in broker.log_text)


@pytest.mark.parametrize("change", ["join", "leave", "drain", "evict", "transfer-leader", "split"])
def test_changes_of_the_cluster_need_the_token(token_file, change):
    with Broker({"http.tokenFile": token_file}) as broker:
        path = f"/api/v1/cluster/{change}"
        body = {
            "join": {"seed": "10.0.0.1:8899"},
            "evict": {"node": "1"},
            "transfer-leader": {"store": "inbox", "shard": 0, "to": "1"},
            "split": {"store": "inbox", "shard": 0, "at": 0},
        }.get(change)
        for token in (None, TOKEN[:-1]):
            assert request(broker, "POST", path, body, token)[0] == 401
        # Let through, but this node has no cluster, and no shard is split at its first slot.
        status, problem = request(broker, "POST", path, body)
        names_nobody = change in ("evict", "transfer-leader")
        assert status == (400 if names_nobody else 409), problem


def test_a_node_that_runs_alone_has_no_cluster(broker):
    status = broker.api("/api/v1/cluster")
    assert status["cluster"] is None and status["nodes"] == []
    assert [(shard["store"], shard["shard"]) for shard in status["shards"]] == [
        ("session", 0),
        ("inbox", 0),
        ("retain", 0),
    ]
    told = run("cluster", "status", "--url", f"http://127.0.0.1:{broker.http_port}")
    assert told.returncode == 0 and "runs alone" in told.stdout


def test_without_a_token_nothing_changes(name):
    with Broker() as broker:
        status, answer = request(broker, "POST", "/api/v1/bans", {"client": name})
        assert status == 403 and "http.tokenFile" in answer
        assert request(broker, "DELETE", "/api/v1/bans/1")[0] == 403


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_token_that_others_may_read_is_warned_of(token_file, mode):
    token_file.chmod(mode)
    with Broker({"http.tokenFile": token_file}) as broker:
        told = [line for line in broker.log_lines if line.get("path") == str(token_file)]
        assert [line["level"] for line in told] == ([] if mode == 0o600 else ["WARN"])


def test_a_token_file_that_is_not_there(tmp_path):
    broker = Broker({"http.tokenFile": tmp_path / "none"}, ready=False)
    try:
        assert broker.wait() == 2
        assert any("none (HTTP token)" in line for line in broker.log_text), broker.log_text
    finally:
        broker.close()


def test_the_token_is_read_again(name, token_file):
    with Broker({"http.tokenFile": token_file}) as broker:
        token_file.write_text("another")
        broker.signal(signal.SIGHUP)
        until(lambda: broker.find("configuration reloaded"), what="the reload")
        assert request(broker, "POST", "/api/v1/bans", {"client": name})[0] == 401
        assert request(broker, "POST", "/api/v1/bans", {"client": name}, "another")[0] == 201
        token_file.unlink()
        broker.signal(signal.SIGHUP)
        until(lambda: broker.find("the HTTP token is not reloaded; it stays as it was"), what="the complaint")
        assert request(broker, "POST", "/api/v1/bans", {"client": name}, "another")[0] == 201


def http_socket(broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.http_port), 20)


def test_http_bodies_and_headers_have_limits(token_file):
    with Broker({"http.tokenFile": token_file}) as broker:
        assert request(broker, "POST", "/api/v1/bans", {"client": "x" * 70_000})[0] == 413
        for header in ("x: " + "y" * 20_000, "\r\n".join(f"x{n}: y" for n in range(100))):
            with http_socket(broker) as stream:
                stream.sendall(f"GET /healthz HTTP/1.1\r\nhost: x\r\n{header}\r\n\r\n".encode())
                assert b" 431 " in stream.recv(4096)


def test_slow_http_clients_are_closed(token_file):
    # More of each kind than there are places: who waits behind them is served when their time is over.
    with Broker({"http.tokenFile": token_file}) as broker, contextlib.ExitStack() as stack:
        body = f"POST /api/v1/bans HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
        slow = [stack.enter_context(http_socket(broker)) for _ in range(300)]
        for number, stream in enumerate(slow):
            head = body + "content-type: application/json\r\ncontent-length: 9\r\n\r\n{"
            stream.sendall(head.encode() if number % 2 else b"GET /hea")
        with http_socket(broker) as stream:
            stream.settimeout(40)
            stream.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b" 200 " in stream.recv(4096)


# ---- before authentication ---------------------------------------------------------------------


def test_dripping_connects_are_closed(name):
    # Slow-loris: a byte now and then does not prolong the time for CONNECT.
    with Broker({"limits.connection.connectTimeoutMs": 1000}) as broker, Chatter(broker, name) as chatter:
        packet = raw.connect(name + "slow", will={"topic": "w" * 1000, "payload": b"x" * 30_000})
        drips = [peer(broker, BAD) for _ in range(50)]
        at = {client: 0 for client in drips}

        def all_are_closed():
            for client in list(at):
                try:
                    client.socket.send(packet[at[client] : at[client] + 1])
                    at[client] += 1
                except OSError:
                    client.close()
                    del at[client]
            chatter.talk()
            return not at

        until(all_are_closed, what=lambda: f"the end of {len(at)} connections")
        until(lambda: counted(broker, "heraldmq_connections_open") == 1, what="only the ordinary client")


def test_half_open_connections_make_room_for_others(name):
    # A quarter may be silent, and 64 in any case; the oldest of more are closed, long before their time.
    sets = {"limits.node.connections": 80, "limits.connection.connectTimeoutMs": 600_000, "eventLoops": 1}
    with Broker(sets) as broker, Chatter(broker, name) as chatter:
        silent = []
        for number in range(200):
            silent.append(peer(broker, BAD))
            if number % 20 == 0:
                chatter.talk()
                with peer(broker, OTHER) as client:
                    client.connect(name + "ordinary")
        silent[0].expect_closed()
        assert counted(broker, "heraldmq_connections_open") <= 66
        assert counted(broker, "heraldmq_connections_awaiting_connect_closed", reason="address") >= 200 - 64
        for client in silent:
            client.close()


def test_a_slow_client_keeps_its_place_beside_half_open_ones(tmp_path, name):
    # Each flight of its handshake, and its CONNECT, comes in two parts; 2,000 half-open connections come in between.
    sets = {"limits.node.connections": 400, "limits.connection.connectTimeoutMs": 600_000, "eventLoops": 1}
    sets["limits.connection.handshakeTimeoutMs"] = 600_000
    with Listeners(tmp_path, sets) as listeners, contextlib.ExitStack() as stack:
        port = listeners.port_of("mqtt-tls")
        address = ("127.0.0.1", port)
        half_open = collections.deque()

        def flood(count):
            for _ in range(count):
                made = socket.create_connection(address, timeout=DEADLINE_S, source_address=(CROWD, 0))
                half_open.append(stack.enter_context(made))
                if len(half_open) > 500:
                    # There are 100 places, and 256 that have just come may be beyond them: the oldest has lost its own.
                    with half_open.popleft() as oldest:
                        assert oldest.recv(1) == b""

        slow = socket.create_connection(address, timeout=DEADLINE_S, source_address=(OTHER, 0))
        stack.callback(slow.close)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = listeners.context().wrap_bio(incoming, outgoing, server_hostname="localhost")

        def send():
            data = outgoing.read()
            for part in (data[: len(data) // 2], data[len(data) // 2 :]):
                slow.sendall(part)
                flood(500)

        def answer(attempt):
            while True:
                try:
                    return attempt()
                except ssl.SSLWantReadError:
                    if outgoing.pending:
                        send()
                    data = slow.recv(65536)
                    assert data, "the slow client is closed"
                    incoming.write(data)

        answer(tls.do_handshake)
        tls.write(raw.connect(name))
        send()
        assert answer(lambda: tls.read(1)) == b"\x20"
        closed = "heraldmq_connections_awaiting_connect_closed_total"
        assert listeners.metric(closed, reason="address") >= 2000 - 500
        assert listeners.metric(closed, reason="node") == 0


def test_a_flood_of_malformed_connects(name):
    with Broker() as broker, Chatter(broker, name) as chatter:
        before = len(broker.log_text)
        clock = Stopwatch()
        for number in range(1000):
            with peer(broker, BAD) as client:
                client.send(b"\x10\x0a\0\x04MQTT\x05xyz___" if number % 2 else b"GET / HTTP/1.1\r\n\r\n")
            if number % 100 == 0:
                chatter.talk()
        # Ten lines per second, and those at the edges; what was left out is counted in the next line.
        assert len(broker.log_text) - before <= 10 * (clock.seconds() + 2)
        until(lambda: counted(broker, "heraldmq_connections_open") == 1, what="the end of all of them")


def test_a_flood_of_connections(name):
    sets = {**INCLUDED, "abuse.connectionsPerAddress": 10}
    with Broker(sets) as broker, Chatter(broker, name) as chatter:
        flood = []
        for number in range(500):
            flood.append(peer(broker, BAD))
            if number % 50 == 0:
                chatter.talk()
        chatter.talk()
        until(lambda: counted(broker, "heraldmq_refusals", reason="connections") == 490, what="all refusals")
        assert counted(broker, "heraldmq_connections_open") == 11
        for client in flood:
            client.close()


def test_what_is_remembered_is_bounded(name):
    sets = {**INCLUDED, "abuse.trackedEntries": 32, "abuse.connectionsPerSecondPerAddress": 1000}
    with Broker(sets) as broker, Chatter(broker, name):
        for number in range(300):
            with peer(broker, f"127.1.{number // 200}.{number % 200 + 1}"):
                pass
        until(lambda: counted(broker, "heraldmq_abuse_tracked", kind="arrivals") > 16, what="entries")
        assert counted(broker, "heraldmq_abuse_tracked", kind="arrivals") <= 32

"""What whoever runs the broker for the first time meets: files and their permissions, wrong files, wrong ports,
signals at the wrong time, and what the log answers."""

import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess

import pytest
import yaml

from harness import raw
from harness.broker import BASE, Broker, run
from harness.listeners import Listeners
from harness.pki import Authority
from harness.wait import DEADLINE_S, Stopwatch, until

UNDER_ANY_UMASK = ("sh", "-c", 'umask 000; exec "$@"', "sh")


def modes(folder) -> dict:
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in [folder, *pathlib.Path(folder).rglob("*")]}


# ---- the data folder -----------------------------------------------------------------------------


def test_what_is_stored_is_for_its_owner_only(tmp_path, name):
    data = tmp_path / "new" / "data"
    with Broker(data_dir=data, prefix=UNDER_ANY_UMASK) as broker:
        with broker.client(name, clean=False, props={"session_expiry": 600}) as client:
            client.subscribe(name, qos=1)
        with broker.client(name + "2") as client:
            client.published(name, b"secret", qos=1, retain=True)
        banned = run("ban", "list", "--address", f"127.0.0.1:{broker.http_port}")
        assert banned.returncode in (0, 1, 2)
        found = modes(data)
        assert any(path.suffix == ".raftlog" for path in found)
    found = {**found, **modes(data)}
    wrong = {str(path): oct(mode) for path, mode in found.items() if mode & 0o077}
    assert not wrong


def test_open_files_of_before_are_named_once(tmp_path):
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        assert not broker.find("other users of this machine can read the data folder")
    for path, mode in modes(data).items():
        path.chmod(mode | (0o055 if path.is_dir() else 0o044))
    with Broker(data_dir=data) as broker:
        told = until(lambda: broker.find("other users of this machine can read the data folder"), what="the line")
        assert len(told) == 1 and told[0]["level"] == "WARN"
        assert told[0]["files"] > 0 and "chmod" in told[0]["remedy"]


def of_a_cluster(folder, host, **cluster) -> dict:
    return {
        "bootstrap": True,
        "mqttServerConfig": {"tcpListener": {"host": host, "port": 0}},
        "http": {"host": host, "port": 0},
        "clusterConfig": {"host": host, "port": free_port(host), **cluster},
    }


def free_port(host) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def test_the_folder_of_a_member_without_its_cluster(tmp_path):
    data = tmp_path / "data"
    config = of_a_cluster(tmp_path, "127.0.0.1")
    with Broker(data_dir=data, config=config):
        pass
    path = tmp_path / "alone.yml"
    path.write_text(yaml.safe_dump(BASE))
    ended = run("serve", "--config", path, "--data-dir", data)
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1, ended
    assert str(data) in ended.stderr and "clusterConfig" in ended.stderr
    # With it, the node goes on.
    with Broker(data_dir=data, config=config):
        pass


def test_a_folder_under_another_address_says_so(tmp_path):
    data = tmp_path / "data"
    moved = "the data folder is that of a node which had another address"
    before, after = (of_a_cluster(tmp_path, host) for host in ("127.0.0.1", "127.0.0.2"))
    for config, told in [(before, False), (before, False), (after, True), (after, False)]:
        with Broker(data_dir=data, config=config) as broker:
            lines = [l for l in broker.log_lines if l.get("message", "").startswith(moved)]
            assert bool(lines) == told, broker.log_text
            if told:
                assert lines[0]["before"].startswith("127.0.0.1:") and lines[0]["now"].startswith("127.0.0.2:")


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_node_that_waits_for_its_cluster(tmp_path, second):
    # The secret comes from a pipe that nobody writes to: the start stands still, as on a dead disk.
    pipe = tmp_path / "secret"
    os.mkfifo(pipe)
    config = of_a_cluster(tmp_path, "127.0.0.1", secretFile=str(pipe))
    broker = Broker(config=config, ready=False)
    try:
        held = until(lambda: opened(pipe), what="the start to read the secret")
        broker.signal(signal.SIGTERM)
        # Two of a kind that come at once are one.
        until(lambda: not pending(broker.pid), what="the first signal to be taken")
        broker.signal(second)
        assert broker.wait() == 1
        os.close(held)
    finally:
        broker.close()


def pending(pid) -> bool:
    """Whether a signal was sent to the process that it has not taken."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def opened(pipe):
    """The writing end of a pipe, once somebody reads from it."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


# ---- files that the configuration names ----------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


def tls(cert, key) -> dict:
    listener = {"host": "127.0.0.1", "port": 0, "sslConfig": {"certFile": str(cert), "keyFile": str(key)}}
    # Without the listener for TCP there would be one on 1883, which another test may have.
    return {"mqttServerConfig": {**BASE["mqttServerConfig"], "tlsListener": listener}}


def check(tmp_path, config):
    path = tmp_path / "checked.yml"
    path.write_text(yaml.safe_dump(config))
    return run("check-config", path)


def test_check_config_reads_what_serve_reads(tmp_path, authority):
    one, two = authority.issue("one"), authority.issue("two")
    wrong, open_to_all = tmp_path / "wrong", tmp_path / "short"
    wrong.write_text("alice\n")
    open_to_all.write_text("short")
    jwt = {"kind": "jwt", "jwt": {"secretFile": str(open_to_all)}}
    cluster = {"host": "127.0.0.1", "port": 8899, "seedEndpoints": "127.0.0.1:8899"}
    for config, blamed in [
        (tls(one.cert, two.key), two.key),
        (tls(tmp_path / "none.crt", one.key), "none.crt"),
        (tls(wrong, one.key), str(wrong)),
        ({"authentication": {"chain": {"kind": "passwordFile", "file": str(wrong)}}}, str(wrong)),
        ({"authentication": {"chain": {"kind": "scram", "file": str(tmp_path / "none")}}}, str(tmp_path / "none")),
        ({"authentication": {"chain": jwt}}, "shorter than"),
        ({"authorization": {"file": str(wrong)}}, f"{wrong}:1"),
        ({"http": {"tokenFile": str(tmp_path / "none")}}, str(tmp_path / "none")),
        ({"abuse": {"banFile": str(wrong)}}, str(wrong)),
        ({"clusterConfig": {**cluster, "secretFile": str(tmp_path / "none")}}, str(tmp_path / "none")),
    ]:
        got = check(tmp_path, config)
        assert got.returncode == 2 and blamed in got.stderr and not got.stdout, (config, got)
        path = tmp_path / "served.yml"
        path.write_text(yaml.safe_dump({**BASE, **config}))
        served = run("serve", "--config", path, "--data-dir", tmp_path / "data")
        assert served.returncode == 2 and blamed in served.stderr, (config, served)
    good = check(tmp_path, tls(one.cert, one.key))
    assert (good.returncode, good.stdout) == (0, "OK\n"), good
    several = {**tls(one.cert, two.key), "http": {"tokenFile": "none"}, "authorization": {"file": str(wrong)}}
    assert len(check(tmp_path, several).stderr.splitlines()) == 3


def test_a_reload_says_what_was_read(tmp_path):
    rules, users = tmp_path / "rules", tmp_path / "users"
    rules.write_text("allow all publish #\n")
    assert run("passwd", "--stdin", users, "alice", input="secret\n").returncode == 0
    config = {
        **BASE,
        "authorization": {"file": str(rules)},
        "authentication": {"chain": {"kind": "passwordFile", "file": str(users)}},
    }
    with Broker(config=config) as broker:
        broker.signal(signal.SIGHUP)
        done = until(lambda: broker.find("configuration reloaded"), what="the reload")[0]
        assert (done["files_read"], done["files_failed"]) == (2, 0)
        assert {l["file"] for l in broker.find("read again")} == {str(rules), str(users)}
        users.write_text("alice\n")
        broker.signal(signal.SIGHUP)
        done = until(lambda: broker.find("configuration reloaded")[1:], what="the second reload")[0]
        assert (done["files_read"], done["files_failed"]) == (1, 1)
        kept = broker.find("not read again: the previous content stays in use")
        assert [l["file"] for l in kept] == [str(users)]


# ---- the wrong protocol for the port -------------------------------------------------------------


@pytest.fixture
def listeners(tmp_path):
    # One for each test: the log has one line a minute about the mistakes of an address.
    with Listeners(tmp_path) as fresh:
        yield fresh


GIVEN_UP = "a connection is given up before CONNECT"


@pytest.mark.parametrize(
    "port, options, broker_says, client_says",
    [
        ("tls", [], "speaks plain MQTT where TLS is spoken", "the broker speaks TLS here"),
        ("tcp", ["--insecure"], "speaks TLS where plain MQTT is spoken", "may not speak TLS here"),
        ("tcp", ["--ws"], "speaks plain HTTP where plain MQTT is spoken", "may not speak WebSocket here"),
        ("ws", [], "speaks plain MQTT where WebSocket is spoken", "the broker speaks HTTP here"),
        ("ws", ["--insecure"], "speaks TLS where WebSocket is spoken", "does not speak TLS here"),
        ("wss", ["--ws"], "speaks plain HTTP where TLS is spoken", "the broker speaks TLS here"),
    ],
)
def test_the_wrong_protocol_is_said_in_words(listeners, port, options, broker_says, client_says):
    before = len(listeners.find(GIVEN_UP))
    number = listeners.port_of(f"mqtt-{port}")
    got = run("pub", "-h", "127.0.0.1", "-p", number, "-t", "a", "-m", "x", *options)
    assert got.returncode == 1 and client_says in got.stderr, got
    line = until(lambda: listeners.find(GIVEN_UP)[before:], what="a line in the log")[0]
    assert broker_says in line["error"] and line["listener"] == port, line


def openssl(folder, *args):
    subprocess.run(["openssl", *map(str, args)], cwd=folder, check=True, capture_output=True, timeout=DEADLINE_S)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_certificate_of_version_1_is_said_in_words(tmp_path):
    openssl(tmp_path, *"req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ca -keyout ca.key -out ca.crt".split())
    openssl(tmp_path, *"req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout s.key -out s.csr".split())
    openssl(tmp_path, *"x509 -req -in s.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1 -out s.crt".split())
    got = check(tmp_path, tls(tmp_path / "s.crt", tmp_path / "s.key"))
    assert got.returncode == 2 and "version 1" in got.stderr and "-extfile" in got.stderr, got


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_recipe_for_certificates_works(tmp_path):
    page = pathlib.Path(__file__).parents[2] / "docs/operate/listeners.md"
    recipe = page.read_text().split("## A certificate for a first try")[1].split("```sh\n")[1].split("```")[0]
    done = subprocess.run(["sh", "-eu"], input=recipe, text=True, cwd=tmp_path, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done
    config = tls(tmp_path / "server.crt", tmp_path / "server.key")
    with Broker(config={**BASE, **config}) as broker:
        port = broker.port_of("mqtt-tls")
        for host in ("localhost", "127.0.0.1"):
            got = run("pub", "-h", host, "-p", port, "--cafile", tmp_path / "ca.crt", "-t", "a", "-m", "x")
            assert got.returncode == 0, got
        (tmp_path / "trusted").mkdir()
        shutil.copy(tmp_path / "ca.crt", tmp_path / "trusted")
        by_folder = ["--capath", tmp_path / "trusted", "--tls-version", "tlsv1.3"]
        got = run("pub", "-h", "127.0.0.1", "-p", port, *by_folder, "-t", "a", "-m", "x")
        assert got.returncode == 0, got


# ---- why a client went ---------------------------------------------------------------------------


def test_the_log_says_who_came_and_why_he_went(name):
    with Broker() as broker:
        with broker.client(name, username="alice") as client:
            here = f"127.0.0.1:{client.socket.getsockname()[1]}"
            came = until(lambda: broker.find("a client is connected", client_id=name))[0]
            assert (came["user"], came["version"], came["level"]) == ("alice", "5.0", "INFO")
            assert came["peer"] == here
            client.disconnect()
        gone = until(lambda: broker.find("a client has disconnected", client_id=name))[0]
        assert (gone["user"], gone["reason"], gone["peer"]) == ("alice", "DISCONNECT", came["peer"])
        with broker.client(name, version=4) as client:
            client.close()
        gone = until(lambda: broker.find("the connection of a client has ended", client_id=name))[0]
        assert gone["version"] == "3.1.1" and "without DISCONNECT" in gone["reason"]
        with broker.client(name), broker.client(name):
            gone = until(lambda: broker.find("a client is disconnected", client_id=name))[0]
            assert "taken over" in gone["reason"].lower() or "takenover" in gone["reason"].lower()


def test_lines_about_clients_are_limited_and_short(name):
    with Broker() as broker:
        long = name + "x" * 5_000
        clock = Stopwatch()
        for number in range(300):
            with broker.client(f"{long}{number}"):
                pass
        until(lambda: broker.metric("heraldmq_clients_connected") == 0, what="all to be gone")
        with broker.client(name):
            pass
        lines = broker.find("a client is connected")
        # Twenty a second.
        assert len(lines) <= 20 * (clock.seconds() + 2)
        assert all(len(line["client_id"].encode()) < 100 for line in lines)
        assert all(len(line) < 1_000 for line in broker.log_text if name in line)


def test_a_refused_login_names_who_was_tried(tmp_path, name):
    users = tmp_path / "users"
    assert run("passwd", "--stdin", users, "alice", input="secret\n").returncode == 0
    config = {**BASE, "authentication": {"chain": {"kind": "passwordFile", "file": str(users)}}}
    with Broker(config=config) as broker, broker.raw() as client:
        client.send(raw.connect(name, username="alice", password=b"wrong"))
        client.expect_refused(0x86)
        line = until(lambda: broker.find("a client is refused"))[0]
        assert (line["client_id"], line["user"]) == (name, "alice") and line["peer"].startswith("127.0.0.1:")


# ---- a node that dies ----------------------------------------------------------------------------


def test_a_node_that_dies_is_one_line(tmp_path):
    hosts = [f"127.0.0.{number}" for number in (11, 12, 13)]
    configs = [of_a_cluster(tmp_path, host) for host in hosts]
    seeds = f"{hosts[0]}:{configs[0]['clusterConfig']['port']}"
    for number, config in enumerate(configs):
        config["bootstrap"] = number == 0
        config["clusterConfig"]["seedEndpoints"] = seeds
    with Broker(config=configs[0], host=hosts[0]) as first, Broker(config=configs[1], host=hosts[1]) as second:
        with Broker(config=configs[2], host=hosts[2]) as third:
            until(lambda: len(first.find("a node is reachable")) == 2, what="all to be in reach")
            before = len(first.log_lines)
            third.kill()
            down = until(lambda: first.find("a node is down"), what="the line")
        until(lambda: second.find("a node is down"), what="the line of the other")
        address = f"{hosts[2]}:{configs[2]['clusterConfig']['port']}"
        assert len(down) == 1 and down[0]["address"] == address and down[0]["level"] == "WARN"
        about = [l for l in first.log_lines[before:] if down[0]["node"] in str(l) and "shard" not in l]
        assert len(about) == 1, about

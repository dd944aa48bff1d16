"""The command line: help, exit codes, configuration, signals, listeners, pub and sub."""

import json
import random
import signal
import socket
import subprocess

import pytest

from harness import raw
from harness.broker import BINARY, Broker, environment, run
from harness.raw import DISCONNECT, PUBLISH
from harness.wait import DEADLINE_S, until


def port_is_free(port, host="127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return True
        except OSError:
            return False


def fails(sets=None, *, code, mentions, **fields):
    """`serve` ends at once with this code and one line on stderr that mentions all of these."""
    broker = Broker(sets, ready=False, **fields)
    try:
        assert broker.wait() == code, broker.log_text
    finally:
        broker.close()
    said = "\n".join(broker.log_text)
    for word in mentions:
        assert word in said, f"{word!r} is not in {said!r}"
    assert len([line for line in broker.log_text if "ERROR" in line or "rror" in line]) <= 1, said
    assert "panicked" not in said and "RUST_BACKTRACE" not in said
    return said


# ---- help, version, usage ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["serve", "--help"],
        ["check-config", "--help"],
        ["acl", "--help"],
        ["acl", "test", "--help"],
        ["store", "--help"],
        ["store", "inspect", "--help"],
        ["store", "verify", "--help"],
        ["store", "damage", "--help"],
        ["passwd", "--help"],
        ["ready", "--help"],
        ["pub", "--help"],
        ["sub", "--help"],
    ],
)
def test_help(args):
    got = run(*args)
    assert got.returncode == 0 and "Usage" in got.stdout and not got.stderr


def test_help_names_the_commands():
    said = run("--help").stdout
    assert all(command in said for command in ("serve", "check-config", "acl", "store", "pub", "sub"))


@pytest.mark.parametrize(
    "command, says",
    [
        ("serve", "SIGHUP reloads the configuration"),
        ("check-config", "Prints OK"),
        ("store", "change nothing in it"),
        ("passwd", "asks for the password twice"),
        ("man", "man -l"),
    ],
)
def test_help_explains_the_command(command, says):
    assert says in " ".join(run(command, "--help").stdout.split())


def test_store_help_tells_the_exit_codes():
    for args in (["store"], ["store", "verify"]):
        said = run(*args, "--help").stdout
        assert "Examples:" in said and "Exit codes:" in said


def test_version():
    got = run("--version")
    assert got.returncode == 0 and got.stdout.startswith("heraldmq ") and any(c.isdigit() for c in got.stdout)
    told = dict(line.split(": ", 1) for line in got.stdout.splitlines()[1:])
    assert told.keys() == {"commit", "target", "optimisation", "protocol", "levels", "features"}, got.stdout
    for name in ("protocol", "levels"):
        oldest, newest = map(int, told[name].split("-"))
        assert 1 <= oldest <= newest, got.stdout
    assert run("-V").stdout == got.stdout.splitlines()[0] + "\n"


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nonsense"],
        ["serve", "--nonsense"],
        ["check-config"],
        ["store"],
        ["store", "verify"],
        ["store", "inspect"],
        ["store", "damage"],
        ["passwd"],
        ["pub"],
        ["sub"],
    ],
)
def test_usage_errors(args):
    got = run(*args)
    assert got.returncode == 2 and got.stderr


# ---- check-config --------------------------------------------------------------------------------

REPORT = """
bootstrap: true
mqttServerConfig:
  tcpListener:
    port: 1883
clusterConfig:
  env: "Test"
  host: 127.0.0.1
  port: 8899
  clusterDomainName: ""
  seedEndpoints: "127.0.0.1:8899"
"""


def check(tmp_path, text):
    path = tmp_path / "conf.yml"
    path.write_text(text)
    return run("check-config", path)


@pytest.mark.parametrize("text", ["", "{}", REPORT, "limits:\n  connection:\n    bytesPerSecondIn: 0\n"])
def test_good_configurations(tmp_path, text):
    got = check(tmp_path, text)
    assert got.returncode == 0, got.stderr


@pytest.mark.parametrize(
    "text, mentions",
    [
        ("mqttServerConfig:\n  tcpListner:\n    port: 1\n", ["tcpListner", "tcpListener"]),
        ("limit:\n  topic:\n    levels: 3\n", ["limit", "limits"]),
        ("limits:\n  connection:\n    bytesPerSecondin: 1\n", ["bytesPerSecondin", "bytesPerSecondIn"]),
        ("clusterConfig:\n  seedEndpoint: x\n", ["seedEndpoint", "seedEndpoints"]),
        ("clusterConfig:\n  host: 192.0.2.1\n", ["clusterConfig.secretFile", "clusterConfig.sslConfig", "openssl rand"]),
        ("mqttServerConfig:\n  tcpListener:\n    port: 70000\n", ["port"]),
        ("mqttServerConfig:\n  tcpListener:\n    port: abc\n", ["port"]),
        ("limits:\n  session:\n    queueFull: sometimes\n", ["queueFull"]),
        ("mqtt:\n  maximumQos: 3\n", ["maximumQos"]),
        ("bootstrap: [\n", []),
        ("- a\n- b\n", []),
    ],
)
def test_bad_configurations(tmp_path, text, mentions):
    # Unknown keys are errors that name the nearest known key.
    got = check(tmp_path, text)
    assert got.returncode == 2
    said = got.stdout + got.stderr
    assert all(word in said for word in mentions), said
    assert "panicked" not in said


def test_missing_configuration(tmp_path):
    got = run("check-config", tmp_path / "none.yml")
    assert got.returncode in (1, 2) and "none.yml" in got.stderr
    got = run("serve", "--config", tmp_path / "none.yml", "--data-dir", tmp_path / "data")
    assert got.returncode in (1, 2) and "none.yml" in got.stderr


# ---- serve: failures -----------------------------------------------------------------------------


def test_unknown_key_in_set():
    fails({"limits.topic.level": 3}, code=2, mentions=["limits.topic.level", "limits.topic.levels"])


def test_bad_value_in_set():
    fails({"limits.topic.levels": "many"}, code=2, mentions=["limits.topic.levels"])


def test_bad_file():
    fails(config="mqttServerConfig:\n  tcpListner: {}\n", code=2, mentions=["tcpListner", "tcpListener"])


def test_port_in_use(name):
    with Broker() as other:
        fails({"mqttServerConfig.tcpListener.port": other.port}, code=1, mentions=[str(other.port)])
        with other.client(name) as client:
            client.ping()


def test_explicit_http_port_in_use():
    with Broker() as other:
        fails({"http.port": other.http_port}, code=1, mentions=[str(other.http_port)])


def test_default_http_port_falls_back():
    # Without a setting, a taken 8091 is a warning, not an error.
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8091))
            taken.listen()
        except OSError:
            pass  # taken by someone else, which serves as well
        config = {"mqttServerConfig": {"tcpListener": {"host": "127.0.0.1", "port": 0}}}
        with Broker(config=config) as broker:
            assert broker.http_port != 8091
            assert any(line.get("level") == "WARN" for line in broker.log_lines)
            assert broker.http("/healthz")[0] == 200


def test_unusable_data_folder(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    fails(data_dir=tmp_path / "file" / "data", code=1, mentions=[str(tmp_path / "file")])


# ---- serve: configuration ------------------------------------------------------------------------


def test_precedence(name):
    # defaults < file < environment < --set
    def receive_maximum(**fields):
        with Broker(**fields) as broker, broker.client(name) as client:
            return client.connack.props["receive_maximum"]

    config = {
        "mqttServerConfig": {"tcpListener": {"host": "127.0.0.1", "port": 0}},
        "http": {"port": 0},
        "limits": {"connection": {"receiveMaximum": 11}},
    }
    env = {"HERALDMQ_LIMITS__CONNECTION__RECEIVEMAXIMUM": "22"}
    key = "limits.connection.receiveMaximum"
    assert receive_maximum(config=config) == 11
    assert receive_maximum(config=config, env=env) == 22
    assert receive_maximum(config=config, env=env, sets={key: 33}) == 33


def test_options_without_the_prefix_of_variables_are_warned_of(name):
    env = {"inbox_store_replica_voters_count": "1", "CLUSTERCONFIG__HOST": "192.0.2.1", "LOG_LEVEL": "off"}
    with Broker(env=env) as broker, broker.client(name) as client:
        client.ping()
        said = [l["message"] for l in broker.log_lines if "has no effect" in l.get("message", "")]
    assert len(said) == 2 and all(line.startswith("environment variable ") for line in said), said
    assert any("`HERALDMQ_INBOX_STORE_REPLICA_VOTER_COUNT`" in line for line in said), said
    assert any("`HERALDMQ_CLUSTERCONFIG__HOST`" in line for line in said), said


def test_a_mistyped_variable_with_the_prefix_is_refused():
    fails(env={"HERALDMQ_CLUSTERCONFIG_HOST": "::1"}, code=2, mentions=["HERALDMQ_CLUSTERCONFIG__HOST"])


@pytest.mark.parametrize("count", [2, 4])
def test_an_even_number_of_voters_is_refused(count):
    key = "inbox_store_replica_voter_count"
    fails({key: count}, code=2, mentions=[key, "1, 3 or 5", f"found {count}"])
    fails(env={f"HERALDMQ_{key}": str(count)}, code=2, mentions=["environment variable", key, "1, 3 or 5"])


def minimal_file() -> str:
    """The report's file with another port for nodes: 8899 may be in use, as tests run beside each other. The port is below
    those that the system gives to tests which ask for port 0."""
    ports = (random.randint(10_000, 30_000) for _ in range(100))
    return REPORT.replace("8899", str(next(port for port in ports if port_is_free(port))))


def test_the_reports_minimal_file_without_a_host(name):
    # The node has the address that its route to the seed begins at.
    report = minimal_file()
    config = report.replace("host: 127.0.0.1", "host:")
    assert config != report
    with Broker({"mqttServerConfig.tcpListener.port": 0, "http.port": 0}, config=config) as broker:
        with broker.client(name) as client:
            client.ping()
        status, body = broker.http("/api/v1/cluster")
        assert status == 200
        assert [n["address"].rsplit(":", 1)[0] for n in json.loads(body)["nodes"]] == ["127.0.0.1"]


def test_the_reports_minimal_file(name):
    # DESIGN §3: it works as printed; here with other ports
    with Broker({"mqttServerConfig.tcpListener.port": 0, "http.port": 0}, config=minimal_file()) as broker:
        with broker.client(name) as client:
            client.ping()


def test_without_configuration(tmp_path):
    # 127.0.0.1:1883, and nowhere else
    if not port_is_free(1883):
        pytest.skip("port 1883 is in use on this machine")
    with Broker({"http.port": 0}, file=False) as broker:
        assert broker.find("listening", kind="mqtt-tcp")[0]["address"] == "127.0.0.1:1883"
        with broker.client("x") as client:
            client.ping()


def test_listener_without_host_listens_on_all(name):
    config = {"mqttServerConfig": {"tcpListener": {"port": 0}}, "http": {"port": 0}}
    with Broker(config=config) as broker:
        host = broker.find("listening", kind="mqtt-tcp")[0]["address"].rsplit(":", 1)[0]
        assert host in ("[::]", "0.0.0.0")
        for address in ["127.0.0.1"] + (["::1"] if host == "[::]" else []):
            with raw.Raw(broker.port, host=address) as client:
                client.connect(name)
                client.ping()


def test_several_listeners(name):
    listeners = [
        {"host": "127.0.0.1", "port": 0},
        {"host": "127.0.0.1", "port": 0},
        {"host": "127.0.0.1", "port": 1, "enable": False},
    ]
    with Broker(config={"mqttServerConfig": {"tcpListener": listeners}, "http": {"port": 0}}) as broker:
        ports = [int(l["address"].rsplit(":", 1)[1]) for l in broker.find("listening", kind="mqtt-tcp")]
        assert len(set(ports)) == 2 and 1 not in ports
        with raw.Raw(ports[0]) as one, raw.Raw(ports[1]) as two:
            one.connect(name + "1")
            two.connect(name + "2")
            one.subscribe(name)
            two.publish(name, b"across")
            one.message(payload="across")


def test_the_data_folder_is_made(tmp_path):
    with Broker(data_dir=tmp_path / "deep" / "er") as broker:
        assert broker.data_dir.is_dir()


def test_start_up_log(broker):
    assert len(broker.find("listening", kind="mqtt-tcp")) == 1
    assert len(broker.find("listening", kind="http")) == 1
    assert len(broker.find("ready")) == 1
    order = [line["message"] for line in broker.log_lines if line.get("message") in ("listening", "ready")]
    assert order[-1] == "ready"


def test_text_log():
    broker = Broker({"log.format": "text"}, ready=False)
    try:
        until(lambda: any("ready" in line for line in broker.log_text), what="the ready line")
        assert any(
            "listening" in line and 'kind="mqtt-tcp"' in line and "address=127.0.0.1:" in line
            for line in broker.log_text
        )
    finally:
        broker.close()


# ---- anonymous clients ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_address():
    """An address of this machine that is not loopback."""
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    found = [a for a in said if ":" not in a and not a.startswith("127.")]
    if found:
        yield found[0]
        return
    change = ["192.0.2.1/32", "dev", "lo"]
    if subprocess.run(["ip", "address", "add", *change], capture_output=True).returncode != 0:
        pytest.skip("this machine has no address but loopback, and none can be added")
    yield "192.0.2.1"
    subprocess.run(["ip", "address", "delete", *change], capture_output=True)


ALL = {"mqttServerConfig": {"tcpListener": {"port": 0}}, "http": {"port": 0}}


def test_anonymous_from_elsewhere_is_refused(name, other_address):
    # [MQTT-3.1.4-2] [MQTT3-3.2.2-5]
    with Broker(config=ALL) as broker:
        for _ in range(3):
            for version, reason in ((5, 0x87), (4, 5), (3, 5)):
                with raw.Raw(broker.port, host=other_address, version=version) as client:
                    client.send(raw.connect(name, version=version))
                    client.expect_refused(reason)
        with broker.client(name) as client:
            client.ping()
        # The log says once how to change that.
        until(lambda: any("allowAnonymous" in line for line in broker.log_text), what="the hint in the log")
        assert sum("allowAnonymous" in line for line in broker.log_text) == 1


def test_anonymous_allowed(name, other_address):
    with Broker({"allowAnonymous": True}, config=ALL) as broker:
        with raw.Raw(broker.port, host=other_address) as client:
            client.connect(name)
            client.ping()


def test_anonymous_forbidden(name):
    with Broker({"allowAnonymous": False}) as broker:
        for version, reason in ((5, 0x87), (4, 5)):
            with broker.raw(version) as client:
                client.send(raw.connect(name, version=version))
                client.expect_refused(reason)


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_orderly_shutdown(name, number):
    # 4.13, 3.14.2.1: 0x8B; exit code 0
    with Broker() as broker:
        five, four = broker.client(name + "5"), broker.client(name + "4", version=4)
        broker.signal(number)
        five.expect_disconnected(0x8B)
        four.expect_closed()
        assert broker.wait() == 0


def test_shutdown_names_another_server(name):
    # 3.14.2.3.5: mqtt.serverReference
    with Broker({"mqtt.serverReference": "other.example:1883"}) as broker, broker.client(name) as client:
        broker.signal(signal.SIGTERM)
        got = client.expect(DISCONNECT)
        assert got.reason == 0x9C and got.props["server_reference"] == "other.example:1883"
        assert broker.wait() == 0


def test_wills_at_shutdown(name):
    # [MQTT-3.1.2-8] the server closes the connection, and no DISCONNECT 0x00 came: the will of a
    # connected client is published, and reaches those who are still there
    with Broker() as broker, broker.client(name + "w") as watcher:
        watcher.subscribe(name)
        client = broker.client(name, will={"topic": name, "payload": b"going down"})
        broker.signal(signal.SIGTERM)
        watcher.expect(PUBLISH, payload="going down")
        watcher.expect_disconnected(0x8B)
        client.expect_disconnected(0x8B)
        assert broker.wait() == 0


def test_shutdown_with_a_client_that_does_not_read(name):
    # Bounded: nobody can keep the broker from ending.
    with Broker({"limits.connection.bytesPerSecondIn": 0}) as broker, broker.client(name + "p") as publisher:
        stuck = broker.raw(receive_buffer=4096)
        stuck.connect(name)
        stuck.subscribe(name)
        for _ in range(50):
            publisher.publish(name, b"x" * 100_000)
        publisher.ping()
        assert broker.stop() == 0


def test_reload(name):
    # SIGHUP: what can be reloaded is; a broken file changes nothing; the clients stay
    config = {"mqttServerConfig": {"tcpListener": {"host": "127.0.0.1", "port": 0}}, "http": {"port": 0}}
    with Broker(config=config) as broker, broker.client(name) as client:
        broker.write_config({**config, "limits": {"connection": {"receiveMaximum": 77}}})
        broker.signal(signal.SIGHUP)
        until(lambda: broker.find("configuration reloaded"), what="a word about the reload")
        client.ping()
        with broker.client(name + "1") as newcomer:
            assert newcomer.connack.props["receive_maximum"] == 77
        broker.write_config("nonsense: [")
        broker.signal(signal.SIGHUP)
        until(lambda: any(l.get("level") in ("ERROR", "WARN") for l in broker.log_lines), what="an error in the log")
        client.ping()
        with broker.client(name + "2") as newcomer:
            assert newcomer.connack.props["receive_maximum"] == 77


def test_killed_and_started_again(tmp_path, name):
    # A killed broker leaves nothing behind that keeps the next one from starting on the same folder.
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.kill()
    with Broker(data_dir=tmp_path / "data") as broker, broker.client(name) as client:
        client.ping()


# ---- pub and sub ---------------------------------------------------------------------------------


def start_sub(broker, *args) -> subprocess.Popen:
    return subprocess.Popen(
        [BINARY, "sub", "-p", str(broker.port), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_pub_and_sub(broker, name, version, qos):
    # A retained message needs no meeting in time.
    args = ["-p", str(broker.port), "-t", name, "-q", qos, "-V", version]
    got = run("pub", *args, "-m", "hello é", "-r")
    assert got.returncode == 0, got.stderr
    got = run("sub", *args, "-C", "1", "-W", "60", "-v")
    assert got.returncode == 0 and got.stdout == f"{name} hello é\n", got


def test_sub_formats(broker, name):
    with broker.client(name) as client:
        client.published(name, b"x", qos=1, retain=True)
    got = run("sub", "-p", broker.port, "-t", name, "-q", "1", "-C", "1", "-W", "60", "-F", "%t|%q|%r|%l|%p")
    assert got.stdout == f"{name}|1|1|1|x\n", got


def test_the_url_of_commands_may_come_from_the_environment(broker):
    def nodes(url, *args):
        return subprocess.run([BINARY, "nodes", *args], capture_output=True, text=True, env={**environment(), "HERALDMQ_URL": url})

    here, nowhere = f"http://127.0.0.1:{broker.http_port}", "http://127.0.0.1:1"
    assert nodes(here).returncode == 0
    assert nowhere in nodes(nowhere).stderr
    assert nodes(nowhere, "--url", here).returncode == 0


def test_sub_removes_what_was_retained(broker, name):
    with broker.client(name) as client:
        for number in range(40):
            client.published(f"{name}/{number}", str(number), retain=True)
    sub = ["sub", "-p", broker.port, "-t", f"{name}/#", "-W", "60"]
    got = run(*sub, "-C", "39", "--retained-only", "--remove-retained")
    assert got.returncode == 0 and len(got.stdout.split()) == 39, got
    left = run(*sub, "-C", "1").stdout.split()
    assert set(left) | set(got.stdout.split()) == {str(number) for number in range(40)}
    kept = run("sub", "-p", broker.port, "-t", f"{name}/#", "-W", "1")
    assert kept.stdout.split() == left and kept.returncode == 27


def test_sub_prints_a_part_at_random(broker, name):
    with broker.client(name) as client:
        for number in range(400):
            client.publish(f"{name}/{number}", b"x", retain=True)
        client.ping()
    got = run("sub", "-p", broker.port, "-t", f"{name}/#", "-C", "400", "-W", "60", "--random-filter", "50")
    # Fewer than 100 or more than 300 of 400 by chance: once in 10^24 runs.
    assert got.returncode == 0 and 100 < len(got.stdout.split()) < 300
    assert run("sub", "-t", name, "--random-filter", "0").returncode == 2


def test_sub_counts(broker, name):
    with broker.client(name) as client:
        for number in range(5):
            client.published(f"{name}/{number}", str(number), retain=True)
    got = run("sub", "-p", broker.port, "-t", f"{name}/#", "-C", "5", "-W", "60")
    assert got.returncode == 0 and sorted(got.stdout.split()) == list("01234")


def test_sub_times_out(broker, name):
    got = run("sub", "-p", broker.port, "-t", name, "-C", "1", "-W", "1")
    assert got.returncode != 0 and got.stdout == ""


def test_sub_ends_on_a_signal(broker, name):
    process = start_sub(broker, "-t", name)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)


def test_pub_without_a_broker():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    got = run("pub", "-p", port, "-t", "a", "-m", "x")
    assert got.returncode == 1 and got.stderr.strip() and len(got.stderr.strip().splitlines()) == 1


def test_pub_with_a_bad_topic(broker):
    got = run("pub", "-p", broker.port, "-t", "a/#", "-m", "x")
    assert got.returncode != 0 and got.stderr


def test_pub_and_sub_by_url(broker, name):
    url = f"mqtt://alice:secret@127.0.0.1:{broker.port}/{name}"
    got = run("pub", "-L", url, "-m", "x", "-r", "-q", "1")
    assert got.returncode == 0, got
    got = run("sub", "-L", url, "-C", "1", "-W", "60", "-I", f"{name}-", "-A", "127.0.0.1")
    assert got.stdout == "x\n", got
    assert run("pub", "-L", f"mqtt://127.0.0.1:{broker.port}", "-m", "x").returncode == 2


def test_sub_names_itself_by_a_prefix(name):
    # A broker of its own, whose log has a line for each client: lines are limited per second.
    with Broker() as broker:
        process = start_sub(broker, "-t", name, "-I", f"{name}-", "-u", "bob")
        came = until(lambda: broker.find("a client is connected", user="bob"), what="the client")
        assert came[-1]["client_id"] == f"{name}-{process.pid}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def test_sub_of_retained_messages_only(broker, name):
    with broker.client(name) as client:
        for number in range(3):
            client.published(f"{name}/{number}", str(number), qos=1, retain=True)
        process = start_sub(broker, "-t", f"{name}/#", "--retained-only")
        got = [process.stdout.readline().strip() for _ in range(3)]
        assert sorted(got) == list("012")
        client.published(f"{name}/0", b"fresh", qos=1)
    rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and rest == ""


def test_quiet(name):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    got = run("pub", "-h", "127.0.0.1", "-p", port, "-t", "a", "-m", "x", "--quiet")
    assert (got.returncode, got.stderr) == (1, "")


def test_sub_connects_again(tmp_path, name):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {"mqttServerConfig": {"tcpListener": {"host": "127.0.0.1", "port": port}}, "http": {"port": 0}}
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        process = start_sub(broker, "-h", "127.0.0.1", "-t", name, "-q", "1", "-c", "-i", name)
        until(lambda: broker.metric("heraldmq_subscriptions") == 1, what="the subscription")
        with broker.client() as client:
            client.published(name, b"before", qos=1)
            assert process.stdout.readline() == "before\n"
        broker.kill()
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        with broker.client() as client:
            client.published(name, b"meanwhile", qos=1)
        # The broker may have died before it had recorded the acknowledgement.
        got = process.stdout.readline()
        assert (process.stdout.readline() if got == "before\n" else got) == "meanwhile\n"
        # Who takes its place is not fought.
        with broker.client(name):
            _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1 and "connecting again" in said and "taken over" in said.lower()

"""`heraldmq bench conn`, `sub` and `pub`: clients without end, and command lines of emqtt_bench."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from harness.bench import Started
from harness.broker import BASE, BINARY, Broker, environment, run
from harness.listeners import Listeners
from harness.wait import until

# Load is no attack here.
SETS = {"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}


@pytest.fixture
def own():
    with Broker(SETS) as broker:
        yield broker


def at(broker) -> list:
    return ["-h", "127.0.0.1", "-p", broker.port]


def bench(*args, **fields) -> subprocess.CompletedProcess:
    return run("bench", *args, **fields)


def figures(got) -> dict:
    """Name and value of each row of the table, of a run that ended well."""
    assert got.returncode == 0, got.stderr
    rows = (re.match(r"(\S.*?)\s{2,}(.+)", line) for line in got.stdout.splitlines())
    return {row[1]: row[2] for row in rows if row}


def count(got, name) -> int:
    return int(figures(got).get(name, "0").split()[0].replace(",", ""))


def connected(broker, clients):
    until(lambda: broker.metric("heraldmq_clients_connected") == clients, what=f"{clients} connections")


def subscribed(broker, filters):
    until(lambda: broker.metric("heraldmq_subscriptions") == filters, what=f"{filters} subscriptions")


def test_connections_stay_for_the_duration(own):
    got = bench("conn", "-c", 50, "-R", 500, *at(own), "--duration", "8s")
    assert figures(got)["connected at end"] == "50 of 50"
    assert count(got, "connects") == 50 and count(got, "connect failures") == 0
    assert "connecting" in got.stderr and "\x1b" not in got.stderr
    connected(own, 0)


def test_the_command_line_of_emqtt_bench_conn_runs_until_ctrl_c(own):
    with Started("conn", "-c", 20, "-R", 100, *at(own)) as conn:
        connected(own, 20)
        conn.process.send_signal(signal.SIGINT)
        got = conn.end()
    assert count(got, "connects") == 20


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribers_count_what_publishers_sent(own, qos, workers):
    with Started("sub", "-c", 5, "-t", "bench/%i", "-q", qos, *at(own), "--workers", workers) as sub:
        subscribed(own, 5)
        line = ["-c", 5, "-t", "bench/%i", "-q", qos, "-I", 100, "-L", 20]
        pub = bench("pub", *line, *at(own), "--workers", workers)
        until(lambda: own.metric("heraldmq_clients_connected") == 5, what="the publishers' end")
        sub.process.send_signal(signal.SIGTERM)
        received = sub.end()
    assert count(pub, "sent") == 100
    assert count(pub, "acknowledged") == (100 if qos else 0)
    assert count(received, "received") == 100
    assert "publish → receive" in figures(received)
    assert ("publish → ack" in figures(pub)) == (qos > 0)


def test_messages_of_others_are_counted_without_latency(own):
    with Started("sub", "-c", 2, "-t", "a/#", "-t", "b", *at(own)) as sub:
        subscribed(own, 4)
        with own.client() as other:
            for topic in ["a/x", "b", "c"]:
                other.published(topic, b"x" * 300)
        until(lambda: own.metric("heraldmq_clients_connected") == 2, what="the publisher's end")
        sub.process.send_signal(signal.SIGINT)
        received = sub.end()
    assert count(received, "received") == 4
    assert "publish → receive" not in figures(received)


def test_templates_files_and_retain(own, tmp_path):
    template = tmp_path / "payload.json"
    template.write_text('{"at": %TIMESTAMPMS%, "id": %UNIQUE%, "name": "%c", "noise": "%RANDOM%"}')
    with own.client() as reader:
        reader.subscribe("t/#", "f", qos=1)
        line = ["-c", 1, "-t", "t/%c/%i", "-n", 8, "--prefix", "dev-", "-s", 5]
        bench("pub", *line, "-m", f"template://{template}", "-I", 10, "-L", 2, "-q", 1, *at(own))
        first, second = (reader.take(1)[0] for _ in range(2))
        assert first.topic == "t/dev-9/9"
        values = [json.loads(message.payload) for message in (first, second)]
        assert values[0]["name"] == "dev-9" and len(values[0]["noise"]) == 5
        assert values[1]["at"] >= values[0]["at"] > 1_600_000_000_000
        assert values[1]["id"] > values[0]["id"]
        file = tmp_path / "payload.bin"
        file.write_bytes(b"\x00\xff")
        bench("pub", "-c", 1, "-t", "f", "--file", file, "-L", 1, "-r", *at(own))
        assert reader.take(1)[0].payload == b"\x00\xff"
    with own.client() as late:
        late.subscribe("f")
        assert late.take(1)[0].payload == b"\x00\xff"


def test_publishers_wait_for_all(own):
    """With one connection per 100 ms, the first one alone would have published its messages before the last comes."""
    with own.client() as reader:
        reader.subscribe("w")
        line = ["-c", 10, "-i", 100, "-t", "w", "-m", "x", "-I", 10, "-L", 1, "-w"]
        with Started("pub", *line, *at(own)) as pub:
            reader.take(1)
            # The reader, and all publishers.
            assert own.metric("heraldmq_connects_total") == 11
            got = pub.end()
    assert count(got, "sent") == 10


def test_a_user_name_for_each_client(tmp_path):
    users = tmp_path / "users"
    for user in ["dev1", "dev2"]:
        command = [BINARY, "passwd", str(users), user, "--stdin"]
        subprocess.run(command, input="secret\n", text=True, check=True, capture_output=True, timeout=60)
    config = {**BASE, "authentication": {"chain": [{"kind": "passwordFile", "file": str(users)}]}}
    with Broker({"abuse.failedLogins": 0}, config=config) as broker:
        line = ["-u", "dev%i", "-P", "secret", "--duration", "8s", "-R", 100, *at(broker)]
        got = bench("conn", "-c", 2, *line)
        assert figures(got)["connected at end"] == "2 of 2"
        got = bench("conn", "-c", 3, *line)
        assert figures(got)["connected at end"] == "2 of 3" and count(got, "connect failures") > 0
        assert "BadUserNameOrPassword" in got.stdout
        got = bench("conn", "-c", 3, *line, "-P", "wrong")
        assert got.returncode == 2, "two passwords"
        got = bench("conn", "-c", 3, *["-u", "dev%i", "-P", "wrong", *at(broker)])
        assert got.returncode == 1 and not got.stdout
        assert "no client got connected" in got.stderr and "BadUserNameOrPassword" in got.stderr


@pytest.mark.parametrize("command", [["conn"], ["sub", "-t", "a"], ["pub", "-t", "a"]])
def test_a_port_that_nobody_listens_on(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    got = bench(*command, "-h", "127.0.0.1", "-p", port)
    assert got.returncode == 1 and not got.stdout
    assert f"127.0.0.1:{port}" in got.stderr and "refused" in got.stderr


def test_what_breaks_is_opened_again(own):
    with Started("conn", "-c", 5, "-R", 100, "--prefix", "c-", *at(own)) as conn:
        connected(own, 5)
        with own.client("c-3"):
            # It comes back, and takes its client identifier over.
            until(lambda: own.metric("heraldmq_connects_total") >= 5 + 1 + 1, what="the return")
        connected(own, 5)
        conn.process.send_signal(signal.SIGINT)
        got = conn.end()
    assert count(got, "disconnects") >= 1 and count(got, "connects") >= 6
    assert "SessionTakenOver" in got.stdout


def test_tls_and_websocket(tmp_path):
    with Listeners(tmp_path, SETS) as broker:
        port = broker.port_of("mqtt-wss")
        layers = ["--ssl", "--cacertfile", broker.ca.path, "--ws"]
        got = bench("conn", "-c", 5, "-h", "localhost", "-p", port, *layers, "--duration", "8s")
        assert figures(got)["connected at end"] == "5 of 5"
        got = bench("conn", "-c", 5, "-h", "localhost", "-p", port, "--ssl", "--cacertfile", "no-such.pem")
        assert got.returncode == 1 and "no-such.pem" in got.stderr


def test_addresses_to_connect_from(own):
    line = ["-c", 4, "--ifaddr", "127.0.0.7,127.0.0.8", "--duration", "8s"]
    got = bench("conn", *line, *at(own))
    assert figures(got)["connected at end"] == "4 of 4"
    got = bench("conn", "-c", 4, "--ifaddr", "192.0.2.1", *at(own))
    assert got.returncode == 1 and "no client got connected" in got.stderr


def test_wrong_flags():
    for line, mention in [
        (["pub", "-t", "a/#"], "a/#"),
        (["sub"], "--topic"),
        (["conn", "-c", "0"], "--count"),
        (["conn", "--quic"], "--quic"),
    ]:
        got = bench(*line)
        assert got.returncode == 2 and mention in got.stderr, (line, got.stderr)


# ---- outages -------------------------------------------------------------------------------------


def again_at(port) -> Broker:
    """Another broker at the port of one that is gone."""
    listener = {**BASE["mqttServerConfig"]["tcpListener"], "port": port}
    return Broker(SETS, config={**BASE, "mqttServerConfig": {"tcpListener": listener}})


def milliseconds(got, row, figure) -> float:
    return float(re.search(rf"{figure} ([\d.,]+) ms", figures(got)[row])[1].replace(",", ""))


OUTAGE_S = 2


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_due_while_the_broker_is_away_waits_and_counts(qos, tmp_path):
    path = tmp_path / "pub.json"
    line = ["-c", 10, "-R", 1000, "-t", "out/%i", "-q", qos, "-I", 10, "-L", 800, "--json", path]
    with Broker(SETS) as first:
        port = first.port
        with Started("pub", *line, "-h", "127.0.0.1", "-p", port) as pub:
            until(lambda: first.metric("heraldmq_clients_connected") == 10, what="the publishers")
            first.kill()
            killed = time.monotonic()
            until(lambda: time.monotonic() - killed >= OUTAGE_S, what="the end of the outage")
            with again_at(port):
                got = pub.end()
    # All of 10 × 800, and those of the outage later than the others.
    assert count(got, "due") == count(got, "sent") == 8000
    assert count(got, "not sent, no connection") == count(got, "not sent, no room") == 0
    row = "publish → ack" if qos else "due → sent"
    assert milliseconds(got, row, "p99") > 1000 * OUTAGE_S * 0.8
    # A quarter of the messages was due in it.
    assert milliseconds(got, row, "mean") > 100
    assert count(got, "disconnects") == 10
    away_s = float(figures(got)["without connection"].split()[0])
    assert away_s >= 10 * OUTAGE_S
    written = json.loads(path.read_text())
    assert written["messages"]["due"] == written["messages"]["sent"] == 8000
    assert written["connections"]["away_seconds"] == pytest.approx(away_s, abs=0.1)


def test_what_is_still_due_at_the_end_is_told_as_not_sent():
    line = ["-c", 10, "-R", 1000, "-t", "out/%i", "-q", 1, "-I", 10, "--json", "-"]
    with Broker(SETS) as broker:
        with Started("pub", *line, *at(broker), "--require", "p99<60s,not_sent=0,not_sent<1%") as pub:
            until(lambda: broker.metric("heraldmq_publishes_received_total", qos="1") > 100, what="messages")
            broker.kill()
            killed = time.monotonic()
            until(lambda: time.monotonic() - killed >= OUTAGE_S, what="an outage")
            pub.process.send_signal(signal.SIGTERM)
            got = pub.end()
    assert got.returncode == 4, got.stderr
    # Standard output has nothing but the object.
    written = json.loads(got.stdout)
    messages = written["messages"]
    assert messages["not_sent_no_connection"] >= 10 * 100 * OUTAGE_S * 0.9
    assert messages["due"] == sum(
        messages[name] for name in ["sent", "not_sent_no_connection", "not_sent_no_room"]
    )
    # By the clock: 10 × 100 messages per second, from when the clients were connected.
    assert messages["due"] == pytest.approx(1000 * written["seconds"], rel=0.2, abs=300)
    assert messages["unacknowledged"] == messages["sent"] - messages["acknowledged"] - messages["refused"]
    assert written["connections"]["disconnects"] == 10 and written["connections"]["away_seconds"] > 10 * OUTAGE_S * 0.9
    missed = [line for line in got.stderr.splitlines() if "missed: " in line]
    assert len(missed) == 2 and all("not_sent" in line for line in missed), missed
    assert re.search(r"not sent, no connection\s+[\d,]{5,}", got.stderr), "the table is on standard error"


@pytest.mark.parametrize("command", [["conn"], ["sub", "-t", "a"]])
def test_time_without_a_connection_is_told(command):
    with Broker(SETS) as broker:
        with Started(*command, "-c", 5, "-R", 1000, *at(broker)) as clients:
            connected(broker, 5)
            broker.kill()
            killed = time.monotonic()
            until(lambda: time.monotonic() - killed >= 1, what="an outage")
            clients.process.send_signal(signal.SIGTERM)
            got = clients.end()
    assert count(got, "disconnects") == 5 and count(got, "connects due") == 5
    assert float(figures(got)["without connection"].split()[0]) >= 4


def test_connects_that_were_due_and_not_made_are_told(tmp_path):
    users = tmp_path / "users"
    command = [BINARY, "passwd", str(users), "dev1", "--stdin"]
    subprocess.run(command, input="secret\n", text=True, check=True, capture_output=True, timeout=60)
    config = {**BASE, "authentication": {"chain": [{"kind": "passwordFile", "file": str(users)}]}}
    with Broker({"abuse.failedLogins": 0}, config=config) as broker:
        line = ["-u", "dev%i", "-P", "secret", "--duration", "3s", "-R", 100, *at(broker)]
        got = bench("conn", "-c", 3, *line, "--require", "not_connected=0,disconnects=0")
    assert got.returncode == 4
    assert "missed: not_connected 2 is not = 0" in got.stderr and "disconnects" not in got.stderr
    rows = dict(re.findall(r"^(\S.*?)\s{2,}(.+)$", got.stdout, re.M))
    assert rows["connects due"] == "3" and rows["not connected"] == "2"


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_all_processes_ends_a_run_with_its_summary(own, number):
    """As a terminal, `timeout` and systemd do. `timeout` sends it to the first process twice."""
    with Started("conn", "-c", 6, "-R", 1000, "--workers", 2, *at(own)) as conn:
        connected(own, 6)
        for pid in [conn.process.pid, *conn.workers(), conn.process.pid]:
            os.kill(pid, number)
        got = conn.end()
    assert got.returncode == 0, got.stderr
    assert count(got, "connects") == 6
    connected(own, 0)


def test_timeout_ends_a_run_with_its_summary(own):
    command = ["timeout", "3", BINARY, "bench", "conn", "-c", "3", "-R", "1000", "--workers", "2", *map(str, at(own))]
    got = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    # Its own exit code is 124.
    assert re.search(r"^connects\s+3$", got.stdout, re.M), got.stderr


# ---- what scripts read ---------------------------------------------------------------------------


def test_the_summary_as_json(own, tmp_path):
    path = tmp_path / "pub.json"
    line = ["-c", 2, "-t", "j/%i", "-q", 1, "-I", 10, "-L", 20, *at(own)]
    got = bench("pub", *line, "--json", path, "--require", "not_sent=0,unacknowledged=0,ack.p99<20s,sent=40")
    assert got.returncode == 0, got.stderr
    written = json.loads(path.read_text())
    assert written["command"] == "pub" and written["targets"] == [f"127.0.0.1:{own.port}"]
    assert written["messages"]["acknowledged"] == 40 and written["messages"]["unacknowledged"] == 0
    assert written["latencies"]["acknowledge"]["count"] == written["latencies"]["due_to_sent"]["count"] == 40
    assert written["connections"]["connects"] == 2 and written["failures"] == []
    got = bench("pub", *line, "--json", tmp_path / "no" / "pub.json")
    assert got.returncode == 1 and not got.stdout and "no/pub.json" in got.stderr


@pytest.mark.parametrize(
    "line, mention",
    [
        (["pub", "-t", "a", "--require", "loss=0"], "not_sent"),
        (["sub", "-t", "a", "--require", "not_sent=0"], "received"),
        (["conn", "--require", "p99<20"], "a time"),
        (["run", "2k_2k_qos1_p32_100mps_1n", "--target", "localhost:1", "--require", "los=0"], "duplicated"),
        (["suite", "none.yml", "--require", "not_sent=0"], "duplicated"),
    ],
)
def test_unknown_criteria_are_refused_before_the_run(line, mention):
    got = bench(*line)
    assert got.returncode == 2 and mention in got.stderr, got.stderr

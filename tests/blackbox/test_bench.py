"""`heraldmq bench`: whole runs with real brokers, agents and signals, and what goes wrong with them."""

import csv
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from harness import raw
from harness.bench import Started
from harness.broker import BINARY, Broker, run
from harness.listeners import Listeners
from harness.wait import DEADLINE_S, until

# Load is no attack here.
SETS = {"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}
QUICK = ["--duration", "500ms", "--warm-up", "100ms"]
ENDLESS = ["--duration", "600s", "--warm-up", "0s"]
PAIRS = ["2k_2k_qos1_p32_100mps_1n", "--scale", "1/400"]  # 5 pairs, 500 msg/s


@pytest.fixture(scope="module")
def target():
    with Broker(SETS) as broker:
        yield broker


def address(broker) -> str:
    return f"127.0.0.1:{broker.port}"


def bench(*args, **fields) -> subprocess.CompletedProcess:
    return run("bench", "run", *args, **fields)


def measured(tmp_path, *args) -> dict:
    """The record of a run that went to its end."""
    path = tmp_path / "run.json"
    got = bench(*args, "--json", path)
    assert got.returncode == 0, got.stderr
    (record,) = records(path)
    return record


def records(path) -> list[dict]:
    found = json.loads(pathlib.Path(path).read_text())
    return found if isinstance(found, list) else [found]


def fails(got, *mentions):
    """It ended with exit code 1 and one line of error, which mentions all of these."""
    assert got.returncode == 1, (got.stdout, got.stderr)
    assert got.stdout == "" and "panicked" not in got.stderr
    for word in mentions:
        assert word in got.stderr, f"{word!r} is not in {got.stderr!r}"


class Agent(Started):
    """`heraldmq bench agent` on a port that the system chooses."""

    def __init__(self, token="secret"):
        super().__init__("agent", "--listen", "127.0.0.1:0", env={"HERALDMQ_BENCH_TOKEN": token})
        self.address = self.process.stderr.readline().split()[-1]


def metric(broker, name) -> int:
    """The sum of a metric over its labels."""
    lines = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\d+)$", broker.http("/metrics")[1], re.M)
    assert lines, name
    return sum(map(int, lines))


def connections(broker) -> int:
    return metric(broker, "heraldmq_clients_connected")


def is_alive(pid) -> bool:
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def listens(port) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# ---- runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scenario, scale, receivers",
    [
        ("2k_2k_qos1_p32_100mps_1n", "1/400", 1),  # pairs
        ("qos0-p256-4-40K", "1/1000", 10),  # fan-out
        ("100k_1000_qos1_p256_1mps_1n", "1/1000", 1),  # shared subscription
        ("qos1-p256-30K-0", "1/300", 0),  # fan-in
        ("100M publishers, 500 APPLICATION subscribers, 1 h", "1/250000", 1),  # groups
    ],
)
def test_every_topology_gets_all_its_messages(target, tmp_path, scenario, scale, receivers):
    record = measured(
        tmp_path,
        *[scenario, "--scale", scale],
        *["--target", address(target), "--workers", 2],
        *QUICK,
    )
    counts = record["counts"]
    assert counts["sent"] > 0 and counts["delivered"] == counts["sent"] * receivers
    assert [counts[c] for c in ("lost", "duplicated", "reordered", "stray", "disconnects")] == [0] * 5
    assert record["workers"] == 2


def test_idle_connections(target, tmp_path):
    record = measured(
        tmp_path, "conn-tcp-1M-5K_1n_false", "--scale", "1/10000", "--target", address(target), *QUICK
    )
    assert record["connections"] == 100 and record["latencies"]["connect"]["count"] == 100



@pytest.fixture(scope="module")
def listeners(tmp_path_factory):
    with Listeners(tmp_path_factory.mktemp("listeners"), SETS) as broker:
        yield broker


@pytest.mark.parametrize(
    "kind, name", [("tls", "TLS"), ("ws", "WebSocket"), ("wss", "WebSocket over TLS")]
)
def test_every_transport_with_workers_and_agents(listeners, tmp_path, kind, name):
    layers = [*(["--cafile", listeners.ca.path] if kind != "ws" else []), *(["--ws"] if kind != "tls" else [])]
    target = ["--target", f"127.0.0.1:{listeners.port_of(f'mqtt-{kind}')}"]
    with Agent() as agent:
        for makers in (["--workers", 2], ["--agent", agent.address, "--token", "secret"]):
            record = measured(tmp_path, *PAIRS, *target, *layers, *makers, *QUICK)
            counts = record["counts"]
            assert counts["sent"] == counts["acknowledged"] == counts["delivered"] > 0 and counts["lost"] == 0
            assert {"name": "transport", "value": name} in record["settings"]
    accepted = listeners.metric("heraldmq_listener_accepted_total", listener=kind)
    assert accepted == 20, "each run has 10 connections"


def test_broker_of_an_unknown_authority(listeners):
    target = ["--target", f"127.0.0.1:{listeners.port_of('mqtt-tls')}"]
    fails(bench(*PAIRS, *target, "--tls", *QUICK), "client bench-", "TLS: invalid peer certificate")
    fails(bench(*PAIRS, *target, "--cafile", "no-such-file.pem", *QUICK), "no-such-file.pem")


@pytest.mark.parametrize("protocol", ["3.1", "3.1.1", "5.0"])
def test_every_protocol_version(target, tmp_path, protocol):
    record = measured(
        tmp_path, *PAIRS, "--target", address(target), "--protocol", protocol, *QUICK
    )
    assert record["counts"]["sent"] == record["counts"]["acknowledged"] == record["counts"]["delivered"] > 0


def test_mosquitto(tmp_path):
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if not program:
        pytest.skip("mosquitto is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    process = subprocess.Popen([program, "-c", config], stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), what="mosquitto")
        record = measured(
            tmp_path, *PAIRS, "--target", f"127.0.0.1:{port}", "--workers", 2, "--pid", process.pid, *QUICK
        )
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
    counts = record["counts"]
    assert counts["sent"] == counts["acknowledged"] == counts["delivered"] > 0 and counts["lost"] == 0
    assert "mosquitto" in record["system"][0]["name"] and record["system"][0]["resident_bytes"] > 0


def test_all_outputs(target, tmp_path):
    paths = [tmp_path / name for name in ("run.json", "run.csv", "run.html")]
    outputs = [part for path in paths for part in (f"--{path.suffix[1:]}", path)]
    got = bench(
        *PAIRS, "--target", address(target), "--label", "mine", "--pid", target.pid, *outputs, *QUICK
    )
    assert got.returncode == 0 and "2k_2k_qos1_p32_100mps_1n" in got.stdout, got
    (record,) = records(paths[0])
    assert record["label"] == "mine" and record["published"]["product"] == "BifroMQ"
    with open(paths[1]) as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(record["samples"]) >= 2
    page = paths[2].read_text()
    charts = re.findall(r"<figure>\s*<h4>([^<]*?) <", page)
    assert len(charts) == page.count("<svg") >= 6, charts
    assert {"Throughput", "p99 latency", "CPU of the broker", "Memory of the broker"} <= set(charts)
    assert "mine" in page
    # It opens offline: nothing is fetched.
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|url\(\s*["']?(https?:)?//|@import""", page)


def test_compare(target, tmp_path):
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path in paths:
        got = bench(*PAIRS, "--target", address(target), "--label", path.stem, "--json", path, *QUICK)
        assert got.returncode == 0, got.stderr
    got = run("bench", "compare", *paths, "--html", tmp_path / "both.html")
    assert got.returncode == 0 and "before" in got.stdout and "after" in got.stdout, got
    assert "<svg" in (tmp_path / "both.html").read_text()


def test_compare_refuses_what_is_no_record(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"format": 1}')
    fails(run("bench", "compare", path, path), "other.json")
    fails(run("bench", "compare", tmp_path / "none.json", path), "none.json")


# ---- shards --------------------------------------------------------------------------------------

TOKEN = "0123456789abcdef"
COLD = ["15k_15k_qos1_p256_1mps_1n_1v_cold", "--scale", "1/3000"]  # 5 pairs


def metrics(broker) -> list[str]:
    return ["--metrics", f"http://127.0.0.1:{broker.http_port}/metrics"]


def test_shards_over_time(tmp_path):
    (token := tmp_path / "token").write_text(TOKEN)
    paths = [tmp_path / name for name in ("run.json", "run.csv", "run.html")]
    outputs = [part for path in paths for part in (f"--{path.suffix[1:]}", path)]
    with Broker({**SETS, "http.tokenFile": str(token)}) as broker:
        args = [*PAIRS, "--target", address(broker), *metrics(broker), *outputs]
        with Started("run", *args, "--duration", "12s", "--warm-up", "0s") as going:
            # A second of load, so that there is a sample of it. The run goes on for seconds.
            received = "heraldmq_publishes_received_total"
            until(lambda: metric(broker, received) > 600, what="the messages of a second")
            url = f"http://127.0.0.1:{broker.http_port}"
            got = run("cluster", "split", "inbox", "0", "--url", url, "--token-file", str(token))
            assert got.returncode == 0, got.stderr
            got = going.end()
    assert got.returncode == 0, got.stderr
    assert re.search(r"^shards +1 +1 → 2 +1 +0$", got.stdout, re.M), got.stdout
    (record,) = records(paths[0])
    shards = [sample["shards"] for sample in record["samples"]]
    counts = [s["inbox"] for s in shards]
    assert counts[0] == 1 and counts[-1] == 2 and counts == sorted(counts), counts
    assert all(s["session"] == s["retain"] == 1 for s in shards), shards
    with open(paths[1]) as file:
        assert [int(row["shards_inbox"]) for row in csv.DictReader(file)] == counts
    assert "<h4>Shards <" in paths[2].read_text()
    got = run("bench", "compare", paths[0], paths[0])
    assert re.search(r"^inbox shards +2 +2 +=$", got.stdout, re.M), got.stdout


def test_cold_start(tmp_path):
    with Broker(SETS) as broker:
        args = [*COLD, "--target", address(broker), *QUICK]
        record = measured(tmp_path, *args, *metrics(broker))
        assert record["scenario"].endswith("_cold") and "new data folder" in record["reading"]
        assert not any("cold start" in warning for warning in record["warnings"]), record["warnings"]
        with broker.client("stays", props={"session_expiry": 3600}) as client:
            client.published("kept", b"x", retain=True)
        got = bench(*args, *metrics(broker))
        fails(got, "not a cold start", f"{broker.http_port}/metrics holds", "start it on a new data folder")
        assert re.search(r"holds \d+ sessions? and 1 retained message;", got.stderr), got.stderr
        got = bench(*args)
        assert got.returncode == 0 and "whether this was a cold start is not known" in got.stdout, got
    listed = run("bench", "list").stdout
    assert "30k_30k_qos1_p256_1mps_3n_1v_cold" in listed


# ---- agents --------------------------------------------------------------------------------------


def test_two_agents(target, tmp_path):
    with Agent() as one, Agent() as other:
        agents = f"{one.address},{other.address}"
        record = measured(
            tmp_path, *PAIRS, "--target", address(target), "--agent", agents, "--token", "secret", *QUICK
        )
        counts = record["counts"]
        assert counts["sent"] == counts["delivered"] > 0 and counts["lost"] == 0
        assert record["workers"] == 2
        # Nothing stays on the agents' machines.
        until(lambda: not one.workers() and not other.workers(), what="the end of the workers")


def test_wrong_token(target):
    with Agent() as agent:
        got = bench(*PAIRS, "--target", address(target), "--agent", agent.address, "--token", "wrong", *QUICK)
        fails(got, agent.address, "wrong token")


def test_agent_that_is_not_there(target):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{probe.getsockname()[1]}"
        got = bench(*PAIRS, "--target", address(target), "--agent", nobody, *QUICK)
    fails(got, nobody, "refused")


def test_agent_killed_during_a_run():
    # The run ends with the name of that agent, and the other agent's load with it.
    with Broker(SETS) as broker, Agent() as one, Agent() as other:
        args = [*PAIRS, "--target", address(broker), "--agent", f"{one.address},{other.address}"]
        with Started("run", *args, "--token", "secret", *ENDLESS) as going:
            until(lambda: connections(broker) == 10, what="all connections")
            (worker,) = other.workers()
            other.process.kill()
            os.kill(worker, signal.SIGKILL)
            got = going.end()
        fails(got, other.address)
        # Which of the two the run hears of first is not decided.
        assert "dead" in got.stderr or "is lost" in got.stderr, got.stderr
        assert one.address not in got.stderr.replace(f"{one.address},{other.address}", "")
        until(lambda: connections(broker) == 0 and not one.workers(), what="the end of the load")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_an_agent_and_its_workers_ends_them_in_order(number):
    with Broker(SETS) as broker, Agent() as agent:
        args = [*PAIRS, "--target", address(broker), "--agent", agent.address]
        with Started("run", *args, "--token", "secret", *ENDLESS) as going:
            until(lambda: connections(broker) == 10, what="all connections")
            for pid in [*agent.workers(), agent.process.pid]:  # as systemd does
                os.kill(pid, number)
            assert agent.process.wait(DEADLINE_S) == 0
            fails(going.end(), agent.address)
        until(lambda: connections(broker) == 0, what="the end of the connections")


def test_worker_killed_during_a_run():
    with Broker(SETS) as broker:
        with Started("run", *PAIRS, "--target", address(broker), "--workers", 2, *ENDLESS) as going:
            until(lambda: connections(broker) == 10, what="all connections")
            first, second = going.workers()
            os.kill(second, signal.SIGKILL)
            got = going.end()
        fails(got, "worker 1", "dead")
        assert not is_alive(first)
        until(lambda: connections(broker) == 0, what="the end of the load")


# ---- brokers that fail or refuse -----------------------------------------------------------------


def test_broker_killed_and_started_again(tmp_path):
    path = tmp_path / "run.json"
    with Broker(SETS) as first:
        port = first.port
        args = [*PAIRS, "--target", address(first), "--duration", "12s", "--warm-up", "0s", "--json", path]
        with Started("run", *args) as going:
            until(lambda: connections(first) == 10, what="all connections")
            until(lambda: metric(first, "heraldmq_publishes_received_total"), what="the first messages")
            first.kill()
            with Broker({**SETS, "mqttServerConfig.tcpListener.port": port}) as second:
                until(lambda: connections(second) == 10, what="all connections again")
                got = going.end()
    assert got.returncode == 0, got.stderr
    (record,) = records(path)
    assert record["counts"]["disconnects"] >= 10
    assert "connections broke off" in got.stdout
    # What was published again is acknowledged by the second broker.
    assert record["counts"]["acknowledged"] == record["counts"]["sent"]


def test_nobody_listens():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{probe.getsockname()[1]}"
        fails(bench(*PAIRS, "--target", nobody, *QUICK), nobody, "refused")


def test_unknown_host():
    fails(bench(*PAIRS, "--target", "nowhere.invalid:1883", *QUICK), "nowhere.invalid:1883")


@pytest.mark.parametrize("protocol", ["3.1.1", "5.0"])
def test_broker_that_wants_a_password(protocol):
    with Broker({"allowAnonymous": False}) as broker:
        got = bench(*PAIRS, "--target", address(broker), "--protocol", protocol, *QUICK)
    fails(got, address(broker), "ConnAck", "NotAuthorized")


def test_server_of_another_kind():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            stream, _ = server.accept()
            with stream:
                stream.recv(1)
                stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        at = "127.0.0.1:%d" % server.getsockname()[1]
        fails(bench(*PAIRS, "--target", at, *QUICK), at, "client bench-")


def test_more_connections_than_descriptors(target):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    scenario = ["2k_2k_qos0_p32_100mps_1n", "--scale", "1/10"]
    got = bench(*scenario, "--target", address(target), "--workers", 1, preexec_fn=few)
    fails(got, "400 connections are wanted", "ulimit -n", "--scale 1/")


# ---- the search ----------------------------------------------------------------------------------


def test_find_max(tmp_path):
    # What the broker reads of a client is limited, so that a rate not far above the scenario's fails.
    path = tmp_path / "search.json"
    scenario = ["2k_2k_qos1_p32_100mps_1n", "--scale", "1/2000"]  # one pair, 100 msg/s
    short = ["--duration", "300ms", "--warm-up", "0s"]
    with Broker({"limits.connection.bytesPerSecondIn": 12_000}) as broker:
        args = ["--target", address(broker), "--find-max", "p99<2s,loss=0", "--json", path]
        got = bench(*scenario, *args, *short, timeout=4 * DEADLINE_S)
    assert got.returncode == 0, got.stderr
    tried = {
        float(rate): verdict == "holds" for rate, verdict in re.findall(r"(\d+) msg/s: (.*)", got.stderr)
    }
    held = [rate for rate, holds in tried.items() if holds]
    failed = [rate for rate, holds in tried.items() if not holds]
    assert 0 < max(held) < min(failed) <= max(held) * 1.1, tried
    best = records(path)[-1]
    assert round(best["asked_per_second"]) == max(held) and best["counts"]["lost"] == 0


# ---- criteria for scripts ------------------------------------------------------------------------


def test_a_run_that_misses_what_is_required_ends_with_a_code_of_its_own(target, tmp_path):
    path = tmp_path / "run.json"
    args = [*PAIRS, "--target", address(target), *QUICK, "--json", path]
    got = bench(*args, "--require", "loss=0,connect.p99<60s,disconnects=0")
    assert got.returncode == 0 and "missed" not in got.stderr, got.stderr
    got = bench(*args, "--require", "loss=0,p99<1ns")
    assert got.returncode == 4 and "missed" in got.stderr and "is not < 1 ns" in got.stderr, got.stderr
    # What was measured is shown and kept all the same.
    assert got.stdout and records(path)[0]["counts"]["lost"] == 0


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_leaves_nothing_behind(number):
    # Ctrl-C, or what `timeout` and systemd do: no worker, no connection, and no session that the broker would keep for a day
    persistent = ["15k_15k_qos1_p256_1mps_1n_1v", "--scale", "1/1500"]
    with Broker(SETS) as broker:
        with Started("run", *persistent, "--target", address(broker), "--workers", 2, *ENDLESS) as going:
            until(lambda: connections(broker) == 20, what="all connections")
            workers = going.workers()
            assert len(workers) == 2
            for pid in [*workers, going.process.pid]:  # as a terminal does
                os.kill(pid, number)
            got = going.end()
        assert got.returncode == 1 and "is gone" not in got.stderr, got.stderr
        until(lambda: not any(map(is_alive, workers)), what="the end of the workers")
        until(lambda: connections(broker) == 0, what="the end of the connections")
        # The store ends them behind the connections.
        until(lambda: metric(broker, "heraldmq_sessions") == 0, what="the end of the sessions")


# ---- tests of TBMQ -------------------------------------------------------------------------------

PRINTED = pathlib.Path(__file__).parent / "printed"
GROUPS = [PRINTED / "tbmq-publishers.json", PRINTED / "tbmq-subscribers.json"]


def test_configuration_of_tbmq_is_played_as_it_stands(target, tmp_path):
    """Shares, one publisher alone, QoS 1 to 2, durable sessions beside clean ones, two workers."""
    record = measured(
        tmp_path, PRINTED / "tbmq-configuration.json", "--target", address(target), "--workers", 2,
        "--warm-up", "100ms", "--quiet",
    )
    counts = record["counts"]
    faults = [counts[c] for c in ("lost", "duplicated", "reordered", "stray", "disconnects")]
    assert faults == [0] * 5 and counts["sent"] == counts["acknowledged"] > 6 * 35 + 35 * 10 * 2, counts
    asked = 20 * 10 * 3 + 10 * 10 + 10 + 5 * 10 * 2
    assert record["connections"] == 55 and record["asked_per_second"] == pytest.approx(asked)
    assert {"name": "warm-up messages", "value": "6 per publisher"} in record["settings"]
    for latency in ("acknowledge", "deliver"):
        assert record["latencies"][latency]["mean_ms"] > 0 and record["latencies"][latency]["p95_ms"] > 0
    drained = sum(s["seconds"] for s in record["samples"] if s["phase"] == "drain")
    assert drained >= 1, "additionalSecondsToWait"


@pytest.mark.parametrize("protocol", ["3.1.1", "5.0"])
def test_printed_groups_of_tbmq_in_two_files(target, tmp_path, protocol):
    """The topics and payloads are those that the report prints, seen by a client of its own."""
    with target.client("onlooker") as onlooker:
        onlooker.subscribe("usa/ydwvv/1/+", qos=1)
        record = measured(
            tmp_path, *GROUPS, "--scale", "1/20000", "--target", address(target), "--protocol", protocol,
            "--warm-up", "0s", "--duration", "1s", "--warm-up-messages", 2,
        )
        message = onlooker.message()
        table = bench(*GROUPS, "--scale", "1/20000", "--target", address(target), *QUICK).stdout
    assert "p95 ms  ack mean ms  ack p95 ms" in table, table
    counts = record["counts"]
    assert counts["sent"] == counts["acknowledged"] == counts["delivered"] >= 20 and counts["lost"] == 0
    assert re.fullmatch(r"usa/ydwvv/1/test_pub_client_1_\d", message.topic)
    values = json.loads(message.payload)
    assert len(message.payload) == 114 and list(values) == ["lat", "long", "speed", "fuel", "batLvl"]


def test_messages_that_a_killed_run_of_tbmq_left_are_nobodys(target, tmp_path):
    lone = tmp_path / "groups.json"
    lone.write_text(f"[{','.join(path.read_text() for path in GROUPS)}]")
    load = [lone, "--scale", "1/20000", "--target", address(target), "--protocol", "3.1.1"]
    # Those of earlier runs may still be ending.
    before = metric(target, "heraldmq_sessions")
    with Started("run", *load, *ENDLESS) as started:
        until(lambda: connections(target) == 11, what="all connections")
        # By itself a worker would end its sessions.
        for pid in started.workers():
            os.kill(pid, signal.SIGKILL)
    until(lambda: connections(target) == 0, what="the end of all connections")
    with target.client("publisher") as publisher:
        # As a publisher of the killed run would have.
        for number in range(3):
            publisher.published("usa/ydwvv/1/test_pub_client_1_0", stamped(number))
    record = measured(tmp_path, *load, *QUICK)
    counts = record["counts"]
    assert counts["delivered"] == counts["sent"] > 0
    assert [counts[c] for c in ("lost", "duplicated", "reordered", "stray")] == [0] * 4
    until(lambda: metric(target, "heraldmq_sessions") <= before, what="the end of the durable session")


def stamped(sequence) -> bytes:
    """A payload of the tool's: publisher 0 of another run."""
    digits = f"{0:010}{sequence:010}{0x00010000:010}{1:010}".ljust(60, "0")
    keys = ["lat", "long", "speed", "fuel", "batLvl"]
    values = ",".join(f'"{key}":1.{digits[12 * i:12 * i + 12]}' for i, key in enumerate(keys))
    return f"{{{values}".encode().ljust(113) + b"}"


def test_plan_tells_what_it_read_of_tbmq(tmp_path):
    def plan(*files):
        return run("bench", "plan", *files)

    text = plan(PRINTED / "tbmq-configuration.json").stdout
    for words in ("warm-up       6 messages", "drain         1 s", "at a time     10 ", "watcher-0", "probe-0 to 9",
                  "$share/g/flux/void/entropy/#", "persistent"):
        assert words in text, text
    assert "200,000 publishers" in plan(*GROUPS).stdout and "6000" in plan(GROUPS[0]).stdout
    wrong = tmp_path / "wrong.json"
    for text, words in [
        ('{"id": 1, "publishers": 5}', "publisher group 1: `topicPrefix` is missing"),
        ('{"publisherGroups": [],\n "secondsToRum": 1}', "secondsToRum"),
        ('[{"publishers": 1, "topicPrefix": "a/", "clientIdPrefix": "x"}, '
         '{"subscribers": 1, "topicFilter": "a/+", "clientIdPrefix": "x"}]', "x0"),
    ]:
        wrong.write_text(text)
        got = plan(wrong)
        assert got.returncode == 2 and words in got.stderr and "wrong.json" in got.stderr, got


def test_a_process_is_found_by_its_name_and_the_record_says_what_was_measured(tmp_path):
    name = f"hmq-{os.getpid()}"  # The kernel knows 15 bytes of it.
    program = tmp_path / name
    program.symlink_to(BINARY)
    url = "http://127.0.0.1:{}/metrics"
    with Broker({**SETS, "limits.session.queueMessages": 777}, binary=str(program)) as broker:
        found = measured(
            tmp_path, *PAIRS, "--rate-scale", "1/2", *QUICK, "--target", address(broker), "--pid", name,
            "--metrics", url.format(broker.http_port), "--broker", "HeraldMQ, mine",
        )
        settings = {setting["name"]: setting["value"] for setting in found["settings"]}
        assert settings["broker"] == "HeraldMQ, mine"
        assert "limits.session.queueMessages=777" in settings["broker's settings"]
        assert settings["broker's command"].startswith(f"{program} serve")
        assert found["load"] == {"qos": 1, "payload": 32, "rate": 50.0}
        assert found["published"]["scaling"] == {"connections": 1 / 400, "rate": 0.5}
        assert all(sample["machine_load"] is not None for sample in found["samples"])
        with Broker(SETS, binary=str(program)) as second:
            got = bench(*PAIRS, *QUICK, "--target", address(second), "--pid", name)
            fails(got, "several processes", str(second.pid), str(broker.pid))
    fails(bench(*PAIRS, *QUICK, "--target", "127.0.0.1:1", "--pid", name), "no process is called")

"""`heraldmq bench` with files: workloads of several parts, and suites of several brokers."""

import json
import random
import signal
import socket
import subprocess

import yaml

from harness.broker import BINARY, environment, run
from harness.wait import DEADLINE_S, until

WORKLOAD = """
parts:
  - background: { connections: 5 }
  - pairs: { pairs: 5, rate: 20, payload: 256, qos: 1 }
  - fan-out: { publishers: 1, subscribers: 10, rate: 5, payload: 1KiB, qos: 0 }
  - fan-in: { publishers: 5, rate: 5, payload: 64, qos: 1 }
  - shared: { publishers: 5, subscribers: 2, rate: 5, payload: 64, qos: 2 }
  - groups: { publishers: 6, subscribers: 2, rate: 5, payload: 64, qos: 1, clean_session: false }
  - churn: { connections: 5, per_second: 5, subscribe: true, abrupt: true }
  - wills: { connections: 5, per_second: 5, payload: 32, qos: 1 }
  - retained: { topics: 10, readers: 2, per_second: 2, payload: 64, qos: 1 }
"""
SCENARIO = "2k_2k_qos0_p32_100mps_1n"


def free_port() -> int:
    """Below those that the kernel gives to clients, of which a load test has many."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def heraldmq(name, port, *, command=None):
    """A broker of a suite."""
    listener = f"mqttServerConfig.tcpListener.port={port}"
    serve = ["heraldmq", "serve", "--set", listener, "--set", "http.port=0", "--data-dir", "{dir}/data"]
    return {"name": name, "address": f"127.0.0.1:{port}", "command": command or serve}


def write_suite(folder, brokers, runs, **defaults):
    path = folder / "suite.yml"
    defaults = {"duration": "1s", "warm_up": "0s", "workers": 1, **defaults}
    path.write_text(yaml.safe_dump({"defaults": defaults, "brokers": brokers, "runs": runs}))
    return path


def test_a_workload_of_all_kinds_loses_nothing(broker, tmp_path):
    path, kept = tmp_path / "all.yml", tmp_path / "all.json"
    path.write_text(WORKLOAD)
    assert "pairs: 5 pairs" in run("bench", "plan", path).stdout
    target = ["--target", f"127.0.0.1:{broker.port}", "--duration", "2s", "--warm-up", "0s", "--json", kept]
    got = run("bench", "run", path, *target, timeout=2 * DEADLINE_S)
    assert got.returncode == 0, got.stderr
    record = json.loads(kept.read_text())
    counts = record["counts"]
    faults = [counts[name] for name in ("lost", "duplicated", "reordered", "stray", "disconnects")]
    assert faults == [0] * 5, counts
    # pairs 200, fan-out 100, shared 50, groups 60, wills 10, retained 40, if the machine is not busy
    assert counts["delivered"] >= 200, counts


def test_a_suite_makes_one_report_of_all_brokers(tmp_path):
    (tmp_path / "own.yml").write_text("parts:\n- pairs: { pairs: 2, rate: 10, payload: 64 }\n")
    brokers = [heraldmq("one", free_port()), heraldmq("other", free_port())]
    runs = [{"scenario": SCENARIO, "scale": "1/200"}, "own.yml"]
    page, kept = tmp_path / "page.html", tmp_path / "all.json"
    suite = write_suite(tmp_path, brokers, runs)
    got = run("bench", "suite", suite, "--html", page, "--json", kept, timeout=2 * DEADLINE_S)
    assert got.returncode == 0, got.stderr
    records = json.loads(kept.read_text())
    assert [record["label"] for record in records] == ["one", "other"] * 2
    assert [record["scenario"] for record in records][2:] == ["own", "own"]
    assert all(record["counts"]["delivered"] > 0 == record["counts"]["lost"] for record in records)
    assert all(len(record["system"]) == 1 for record in records)
    assert "<html" in page.read_text() and "other" in page.read_text()
    assert all(name in got.stdout for name in ("one", "other", "own", "published, BifroMQ"))


def test_a_suite_that_misses_what_is_required_names_the_run(tmp_path):
    (tmp_path / "own.yml").write_text("parts:\n- background: { connections: 2 }\n")
    suite = write_suite(tmp_path, [heraldmq("one", free_port())], ["own.yml"])
    got = run("bench", "suite", suite, "--require", "disconnects=0,connect.p99<1ns", timeout=2 * DEADLINE_S)
    assert got.returncode == 4, got.stderr
    (missed,) = [line for line in got.stderr.splitlines() if "missed: " in line]
    assert "own, one: connect.p99" in missed


def test_a_broker_that_dies_costs_only_its_own_runs(tmp_path):
    port = free_port()
    words = ["sh", "-c", "echo cannot open the moon >&2; exit 3"]
    brokers = [heraldmq("broken", free_port(), command=words), heraldmq("good", port)]
    kept = tmp_path / "all.json"
    suite = write_suite(tmp_path, brokers, [SCENARIO], scale="1/200")
    got = run("bench", "suite", suite, "--json", kept, timeout=2 * DEADLINE_S)
    assert got.returncode == 1
    assert "cannot open the moon" in got.stderr and "1 of 2 runs failed" in got.stderr
    assert [record["label"] for record in json.loads(kept.read_text())] == ["good"]
    assert "failed" in got.stdout


def test_an_interrupted_suite_leaves_no_broker_and_keeps_what_it_measured(tmp_path):
    port, kept = free_port(), tmp_path / "all.json"
    (tmp_path / "own.yml").write_text("parts:\n- background: { connections: 2 }\n")
    runs = ["own.yml", {"scenario": SCENARIO, "scale": "1/200", "duration": "300s"}]
    suite = write_suite(tmp_path, [heraldmq("one", port)], runs)
    command = [BINARY, "bench", "suite", str(suite), "--json", str(kept)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment())
    try:
        until(lambda: kept.exists() and "own" in kept.read_text(), what="the first record")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=DEADLINE_S)[1].decode()
    finally:
        process.kill()
    assert process.returncode == 1 and "interrupted" in said, said
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "the broker still listens"
    assert [record["scenario"] for record in json.loads(kept.read_text())] == ["own"]


def test_a_wrong_key_is_named_with_its_line(tmp_path):
    path = tmp_path / "wrong.yml"
    path.write_text("parts:\n- pairs:\n    pairs: 1\n    payloat: 64\n    rate: 1\n")
    got = run("bench", "plan", path)
    assert got.returncode == 2 and "wrong.yml:4: parts[0].pairs.payloat" in got.stderr
    assert "`payload`" in got.stderr
    suite = write_suite(tmp_path, [heraldmq("one", 1)], ["wrong.yml"])
    got = run("bench", "suite", suite)
    assert got.returncode == 2 and "runs[0]" in got.stderr and "wrong.yml:4" in got.stderr

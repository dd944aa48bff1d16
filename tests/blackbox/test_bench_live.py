"""`heraldmq bench run` while it runs: progress on standard error, and the figures for Prometheus."""

import re
import socket
import subprocess
import urllib.request

from harness.broker import BINARY, environment, run
from harness.wait import DEADLINE_S, until

SCENARIO = "2k_2k_qos0_p32_100mps_1n"


def arguments(broker, *more, duration="1s"):
    """A run of 2 publishers and 2 subscribers."""
    size = ["--scale", "1/1000", "--duration", duration, "--warm-up", "1s"]
    return ["bench", "run", SCENARIO, "--target", f"127.0.0.1:{broker.port}", *size, *more]


def metrics(url) -> dict:
    """Name and labels of each sample, and its value."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (l.rsplit(" ", 1) for l in lines if not l.startswith("#"))}


def value(samples, name, label="") -> float | None:
    """Of the first sample of this name with this among its labels."""
    found = (samples[s] for s in samples if s.startswith(f"heraldmq_bench_{name}{{") and label in s)
    return next(found, None)


def test_lines_tell_the_phases(broker):
    got = run(*arguments(broker, "--pid", broker.pid))
    assert got.returncode == 0, got.stderr
    said = [line for line in got.stderr.splitlines() if "warning" not in line]
    told = [re.sub(r"[:,].*", "", line.removeprefix("heraldmq: ")) for line in said]
    assert said[0].endswith(": connecting") and told[1:] == ["warm-up", "measuring", "draining"], got.stderr
    assert "4 of 4 connected; sent " in said[2] and f"pid {broker.pid}" in said[2]
    assert "\r" not in got.stderr and "\x1b" not in got.stderr


def test_metrics_while_running(broker):
    shown = ["--serve-metrics", "127.0.0.1:0", "--pid", str(broker.pid), "--label", "here"]
    command = [BINARY, *arguments(broker, *shown, duration="120s")]
    bench = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    )
    with bench:
        try:
            url = re.search(r"http://\S+", bench.stderr.readline()).group()

            def measured():
                samples = metrics(url)
                found = value(samples, "phase", 'phase="measure"') and value(samples, "messages_sent_total")
                return found and value(samples, "latency_seconds", 'figure="p99"') and samples

            page = until(measured, what="the measurement")
        finally:
            bench.kill()
    assert value(page, "connections", 'label="here"') == 4
    sent, delivered = (value(page, f"messages_{kind}_total") for kind in ("sent", "delivered"))
    assert sent > 0 and delivered + value(page, "messages_missing") >= sent
    assert value(page, "latency_seconds", 'figure="p99"') > 0
    assert value(page, "broker_resident_memory_bytes", f"pid {broker.pid}") > 0


def test_metrics_port_in_use(broker, tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text("earlier figures")
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        got = run(*arguments(broker, "--serve-metrics", address, "--json", kept))
    assert got.returncode == 1 and not got.stdout
    [said] = got.stderr.splitlines()
    assert address in said and "in use" in said
    assert kept.read_text() == "earlier figures"


def test_quiet(broker):
    got = run(*arguments(broker, "--quiet"))
    assert got.returncode == 0 and SCENARIO in got.stdout
    assert all("warning" in line for line in got.stderr.splitlines()), got.stderr

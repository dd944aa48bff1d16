#!/usr/bin/env python3
"""What ordinary clients notice of an attack.

Starts a broker with limits per address, lets `heraldmq bench` measure ordinary clients alone and then
during each attack, and prints the latencies side by side. Everything runs on this machine: ordinary
clients come from 127.0.0.1, attackers from 127.0.0.2 on, and the attackers' own CPU time is part of what
the ordinary clients notice.

  bench/abuse.py target/release/heraldmq
  bench/abuse.py target/release/heraldmq --attacks connection-flood --duration 30s
"""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "blackbox"))

from broker import ENVIRONMENT, Broker  # noqa: E402
from harness import raw  # noqa: E402

ORDINARY = """\
name: ordinary
parts:
  - pairs: { pairs: 50, rate: 10, payload: 64, qos: 1 }
"""

LIMITS = {
    "mqttServerConfig.tcpListener.host": "127.0.0.1",
    "mqttServerConfig.tcpListener.port": 0,
    "http.port": 0,
    "abuse.includeLoopback": "true",
    "abuse.connectionsPerAddress": 200,
    "abuse.connectionsPerSecondPerAddress": 200,
    "limits.node.connections": 2000,
}

# Connections that an attacker who keeps them open tries to have.
KEPT = 1000


def opened(port, source):
    """A new connection from this address."""
    stream = socket.socket()
    stream.bind((source, 0))
    stream.connect(("127.0.0.1", port))
    return stream


def half_open(port, source, attempts, drip=b""):
    """Opens connections and says nothing on them, or a byte now and then; opens others for those closed."""
    kept = []
    while True:
        for stream in kept:
            with contextlib.suppress(OSError):
                stream.send(drip)
        closed, _, _ = select.select(kept[:500], [], [], 0)
        for stream in closed:
            kept.remove(stream)
            stream.close()
        with contextlib.suppress(OSError):
            while len(kept) < KEPT:
                kept.append(opened(port, source))
                attempts.value += 1
                if len(kept) % 100 == 0:
                    break


def slow_loris(port, source, attempts):
    """CONNECT packets that come byte by byte, each byte the first of another remaining length."""
    half_open(port, source, attempts, b"\x10")


def connection_flood(port, source, attempts):
    """Connects and leaves, as fast as possible."""
    while True:
        with contextlib.suppress(OSError):
            opened(port, source).close()
        attempts.value += 1


def flood(packet):
    """Connects, sends a packet, waits for what comes of it, and begins again, as fast as possible."""

    def attack(port, source, attempts):
        while True:
            with contextlib.suppress(OSError), opened(port, source) as stream:
                stream.settimeout(1)
                stream.sendall(packet)
                stream.recv(4096)
            attempts.value += 1

    return attack


def oversized(port, source, attempts):
    """Packets that announce much more than may come before the login, and as much of them as gets through."""
    while True:
        with contextlib.suppress(OSError), opened(port, source) as stream:
            stream.settimeout(1)
            stream.sendall(b"\x10\xff\xff\xff\x7f" + bytes(1 << 20))
            stream.recv(4096)
        attempts.value += 1


ATTACKS = {
    "slow-loris": slow_loris,
    "half-open": half_open,
    "connection-flood": connection_flood,
    "malformed-flood": flood(b"\x10\x0a\0\x04MQTT\x05xyz___"),
    "login-flood": flood(raw.connect("", username="admin", password=b"guess")),
    "oversized": oversized,
}


def refused(broker):
    """Connections and logins that were refused or closed for what they did."""
    url = f"http://127.0.0.1:{broker.port('http')}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    names = "refusals|connections_awaiting_connect_closed|violations|connects_refused"
    return sum(int(n) for n in re.findall(rf"^heraldmq_(?:{names})_total\S* (\d+)", text, re.M))


def measured(binary, broker, duration, folder):
    """The record of `heraldmq bench`, which ordinary clients leave."""
    workload, record = pathlib.Path(folder, "ordinary.yml"), pathlib.Path(folder, "record.json")
    workload.write_text(ORDINARY)
    command = [binary, "bench", "run", str(workload), "--target", f"127.0.0.1:{broker.port('mqtt-tcp')}"]
    command += ["--duration", duration, "--pid", str(broker.process.pid), "--workers", "1", "--json", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"the measurement failed:\n{done.stderr}")
    return json.loads(record.read_text())


def attacked(arguments, name):
    """One row: ordinary clients during an attack, or alone."""
    sets = LIMITS | dict(pair.split("=", 1) for pair in arguments.set)
    with tempfile.TemporaryDirectory() as folder, Broker(arguments.binary, sets, folder) as broker:
        attackers, attempts = [], [multiprocessing.Value("Q", 0) for _ in range(arguments.attackers)]
        try:
            start = time.monotonic()
            if name:
                for number, count in enumerate(attempts):
                    source = f"127.0.0.{number + 2}"
                    process = multiprocessing.Process(target=ATTACKS[name], args=(broker.port("mqtt-tcp"), source, count))
                    process.start()
                    attackers.append(process)
            record = measured(arguments.binary, broker, arguments.duration, folder)
            seconds = time.monotonic() - start
            turned_away = refused(broker)
        finally:
            for process in attackers:
                process.kill()
                process.join()
        lines = len(broker.log.read_text().splitlines())
    latency, connect = record["latencies"]["deliver"], record["latencies"]["connect"]
    cells = [name or "none", sum(count.value for count in attempts) / seconds, turned_away / seconds]
    cells += [latency[key] for key in ("p50_ms", "p95_ms", "p99_ms", "max_ms")]
    return [*cells, connect["max_ms"], record["counts"]["lost"], record["counts"]["disconnects"], lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the heraldmq to test")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--attackers", type=int, default=1, help="processes and addresses (default 1)")
    parser.add_argument("--duration", default="10s", help="of each measurement (default 10s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the broker")
    arguments = parser.parse_args()
    columns = "attack attempts/s refused/s p50-ms p95-ms p99-ms max-ms connect-max-ms lost disconnects log-lines"
    print("".join(f"{column:>17}" for column in columns.split()))
    for name in (None, *arguments.attacks):
        cells = attacked(arguments, name)
        print("".join(f"{c:17.2f}" if isinstance(c, float) else f"{c:>17}" for c in cells), flush=True)


if __name__ == "__main__":
    main()

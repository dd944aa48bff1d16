#!/usr/bin/env python3
"""What TLS and WebSocket cost the broker, beside TCP.

Starts a broker with a listener of each kind for each measurement, lets `heraldmq bench` connect and send,
and prints medians over the rounds:

  memory     bytes of the broker's process per idle connection with one subscription: the slope between
             two numbers of connections
  handshake  CPU time from accepting a connection to SUBACK, TLS 1.3 without resumption, P-256; and how many
             of these a core does in a second
  message    CPU time per message, in and out, of pairs at a rate, where each message comes alone, and with a
             window of messages under way, where they come in batches

  bench/transports.py target/release/heraldmq
  bench/transports.py target/release/heraldmq --rounds 1 --transports tcp tls
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from broker import ENVIRONMENT, Broker

LAYERS = {
    "tcp": [],
    "tls": ["--insecure"],
    "ws": ["--ws"],
    "wss": ["--insecure", "--ws"],
}

IDLE = """\
name: idle
parts:
  - churn: {{ connections: {connections}, per_second: 0.001, subscribe: true, abrupt: false }}
"""

PAIRS = """\
name: pairs
parts:
  - pairs: {{ pairs: {pairs}, {pace}, payload: 64, qos: {qos} }}
"""

# Few and many idle connections.
COUNTS = (2000, 8000)

LOADS = {
    "rate, QoS 0": PAIRS.format(pairs=100, pace="rate: 50", qos=0),
    "rate, QoS 1": PAIRS.format(pairs=100, pace="rate: 50", qos=1),
    "batches, QoS 0": PAIRS.format(pairs=50, pace="window: 32", qos=0),
    "batches, QoS 1": PAIRS.format(pairs=50, pace="window: 32", qos=1),
}


def listeners(files):
    """The options of a broker that listens by each transport, without limits on the rates."""
    sets = {"http.port": 0}
    for transport in LAYERS:
        listener = f"mqttServerConfig.{transport}Listener"
        sets |= {f"{listener}.host": "127.0.0.1", f"{listener}.port": 0}
        if transport in ("tls", "wss"):
            certificate, key = files
            sets |= {f"{listener}.sslConfig.certFile": certificate, f"{listener}.sslConfig.keyFile": key}
    return sets | {f"limits.connection.bytesPerSecond{way}": 0 for way in ("In", "Out")}


def make_certificate(folder):
    """Files of a certificate that signs itself, and of its key."""
    files = f"{folder}/certificate.pem", f"{folder}/key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -days 1"
    subprocess.run([*command.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def measured(arguments, files, transport, workload, duration):
    """The record of `heraldmq bench` with a broker of its own."""
    with tempfile.TemporaryDirectory() as folder, Broker(arguments.binary, listeners(files), folder) as broker:
        plan, record = pathlib.Path(folder, "workload.yml"), pathlib.Path(folder, "record.json")
        plan.write_text(workload)
        command = [arguments.tool or arguments.binary, "bench", "run", str(plan)]
        command += ["--target", f"127.0.0.1:{broker.port(f'mqtt-{transport}')}", *LAYERS[transport], "--workers", "1"]
        command += ["--pid", str(broker.process.pid), "--duration", duration, "--warm-up", "1s"]
        done = subprocess.run(
            [*command, "--quiet", "--json", str(record)], capture_output=True, text=True, env=ENVIRONMENT
        )
        if done.returncode:
            sys.exit(f"a measurement over {transport} failed:\n{done.stderr}")
        return json.loads(record.read_text())


def connections(arguments, files, transport):
    """Memory per idle connection, and CPU time per handshake."""
    few, many = (
        measured(arguments, files, transport, IDLE.format(connections=count), "1s")["system"][0]
        for count in COUNTS
    )
    more = COUNTS[1] - COUNTS[0]
    return {
        "memory, bytes": (many["resident_bytes"] - few["resident_bytes"]) / more,
        "handshake, µs": (many["connecting_cpu_s"] - few["connecting_cpu_s"]) / more * 1e6,
    }


def message(arguments, files, transport, workload):
    """CPU time per message, in µs."""
    record = measured(arguments, files, transport, workload, arguments.duration)
    faults = [record["counts"][fault] for fault in ("lost", "duplicated", "reordered", "disconnects")]
    if any(faults):
        sys.exit(f"a broker with faults over {transport}: {record['counts']}")
    used, messages = record["system"][0], record["messages_per_second"] * record["seconds"]
    return (used["cpu_user_s"] + used["cpu_system_s"]) / messages * 1e6


def one_round(arguments, files, transport):
    """By figure."""
    figures = connections(arguments, files, transport)
    for name, workload in LOADS.items():
        figures[f"{name}, µs"] = message(arguments, files, transport, workload)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the heraldmq to test")
    parser.add_argument("--tool", help="the heraldmq that makes the load, if it is another")
    parser.add_argument("--transports", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are shown (default 3)")
    parser.add_argument("--duration", default="4s", help="of each measurement of messages (default 4s)")
    arguments = parser.parse_args()
    rounds = {transport: [] for transport in arguments.transports}
    with tempfile.TemporaryDirectory() as folder:
        files = make_certificate(folder)
        for _ in range(arguments.rounds):
            # In turns, so that what else the machine does falls on all of them.
            for transport, figures in rounds.items():
                figures.append(one_round(arguments, files, transport))
    print("| | " + " | ".join(rounds) + " |\n|---|" + "---:|" * len(rounds))
    medians = {
        name: [statistics.median(figures[name] for figures in done) for done in rounds.values()]
        for name in next(iter(rounds.values()))[0]
    }
    medians["handshakes per second and core"] = [1e6 / cost for cost in medians["handshake, µs"]]
    for name, values in medians.items():
        cells = (f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in values)
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

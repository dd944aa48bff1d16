#!/usr/bin/env python3
"""How fast outlets are, what a message of them costs, and what others notice of them.

    bench/outlets.py target/release/heraldmq rates             # a full queue goes to each target
    bench/outlets.py target/release/heraldmq bystanders        # delays of others: alone, beside busy outlets, beside one that hangs
    bench/outlets.py target/release/heraldmq hang --minutes 60 # memory of the broker and of the process while a target hangs

Everything runs on this machine. CPU time is that of the broker and of the processes of the outlets, by /proc; the targets and the
publishers are processes of their own and do not count.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from broker import ENVIRONMENT, Broker  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
PAUSE_S = 0.1
PUBLISHERS = 20
# For the longest wait of a measurement, in s.
PATIENCE_S = 600

OPTIONS = {
    "mqttServerConfig.tcpListener.host": "127.0.0.1",
    "mqttServerConfig.tcpListener.port": 0,
    "http.port": 0,
    "limits.connection.bytesPerSecondIn": 0,
    "limits.connection.bytesPerSecondOut": 0,
    "limits.session.queueMessages": 10_000_000,
    "limits.session.queueBytes": 16 << 30,
}

ORDINARY = """\
name: ordinary
parts:
  - pairs: { pairs: 50, rate: 10, payload: 64, qos: 1 }
"""


def serve_http(listener, hangs):
    """Acknowledges each request, or none."""

    def serve(stream):
        with contextlib.suppress(OSError), stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = stream.makefile("rb", buffering=1 << 18)
            while True:
                length = 0
                while (line := file.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                if line == b"":
                    return
                file.read(length)
                if hangs:
                    threading.Event().wait()
                stream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    while True:
        stream, _ = listener.accept()
        threading.Thread(target=serve, args=(stream,), daemon=True).start()


@contextlib.contextmanager
def http_target(hangs=False):
    """An HTTP server in a process of its own; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.Process(target=serve_http, args=(listener, hangs), daemon=True)
        process.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/in"
        finally:
            process.kill()
            process.join()


@contextlib.contextmanager
def nats_target(folder, kept):
    """A server of NATS, which keeps the messages in `file` or `memory`; its URL. `scripts/tools.sh` has need_nats_server."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/blackbox"))
    from harness.nats import NatsServer

    with NatsServer(pathlib.Path(folder)) as server:
        with server.client() as nats:
            nats.stream("OUT", "out.>", storage=kept)
        yield server.url


def outlet(name, target, filter="out/#", batch=1000):
    return {"name": name, "source": {"filter": filter}, "target": target, "batch": {"messages": batch}}


def api(broker, path, method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{broker.port('http')}/api/v1{path}", method=method, data=b"{}" if method == "POST" else None)
    if method == "POST":
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", f"Bearer {broker.key}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def started(binary, folder, outlets):
    """A broker with these outlets, which run."""
    keys = f"{folder}/keys.json"
    command = [binary, "api-key", "add", keys, "--name", "bench", "--role", "operator"]
    key = subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout.strip()
    broker = Broker(binary, OPTIONS | {"http.keyFile": keys}, folder, json.dumps({"outlets": outlets}))
    broker.key = key
    for each in outlets:
        wait(lambda: api(broker, f"/outlets/{each['name']}")["state"] == "running", f"{each['name']} to run")
    return broker


def wait(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain for {what}")
        time.sleep(PAUSE_S)


def cpu_s(process):
    """CPU time of a process, in s."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(process):
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {process} has no resident memory")


def publish(binary, broker, topic, messages, payload=256):
    """Publishes so many messages with QoS 1, as fast as they are acknowledged."""
    command = [binary, "bench", "pub", "-h", "127.0.0.1", "-p", str(broker.port("mqtt-tcp")), "-c", str(PUBLISHERS), "-I", "0.1", "-q", "1"]
    # A text: not every target takes all bytes.
    command += ["-m", "x" * payload, "-t", topic, "-L", str(messages // PUBLISHERS), "-F", "100"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"the messages could not be published:\n{done.stdout}\n{done.stderr}")


def last_error(broker, name):
    return api(broker, f"/outlets/{name}")["figures"]["last_error"]


def rate(arguments, name, target, folder, batch=1000):
    """One row: so many messages wait while the outlet is paused, and then go."""
    with started(arguments.binary, folder, [outlet(name, target, batch=batch)]) as broker:
        api(broker, f"/outlets/{name}/pause", "POST")
        wait(lambda: api(broker, f"/outlets/{name}")["state"] == "paused", "the pause")
        publish(arguments.binary, broker, "out/%i", arguments.messages)
        figures = api(broker, f"/outlets/{name}")["figures"]
        queued, child = figures["lag_messages"], figures["process"]
        cpu = [cpu_s(process) for process in (broker.process.pid, child)]
        start = time.monotonic()
        api(broker, f"/outlets/{name}/resume", "POST")
        wait(lambda: api(broker, f"/outlets/{name}")["figures"]["lag_messages"] == 0, "the messages to arrive")
        seconds = time.monotonic() - start
        own, of_child = (cpu_s(process) - at for process, at in zip((broker.process.pid, child), cpu))
        wait(lambda: api(broker, f"/outlets/{name}")["figures"]["delivered"] >= queued or last_error(broker, name), "the figures")
        figures = api(broker, f"/outlets/{name}")["figures"]
        if figures["delivered"] < queued:
            sys.exit(f"{name} has {figures['delivered']} of {queued} messages: {figures['last_error']}")
        cells = [name, queued, queued / seconds, own / queued * 1e6, of_child / queued * 1e6, (own + of_child) / queued * 1e6]
        cells += [figures["batch_ms"] or 0.0, resident_mb(child), resident_mb(broker.process.pid)]
    row(cells)


def row(cells):
    print("".join(f"{cell:16.2f}" if isinstance(cell, float) else f"{cell:>16}" for cell in cells), flush=True)


def rates(arguments):
    row("target messages messages/s broker-us process-us both-us batch-ms process-MB broker-MB".split())
    folders = (tempfile.TemporaryDirectory(dir=arguments.folder) for _ in iter(int, 1))
    with next(folders) as folder:
        rate(arguments, "file", {"file": {"path": f"{folder}/out"}}, folder)
    for name, body, more in (("http-lines", "lines", {}), ("http-array", "array", {}), ("http-raw-32", "raw", {"concurrency": 32})):
        with next(folders) as folder, http_target() as url:
            rate(arguments, name, {"http": {"url": url, "body": body, **more}}, folder)
    if shutil.which("nats-server"):
        for name, kept in (("nats-memory", "memory"), ("nats-file", "file")):
            with next(folders) as folder, next(folders) as other, nats_target(other, kept) as url:
                rate(arguments, name, {"nats": {"url": url}}, folder)
    if arguments.kafka:
        kafka = {"servers": arguments.kafka, "topic": "out"}
        for name, more in (("kafka", {}), ("kafka-once", {"exactlyOnce": True})):
            with next(folders) as folder:
                rate(arguments, name, {"kafka": {**kafka, **more}}, folder)
    if arguments.postgres:
        # The table, which is there: CREATE TABLE out (topic text, body text).
        columns = [{"name": "topic", "value": "${topic}"}, {"name": "body", "value": "${payload}"}]
        postgres = {"url": arguments.postgres, "passwordFile": arguments.postgres_password, "table": "out", "columns": columns}
        with next(folders) as folder:
            rate(arguments, "postgres", {"postgres": postgres}, folder)
        statement = {**postgres, "statement": "INSERT INTO out (topic, body) VALUES (${topic}, ${payload})"}
        with next(folders) as folder:
            rate(arguments, "postgres-sql", {"postgres": {key: statement[key] for key in ("url", "passwordFile", "statement")}}, folder)
    with next(folders) as folder, next(folders) as other, Broker(arguments.binary, OPTIONS, other) as there:
        rate(arguments, "mqtt", {"mqtt": {"url": f"mqtt://127.0.0.1:{there.port('mqtt-tcp')}"}}, folder)


def delays(arguments, broker, folder):
    """The delays of ordinary clients, in ms: p50, p99, and the most."""
    workload, record = pathlib.Path(folder, "ordinary.yml"), pathlib.Path(folder, "record.json")
    workload.write_text(ORDINARY)
    command = [arguments.binary, "bench", "run", str(workload), "--target", f"127.0.0.1:{broker.port('mqtt-tcp')}"]
    command += ["--duration", f"{arguments.seconds}s", "--workers", "1", "--json", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"the measurement failed:\n{done.stderr}")
    delivered = json.loads(record.read_text())["latencies"]["deliver"]
    return [delivered[key] for key in ("p50_ms", "p99_ms", "max_ms")]


@contextlib.contextmanager
def load(arguments, broker, per_second):
    """Publishes for the outlets all the while."""
    interval = max(1, PUBLISHERS * 1000 // per_second)
    command = [arguments.binary, "bench", "pub", "-h", "127.0.0.1", "-p", str(broker.port("mqtt-tcp")), "-c", str(PUBLISHERS), "-I", str(interval)]
    command += ["-q", "1", "-s", "256", "-t", "out/%i"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def bystanders(arguments):
    """The same load of publishers in each row; what they publish goes nowhere, to ten outlets, or to one whose target hangs."""
    row(["outlets", "round", "p50-ms", "p99-ms", "max-ms"])
    for number in range(arguments.rounds):
        for name in ("none", "ten busy", "one hangs"):
            with contextlib.ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder))
                outlets = []
                if name == "ten busy":
                    url = stack.enter_context(http_target())
                    outlets = [outlet(f"busy-{n}", {"http": {"url": url}}, filter=f"out/{n + 1}") for n in range(10)]
                elif name == "one hangs":
                    url = stack.enter_context(http_target(hangs=True))
                    outlets = [outlet("hangs", {"http": {"url": url}})]
                broker = stack.enter_context(started(arguments.binary, folder, outlets))
                stack.enter_context(load(arguments, broker, arguments.rate))
                row([name, number + 1, *delays(arguments, broker, folder)])


def hang(arguments):
    """What comes goes into the queue of the session, which drops the oldest messages when it is full."""
    row("minute broker-MB process-MB waiting queued dropped".split())
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, http_target(hangs=True) as url:
        OPTIONS["limits.session.queueMessages"] = arguments.queue
        with started(arguments.binary, folder, [outlet("hangs", {"http": {"url": url}})]) as broker, load(arguments, broker, arguments.rate):
            for minute in range(arguments.minutes + 1):
                figures = api(broker, "/outlets/hangs")["figures"]
                process = figures["process"]
                with urllib.request.urlopen(f"http://127.0.0.1:{broker.port('http')}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
                dropped = sum(int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if line.startswith("heraldmq_dropped_total{"))
                row([minute, resident_mb(broker.process.pid), resident_mb(process) if process else 0.0, figures["waiting_messages"], figures["lag_messages"], dropped])
                if minute < arguments.minutes:
                    time.sleep(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the heraldmq to measure")
    parser.add_argument("--folder", help="where the data folders are made (default: that of temporary files)")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("rates")
    command.add_argument("--messages", type=int, default=200_000)
    command.add_argument("--kafka", metavar="HOST:PORT", help="a server of Kafka with a topic `out`; heraldmq-outlet-kafka is beside the binary")
    command.add_argument("--postgres", metavar="URL", help="a database with a table `out` of the columns topic and body")
    command.add_argument("--postgres-password", metavar="FILE")
    command.set_defaults(run=rates)
    command = commands.add_parser("bystanders")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--seconds", type=int, default=20)
    command.add_argument("--rate", type=int, default=5_000, help="messages a second for the outlets")
    command.set_defaults(run=bystanders)
    command = commands.add_parser("hang")
    command.add_argument("--minutes", type=int, default=60)
    command.add_argument("--rate", type=int, default=1_000)
    command.add_argument("--queue", type=int, default=100_000, help="messages that the queue holds")
    command.set_defaults(run=hang)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

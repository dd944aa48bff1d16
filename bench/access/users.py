#!/usr/bin/env python3
"""What the store of users, groups and rules costs a lone broker, and a cluster of three.

Adds users with a hash as argon2id writes it and one group through the HTTP API, over kept connections; prints the rate, the
memory of the process with as many users as were added, and how long it takes from its start to "ready" afterwards. With
`--cluster` it prints how long a change takes until each of three nodes has it, and the CPU of the nodes while nothing happens.

  bench/access/users.py target/release/heraldmq --users 250000
  bench/access/users.py target/release/heraldmq --cluster --changes 300
"""

import argparse
import base64
import hashlib
import http.client
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "blackbox")]
TICKS = os.sysconf("SC_CLK_TCK")


def hash_of(number) -> str:
    """As long as a hash of argon2id, and of its form. Nobody can log in with it."""
    digest = hashlib.sha256(str(number).encode()).digest()
    salt, tag = (base64.b64encode(part).decode().rstrip("=") for part in (digest[:16], digest))
    return f"$argon2id$v=19$m=19456,t=2,p=1${salt}${tag}"


class Asker:
    """A connection to the HTTP port that is kept."""

    def __init__(self, host, port, key):
        self.connection = http.client.HTTPConnection(host, port, timeout=60)
        self.headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def ask(self, method, path, body=None):
        self.connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201, 204):
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text) if text else None


def add_all(place, first, behind, threads):
    """Adds users by so many requests at a time; seconds."""
    failures = []

    def run(start):
        try:
            add_some(start)
        except Exception as error:
            failures.append(error)

    def add_some(start):
        asker = Asker(*place)
        for number in range(first + start, behind, threads):
            body = {"name": f"device-{number:07}", "hash": hash_of(number), "groups": ["devices"]}
            asker.ask("POST", "/users", body)

    began = time.monotonic()
    running = [threading.Thread(target=run, args=(start,)) for start in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    if failures:
        raise failures[0]
    return time.monotonic() - began


def alone(args):
    from harness.broker import BASE, Broker, run

    with tempfile.TemporaryDirectory() as folder:
        keys, data = pathlib.Path(folder) / "keys.json", pathlib.Path(folder) / "data"
        key = run("api-key", "add", keys, "--name", "bench", "--role", "administrator").stdout.strip()
        sets = {"http.keyFile": keys, "log.level": "warn,herald_broker=info"}
        with Broker(sets, config=BASE, data_dir=data) as broker:
            before = broker.rss()
            place = ("127.0.0.1", broker.http_port, key)
            Asker(*place).ask("POST", "/groups", {"name": "devices", "rules": ["allow publish devices/%u/#"]})
            added = 0
            while added < args.users:
                behind = min(args.users, added + args.users // 5)
                took = add_all(place, added, behind, args.threads)
                print(f"{behind} users: {(behind - added) / took:.0f} a second, {(broker.rss() - before) / behind:.0f} bytes each")
                added = behind
        began = time.monotonic()
        with Broker(sets, config=BASE, data_dir=data) as broker:
            print(f"ready after {time.monotonic() - began:.2f} s, {(broker.rss() - before) / 1e6:.0f} MB more than empty")
            place = ("127.0.0.1", broker.http_port, key)
            print(Asker(*place).ask("GET", "/control"))


def cpu(pid) -> float:
    """Seconds of CPU of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cluster(args):
    from staged.cluster import HTTP, Cluster

    with Cluster(3) as nodes:
        askers = [Asker(n.place.address, HTTP, nodes.token.read_text()) for n in nodes.nodes]

        def idle(what):
            before, began = [cpu(n.broker.pid) for n in nodes.nodes], time.monotonic()
            time.sleep(args.idle)
            took = time.monotonic() - began
            shares = [(cpu(n.broker.pid) - b) / took * 100 for n, b in zip(nodes.nodes, before)]
            print(f"CPU of idle nodes, {what}: " + ", ".join(f"{share:.2f} %" for share in shares))

        idle("not begun")
        times = []
        askers[0].ask("POST", "/users", {"name": "first", "hash": hash_of(0)})
        for number in range(args.changes):
            began = time.monotonic()
            body = {"name": f"u{number}", "hash": hash_of(number)}
            revision = askers[number % 3].ask("POST", "/users", body)["revision"]
            while any(asker.ask("GET", "/control")["revision"] < revision for asker in askers):
                pass
            times.append((time.monotonic() - began) * 1000)
        times.sort()
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        print(f"a change is in force at three nodes after {p50:.1f} ms (p50), {p99:.1f} ms (p99), {times[-1]:.1f} ms (most)")
        idle("begun")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--users", type=int, default=250_000)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds for which nothing happens")
    args = parser.parse_args()
    os.environ["HERALDMQ_BIN"] = str(pathlib.Path(args.binary).resolve())
    cluster(args) if args.cluster else alone(args)


if __name__ == "__main__":
    main()

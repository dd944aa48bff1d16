#!/usr/bin/env python3
"""What each further node costs: clusters of several sizes on this machine, one after the other, as a table.

  bench/nodes.py target/release/heraldmq
  bench/nodes.py target/release/heraldmq --nodes 3,5,9 --seconds 20

Each cluster is started anew, with nine shards of three voters. When they have settled, this is measured: CPU time, memory and
descriptors of idle nodes; CPU time of all nodes for each message, less that of as long an idle time, for clean pairs, a shared
group, a fan-out and persistent sessions, spread over all nodes; what a topic filter takes of the memory of each node, as the slope between two
numbers of filters that clients of the first node have; and how long CONNACK and SUBACK take, one client at a time, node by node.
The last column says how much the cluster's nodes would have each for every node that is added: the slope from the smallest cluster to the largest.

CPU time is what to compare: all nodes share this machine's cores, so that latencies of many nodes are those of a queue for a core.

Deliberately absent: links with latency, nodes that fail, load that grows with the cluster.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "blackbox"))

from cluster import played, running  # noqa: E402
from harness.raw import Raw  # noqa: E402

VOTERS = 3
# How long it is waited until the nodes have done what the last step left to do, in s.
CALM_S = 5
# Filters of a client, and of a SUBSCRIBE.
OF_CLIENT, AT_ONCE = 1_000, 100

# Rates are of each publisher. 1,000 messages a second are delivered by each.
WORKLOADS = {
    "clean 1:1": "pairs: { pairs: 100, rate: 10, payload: 256, qos: 0 }",
    "shared": "shared: { publishers: 100, subscribers: 18, rate: 10, payload: 256, qos: 0 }",
    "fan-out 1 → 100": "fan-out: { publishers: 1, subscribers: 100, rate: 10, payload: 256, qos: 0 }",
    "durable, 3 voters, QoS 1": "pairs: { pairs: 100, rate: 10, payload: 256, qos: 1, clean_session: false }",
}


def host(number):
    return f"127.71.0.{number}"


def cpu_s(broker):
    """CPU time of a process, to the nanosecond: its clock, as clock_getcpuclockid(3) names it."""
    return time.clock_gettime(~broker.process.pid << 3 | 2)


def anonymous_bytes(broker):
    status = pathlib.Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) * 1024


def counted(number, name):
    """A metric of a node, summed over its labels."""
    with urllib.request.urlopen(f"http://{host(number)}:8091/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}[ {{]", line))


def idle(brokers, seconds):
    """CPU of each node in ms a second, median and most."""
    time.sleep(CALM_S)
    before, began = [cpu_s(broker) for broker in brokers], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    used = [(cpu_s(broker) - was) / took * 1e3 for broker, was in zip(brokers, before, strict=True)]
    return {
        "idle: CPU of a node, ms/s": statistics.mean(used),
        "idle: CPU of the busiest node, ms/s": max(used),
        "idle: anonymous memory of a node, MiB": statistics.mean(anonymous_bytes(broker) for broker in brokers) / 2**20,
        "idle: descriptors of a node": statistics.mean(len(os.listdir(f"/proc/{b.process.pid}/fd")) for b in brokers),
        "idle: threads of a node": statistics.mean(len(os.listdir(f"/proc/{b.process.pid}/task")) for b in brokers),
        "idle: bytes a node sends to others, /s": None,
    }


def links(brokers, seconds):
    """Bytes that an idle node sends to the others, per second."""
    name = "heraldmq_link_sent_bytes_total"
    numbers = range(1, len(brokers) + 1)
    before, began = sum(counted(number, name) for number in numbers), time.monotonic()
    time.sleep(seconds)
    after = sum(counted(number, name) for number in numbers)
    return (after - before) / (time.monotonic() - began) / len(brokers)


def messages(arguments, folder, brokers, name, idle_ms):
    """CPU time of all nodes for a message, and how often a message was sent to another node."""
    workload = pathlib.Path(folder, "nodes.yml")
    workload.write_text(f"name: nodes\nparts:\n  - {WORKLOADS[name]}\n")
    forwarded = lambda: sum(counted(n + 1, "heraldmq_messages_forwarded_total") for n in range(len(brokers)))  # noqa: E731
    before = forwarded()
    record = played(arguments, folder, brokers, str(workload), "1")
    counts = record["counts"]
    if counts["lost"] or counts["duplicated"]:
        print(f"{len(brokers)} nodes, {name}: lost {counts['lost']}, duplicated {counts['duplicated']}", file=sys.stderr)
    delivered = record["messages_per_second"] * record["seconds"]
    used = sum(of["cpu_user_s"] + of["cpu_system_s"] for of in record["system"])
    used -= idle_ms / 1e3 * len(brokers) * record["seconds"]
    return {
        f"{name}: CPU of all nodes, µs per message": used / delivered * 1e6,
        f"{name}: crossings per message": (forwarded() - before) / max(1, counts["delivered"]),
    }


def subscribed(clients, count):
    """Further clients on the first node, until all together have so many filters."""
    while len(clients) * OF_CLIENT < count:
        client, at = Raw(1883, host=host(1)), len(clients)
        client.connect(f"filters-{at}")
        clients.append(client)
        for begin in range(0, OF_CLIENT, AT_ONCE):
            names = [f"site/{at:03}/machine/{number:04}/state" for number in range(begin, begin + AT_ONCE)]
            client.subscribe(*names, qos=1)


def filters(brokers, least, most):
    """Bytes of anonymous memory for each filter, of the node whose clients have them and of each other node."""
    clients, taken = [], []
    for count in (least, most):
        subscribed(clients, count)
        time.sleep(CALM_S)
        taken.append([anonymous_bytes(broker) for broker in brokers])
    for client in clients:
        client.close()
    slopes = [(after - before) / (most - least) for before, after in zip(*taken, strict=True)]
    return {"a filter: bytes on the client's node": slopes[0], "a filter: bytes on each other node": statistics.mean(slopes[1:])}


def answers(nodes, rounds):
    """Percentiles of CONNACK and SUBACK in ms: a client at a time, on one node after the other."""
    times = {"CONNACK": [], "SUBACK": []}
    for number in range(rounds):
        with Raw(1883, host=host(number % nodes + 1)) as client:
            began = time.perf_counter()
            client.connect(f"answers-{number}")
            times["CONNACK"].append(time.perf_counter() - began)
            began = time.perf_counter()
            client.subscribe(f"answers/{number}", qos=1)
            times["SUBACK"].append(time.perf_counter() - began)
            client.disconnect()
    figures = {}
    for name, of in times.items():
        cuts = statistics.quantiles(of, n=100)
        figures |= {f"{name} p50, ms": cuts[49] * 1e3, f"{name} p99, ms": cuts[98] * 1e3}
    return figures


def measured(arguments, nodes):
    with tempfile.TemporaryDirectory() as folder, running(arguments.binary, nodes, VOTERS, folder) as brokers:
        figures = idle(brokers, arguments.seconds)
        figures["idle: bytes a node sends to others, /s"] = links(brokers, arguments.seconds / 2)
        figures |= answers(nodes, arguments.answers)
        for name in WORKLOADS:
            figures |= messages(arguments, folder, brokers, name, figures["idle: CPU of a node, ms/s"])
        return figures | filters(brokers, *arguments.filters)


def shown(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def numbers(text):
    of = [int(word) for word in text.split(",")]
    if any(number < 1 for number in of):
        raise ValueError
    return of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the heraldmq to test")
    parser.add_argument("--tool", help="the heraldmq that makes the load, if it is another")
    parser.add_argument("--nodes", type=numbers, default=[3, 9], help="sizes of clusters, each 3 or more (default 3,9)")
    parser.add_argument("--seconds", type=float, default=20, help="of the idle time (default 20)")
    parser.add_argument("--duration", default="10s", help="of each load (default 10s)")
    parser.add_argument("--answers", type=int, default=900, help="CONNECTs and SUBSCRIBEs (default 900)")
    parser.add_argument("--filters", type=numbers, default=[5_000, 20_000], help="least and most filters, in thousands (default 5000,20000)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="gets the figures, too")
    arguments = parser.parse_args()
    if min(arguments.nodes) < VOTERS:
        parser.error(f"a cluster of {VOTERS} voters has {VOTERS} nodes or more")
    if len(arguments.filters) != 2 or any(number % OF_CLIENT for number in arguments.filters) or arguments.filters[0] >= arguments.filters[1]:
        parser.error(f"--filters takes two multiples of {OF_CLIENT}, the lower one first")
    if arguments.answers < 100:
        parser.error("--answers must be 100 or more")
    sizes = sorted(set(arguments.nodes))
    columns = {nodes: measured(arguments, nodes) for nodes in sizes}
    if arguments.json:
        arguments.json.write_text(json.dumps(columns, indent=1))
    least, most = sizes[0], sizes[-1]
    print("| | " + " | ".join(f"{nodes} nodes" for nodes in sizes) + " | ratio | for each node that is added |")
    print("|---" + "|---:" * (len(sizes) + 2) + "|")
    for name in columns[least]:
        values = [columns[nodes][name] for nodes in sizes]
        ratio = f"{values[-1] / values[0]:.2f}" if values[0] else "–"
        added = shown((values[-1] - values[0]) / (most - least)) if most > least else "–"
        print(f"| {name} | {' | '.join(map(shown, values))} | {ratio} | {added} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What one node, three nodes and three voters cost: the clusters' scenarios of BifroMQ's report, scaled.

For each scenario and each kind of cluster (1n: one node; 1n_1v, 3n_1v, 3n_3v: nodes and voters) the nodes are
started anew, `heraldmq bench` plays the scenario with its publishers and subscribers spread over all nodes, and
the CPU time of each node per message (in and out) is printed, with the messages that a second of CPU time of
all nodes brings, and the percentiles.

  bench/cluster.py target/release/heraldmq
  bench/cluster.py target/release/heraldmq --only persistent --rounds 1
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from broker import ENVIRONMENT, Broker

# Of each: the scenario, its scale, and the clusters that play it.
SCENARIOS = {
    "clean 1:1": ("5k_5k_qos0_p32_100mps_3n", "1/100", ["1n", "3n"]),
    "clean 1:1, QoS 1": ("4k_4k_qos1_p32_100mps_3n", "1/80", ["1n", "3n"]),
    "low frequency": ("300k_300k_qos0_p256_1mps_3n", "1/100", ["1n", "3n"]),
    "shared": ("300k_3000_qos0_p256_1mps_3n", "1/100", ["1n", "3n"]),
    "fan-out": ("1_300000_qos0_p256_1mps_3n", "1/100", ["1n", "3n"]),
    "persistent low frequency, QoS 1": ("15k_15k_qos1_p256_1mps_3n_3v", "1/15", ["1n_1v", "3n_1v", "3n_3v"]),
    "persistent high frequency, QoS 1": ("300_300_qos1_p32_50mps_3n_3v", "1/3", ["1n_1v", "3n_1v", "3n_3v"]),
    "persistent, all it can, QoS 1": ("WINDOW", "1", ["1n_1v", "3n_1v", "3n_3v"]),
}

WINDOW = """\
name: window
parts:
  - pairs: { pairs: 60, window: 64, payload: 256, qos: 1, clean_session: false }
"""

SHARDS = 3
FORM_S = 60


def sets(number, nodes, voters):
    """The options of a node of a cluster on loopback addresses of its own."""
    host = f"127.71.0.{number}"
    options = {
        "mqttServerConfig.tcpListener.host": host,
        "mqttServerConfig.tcpListener.port": 1883,
        "http.host": host,
        "http.port": 8091,
    }
    options |= {f"limits.connection.bytesPerSecond{way}": 0 for way in ("In", "Out")}
    for store in ("session", "inbox", "retain"):
        options[f"{store}_store_initial_shards"] = SHARDS
        options[f"{store}_store_replica_voter_count"] = voters
    if nodes > 1:
        options |= {
            "bootstrap": str(number == 1).lower(),
            "clusterConfig.env": "bench",
            "clusterConfig.host": host,
            "clusterConfig.seedEndpoints": "127.71.0.1:8899",
        }
    return options


def settled(nodes, voters):
    """Whether all shards have their voters, and each node leads a third of them."""
    with urllib.request.urlopen("http://127.71.0.1:8091/api/v1/cluster") as answer:
        shards = json.load(answer)["shards"]
    leaders = [shard["leader"] for shard in shards]
    spread = all(leaders.count(leader) <= 3 * SHARDS // nodes + 1 for leader in leaders)
    return len(shards) == 3 * SHARDS and spread and all(len(shard["voters"]) == voters for shard in shards)


@contextlib.contextmanager
def running(binary, nodes, voters, folder):
    """So many brokers, whose shards have settled."""
    brokers = []
    try:
        for number in range(1, nodes + 1):
            place = pathlib.Path(folder, str(number))
            place.mkdir()
            brokers.append(Broker(binary, sets(number, nodes, voters), place))
        deadline = time.monotonic() + FORM_S
        while nodes > 1 and not settled(nodes, voters):
            if time.monotonic() > deadline:
                sys.exit("the shards do not settle")
            time.sleep(0.2)
        yield brokers
    finally:
        for broker in brokers:
            broker.process.terminate()
        for broker in brokers:
            broker.process.wait(20)


def measured(arguments, kind, scenario, scale):
    """The record of a run on a cluster of its own."""
    nodes = int(kind[0])
    voters = int(kind[3]) if "v" in kind else 1
    with tempfile.TemporaryDirectory() as folder, running(arguments.binary, nodes, voters, folder) as brokers:
        return played(arguments, folder, brokers, scenario, scale)


def played(arguments, folder, brokers, scenario, scale):
    """The record of `heraldmq bench`."""
    if scenario == "WINDOW":
        plan = pathlib.Path(folder, "workload.yml")
        plan.write_text(WINDOW)
        scenario = str(plan)
    record = pathlib.Path(folder, "record.json")
    targets = ",".join(f"127.71.0.{number + 1}:1883" for number in range(len(brokers)))
    pids = ",".join(str(broker.process.pid) for broker in brokers)
    command = [arguments.tool or arguments.binary, "bench", "run", scenario, "--scale", scale]
    command += ["--target", targets, "--pid", pids, "--duration", arguments.duration, "--workers", "1"]
    done = subprocess.run(
        [*command, "--quiet", "--json", str(record)], capture_output=True, text=True, env=ENVIRONMENT
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(record.read_text())


def figures(record):
    """CPU time per message of each node and of all, messages by CPU second, percentiles."""
    counts = record["counts"]
    faults = {fault: counts[fault] for fault in ("lost", "duplicated", "reordered", "disconnects") if counts[fault]}
    messages = record["messages_per_second"] * record["seconds"]
    cpu = [used["cpu_user_s"] + used["cpu_system_s"] for used in record["system"]]
    return {
        "rate": record["messages_per_second"],
        "cpu": [seconds / messages * 1e6 for seconds in cpu],
        "per_cpu_s": messages / sum(cpu),
        "faults": faults,
        "latency": record.get("latency_ms", {}),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the heraldmq to test")
    parser.add_argument("--tool", help="the heraldmq that makes the load, if it is another")
    parser.add_argument("--only", default="", help="scenarios whose names hold this")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are shown (default 3)")
    parser.add_argument("--duration", default="8s", help="of each measurement (default 8s)")
    arguments = parser.parse_args()
    print("| scenario | cluster | messages/s | CPU of each node, µs per message | messages per CPU second | faults |")
    print("|---|---|---:|---|---:|---|")
    for name, (scenario, scale, kinds) in SCENARIOS.items():
        if arguments.only not in name:
            continue
        rounds = {kind: [] for kind in kinds}
        for _ in range(arguments.rounds):
            for kind in kinds:
                rounds[kind].append(figures(measured(arguments, kind, scenario, scale)))
        for kind, runs in rounds.items():
            cpu = [statistics.median(of) for of in zip(*(run["cpu"] for run in runs), strict=True)]
            rate = statistics.median(run["rate"] for run in runs)
            per_cpu_s = statistics.median(run["per_cpu_s"] for run in runs)
            faults = [run["faults"] for run in runs if run["faults"]] or "none"
            each = " + ".join(f"{one:.1f}" for one in cpu)
            print(f"| {name} | {kind} | {rate:,.0f} | {each} = {sum(cpu):.1f} | {per_cpu_s:,.0f} | {faults} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What a message costs that crosses from one node to another: one node and three, and two programs beside each other.

For each workload, number of nodes and program the nodes are started anew, `heraldmq bench` plays the workload with its clients spread
over all nodes, and of all nodes together is printed, for each message that a client got: CPU time, voluntary context switches (how
often a thread of a broker went to sleep), and system calls, as perf(1) counts them. Programs alternate within a round; shown are medians.

  bench/links.py target/release/heraldmq
  bench/links.py target/release/heraldmq --before heraldmq-before --only "clean 10,000/s" --rounds 5

Counts and the ratio of two programs of one round hold on a machine that does other things as well; CPU times alone do not.

Deliberately absent: latency, durable sessions (`bench/cluster.py`), links with latency, TLS between nodes.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from broker import ENVIRONMENT
from cluster import running
from nodes import counted, cpu_s

# Rates are of each publisher; a window is what a publisher has on its way at most.
WORKLOADS = {
    "clean 1,000/s": "pairs: { pairs: 100, rate: 10, payload: 256, qos: 0 }",
    "clean 10,000/s": "pairs: { pairs: 100, rate: 100, payload: 256, qos: 0 }",
    "clean 10,000/s, QoS 1": "pairs: { pairs: 100, rate: 100, payload: 256, qos: 1 }",
    "clean, all it can": "pairs: { pairs: 60, window: 64, payload: 256, qos: 0 }",
    "shared 10,000/s": "shared: { publishers: 100, subscribers: 18, rate: 100, payload: 256, qos: 0 }",
    "fan-out 1 → 300, 30,000/s": "fan-out: { publishers: 1, subscribers: 300, rate: 100, payload: 256, qos: 0 }",
}

# Clients connect and the load warms up before anything is counted, in s.
BEFORE_S = 4
COUNTED = ("CPU, µs", "switches", "system calls")


def switches(pid):
    """How often the threads of a process went to sleep of their own accord."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text())[1]) for task in tasks)


def system_calls(pids, seconds):
    """System calls of the processes in so many seconds."""
    command = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", ",".join(map(str, pids)), "sleep", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True)
    # Threads that end meanwhile have lines of their own.
    count = re.search(r"^(\d+),.*sys_enter", done.stderr, re.MULTILINE)
    if done.returncode or not count:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return int(count[1])


def measured(arguments, binary, nodes, workload):
    """Of a cluster of its own: messages per second, and what was counted for each."""
    with tempfile.TemporaryDirectory() as folder, running(binary, nodes, 1, folder) as brokers:
        plan = pathlib.Path(folder, "workload.yml")
        plan.write_text(f"name: links\nparts:\n  - {workload}\n")
        pids = [broker.process.pid for broker in brokers]
        targets = ",".join(f"127.71.0.{number + 1}:1883" for number in range(nodes))
        command = [arguments.tool or arguments.binary, "bench", "run", str(plan), "--target", targets, "--workers", "1", "--quiet"]
        command += ["--duration", f"{BEFORE_S + arguments.seconds}s"]
        load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        time.sleep(BEFORE_S)

        def read():
            sent = sum(counted(number + 1, "heraldmq_publishes_sent_total") for number in range(nodes))
            return sent, sum(map(cpu_s, [*brokers])) * 1e6, sum(map(switches, pids))

        before, began = read(), time.monotonic()
        calls = system_calls(pids, arguments.seconds)
        messages, cpu, slept = (after - was for after, was in zip(read(), before, strict=True))
        took = time.monotonic() - began
        errors = load.communicate()[1]
        if load.returncode:
            sys.exit(f"{' '.join(command)}\n{errors}")
        return [messages / took, cpu / messages, slept / messages, calls / messages * took / arguments.seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the heraldmq to test")
    parser.add_argument("--before", help="another one to compare it with")
    parser.add_argument("--tool", help="the heraldmq that makes the load, if it is another")
    parser.add_argument("--only", default="", help="workloads whose names begin so")
    parser.add_argument("--nodes", default="1,3", help="numbers of nodes (default 1,3)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are shown (default 3)")
    parser.add_argument("--seconds", type=float, default=4, help="that are counted (default 4)")
    arguments = parser.parse_args()
    programs = {"before": arguments.before, "now": arguments.binary} if arguments.before else {"now": arguments.binary}
    print(f"| workload | nodes | program | messages/s | {' | '.join(COUNTED)} |\n|---|---:|---|{'---:|' * (1 + len(COUNTED))}")
    for name, workload in WORKLOADS.items():
        if not name.startswith(arguments.only):
            continue
        cells = {(int(nodes), program): [] for nodes in arguments.nodes.split(",") for program in programs}
        for _ in range(arguments.rounds):
            for (nodes, program), rounds in cells.items():
                rounds.append(measured(arguments, os.path.abspath(programs[program]), nodes, workload))
        for (nodes, program), rounds in cells.items():
            rate, cpu, slept, calls = (statistics.median(of) for of in zip(*rounds, strict=True))
            print(f"| {name} | {nodes} | {program} | {rate:,.0f} | {cpu:.2f} | {slept:.3f} | {calls:.3f} |", flush=True)


if __name__ == "__main__":
    main()

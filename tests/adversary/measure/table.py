"""The table of docs/internals/adversary.md, and a short form of it."""

import datetime
import os
import platform

from known import CAUSES

from .bars import MIB

HEAD = [
    "attack", "MQTT", "n", "MB sent", "packets", "CPU s", "allowed", "s/MB", "control", "wait ms", "control",
    "memory", "×", "log", "×", "folder", "×", "between nodes ×", "twice the input", "bars exceeded",
]  # fmt: skip
RULE = "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---|"


def amount(value) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f}"


def row(verdict) -> str:
    cost, cause = verdict.cost, verdict.cost.cause
    sent = max(cause.sent, 1)
    growths = ", ".join(f"{name} {factor:.1f}" for name, factor in verdict.growth.items())
    broken = "; ".join(verdict.broken().values())
    version = {3: "3.1", 4: "3.1.1", 5: "5.0"}[verdict.version]
    cells = [
        verdict.attack.name, version, f"{verdict.n:,}", f"{sent / 1e6:.3f}", f"{cause.packets:,}",
        f"{cost.cpu:.2f}", f"{cause.cpu():.2f}", f"{cost.cpu / sent * 1e6:.2f}", f"{cost.control_cpu * 1e6:.3f}",
        f"{cost.pause * 1e3:.0f}", f"{cost.control_pause * 1e3:.0f}",
        amount(cost.memory), f"{cost.memory / sent:.1f}", amount(cost.log), f"{cost.log / sent:.1f}",
        amount(cost.folder), f"{cost.folder / sent:.1f}", f"{cost.links / sent:.1f}" if cost.links else "–",
        growths, f"**{broken}**" if broken else "none",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


INTRODUCTION = """# What one client can cause

Made by `tests/adversary/run.sh --full` ({machine}); do not edit. How it is measured, and what each bar is:
[tests/adversary](../../tests/adversary/README.md).

*MB sent* is what the attacker sent; *CPU s* what the broker's process used for it, *allowed* the bar: 1.5 s per MB, and
what the protocol asks for by packets, connections, deliveries, synced changes, and retained messages and filters that
must be looked at. *control*: the same for ordinary messages of 1 kB, on the same broker just before. *wait* is the
longest that one of seven bystanders had to wait. *memory* and *folder* are peaks beyond what was there before, *×* is
per byte sent. *twice the input*: how many times as much the attack costs as one of half its size, where it costs
enough to tell. Each figure is the best of up to three runs.
"""


def causes(entries) -> str:
    """What is known of why bars are exceeded, an attack a line."""
    names = dict.fromkeys(entry["attack"] for entry in entries if entry["broken"])
    lines = [f"- {name}: {CAUSES.get(name, 'not looked into')}" for name in names]
    return "\n".join(["Bars are exceeded because of this:\n", *lines]) + "\n" if lines else ""


def page(entries) -> str:
    parts = [INTRODUCTION.format(machine=machine())]
    for nodes, title in ((1, "One node"), (3, "Three nodes")):
        chosen = [entry for entry in entries if entry["nodes"] == nodes]
        if not chosen:
            continue
        exceeding = sum(bool(entry["broken"]) for entry in chosen)
        parts.append(f"## {title}\n\n{len(chosen)} attacks, {exceeding} of which exceed a bar.\n")
        parts.append(causes(chosen))
        for group in dict.fromkeys(entry["group"] for entry in chosen):
            members = [entry for entry in chosen if entry["group"] == group]
            if nodes == 1:
                parts.append(f"### {group.replace('_', ' ')}\n")
            parts.append("\n".join(["| " + " | ".join(HEAD) + " |", RULE, *(e["row"] for e in members)]) + "\n")
            if nodes == 1:
                told = dict((entry["attack"], entry["about"]) for entry in members)
                parts.append("\n".join(f"- {name}: {about}" for name, about in told.items()) + "\n")
    return "\n".join(parts)


def machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, {datetime.date.today().isoformat()}"

"""What a client may cause by what it sends, and what may be added for what the protocol asks the broker to do.

Invariant: an attack fails if one bar is exceeded, in each of its runs. Absent on purpose: any measuring.
"""

import dataclasses
import typing

MIB = 1 << 20

CPU_PER_BYTE = 1.5 / 1e6  # seconds
CPU_PER_PACKET = 20e-6
CPU_PER_VISIT = 60e-9
CPU_PER_DELIVERY = 5e-6
# A copy into a buffer and one by the kernel.
CPU_PER_DELIVERED_BYTE = 10e-9
CPU_PER_SYNCED_CHANGE = 40e-6
CPU_PER_CONNECTION = 500e-6
# Ten turns of the sampler: what the process does by itself in the time of a run differs by so much.
CPU_FIXED = 0.05

PAUSE_S = 0.1
# Over several nodes a bystander's message waits for a majority of them.
PAUSE_OF_NODES_S = 1.0

MEMORY_PER_BYTE = 4
MEMORY_PER_DELIVERY = 48
# A connection has its session, its entry in the registry and, while it is served, a buffer; those of TLS have
# their keys and records (docs/internals/measurements.md: 700 bytes idle, 4.8 KB with TLS), a session that outlives
# its connection has its rows.
MEMORY_PER_CONNECTION = 8 << 10
# A change that is synced is a row that memory holds until the next checkpoint: 32 MiB of them at most.
MEMORY_PER_SYNCED_CHANGE = 256
# Not by what is sent, and limited by themselves (docs/reference/limits.md): the match cache of a loop (2 × 16 MiB),
# the buffers of loops and store threads, and what the allocator keeps of a burst.
MEMORY_FIXED = 48 * MIB

LOG_PER_BYTE = 2
# The lines per second that a loop may write of each kind (ten), for a run of some seconds.
LOG_FIXED = 64 << 10

FOLDER_PER_BYTE = 4
FOLDER_FIXED = 64 * MIB

# Bytes written to the log of the stores, in which the replicas of a shard have its requests. An attack by a client with a
# long identifier is compared with the same attack by one with a short identifier. A session that is claimed, given up,
# ended or left to others is named by its identifier in several requests: a CONNECT and its end wrote it four times.
STORED_BESIDE_SHORT = 2
STORED_PER_NAME_BYTE = 12
# A client identifier that is usual, and the longest one that is allowed.
SHORT_NAME, LONG_NAME = 20, 60_000
# The bar of attacks that say so. A message that is published by an alias is kept with its topic, once for all sessions
# that get it.
STORED_PER_BYTE = 2
STORED_PER_PACKET = 256
STORED_FIXED = 64 << 10

GROWTH = 2.2


class Room(typing.NamedTuple):
    """How many times a bar of what a busy machine makes dearer may be exceeded: CPU seconds and waits. On a core
    that it shares, the same work takes two to three times the CPU seconds. Memory, log and folder are exact."""

    cpu: float = 1.0
    pause: float = 1.0
    growth: float = 1.0


EXACT = Room()
# What is quadratic costs ten times the bar and more, and four times as much for twice the input.
BUSY = Room(cpu=4.0, pause=5.0, growth=1.6)
# Costs below these are not compared with those of half the input: they are what any run costs.
GROWTH_FROM = {"cpu": 0.2, "memory": 16 * MIB, "log": 128 << 10, "folder": 16 * MIB}


@dataclasses.dataclass
class Cause:
    """What was sent, and what the protocol asks the broker to do for it."""

    sent: int = 0
    packets: int = 0
    # Pairs of a filter and a retained topic, or of a topic and a filter, that must be looked at.
    visits: int = 0
    # Messages that are queued for a receiver.
    deliveries: int = 0
    # Bytes of those that are sent to a receiver that reads.
    delivered: int = 0
    synced: int = 0
    connections: int = 0
    # Bytes of client identifiers in CONNECT packets.
    names: int = 0
    # Bytes of topic names that aliases stand for in messages that are kept: each is kept with its topic.
    expanded: int = 0
    # Whether the bar on the log of the stores counts.
    stores: bool = False
    # How many nodes do what is done for it, and keep it.
    nodes: int = 1

    def cpu(self) -> float:
        """Seconds."""
        return self.nodes * (
            self.sent * CPU_PER_BYTE
            + self.packets * CPU_PER_PACKET
            + self.visits * CPU_PER_VISIT
            + self.deliveries * CPU_PER_DELIVERY
            + self.delivered * CPU_PER_DELIVERED_BYTE
            + self.synced * CPU_PER_SYNCED_CHANGE
            + self.connections * CPU_PER_CONNECTION
            + CPU_FIXED
        )

    def memory(self) -> int:
        """Bytes."""
        return self.nodes * (
            (self.sent + self.expanded) * MEMORY_PER_BYTE
            + self.deliveries * MEMORY_PER_DELIVERY
            + self.connections * MEMORY_PER_CONNECTION
            + self.synced * MEMORY_PER_SYNCED_CHANGE
            + MEMORY_FIXED
        )

    def log(self) -> int:
        return self.nodes * (self.sent * LOG_PER_BYTE + LOG_FIXED)

    def stored(self) -> int:
        return self.nodes * (
            (self.sent + self.expanded) * STORED_PER_BYTE + self.packets * STORED_PER_PACKET + STORED_FIXED
        )

    def folder(self) -> int:
        return self.nodes * (
            (self.sent + self.expanded) * FOLDER_PER_BYTE + self.deliveries * MEMORY_PER_DELIVERY + FOLDER_FIXED
        )


@dataclasses.dataclass
class Cost:
    """What a run caused. Seconds and bytes."""

    cause: Cause
    cpu: float = 0.0
    pause: float = 0.0
    # Seconds a byte.
    control_cpu: float = 0.0
    control_pause: float = 0.0
    memory: int = 0
    log: int = 0
    folder: int = 0
    # Bytes written to the log of the stores.
    stored: int = 0
    # Bytes between nodes.
    links: int = 0
    seconds: float = 0.0
    # CPU seconds of threads, by name: where to look.
    threads: dict = dataclasses.field(default_factory=dict)
    # What the attack itself found wrong.
    faults: list = dataclasses.field(default_factory=list)

    def broken(self, room=EXACT) -> dict[str, str]:
        """Bars that are exceeded, each with its figures."""
        cause, found = self.cause, {}
        if self.cpu > cause.cpu() * room.cpu:
            found["cpu"] = f"{self.cpu:.2f} s of CPU, {cause.cpu():.2f} s allowed"
        # Beside the control a bystander has waited for the same processor.
        if self.pause > (self.control_pause + (PAUSE_S if cause.nodes == 1 else PAUSE_OF_NODES_S)) * room.pause:
            waits = f"{self.pause * 1e3:.0f} ms, {self.control_pause * 1e3:.0f} ms beside the control"
            found["pause"] = f"a bystander waited {waits}"
        for name in ("memory", "log", "folder"):
            value, allowed = getattr(self, name), getattr(cause, name)()
            if value > allowed:
                found[name] = f"{value / MIB:.1f} MiB of {name}, {allowed / MIB:.1f} MiB allowed"
        if cause.stores and self.stored > cause.stored():
            found["stored"] = (
                f"{self.stored / MIB:.1f} MiB of the log of the stores, {cause.stored() / MIB:.1f} MiB allowed"
            )
        for number, fault in enumerate(self.faults):
            found[f"fault{number or ''}"] = fault
        return found


def least(costs: list[Cost]) -> Cost:
    """Each figure at its best of several runs: what noise adds is in none of them."""
    best = dataclasses.replace(costs[-1])
    for name in ("cpu", "memory", "log", "folder", "stored", "links", "seconds"):
        setattr(best, name, min(getattr(cost, name) for cost in costs))
    pauses = min(costs, key=lambda cost: cost.pause - cost.control_pause)
    best.pause, best.control_pause = pauses.pause, pauses.control_pause
    best.threads = min(costs, key=lambda cost: cost.cpu).threads
    best.faults = min((cost.faults for cost in costs), key=len)
    return best


def growth(half: Cost, whole: Cost) -> dict[str, float]:
    """How many times as much the whole input costs as half of it, where it costs enough to tell."""
    found = {}
    scale = whole.cause.sent / max(half.cause.sent, 1) / 2
    for name, floor in GROWTH_FROM.items():
        small, large = getattr(half, name), getattr(whole, name)
        if large >= floor:
            found[name] = large / max(small, floor / 8) / max(scale, 1)
    return found


def wordy(brief: Cost, whole: Cost) -> dict[str, str]:
    """The bar on what a long client identifier adds to the log of the stores: `brief` is the attack with a short one."""
    allowed = brief.stored * STORED_BESIDE_SHORT
    allowed += whole.cause.nodes * (whole.cause.names * STORED_PER_NAME_BYTE + STORED_FIXED)
    if brief.faults:
        return {"names": brief.faults[0]}
    if whole.stored <= allowed:
        return {}
    figures = f"{whole.stored / MIB:.2f} MiB of the log of the stores, {allowed / MIB:.2f} MiB allowed"
    return {"names": f"{figures}: {brief.stored / MIB:.2f} MiB with an identifier of {SHORT_NAME} bytes"}


def steep(half: Cost, whole: Cost, room=EXACT) -> dict[str, str]:
    """The bar on growth."""
    return {
        f"growth of {name}": f"twice the input costs {factor:.1f} times the {name}"
        for name, factor in growth(half, whole).items()
        if factor > GROWTH * (room.growth if name == "cpu" else 1)
    }

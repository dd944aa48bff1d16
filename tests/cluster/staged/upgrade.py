"""Nodes that change their program, and the level that their shards go by.

Absent on purpose: any load; what is asked here blocks, so a test that has clients runs it `beside` them.
"""

import concurrent.futures
import itertools
import signal
import time

from harness.broker import BINARY
from harness.raw import CONNACK, SUBACK
from harness.wait import until
from verify.checks import matches
from verify.history import NEVER, Receipt, Subscription

from .load import Person

# For the replicas of a debug build to be in step.
STEP_S = 120
# The level of this version.
NEWEST = 9
# How long a client keeps a connection, and how old messages are that it waits for before it begins another session.
THERE, OLD = 1.5, 1.0
LOOK_EVERY = 0.25


def say_nothing_wrong(cluster):
    """No node has met what it cannot read, or lost a shard."""
    said = [
        f"{process.host}: {line}"
        for process in cluster.processes
        for line in process.log_lines
        if line.get("level") == "ERROR"
    ]
    assert not said, said[:5]


def beside(load, function, *args, timeout=STEP_S):
    """Calls a function while the clients go on."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        called = pool.submit(function, *args)
        load.until(called.done, timeout, lambda: f"the end of {function}")
        return called.result()


def in_step(cluster, is_spread=True) -> bool:
    """Whether all nodes agree and each shard has three voters; with `is_spread`, whether leads are spread as well."""
    if not cluster._is_settled(cluster.running()):
        return False
    return cluster._is_spread() if is_spread else all(len(s["voters"]) == 3 for s in cluster.running()[0].status()["shards"])


def change(load, cluster, node, binary, is_spread=True):
    """The node goes on with another program, clients go on, and all that they had sent arrives."""
    node.broker.signal(signal.SIGTERM)
    load.until(lambda: node.broker.process.poll() is not None, STEP_S, "the end of the process")
    assert node.broker.wait() == 0
    node.binary = binary
    node.start(ready=False)
    follow(load, cluster, is_spread)


def follow(load, cluster, is_spread=True):
    """All replicas are in step again, and nothing is missing. Nobody gives leads to a node whose links were lost again and
    again, as those are to nodes that have been started often: then they are not spread."""
    load.until(lambda: in_step(cluster, is_spread), STEP_S, lambda: f"replicas: {cluster.views(cluster.running())}")
    load.go_on()
    load.pause(STEP_S)
    say_nothing_wrong(cluster)


def upgrade(node):
    """To be called when it has ended."""
    node.binary = BINARY
    node.start(ready=False)


def level_of(data_dir) -> int:
    """The level of the shards of a data folder that say none, as this version has noted it at its first start."""
    return int((data_dir / "level").read_text())


def format_of(data_dir) -> int:
    first = (data_dir / "FORMAT").read_text().splitlines()[0]
    return int(first.removeprefix("heraldmq data folder, format "))


def levels(node) -> tuple[int, int] | None:
    """The lowest and the highest level of the cluster as a node says it; `None`: it does not say."""
    view = node.status()
    level = view and view.get("level")
    return level and (level["lowest"], level["highest"])


def is_raised(cluster) -> bool:
    """Whether all nodes say that they and all others are at the level of this version."""
    for node in cluster.running():
        if levels(node) != (NEWEST, NEWEST) or format_of(node.data_dir) != NEWEST:
            return False
        if {n["levels"] for n in node.status()["nodes"]} != {f"{NEWEST}"}:
            return False
    return True


def raised(cluster):
    until(lambda: is_raised(cluster), STEP_S, lambda: f"level {NEWEST}: {cluster.views(cluster.running())}")


def finish(node, *, dry_run=False):
    return node.asked("upgrade", "finish", *(["--dry-run"] if dry_run else []))


class Reborn(Person):
    """Has a durable session to which it comes back once, and then begins another one in its place by a clean start, again
    and again. Each of them is a subscriber of its own. One that it ends has got what was sent to it until then: it waits for
    that."""

    def __init__(self, load, client_id, filter, qos=2):
        super().__init__(load, client_id)
        self.filter, self.qos, self.numbers = filter, qos, itertools.count()
        self.subscriber, self.subscription = "", None
        self.is_back, self.next_look = False, NEVER
        self.connect["clean"] = True
        # How many sessions it has begun.
        self.begun = 0

    def connected(self, connack):
        if self.connect["clean"]:
            self.connect["clean"] = False
            self.subscriber, self.subscription = f"{self.client_id}#{next(self.numbers)}", None
            self.is_back = False
            self.begun += 1
        self.next_look = time.monotonic() + THERE
        if self.subscription is None:
            self.line.subscribe(self.filter, qos=self.qos)

    def take(self, first, body):
        super().take(first, body)
        if first >> 4 == CONNACK and self.tenure:
            self.is_known = True
        if first >> 4 == SUBACK and self.subscription is None:
            self.subscription = Subscription(self.subscriber, self.filter, self.qos, time.monotonic())
            self.history.subscriptions.append(self.subscription)

    def message(self, topic, payload, qos):
        self.history.receipts.append(Receipt(self.subscriber, topic, payload, qos, time.monotonic()))

    def work(self, now):
        if now < self.next_look or self.subscription is None or not self.load.is_publishing:
            return
        self.next_look = now + LOOK_EVERY
        if not self.is_back:
            self.is_back = True
            self.leave(0)
        elif self._has_all(now - OLD):
            self._end(now - OLD)
            self.connect["clean"], self.is_known = True, False
            self.leave(0)

    def _has_all(self, until) -> bool:
        got = {r.payload for r in self.history.receipts if r.subscriber == self.subscriber}
        return all(
            publication.payload in got
            for publication in self.history.publications.values()
            if self.subscription.since <= publication.sent <= until and matches(self.filter, publication.topic)
        )

    def _end(self, at):
        subscriptions = self.history.subscriptions
        subscriptions.remove(self.subscription)
        ended = Subscription(self.subscriber, self.filter, self.qos, self.subscription.since, until=at)
        subscriptions.append(ended)

"""The faults of nodes, links, disks and clocks: each has a beginning, an end, and what it takes away while it lasts.

Invariant: `Plan` begins a fault only if those that last leave a majority of the voters of each shard that hear each
other, or if it is over soon. It never takes away what is kept on a disk from a second node before the shards are whole
again.
Absent on purpose: clients and judgement; `load` goes on in another thread, and `verify` judges.
"""

import contextlib
import http.client
import itertools
import pathlib
import random
import signal
import threading
import time

from harness.clock import LIBRARY
from harness.wait import until

from .cluster import STORES, Cluster, Node
from .disks import may_mount
from .network import may_delay, may_isolate

# How long a fault lasts in a test of its own.
ALONE_S = 10.0
# How long one lasts that leaves no majority.
SHORT_S = 2.0
# Time for a node to take part again, and for replicas to be made anew.
BACK_S, WHOLE_S = 120.0, 180.0
# For a process to end in order: its leads, then its clients, some seconds each.
END_S = 60.0
FLAP_S = 1.0
JUMP_S = 3600
LOSS_PERCENT, DELAY_MS = 10, 100
# Clocks are compared by their median, so one may be wrong. Which one stands in front of it from its start.
CLOCKED = 0


class Fault:
    """One that is begun once. `at`: numbers that choose its nodes."""

    # Whether it can be short.
    is_brief = True
    # Whether it changes who is a member.
    changes_members = False

    def __init__(self, cluster: Cluster, at=(0, 1)):
        self.cluster = cluster
        nodes = list(cluster.nodes)
        first = nodes[at[0] % len(nodes)]
        rest = [node for node in nodes if node is not first]
        self.node, self.other = first, rest[at[1] % len(rest)]
        # Times, by `run`: of `begin`, and of the end of `end`.
        self.began = self.ended = None
        self.failure: BaseException | None = None
        self._enough = threading.Event()

    def __repr__(self):
        return f"{type(self).__name__} of {self.node}"

    @staticmethod
    def lacks() -> str | None:
        """What this machine lacks for it."""
        return None

    # -- what it takes away

    @property
    def out(self) -> set[Node]:
        """Nodes that do not take part."""
        return {self.node}

    @property
    def cuts(self) -> set[tuple[Node, Node]]:
        """Senders and receivers that do not reach each other."""
        return set()

    @property
    def holds(self) -> set:
        """What no other fault may touch meanwhile."""
        return {self.node}

    def may_begin(self) -> bool:
        return True

    # -- what it does

    def begin(self):
        raise NotImplementedError

    def end(self):
        raise NotImplementedError

    def is_over(self) -> bool:
        """Whether, after `end`, what it took away is there again."""
        return is_back(self.node)

    def run(self, seconds):
        """Its whole life."""
        try:
            self.began = time.monotonic()
            self.begin()
            self._enough.wait(seconds)
            self.end()
            self.ended = time.monotonic()
            until(self.is_over, WHOLE_S if self.changes_members else BACK_S, f"{self} to be over")
        except BaseException as error:  # noqa: BLE001: it is told by another thread
            self.failure = error

    # -- what several of them do

    def others(self) -> list[Node]:
        return [node for node in self.cluster.nodes if node is not self.node]

    def start(self):
        self.node.start(ready=False, seeds=[node.endpoint for node in self.others()])

    def ask(self, *command):
        """Some other node does it, as soon as one can."""

        def is_done():
            for node in self.others():
                with contextlib.suppress(AssertionError):
                    node.command(*command)
                    return True
            return False

        until(is_done, BACK_S, f"{command} to be done")


def status(node) -> dict | None:
    try:
        return node.status()
    except http.client.HTTPException:
        return None


def is_back(node) -> bool:
    """Whether it is ready, and knows a leader of each shard."""
    view = node.broker.find("ready") and status(node)
    return bool(view) and all(shard["leader"] for shard in view["shards"])


def is_whole(cluster) -> bool:
    """Whether each shard has as many voters as nodes allow, all of them nodes that live."""
    views = [status(node) for node in cluster.nodes]
    if not all(views):
        return False
    living, expected = {view["node"] for view in views}, min(3, len(views))
    shards = views[0]["shards"]
    voters = [set(shard["voters"]) for shard in shards]
    return {shard["store"] for shard in shards} == set(STORES) and all(
        len(v) == expected and v <= living for v in voters
    )


class Killed(Fault):
    """kill -9, and started again."""

    def begin(self):
        self.node.kill()

    def end(self):
        self.start()


class Stopped(Fault):
    """SIGTERM, and started again."""

    def begin(self):
        self.node.broker.signal(signal.SIGTERM)
        assert self.node.broker.wait(END_S) == 0

    def end(self):
        self.start()


class Paused(Fault):
    """SIGSTOP, SIGCONT: a machine that hangs."""

    def begin(self):
        self.node.pause()

    def end(self):
        self.node.resume()


class Links(Fault):
    """Base of those that only cut."""

    @staticmethod
    def lacks():
        return None if may_isolate() else "only root can cut links"

    @property
    def out(self):
        return set()

    @property
    def holds(self):
        return {frozenset(link) for link in self.cuts}

    def begin(self):
        for sender, receiver in self.cuts:
            self.cluster.network.cut(sender.place, receiver.place)

    def end(self):
        for sender, receiver in self.cuts:
            self.cluster.network.mend(sender.place, receiver.place)

    def is_over(self):
        return True


class CutOff(Links):
    """No other node hears it or is heard by it; clients reach it."""

    def __init__(self, cluster, at=(0, 1)):
        super().__init__(cluster, at)
        self._cuts = set(itertools.chain(*(((self.node, o), (o, self.node)) for o in self.others())))

    @property
    def cuts(self):
        return self._cuts


class OneWay(Links):
    """What one node sends to another does not arrive."""

    @property
    def cuts(self):
        return {(self.node, self.other)}


class Bridge(Links):
    """Two nodes that only others connect."""

    @property
    def cuts(self):
        return {(self.node, self.other), (self.other, self.node)}


class Flapping(CutOff):
    """Cut off for a second, and reached for a second, again and again."""

    is_brief = False

    def run(self, seconds):
        self.until = time.monotonic() + seconds
        super().run(0)

    def end(self):
        super().end()
        while time.monotonic() < self.until:
            self._enough.wait(FLAP_S)
            super().begin()
            self._enough.wait(FLAP_S)
            super().end()


class Loss(Links):
    """Packets are lost on their way to a node from others."""

    is_brief = False

    @property
    def holds(self):
        return {"losses"}

    def begin(self):
        self.cluster.network.lose(self.node.place, LOSS_PERCENT)

    def end(self):
        self.cluster.network.lose(self.node.place, 0)


class Delay(Links):
    """What a node sends takes longer."""

    is_brief = False

    @staticmethod
    def lacks():
        return None if may_delay() else "the kernel has no netem"

    @property
    def holds(self):
        return {"delays"}

    def begin(self):
        self.cluster.network.delay(self.node.place, DELAY_MS)

    def end(self):
        self.cluster.network.delay(self.node.place, 0)


class OnDisk(Fault):
    """Base of those of a disk."""

    @staticmethod
    def lacks():
        return None if may_mount() else "there are no loop devices with ext4"


class FullDisk(OnDisk):
    """Nothing is free."""

    def begin(self):
        self.node.own_disk.fill()

    def end(self):
        self.node.own_disk.free()


class FailingDisk(OnDisk):
    """EIO: the node ends by itself, its disk is exchanged (with what was synced), and it is started again."""

    def begin(self):
        self.node.own_disk.fail()

    def end(self):
        ended = self.node.broker.process.poll()
        print(f"{self}: the process " + ("goes on" if ended is None else f"ended with code {ended}"), flush=True)
        self.node.kill()
        self.node.own_disk.repair()
        self.start()


class ReadOnlyDisk(FailingDisk):
    """EROFS."""

    def begin(self):
        self.node.own_disk.become_read_only()


class Clock(Fault):
    """The clock of a node is an hour ahead, or an hour back, and right again."""

    is_brief = False
    jump = JUMP_S

    @staticmethod
    def lacks():
        return None if pathlib.Path(LIBRARY).exists() else "there is no libfaketime"

    def __init__(self, cluster, at=(0, 1)):
        super().__init__(cluster, (CLOCKED, 1))

    @property
    def out(self):
        return set()

    @property
    def holds(self):
        return {"clock"}

    def may_begin(self):
        return self.node.clock is not None

    def begin(self):
        self.node.clock.jump(self.jump)

    def end(self):
        self.node.clock.jump(0)

    def is_over(self):
        return True


class ClockBack(Clock):
    jump = -JUMP_S


class Drained(Fault):
    """`heraldmq cluster drain`, and started again: there is no other way back."""

    is_brief = False

    def begin(self):
        with contextlib.suppress(AssertionError):
            # It is refused if no other node is up.
            self.node.command("drain")

    def end(self):
        self.node.broker.signal(signal.SIGTERM)
        assert self.node.broker.wait(END_S) == 0
        self.start()


class Transfer(Fault):
    """Another node is to lead a shard."""

    is_brief = False

    def __init__(self, cluster, at=(0, 1)):
        super().__init__(cluster, at)
        self.store = STORES[at[1] % len(STORES)]

    @property
    def out(self):
        return set()

    @property
    def holds(self):
        return {"lead"}

    def begin(self):
        view = status(self.other)
        if view is None:
            return
        for shard in view["shards"]:
            to = next((voter for voter in shard["voters"] if voter != shard["leader"]), None)
            if shard["store"] == self.store and to:
                with contextlib.suppress(AssertionError):
                    # Refused if it does not know, or the wanted one does not answer.
                    self.other.command("transfer-leader", self.store, str(shard["shard"]), to)

    def end(self):
        pass

    def is_over(self):
        return True


class Wiped(Fault):
    """All that a node has is gone: it joins as a new one, and the old one is evicted."""

    is_brief, changes_members = False, True

    @property
    def holds(self):
        return {self.node, "members"}

    def may_begin(self):
        return is_whole(self.cluster)

    def begin(self):
        self.before = self.node.id
        self.node.kill()
        self.node.wipe()

    def end(self):
        self.start()
        self.ask("evict", self.before)

    def is_over(self):
        return is_whole(self.cluster)


class Joined(Fault):
    """One more node; it stays."""

    is_brief, changes_members = False, True

    @property
    def out(self):
        return set()

    @property
    def holds(self):
        return {"members"}

    def may_begin(self):
        return len(self.cluster.nodes) == 3 and is_whole(self.cluster)

    def begin(self):
        self.node = self.cluster.add()
        self.start()

    def end(self):
        pass

    def is_over(self):
        return is_back(self.node) and is_whole(self.cluster)


class Evicted(Fault):
    """A node dies, and is taken out for ever."""

    is_brief, changes_members = False, True

    def __init__(self, cluster, at=(0, 1)):
        super().__init__(cluster, at)
        if self.node is cluster.nodes[CLOCKED]:
            self.node, self.other = self.other, self.node

    @property
    def holds(self):
        return {self.node, "members"}

    def may_begin(self):
        return len(self.cluster.nodes) > 3 and is_whole(self.cluster)

    def begin(self):
        identifier = self.node.id
        self.node.kill()
        self.cluster.nodes.remove(self.node)
        self.ask("evict", identifier)

    def end(self):
        pass

    def is_over(self):
        return is_whole(self.cluster)


FAULTS = (
    Killed,
    Stopped,
    Paused,
    CutOff,
    OneWay,
    Bridge,
    Flapping,
    Loss,
    Delay,
    FullDisk,
    FailingDisk,
    ReadOnlyDisk,
    Clock,
    ClockBack,
    Drained,
    Transfer,
    Wiped,
    Joined,
    Evicted,
)


# Processes that end at once.
DEADLY = (Killed, FailingDisk, Wiped, Evicted)


def keeps_majority(nodes, faults) -> bool:
    """Whether any three nodes (or all, if there are fewer) have a majority that takes part and hears each other."""
    out = set().union(*(fault.out for fault in faults))
    cuts = set().union(*(fault.cuts for fault in faults))

    def hear(one, two):
        return not {one, two} & out and not {(one, two), (two, one)} & cuts

    some = itertools.combinations(nodes, min(3, len(nodes)))
    return all(any(hear(*pair) for pair in itertools.combinations(voters, 2)) for voters in some)


class Plan(threading.Thread):
    """Draws faults from a seed, and begins each as soon as it may, until the time is over. `done` are those that were
    begun."""

    MOST = 3

    def __init__(self, cluster: Cluster, seed, seconds, kinds=None):
        super().__init__(daemon=True)
        self.cluster, self.chance, self.seconds = cluster, random.Random(seed), seconds
        self.kinds = kinds or [kind for kind in FAULTS if not kind.lacks()]
        self.lasting: list[tuple[Fault, threading.Thread]] = []
        self.done: list[Fault] = []
        self.failure: BaseException | None = None
        self._begun = time.monotonic()
        self.start()

    def run(self):
        try:
            while not self._is_time_over():
                self._begin_next()
            until(self._all_are_over, WHOLE_S + BACK_S, lambda: f"{self.lasting} to be over")
            self.cluster.network.heal()
            for fault in self.done:
                if fault.failure:
                    raise AssertionError(f"{fault} failed") from fault.failure
            self.cluster.settled(timeout=BACK_S)
        except BaseException as error:  # noqa: BLE001: `join` tells it
            self.failure = error

    def _is_time_over(self):
        return time.monotonic() >= self._begun + self.seconds

    def _all_are_over(self):
        self.lasting = [(fault, thread) for fault, thread in self.lasting if thread.is_alive()]
        return not self.lasting

    def _begin_next(self):
        kind = self.chance.choice(self.kinds)
        at = self.chance.randrange(12), self.chance.randrange(12)
        seconds, pause = self.chance.uniform(1, 8), self.chance.uniform(0, 3)
        may_be_short = kind.is_brief and self.chance.random() < 0.5
        fault = None

        def begins():
            nonlocal fault, seconds
            self._all_are_over()
            if self._is_time_over():
                return True
            if len(self.lasting) >= self.MOST:
                return False
            fault = self._tried(kind, at)
            if fault is None:
                return False
            now = [lasting for lasting, _ in self.lasting]
            if not keeps_majority(self.cluster.nodes, [*now, fault]):
                if not (may_be_short and self._can_be_short(now)):
                    fault = None
                    return False
                seconds = SHORT_S
            return True

        # What cannot begin for long gives way to the next.
        with contextlib.suppress(AssertionError):
            until(begins, 5, "the next fault")
        if fault is None or self._is_time_over():
            return
        print(f"{time.monotonic() - self._begun:6.1f} s: {fault} for {seconds:.1f} s", flush=True)
        thread = threading.Thread(target=fault.run, args=(seconds,), daemon=True)
        thread.start()
        self.lasting.append((fault, thread))
        self.done.append(fault)
        until(lambda: fault.began, what="its beginning")
        end = time.monotonic() + pause
        until(lambda: time.monotonic() >= end or self._is_time_over(), pause + 5)

    def _can_be_short(self, lasting):
        """Whether one fault more may take the majority away for a moment: none has yet, and all replicas are there."""
        return keeps_majority(self.cluster.nodes, lasting) and not any(fault.changes_members for fault in lasting)

    def _tried(self, kind, at):
        """The fault, if it touches nothing that others do."""
        fault = kind(self.cluster, at)
        held = set().union(*(lasting.holds for lasting, _ in self.lasting))
        running = self.cluster.running()
        if held & fault.holds or not fault.may_begin() or (fault.holds & set(self.cluster.nodes)) - set(running):
            return None
        return fault

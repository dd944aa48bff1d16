"""Faults that are drawn from a seed, several at a time, under a load that uses everything (P1, P4, P5, P6, P7, P9).

`HERALD_CHAOS_SEED` is the first seed, `HERALD_CHAOS_ROUNDS` how many there are, `HERALD_CHAOS_SECONDS` how long each
goes on. `HERALD_CHAOS_ALONE=1` also has each fault by itself, and prints how long publishers waited;
`HERALD_MOVES` is how often each store changes its leader. A test that fails leaves its history and the logs of its
nodes in the folder `HERALD_CHAOS_KEEP`, if there is one.
"""

import os
import pathlib
import pickle
import threading
import time
from types import SimpleNamespace

import pytest
from harness.wait import until
from staged.cluster import STORES, Cluster
from staged.disks import may_mount
from staged.faults import ALONE_S, CLOCKED, DEADLY, FAULTS, Plan, keeps_majority
from staged.mixed import SETTINGS, MixedLoad
from verify import checks
from verify.history import NEVER

# The round of every day has processes that end, disks that fail, clocks, a drain and a transfer; faults of links have
# tests of their own in test_faults.py.
FIRST = int(os.environ.get("HERALD_CHAOS_SEED", "198"))
ROUNDS = int(os.environ.get("HERALD_CHAOS_ROUNDS", "1"))
SECONDS = float(os.environ.get("HERALD_CHAOS_SECONDS", "15"))
ALONE = bool(os.environ.get("HERALD_CHAOS_ALONE"))
MOVES = int(os.environ.get("HERALD_MOVES", "3"))
# Messages that come from one move to the next.
BETWEEN = 200
KEEP = os.environ.get("HERALD_CHAOS_KEEP")
# For processes to start, replicas to be made anew, and everything to arrive.
AROUND_S = 400
HOP_EVERY = 3.0
# What is left of a fault when it has ended: leads move back.
AFTER_S = 5.0


@pytest.fixture
def size(request):
    return getattr(request, "param", 3)


@pytest.fixture
def cluster(size):
    """A disk for each node, and a clock for one."""
    with Cluster(size, SETTINGS, disks=may_mount(), clocked=CLOCKED) as cluster:
        yield cluster


@pytest.fixture
def load(cluster, name, request):
    hop_every = NEVER if "alone" in request.node.name else HOP_EVERY
    with MixedLoad(cluster.nodes, name, hop_every=hop_every) as load:
        load.begin()
        load.history.calm = time.monotonic()
        yield load
        if KEEP and request.session.testsfailed:
            keep(pathlib.Path(KEEP) / f"{request.node.name}-{name}", load, cluster)


def keep(folder, load, cluster):
    folder.mkdir(parents=True)
    (folder / "history").write_bytes(pickle.dumps(load.history))
    for n, process in enumerate(cluster.processes):
        (folder / f"{process.host}-{n}.log").write_text("\n".join(process.log_text))


def tell(load, what, begin, end):
    found = checks.gaps(load.history, begin, end)
    worst = max(found, key=found.get, default="nobody")
    print(f"gaps {what}: {len(found)} publishers, {checks.distribution(found.values())} ({worst})", flush=True)


def goes_on(load, thread, timeout):
    """Clients go on until the thread has ended."""
    load.until(lambda: not thread.is_alive(), timeout, f"the end of {thread}")


@pytest.mark.parametrize(
    ("nodes", "out", "cuts", "is_kept"),
    [
        ("abc", "", [], True),
        ("abc", "a", [], True),
        ("abc", "ab", [], False),
        ("abc", "", ["ab"], True),
        ("abc", "c", ["ab"], False),
        ("abc", "", ["ab", "bc"], True),
        ("abc", "", ["ab", "bc", "ca"], False),
        # Any three of four may be the voters of a shard.
        ("abcd", "a", [], True),
        ("abcd", "ab", [], False),
        ("ab", "a", [], False),
    ],
)
def test_which_faults_leave_a_majority(nodes, out, cuts, is_kept):
    fault = SimpleNamespace(out=set(out), cuts={tuple(cut) for cut in cuts})
    assert keeps_majority(nodes, [fault]) == is_kept


@pytest.mark.timeout(SECONDS + AROUND_S)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_random_faults(cluster, load, seed):
    print(f"HERALD_CHAOS_SEED={seed}")
    plan = Plan(cluster, seed, SECONDS)
    goes_on(load, plan, SECONDS + AROUND_S / 2)
    if plan.failure:
        raise plan.failure
    load.go_on()
    deaths = [fault for fault in plan.done if isinstance(fault, DEADLY)]
    load.history.deaths += [at for fault in deaths for at in (fault.began, fault.ended)]
    for fault in plan.done:
        tell(load, f"in company {type(fault).__name__}", fault.began, fault.ended)
    try:
        load.finish(60)
    finally:
        for told in (checks.unordered_qos_0, checks.doubled_qos_0, checks.doubled_clean):
            if found := list(told(load.history)):
                print(f"{told.__name__}: {len(found)}, such as\n  {found[0]}")


@pytest.mark.skipif(not ALONE, reason="HERALD_CHAOS_ALONE is not set")
@pytest.mark.timeout(AROUND_S)
@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize(
    ("kind", "size"),
    [(kind, 4 if kind.__name__ == "Evicted" else 3) for kind in FAULTS],
    ids=[kind.__name__ for kind in FAULTS],
    indirect=["size"],
)
def test_a_fault_alone(cluster, load, kind, role):
    if word := kind.lacks():
        pytest.skip(word)
    nodes = cluster.nodes
    leader = nodes.index(cluster.leader())
    at = leader if role == "leader" else leader + 1
    fault = kind(cluster, (at, at))
    load.until(fault.may_begin, what="the time for it")
    load.run_for(2)
    thread = threading.Thread(target=fault.run, args=(ALONE_S,), daemon=True)
    thread.start()
    goes_on(load, thread, AROUND_S / 2)
    if fault.failure:
        raise fault.failure
    load.run_for(AFTER_S)
    over = time.monotonic()
    load.go_on()
    tell(load, f"alone {kind.__name__} {role}", fault.began, fault.ended)
    tell(load, f"after {kind.__name__} {role}", fault.ended, over)
    load.finish(60)


class Moves(threading.Thread):
    """Has a store change its leader again and again."""

    def __init__(self, cluster, load, store):
        super().__init__(daemon=True)
        self.cluster, self.store, self.failure = cluster, store, None
        self.receipts = load.history.receipts
        self.start()

    def run(self):
        try:
            for _ in range(MOVES):
                enough = len(self.receipts) + BETWEEN
                self.cluster.move(self.store)
                until(lambda: len(self.receipts) >= enough, what="messages")
        except BaseException as error:  # noqa: BLE001: the test tells it
            self.failure = error


@pytest.mark.timeout(AROUND_S + 5 * MOVES)
def test_stores_change_their_leaders_under_load(cluster, load):
    begin = time.monotonic()
    moves = [Moves(cluster, load, store) for store in STORES]
    for thread in moves:
        goes_on(load, thread, AROUND_S / 2 + 4 * MOVES)
        if thread.failure:
            raise thread.failure
    end = time.monotonic()
    print(f"{MOVES} moves of each store in {end - begin:.0f} s")
    load.go_on()
    tell(load, "while leaders move", begin, end)
    load.finish(60)

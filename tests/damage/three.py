"""Rounds on three nodes, on loopback addresses: a cluster that was stopped is prepared once, and its folders are copied for each round.

Invariants: of each shard at most one replica is damaged, so a majority has all that is acknowledged; nothing is taken from a queue.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import shutil
import threading
import time

from harness.broker import run
from harness.raw import Raw
from staged.cluster import MQTT, Cluster
from staged.network import Loopback

import judge
from judge import Promised
from look import Look, fill, payload_of
from one import NO_LIMITS, Result, copy, damage, told, wait

# How long the nodes have to find each other and to serve, and how long is waited for what cannot come before another node is back.
WHOLE_S, SERVE_S = 40.0, 12.0
LOOK_S, WAITS_S = 20.0, 3.0

# How long a probe waits between two messages.
PROBE_S = 0.02

# Those whose replicas the metrics count.
STORES = ("session", "inbox", "retain", "control")

# No acknowledged message is missing, and the nodes that are there serve; or they serve only when the third one is back.
KEPT, WAITED = "kept", "waited"


class Apart(Loopback):
    """Addresses that no test has."""

    def __init__(self):
        super().__init__()
        self.net = f"127.{100 + os.getpid() % 100}.0"


class Staged:
    """What both experiments have: a cluster of three that is stopped between the rounds."""

    name: str
    variant = "three nodes"
    keep = None
    # Options of the nodes.
    sets = NO_LIMITS

    def __init__(self, work: pathlib.Path, _variant=None, options=()):
        self.work, self.options, self.promised, self.marks = work, options, Promised(), 0
        self.cluster = Cluster(3, self.sets, places=Apart())
        self.nodes = self.cluster.nodes
        fill(self.nodes[0].broker, self.promised, "first")
        self.cluster.settled()
        for node in self.nodes:
            node.stop()
            copy(node.data_dir, work / node.folder.name)

    def close(self):
        self.cluster.close()

    def begin(self):
        """Folders as they were prepared."""
        for node in self.nodes:
            shutil.rmtree(node.data_dir, ignore_errors=True)
            copy(self.work / node.folder.name, node.data_dir)
        self.cluster.processes.clear()

    def end(self):
        for node in self.nodes:
            if node.broker:
                node.broker.kill()
                node.broker.close()

    @contextlib.contextmanager
    def look(self, nodes, promised):
        self.marks += 1
        with Look([(node.place.address, MQTT) for node in nodes], promised, str(self.marks)) as look:
            yield look

    def is_settled(self, nodes) -> bool:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return self.cluster._is_settled(nodes)
        return False

    def play(self, seed, strike) -> Result:
        """`strike` gives damage, missing, outcome, and what was said by whom."""
        began = time.monotonic()
        self.begin()
        try:
            done, outcome, by, missing, what = strike(random.Random(seed))
        finally:
            self.end()
        took = round(time.monotonic() - began, 2)
        return Result(seed, self.variant, done, outcome, by, dataclasses.asdict(missing), what, took)


def is_hurt(node) -> bool:
    """Whether a node has a replica that does not serve, or does not say."""
    with contextlib.suppress(OSError):
        metrics = ("heraldmq_store_shards_stopped", "heraldmq_store_replicas_hurt")
        return any(node.broker.metric(name, store=store) for name in metrics for store in STORES)
    return True


def has_ended(node) -> bool:
    return node.broker.process.poll() is not None


def has_panicked(node) -> bool:
    return any("panicked" in line for line in node.broker.log_text)


class ThreeNodes(Staged):
    """One of three is damaged while all are stopped."""

    name = "three"

    def control(self):
        result = self.play(0, lambda draw: self.strike(draw, lambda folder: {}))
        assert result.outcome == judge.HARMLESS, result

    def round(self, seed) -> Result:
        return self.play(seed, lambda draw: self.strike(draw, lambda folder: damage(folder, seed, *self.options)))

    def strike(self, draw, damage_one):
        hit = draw.choice(self.nodes)
        others = [node for node in self.nodes if node is not hit]
        done = damage_one(hit.data_dir)
        verified = run("store", "verify", hit.data_dir)
        verdict = verified.stdout + verified.stderr
        for node in self.nodes:
            node.start(ready=False)

        def by():
            return judge.said_by(hit.broker.log_lines, hit.broker.log_text, verdict, verified.returncode)

        def is_whole():
            return self.is_settled(self.nodes) and not is_hurt(hit)

        wait(lambda: is_whole() or (has_ended(hit) and self.is_settled(others)), WHOLE_S)
        is_whole_now = is_whole()
        with self.look(others, self.promised) as look:
            missing = look.go_on(LOOK_S)
        # What a client has read may have been damaged, too.
        is_still_hurt = not has_ended(hit) and not wait(lambda: not is_hurt(hit) or has_ended(hit), WHOLE_S)
        ended, panicked = has_ended(hit), any(map(has_panicked, self.nodes))
        hit.broker.kill()
        said = by() + (["metric"] if is_still_hurt else [])
        outcome = judge.outcome_of_three(
            missing, said, is_whole=is_whole_now, ended=ended, panicked=panicked, is_hurt=is_still_hurt
        )
        what = "; ".join(told(hit.broker.log_text) + ([verdict.strip()] if verified.returncode else []))
        return done, outcome, said, missing, what


class TwoNodes(Staged):
    """Two of three are damaged while all are stopped, each in the tables of another store. Both have to be whole again, by themselves."""

    name = "two"
    variant = "two of three nodes"

    def control(self):
        result = self.play(0, lambda draw: self.strike(draw, lambda folder, *wishes: {}))
        assert result.outcome == judge.HARMLESS, result

    def round(self, seed) -> Result:
        return self.play(seed, lambda draw: self.strike(draw, lambda folder, *wishes: damage(folder, seed, *wishes)))

    def strike(self, draw, damage_one):
        hit = draw.sample(self.nodes, 2)
        done, verdicts = [], {}
        for node, store in zip(hit, draw.sample(STORES[:3], 2), strict=True):
            tables = sorted(node.data_dir.glob(f"{store}/shard-*/tables/*"))
            wishes = ("--file", draw.choice(tables).relative_to(node.data_dir)) if tables else ("--files", "table")
            done.append(damage_one(node.data_dir, *wishes))
            verdicts[node] = run("store", "verify", node.data_dir)
        for node in self.nodes:
            node.start(ready=False)
        wait(lambda: self.is_settled(self.nodes) and not any(map(is_hurt, hit)), WHOLE_S)
        is_whole = self.is_settled(self.nodes)
        with self.look(self.nodes, self.promised) as look:
            missing = look.go_on(LOOK_S)
        # What a client has read may have been damaged, too.
        wait(lambda: not any(map(is_hurt, hit)), WHOLE_S)
        are_hurt = any(map(is_hurt, hit))
        ended, panicked = any(map(has_ended, self.nodes)), any(map(has_panicked, self.nodes))
        by, what = set(), []
        for node in hit:
            node.broker.kill()
            verified = verdicts[node]
            verdict = verified.stdout + verified.stderr
            by.update(judge.said_by(node.broker.log_lines, node.broker.log_text, verdict, verified.returncode))
            what += told(node.broker.log_text) + ([verdict.strip()] if verified.returncode else [])
        said = sorted(by) + (["metric"] if are_hurt else [])
        outcome = judge.outcome_of_three(missing, said, is_whole=is_whole, ended=ended, panicked=panicked, is_hurt=are_hurt)
        first, second = (each.get("file") for each in done) if all(done) else (None, None)
        return {**done[0], "file": f"{first} and {second}"} if all(done) else {}, outcome, said, missing, "; ".join(what)


class Probe(threading.Thread):
    """Publishes to durable sessions, one message after the other, and keeps the longest time between two acknowledgements."""

    def __init__(self, node, promised: Promised, draw):
        super().__init__(daemon=True)
        self.node, self.promised, self.draw = node, promised, draw
        self.longest_s, self.sent, self.error = 0.0, 0, None
        self.ends = threading.Event()

    def run(self):
        try:
            with Raw(self.node.broker.port, host=self.node.place.address) as client:
                client.connect("probe")
                last = time.monotonic()
                while not self.ends.wait(PROBE_S):
                    name = self.draw.choice(list(self.promised.queues))
                    payload = payload_of(self.draw, f"probe {name} {self.sent}")
                    client.published(f"queue/{name}/a", payload, timeout=WHOLE_S)
                    self.promised.queues[name].append(payload)
                    now = time.monotonic()
                    self.longest_s, last, self.sent = max(self.longest_s, now - last), now, self.sent + 1
        except Exception as error:  # noqa: BLE001
            self.error = error


class Running(Staged):
    """A table of the leader of a shard is damaged while all nodes run, and clients publish. Nobody reads the table but the scrub, which
    takes two seconds a round here."""

    name = "running"
    variant = "running nodes"
    sets = {**NO_LIMITS, "store.scrubSeconds": 2}

    def control(self):
        result = self.play(0, lambda draw: self.strike(draw, is_damaged=False))
        assert result.outcome == judge.HARMLESS, result

    def round(self, seed) -> Result:
        return self.play(seed, lambda draw: self.strike(draw, is_damaged=True))

    def strike(self, draw, *, is_damaged):
        for node in self.nodes:
            node.start(ready=False)
        assert wait(lambda: self.is_settled(self.nodes), WHOLE_S), self.cluster.views(self.nodes)
        store = draw.choice(STORES[:3])
        hit = self.cluster.leader(store)
        others = [node for node in self.nodes if node is not hit]
        promised = self.promised.copy()
        probe = Probe(draw.choice(others), promised, draw)
        probe.start()
        done, is_met = {}, True
        mended = mended_by(hit)
        if is_damaged:
            done = flip(draw, sorted(hit.data_dir.glob(f"{store}/shard-*/tables/*")), hit.data_dir)
            is_met = wait(lambda: mended_by(hit) > mended or has_ended(hit), WHOLE_S)
        else:
            wait(lambda: probe.sent >= 20, WHOLE_S)
        wait(lambda: not is_hurt(hit), WHOLE_S)
        probe.ends.set()
        probe.join(WHOLE_S)
        done = {**done, "longest_gap_s": round(probe.longest_s, 2)}
        is_whole = self.is_settled(self.nodes)
        with self.look(others, promised) as look:
            missing = look.go_on(LOOK_S)
        ended, panicked = has_ended(hit), any(map(has_panicked, self.nodes))
        are_hurt = is_hurt(hit) or not is_met
        hit.broker.kill()
        by = judge.said_by(hit.broker.log_lines, hit.broker.log_text, "", 0) + (["metric"] if are_hurt else [])
        outcome = judge.outcome_of_three(missing, by, is_whole=is_whole, ended=ended, panicked=panicked, is_hurt=are_hurt)
        if probe.error:
            outcome = judge.LOST
        return done, outcome, by, missing, "; ".join([*told(hit.broker.log_text), *([repr(probe.error)] if probe.error else [])])


def mended_by(node) -> float:
    """How many replicas a node has had made anew."""
    with contextlib.suppress(OSError):
        return sum(node.broker.metric("heraldmq_store_replicas_mended_total", store=store) for store in STORES)
    return 0.0


def flip(draw, files, folder) -> dict:
    """Flips a bit of one of the files, in place."""
    file = draw.choice(files)
    offset, bit = draw.randrange(file.stat().st_size), draw.randrange(8)
    with file.open("r+b", buffering=0) as open_file:
        byte = os.pread(open_file.fileno(), 1, offset)[0] ^ 1 << bit
        os.pwrite(open_file.fileno(), bytes([byte]), offset)
        os.fsync(open_file.fileno())
    return {"kind": "flip", "files": "table", "file": str(file.relative_to(folder)), "offset": offset}


class Election(Staged):
    """C is stopped, then A and B acknowledge messages; B is stopped, and the end of its log is damaged; A, who led, is stopped. B
    and C begin: as long as they serve, nothing may be missing. Then A is back, and all must be there."""

    name = "election"
    # What is acknowledged without C.
    messages = 8

    def control(self):
        result = self.play(0, lambda draw: self.strike(draw, lambda folder, *wishes: {}))
        assert result.outcome == KEPT, result

    def round(self, seed) -> Result:
        return self.play(seed, lambda draw: self.strike(draw, lambda *args: damage(args[0], seed, *args[1:])))

    def strike(self, draw, damage_one):
        for node in self.nodes:
            node.start(ready=False)
        assert wait(lambda: self.is_settled(self.nodes), WHOLE_S), self.cluster.views(self.nodes)
        a = self.cluster.leader("inbox")
        b, c = draw.sample([node for node in self.nodes if node is not a], 2)
        draw.choice([c.kill, c.stop])()
        promised = self.acknowledge(a, draw)
        draw.choice([b.kill, b.kill, b.stop])()
        newest = max((b.data_dir / "log" / "entries").glob("*.raftlog")).relative_to(b.data_dir)
        kind = draw.choice(["flip", "flip", "cut"])
        done = damage_one(b.data_dir, "--file", newest, "--kind", kind, "--at-end")
        verified = run("store", "verify", b.data_dir)
        verdict = verified.stdout + verified.stderr
        a.kill()
        b.start(ready=False)
        c.start(ready=False)
        wait(lambda: self.is_settled([b, c]) or has_ended(b), SERVE_S)
        with self.look([c] if has_ended(b) else [b, c], promised) as look:
            before = look.go_on(WAITS_S)
        a.start(ready=False)
        wait(lambda: self.is_settled(self.nodes) or (has_ended(b) and self.is_settled([a, c])), WHOLE_S)
        with self.look([a, c], promised) as look:
            after = look.go_on(LOOK_S)
        ended, panicked = has_ended(b), any(map(has_panicked, self.nodes))
        b.broker.kill()
        by = judge.said_by(b.broker.log_lines, b.broker.log_text, verdict, verified.returncode)
        what = "; ".join(told(b.broker.log_text) + ([verdict.strip()] if verified.returncode else []))
        if panicked or (ended and not {"log", "end"} & set(by)):
            outcome = judge.DIED
        elif before.changed or after.changed:
            outcome = judge.CHANGED
        elif before.is_lost or after.anything:
            outcome = judge.LOST
        else:
            outcome = WAITED if before.anything else KEPT
        worst = before if before.is_lost and not after.anything else after
        return done, outcome, by, worst, what

    def acknowledge(self, node, draw) -> Promised:
        """What is promised from now on."""
        promised = self.promised.copy()
        with Raw(node.broker.port, host=node.place.address) as client:
            client.connect("late")
            for n in range(self.messages):
                name = draw.choice(list(promised.queues))
                payload = payload_of(draw, f"late {name} {n}")
                client.published(f"queue/{name}/a", payload)
                promised.queues[name].append(payload)
        return promised

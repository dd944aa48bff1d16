"""One run of an attack: what it prepares, the control, the attack, the readings.

Invariant: the control and the attack are measured on the same broker, one right after the other, beside the same
bystanders. A run has a broker of its own, or the one of `Shared` if the attack needs no settings of its own.
"""

import contextlib
import pathlib
import shutil
import tempfile
import time
import uuid

from harness import raw
from harness.listeners import Listeners
from harness.raw import PUBACK

from .bars import EXACT, GROWTH_FROM, LONG_NAME, MIB, SHORT_NAME, Cost, growth, least, steep, wordy
from .bystander import Bystander
from .process import FolderPeak, Silent
from .stage import Stage, TimedOut

# An attacker would not be slowed down by limits of a rate, which only make it last; the bars are about amounts.
SETS = {
    "limits.connection.bytesPerSecondIn": 0,
    "limits.connection.bytesPerSecondOut": 0,
    "limits.connection.receiveMaximum": 65535,
}
CONTROL_S = 0.5
IDLE_S = 0.4
# What still follows after an attack has been answered is waited for so long.
QUIET_S = 60
# Memory is a better disk for measuring: other processes do not make it slow.
FAST = pathlib.Path("/dev/shm")


class SilentListeners(Silent, Listeners):
    """A silent broker with a listener of each kind."""


def folder():
    try:
        if shutil.disk_usage(FAST).free > 4 << 30:
            return tempfile.TemporaryDirectory(prefix="heraldmq-adversary-", dir=FAST)
    except OSError:
        pass
    return tempfile.TemporaryDirectory(prefix="heraldmq-adversary-")


@contextlib.contextmanager
def broker_for(attack):
    with folder() as place:
        place = pathlib.Path(place)
        sets = {**SETS, **attack.sets(place)}
        fields = {"data_dir": place / "data", **attack.broker_fields(place)}
        if attack.listeners:
            made = SilentListeners(place, sets, **fields)
        else:
            made = Silent(sets, **fields)
        try:
            yield made
        finally:
            # An attack may have left it with work for minutes.
            made.kill()
            made.close()


def control(stage) -> int:
    """Messages of 1 kB, half of them of QoS 1, for a subscriber that reads, for `CONTROL_S`; the bytes that were
    sent."""
    topic = f"{stage.tag}-control/topic"
    subscriber = stage.ordinary(f"{stage.tag}-control-s")
    subscriber.send(raw.subscribe(1, [(topic, 1)]))

    def acknowledge(first, body):
        if first >> 4 == 3 and first & 6:
            at = 2 + len(topic)
            subscriber.send(b"\x40\x02" + body[at : at + 2])

    subscriber.on_packet = acknowledge
    publisher = stage.ordinary(f"{stage.tag}-control-p")
    publisher.settle()
    size, packets, start = 0, 0, time.monotonic()
    while size < MIB or time.monotonic() - start < CONTROL_S:
        chunk = []
        for _ in range(32):
            packets += 1
            chunk.append(raw.publish(topic, b"x" * 1000))
            chunk.append(raw.publish(topic, b"x" * 1000, qos=1, pid=packets % 65000 + 1))
        size += sum(map(len, chunk))
        publisher.send(b"".join(chunk))
        publisher.got(PUBACK, packets)
    publisher.settle()
    for line in (publisher, subscriber):
        line.close()
    return size


@contextlib.contextmanager
def bystander_of(broker, tag):
    bystander = Bystander(broker.host, broker.port, tag)
    try:
        yield bystander
    finally:
        bystander.close()


@contextlib.contextmanager
def alone(attack, version, n):
    """A broker for one run, its bystanders, and the stage."""
    tag = "a" + uuid.uuid4().hex[:6]
    with broker_for(attack) as broker, bystander_of(broker, tag) as bystander:
        stage = Stage(broker, version, n, tag)
        try:
            yield stage, bystander
        finally:
            stage.close()


class Shared:
    """A broker for many runs, of attacks that leave little behind."""

    def __init__(self):
        self._stack = contextlib.ExitStack()
        self.broker = None

    def _start(self):
        self.broker = self._stack.enter_context(broker_for(Plain()))
        self.bystander = self._stack.enter_context(bystander_of(self.broker, "shared"))

    @contextlib.contextmanager
    def __call__(self, attack, version, n):
        if not attack.is_plain:
            with alone(attack, version, n) as made:
                yield made
            return
        if not self.broker or self.broker.process.poll() is not None:
            self.close()
            self._start()
        stage = Stage(self.broker, version, n, "a" + uuid.uuid4().hex[:6])
        try:
            yield stage, self.bystander
        finally:
            stage.close()

    def close(self):
        self._stack.close()
        self.broker = None


class Plain:
    """What `broker_for` needs to know of an attack without any needs."""

    listeners = False

    @staticmethod
    def sets(_folder):
        return {}

    @staticmethod
    def broker_fields(_folder):
        return {}


def longest(waits) -> float:
    return float("inf") if waits["closed"] else max(waits["ping"], waits.get("publish", 0))


def idle_rate(stage) -> float:
    """What the bystanders and the broker itself use, in CPU seconds a second."""
    start, cpu = time.monotonic(), stage.broker.cpu()
    while time.monotonic() - start < IDLE_S:
        stage.pump()
    return (stage.broker.cpu() - cpu) / (time.monotonic() - start)


def stored(broker) -> float:
    """Bytes that were written to the log of the stores."""
    return broker.metric("heraldmq_store_log_written_bytes_total")


def idle_rates(stage, bystander) -> tuple[float, float]:
    """CPU seconds a second of the bystanders and the broker itself, and bytes of the log of the stores a message of the
    bystanders."""
    bystander.longest()
    before = stored(stage.broker)
    idle = idle_rate(stage)
    published = bystander.longest()["published"]
    return idle, (stored(stage.broker) - before) / max(published, 1)


class Hollow(Exception):
    """The broker has refused an attack that it was to let in, or let in one that it was to refuse: what was measured is not
    what the attack is about."""


# Reasons of drops by which a message was not let in; versions before 5.0 have no reason code for that.
NOT_LET_IN = (
    "topic_limit",
    "reserved_topic",
    "bridge_notification",
    "publish_denied",
    "retain_denied",
    "payload_format_invalid",
)


def not_let_in(broker) -> dict[str, float]:
    return {reason: broker.metric("heraldmq_messages_dropped_total", reason=reason) for reason in NOT_LET_IN}


def check_let_in(attack, stage):
    if bool(stage.refusals) != attack.is_refused:
        told = ", ".join(f"{count} × {what}" for what, count in stage.refusals.most_common(5))
        raise Hollow(f"{attack.name}: the broker refused {told or 'nothing'}")


def measure(attack, stage, bystander) -> Cost:
    broker = stage.broker
    attack.prepare(stage)
    stage.quiet(0.3 * stage.cause.nodes, QUIET_S)
    idle, stored_each = idle_rates(stage, bystander)

    bystander.longest()
    start, cpu = time.monotonic(), broker.cpu()
    size = control(stage)
    control_cpu = (broker.cpu() - cpu - idle * (time.monotonic() - start)) / size
    stage.quiet(idle, QUIET_S)
    control_pause = longest(bystander.longest())
    before = stored(broker)

    peak = FolderPeak(broker)
    links = broker.link_bytes()
    threads, resident, log, taken = broker.threads(), broker.reset_peak(), broker.log_bytes, broker.folder()
    start, cpu = time.monotonic(), broker.cpu()
    dropped = not_let_in(broker)
    stage.counting = True
    faults = stage.faults
    try:
        attack.run(stage)
        stage.sent()
    except TimedOut as late:
        faults.append(str(late))
    if broker.process.poll() is None and not stage.quiet(idle, QUIET_S):
        faults.append(f"the broker was still busy {QUIET_S} s later")
    stage.counting = False
    if broker.process.poll() is not None:
        peak.stop()
        return Cost(stage.cause, faults=[f"the broker ended: {broker.log_text[-3:]}"])
    seconds = time.monotonic() - start
    used = broker.cpu() - cpu
    # What bystanders cost varies with what else the machine does; in a long run that adds up.
    used -= seconds * (max(idle, idle_rate(stage)) if seconds > 1 else idle)
    waits = bystander.longest()
    kept = stored(broker) - before - waits["published"] * stored_each
    cost = Cost(
        stage.cause,
        cpu=max(used, 0.0),
        pause=longest(waits),
        control_cpu=max(control_cpu, 0.0),
        control_pause=control_pause,
        memory=max(broker.peak() - resident, 0),
        log=broker.log_bytes - log,
        folder=max(peak.stop() - taken, 0),
        stored=max(int(kept), 0),
        links=broker.link_bytes() - links,
        seconds=seconds,
        faults=faults,
    )
    for name, used in broker.threads().items():
        cost.threads[name] = round(used - threads.get(name, 0), 3)
    faults += stage.leaders_moved()
    for reason, count in not_let_in(broker).items():
        if count > dropped[reason]:
            stage.refusals[f"message dropped: {reason}"] = int(count - dropped[reason])
    check_let_in(attack, stage)
    attack.judge(stage, cost)
    return cost


def measure_stored(attack, stage, bystander) -> Cost:
    """What of an attack is written to the log of the stores, and nothing else."""
    attack.prepare(stage)
    stage.quiet(0.3 * stage.cause.nodes, QUIET_S)
    idle, stored_each = idle_rates(stage, bystander)
    bystander.longest()
    before = stored(stage.broker)
    stage.counting = True
    try:
        attack.run(stage)
        stage.sent()
    except TimedOut as late:
        stage.faults.append(f"with a short identifier: {late}")
    stage.quiet(idle, QUIET_S)
    stage.counting = False
    kept = stored(stage.broker) - before - bystander.longest()["published"] * stored_each
    check_let_in(attack, stage)
    return Cost(stage.cause, stored=max(int(kept), 0), faults=stage.faults)


class Verdict:
    """An attack with what it cost, at half of its size and at its size, and the bars that it exceeded. Of an attack that is
    about client identifiers, `brief` is what it cost with short ones."""

    def __init__(self, attack, version, n, place=alone, room=EXACT):
        self.attack, self.version, self.n, self._place, self._room = attack, version, n, place, room
        self.half: list[Cost] = []
        self.whole: list[Cost] = []
        self.brief: list[Cost] = []

    def _run(self, n) -> Cost:
        with self._place(self.attack, self.version, n) as (stage, bystander):
            if self.attack.is_about_names:
                stage.name_length = LONG_NAME
            return measure(self.attack, stage, bystander)

    def _run_brief(self) -> Cost:
        with self._place(self.attack, self.version, self.n) as (stage, bystander):
            stage.name_length = SHORT_NAME
            return measure_stored(self.attack, stage, bystander)

    def measure(self):
        whole = self._run(self.n)
        self.whole.append(whole)
        costs = any(getattr(whole, name) >= floor for name, floor in GROWTH_FROM.items())
        if self.attack.grows and costs and not whole.faults:
            self.half.append(self._run(max(self.n // 2, 1)))
        if self.attack.is_about_names and not whole.faults:
            self.brief.append(self._run_brief())

    @property
    def cost(self) -> Cost:
        return least(self.whole)

    @property
    def growth(self) -> dict[str, float]:
        return growth(least(self.half), self.cost) if self.half else {}

    def broken(self) -> dict[str, str]:
        found = self.cost.broken(self._room)
        if self.brief:
            found.update(wordy(least(self.brief), self.cost))
        if self.half:
            found.update(steep(least(self.half), self.cost, self._room))
        return found


def judge(attack, version, n, again=2, place=alone, room=EXACT) -> Verdict:
    """Measures an attack; one that exceeds a bar again, so many times, before it counts."""
    verdict = Verdict(attack, version, n, place, room)
    verdict.measure()
    while verdict.broken() and len(verdict.whole) <= again:
        verdict.measure()
    return verdict

"""Rounds on one node: prepared folders, each copied, damaged and started.

Invariant: a prepared folder is not changed, so a seed plays the same round each time as far as the broker's timing goes.
"""

import contextlib
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import time

from harness.broker import BINARY, Broker, run

import judge
from judge import Promised
from look import Look, connect_wills, fill, fill_log

START_S = 30
# What nodes warn of in these clusters without any damage.
USUAL = ("THE CLUSTER IS OPEN", "a node is down")
# How long something is waited for that is missing, if it was said that something is damaged, and if not.
SAID_S, UNSAID_S = 1.0, 15.0

NO_LIMITS = {
    "limits.connection.bytesPerSecondIn": 0,
    "limits.connection.bytesPerSecondOut": 0,
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """How a folder is prepared. `log_mib`: so much goes through the log at first; a file of the log has 64 MiB, and beyond
    256 the oldest ones are written anew."""

    name: str
    shards: int
    is_killed: bool
    log_mib: int = 0
    # How often it is chosen.
    weight: int = 1


VARIANTS = (
    Variant("killed", 1, True, weight=4),
    Variant("killed-4-shards", 4, True, weight=3),
    Variant("stopped", 1, False, weight=2),
    Variant("stopped-4-shards", 4, False, weight=2),
    Variant("three-log-files", 1, True, log_mib=140),
)


def sets(variant) -> dict:
    shards = {f"{store}_store_initial_shards": variant.shards for store in ("session", "inbox", "retain")}
    return {**NO_LIMITS, **shards}


class Prepared:
    """A data folder, and what it promises."""

    def __init__(self, variant: Variant, folder: pathlib.Path):
        self.variant, self.folder, self.promised = variant, folder, Promised()
        with Broker(sets(variant), data_dir=folder) as broker:
            fill_log(broker, variant.log_mib)
            fill(broker, self.promised, "first")
        # Tables hold the first half, the log alone has the second one, if the broker is killed.
        with Broker(sets(variant), data_dir=folder) as broker:
            with contextlib.ExitStack() as stack:
                if variant.is_killed:
                    for client in connect_wills(broker, self.promised):
                        stack.enter_context(client)
                fill(broker, self.promised, "second")
                if variant.is_killed:
                    broker.kill()

    def copy(self, to: pathlib.Path):
        copy(self.folder, to)


def copy(folder, to):
    subprocess.run(["cp", "-a", "--reflink=auto", folder, to], check=True)


def damage(folder, seed, *wishes) -> dict:
    """What was done."""
    done = run("store", "damage", folder, "--seed", seed, "--yes-destroy-data", "--json", *wishes)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclasses.dataclass
class Result:
    """A line of the output."""

    seed: int
    variant: str
    damage: dict
    outcome: str
    by: list[str]
    missing: dict
    what: str
    seconds: float


class OneNode:
    """A lone node. `keep`: a folder that gets the damaged folders of rounds that failed."""

    name = "one"
    keep: pathlib.Path | None = None

    def __init__(self, work: pathlib.Path, only=None, options=()):
        self.work, self.options = work, options
        chosen = [variant for variant in VARIANTS if only in (None, variant.name)]
        self.prepared = [Prepared(variant, work / variant.name) for variant in chosen]
        self.number = 0

    def control(self):
        """The same without damage: nothing may be missing. What is said even so says nothing of damage."""
        for prepared in self.prepared:
            result = self.play(prepared, 0, lambda folder: {})
            assert result.outcome == judge.HARMLESS, result

    def round(self, seed) -> Result:
        draw = random.Random(seed)
        prepared = draw.choices(self.prepared, [prepared.variant.weight for prepared in self.prepared])[0]
        result = self.play(prepared, seed, lambda folder: damage(folder, seed, *self.options))
        if self.keep and result.outcome in judge.FAILURES:
            self.keep.mkdir(parents=True, exist_ok=True)
            prepared.copy(self.keep / str(seed))
            damage(self.keep / str(seed), seed, *self.options)
        return result

    def play(self, prepared, seed, strike) -> Result:
        began = time.monotonic()
        self.number += 1
        folder = self.work / f"round-{self.number}"
        prepared.copy(folder)
        done = strike(folder)
        verified = run("store", "verify", folder)
        verdict = verified.stdout + verified.stderr
        broker = Broker(sets(prepared.variant), data_dir=folder, ready=False)

        def has_ended():
            return broker.process.poll() is not None

        def by():
            return judge.said_by(broker.log_lines, broker.log_text, verdict, verified.returncode)

        try:
            wait(lambda: broker.find("ready") or has_ended(), START_S)
            ended, missing = False, None
            if broker.find("ready"):
                with Look([("127.0.0.1", broker.port)], prepared.promised, "1") as look:
                    missing = look.go_on(SAID_S, has_ended)
                    if missing.anything and not {"log", "end"} & set(by()):
                        missing = look.go_on(SAID_S if by() else UNSAID_S, has_ended)
            else:
                missing = judge.compare(prepared.promised, judge.Seen())
            ended = has_ended()
            broker.kill()
            panicked = any("panicked" in line for line in broker.log_text)
            what = "; ".join(told(broker.log_text) + ([verdict.strip()] if verified.returncode else []))
            outcome = judge.outcome_of_one(missing, by(), ended=ended, panicked=panicked, text=what)
        finally:
            broker.kill()
            broker.close()
            subprocess.run(["rm", "-rf", folder], check=True)
        took = time.monotonic() - began
        shown = dataclasses.asdict(missing)
        return Result(seed, prepared.variant.name, done, outcome, by(), shown, what, round(took, 2))


def wait(condition, seconds) -> bool:
    """Whether it came true in that time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(found)


def told(text: list[str]) -> list[str]:
    """What a broker said at WARN or ERROR, and what is no line of its log."""
    kept = []
    for line in text:
        try:
            parsed = json.loads(line)
        except ValueError:
            kept.append(line)
            continue
        if parsed.get("level") in ("WARN", "ERROR") and not parsed.get("message", "").startswith(USUAL):
            kept.append(re.sub(r"\s+", " ", f"{parsed['level']} {judge.words(parsed)}"))
    return kept


assert pathlib.Path(BINARY).exists(), f"there is no program {BINARY}; set HERALDMQ_BIN"

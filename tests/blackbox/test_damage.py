"""What tests/damage calls silent, said, changed, died and lost; and that it can play. Absent: whether the broker passes, which is
counted there, by many rounds (`scripts/soak MINUTES damage`)."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from harness.broker import BINARY, environment

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests" / "damage"))

import judge  # noqa: E402
from judge import Missing, Promised, Seen  # noqa: E402

NOTHING = Missing()


def promised() -> Promised:
    return Promised({"ann": [b"1", b"2"], "bob": [b"3"]}, {"kept/1": b"on"}, {b"gone"}, {"kept/1": {b"before"}})


def seen(**changes) -> Seen:
    all_there = {
        "sessions": {"ann": True, "bob": True},
        "whole": {"ann", "bob"},
        "queues": {"ann": [b"1", b"2"], "bob": [b"3"]},
        "retained": {"kept/1": b"on"},
        "is_retain_served": True,
        "wills": {b"gone"},
    }
    return Seen(**{**all_there, **changes})


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, NOTHING),
        ({"sessions": {"ann": True}, "whole": {"ann"}}, Missing(unserved=1)),
        ({"whole": {"ann"}}, Missing(unserved=1)),
        ({"sessions": {"ann": False, "bob": True}, "queues": {"bob": [b"3"]}}, Missing(sessions=1, messages=2)),
        ({"queues": {"ann": [b"1"], "bob": [b"3"]}}, Missing(messages=1)),
        ({"queues": {"ann": [b"1", b"X"], "bob": [b"3"]}}, Missing(messages=1, changed=1)),
        ({"retained": {}}, Missing(retained=1)),
        ({"retained": {}, "is_retain_served": False}, Missing(unserved=1)),
        ({"retained": {"kept/1": b"off"}}, Missing(changed=1)),
        ({"retained": {"kept/1": b"before"}}, Missing(retained=1)),
        ({"retained": {"kept/1": b"on", "kept/2": b"on"}}, Missing(changed=1)),
        ({"wills": set()}, Missing(wills=1)),
    ],
)
def test_what_is_missing_is_counted(changes, missing):
    assert judge.compare(promised(), seen(**changes)) == missing


@pytest.mark.parametrize(
    ("missing", "by", "ended", "outcome"),
    [
        (NOTHING, [], False, "harmless"),
        (NOTHING, ["log"], False, "said"),
        (Missing(messages=1), ["verify"], False, "said"),
        (Missing(messages=1), [], False, "silent"),
        (Missing(unserved=1), [], False, "silent"),
        (Missing(changed=1), ["log"], False, "changed"),
        (Missing(unserved=1), ["end"], True, "said"),
        (Missing(unserved=1), ["verify"], True, "died"),
        (Missing(unserved=1), [], True, "died"),
    ],
)
def test_a_lone_node_has_to_say_what_is_gone(missing, by, ended, outcome):
    def judged(panicked):
        return judge.outcome_of_one(missing, by, ended=ended, panicked=panicked, text="store=inbox")

    assert judged(False) == outcome and judged(True) == "died"


def test_a_store_that_serves_with_less_has_to_be_named():
    def outcome(missing, text):
        return judge.outcome_of_one(missing, ["log"], ended=False, panicked=False, text=text)

    of_retain = "a shard does not serve: its data cannot be used store=retain shard=0"
    assert outcome(Missing(retained=1), of_retain) == "said" and outcome(Missing(unserved=1), of_retain) == "said"
    assert outcome(Missing(messages=1), of_retain) == "silent"
    assert outcome(Missing(messages=1), f"{of_retain}; inbox store, shard 0: damaged") == "said"
    assert outcome(Missing(sessions=1, messages=3), "session store, shard 0: damaged") == "said"
    assert outcome(Missing(messages=1), "/data/log/entries/0000000000000001.raftlog: damaged at byte 69") == "said"


def test_a_cluster_loses_nothing_by_one_damaged_node():
    def outcome(missing, by=(), is_whole=True):
        return judge.outcome_of_three(missing, list(by), is_whole=is_whole, ended=False, panicked=False)

    assert outcome(NOTHING) == "harmless" and outcome(NOTHING, ["log"], False) == "said"
    assert outcome(NOTHING, is_whole=False) == "silent"
    assert outcome(Missing(messages=1), ["log"]) == "lost"


def test_a_node_that_runs_has_to_mend_what_is_damaged():
    def outcome(missing):
        return judge.outcome_of_three(missing, ["log"], is_whole=True, ended=False, panicked=False, is_hurt=True)

    assert outcome(NOTHING) == "hurt" and outcome(Missing(messages=1)) == "lost"


@pytest.mark.parametrize(
    ("line", "is_said"),
    [
        ("/data/log/entries/0000000000000001.raftlog is damaged at byte 69", True),
        ("a shard does not serve: its data cannot be used store=inbox shard=0", True),
        ("no node leads the shard; its requests are refused store=inbox shard=0", False),
        ("something is damaged", False),
        ("a session lags behind shard=0 folder=/tmp/damage/round-3/inbox", False),
        ("cannot open the store: the log: /tmp/round-3/log/entries: Invalid argument (os error 22)", True),
        ("note: the last write of the log is cut off when a broker starts", False),
    ],
)
def test_a_line_has_to_name_what_is_damaged(line, is_said):
    assert judge.names_damage(line) == is_said
    log = [{"timestamp": "now", "level": "WARN", "message": line}]
    assert bool(judge.said_by(log, [], "", 0)) == is_said
    assert not judge.said_by([{**log[0], "level": "INFO"}], [], "", 0)
    assert bool(judge.said_by([], [f"heraldmq: {line}"], "", 0)) == is_said
    # OK, with a note.
    assert not judge.said_by([], [], line, 0)


@pytest.mark.full
def test_rounds_are_played_and_counted(tmp_path):
    lines = tmp_path / "rounds.jsonl"
    words = [ROOT / "tests" / "damage", "one", "--variant", "stopped", "--rounds", 3, "--output", lines]
    played = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True, text=True, env={**environment(), "HERALDMQ_BIN": os.path.abspath(BINARY)})
    assert played.returncode in (0, 1), played
    rounds = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(rounds) == 3 and all(one["outcome"] in judge.OUTCOMES for one in rounds)
    assert all(f"seed {one['seed']}: {one['outcome']}" in played.stdout for one in rounds)
    assert (played.returncode == 1) == any(one["outcome"] in judge.FAILURES for one in rounds)
    assert "all              3" in played.stdout

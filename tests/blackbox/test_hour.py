"""scripts/hour: a short run on a real broker leaves a record with all its parts, and what rises is found in rows that are made up.
Absent on purpose: any claim about the figures themselves."""

import csv
import importlib.machinery
import importlib.util
import math
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from harness.broker import BINARY
from harness.wait import DEADLINE_S

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts/hour"


@pytest.fixture(scope="module")
def hour():
    loader = importlib.machinery.SourceFileLoader("hour", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("hour", loader))
    loader.exec_module(module)
    return module


def run(*words, script=SCRIPT):
    return subprocess.run([sys.executable, script, *map(str, words)], capture_output=True, text=True, timeout=4 * DEADLINE_S)


def test_a_short_run_leaves_rows_charts_and_a_page(tmp_path):
    """By way of scripts/soak, which hands it on."""
    words = ("hour", "--minutes", 0.15, "--scale", 100, "--no-dashboard", "--binary", BINARY, "--output", tmp_path)
    done = run(*words, script=ROOT / "scripts/soak")
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "minutes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert len(rows) == 10
    last = {name: float(value) for name, value in rows[-1].items() if value}
    for column in (
        "rss_anonymous_bytes", "descriptors", "disk_log_bytes", "messages_per_second", "delivery_p99_ms", "heraldmq_sessions",
        "heraldmq_inbox_messages", "heraldmq_retained_messages", "heraldmq_connects_per_second",
    ):  # fmt: skip
        assert last[column] > 0, column
    assert last["heraldmq_clients_connected"] >= 50
    xml.etree.ElementTree.parse(tmp_path / "charts.svg")
    page = (tmp_path / "hour.md").read_text()
    assert "lost 0" in page and "What rises" in page and "(charts.svg)" in page
    (tmp_path / "charts.svg").unlink()
    assert run("--again", tmp_path).returncode == 0
    assert (tmp_path / "charts.svg").exists()


def test_wrong_arguments_and_a_broker_that_does_not_start(tmp_path):
    for words in (("--minutes", 0), ("--scale", 0.5), ("--interval", 0), ("--binary", tmp_path / "none")):
        assert run("--binary", BINARY, *words).returncode == 2, words
    failing = tmp_path / "heraldmq"
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    done = run("--minutes", 0.1, "--binary", failing, "--output", tmp_path / "out")
    assert done.returncode == 1 and "does not start" in done.stderr


def made_up(figure):
    """Rows of an hour with one figure."""
    return [{"minute": float(minute), "figure": figure(minute)} for minute in range(1, 61)]


def test_what_rises_is_found_and_what_swings_is_not(hour):
    noise = lambda minute: 3.0 * math.sin(minute * 7.3)  # noqa: E731
    [(share, rise, _, name)] = hour.rising(made_up(lambda minute: 100.0 + 0.5 * minute + noise(minute)))
    assert name == "figure" and 28 < rise < 32 and share > 0.2
    assert hour.rising(made_up(lambda minute: 100.0 + noise(minute))) == []
    # A slope of more than 1 % by chance.
    assert hour.rising(made_up(lambda minute: 100.0 + 10 * noise(minute) + 0.1 * minute)) == []
    assert hour.rising(made_up(lambda minute: 100.0 - 0.5 * minute)) == []
    # What has settled after a quarter does not rise.
    assert hour.rising(made_up(lambda minute: float(min(minute, 15)))) == []


def test_a_percentile_lies_between_the_bounds_of_its_bucket(hour):
    before = dict.fromkeys((0.001, 0.002, 0.004, math.inf), 5.0)
    after = {0.001: 5.0, 0.002: 55.0, 0.004: 105.0, math.inf: 105.0}
    assert hour.percentile(before, after, 0.5) == pytest.approx(2.0)
    assert 2.0 < hour.percentile(before, after, 0.99) < 4.0
    assert hour.percentile(after, after, 0.5) is None
    assert hour.percentile(before, before | {math.inf: 6.0}, 0.5) == pytest.approx(4.0)

"""Which tests the quick suite runs, and which failed tests are run once more (`harness/suite.py`, `scripts/tools.sh`)."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from harness import suite
from harness.wait import DEADLINE_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARKED = """
import pytest

@pytest.mark.quick("P1")
def test_quick(): pass

@pytest.mark.full
def test_full(): pass

def test_plain(): pass
"""
# Fails in its first run, and passes in the second.
ONCE = """
import pathlib

def test_once():
    mark = pathlib.Path(__file__).with_name("mark")
    is_second = mark.exists()
    mark.touch()
    assert is_second
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of tests that loads the plugin."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["harness.suite"]\n')
    (tmp_path / "test_it.py").write_text(MARKED)
    return tmp_path


def run(command, folder, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERALD_", "PYTEST_"))}
    variables = {**kept, "PYTHONPATH": str(ROOT / "tests/blackbox"), **variables}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=2 * DEADLINE_S)


def passed(folder, ini, **variables) -> list[str]:
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    done = run([sys.executable, "-m", "pytest", "-v", "--strict-markers"], folder, **variables)
    assert done.returncode == 0, done
    return sorted(line.split()[0].split("::")[1] for line in done.stdout.splitlines() if " PASSED" in line)


def test_a_run_by_hand_has_all_tests(folder):
    assert passed(folder, "quick_by_default = true") == ["test_full", "test_plain", "test_quick"]


def test_the_quick_suite_has_what_is_quick_in_its_folder(folder):
    left = folder / "left"
    quick = {"HERALD_SUITE": "quick", "HERALD_LEFT_OUT": str(left)}
    assert passed(folder, "quick_by_default = true", **quick) == ["test_plain", "test_quick"]
    assert passed(folder, "", **quick) == ["test_quick"]
    assert left.read_text() == f"1 of 3 tests of tests/{folder.name}\n2 of 3 tests of tests/{folder.name}\n"


def test_the_quick_suite_has_to_show_its_promises(folder):
    assert passed(folder, "quick_shows = P1", HERALD_SUITE="quick") == ["test_quick"]
    (folder / "pytest.ini").write_text("[pytest]\nquick_shows = P1 P2\n")
    done = run([sys.executable, "-m", "pytest"], folder, HERALD_SUITE="quick")
    assert done.returncode != 0 and "no test marked `quick` shows P2" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("failed", "again"), [(["a"], ["a"]), (["a", "b"], ["a", "b"]), (["a", "c"], None), (["c"], None), ([], None)]
)
def test_failed_tests_are_run_again_if_all_of_them_are_listed(tmp_path, monkeypatch, capsys, failed, again):
    listed, last = tmp_path / "unstable.csv", tmp_path / "lastfailed"
    listed.write_text("test,seen,cause\na,2026-11-24,\nb,2026-11-24,\n")
    last.write_text(json.dumps(dict.fromkeys(failed, True)))
    monkeypatch.setattr(suite, "UNSTABLE", listed)
    monkeypatch.setattr(sys, "argv", ["suite", str(last)])
    assert suite.main() == (0 if again else 1)
    assert capsys.readouterr().out.split() == (again or [])


def test_a_test_that_is_not_listed_is_not_run_again(folder):
    (folder / "test_it.py").write_text(ONCE)
    script = f'root={ROOT}; . "$root/scripts/tools.sh"; run_pytest'
    assert run(["sh", "-euc", script], folder).returncode == 1
    # It would pass now.
    assert run(["sh", "-euc", script], folder).returncode == 0

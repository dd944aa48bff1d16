"""Which tests the quick suite runs, and which failed tests are run once more: a plugin of pytest that the conftest.py of
each test folder loads.

Purpose: with `HERALD_SUITE=quick` in the environment a test runs if it is marked `quick`, or, in a folder whose pytest.ini
says `quick_by_default = true`, if it is not marked `full`. Without it everything runs. The number of tests that were left
out is appended to the file `HERALD_LEFT_OUT`, if there is one. `python -m harness.suite LASTFAILED` prints the failed tests of a
run if all of them are listed in `tests/unstable.csv`, and fails if one is not.
Invariant: a test is run a second time only if `tests/unstable.csv` lists it.
Absent on purpose: any rule on what is quick enough; `scripts/test` prints the time of each stage.
"""

import csv
import json
import os
import pathlib
import sys

import pytest

UNSTABLE = pathlib.Path(__file__).resolve().parents[2] / "unstable.csv"


def is_quick() -> bool:
    return os.environ.get("HERALD_SUITE") == "quick"


def pytest_addoption(parser):
    parser.addini("quick_by_default", "tests without a mark belong to the quick suite", type="bool", default=False)
    parser.addini("quick_shows", "what the marks `quick` of this folder have to name", type="args", default=[])


def pytest_configure(config):
    config.addinivalue_line("markers", "quick(shows, ...): belongs to the quick suite, and shows these promises")
    config.addinivalue_line("markers", "full: belongs to `scripts/test --all` only")


def pytest_collection_modifyitems(config, items):
    if not is_quick():
        return
    by_default = config.getini("quick_by_default")
    kept, left = [], []
    for item in items:
        is_kept = item.get_closest_marker("quick") or by_default and not item.get_closest_marker("full")
        (kept if is_kept else left).append(item)
    shown = {name for item in kept for mark in item.iter_markers("quick") for name in mark.args}
    missing = set(config.getini("quick_shows")) - shown
    if missing:
        raise pytest.UsageError(f"no test marked `quick` shows {', '.join(sorted(missing))}")
    items[:] = kept
    config.hook.pytest_deselected(items=left)
    note = os.environ.get("HERALD_LEFT_OUT")
    if note and left and os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        with open(note, "a") as file:
            file.write(f"{len(left)} of {len(left) + len(kept)} tests of tests/{config.rootpath.name}\n")


def listed() -> set[str]:
    """The tests of `tests/unstable.csv`."""
    with UNSTABLE.open() as file:
        return {row["test"] for row in csv.DictReader(file)}


def main() -> int:
    failed = set(json.loads(pathlib.Path(sys.argv[1]).read_text()))
    if not failed or failed - listed():
        return 1
    print("\n".join(sorted(failed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

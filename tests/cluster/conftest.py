"""Fixtures, and what stands in the report of a failed test: the logs of its processes."""

import itertools
import os
import pathlib
import sys
import uuid

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "blackbox")]

from harness.broker import Broker  # noqa: E402
from staged.cluster import Cluster  # noqa: E402
from staged.disks import keep_mounts_apart  # noqa: E402

pytest_plugins = ["harness.suite"]
keep_mounts_apart()
ROTATION = itertools.count()


@pytest.fixture
def name():
    """A prefix that no other test uses, fit for topics and for client identifiers."""
    return "t" + uuid.uuid4().hex[:8]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed and report.when in ("setup", "call"):
        for started in Broker.started:
            lines = "\n".join(started.log_text[-40:])
            report.sections.append((f"log of {' '.join(started.command)}", lines))


@pytest.fixture(autouse=True)
def _forget_processes():
    """A report shows the processes of its own test: those running, and those it started."""
    Broker.started = [b for b in Broker.started if b.process.poll() is None]
    yield


@pytest.fixture(scope="session")
def shared():
    """A cluster for the tests of this worker that do nothing to nodes. With HERALD_CLUSTER_SIZE=1 it is one
    node, to try what these tests say of it."""
    with Cluster(int(os.environ.get("HERALD_CLUSTER_SIZE", "3"))) as cluster:
        yield cluster


@pytest.fixture
def three(shared):
    """Three nodes, as far as there are so many; different ones from test to test."""
    start = next(ROTATION)
    return [shared.nodes[(start + n) % len(shared.nodes)] for n in range(3)]

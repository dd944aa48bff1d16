"""Fixtures: the broker that a worker's tests share, names of their own for topics and clients,
and what stands in the report: the broker's log of a failed test, the features each client used."""

import json
import os
import pathlib
import shutil
import sys
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
pytest_plugins = ["harness.suite"]

from harness.broker import Broker  # noqa: E402
from harness.postgres import Postgres, folder_of_programs  # noqa: E402

FEATURES_DIR = "HERALD_FEATURES_DIR"  # set by the controller, inherited by the workers


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        folder = pathlib.Path(__file__).parent / ".venv" / "features"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.environ[FEATURES_DIR] = str(folder)


@pytest.fixture(scope="session")
def broker():
    """One broker with default limits for all tests of this worker that change nothing in it.
    Topics and client identifiers must be a test's own: take them from `name`."""
    with Broker() as shared:
        yield shared


@pytest.fixture
def postgres_server():
    """A PostgreSQL server of the test's own, without tables."""
    if not folder_of_programs():
        pytest.skip("there is no initdb; apt-get install postgresql")
    with Postgres() as server:
        yield server


@pytest.fixture
def name():
    """A prefix that no other test uses, fit for topics and for client identifiers."""
    return "t" + uuid.uuid4().hex[:12]


@pytest.fixture(autouse=True)
def _forget_brokers():
    """A report shows the brokers of its own test: those running, and those it started."""
    Broker.started = [b for b in Broker.started if b.process.poll() is None]
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed and report.when in ("setup", "call"):
        for started in Broker.started:
            lines = "\n".join(started.log_text[-40:])
            report.sections.append((f"log of {' '.join(started.command)}", lines))
    mark = item.get_closest_marker("feature")
    if mark and report.when == "call":
        record(mark.args[0], {mark.args[1]: report.passed})


def record(client: str, features: dict):
    """Notes which features a client has been seen to use (name → worked)."""
    path = pathlib.Path(os.environ[FEATURES_DIR]) / f"{client}.{uuid.uuid4().hex}"
    path.write_text(json.dumps(features))


@pytest.fixture
def feature_record():
    return record


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, "workerinput"):
        return
    folder = pathlib.Path(os.environ[FEATURES_DIR])
    clients: dict = {}
    for part in folder.glob("*.*"):
        if part.suffix != ".json":
            features = clients.setdefault(part.name.split(".")[0], {})
            for feature, worked in json.loads(part.read_text()).items():
                # A feature of several tests works if it worked in all of them.
                features[feature] = features.get(feature, True) and worked
    for client, features in sorted(clients.items()):
        (folder / f"features-{client}.json").write_text(json.dumps(features, indent=1, sort_keys=True))
        good = sorted(f for f, worked in features.items() if worked)
        bad = sorted(f for f, worked in features.items() if not worked)
        terminalreporter.section(f"{client}: {len(good)} of {len(features)} features", sep="-")
        terminalreporter.write_line("; ".join(good))
        if bad:
            terminalreporter.write_line("FAILED: " + "; ".join(bad))
    if clients:
        terminalreporter.write_line(f"(written to {folder}/features-*.json)")

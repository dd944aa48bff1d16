"""Fixtures: the broker that a worker's attacks share."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "blackbox"), str(HERE.parent / "cluster")]

from harness.broker import Broker  # noqa: E402
from measure.runner import Shared  # noqa: E402

pytest_plugins = ["harness.suite"]


@pytest.fixture(scope="session")
def place():
    """Where an attack is played: a broker of its own if it needs one, or that of the worker."""
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture(autouse=True)
def _forget_brokers():
    yield
    Broker.started = [b for b in Broker.started if b.process.poll() is None]

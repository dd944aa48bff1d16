"""MQTT.js of npm, in all its versions of the protocol, on every feature it has.

The features stand in clients/mqttjs.mjs, which runs them all and reports each.
"""

import json
import pathlib
import subprocess

import pytest

from harness.listeners import Listeners
from harness.wait import DEADLINE_S

HERE = pathlib.Path(__file__).parent


def outcome(url, *arguments) -> dict:
    """What each feature led to: nothing, or an error."""
    done = subprocess.run(
        ["node", HERE / "clients" / "mqttjs.mjs", url, *arguments],
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
        cwd=HERE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(features: dict):
    failed = {name: error for name, error in features.items() if error is not None}
    assert len(features) > 40 and not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())


def test_every_feature(broker, feature_record):
    features = outcome(f"mqtt://127.0.0.1:{broker.port}")
    feature_record("MQTT-js", {name: error is None for name, error in features.items()})
    check(features)


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_every_feature_over_websocket(kind, tmp_path):
    with Listeners(tmp_path) as listeners:
        check(outcome(listeners.url(kind), listeners.ca.path))

"""The Go clients of Eclipse Paho: paho.mqtt.golang for 3.1 and 3.1.1, paho.golang for 5.0.

The features stand in clients/go, built by setup.sh; it runs them all and reports each.
"""

import json
import pathlib
import subprocess

from harness.wait import DEADLINE_S

CLIENT = pathlib.Path(__file__).parent / ".venv" / "goclient"


def test_every_feature(broker, feature_record):
    done = subprocess.run([CLIENT, str(broker.port)], capture_output=True, text=True, timeout=4 * DEADLINE_S)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    feature_record("paho-Go", {name: error is None for name, error in outcome.items()})
    failed = {name: error for name, error in outcome.items() if error is not None}
    assert len(outcome) > 40 and not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())

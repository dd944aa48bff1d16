"""MQTT.js of npm, in all its versions of the protocol, on every feature it has.

The features stand in clients/mqttjs.mjs, which runs them all and reports each.
"""

import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent


def test_every_feature(broker, feature_record):
    done = subprocess.run(
        ["node", HERE / "clients" / "mqttjs.mjs", str(broker.port)],
        capture_output=True,
        text=True,
        timeout=55,
        cwd=HERE,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    feature_record("MQTT-js", {name: error is None for name, error in outcome.items()})
    failed = {name: error for name, error in outcome.items() if error is not None}
    assert len(outcome) > 40 and not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())

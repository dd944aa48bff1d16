"""Entries of the log are compressed, and what comes out of them is what went in."""

import json
import random

import pytest
from staged.cluster import Cluster

from harness.raw import PUBACK

pytestmark = pytest.mark.quick

MESSAGES = 1_000
# Sent before their acknowledgements are waited for, so that entries have several.
TOGETHER = 100


def reading(number):
    values = random.Random(number)
    fields = ("temperature", "humidity", "pressure", "battery", "voltage", "current")
    measured = {field: round(values.uniform(0, 100), 2) for field in fields}
    return json.dumps({"device": f"sensor-{number:05}", "unit": "plant-7/line-3", "values": measured}).encode()


def written(cluster):
    return sum(node.broker.metric("heraldmq_store_log_written_bytes_total") for node in cluster.nodes)


def test_readings_take_less_of_three_logs_than_they_have_and_survive_a_crash(name):
    sent = [reading(number) for number in range(MESSAGES)]
    with Cluster(3) as cluster:
        away = {"clean": False, "props": {"session_expiry": 3600}}
        with cluster.nodes[0].client(f"{name}-s", **away) as subscriber:
            subscriber.subscribe(f"{name}/#", qos=1)
            subscriber.disconnect()
        before = written(cluster)
        with cluster.nodes[1].client(f"{name}-p") as publisher:
            for begin in range(0, MESSAGES, TOGETHER):
                part = sent[begin : begin + TOGETHER]
                for pid, payload in enumerate(part, 1):
                    publisher.publish(f"{name}/x", payload, qos=1, pid=pid)
                for _ in part:
                    publisher.expect(PUBACK)
        share = (written(cluster) - before) / (3 * sum(map(len, sent)))
        assert share < 0.9, f"the logs have {share:.2f} bytes for each of the payloads"
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start(ready=False)
        cluster.settled()
        with cluster.nodes[2].client(f"{name}-s", session_present=True, **away) as subscriber:
            for payload in sent:
                subscriber.message(payload=payload)

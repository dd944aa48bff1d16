"""The HTTP endpoints: metrics, health, recent drops."""

import json
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from harness.broker import Broker, run
from harness.wait import DEADLINE_S, until


def metrics(broker) -> dict:
    """Family name → family, in whichever of the two text formats of Prometheus the answer says it is."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=DEADLINE_S) as answer:
        kind, body = answer.headers["content-type"].split(";")[0], answer.read().decode()
    parse = {"application/openmetrics-text": openmetrics, "text/plain": prometheus}[kind]
    return {family.name: family for family in parse(body)}


def test_metrics_parse_and_are_documented(broker):
    found = metrics(broker)
    assert len(found) > 10
    for name, family in found.items():
        assert name.startswith(("heraldmq_", "process_")), name
        assert family.documentation.strip(), f"{name} has no help text"
        assert family.type != "unknown", name


def total(broker) -> float:
    """The sum of all counters of the broker."""
    return sum(
        s.value for f in metrics(broker).values() if f.type == "counter" for s in f.samples if s.name.endswith("_total")
    )


def test_counters_count(broker, name):
    before = total(broker)
    with broker.client(name) as client:
        client.subscribe(name)
        for _ in range(10):
            client.publish(name, b"x")
            client.message()
    # Ten in and ten out, in whatever families they are told apart.
    until(lambda: total(broker) - before >= 20, what="twenty counted events")


def test_open_connections(name):
    with Broker() as broker:

        def open_connections():
            return [
                s.value
                for f in metrics(broker).values()
                if f.type == "gauge" and "connections" in f.name
                for s in f.samples
            ]

        clients = [broker.client(f"{name}{n}") for n in range(7)]
        until(lambda: 7 in open_connections(), what="a gauge of connections that says 7")
        for client in clients:
            client.close()
        until(lambda: 0 in open_connections() and 7 not in open_connections(), what="the gauge back at 0")


def test_drops_are_in_the_metrics(name):
    # P7: ring, totals and metrics tell the same
    with Broker() as broker:
        with broker.client(name, props={"maximum_packet_size": 100}) as client:
            client.subscribe(name)
            client.published(name, b"x" * 200)
        reason = until(lambda: broker.drops(), what="the drop")[0]["reason"]
        assert broker.drop_totals()[reason] == 1
        assert any(s.value == 1 and reason in s.labels.values() for f in metrics(broker).values() for s in f.samples), (
            f"no metric with the label {reason}"
        )


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health(broker, path):
    assert broker.http(path)[0] == 200


def test_drops_are_json(broker):
    for path in ("/api/v1/drops", "/api/v1/drops?limit=1"):
        assert isinstance(broker.api(path)["items"], list)
    assert isinstance(broker.api("/api/v1/drops/totals"), dict)
    assert broker.http("/api/v1/drops?limit=many")[0] == 400


def test_unknown_path(broker):
    assert broker.http("/nothing/here")[0] == 404


def test_other_methods(broker):
    request = urllib.request.Request(f"http://127.0.0.1:{broker.http_port}/metrics", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=DEADLINE_S)
    assert error.value.code == 405


def test_http_can_be_switched_off(name):
    with Broker({"http.enable": False}) as broker:
        assert broker.find("listening", kind="http") == []
        with broker.client(name) as client:
            client.ping()


def ready(port, *options):
    """`heraldmq ready` of the HTTP port: its exit code and the lines that it prints."""
    got = run("ready", "--url", f"http://127.0.0.1:{port}", *options)
    lines = (got.stdout + got.stderr).splitlines()
    assert len(lines) == 1, got
    return got.returncode, lines[0]


def test_ready_is_a_command(broker):
    assert ready(broker.http_port) == (0, "ready")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_node_that_waits_for_its_cluster_is_not_ready():
    http, cluster = free_port(), free_port()
    # Nobody answers at the seed, and a node that may not found a cluster waits for one.
    sets = {"bootstrap": False, "http.port": http, "clusterConfig.host": "127.0.0.1", "clusterConfig.port": cluster}
    with Broker({**sets, "clusterConfig.seedEndpoints": "127.0.0.1:1"}, ready=False):
        code, line = until(lambda: (got := ready(http)) and "503" in got[1] and got, what="an answer")
        assert code == 1 and "not ready" in line


def test_a_node_that_has_ended_is_not_ready():
    with Broker() as broker:
        port = broker.http_port
    code, line = ready(port)
    assert code == 1 and str(port) in line

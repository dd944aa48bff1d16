"""Metrics and log lines pushed to a collector of OpenTelemetry: the real one, and servers that fail as collectors do.

`HERALD_OTELCOL` is the collector (`need_otelcol` of scripts/tools.sh). Absent on purpose: what vendors make of the data.
"""

import http.server
import json
import os
import pathlib
import ssl
import subprocess
import threading

import pytest

from harness.broker import BASE, Broker, run
from harness.pki import Authority
from harness.postgres import free_port
from harness.wait import until

OTELCOL = os.environ.get("HERALD_OTELCOL", "")
# At this QoS a client is told that the broker has it.
QOS = 1


def telemetry(url, **otlp) -> dict:
    return {
        **BASE,
        "telemetry": {
            "otlp": {"url": url, "intervalSeconds": 1, **otlp},
            "resource": {"deployment.environment.name": "test", "service.name": "broker-of-tests"},
        },
    }


def attributes(holder) -> dict:
    return {pair["key"]: next(iter(pair["value"].values())) for pair in holder.get("attributes", [])}


def warn(broker):
    """Has the broker write a line at WARN: a file that a reload cannot read."""
    broker.signal(1)


class Collector:
    """Context manager around the real collector, which writes what comes as lines of JSON."""

    def __init__(self, folder: pathlib.Path):
        self.port = free_port()
        self.metrics_file, self.logs_file = folder / "metrics.json", folder / "logs.json"
        pipeline = {name: {"receivers": ["otlp"], "exporters": [f"file/{name}"]} for name in ("metrics", "logs")}
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{self.port}"}}}},
            "exporters": {
                "file/metrics": {"path": str(self.metrics_file), "flush_interval": "100ms"},
                "file/logs": {"path": str(self.logs_file), "flush_interval": "100ms"},
            },
            "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": pipeline},
        }
        path = folder / "collector.yml"
        path.write_text(json.dumps(config))
        self.log = open(folder / "collector.log", "wb")
        self.process = subprocess.Popen([OTELCOL, "--config", str(path)], stdout=self.log, stderr=self.log)

    def read(self, path) -> list[dict]:
        assert self.process.poll() is None, pathlib.Path(self.log.name).read_text()
        if not path.exists():
            return []
        # The last line may be incomplete.
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def metrics(self) -> dict:
        """The metrics of the last push, by name, with the attributes of the resource as `None`."""
        pushes = self.read(self.metrics_file)
        if not pushes:
            return {}
        (resource,) = pushes[-1]["resourceMetrics"]
        (scope,) = resource["scopeMetrics"]
        return {None: attributes(resource["resource"]), **{metric["name"]: metric for metric in scope["metrics"]}}

    def records(self) -> list[dict]:
        pushes = self.read(self.logs_file)
        scopes = [s for push in pushes for r in push["resourceLogs"] for s in r["scopeLogs"]]
        return [{**record, "scope": scope["scope"]["name"]} for scope in scopes for record in scope["logRecords"]]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()


@pytest.fixture
def collector(tmp_path):
    if not OTELCOL:
        pytest.skip("HERALD_OTELCOL is not set; need_otelcol of scripts/tools.sh builds the collector")
    with Collector(tmp_path) as running:
        yield running


class Fake:
    """A server that answers each push as `answer` says, a status with headers, and keeps path and headers of all. With `hold` it
    answers nothing until the end."""

    def __init__(self, authority=None, port=0):
        self.answer: tuple[int, dict] = (200, {})
        self.body = b""
        self.requests: list[tuple[str, dict]] = []
        self.bodies: list[bytes] = []
        self.hold = threading.Event()
        self.hold.set()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                fake.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                fake.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                fake.hold.wait()
                status, headers = fake.answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(fake.body)))
                self.end_headers()
                self.wfile.write(fake.body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        if authority:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*authority.issue("collector").files)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if authority else 'http'}://127.0.0.1:{self.server.server_address[1]}/base/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()


def failures(broker, reason) -> float:
    return broker.metric("heraldmq_telemetry_failures_total", reason=reason)


def pushes(broker, signal="metrics") -> float:
    return broker.metric("heraldmq_telemetry_pushes_total", signal=signal)


def dropped(broker, signal) -> float:
    return broker.metric("heraldmq_telemetry_dropped_total", signal=signal)


def test_the_collector_gets_metrics_and_log_lines(collector, tmp_path, name):
    headers = tmp_path / "headers"
    headers.write_text("X-Scope-OrgID: 1\n")
    with Broker(config=telemetry(f"http://127.0.0.1:{collector.port}", headersFile=str(headers))) as broker:
        with broker.client(name) as client:
            client.published(name, b"x", qos=QOS)

            def published():
                points = collector.metrics().get("heraldmq.publishes_received", {}).get("sum", {}).get("dataPoints", [])
                return [p for p in points if attributes(p) == {"qos": "1"} and p.get("asDouble") == 1]

            (point,) = until(published, what="the publish in the metrics of the collector")
        assert 0 < int(point["startTimeUnixNano"]) < int(point["timeUnixNano"])
        metrics = collector.metrics()
        sums = metrics["heraldmq.publishes_received"]["sum"]
        assert sums["isMonotonic"] and sums["aggregationTemporality"] == 2
        assert metrics["heraldmq.publishes_received"]["unit"] == "{message}"
        assert "gauge" in metrics["heraldmq.connections_open"]
        assert metrics["process.memory.usage"]["unit"] == "By"
        (turns,) = metrics["heraldmq.loop_turn"]["histogram"]["dataPoints"]
        assert len(turns["bucketCounts"]) == len(turns["explicitBounds"]) + 1
        assert sum(map(int, turns["bucketCounts"])) == int(turns["count"]) > 0
        resource = metrics[None]
        assert resource["service.name"] == "broker-of-tests"
        assert resource["deployment.environment.name"] == "test"
        assert resource["service.version"] and resource["service.instance.id"] and resource["host.name"]
        assert pushes(broker) >= 1
        # The file is gone, which a reload says at WARN and ERROR.
        headers.unlink()
        warn(broker)

        def record():
            said = "not read again: the previous content stays in use"
            return [r for r in collector.records() if r["body"]["stringValue"] == said]

        (line,) = until(record, what="the line at WARN at the collector")
        assert (line["severityNumber"], line["severityText"]) == (13, "WARN")
        assert attributes(line)["file"] == str(headers)
        assert line["scope"].startswith("herald_broker")
        assert all(r["severityNumber"] >= 13 for r in collector.records())
        assert dropped(broker, "logs") == dropped(broker, "metrics") == 0


def test_a_collector_that_comes_late_gets_the_lines_of_before(tmp_path):
    headers = tmp_path / "headers"
    headers.write_text("X-Scope-OrgID: 1\n")
    port = free_port()
    config = telemetry(f"http://127.0.0.1:{port}", metrics=False, headersFile=str(headers))
    with Broker(config=config) as broker:
        # A line at WARN, for the file is gone.
        headers.unlink()
        warn(broker)
        until(lambda: failures(broker, "unreachable") >= 2, what="two pushes that fail")
        assert len(broker.find("pushes to the collector of OpenTelemetry fail", failure="unreachable")) == 1
        with Fake(port=port) as fake:
            until(lambda: pushes(broker, "logs") == 1, what="the push of the line")
            assert fake.paths() == ["/v1/logs"]
            # What the exporter itself has said is not pushed: nothing else comes with the line.
            assert b"not read again" in fake.bodies[0]
            assert b"pushes to the collector" not in fake.bodies[0]
        assert dropped(broker, "logs") == 0


def test_a_slow_collector_delays_nobody(name):
    with Fake() as fake:
        fake.hold.clear()
        with Broker(config=telemetry(fake.url)) as broker:
            until(lambda: fake.requests, what="a push")
            with broker.client(name) as client:
                for _ in range(100):
                    client.published(name, b"x", qos=QOS)
            # The collector has still not answered the first push.
            assert pushes(broker) == 0
            assert len(fake.requests) == 1
            until(lambda: failures(broker, "deadline") >= 1, what="the deadline of the push")
            assert dropped(broker, "metrics") > 0


def test_retry_after_is_kept(name):
    with Fake() as fake:
        fake.answer = (503, {"Retry-After": "3600"})
        with Broker(config=telemetry(fake.url)) as broker:
            until(lambda: failures(broker, "busy") == 1, what="the answer 503")
            fake.answer = (200, {})
            # Two intervals of `$SYS` pass, which are as long as that of the pushes.
            with broker.client(name) as client:
                client.subscribe("$SYS/broker/uptime")
                before = broker.metric("heraldmq_uptime_seconds")
                until(lambda: broker.metric("heraldmq_uptime_seconds") > before + 3, what="three intervals")
            assert len(fake.requests) == 1
            assert pushes(broker) == 0


def test_a_collector_that_recovers_is_told_of(tmp_path):
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer wrong\n")
    with Fake() as fake:
        fake.answer = (401, {})
        with Broker(config=telemetry(fake.url, headersFile=str(headers))) as broker:
            until(lambda: failures(broker, "refused") >= 2, what="two answers 401")
            assert dropped(broker, "metrics") > 0
            assert len(broker.find("pushes to the collector of OpenTelemetry fail", signal="metrics")) == 1
            assert not [line for line in broker.log_text if "wrong" in line]
            headers.write_text("Authorization: Bearer right\n")
            fake.answer = (200, {})
            broker.signal(1)
            until(
                lambda: broker.find("the collector of OpenTelemetry takes pushes again", signal="metrics"),
                what="the line that pushes are taken",
            )
            until(lambda: fake.requests[-1][1]["authorization"] == "Bearer right", what="the header of the new file")
            path, sent = fake.requests[-1]
            assert sent["content-type"] == "application/x-protobuf"
            assert sent["user-agent"].startswith("heraldmq/")
            assert set(fake.paths()) <= {"/base/v1/metrics", "/base/v1/logs"}


def test_a_partial_success_is_counted():
    with Fake() as fake:
        # ExportMetricsServiceResponse: partial_success (1) with rejected_data_points (1) of 7 and error_message (2) "no".
        fake.body = bytes([0x0A, 6, 0x08, 7, 0x12, 2]) + b"no"
        with Broker(config=telemetry(fake.url, logs=False)) as broker:
            until(lambda: failures(broker, "partial") >= 1, what="the partial success")
            assert dropped(broker, "metrics") % 7 == 0
            assert dropped(broker, "metrics") > 0
            assert broker.find("pushes to the collector of OpenTelemetry fail", failure="partial", reason="7 not taken: no")


def test_tls_needs_the_authority_of_the_collector(tmp_path):
    authority = Authority(tmp_path)
    other = Authority(tmp_path, "other")
    with Fake(authority) as fake:
        with Broker(config=telemetry(fake.url, caFile=str(authority.path))) as broker:
            until(lambda: pushes(broker) >= 1, what="a push over TLS")
        before = len(fake.requests)
        with Broker(config=telemetry(fake.url, caFile=str(other.path))) as broker:
            until(lambda: failures(broker, "unreachable") >= 1, what="the certificate that is not trusted")
            assert pushes(broker) == 0
        assert len(fake.requests) == before


def test_without_a_url_nothing_is_pushed():
    def threads(broker):
        names = [(p / "comm").read_text().strip() for p in pathlib.Path(f"/proc/{broker.pid}/task").iterdir()]
        # Threads for blocking calls come and go.
        return sorted(name for name in names if name != "tokio-rt-worker")

    with Fake() as fake, Broker() as without, Broker(config=telemetry(fake.url)) as pushing:
        until(lambda: pushes(pushing) >= 2, what="two pushes")
        assert pushes(without) == 0
        assert threads(without) == threads(pushing)


@pytest.mark.parametrize(
    "otlp, said",
    [
        ({"url": "collector:4318"}, "telemetry.otlp.url"),
        ({"url": "http://user:secret@127.0.0.1:1"}, "telemetry.otlp.url"),
        ({"headersFile": "no-such-file"}, "telemetry.otlp.headersFile no-such-file"),
        ({"url": "https://127.0.0.1:1", "caFile": "no-such-file"}, "telemetry.otlp.caFile no-such-file"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, otlp, said):
    path = tmp_path / "conf.yml"
    path.write_text(json.dumps({**BASE, "telemetry": {"otlp": {"url": "http://127.0.0.1:1", **otlp}}}))
    done = run("check-config", str(path), cwd=tmp_path)
    assert done.returncode == 2
    text = done.stdout + done.stderr
    assert said in (text if isinstance(text, str) else text.decode())

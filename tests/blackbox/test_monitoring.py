"""The dashboards for Grafana and the alerts for Prometheus, by Debian's prometheus and promtool beside a real broker.

Invariant: each query of each panel finds something, and nothing is asked for that the broker does not show. `prometheus` and
`promtool` are in the path (`need_prometheus` of scripts/tools.sh). Absent on purpose: Grafana itself.
"""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from harness.broker import BASE, Broker
from harness.postgres import free_port
from harness.wait import DEADLINE_S, until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GRAFANA = ROOT / "packaging/grafana"
PROMETHEUS = ROOT / "packaging/prometheus"
RULES = PROMETHEUS / "heraldmq-alerts.yml"
RULE_TESTS = PROMETHEUS / "heraldmq-alerts-test.yml"
PAGE = ROOT / "docs/operate/monitoring.md"

DASHBOARDS = {path.name: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
DOCUMENTED = set(re.findall(r"^\| `(heraldmq_\w+)`", (ROOT / "docs/reference/metrics.md").read_text(), re.M))

# More than any disk has.
ALL_OF_IT = 2**60
APPLICATION = {"name": "application", "match": {"clientId": ["*-app"]}, "limits": {"session": {"queueDiskFree": 0}}}
OUTLET = {"name": "lake", "source": {"filter": "nothing/#"}, "target": {"file": {"path": "lake.ndjson"}}}
CONFIG = {**BASE, "clientClasses": [APPLICATION], "outlets": [OUTLET]}
# What depends on the machine of the tests: it may have little space, and a slow disk.
OF_THE_MACHINE = {"HeraldMQDiskFreeLow", "HeraldMQLogSyncSlow"}


# A broker that has not answered until the next time counts as one that is down.
EVERY_S = 4


class Prometheus:
    """Context manager around a Prometheus that reads one broker each `EVERY_S`. It has the shipped configuration and rules, but
    for the target and the times."""

    def __init__(self, folder: pathlib.Path, target: str, *options: str):
        config = yaml.safe_load((PROMETHEUS / "heraldmq.yml").read_text())
        config["global"] = {name: f"{EVERY_S}s" for name in config["global"]}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        rules = yaml.safe_load(RULES.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (folder / RULES.name).write_text(yaml.safe_dump(rules))
        self.address = f"127.0.0.1:{free_port()}"
        self._log = folder / "log"
        with open(self._log, "w") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address={self.address}",
                    *options,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        try:
            until(self._is_ready, what=self._log.read_text)
            # Rates need two values.
            until(lambda: self.query("count_over_time(heraldmq_uptime_seconds[1m]) >= 3"), what=self._log.read_text)
        except BaseException:
            self.close()
            raise

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=DEADLINE_S) as answer:
                return answer.status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        """The data of an answer; fails with what Prometheus says about an error."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression) -> list[dict]:
        """The series that an expression has now."""
        return self.get("query", query=expression)["result"]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def program(name) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not in the path: need_prometheus of scripts/tools.sh puts it there"
    return found


def promtool(*args, **fields) -> str:
    done = subprocess.run(
        [program("promtool"), *map(str, args)], capture_output=True, text=True, timeout=DEADLINE_S, **fields
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def monitored(tmp_path_factory):
    """A broker with traffic, and a Prometheus beside it. Nothing more is queued for devices, as if the disk was too small."""
    with Broker(config=CONFIG) as broker:
        for client_id in ("monitored-dev", "monitored-app"):
            with broker.client(client_id, props={"session_expiry": 600}) as away:
                away.subscribe("monitored/#", qos=1)
        with broker.client("monitored-publisher") as publisher:
            publisher.published("monitored/retained", b"x", qos=1, retain=True)
            for _ in range(20):
                publisher.published("monitored/a", b"x", qos=1)
            broker.write_config(yaml.safe_dump({**CONFIG, "limits": {"session": {"queueDiskFree": ALL_OF_IT}}}))
            broker.signal(signal.SIGHUP)
            closed = lambda: broker.metric("heraldmq_class_closed", **{"class": "device"})
            until(closed, what="the class to be closed")
            # Both begin when the node has looked at its queues.
            shown = lambda metric: any(sample.name == metric for sample in samples(broker))
            until(lambda: shown("heraldmq_session_taken_per_second"), what="the metrics of a session")
            until(lambda: shown("heraldmq_class_oldest_age_seconds"), what="the age of a queue")
            runs = lambda: broker.metric("heraldmq_outlet_state", outlet="lake", state="running")
            until(runs, what="the outlet to run")
            with Prometheus(tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{broker.http_port}") as prometheus:
                yield broker, prometheus


def panels(dashboard) -> list[dict]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str, str]]:
    """Where it stands, legend and expression of each query of the dashboards."""
    return [
        (f"{name}: {panel['title']}", target["legendFormat"], target["expr"])
        for name, dashboard in DASHBOARDS.items()
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


def expressions() -> list[tuple[str, str]]:
    """Where it stands, and each expression of dashboards and alerts."""
    return [(where, text) for where, _, text in queries()] + [(name, rule["expr"]) for name, rule in ALERTS.items()]


def selectors(expression) -> list[str]:
    """The metrics of an expression, with what selects their series."""
    return re.findall(r"\b(?:heraldmq_\w+|process_\w+|up\b)(?:\{[^}]*\})?", expression)


def samples(broker) -> list:
    return [s for f in text_string_to_metric_families(broker.http("/metrics")[1]) for s in f.samples]


def test_the_dashboards_are_what_their_program_writes(tmp_path):
    subprocess.run([GRAFANA / "make", tmp_path], check=True, timeout=DEADLINE_S)
    assert sorted(path.name for path in tmp_path.iterdir()) == list(DASHBOARDS)
    for name in DASHBOARDS:
        assert (tmp_path / name).read_text() == (GRAFANA / name).read_text(), (
            f"packaging/grafana/make writes {name} anew"
        )


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_panel_says_what_it_shows(name):
    dashboard = DASHBOARDS[name]
    assert dashboard["uid"] == name.removesuffix(".json")
    for panel in panels(dashboard):
        assert panel["title"] and panel["description"].endswith("."), panel
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        # Only of the nodes that are chosen, and from the source that is chosen.
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert target["expr"].count('instance=~"$instance"') == len(selectors(target["expr"])), panel["title"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells) and all(x < 24 for x, _ in cells), "panels overlap"


def test_only_documented_metrics_are_asked_for():
    for where, expression in expressions():
        for selector in selectors(expression):
            name = selector.split("{")[0]
            family = re.sub("_(bucket|count|sum)$", "", name)
            assert name == "up" or DOCUMENTED & {name, family}, f"{where}: there is no metric {name}"


def test_every_query_of_the_dashboards_finds_something(monitored):
    _, prometheus = monitored
    assert len(queries()) > 150
    instances = set()
    for dashboard in DASHBOARDS.values():
        variable = next(v for v in dashboard["templating"]["list"] if v["name"] == "instance")
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
        instances.update(prometheus.get(f"label/{label}/values", **{"match[]": metric}))
    (instance,) = instances
    for where, legend, expression in queries():
        asked = expression.replace("$instance", instance).replace("$__rate_interval", "1m")
        assert "$" not in asked, f"{where}: {asked}"
        # As it stands it may be empty where it shows only what is above 0.
        prometheus.query(asked)
        found = prometheus.query(asked.removesuffix(" > 0"))
        assert found, f"{where}: {asked} finds nothing"
        for label in re.findall(r"{{(\w+)}}", legend):
            assert all(series["metric"].get(label) for series in found), f"{where}: no label {label} in {found[0]}"


def test_every_selector_finds_series_and_every_value_in_it_exists(monitored):
    broker, prometheus = monitored
    shown = samples(broker)
    for where, expression in expressions():
        prometheus.query(expression.replace("$instance", ".*").replace("$__rate_interval", "1m"))
        for selector in selectors(expression.replace("$instance", ".*")):
            assert prometheus.query(selector), f"{where}: {selector} finds nothing"
            name = selector.split("{")[0]
            for label, values in re.findall(r'(\w+)=~?"([^"]*)"', selector):
                known = {sample.labels.get(label) for sample in shown if sample.name == name}
                for value in values.split("|"):
                    assert label in ("instance", "job") or value in known, f"{where}: {label} is never {value}"


def test_an_alert_fires_and_no_other_does(monitored):
    _, prometheus = monitored

    def firing():
        alerts = prometheus.get("alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"}

    alert = until(lambda: firing().get("HeraldMQClassClosed"), what="the alert")
    assert alert["labels"]["class"] == "device" and alert["labels"]["severity"] == "critical"
    assert "the class device that are away" in alert["annotations"]["summary"]
    assert set(firing()) - OF_THE_MACHINE == {"HeraldMQClassClosed"}
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == set(ALERTS)
    assert all(rule["health"] in ("ok", "unknown") and not rule.get("lastError") for rule in rules), rules


def test_promtool_finds_nothing_wrong(monitored):
    broker, _ = monitored
    promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    promtool("check", "config", "--lint=all", "--lint-fatal", PROMETHEUS / "heraldmq.yml")
    assert promtool("check", "metrics", input=broker.http("/metrics")[1]) == ""


def test_every_alert_is_seen_to_fire_by_series_that_a_broker_has(monitored):
    broker, _ = monitored
    promtool("test", "rules", RULE_TESTS)
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    expected = {
        sample["labels"] for test in tests for check in test["promql_expr_test"] for sample in check["exp_samples"]
    }
    assert expected == {f'{{alertname="{name}"}}' for name in ALERTS}
    real = {(sample.name, frozenset(sample.labels.items())) for sample in samples(broker)} | {("up", frozenset())}
    for test in tests:
        for series in test["input_series"]:
            name, labels = re.fullmatch(r"(\w+)\{(.*)\}", series["series"]).groups()
            labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            assert (labels.pop("job"), labels.pop("instance")) == ("heraldmq", "a")
            assert (name, frozenset(labels.items())) in real, f"{test['name']}: a broker has no {series['series']}"


def test_a_prometheus_that_asks_for_native_histograms_gets_them(tmp_path):
    with Broker() as broker, broker.client("native-on") as subscriber, broker.client("native") as publisher:
        subscriber.subscribe("native/#", qos=1)
        for _ in range(40):
            publisher.published("native/a", qos=1)
        for _ in range(40):
            subscriber.message()
        target = f"127.0.0.1:{broker.http_port}"
        with Prometheus(tmp_path, target, "--enable-feature=native-histograms") as prometheus:
            measured = ("heraldmq_delivery_seconds", "heraldmq_publish_acknowledgement_seconds")

            def value(expression):
                (series,) = prometheus.query(expression)
                return float(series["value"][1])

            for metric in measured:
                until(lambda: prometheus.query(f"histogram_count({metric})"), what=f"{metric} as a native histogram")
                of_qos = f'{metric}{{qos="1"}}'
                assert value(f"histogram_count({of_qos})") == 40
                mean = value(f"histogram_sum({of_qos}) / histogram_count({of_qos})")
                shortest, longest = (value(f"histogram_quantile({share}, {of_qos})") for share in (0, 1))
                assert shortest <= mean <= longest < 30, (shortest, mean, longest)
            # What is no histogram has the names that the text format has.
            assert value("heraldmq_publishes_sent_total") == 40
            assert prometheus.query("heraldmq_build_info")


def test_the_process_has_the_metrics_that_any_process_has(monitored):
    broker, prometheus = monitored
    shown = {sample.name: sample.value for sample in samples(broker) if sample.name.startswith("process_")}
    assert shown["process_cpu_seconds_total"] >= 0 and shown["process_threads"] > 1
    assert 1e6 < shown["process_resident_memory_bytes"] <= shown["process_virtual_memory_bytes"]
    assert 10 < shown["process_open_fds"] < shown["process_max_fds"]
    assert abs(time.time() - shown["process_start_time_seconds"]) < 600
    assert prometheus.query("rate(process_cpu_seconds_total[1m])")


def anchors(page: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_alerts_say_what_to_do_and_where_to_read_on():
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert set(rule["annotations"]) == {"summary", "description", "docs"}, name
        page, _, anchor = rule["annotations"]["docs"].partition("#")
        assert not anchor or anchor in anchors(ROOT / page), f"{name}: {page} has no heading {anchor}"
        assert (ROOT / page).is_file(), f"{name}: {page}"
    told = re.findall(r"^\| `(HeraldMQ\w+)` \| (\w+) \|", PAGE.read_text(), re.M)
    assert told == [(name, rule["labels"]["severity"]) for name, rule in ALERTS.items()], "docs/operate/monitoring.md"

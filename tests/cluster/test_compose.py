"""packaging/compose: the file is right, and what it says works: it is played as it stands, without a daemon (staged/compose.py)."""

import json
import pathlib
import re
import shutil
import stat
import subprocess
import sys

import pytest
import yaml
from harness.broker import run
from harness.wait import DEADLINE_S, until
from staged.compose import USER, Played, substituted
from staged.network import Bridged, may_isolate

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging/compose"
FILE = FOLDER / "compose.yml"
TEXT = FILE.read_text()
SERVICES = yaml.safe_load(substituted(TEXT))["services"]
NODES = ["node1", "node2", "node3"]


def checked(path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def mounts(service) -> dict:
    """What a service has at which path."""
    split = [volume.split(":") for volume in SERVICES[service]["volumes"]]
    return {target: FOLDER / source for source, target, *_ in split if source.startswith(".")}


def test_the_file_is_one_of_compose(tmp_path):
    right = checked(FILE)
    assert right.returncode == 0, right
    wrong = tmp_path / "compose.yml"
    for planted in [("stop_grace_period", "stop_grace"), ("restart: unless-stopped", "restart: {}"), ("[CMD, ", "{CMD, ")]:
        wrong.write_text(TEXT.replace(*planted))
        assert wrong.read_text() != TEXT and checked(wrong).returncode == 1, planted


def test_ports_are_those_of_this_machine_only():
    published = [port for fields in SERVICES.values() for port in fields.get("ports", [])]
    assert len(published) == 8 and all(port.startswith("127.0.0.1:") for port in published), published
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_no_container_can_do_more_than_it_has_to():
    for name, fields in SERVICES.items():
        assert fields["read_only"] is True and fields["cap_drop"] == ["ALL"], name
        assert fields["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "user", "pid", "ipc"} & set(fields), name
    for name in NODES:
        assert SERVICES[name]["stop_grace_period"] == "90s"
        assert SERVICES[name]["healthcheck"]["test"] == ["CMD", "/usr/bin/heraldmq", "ready"]
    # Only one of them founds a cluster.
    assert [n for n in NODES if SERVICES[n]["environment"].get("HERALDMQ_BOOTSTRAP") == "true"] == ["node1"]


def test_the_image_is_of_this_version():
    version = next(line for line in (ROOT / "Cargo.toml").read_text().splitlines() if line.startswith("version = ")).split('"')[1]
    assert TEXT.count("heraldmq/heraldmq:") == 1 and f"heraldmq/heraldmq:${{HERALDMQ_VERSION:-{version}}}" in TEXT


def test_prometheus_reads_all_nodes_with_the_alerts(tmp_path):
    for target, source in mounts("prometheus").items():
        place = tmp_path / target[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
    program = shutil.which("promtool")
    assert program, "promtool is not in the path: need_prometheus of scripts/tools.sh puts it there"
    folder = tmp_path / "etc/prometheus"
    command = [program, "check", "config", "--lint=all", "--lint-fatal", folder / "prometheus.yml"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert said.returncode == 0 and "1 rule files found" in said.stdout and "23 rules found" in said.stdout, said
    job = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"][0]
    port = yaml.safe_load((FOLDER / "heraldmq.yml").read_text())["http"]["port"]
    assert job["job_name"] == "heraldmq" and job["static_configs"][0]["targets"] == [f"{node}:{port}" for node in NODES]


def test_grafana_finds_prometheus_and_the_dashboards():
    inside = mounts("grafana")
    provisioning = {p.split("/")[-2]: yaml.safe_load(s.read_text()) for p, s in inside.items() if "provisioning" in p}
    assert provisioning["datasources"]["datasources"][0]["url"] == "http://prometheus:9090"
    path = provisioning["dashboards"]["providers"][0]["options"]["path"]
    assert len(list(inside[path].glob("*.json"))) == 4
    home = pathlib.Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == path and (inside[path] / home.name).is_file()


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    if not may_isolate():
        pytest.skip("only root can give containers a root and a network of their own")
    with Played(FILE, tmp_path_factory.mktemp("compose"), Bridged()) as played:
        played.up()
        yield played


@pytest.fixture
def secrets(played):
    return played.folder / "volumes/secrets"


def options(played, node, password) -> list:
    return ["-h", played[node].place.address, "-p", 1883, "-u", "demo", "-P", password, "-q", 1]


def test_the_secrets_are_made_once_for_the_user_of_the_image(played, secrets):
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    assert set(before) == {"cluster-secret", "token", "demo.password", "passwords"}
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 and p.stat().st_uid == USER for p in secrets.iterdir())
    played["secrets"].start()
    assert played["secrets"].process.wait(DEADLINE_S) == 0, played["secrets"].log.read_text()
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    # No secret is in what `docker compose logs` shows.
    logs = "".join(c.log.read_text() for c in played.containers.values())
    assert "made /var/lib/heraldmq/token" in logs
    assert not any(before[name].strip() in logs for name in before if name != "passwords")


def test_the_three_nodes_are_one_cluster(played):
    def are_up():
        shown = played["node2"].run("/usr/bin/heraldmq", "cluster", "status")
        assert shown.returncode == 0, shown
        return all(re.search(rf" {node} +{node}:8899 +up +up ", shown.stdout) for node in NODES)

    # A node that is ready may still be told of to the others.
    until(are_up, what="three nodes that are up")
    assert "THE CLUSTER IS OPEN" not in played["node1"].log.read_text()


def test_a_node_writes_to_its_own_volume_only(played):
    for folder in ("/etc/heraldmq/secrets", "/tmp", "/etc"):
        written = played["node1"].run("/usr/bin/heraldmq", "secrets", folder, "--user", "mallory")
        assert written.returncode == 1 and "Read-only file system" in written.stderr, written


def test_who_has_no_password_is_refused(played, name):
    refused = run("pub", *options(played, "node1", "wrong"), "-t", name, "-m", "x")
    assert refused.returncode == 1 and "0x86" in refused.stderr, refused
    refused = run("pub", "-h", played["node1"].place.address, "-t", name, "-m", "x")
    assert refused.returncode == 1, refused


def test_a_durable_session_outlives_a_node(played, secrets, name):
    """The password is that of the volume; the node that the session was made at is killed before the message is published."""
    password = (secrets / "demo.password").read_text().strip()
    session = ["-i", name, "-t", f"{name}/#", "-c"]
    made = run("sub", *options(played, "node2", password), *session, "-E")
    assert made.returncode == 0, made
    sent = run("pub", *options(played, "node3", password), "-t", f"{name}/before", "-m", "1")
    assert sent.returncode == 0, sent
    played["node2"].kill()
    publish = lambda: run("pub", *options(played, "node1", password), "-t", f"{name}/after", "-m", "2").returncode == 0
    until(publish, what="a message that is kept by two nodes")
    got = run("sub", *options(played, "node3", password), *session, "-C", 2, "-v", timeout=2 * DEADLINE_S)
    assert got.returncode == 0 and set(got.stdout.splitlines()) >= {f"{name}/before 1", f"{name}/after 2"}, got
    # It comes back with its volume.
    played["node2"].start()
    until(played["node2"].is_healthy, 2 * DEADLINE_S, played["node2"].log.read_text)


def test_a_node_without_its_volume_joins_the_others(played):
    """It is the one with HERALDMQ_BOOTSTRAP."""

    def identifier(node):
        return json.loads(played[node].run("/usr/bin/heraldmq", "cluster", "status", "--json").stdout)["cluster"]

    before = identifier("node2")
    node = played["node1"]
    assert node.stop() == 0, node.log.read_text()[-2000:]
    for file in (played.folder / "volumes/node1").iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    node.start()
    until(node.is_healthy, 2 * DEADLINE_S, node.log.read_text)
    assert identifier("node1") == identifier("node2") == before


def test_a_node_ends_in_order_within_its_time(played):
    assert played["node3"].stop() == 0, played["node3"].log.read_text()[-2000:]
    played["node3"].start()
    until(played["node3"].is_healthy, 2 * DEADLINE_S, played["node3"].log.read_text)

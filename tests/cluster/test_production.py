"""docs/operate/production.md and conf/production: the example works as it stands. Only addresses and paths are replaced by
those of this machine; certificates, users and folders are made by the commands of the page."""

import json
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from harness.broker import BINARY, Broker, environment, run
from harness.wait import DEADLINE_S
from staged.cluster import CLUSTER, HTTP, Cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/operate/production.md"
EXAMPLE = ROOT / "conf/production"
SECTIONS = ("Certificates", "Secrets and users", "A folder for each node")
TLS = 8883


def commands() -> str:
    """The commands of the page that make files, in their order."""
    page = PAGE.read_text()
    parts = [re.search(rf"^## {section}$(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1] for section in SECTIONS]
    return "".join(block for part in parts for block in re.findall(r"^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL))


class Production:
    """The three nodes of the page, with the users that it makes."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.nodes = [cluster.add() for _ in range(3)]
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "heraldmq").symlink_to(BINARY)
        for path in folder.iterdir():
            if path.is_file():
                path.write_text(self.moved(path.read_text()))
        variables = environment()
        variables["PATH"] = f"{programs}:{variables['PATH']}"
        where = {"cwd": folder, "env": variables, "timeout": 60}
        done = subprocess.run(["sh", "-eu"], input=self.moved(commands()), text=True, capture_output=True, **where)
        assert done.returncode == 0, done

    def moved(self, text) -> str:
        """With the addresses of the nodes' places for those of the page."""
        for number, node in enumerate(self.nodes, 1):
            text = text.replace(f"192.168.0.1{number}", node.place.address)
        return text

    def config(self, number) -> str:
        """What is /etc/heraldmq/heraldmq.yml on a node; its files are in the folder that was made for it."""
        node = self.nodes[number - 1]
        text = (self.folder / f"node{number}/heraldmq.yml").read_text()
        text = text.replace("/etc/heraldmq", str(self.folder / f"node{number}"))
        # The tests are not on the machine of the node.
        moved = text.replace("host: 127.0.0.1", f"host: {node.place.address}")
        assert moved != text
        return moved

    def variables(self, number) -> dict:
        lines = (self.folder / f"node{number}/default").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    def start(self, number):
        node = self.nodes[number - 1]
        # Without a namespace a node cannot have all addresses of the machine.
        sets = {} if node.place.prefix else {"mqttServerConfig.tlsListener.host": node.place.address}
        node.broker = Broker(
            sets,
            config=self.config(number),
            env=self.variables(number),
            data_dir=self.folder / f"data{number}",
            host=node.place.address,
            prefix=node.place.prefix,
            # It waits for the others to be there.
            ready=False,
        )
        self.cluster.processes.append(node.broker)

    def password(self, user) -> str:
        return (self.folder / f"{user}.password").read_text().strip()

    def client(self, number, user, password=None) -> list:
        """Options of `heraldmq pub` and `sub` at a node."""
        place = self.nodes[number - 1].place
        tls = ["--cafile", self.folder / "server-ca.crt"]
        return ["-h", place.address, "-p", TLS, *tls, "-u", user, "-P", password or self.password(user)]

    def published(self, number, user, topic, **fields):
        return run("pub", *self.client(number, user, **fields), "-q", 1, "-t", topic, "-m", "21.5")

    def request(self, number, token=None) -> int:
        """The status of a request that adds a ban."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        url = f"http://{self.nodes[number - 1].place.address}:{HTTP}/api/v1/bans"
        body = json.dumps({"client": "nobody", "seconds": 1}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=DEADLINE_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def production(tmp_path_factory):
    with Cluster(0) as cluster:
        made = Production(cluster, tmp_path_factory.mktemp("production"))
        for number in (1, 2, 3):
            made.start(number)
        cluster.spread()
        yield made


def test_the_files_check(production):
    for number in (1, 2, 3):
        path = production.folder / f"node{number}.yml"
        path.write_text(production.config(number))
        checked = run("check-config", path)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "OK\n", ""), checked


def test_no_secret_is_for_others(production):
    secret = [path for number in (1, 2, 3) for path in (production.folder / f"node{number}").iterdir()]
    assert secret and not [path for path in secret if path.stat().st_mode & 0o077]


def test_a_message_reaches_a_user_at_another_node_over_tls(production, name):
    topic = f"sensors/sensor-1/{name}"
    options = [*production.client(3, "dashboard"), "-i", name, "-q", 1, "-t", "sensors/#"]
    # The session is there, so nothing is missed.
    assert run("sub", *options, "-c", "-E").returncode == 0
    sent = production.published(1, "sensor-1", topic)
    assert sent.returncode == 0, sent
    got = run("sub", *options, "-c", "-C", 1, "-v")
    assert (got.returncode, got.stdout) == (0, f"{topic} 21.5\n"), got


def test_a_wrong_password_is_refused(production):
    refused = production.published(1, "sensor-1", "sensors/sensor-1/x", password="wrong")
    assert refused.returncode == 1 and "Bad User Name or Password (0x86)" in refused.stderr, refused


def test_a_topic_without_a_right_is_refused(production, name):
    for number, user, topic in [(1, "sensor-1", "sensors/sensor-2/x"), (2, "dashboard", "sensors/sensor-1/x")]:
        refused = production.published(number, user, topic)
        assert refused.returncode == 1 and "Not authorized (0x87)" in refused.stderr, refused
    refused = run("sub", *production.client(2, "sensor-1"), "-t", "sensors/#", "-E")
    assert refused.returncode == 1 and "Not authorized (0x87)" in refused.stderr, refused


def test_clients_without_tls_find_no_listener(production):
    refused = run("pub", "-h", production.nodes[0].place.address, "-p", 1883, "-t", "a", "-m", "x")
    assert refused.returncode == 1, refused


def test_the_http_port_wants_the_token_for_changes(production):
    token = (production.folder / "token").read_text().strip()
    assert production.nodes[0].broker.http("/healthz")[0] == 200
    assert [production.request(1), production.request(1, "wrong"), production.request(1, token)] == [401, 401, 201]


def test_links_between_nodes_are_up_and_encrypted(production):
    place = production.nodes[0].place
    authority = production.folder / "cluster-ca.crt"
    command = ["openssl", "s_client", "-connect", f"{place.address}:{CLUSTER}", "-CAfile", authority]
    shown = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S)
    assert re.search(r"subject=CN ?= ?node1$", shown.stdout, re.MULTILINE), shown
    assert {node["reach"] for node in production.nodes[0].status()["nodes"]} == {"up"}

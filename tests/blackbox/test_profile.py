"""`heraldmq profile`: where the CPU time of a node goes, and what its threads do."""

import gzip
import json
import shutil
import socket
import subprocess

import pytest

from harness.bench import Started
from harness.broker import BINARY, Broker, run
from harness.wait import until
from test_access_users import Api


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker under load, and the files of its keys by role."""
    folder = tmp_path_factory.mktemp("keys")
    keys = {}
    for role in ("administrator", "operator", "viewer"):
        keys[role] = folder / role
        keys[role].write_text(run("api-key", "add", folder / "keys.json", "--name", role, "--role", role).stdout)
    with Broker({"http.keyFile": folder / "keys.json"}) as broker:
        login = ("--username", "ann", "--password", "correct horse")
        load = ("pub", "--target", f"127.0.0.1:{broker.port}", "--count", 10, "--topic", "load/%i", "--qos", 1, "--message-interval", 3, *login)
        # There is no audit before the first change.
        Api(broker, keys["administrator"]).command("user", "add", "ann", "--stdin", input="correct horse\n")
        with Started(*load):
            until(lambda: broker.metric("heraldmq_packets_received_total") > 1_000, what="the load")
            yield broker, keys


def command(broker, key, *args):
    port = ("--url", f"http://127.0.0.1:{broker.http_port}", "--key-file", key)
    return run("profile", args[0], *port, *args[1:])


def request(broker, key, seconds):
    """The socket of a request whose answer has not been read."""
    node = Api(broker, key).done("GET", "/cluster")["node"]
    link = socket.create_connection(("127.0.0.1", broker.http_port), timeout=30)
    path = f"/api/v1/nodes/{node}/profile/cpu?seconds={seconds}"
    link.sendall(
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key.read_text().strip()}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    return link


def test_a_profile_names_functions_of_the_broker(broker, tmp_path):
    broker, keys = broker
    done = command(broker, keys["administrator"], "cpu", "--seconds", 2, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "samples of" in done.stdout or "sample of" in done.stdout
    graph = (tmp_path / "out" / "cpu.svg").read_text()
    assert "loop-" in graph and "net::event_loop" in graph
    strings = gzip.decompress((tmp_path / "out" / "cpu.pb.gz").read_bytes())
    assert b"net::event_loop" in strings and b"nanoseconds" in strings
    if shutil.which("go"):
        top = subprocess.run(["go", "tool", "pprof", "-top", tmp_path / "out" / "cpu.pb.gz"], capture_output=True, text=True)
        assert top.returncode == 0 and "net::event_loop" in top.stdout, top.stderr
    api = Api(broker, keys["administrator"])
    until(lambda: api.ask("GET", "/audit?action=nodes.profile.cpu")[1].get("items"), what="the note in the audit")


def test_only_administrators_make_one_at_a_time_and_it_ends_with_the_connection(broker):
    broker, keys = broker
    for role in ("operator", "viewer"):
        refused = command(broker, keys[role], "cpu", "--seconds", 1)
        assert refused.returncode == 1 and "needs the role administrator" in refused.stderr
        assert command(broker, keys[role], "threads", "--seconds", 1).returncode == 1
    link = request(broker, keys["administrator"], 60)
    assert link.recv(12) == b"HTTP/1.1 200"
    second = command(broker, keys["administrator"], "cpu", "--seconds", 1)
    assert second.returncode == 1 and "another CPU profile of this process is under way" in second.stderr
    link.close()
    # Long before the minute is over.
    again = ("cpu", "--seconds", 1, "--json")
    until(lambda: command(broker, keys["administrator"], *again).returncode == 0, timeout=30, what="the next profile")


def test_the_asked_node_names_functions_if_that_is_asked_for(broker):
    broker, keys = broker
    api = Api(broker, keys["administrator"])
    path = f"/nodes/{api.done('GET', '/cluster')['node']}/profile/cpu?seconds=1"
    profile = api.done("POST", f"{path}&functions=true")
    assert len(profile["functions"]) == len(profile["places"]) > 0
    assert any("net::event_loop" in function for function in profile["functions"])
    assert api.done("POST", path)["functions"] is None
    status, problem = api.ask("POST", f"{path}&functions=perhaps")[:2]
    assert status == 400 and "functions" in str(problem)


def test_a_stripped_program_needs_its_symbols(broker, tmp_path):
    broker, keys = broker
    done = command(broker, keys["administrator"], "cpu", "--seconds", 1, "--json")
    assert done.returncode == 0, done.stderr
    raw = json.loads(done.stdout)
    assert raw["samples"] > 0 and raw["hertz"] == 199
    stripped = tmp_path / "heraldmq"
    subprocess.run(["objcopy", "--strip-all", BINARY, stripped], check=True)
    for module in raw["modules"]:
        if module["is_program"]:
            module["path"] = str(stripped)
    (tmp_path / "raw.json").write_text(json.dumps(raw))
    made = ("profile", "cpu", "--from", tmp_path / "raw.json", "--output", tmp_path / "out")
    without = run(*made, binary=stripped)
    assert without.returncode == 1 and "nothing here has the symbols of the build" in without.stderr, without.stderr
    subprocess.run(["objcopy", "--only-keep-debug", "--compress-debug-sections", BINARY, tmp_path / "heraldmq.debug"], check=True)
    beside = run(*made, binary=stripped)
    assert beside.returncode == 0, beside.stderr
    assert "net::event_loop" in (tmp_path / "out" / "cpu.svg").read_text()
    wrong = run(*made, "--symbols", "/bin/ls", binary=stripped)
    assert wrong.returncode == 2 and "the node runs the build" in wrong.stderr


def test_threads_are_listed_with_what_they_do(broker):
    broker, keys = broker
    done = command(broker, keys["administrator"], "threads", "--seconds", 1)
    assert done.returncode == 0, done.stderr
    (loop,) = [line for line in done.stdout.splitlines() if line.startswith("loop-0 ")]
    assert "%" in loop and "≤" in loop, done.stdout
    assert "http-answers" in done.stdout
    # Without a time, at once what they did in the last minute.
    done = command(broker, keys["administrator"], "threads")
    assert done.returncode == 0 and done.stdout.startswith("In "), done.stderr + done.stdout
    assert any(line.startswith("loop-0 ") and "≤" in line for line in done.stdout.splitlines()), done.stdout

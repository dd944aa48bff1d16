"""`heraldmq context`: brokers under names, and which broker a command asks with which key."""

import json
import stat
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from harness.broker import BINARY, Broker, environment, run
from harness.wait import DEADLINE_S

EMPTY = json.dumps({"items": [], "next": None, "partial": [], "scanned": 0}).encode()


class Recorder:
    """An HTTP port that answers each GET with an empty list, and keeps the keys that it was sent."""

    def __enter__(self):
        self.keys = keys = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                keys.append(self.headers["authorization"])
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(EMPTY)))
                self.end_headers()
                self.wfile.write(EMPTY)

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def person(tmp_path):
    """Runs the command with a folder of contexts of its own."""

    def command(*args, code=0, **env):
        done = run(*args, env={"XDG_CONFIG_HOME": str(tmp_path), **env}, cwd=tmp_path)
        assert done.returncode == code, done
        return done

    command.file = tmp_path / "heraldmq" / "contexts.json"
    return command


@pytest.fixture
def recorder():
    with Recorder() as recorder:
        yield recorder


@pytest.fixture
def other():
    with Recorder() as other:
        yield other


def test_a_context_reaches_a_broker_with_its_key(person, tmp_path):
    added = person("api-key", "add", "keys.json", "--name", "first-day", "--role", "operator")
    (tmp_path / "operator.key").write_text(added.stdout)
    with Broker({"http.keyFile": tmp_path / "keys.json"}) as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        person("context", "add", "plant", "--url", url, "--key-file", "operator.key", "--description", "the plant")
        person("context", "add", "lab", "--url", "http://127.0.0.1:1")
        assert stat.S_IMODE(person.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(person.file.parent.stat().st_mode) == 0o700
        assert added.stdout.strip() not in person.file.read_text()
        person("context", "use", "plant")
        assert len(person("nodes", "--no-header").stdout.splitlines()) == 1
        # The key is that of an operator: without it a ban is refused.
        person("ban", "add", "--client", "x")
        person("ban", "add", "--client", "y", "--url", url, code=1)
        failed = person("nodes", "--context", "lab", code=1)
        assert "http://127.0.0.1:1" in failed.stderr and "(context lab)" in failed.stderr


def test_contexts_are_listed_shown_and_removed(person):
    assert "no contexts" in person("context", "list").stderr
    assert "no context is in use" in person("context", "show", code=3).stderr
    person("context", "add", "b", "--url", "https://b.example:8091", "--ca-file", "ca.pem")
    person("context", "add", "a", "--url", "http://a.example", "--key-file", "a.key", "--description", "the first")
    assert "--replace" in person("context", "add", "a", "--url", "http://c.example", code=2).stderr
    person("context", "use", "b")
    assert "there are: a, b" in person("context", "use", "c", code=3).stderr
    lines = person("context", "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["a", "http://a.example"], ["*", "b"]]
    assert "the first" in lines[1]
    folder = person.file.parents[1]
    a = {"name": "a", "in_use": False, "url": "http://a.example", "key_file": str(folder / "a.key"), "ca_file": None, "description": "the first"}
    b = {"name": "b", "in_use": True, "url": "https://b.example:8091", "key_file": None, "ca_file": str(folder / "ca.pem"), "description": ""}
    assert json.loads(person("context", "list", "--json").stdout) == {"items": [a, b]}
    assert json.loads(person("context", "show", "--json").stdout) == b
    assert json.loads(person("context", "show", "--json", HERALDMQ_CONTEXT="a").stdout) == a
    assert str(folder / "ca.pem") in person("context", "show").stdout
    assert "HERALDMQ_URL is set" in person("context", "use", "a", HERALDMQ_URL="http://d").stderr
    person("context", "add", "a", "--url", "http://c.example", "--replace")
    assert "http://c.example" in person("context", "show").stdout
    person("context", "remove", "c", code=3)
    assert "no context is in use any more" in person("context", "remove", "a").stderr
    person("context", "show", code=3)
    assert not person("context", "remove", "b").stderr
    assert json.loads(person("context", "list", "--json").stdout) == {"items": []}


def test_contexts_added_at_the_same_time_are_all_kept(person, tmp_path):
    names = [f"c{number}" for number in range(16)]
    env = {**environment(), "XDG_CONFIG_HOME": str(tmp_path)}
    commands = [[BINARY, "context", "add", name, "--url", f"http://{name}.example"] for name in names]
    added = [subprocess.Popen(command, env=env) for command in commands]
    assert [process.wait(DEADLINE_S) for process in added] == [0] * len(names)
    listed = json.loads(person("context", "list", "--json").stdout)["items"]
    assert sorted(context["name"] for context in listed) == sorted(names)


def test_the_key_of_a_context_goes_to_its_url_only(person, recorder, other, tmp_path):
    (tmp_path / "a.key").write_text("of-a\n")
    (tmp_path / "env.key").write_text("of-env\n")
    person("context", "add", "a", "--url", recorder.url, "--key-file", "a.key")
    person("context", "add", "b", "--url", other.url)
    person("context", "use", "a")
    env = {"HERALDMQ_KEY_FILE": str(tmp_path / "env.key")}

    def asked(*args, **env) -> tuple[list, list]:
        """The keys that were sent to the URL of the context `a`, and to the other one."""
        recorder.keys.clear()
        other.keys.clear()
        person("nodes", *args, **env)
        return list(recorder.keys), list(other.keys)

    assert asked() == (["Bearer of-a"], [])
    assert asked("--url", other.url) == ([], [None])
    assert asked("--context", "b") == ([], [None])
    assert asked(HERALDMQ_CONTEXT="b") == ([], [None])
    assert asked(HERALDMQ_URL=other.url) == ([], [None])
    assert asked(**env) == (["Bearer of-a"], [])
    assert asked("--url", other.url, **env) == ([], ["Bearer of-env"])
    assert asked("--key-file", "env.key") == (["Bearer of-env"], [])


def test_what_is_nearer_to_the_command_comes_first(person, recorder, other):
    person("context", "add", "here", "--url", recorder.url)
    person("context", "add", "there", "--url", other.url)
    nowhere = "http://127.0.0.1:1"
    person("context", "add", "nowhere", "--url", nowhere)
    person("context", "use", "nowhere")
    for args, env in [
        (["--url", recorder.url], {"HERALDMQ_URL": nowhere, "HERALDMQ_CONTEXT": "nowhere"}),
        (["--context", "here"], {"HERALDMQ_URL": nowhere, "HERALDMQ_CONTEXT": "nowhere"}),
        ([], {"HERALDMQ_URL": recorder.url, "HERALDMQ_CONTEXT": "nowhere"}),
        ([], {"HERALDMQ_CONTEXT": "here"}),
    ]:
        recorder.keys.clear()
        person("nodes", *args, **env)
        assert len(recorder.keys) == 1, (args, env)
    assert nowhere in person("nodes", code=1).stderr
    assert not other.keys
    assert "cannot be used with" in person("nodes", "--url", other.url, "--context", "here", code=2).stderr
    assert "HERALDMQ_CONTEXT: there is no context `x`" in person("nodes", code=2, HERALDMQ_CONTEXT="x").stderr


def test_a_broken_file_is_named_with_its_line(person, recorder):
    person("context", "add", "a", "--url", recorder.url)
    whole = person.file.read_text()
    for text, line, why in [
        (whole.replace("{\n", "{\n\n", 1).replace('"contexts"', "contexts"), 4, "key must be a string"),
        (whole.replace(recorder.url, "127.0.0.1:8091"), 5, "is not a URL"),
        (whole.replace("null", '"b"'), 2, "there is no such context"),
        (whole.replace('"url"', '"uri"'), 5, "unknown field `uri`"),
    ]:
        assert text != whole
        person.file.write_text(text)
        for args in (["nodes"], ["context", "list"], ["context", "use", "a"]):
            said = person(*args, code=2).stderr
            assert f"{person.file}:{line}: " in said and why in said, said
        assert person.file.read_text() == text
        # What names a URL reads no contexts.
        person("nodes", "--url", recorder.url)


def test_the_broker_takes_no_context_for_an_option(person, recorder):
    with Broker(env={"HERALDMQ_CONTEXT": "plant"}) as broker:
        person("ready", "--url", f"http://127.0.0.1:{broker.http_port}")

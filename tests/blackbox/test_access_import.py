"""Users, groups and rules as a document: export and import, by HTTP and by command."""

import hashlib
import http.client
import json

import pytest
import yaml

from harness.broker import BASE, Broker, run
from harness.wait import DEADLINE_S
from test_access_users import Api

HEAD = {"format": "heraldmq/control/v1"}


def secret_of(text):
    """A random secret as documents have it."""
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture()
def api(tmp_path):
    keys, key = tmp_path / "keys.json", tmp_path / "key"
    key.write_text(run("api-key", "add", keys, "--name", "admin", "--role", "administrator").stdout)
    viewer = run("api-key", "add", keys, "--name", "viewer", "--role", "viewer").stdout.strip()
    config = {**BASE, "authentication": {"chain": [{"kind": "control"}]}, "authorization": {"noMatch": "deny"}}
    with Broker({"http.keyFile": keys, "abuse.failedLogins": 0}, config=config) as broker:
        api = Api(broker, key)
        api.viewer = viewer
        yield api


def export(api, key=None, query="?with_secrets=true"):
    """Status, text and ETag."""
    connection = http.client.HTTPConnection("127.0.0.1", api.broker.http_port, timeout=DEADLINE_S)
    connection.request("GET", f"/api/v1/control/export{query}", headers={"authorization": f"Bearer {key or api.key}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.getheader("etag")


def send(api, document, query="", key=None, kind="application/yaml"):
    """Status and JSON of an import."""
    connection = http.client.HTTPConnection("127.0.0.1", api.broker.http_port, timeout=DEADLINE_S)
    headers = {"authorization": f"Bearer {key or api.key}", "content-type": kind}
    body = document if isinstance(document, str) else json.dumps(document)
    connection.request("POST", f"/api/v1/control/import{query}", body, headers)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    return answer.status, said


def counts(said):
    return tuple(said[field] for field in ("created", "changed", "removed", "kept"))


def fill(api):
    """Some records of each kind."""
    api.command("user-group", "add", "ops", "--rule", "allow subscribe a/#", "--class", "c")
    api.command("user-group", "add", "all", "--include", "ops", "--priority", "7", "--note", 'yes: "no"')
    api.command("user", "add", "ann", "--stdin", "--group", "all", "--rule", "allow publish a", input="correct horse\n")
    api.command("user", "add", "007", "--generate", "--client-ids", "*", "--ends-at", "2999-01-01T00:00:00Z")
    api.command("user", "disable", "007")
    etag = api.ask("GET", "/rules")[2]
    api.done("PUT", "/rules", {"lines": ["# all", "", 'allow user "ann" receive a/#']}, if_match=etag)


def test_an_export_gives_the_same_records_again(api, name, tmp_path):
    fill(api)
    text = api.command("control", "export", "--with-secrets")
    assert export(api)[:2] == (200, text)
    (tmp_path / "backup.yml").write_text(text)
    assert sorted(yaml.safe_load(text)) == ["format", "groups", "rules", "users"]
    (tmp_path / "nothing.yml").write_text(json.dumps({**HEAD, "rules": []}))
    done = api.command("control", "import", tmp_path / "nothing.yml", "--replace", "--yes")
    assert "- user ann\n" in done and "created: 0, changed: 1, removed: 4, kept: 0" in done
    assert [api.done("GET", path)["items"] for path in ("/users", "/groups")] == [[], []]
    done = api.command("control", "import", tmp_path / "backup.yml")
    assert "+ group ops\n" in done and "created: 5, changed: 0, removed: 0, kept: 0" in done
    assert export(api)[1] == text
    with api.broker.client(name, username="ann", password=b"correct horse") as client:
        # Again: nothing is different, and nobody is disconnected.
        before = api.done("GET", "/control")["revision"]
        assert api.command("control", "import", tmp_path / "backup.yml", "--replace").startswith("created: 0")
        assert api.done("GET", "/control")["revision"] == before
        client.ping()


def test_a_document_without_secrets_keeps_them(api, name):
    fill(api)
    status, text, _ = export(api, api.viewer, "")
    document = yaml.safe_load(text)
    assert status == 200 and not any("hashes" in user or "secrets" in user for user in document["users"])
    document["users"][1]["note"] = "changed"
    status, said = send(api, document, "?mode=replace", kind="application/json")
    assert (status, counts(said)) == (200, (0, 1, 0, 4))
    assert api.done("GET", "/users/ann")["note"] == "changed"
    with api.broker.client(name, username="ann", password=b"correct horse"):
        pass
    status, problem = send(api, {**HEAD, "users": [{"name": "ben"}]})
    assert (status, problem["pointer"]) == (400, "/users/0/hashes") and '"ben"' in problem["detail"]


def test_a_dry_run_changes_nothing(api, tmp_path):
    fill(api)
    before = export(api)
    document = {**HEAD, "users": [{"name": "ann", "note": "x"}, {"name": "ben", "secrets": [secret_of("b")]}]}
    status, said = send(api, document, "?dry_run=true&mode=replace")
    assert (status, counts(said)) == (200, (1, 1, 3, 0))
    assert said["plan"] == [
        {"kind": "user", "name": "ann", "would": "replace"},
        {"kind": "user", "name": "ben", "would": "create"},
        {"kind": "user", "name": "007", "would": "remove"},
        {"kind": "group", "name": "all", "would": "remove"},
        {"kind": "group", "name": "ops", "would": "remove"},
    ]
    file = tmp_path / "d.json"
    file.write_text(json.dumps(document))
    assert api.command("control", "import", file, "--dry-run") == "+ user ben\n~ user ann\ncreated: 1, changed: 1, removed: 0, kept: 0\n"
    assert export(api) == before


def test_a_document_with_a_mistake_changes_nothing(api, tmp_path):
    fill(api)
    before = export(api)
    good = {"name": "ben", "secrets": [secret_of("b")]}
    hashed = "$7$101$c2FsdA=="
    for document, pointer in (
        ({"users": [good, {**good, "name": "eve", "rules": ["allow publish a", "permit"]}]}, "/users/1/rules"),
        ({"users": [good], "rules": ["nobody may"]}, "/rules"),
        ({"users": [good], "groups": [{"name": "g", "rules": ["x"]}]}, "/groups/0/rules"),
        ({"users": [good, {"name": "eve", "hashes": [hashed]}]}, "/users/1/hashes"),
        ({"users": [good, {**good, "groups": ["nobody"]}]}, "/users/1/groups"),
        ({"users": [good], "remove": {"groups": ["ops"]}}, "/remove/groups"),
    ):
        status, problem = send(api, {**HEAD, **document})
        assert (status, problem.get("pointer")) == (400, pointer), problem
        assert hashed not in json.dumps(problem)
        file = tmp_path / "d.json"
        file.write_text(json.dumps({**HEAD, **document}))
        api.command("control", "import", file, code=2)
    for text, line in (("format: heraldmq/control/v1\nusers:\n- name: a\n  hash: " + hashed, 4), ("format: heraldmq/control/v1\nrules: &a [b]\n", 2)):
        status, problem = send(api, text)
        assert (status, problem["line"]) == (400, line) and hashed not in json.dumps(problem)
    assert send(api, HEAD, kind="text/plain")[0] == 415
    for wrong in (hashed, [{"hash": hashed}]):
        status, problem = send(api, {**HEAD, "users": [{**good, "hashes": wrong}]}, kind="application/json")
        assert status == 400 and hashed not in json.dumps(problem)
    assert export(api) == before


def test_an_import_finds_the_revision_that_it_names(api):
    fill(api)
    revision = int(export(api)[2].strip('"r'))
    document = {**HEAD, "users": [{"name": "ann", "note": "x"}]}
    assert send(api, document, f"?revision={revision - 1}")[0] == 412
    assert send(api, document, f"?revision={revision + 1}")[0] == 503
    status, said = send(api, document, f"?revision={revision}")
    assert (status, said["revision"]) == (200, revision + 1)


def test_a_viewer_neither_imports_nor_sees_hashes(api):
    fill(api)
    assert send(api, HEAD, key=api.viewer)[0] == 403
    status, text, _ = export(api, api.viewer)
    assert status == 403 and "$" not in text


def test_removals_come_behind_those_who_name_them(api):
    fill(api)
    remove = {"users": ["ann", "nobody"], "groups": ["ops", "all"]}
    status, said = send(api, {**HEAD, "remove": remove})
    assert (status, counts(said)) == (200, (0, 0, 3, 0))
    # Groups that include each other.
    groups = [{"name": "a", "includes": ["b"]}, {"name": "b", "includes": ["a"]}]
    status, said = send(api, {**HEAD, "groups": groups})
    assert (status, counts(said)) == (200, (2, 0, 0, 0))
    assert api.done("GET", "/groups/a")["includes"] == ["b"]
    status, said = send(api, HEAD, "?mode=replace")
    assert (status, counts(said)) == (200, (0, 0, 3, 0))
    assert api.done("GET", "/rules")["lines"] != [], "a document that says nothing of the rules leaves them"


def test_three_thousand_users_come_in_parts(api, name, tmp_path):
    users = [{"name": f"u{number}", "secrets": [secret_of(str(number))], "groups": ["g"]} for number in range(3_000)]
    document = {**HEAD, "users": users, "groups": [{"name": "g", "rules": ["allow publish a"]}]}
    status, problem = send(api, document)
    assert status == 409 and "heraldmq control import" in problem["detail"]
    file = tmp_path / "d.json"
    file.write_text(json.dumps(document))
    done = api.command("control", "import", file)
    assert "+ and others: 2951" in done and "created: 3001, changed: 0, removed: 0, kept: 0" in done
    status = api.done("GET", "/control")
    assert (status["users"], status["revision"]) == (3_000, 4)
    assert len(api.command("control", "import", file, "--verbose", "--replace").splitlines()) == 1
    with api.broker.client(name, username="u2999", password=b"2999"):
        pass

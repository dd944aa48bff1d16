"""Users, groups, rules, people and keys as a document: export and import, by HTTP and by command; and what other brokers keep."""

import csv
import hashlib
import http.client
import json
import pathlib

import pytest
import yaml

from harness import raw
from harness.broker import BASE, Broker, run
from harness.people import Browser
from harness.wait import DEADLINE_S
from test_access_users import BAD_CREDENTIALS, Api, granted, refused

FILES = pathlib.Path(__file__).resolve().parents[2] / "crates/control-document/tests/files"
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
    assert sorted(yaml.safe_load(text)) == ["format", "groups", "keys", "people", "rules", "users"]
    (tmp_path / "nothing.yml").write_text(json.dumps({**HEAD, "rules": [], "users": [], "groups": []}))
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
    assert sorted(document) == ["format", "groups", "rules", "users"], "people and keys are for administrators"
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
    document = {**HEAD, "groups": [], "users": [{"name": "ann", "note": "x"}, {"name": "ben", "secrets": [secret_of("b")]}]}
    document["users"][0]["groups"] = []
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
    assert (status, counts(said)) == (200, (0, 0, 0, 0)), "sections that are missing leave their records"
    status, said = send(api, {**HEAD, "users": [], "groups": []}, "?mode=replace")
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


def import_of(broker, key_file, *args):
    """Output and errors of `control import`, which must succeed."""
    env = {"HERALDMQ_URL": f"http://127.0.0.1:{broker.http_port}", "HERALDMQ_KEY_FILE": str(key_file)}
    done = run("control", "import", *args, env=env)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout, done.stderr


@pytest.fixture()
def open_api(tmp_path):
    """A broker that lets in clients without a user."""
    keys, key = tmp_path / "keys.json", tmp_path / "key"
    key.write_text(run("api-key", "add", keys, "--name", "admin", "--role", "administrator").stdout)
    config = {**BASE, "authentication": {"chain": [{"kind": "control"}]}, "authorization": {"noMatch": "deny"}, "allowAnonymous": True}
    with Broker({"http.keyFile": keys, "abuse.failedLogins": 0}, config=config) as broker:
        yield Api(broker, key)


def may(api, judged, passwords):
    """That real clients may what the other broker let them do: what they publish and subscribe to."""
    seen = {}
    with (FILES / judged).open() as file:
        for row in csv.DictReader(file):
            if row["user"] and row["user"] not in passwords:
                continue
            if row["action"] in ("publish", "subscribe"):
                seen.setdefault((row["user"], row["client"]), []).append(row)
    assert {user for user, _ in seen} == {"", *passwords}
    for (user, client_id), rows in seen.items():
        fields = {"username": user, "password": passwords[user].encode()} if user else {}
        with api.broker.client(client_id, **fields) as client:
            for row in rows:
                if row["action"] == "publish":
                    pid = client.publish(row["topic"], b"x", qos=1)
                    reason = client.answer(raw.PUBACK, pid).reason
                else:
                    reason = granted(client, row["topic"])
                assert (reason < 0x80) == (row["judged"] == "allow"), (row, reason)


def test_what_mosquitto_let_its_users_do_they_may_after_the_import(open_api):
    api = open_api
    files = FILES / "mosquitto-passwd-2.0", FILES / "mosquitto-acl"
    said, left_out = import_of(api.broker, api.key_file, "--dry-run", "--from", "mosquitto", *files)
    assert "+ user ann\n" in said and left_out == "" and api.done("GET", "/users")["items"] == []
    assert import_of(api.broker, api.key_file, "--from", "mosquitto", *files)[0] == said
    may(api, "mosquitto-acl-judged.csv", {"ann": "secret", "bob": "hunter2", "carol": "pässword"})
    refused(api, BAD_CREDENTIALS, username="ann", password=b"hunter2")


def test_what_dynamic_security_let_its_clients_do_they_may_after_the_import(open_api):
    api = open_api
    _, left_out = import_of(api.broker, api.key_file, "--from", "dynsec", FILES / "dynamic-security.json")
    assert "left out: " in left_out and "$CONTROL/dynamic-security/#" in left_out
    may(api, "dynamic-security-judged.csv", {"ann": "annpw2", "press-17": "secret"})
    with api.broker.client("x", username="admin", password=b"adminpw"):
        pass


def test_users_and_rules_of_emqx_are_imported(api, name):
    said, left_out = import_of(
        api.broker, api.key_file, "--from", "emqx", FILES / "emqx-users-pbkdf2-sha256.csv", "--hash", "pbkdf2-sha256:4096", FILES / "emqx-acl.conf"
    )
    assert "+ user ann\n" in said and "+ rules\n" in said
    assert "heraldmq: left out: acl, line " in left_out
    with api.broker.client(name, username="ann", password=b"secret") as client:
        assert granted(client, "#") == 0, "ipaddr 127.0.0.1"
        client.published("plant/7", b"x")
    # The rules only: nothing is said of users.
    import_of(api.broker, api.key_file, "--replace", "--from", "emqx", FILES / "emqx-acl.conf")
    assert [user["name"] for user in api.done("GET", "/users")["items"]] == ["ann"]
    import_of(api.broker, api.key_file, "--from", "emqx", FILES / "emqx-users-bcrypt.json", "--hash", "bcrypt")
    with api.broker.client(name, username="ann", password=b"secret"):
        pass


def test_weak_hashes_need_a_word(api, name):
    suffix = "--from", "emqx", FILES / "emqx-users-sha256-suffix.json", "--hash", "sha256-suffix"
    api.command("control", "import", *suffix, code=2)
    old = "--from", "mosquitto", FILES / "mosquitto-passwd-1.6"
    _, left_out = import_of(api.broker, api.key_file, *old)
    assert "left out: passwords, line 1: " in left_out and api.done("GET", "/users")["items"] == []
    import_of(api.broker, api.key_file, "--accept-weak-hashes", *old)
    with api.broker.client(name, username="ann", password=b"secret"):
        pass
    import_of(api.broker, api.key_file, "--accept-weak-hashes", *suffix)
    with api.broker.client(name, username="bob", password=b"hunter2"):
        pass
    # A backup has them, and so does the API: both say so.
    text = export(api)[1]
    document = yaml.safe_load(text)
    document["users"] = [{**user, "name": user["name"] + "2"} for user in document["users"]]
    assert send(api, document)[0] == 400
    assert send(api, document, "?accept_weak_hashes=true")[0] == 200
    person = {"name": "eve", "role": "viewer", "hash": document["users"][0]["hashes"][0]}
    status, problem = send(api, {**HEAD, "people": [person]}, "?accept_weak_hashes=true")
    assert (status, problem["pointer"]) == (400, "/people/0/hash") and person["hash"] not in json.dumps(problem)
    # An import goes on where the store has weak hashes.
    assert api.command("control", "import", FILES / "mosquitto-passwd-2.0", "--from", "mosquitto").endswith("kept: 0\n")


def test_files_that_do_not_fit_are_named(api):
    passwords, acl = FILES / "mosquitto-passwd-2.0", FILES / "mosquitto-acl"
    users = FILES / "emqx-users-bcrypt.json"
    for args in (
        ("--from", "mosquitto", acl),
        ("--from", "dynsec", passwords),
        ("--from", "dynsec", passwords, acl),
        ("--from", "emqx", users),
        ("--from", "emqx", users, users, "--hash", "bcrypt"),
        ("--from", "emqx", acl, "--hash", "bcrypt"),
        ("--from", "emqx", users, "--hash", "plain"),
        ("--from", "mosquitto", passwords, "--hash", "bcrypt"),
        ("--hash", "bcrypt", passwords),
        (passwords,),
        (passwords, acl),
    ):
        api.command("control", "import", *args, code=2)
    assert api.done("GET", "/control")["revision"] == 0


def of_store(api, tmp_path):
    """An administrator of the store, and a key of the store in a file."""
    api.done("POST", "/people", {"name": "anna", "password": "password of anna", "role": "administrator", "must_change": False, "note": "n"})
    api.done("POST", "/people", {"name": "ben", "password": "password of ben", "audits": True})
    key = tmp_path / "ci.key"
    key.write_text(api.command("key", "add", "--name", "ci", "--role", "administrator"))
    return key


def test_people_and_keys_come_back_from_an_export(api, tmp_path):
    key = of_store(api, tmp_path)
    backup = tmp_path / "backup.yml"
    backup.write_text(api.command("control", "export", "--with-secrets"))
    assert export(api, query="")[1].count("$argon2id$") == 0
    config = {**BASE, "authentication": {"chain": [{"kind": "control"}]}}
    with Broker({"http.keyFile": tmp_path / "keys.json"}, config=config) as other:
        said, _ = import_of(other, api.key_file, backup, "--replace")
        assert "+ person anna\n" in said and "+ key " in said and "created: 3," in said
        anna, ben = Browser("127.0.0.1", other.http_port), Browser("127.0.0.1", other.http_port)
        status, me = anna.login("anna")
        assert (status, me["role"]) == (200, "administrator")
        assert ben.login("ben")[0] == 200
        other_api = Api(other, key)
        assert [row["name"] for row in other_api.done("GET", "/people")["items"]] == ["anna", "ben"]
        assert [row["name"] for row in other_api.done("GET", "/keys")["items"] if row["source"] == "store"] == ["ci"]
        assert export(other_api)[1] == backup.read_text()
        before = other_api.done("GET", "/control")["revision"]
        assert import_of(other, key, backup, "--replace")[0].startswith("created: 0, changed: 0, removed: 0")
        assert other_api.done("GET", "/control")["revision"] == before
        # A document that says nothing of them leaves them.
        import_of(other, key, write(tmp_path, {**HEAD, "users": [], "rules": ["deny all subscribe #"]}), "--replace", "--yes")
        assert len(other_api.done("GET", "/people")["items"]) == 2


def write(tmp_path, document):
    file = tmp_path / "document.yml"
    file.write_text(json.dumps(document))
    return file


def test_administrators_take_turns_and_the_last_one_stays(api, tmp_path):
    of_store(api, tmp_path)
    document = yaml.safe_load(export(api)[1])
    hashes = {person["name"]: person["hash"] for person in document["people"]}
    turn = {**HEAD, "people": [{"name": "carl", "role": "administrator", "hash": hashes["anna"]}, {"name": "ben", "role": "viewer"}], "keys": []}
    status, said = send(api, turn, "?mode=replace&dry_run=true")
    assert status == 200
    assert [(row["kind"], row["would"]) for row in said["plan"]] == [("person", "create"), ("person", "replace"), ("person", "remove"), ("key", "remove")]
    assert send(api, turn, "?mode=replace")[0] == 200
    status, problem = send(api, {**HEAD, "people": []}, "?mode=replace")
    assert (status, problem["reason"]) == (409, "last_administrator")
    status, _ = send(api, {**HEAD, "remove": {"people": ["ben"]}})
    assert status == 200 and [row["name"] for row in api.done("GET", "/people")["items"]] == ["carl"]


@pytest.mark.full
def test_a_hundred_thousand_users_of_emqx_are_imported(api, name, tmp_path):
    salt = "de1024f462fb83910fd13151bd4bd235"
    file = tmp_path / "users.csv"
    rows = [f"u{number},{hashlib.sha256(f'{number}{salt}'.encode()).hexdigest()},{salt},false\n" for number in range(100_000)]
    file.write_text("user_id,password_hash,salt,is_superuser\n" + "".join(rows))
    args = ("control", "import", "--accept-weak-hashes", "--from", "emqx", file, "--hash", "sha256-suffix")
    assert "created: 100000, changed: 0" in api.command(*args, timeout=10 * DEADLINE_S)
    assert "kept: 100000" in api.command(*args, timeout=10 * DEADLINE_S)
    with api.broker.client(name, username="u99999", password=b"99999"):
        pass

"""Users, groups and rules of the store: by HTTP and by command, and what they do to clients."""

import http.client
import json

import pytest

from harness import raw
from harness.broker import BASE, Broker, run
from harness.wait import DEADLINE_S, until

BAD_CREDENTIALS, NOT_AUTHORIZED = 0x86, 0x87


class Api:
    """Requests of an administrator."""

    def __init__(self, broker, key_file):
        self.broker, self.key_file = broker, key_file
        self.key = key_file.read_text().strip()

    def ask(self, method, path, body=None, **headers):
        """Status, JSON and ETag."""
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.http_port, timeout=DEADLINE_S)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers |= {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None, answer.getheader("etag")

    def done(self, method, path, body=None, **headers):
        status, answer, _ = self.ask(method, path, body, **headers)
        assert status in (200, 201, 204), answer
        return answer

    def command(self, *args, code=0, **fields):
        """Standard output of a command."""
        env = {"HERALDMQ_URL": f"http://127.0.0.1:{self.broker.http_port}", "HERALDMQ_KEY_FILE": str(self.key_file)}
        done = run(*args, env=env, **fields)
        assert done.returncode == code, (args, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture()
def api(tmp_path):
    keys, key = tmp_path / "keys.json", tmp_path / "key"
    key.write_text(run("api-key", "add", keys, "--name", "admin", "--role", "administrator").stdout)
    config = {**BASE, "authentication": {"chain": [{"kind": "control"}]}, "authorization": {"noMatch": "deny"}}
    with Broker({"http.keyFile": keys, "abuse.failedLogins": 0}, config=config) as broker:
        yield Api(broker, key)


def refused(api, *reasons, client_id="", **fields):
    with api.broker.raw() as client:
        client.send(raw.connect(client_id, **fields))
        client.expect_refused(*reasons)


def granted(client, topic):
    """The reason code of a SUBACK."""
    pid = client.next_pid()
    client.send(raw.subscribe(pid, [(topic, 0)]))
    return client.answer(raw.SUBACK, pid).reasons[0]


def test_a_user_that_is_added_by_http_logs_in_until_it_is_removed(api, name):
    assert api.done("GET", "/users")["items"] == []
    assert api.done("GET", "/control")["standing"] == "unused"
    refused(api, BAD_CREDENTIALS, username="ann", password=b"correct horse")
    made = api.done("POST", "/users", {"name": "ann", "password": "correct horse"})
    assert made["proofs"] == ["password"] and "secret" not in made
    # In force at this node when it is answered.
    client = api.broker.client(name, username="ann", password=b"correct horse")
    refused(api, BAD_CREDENTIALS, username="ann", password=b"battery staple")
    assert api.ask("POST", "/users", {"name": "ann", "password": "x"})[0] == 409
    api.done("DELETE", "/users/ann")
    client.expect_disconnected(NOT_AUTHORIZED)
    refused(api, BAD_CREDENTIALS, username="ann", password=b"correct horse")
    status = api.done("GET", "/control")
    assert (status["standing"], status["users"], status["revision"]) == ("confirmed", 0, 2)
    assert not any("correct horse" in line for line in api.broker.log_text)


def test_another_password_and_disabling_end_connections(api, name):
    api.command("user", "add", "ann", "--stdin", "--note", "n", input="first\n")
    client = api.broker.client(name, username="ann", password=b"first")
    api.command("user", "passwd", "ann", "--stdin", input="second\n")
    client.expect_disconnected(NOT_AUTHORIZED)
    refused(api, BAD_CREDENTIALS, username="ann", password=b"first")
    client = api.broker.client(name, username="ann", password=b"second")
    api.command("user", "disable", "ann")
    client.expect_disconnected(NOT_AUTHORIZED)
    refused(api, BAD_CREDENTIALS, NOT_AUTHORIZED, username="ann", password=b"second")
    api.command("user", "enable", "ann")
    shown = json.loads(api.command("user", "show", "ann", "--json"))
    assert (shown["enabled"], shown["note"]) == (True, "n")
    with api.broker.client(name, username="ann", password=b"second"):
        pass
    api.command("user", "show", "nobody", code=3)


def test_a_generated_secret_is_shown_once(api, name):
    secret = api.command("user", "add", "meter", "--generate", "--client-ids", "meter-*").strip()
    assert len(secret) == 43
    with api.broker.client("meter-1", username="meter", password=secret.encode()):
        pass
    refused(api, BAD_CREDENTIALS, NOT_AUTHORIZED, client_id=name, username="meter", password=secret.encode())
    for path in ("/users", "/users/meter", "/control"):
        assert secret not in json.dumps(api.done("GET", path))
    again = api.done("POST", "/users/meter/password", {"generate": True})["secret"]
    assert again != secret
    refused(api, BAD_CREDENTIALS, client_id="meter-1", username="meter", password=secret.encode())
    with api.broker.client("meter-1", username="meter", password=again.encode()):
        pass
    assert not any(text in line for line in api.broker.log_text for text in (secret, again))


def test_rules_of_a_user_come_before_those_of_its_groups_and_of_everybody(api, name):
    status, problem, _ = api.ask("POST", "/users", {"name": "ann", "password": "p", "groups": ["g"]})
    assert (status, problem["group"]) == (409, "g")
    api.command("user-group", "add", "g", "--rule", "allow subscribe g/#", "--rule", "deny subscribe all/#")
    api.command("user", "add", "ann", "--stdin", "--group", "g", "--rule", "deny subscribe g/no/#", input="p\n")
    etag = api.ask("GET", "/rules")[2]
    api.done("PUT", "/rules", {"lines": ['allow user "ann" subscribe all/#', "allow all subscribe rest/#"]}, if_match=etag)
    with api.broker.client(name, username="ann", password=b"p") as client:
        for topic, reason in (("g/a", 0), ("g/no/a", NOT_AUTHORIZED), ("all/a", NOT_AUTHORIZED), ("rest/a", 0), ("x", NOT_AUTHORIZED)):
            assert granted(client, topic) == reason, topic
        # They change for clients that are connected.
        api.command("user-group", "set", "g", "--rule", "allow subscribe x")
        until(lambda: granted(client, "x") == 0, what="the new rule")
        assert granted(client, "g/a") == NOT_AUTHORIZED
    status, problem, _ = api.ask("DELETE", "/groups/g")
    assert (status, problem["uses"]) == (409, 1)
    api.command("user", "set", "ann", "--no-groups")
    api.command("user-group", "remove", "g")
    assert json.loads(api.command("user-group", "list", "--json"))["items"] == []


def test_rules_are_set_from_a_file_with_their_mistakes(api, tmp_path):
    file = tmp_path / "rules"
    file.write_text("allow all publish a\npermit all\n")
    api.command("rules", "set", file, code=2)
    status, problem, _ = api.ask("PUT", "/rules", {"lines": file.read_text().splitlines()}, if_match="*")
    assert (status, problem["mistakes"][0]["line"]) == (400, 2)
    assert api.ask("PUT", "/rules", {"lines": []})[0] == 400, "without If-Match"
    file.write_text("# all\nallow all publish a\n")
    assert "+ allow all publish a" in api.command("rules", "set", file, "--dry-run")
    assert api.command("rules", "show") == ""
    api.command("rules", "set", file, "--yes")
    assert api.command("rules", "show") == file.read_text()
    assert api.command("rules", "test", "--client", "c", "--user", "u", "publish", "a").startswith("allow")
    api.command("rules", "test", "--client", "c", "--user", "u", "publish", "b", code=1)
    # A user that is not connected is judged with what comes with its login.
    api.done("POST", "/groups", {"name": "g", "rules": ["deny publish a"]})
    api.done("POST", "/users", {"name": "u", "password": "p", "rules": ["allow publish b"], "groups": ["g"]})
    for topic, allowed in (("a", False), ("b", True)):
        said = api.done("POST", "/acl/test", {"client_id": "c", "user": "u", "action": "publish", "topic": topic})
        assert (said["may"], said["by"], said["known_by"]) == (allowed, "login", "question")
    api.done("PUT", "/users/u", {"enabled": False}, if_match="*")
    assert api.command("rules", "test", "--client", "c", "--user", "u", "publish", "a").startswith("allow")


def test_a_record_that_has_changed_is_not_overwritten(api):
    api.done("POST", "/users", {"name": "ann", "password": "p"})
    _, _, first = api.ask("GET", "/users/ann")
    assert api.ask("PUT", "/users/ann", {"note": "a"}, if_match=first)[0] == 200
    for method, body in (("PUT", {"note": "b"}), ("DELETE", None)):
        status, problem, _ = api.ask(method, "/users/ann", body, if_match=first)
        assert (status, problem["type"]) == (412, "urn:heraldmq:problem:precondition-failed")
    assert api.ask("PUT", "/users/ann", {"password": "p"}, if_none_match="*")[0] == 412
    assert api.done("GET", "/users/ann")["note"] == "a"


def test_a_dry_run_says_who_would_be_disconnected_and_changes_nothing(api, name):
    api.done("POST", "/users", {"name": "ann", "password": "p"})
    with api.broker.client(name, username="ann", password=b"p") as client:
        said = api.done("DELETE", "/users/ann?dry_run=true")
        assert said == {"would": "remove", "clients_ended": 1}
        said = api.done("PUT", "/users/ann?dry_run=true", {"note": "x"})
        assert said == {"would": "replace", "clients_ended": 0}
        client.ping()
    assert api.done("GET", "/users/ann")["note"] == ""
    assert api.done("GET", "/control")["revision"] == 1


def test_users_are_still_there_after_a_restart(tmp_path, name):
    keys, key = tmp_path / "keys.json", tmp_path / "key"
    key.write_text(run("api-key", "add", keys, "--name", "admin", "--role", "administrator").stdout)
    config = {**BASE, "authentication": {"chain": [{"kind": "control"}]}}
    sets = {"http.keyFile": keys}
    with Broker(sets, config=config, data_dir=tmp_path / "data") as broker:
        Api(broker, key).done("POST", "/users", {"name": "ann", "password": "p"})
    with Broker(sets, config=config, data_dir=tmp_path / "data") as broker:
        api = Api(broker, key)
        until(lambda: api.done("GET", "/control")["standing"] == "confirmed", what="the records")
        with broker.client(name, username="ann", password=b"p"):
            pass


def test_a_read_names_the_revision_that_it_has_to_see(api):
    api.done("POST", "/users", {"name": "ann", "password": "p"})
    status = api.done("GET", "/control")
    assert (status["revision"], status["stale_s"]) == (1, 0)
    assert api.done("GET", "/users/ann", Control_Revision="1")["name"] == "ann"
    status, problem, _ = api.ask("GET", "/users/ann", Control_Revision="2")
    assert (status, problem["revision"]) == (503, 1)

"""People and keys of the store: the first administrator, passwords, roles, and keys beside those of files."""

import http.client
import json

import pytest

from harness.broker import Broker, run
from harness.people import Browser, add_user
from harness.wait import DEADLINE_S, until
from test_access_users import Api

LOGIN = "nobody can change anything over HTTP yet"
ANNA, BEN = "first password of anna", "first password of ben"


def browser(broker):
    return Browser("127.0.0.1", broker.http_port)


def by_key(broker, key, method, path, body=None):
    """Status and JSON of a request that shows a key."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=DEADLINE_S)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


def codes(broker):
    """The codes in the log."""
    return [line["code"] for line in broker.log_lines if line.get("message", "").startswith(LOGIN)]


def first_code(broker):
    return until(lambda: codes(broker), what="the code in the log")[0]


def logged_in(broker, user, password):
    of_user = browser(broker)
    status, me = of_user.login(user, password)
    assert status == 200, me
    return of_user


def done(of_user, method, path, body=None, **headers):
    status, answer = of_user.ask(method, path, body, **headers)
    assert status in (200, 201, 204), (status, answer)
    return answer


def reason(problem):
    return problem["type"].rsplit(":", 1)[1]


@pytest.fixture()
def broker():
    # Who shows nothing, or a session that has ended, is nobody.
    with Broker({"http.anonymous": "none"}) as broker:
        yield broker


@pytest.fixture()
def anna(broker):
    """The first administrator, logged in."""
    anna = browser(broker)
    body = {"code": first_code(broker), "user": "anna", "password": ANNA}
    anna.csrf = done(anna, "POST", "/login-first", body)["csrf_token"]
    return anna


def add(of_user, name, password, **fields):
    return done(of_user, "POST", "/people", {"name": name, "password": password, **fields})


def test_the_first_administrator_is_made_with_the_code_of_the_log(broker):
    code = first_code(broker)
    anna = browser(broker)
    assert done(anna, "GET", "/login/methods") == {"password": False, "first": True}
    wrong = "A" if code[0] != "A" else "B"
    body = {"code": wrong + code[1:], "user": "anna", "password": ANNA}
    for shown in (body["code"], "", code[:-1]):
        status, problem = anna.ask("POST", "/login-first", {**body, "code": shown})
        assert (status, reason(problem)) == (401, "login-failed")
    status, problem = anna.ask("POST", "/login-first", {**body, "code": code, "password": "short"})
    assert (status, problem["pointer"]) == (400, "/password")
    # Neither case nor dashes count.
    me = done(anna, "POST", "/login-first", {**body, "code": code.lower().replace("-", " ")})
    assert (me["user"], me["role"], me["audits"], me["must_change"]) == ("anna", "administrator", True, False)
    anna.csrf = me["csrf_token"]
    done(anna, "POST", "/users", {"name": "u", "generate": True})
    # The code is void from now on.
    status, problem = browser(broker).ask("POST", "/login-first", {**body, "code": code, "user": "eve"})
    assert (status, reason(problem)) == (401, "login-failed")
    assert done(anna, "GET", "/login/methods") == {"password": True, "first": False}
    assert [row["name"] for row in done(anna, "GET", "/people")["items"]] == ["anna"]
    assert codes(broker) == [code]


def test_the_first_administrator_is_made_by_command(broker):
    env = {"HERALDMQ_URL": f"http://127.0.0.1:{broker.http_port}"}
    code = first_code(broker)
    refused = run("person", "first", "anna", "--stdin", input=f"nothing\n{ANNA}\n", env=env)
    assert refused.returncode == 1 and "not the code" in refused.stderr, refused
    made = run("person", "first", "anna", "--stdin", input=f"{code}\n{ANNA}\n", env=env)
    assert (made.returncode, made.stdout) == (0, "anna is an administrator\n"), made
    assert code not in made.stdout + made.stderr
    again = run("person", "first", "eve", "--stdin", input=f"{code}\n{ANNA}\n", env=env)
    assert again.returncode == 1, again
    assert logged_in(broker, "anna", ANNA).ask("GET", "/me")[1]["role"] == "administrator"


@pytest.mark.parametrize("of", ["token", "key", "person"])
def test_there_is_no_code_where_a_file_has_an_administrator(of, tmp_path):
    file = tmp_path / "file"
    sets = {"token": {"http.tokenFile": file}, "key": {"http.keyFile": file}}
    sets["person"] = {"http.userFile": file, "http.administrators": "pat"}
    match of:
        case "token":
            file.write_text("a token of the tests")
        case "key":
            assert run("api-key", "add", file, "--name", "admin", "--role", "administrator").returncode == 0
        case "person":
            add_user(file, "pat", "password of pat")
    with Broker(sets[of]) as broker:
        # The log says it before the node answers this.
        until(lambda: browser(broker).ask("GET", "/login/methods")[1]["first"] is False, what="an answer")
        status, problem = browser(broker).ask("POST", "/login-first", {"code": "x", "user": "eve", "password": ANNA})
        assert (status, reason(problem)) == (401, "login-failed")
        broker.stop()
        assert codes(broker) == []


def test_a_new_person_has_to_choose_another_password(broker, anna):
    assert add(anna, "ben", BEN, role="operator")["must_change"]
    ben = browser(broker)
    status, me = ben.login("ben", BEN)
    assert status == 200 and me["must_change"]
    status, problem = ben.ask("GET", "/clients")
    assert (status, reason(problem), problem["reason"]) == (403, "no-right", "password_change"), problem
    assert ben.ask("GET", "/me")[0] == 200
    for new, status in ((BEN, 400), ("short", 400), ("another one of ben", 200)):
        answer = ben.ask("POST", "/own-password", {"old": BEN, "new": new})
        assert answer[0] == status, answer
    ben.csrf = answer[1]["csrf_token"]
    assert not answer[1]["must_change"]
    assert ben.ask("GET", "/clients")[0] == 200
    assert browser(broker).login("ben", BEN)[0] == 401
    assert not logged_in(broker, "ben", "another one of ben").ask("GET", "/me")[1]["must_change"]


def test_another_password_ends_the_other_sessions_of_a_person(broker, anna):
    add(anna, "ben", BEN, must_change=False)
    first, other = logged_in(broker, "ben", BEN), logged_in(broker, "ben", BEN)
    first.csrf = done(first, "POST", "/own-password", {"old": BEN, "new": "another one of ben"})["csrf_token"]
    assert first.ask("GET", "/me")[0] == 200
    assert other.ask("GET", "/me")[0] == 401
    # By somebody else, and by being disabled: no session is left.
    etag = f'"r{done(anna, "GET", "/people/ben")["revision"]}"'
    done(anna, "PUT", "/people/ben", {"password": "one that anna made", "must_change": False}, **{"if-match": etag})
    assert first.ask("GET", "/me")[0] == 401
    again = logged_in(broker, "ben", "one that anna made")
    done(anna, "PUT", "/people/ben", {"enabled": False})
    assert again.ask("GET", "/me")[0] == 401
    assert browser(broker).login("ben", "one that anna made")[0] == 401
    done(anna, "PUT", "/people/ben", {"enabled": True})
    # A session from before does not come back.
    assert again.ask("GET", "/me")[0] == 401
    again = logged_in(broker, "ben", "one that anna made")
    done(anna, "DELETE", "/people/ben")
    assert again.ask("GET", "/me")[0] == 401


def test_wrong_old_passwords_count_as_failed_logins(broker, anna):
    add(anna, "ben", BEN, must_change=False)
    ben = logged_in(broker, "ben", BEN)
    guesses = iter(range(1000))

    def guess():
        status, problem = ben.ask("POST", "/own-password", {"old": f"guess number {next(guesses)}", "new": "another one of ben"})
        assert status in (401, 429), problem
        return status == 429

    until(guess, what="a guess that is not judged")
    assert next(guesses) < 20
    assert logged_in(broker, "anna", ANNA)
    assert ben.ask("GET", "/me")[0] == 200


def test_roles_say_what_people_and_keys_may_do(broker, anna, name):
    ban = {"client": name}
    wanted = {
        "viewer": {"/clients": 200, "/bans": 403, "/people": 403},
        "operator": {"/clients": 200, "/bans": 201, "/people": 403},
        "administrator": {"/clients": 200, "/bans": 201, "/people": 200},
    }
    for role, expected in wanted.items():
        password = f"password of the {role}"
        add(anna, role, password, role=role, must_change=False)
        person = logged_in(broker, role, password)
        key = done(anna, "POST", "/keys", {"name": role, "role": role})["secret"]
        for ask in (person.ask, lambda *asked: by_key(broker, key, *asked)):
            found = {path: ask(*(("POST", path, ban) if path == "/bans" else ("GET", path)))[0] for path in expected}
            assert found == expected, role
    # Another role counts at once, in the same session.
    viewer = logged_in(broker, "viewer", "password of the viewer")
    done(anna, "PUT", "/people/viewer", {"role": "administrator"})
    assert viewer.ask("GET", "/people")[0] == 200


def test_the_last_administrator_stays(broker, anna):
    def is_refused(method, path, body=None):
        status, problem = anna.ask(method, path, body)
        return (status, problem["reason"]) == (409, "last_administrator")

    assert is_refused("DELETE", "/people/anna")
    assert is_refused("PUT", "/people/anna", {"role": "operator"})
    assert is_refused("PUT", "/people/anna", {"role": "administrator", "enabled": False})
    # A key that ends is no administrator for good; one that stays is.
    ends = done(anna, "POST", "/keys", {"name": "ends", "role": "administrator", "ends_at": "2999-01-01T00:00:00Z"})
    assert is_refused("DELETE", "/people/anna")
    stays = done(anna, "POST", "/keys", {"name": "stays", "role": "administrator"})
    done(anna, "DELETE", "/people/anna")
    assert anna.ask("GET", "/me")[0] == 401
    status, problem = by_key(broker, ends["secret"], "DELETE", f"/keys/{stays['id']}")
    assert (status, problem["reason"]) == (409, "last_administrator")
    assert by_key(broker, ends["secret"], "DELETE", f"/keys/{ends['id']}")[0] == 204
    assert by_key(broker, ends["secret"], "GET", "/clients")[0] == 401


@pytest.fixture()
def beside(tmp_path):
    """A broker with a key and a person in files, and its API."""
    keys, key, people = tmp_path / "keys.json", tmp_path / "key", tmp_path / "people"
    key.write_text(run("api-key", "add", keys, "--name", "of the file", "--role", "administrator").stdout)
    add_user(people, "pat", "password of pat")
    with Broker({"http.keyFile": keys, "http.userFile": people, "http.operators": "pat"}) as broker:
        yield Api(broker, key)


def test_people_of_the_file_count_and_are_changed_there(beside):
    beside.command("person", "add", "ben", "--stdin", "--keep", "--role", "operator", input=f"{BEN}\n")
    listed = {row["name"]: (row["source"], row["role"]) for row in beside.done("GET", "/people")["items"]}
    assert listed == {"ben": ("store", "operator"), "pat": ("file", "operator")}
    for method, path, body in (
        ("POST", "/people", {"name": "pat", "password": BEN}),
        ("PUT", "/people/pat", {"role": "viewer"}),
        ("DELETE", "/people/pat", None),
    ):
        status, problem, _ = beside.ask(method, path, body)
        assert (status, problem["reason"]) == (409, "of_file")
    pat = logged_in(beside.broker, "pat", "password of pat")
    status, problem = pat.ask("POST", "/own-password", {"old": "password of pat", "new": "another one of pat"})
    assert (status, problem["reason"]) == (409, "not_own")
    # Files can take the last administrator of the store away: they have their own.
    beside.command("person", "add", "cleo", "--stdin", "--keep", "--role", "administrator", input=f"{ANNA}\n")
    beside.command("person", "remove", "cleo")
    assert beside.ask("GET", "/people/cleo")[0] == 404


def test_keys_of_the_file_and_of_the_store_are_good_side_by_side(beside):
    text = beside.command("key", "add", "--name", "of the store", "--role", "administrator").strip()
    assert by_key(beside.broker, text, "GET", "/people")[0] == 200
    listed = {row["name"]: row for row in by_key(beside.broker, text, "GET", "/keys")[1]["items"]}
    assert {name: row["source"] for name, row in listed.items()} == {"of the file": "file", "of the store": "store"}
    of_file, of_store = listed["of the file"]["id"], listed["of the store"]["id"]
    for method, path, body in (("DELETE", f"/keys/{of_file}", None), ("POST", f"/keys/{of_file}/rotate", {"overlap_s": 0})):
        status, problem, _ = beside.ask(method, path, body)
        assert (status, problem["reason"]) == (409, "of_file")
    # With an overlap both secrets are good, without one the one of before is not.
    second = beside.command("key", "rotate", of_store, "--overlap", "1h").strip()
    assert [by_key(beside.broker, key, "GET", "/clients")[0] for key in (text, second)] == [200, 200]
    assert beside.done("GET", "/keys")["items"] != [] and second not in json.dumps(beside.done("GET", "/keys"))
    third = beside.command("key", "rotate", of_store, "--overlap", "0s").strip()
    assert [by_key(beside.broker, key, "GET", "/clients")[0] for key in (text, second, third)] == [401, 401, 200]
    beside.command("key", "remove", of_store)
    assert by_key(beside.broker, third, "GET", "/clients")[0] == 401
    assert by_key(beside.broker, beside.key, "GET", "/people")[0] == 200


def test_who_audits_reads_the_audit_and_nothing_else(broker, anna):
    add(anna, "viewer", "password of the viewer", must_change=False)
    add(anna, "auditor", "password of the auditor", audits=True, must_change=False)
    plain = done(anna, "POST", "/keys", {"name": "plain", "role": "operator"})["secret"]
    audits = done(anna, "POST", "/keys", {"name": "audits", "role": "viewer", "audits": True})["secret"]
    auditor, viewer = logged_in(broker, "auditor", "password of the auditor"), logged_in(broker, "viewer", "password of the viewer")
    assert auditor.ask("GET", "/me")[1]["audits"] and not viewer.ask("GET", "/me")[1]["audits"]
    for path in ("/audit", "/audit/head"):
        assert [of.ask("GET", path)[0] for of in (anna, auditor, viewer)] == [200, 200, 403]
        assert [by_key(broker, key, "GET", path)[0] for key in (audits, plain)] == [200, 403]
    assert auditor.ask("GET", "/people")[0] == 403 == by_key(broker, audits, "GET", "/people")[0]


def export(of_user):
    connection = http.client.HTTPConnection("127.0.0.1", of_user.port, timeout=DEADLINE_S)
    connection.request("GET", "/api/v1/audit/export", headers={"cookie": of_user.cookie})
    text = connection.getresponse().read()
    connection.close()
    return text


def test_nothing_that_proves_who_somebody_is_is_told(broker):
    """Of passwords, hashes, secrets and codes, the log has the one line of the code, and nothing else has any of them."""
    code = first_code(broker)
    events = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=DEADLINE_S)
    anna = browser(broker)
    said = []

    def ask(of_user, method, path, body=None):
        status, answer = of_user.ask(method, path, body)
        said.append(json.dumps(answer).encode())
        return status, answer

    anna.csrf = ask(anna, "POST", "/login-first", {"code": code, "user": "anna", "password": ANNA})[1]["csrf_token"]
    events.request("GET", "/api/v1/events", headers={"cookie": anna.cookie})
    told = events.getresponse()
    ask(anna, "POST", "/login-first", {"code": code, "user": "eve", "password": "password of eve"})
    wrong = "a wrong code that is shown"
    ask(anna, "POST", "/login-first", {"code": wrong, "user": "eve", "password": "password of eve"})
    ask(anna, "POST", "/people", {"name": "ben", "password": BEN, "must_change": False})
    ask(anna, "POST", "/people", {"name": "ben", "password": "another for ben again"})
    ask(anna, "POST", "/people", {"name": "dan", "password": "too short"})
    hashed = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$K8lHSGYPZ2Q6nkYfdFqzJm3K5L8m1jWcW9Rk4ZVt1iA"
    status, made = ask(anna, "POST", "/people", {"name": "cleo", "hash": hashed})
    assert status == 201, made
    wrong_hash = "$argon2id$v=19$no hash at all"
    assert ask(anna, "POST", "/people", {"name": "dan", "hash": wrong_hash})[0] == 400
    ben = logged_in(broker, "ben", BEN)
    ask(ben, "POST", "/own-password", {"old": "a wrong one of ben", "new": "the next one of ben"})
    ben.csrf = ask(ben, "POST", "/own-password", {"old": BEN, "new": "the next one of ben"})[1]["csrf_token"]
    ask(browser(broker), "POST", "/login", {"user": "ben", "password": "a guess at ben"})
    _, generated = anna.ask("POST", "/people", {"name": "fay", "generate": True})
    _, key = anna.ask("POST", "/keys", {"name": "k", "role": "operator"})
    _, rotated = anna.ask("POST", f"/keys/{key['id']}/rotate", {"overlap_s": 60})
    secrets = [key["secret"], rotated["secret"]]
    said.append(json.dumps(by_key(broker, secrets[0] + "x", "GET", "/clients")).encode())
    by_key(broker, secrets[1], "POST", "/bans", {"client": "c"})
    for path in ("/people", "/keys", "/people/ben", "/audit", "/failed-logins", "/refused-logins"):
        ask(anna, "GET", path)
    # The notes are in the audit, so everything of before has been told.
    until(lambda: b'"bans.add"' in export(anna), what="the note of the ban")
    said.append(export(anna))
    cookies = [of.cookie.split("=", 1)[1].split("-", 1)[1] for of in (anna, ben)]
    done(anna, "DELETE", "/people/fay")
    until(lambda: said.append(told.read1(65_536)) or b"/people/fay" in said[-1], what="the events")
    events.close()
    broker.stop()
    log = [line for line in broker.log_text if LOGIN not in line]
    assert len(broker.log_text) - len(log) == 1
    text = b"\n".join(said) + "\n".join(log).encode()
    assert b"ben" in text and key["id"].encode() in text
    hidden = [ANNA, BEN, "password of eve", "another for ben again", "too short", wrong, hashed, hashed.split("$")[-1], wrong_hash]
    hidden += ["a wrong one of ben", "the next one of ben", "a guess at ben", generated["secret"], code, code.replace("-", "")]
    hidden += [secret.split("_", 2)[2] for secret in secrets] + cookies + ["$argon2id"]
    assert [secret for secret in hidden if secret.encode() in text] == []


def test_a_node_goes_by_files_only_if_it_is_so_configured(tmp_path):
    token = tmp_path / "token"
    token.write_text("a-long-token-of-a-file\n")
    with Broker({"control.mode": "file", "http.anonymous": "none", "http.tokenFile": str(token)}) as broker:
        user = {"name": "u", "generate": True}
        for path, body in (
            ("/users", user),
            ("/users?dry_run=true", user),
            ("/people", {"name": "anna", "password": ANNA}),
            ("/keys", {"name": "ci"}),
            ("/control/import", {"format": "heraldmq/control/v1", "users": []}),
        ):
            status, problem = by_key(broker, "a-long-token-of-a-file", "POST", path, body)
            assert (status, problem.get("reason")) == (409, "managed_by_file"), (path, problem)
        status, control = by_key(broker, "a-long-token-of-a-file", "GET", "/control")
        assert (status, control["standing"], control["files_only"]) == (200, "unused", True)
        assert done(browser(broker), "GET", "/login/methods")["first"] is False
    # Nobody is first by a code there either.
    with Broker({"control.mode": "file"}) as broker:
        assert done(browser(broker), "GET", "/login/methods")["first"] is False
        assert codes(broker) == []

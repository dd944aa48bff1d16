"""The audit: who has changed what, as a list, as an export, and whether it is whole."""

import json
import re
import time

import pytest

from harness.broker import Broker, run
from harness.people import Browser, add_user
from harness.wait import until
from test_access_users import Api


@pytest.fixture()
def files(tmp_path):
    """Settings with a key and a person of files, and the file with the key."""
    keys, key, people = tmp_path / "keys.json", tmp_path / "key", tmp_path / "people"
    key.write_text(run("api-key", "add", keys, "--name", "admin", "--role", "administrator").stdout)
    add_user(people, "pat", "password of pat")
    return {"http.keyFile": keys, "http.userFile": people, "http.operators": "pat"}, key


@pytest.fixture()
def api(files):
    sets, key = files
    with Broker(sets) as broker:
        yield Api(broker, key)


def fill(api):
    """Four changes of records."""
    api.command("user", "add", "ann", "--stdin", "--note", "first", input="correct horse\n")
    api.command("user", "set", "ann", "--note", "second")
    api.command("user-group", "add", "ops", "--rule", "allow subscribe a/#")
    api.command("person", "add", "ben", "--stdin", "--keep", "--role", "operator", input="first password of ben\n")


def listed(api, *args):
    """Action and target of entries, the first one first."""
    items = json.loads(api.command("audit", "list", "--json", "--all", *args))["items"]
    return [(row["action"], row["target"]) for row in reversed(items)]


FILLED = [("user.add", "ann"), ("user.change", "ann"), ("group.add", "ops"), ("person.add", "ben")]


def test_the_audit_is_listed_with_filters(api):
    assert api.ask("GET", "/audit")[0] == 503, "there is none before the first change"
    begin = time.time_ns() // 1_000_000
    fill(api)
    assert listed(api) == FILLED
    end = api.done("GET", "/audit")["items"][0]["at"]
    assert listed(api, "--action", "user.") == FILLED[:2]
    assert listed(api, "--target", "ops") == FILLED[2:3]
    assert listed(api, "--target", "op") == [] == listed(api, "--action", "ser.")
    assert (listed(api, "--actor", "admin"), listed(api, "--actor", "ben")) == (FILLED, [])
    assert (listed(api, "--since", begin), listed(api, "--until", begin)) == (FILLED, [])
    assert FILLED[3] in listed(api, "--since", end) and FILLED[3] not in listed(api, "--until", end)
    row = api.done("GET", "/audit?action=user.change")["items"][0]
    assert row["fields"] == [{"name": "note", "before": "first", "after": "second"}]
    assert (row["actor"], row["means"], row["address"], row["revision"]) == ("admin", "file_key", "127.0.0.1", 2)
    # By pages, the latest first.
    found, after = [], ""
    while after is not None:
        page = api.done("GET", f"/audit?limit=1&after={after}" if after else "/audit?limit=1")
        found += [(entry["action"], entry["target"]) for entry in page["items"]]
        after = page["next"]
    assert found == FILLED[::-1]
    assert api.ask("GET", "/audit?since=yesterday")[0] == 400
    assert "first → second" in api.command("audit", "list", "--action", "user.change")


def verified(text, *args):
    done = run("audit", "verify", "-", *args, input=text)
    return done.returncode, done.stdout + done.stderr


def flipped(text, at):
    """Another digit or letter at this place."""
    return text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :]


def test_an_export_is_whole_until_one_character_of_it_is_different(api, tmp_path):
    fill(api)
    text = api.command("audit", "export")
    lines = text.splitlines(keepends=True)
    assert len(lines) == len(FILLED) + 2
    head = json.loads(api.command("audit", "head", "--json"))
    assert json.loads(lines[-1]) == {"next": head["next"], "head": head["head"]}
    file = tmp_path / "audit.ndjson"
    file.write_text(text)
    whole = f"whole: entries 0 to {len(FILLED) - 1}, head {head['head']}\n"
    assert run("audit", "verify", file).stdout == whole
    earlier = json.loads(lines[2])["hash"]
    for known in (head["head"], earlier):
        assert verified(text, "--head", known) == (0, whole)
    code, said = verified(text, "--head", "ab" * 32)
    assert code == 1 and "not among the entries" in said
    assert verified(text, "--head", "ab")[0] == 2

    for number in range(len(FILLED)):
        line = lines[number + 1]
        entry = json.loads(line)
        places = {
            "was changed": [line.index(entry["bytes"]) + n for n in range(0, len(entry["bytes"]), 9)]
            + [line.index(entry["hash"]) + n for n in (0, 31, 63)],
            "in words": [line.index(f'"{entry["actor"]}"') + 1, line.index(f'"{entry["action"]}"') + 3],
        }
        for why, at in ((why, at) for why, all_of in places.items() for at in all_of):
            other = [*lines[: number + 1], flipped(line, at), *lines[number + 2 :]]
            code, said = verified("".join(other))
            assert code == 1 and f"line {number + 2}: " in said and why in said, (at, said)
            assert re.search(rf"entry {number}\b", said), said
        gone = lines[: number + 1] + lines[number + 2 :]
        assert verified("".join(gone))[0] == 1
    assert verified("".join(lines[:-1]))[0] == 1
    assert verified(text + lines[-1])[0] == 1
    assert verified(flipped(text, text.rindex(head["head"])))[0] == 1
    # A part of it has the hash of what is before it.
    part = api.command("audit", "export", "--from", 2)
    assert verified(part, "--head", earlier)[0] == 0 == verified(part, "--head", head["head"])[0]
    assert json.loads(part.splitlines()[0]) == {"format": "heraldmq/audit/v1", "first": 2, "before": earlier}


def noted(api, action):
    """The entries of a note, when there are any."""
    return until(lambda: api.done("GET", f"/audit?action={action}")["items"], what=f"a note of {action}")


def test_what_changes_no_record_is_in_the_audit_as_well(api, name):
    fill(api)
    ban = api.done("POST", "/bans", {"client": name})
    (row,) = noted(api, "bans.add")
    assert (row["actor"], row["means"], row["address"]) == ("admin", "file_key", "127.0.0.1")
    assert row["target"] == name and row["fields"] == [{"name": "result", "before": None, "after": "201"}]
    api.done("DELETE", f"/bans/{ban['id']}")
    assert len(noted(api, "bans.remove")) == 1
    for user, password in (("pat", "password of pat"), ("ben", "first password of ben")):
        assert Browser("127.0.0.1", api.broker.http_port).login(user, password)[0] == 200
    until(lambda: len(noted(api, "login")) == 2, what="two logins")
    rows = {row["actor"]: row["means"] for row in noted(api, "login")}
    assert rows == {"pat": "file_person", "ben": "person"}
    # What was refused, and what was only read, is none of it. A node that runs alone cannot be drained.
    assert api.ask("POST", "/bans", {"nothing": name})[0] == 400
    node = api.done("GET", "/cluster")["node"]
    assert api.ask("POST", f"/nodes/{node}/drain", {})[0] == 409
    api.done("GET", "/bans")
    api.done("POST", "/bans", {"client": f"{name}last"})
    until(lambda: len(noted(api, "bans.add")) == 2, what="the note of the last ban")
    assert {action for action, _ in listed(api)} - {action for action, _ in FILLED} == {
        "bans.add",
        "bans.remove",
        "login",
    }


def test_what_is_done_often_is_counted(files, name):
    """The sums of less than a minute are noted when the broker stops, and are in the audit when it is there again."""
    sets, key = files
    folder = key.parent / "data"
    with Broker(sets, data_dir=folder) as broker:
        api = Api(broker, key)
        fill(api)
        for number in range(5):
            api.done("POST", "/publish", {"topic": f"{name}/{number}", "payload": "x"})
        # Strangers get one entry, whatever names they try.
        for user in ("pat", "nobody", "somebody"):
            assert Browser("127.0.0.1", broker.http_port).login(user, "a wrong password")[0] == 401
        assert broker.stop() == 0
    assert (folder / "audit.pending").exists()
    with Broker(sets, data_dir=folder) as broker:
        api = Api(broker, key)
        until(lambda: api.ask("GET", "/audit")[0] == 200, what="the audit")
        (row,) = noted(api, "publish")
        assert (row["actor"], row["means"]) == ("admin", "file_key")
        assert row["fields"] == [{"name": "count", "before": None, "after": "5"}]
        (row,) = noted(api, "login.failed")
        assert (row["actor"], row["means"], row["fields"][0]["after"]) == ("", "node", "3")
        until(lambda: json.loads((folder / "audit.pending").read_text())["batch"] is None, what="a file without notes")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_audit_goes_on_after_a_restart(files, name, end):
    sets, key = files
    folder = key.parent / "data"
    with Broker(sets, data_dir=folder) as broker:
        api = Api(broker, key)
        fill(api)
        api.done("POST", "/bans", {"client": name})
        noted(api, "bans.add")
        before = api.command("audit", "export")
        getattr(broker, end)()
    with Broker(sets, data_dir=folder) as broker:
        api = Api(broker, key)
        until(lambda: api.ask("GET", "/audit")[0] == 200, what="the audit")
        assert api.command("audit", "export") == before
        api.command("user", "remove", "ann")
        api.done("POST", "/bans", {"client": f"{name}2"})
        until(lambda: len(noted(api, "bans.add")) == 2, what="the next note")
        text = api.command("audit", "export")
        assert text.startswith(before[: before.rindex('{"next"')])
        head = json.loads(before.splitlines()[-1])["head"]
        assert verified(text, "--head", head)[0] == 0
        assert listed(api) == [*FILLED, *listed(api)[4:5], ("user.remove", "ann"), *listed(api)[6:]]
        assert [action for action, _ in listed(api)[4:]] == ["bans.add", "user.remove", "bans.add"]

"""People and keys of the store count at all nodes at once, and at a node that knows nothing nobody does."""

import http.client
import json
import threading

import pytest
from harness.broker import run
from harness.people import Browser
from harness.wait import DEADLINE_S, until
from staged.cluster import HTTP, SETTLE_S, Cluster
from test_access import agree, asked, done

ANNA, NEXT = "first password of anna", "second password of anna"


@pytest.fixture
def cluster():
    with Cluster(3) as cluster:
        yield cluster


def browser(node, of=None):
    """One that has logged in nowhere, or shows at this node what another one has."""
    made = Browser(node.place.address, HTTP)
    if of:
        made.cookie, made.csrf = of.cookie, of.csrf
    return made


def statuses(nodes, of):
    """What the nodes answer to a session."""
    return [browser(node, of).ask("GET", "/me")[0] for node in nodes]


def by_key(node, key, path="/clients"):
    """Status and problem of a request that shows a key."""
    connection = http.client.HTTPConnection(node.place.address, HTTP, timeout=DEADLINE_S)
    connection.request("GET", f"/api/v1{path}", headers={"authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def test_a_session_counts_at_all_nodes_until_the_password_is_another_one(cluster):
    first, second, third = cluster.nodes
    done(first, "POST", "/people", {"name": "anna", "password": ANNA, "role": "administrator", "must_change": False})
    anna = browser(first)
    assert anna.login("anna", ANNA)[0] == 200
    assert statuses(cluster.nodes, anna) == [200] * 3
    status, made = browser(second, anna).ask("POST", "/people", {"name": "ben", "password": NEXT})
    assert status == 201, made
    # Somebody else's change, and then her own. The answer comes when it counts everywhere.
    done(third, "PUT", "/people/anna", {"password": NEXT, "role": "administrator", "must_change": False})
    assert statuses(cluster.nodes, anna) == [401] * 3
    again = browser(second)
    assert again.login("anna", ANNA)[0] == 401
    assert again.login("anna", NEXT)[0] == 200
    assert statuses(cluster.nodes, again) == [200] * 3
    own = browser(third, again)
    status, me = own.ask("POST", "/own-password", {"old": NEXT, "new": ANNA})
    assert status == 200, me
    assert own.cookie != again.cookie
    assert (statuses(cluster.nodes, again), statuses(cluster.nodes, own)) == ([401] * 3, [200] * 3)
    # A role counts at once, in the same session.
    done(first, "POST", "/keys", {"name": "k", "role": "administrator"})
    done(first, "PUT", "/people/anna", {"role": "viewer"})
    assert statuses(cluster.nodes, own) == [200] * 3
    assert [browser(node, own).ask("GET", "/people")[0] for node in cluster.nodes] == [403] * 3
    done(second, "PUT", "/people/anna", {"role": "viewer", "enabled": False})
    assert statuses(cluster.nodes, own) == [401] * 3


def test_a_key_counts_at_all_nodes_until_it_is_rotated_or_removed(cluster):
    first, second, third = cluster.nodes
    made = done(first, "POST", "/keys", {"name": "k", "role": "operator"})
    assert by_key(second, made["secret"])[0] == 200
    assert [by_key(node, made["secret"])[0] for node in cluster.nodes] == [200] * 3
    kept = done(second, "POST", f"/keys/{made['id']}/rotate", {"overlap_s": 3_600})["secret"]
    assert [by_key(node, key)[0] for key in (made["secret"], kept) for node in cluster.nodes] == [200] * 6
    last = done(third, "POST", f"/keys/{made['id']}/rotate", {"overlap_s": 0})["secret"]
    assert [by_key(node, key)[0] for key in (made["secret"], kept) for node in cluster.nodes] == [401] * 6
    assert [by_key(node, last)[0] for node in cluster.nodes] == [200] * 3
    done(first, "DELETE", f"/keys/{made['id']}")
    assert [by_key(node, last)[0] for node in cluster.nodes] == [401] * 3


def test_a_node_that_starts_cut_off_lets_no_key_of_the_store_in(cluster):
    alone, other, _ = cluster.nodes
    key = done(other, "POST", "/keys", {"name": "k", "role": "operator"})
    done(other, "POST", "/people", {"name": "anna", "password": ANNA, "must_change": False})
    agree(cluster.nodes, 2)
    assert by_key(alone, key["secret"])[0] == 200
    alone.kill()
    cluster.cut_off(alone)
    done(other, "DELETE", f"/keys/{key['id']}")
    alone.start(ready=False)
    until(lambda: alone.broker.find("ready"), SETTLE_S, "its readiness")
    status, problem = by_key(alone, key["secret"])
    assert (status, problem["type"]) == (503, "urn:heraldmq:problem:not-ready"), problem
    assert browser(alone).login("anna", ANNA)[0] == 503
    # The token of its file does.
    assert asked(alone, "GET", "/people")[0] == 200
    cluster.network.heal()
    cluster.settled()
    agree(cluster.nodes, 3)
    assert by_key(alone, key["secret"])[0] == 401
    assert browser(alone).login("anna", ANNA)[0] == 200


class WithoutAdministrator(Cluster):
    """The key of a file that the tests look at nodes with can change nothing."""

    def __init__(self, keys):
        self._keys = keys
        super().__init__(3)

    def add(self):
        if not self._keys.exists():
            self.token.write_text(run("api-key", "add", self._keys, "--name", "look", "--role", "viewer").stdout.strip())
        node = super().add()
        configured = node.config

        def config(*args):
            made = configured(*args)
            del made["http"]["tokenFile"]
            made["http"]["keyFile"] = str(self._keys)
            return made

        node.config = config
        return node


def code(node) -> str:
    said = "nobody can change anything over HTTP yet"
    lines = lambda: [line for line in node.broker.log_lines if line.get("message", "").startswith(said)]  # noqa: E731
    return until(lines, SETTLE_S, f"the code of {node}")[0]["code"]


def test_of_two_first_administrators_at_two_nodes_one_is_made(tmp_path):
    with WithoutAdministrator(tmp_path / "keys.json") as cluster:
        first, second, third = cluster.nodes
        codes = [code(node) for node in cluster.nodes]
        assert len({*codes}) == 3
        # The code of another node is none.
        assert browser(third).ask("POST", "/login-first", {"code": codes[0], "user": "eve", "password": ANNA})[0] == 401
        barrier, answers = threading.Barrier(2), {}

        def make(node, shown, user):
            asking = browser(node)
            barrier.wait()
            answers[user] = asking.ask("POST", "/login-first", {"code": shown, "user": user, "password": ANNA})

        threads = [
            threading.Thread(target=make, args=(node, shown, user))
            for node, shown, user in zip((first, second), codes, ("anna", "ben"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        by_status = {status: (user, answer) for user, (status, answer) in answers.items()}
        assert by_status.keys() == {200, 409}, answers
        assert by_status[409][1]["reason"] == "not_first"
        made = by_status[200][0]
        agree(cluster.nodes, 1)
        for node in cluster.nodes:
            of_node = browser(node)
            assert of_node.login(made, ANNA)[0] == 200
            assert [person["name"] for person in of_node.ask("GET", "/people")[1]["items"]] == [made]
        # No code is good any more.
        for node, shown in zip(cluster.nodes, codes):
            status, problem = browser(node).ask("POST", "/login-first", {"code": shown, "user": "eve", "password": ANNA})
            assert (status, problem["type"]) == (401, "urn:heraldmq:problem:login-failed")

"""Bans hold in the whole cluster: made and lifted at any node, also at one that is alone for the moment."""

import json
import urllib.error
import urllib.request

import pytest
from harness import raw
from harness.raw import CONNACK
from harness.wait import DEADLINE_S, until
from staged.cluster import HTTP, SETTLE_S, Cluster

BANNED, ADMINISTRATIVE_ACTION = 0x8A, 0x98


def request(node, method, path, body=None):
    """Status and body of a request with the token."""
    headers = {"authorization": f"Bearer {node.cluster.token.read_text()}", "content-type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    url = f"http://{node.place.address}:{HTTP}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=DEADLINE_S) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ban(node, **fields) -> dict:
    status, made = request(node, "POST", "/api/v1/bans", fields)
    assert status == 201, made
    return made


def lift(node, made):
    assert request(node, "DELETE", f"/api/v1/bans/{made['id']}")[0] == 204


def bans(node) -> list[dict]:
    return request(node, "GET", "/api/v1/bans")[1]["items"]


def code(node, client_id) -> int:
    with node.broker.raw() as client:
        client.send(raw.connect(client_id, version=5))
        return client.expect(CONNACK).reason


def all_have(nodes, wanted):
    until(lambda: all(bans(node) == wanted for node in nodes), SETTLE_S, lambda: f"{wanted}: {[*map(bans, nodes)]}")


@pytest.mark.quick
def test_a_ban_holds_at_all_nodes_and_after_their_restart(name):
    with Cluster(3) as cluster:
        a, b, c = cluster.nodes
        client = c.client(name)
        made = ban(a, client=name, reason="why")
        client.expect_disconnected(ADMINISTRATIVE_ACTION)
        all_have([a, b, c], [made])
        assert code(b, name) == BANNED
        for node in cluster.nodes:
            node.kill()
        a.start()
        b.start()
        c.start()
        cluster.settled()
        assert [code(node, name) for node in cluster.nodes] == [BANNED] * 3
        # Lifted by another node than the one that made it.
        lift(b, made)
        all_have([a, b, c], [])
        assert [code(node, name) for node in cluster.nodes] == [0] * 3


def test_a_node_that_was_down_hears_of_what_was_banned_and_lifted(name):
    with Cluster(3) as cluster:
        a, b, c = cluster.nodes
        gone = ban(c, user=name + "gone")
        all_have([a, b, c], [gone])
        c.kill()
        lift(a, gone)
        made = ban(b, client=name)
        c.start()
        all_have([a, b, c], [made])
        assert code(c, name) == BANNED


def test_a_node_without_a_majority_bans_and_the_others_hear_of_it_later(name):
    with Cluster(3) as cluster:
        a, b, c = cluster.nodes
        b.kill()
        c.kill()
        client = a.client(name, clean=True)
        made = ban(a, client=name)
        client.expect_disconnected(ADMINISTRATIVE_ACTION)
        b.start()
        c.start()
        all_have([a, b, c], [made])
        assert [code(node, name) for node in (b, c)] == [BANNED] * 2


def test_bans_of_before_the_cluster_are_those_of_all_nodes(name):
    with Cluster(0) as cluster:
        a, b = cluster.add(), cluster.add()
        for node, number in ((a, 1), (b, 2)):
            # Each was alone, and gave its first ban the number 1.
            old = [{"id": 1, "client": f"{name}{number}", "created": f"2026-01-01T00:00:0{number}.000Z"}]
            file = cluster.folder / f"bans{number}.json"
            file.write_text(json.dumps(old))
            node.sets = {"abuse.banFile": file}
        a.start(bootstrap=True)
        b.start()
        cluster.settled()
        until(lambda: len(bans(a)) == 2 and bans(a) == bans(b), SETTLE_S, "both bans at both nodes")
        assert [code(node, f"{name}{number}") for node in (a, b) for number in (1, 2)] == [BANNED] * 4

"""Users of the store on a node that is cut off from the others."""

import json
import urllib.request

import pytest
from harness import raw
from harness.wait import DEADLINE_S, until
from staged.cluster import HTTP, Cluster

BAD_CREDENTIALS, NOT_AUTHORIZED = 0x86, 0x87
REFUSED_AFTER_S = 5
ANN, BEN = ({"username": user, "password": b"secret"} for user in ("ann", "ben"))


@pytest.fixture
def cluster():
    sets = {"authentication.chain.kind": "control", "control.refuseStaleAfterSeconds": REFUSED_AFTER_S}
    with Cluster(3, {**sets, "abuse.failedLogins": 0}) as cluster:
        cluster.spread()
        yield cluster


def ask(node, path, method="GET", body=None, **headers):
    headers = {"authorization": f"Bearer {node.cluster.token.read_text()}", "content-type": "application/json", **headers}
    data = None if body is None else json.dumps(body).encode()
    url = f"http://{node.place.address}:{HTTP}/api/v1{path}"
    made = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(made, timeout=DEADLINE_S) as answer:
        return json.loads(answer.read() or "null")


def is_refused(node, client_id, **fields):
    with node.broker.raw() as client:
        client.send(raw.connect(client_id, **fields))
        return client.expect(raw.CONNACK).reason == BAD_CREDENTIALS


def test_a_node_that_is_cut_off_says_how_stale_its_copy_is_and_refuses_logins_by_it(cluster, name):
    first, last = cluster.nodes[0], cluster.nodes[2]
    for user in ("ann", "ben"):
        made = ask(first, "/users", "POST", {"name": user, "password": "secret"})
    revision = {"control-revision": str(made["revision"])}
    assert ask(last, "/users/ben", **revision)["name"] == "ben"
    assert [ask(node, "/control")["stale_s"] for node in cluster.nodes] == [0, 0, 0]
    ann, ben = last.client(f"{name}a", **ANN), last.client(f"{name}b", **BEN)
    assert ask(first, "/users/ann?dry_run=true", "DELETE")["clients_ended"] == 1
    cluster.cut_off(last)
    until(lambda: ask(last, "/control")["stale_s"] >= REFUSED_AFTER_S, what="a stale copy")
    until(lambda: is_refused(last, f"{name}c", **BEN), what="refused logins")
    assert not is_refused(first, f"{name}c", **BEN)
    # A dry run does not know how many clients the silent node has.
    assert ask(first, "/users/ann?dry_run=true", "DELETE")["clients_ended"] is None
    ask(first, "/users/ann", "DELETE")
    ann.ping()
    cluster.network.heal()
    ann.expect_disconnected(NOT_AUTHORIZED)
    until(lambda: ask(last, "/control")["stale_s"] == 0, what="a current copy")
    until(lambda: not is_refused(last, f"{name}c", **BEN), what="logins")
    ben.ping()

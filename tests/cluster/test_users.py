"""A session belongs to the user that has made it (P13), on whichever node another one asks for it."""

import subprocess

import pytest
from harness import raw
from harness.broker import BINARY
from staged.cluster import Cluster

NOT_AUTHORIZED = 0x87
DURABLE = {"session_expiry": 3600}
ALICE = {"username": "alice", "password": b"correct horse"}
BOB = {"username": "bob", "password": b"battery staple"}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    file = tmp_path_factory.mktemp("users") / "passwords"
    for user in (ALICE, BOB):
        command = [BINARY, "passwd", str(file), user["username"], "--stdin"]
        subprocess.run(command, input=user["password"] + b"\n", check=True, capture_output=True, timeout=60)
    sets = {
        "authentication.chain.kind": "passwordFile",
        "authentication.chain.file": file,
        "abuse.failedLogins": 0,
    }
    with Cluster(3, sets) as cluster:
        yield cluster.nodes


def session(durable):
    return {"clean": not durable, "props": DURABLE if durable else None}


def refused(node, client_id, **fields):
    with node.broker.raw() as client:
        client.send(raw.connect(client_id, version=5, **fields))
        client.expect_refused(NOT_AUTHORIZED)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
def test_another_user_does_not_take_a_client_over_from_another_node(nodes, name, earlier, later):
    for first, second in zip(nodes, nodes[1:] + nodes[:1]):
        with first.client(name, **session(earlier), **ALICE) as alice:
            for node in (first, second):
                refused(node, name, **session(later), **BOB)
            alice.ping()
            with second.client(name, **session(earlier), **ALICE) as again:
                alice.expect_disconnected(0x8E)
                refused(first, name, **session(later), **BOB)
                again.ping()
                again.disconnect()


@pytest.mark.quick
def test_another_user_does_not_get_a_session_on_another_node(nodes, name):
    a, b, c = nodes
    with a.client(name, **session(True), **ALICE) as alice:
        alice.subscribe(name, qos=1)
    with c.client(**BOB) as publisher:
        publisher.published(name, b"kept")
    for clean in (False, True):
        refused(b, name, clean=clean, props=DURABLE, **BOB)
    with c.client(name, session_present=True, **session(True), **ALICE) as alice:
        assert alice.message().payload == b"kept"


def test_whose_a_session_is_survives_its_nodes(nodes, name):
    a, b, c = nodes
    a.client(name, **session(True), **ALICE).close()
    a.broker.kill()
    try:
        refused(b, name, **session(True), **BOB)
        b.client(name, session_present=True, **session(True), **ALICE).close()
    finally:
        a.start()

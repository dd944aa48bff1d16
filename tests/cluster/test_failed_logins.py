"""Failed logins of an account count together, at whichever nodes they are tried."""

import subprocess

import pytest
from harness import raw
from harness.broker import BINARY
from harness.raw import CONNACK
from harness.wait import until
from staged.cluster import SETTLE_S, Cluster

WRONG, WAIT = 0x86, 0x97
ALLOWED = 20


def login(node, client_id, user, password) -> int:
    """The code that a CONNECT is answered with."""
    with node.broker.raw() as client:
        client.send(raw.connect(client_id, version=5, username=user, password=password))
        return client.expect(CONNACK).reason


def looked_at(node) -> int:
    return int(node.broker.metric("heraldmq_failed_logins_total"))


def heard_of(node) -> int:
    return int(node.broker.metric("heraldmq_failed_logins_elsewhere_total"))


@pytest.mark.quick
def test_attempts_at_three_nodes_are_not_three_times_as_many(tmp_path, name):
    file = tmp_path / "passwords"
    command = [BINARY, "passwd", str(file), "bob", "--stdin"]
    subprocess.run(command, input=b"correct horse\n", check=True, capture_output=True, timeout=60)
    sets = {
        "authentication.chain.kind": "passwordFile",
        "authentication.chain.file": file,
        "abuse.failedLogins": ALLOWED,
        "abuse.failedLoginWaitSeconds": 3600,
        "abuse.includeLoopback": True,
    }
    with Cluster(3, sets) as cluster:
        a, b, c = cluster.nodes
        assert [login(a, name, "bob", b"guess %d" % n) for n in range(ALLOWED)] == ALLOWED * [WRONG]
        # The others hear of it, and look at none as long as the wait lasts, at first 1 s: a slow test meets its end, and
        # each further guess doubles it.
        for node in (b, c):
            until(lambda node=node: heard_of(node) == ALLOWED, SETTLE_S, "the others are to hear of all attempts")
            until(lambda node=node: login(node, name, "bob", b"guess") == WAIT, SETTLE_S, "it is to wait there, too")
            assert looked_at(node) < ALLOWED // 2

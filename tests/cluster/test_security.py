"""Who becomes a member, and who does not: secrets, certificates, names that have other addresses by now."""

import pathlib
import time

import pytest
from harness.pki import Authority
from harness.wait import until
from staged.cluster import CLUSTER, Cluster
from staged.network import may_isolate

# For how long a stranger knocks in vain.
KNOCKS_S = 4


@pytest.fixture
def empty():
    with Cluster(0) as cluster:
        yield cluster


def member(cluster, **settings):
    """A node that is not started, with settings of its own."""
    node = cluster.add()
    node.sets = {f"clusterConfig.{key}": str(value) for key, value in settings.items()}
    return node


def secret(tmp_path, text):
    path = tmp_path / text
    path.write_text(text)
    path.chmod(0o600)
    return {"secretFile": path}


def certificate(authority, node, **settings):
    leaf = authority.issue(f"{node.place.address}-{time.monotonic_ns()}", address=node.place.address)
    files = {"certFile": leaf.cert, "keyFile": leaf.key, "caFile": authority.path} | settings
    node.sets |= {f"clusterConfig.sslConfig.{key}": path for key, path in files.items()}


def two_are_formed(cluster, one, two, name):
    one.start(bootstrap=True)
    two.start()
    cluster.settled()
    with one.client(f"{name}a") as sender, two.client(f"{name}b") as receiver:
        receiver.subscribe(name, qos=1)
        sender.published(name, b"across", qos=1)
        assert receiver.message().payload == b"across"


def stays_outside(stranger, inside):
    """It knocks for a while, its seed says so in its log, and nobody has it as a member."""
    stranger.start(seeds=[inside.endpoint], ready=False)
    until(lambda: any(stranger.place.address in line for line in list(inside.broker.log_text)), what="words of a member")
    end = time.monotonic() + KNOCKS_S
    until(lambda: time.monotonic() > end, KNOCKS_S + 5)
    assert not stranger.broker.find("ready")
    assert all(node["address"] != stranger.endpoint for node in inside.status()["nodes"])


@pytest.mark.quick
@pytest.mark.parametrize("other", ["another", "none"])
def test_a_node_needs_the_secret(empty, tmp_path, name, other):
    one, two = (member(empty, **secret(tmp_path, "right")) for _ in range(2))
    two_are_formed(empty, one, two, name)
    settings = secret(tmp_path, "wrong") if other == "another" else {}
    stays_outside(member(empty, **settings), one)


@pytest.mark.parametrize("other", ["a foreign authority", "no certificate"])
def test_a_node_needs_a_certificate(empty, tmp_path, name, other):
    authority = Authority(tmp_path)
    one, two, stranger = (member(empty) for _ in range(3))
    certificate(authority, one)
    certificate(authority, two)
    two_are_formed(empty, one, two, name)
    if other == "a foreign authority":
        certificate(Authority(tmp_path, "foreign"), stranger, caFile=authority.path)
    stays_outside(stranger, one)


def test_a_certificate_that_is_not_for_the_nodes_host_is_refused_at_the_start(empty, tmp_path):
    node = member(empty)
    leaf = (authority := Authority(tmp_path)).issue("other", address="127.0.0.9")
    certificate(authority, node, certFile=leaf.cert, keyFile=leaf.key)
    node.start(bootstrap=True, ready=False)
    until(lambda: node.broker.process.poll() is not None, what="the end of the process")
    assert node.broker.process.returncode == 2
    assert any(node.place.address in line and "certificate" in line for line in node.broker.log_text)


@pytest.mark.skipif(not may_isolate(), reason="only a namespace has names of its own")
@pytest.mark.parametrize("by", ["seedEndpoints", "clusterDomainName"])
def test_names_are_resolved_again(empty, by):
    seed, other = member(empty), member(empty)
    # What is bound over /etc in a namespace.
    folder = pathlib.Path("/etc/netns") / other.place.prefix[-1]
    folder.mkdir(parents=True)
    hosts = folder / "hosts"
    try:
        hosts.write_text("10.77.255.1 seed.test\n")
        if by == "clusterDomainName":
            other.sets = {"clusterConfig.clusterDomainName": "seed.test", "clusterConfig.seedEndpoints": ""}
        other.start(seeds=[f"seed.test:{CLUSTER}"], ready=False)
        seed.start(bootstrap=True)
        until(lambda: any("waits for a member" in line for line in list(other.broker.log_text)), what="a node that waits")
        hosts.write_text(f"{seed.place.address} seed.test\n")
        empty.settled()
    finally:
        hosts.unlink()
        folder.rmdir()

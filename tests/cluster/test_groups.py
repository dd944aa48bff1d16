"""Shared groups while inbox shards change their leaders (P1, P7): nothing that was acknowledged is lost."""

import collections
import contextlib
import os
import threading

import pytest
from harness.wait import until
from staged.cluster import Cluster

DURABLE = {"session_expiry": 3600}
MOVES = int(os.environ.get("HERALD_MOVES", "12"))
# Messages of each publisher from one move to the next.
BETWEEN = 40


@pytest.fixture(scope="module")
def cluster():
    with Cluster(3, {"limits.session.queueMessages": 100_000}) as cluster:
        yield cluster


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_member_on_another_node_gets_what_members_here_may_not_receive(tmp_path, name, qos, durable):
    rules = tmp_path / "rules"
    rules.write_text(f"deny client {name}-a* receive {name}/t\n")
    fields = dict(clean=not durable, props=DURABLE if durable else None)
    payloads = [str(number).encode() for number in range(30)]
    with Cluster(2, {"authorization.file": str(rules)}) as cluster, contextlib.ExitStack() as stack:
        here, there = cluster.nodes
        for number in range(3):
            denied = stack.enter_context(here.client(f"{name}-a{number}", **fields))
            denied.subscribe(f"$share/{name}/{name}/t", qos=qos)
        member = stack.enter_context(there.client(f"{name}-b", **fields))
        member.subscribe(f"$share/{name}/{name}/t", qos=qos)
        publisher = stack.enter_context(here.client(f"{name}-p"))
        for payload in payloads:
            publisher.published(f"{name}/t", payload, qos=qos)
        assert sorted(m.payload for m in member.take(len(payloads))) == sorted(payloads)


class Publisher(threading.Thread):
    """Publishes one message after the other, each when the one before is acknowledged."""

    def __init__(self, client, topic, qos):
        super().__init__(daemon=True)
        self.client, self.topic, self.qos = client, topic, qos
        self.sent, self.ends = [], False
        self.start()

    def run(self):
        while not self.ends:
            payload = f"{self.topic}/{len(self.sent)}".encode()
            self.client.published(self.topic, payload, qos=self.qos)
            self.sent.append(payload)

    def end(self):
        self.ends = True
        self.join()


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
@pytest.mark.parametrize("qos", [1, 2])
def test_an_absent_member_gets_what_is_acknowledged_while_its_shard_moves(cluster, name, qos, durable):
    member = dict(client_id=f"{name}m", clean=False, props=DURABLE)
    with cluster.nodes[0].client(**member) as absent:
        absent.subscribe(f"$share/{name}/{name}/#", qos=2)
    publishers = []
    for n, node in enumerate(cluster.nodes):
        client = node.client(f"{name}p{n}", clean=not durable, props=DURABLE if durable else None)
        publishers.append(Publisher(client, f"{name}/{n}", qos))
    for _ in range(MOVES):
        enough = [len(publisher.sent) + BETWEEN for publisher in publishers]
        cluster.move()
        until(lambda: all(len(p.sent) >= n for p, n in zip(publishers, enough)), what="publications")
    for publisher in publishers:
        publisher.end()
        publisher.client.close()
    sent = [payload for publisher in publishers for payload in publisher.sent]
    with cluster.nodes[1].client(**member) as back, cluster.nodes[2].client() as last:
        last.published(f"{name}/end", b"end", qos=1)
        got = [message.payload for message in back.until(b"end")]
    doubled = [payload for payload, n in collections.Counter(got).items() if n > 1]
    assert qos < 2 or not doubled
    lost = sorted(set(sent) - set(got))
    assert not lost
    for publisher in publishers:
        own = [payload for payload in got if payload.startswith(publisher.topic.encode() + b"/")]
        assert list(dict.fromkeys(own)) == publisher.sent

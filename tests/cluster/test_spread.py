"""Clients are spread over the nodes: moved when a person asks for it, or sent on when they connect."""

import collections
import threading
import time

import pytest
from harness import raw
from harness.raw import CONNACK, DISCONNECT, PUBLISH, Closed
from harness.wait import DEADLINE_S, until
from staged.cluster import MQTT, Cluster

DURABLE = {"session_expiry": 3600}
USE_ANOTHER_SERVER = 0x9C
SHUTTING_DOWN = 0x8B
# MQTT 3.1.1: the server is unavailable.
UNAVAILABLE = 3


class Member(threading.Thread):
    """A client that goes where it is told to, or back to where it was; with a durable session and a topic of its own."""

    def __init__(self, client_id, node):
        super().__init__(daemon=True)
        self.client_id, self.host = client_id, node.place.address
        self.moves: list[str] = []
        self.got: collections.Counter = collections.Counter()
        self.is_over = False
        self.online = threading.Event()
        self.client: raw.Raw | None = None
        self.start()

    def run(self):
        while not self.is_over:
            try:
                with raw.Raw(MQTT, host=self.host, timeout=DEADLINE_S) as self.client:
                    self.live(self.client)
            except (Closed, OSError):
                continue

    def live(self, client):
        client.send(raw.connect(self.client_id, clean=False, keep_alive=0, props=DURABLE))
        answer = client.recv()
        if answer.kind == CONNACK and answer.reason == USE_ANOTHER_SERVER:
            self.host = answer.props["server_reference"].rsplit(":", 1)[0]
            return
        assert (answer.kind, answer.reason) == (CONNACK, 0), answer
        if not answer.session_present:
            client.subscribe(f"to/{self.client_id}", qos=1)
        self.online.set()
        while not self.is_over:
            try:
                packet = client.recv(1)
            except TimeoutError:
                continue
            if packet.kind == DISCONNECT and packet.reason == SHUTTING_DOWN:
                return
            if packet.kind == DISCONNECT:
                assert packet.reason == USE_ANOTHER_SERVER, packet
                self.online.clear()
                self.moves.append(packet.props["server_reference"])
                self.host = self.moves[-1].rsplit(":", 1)[0]
                return
            if packet.kind == PUBLISH:
                self.got[bytes(packet.payload)] += 1
                client.send(raw.ack(raw.PUBACK, packet.pid))

    def end(self):
        self.is_over = True


@pytest.fixture
def crowd():
    members: list[Member] = []

    def join(count, node, prefix):
        members.extend(Member(f"{prefix}{number}", node) for number in range(count))
        for member in members[-count:]:
            assert member.online.wait(DEADLINE_S), member.client_id
        return members

    yield join
    for member in members:
        member.end()
    for member in members:
        member.join(DEADLINE_S)


def connections(node) -> dict:
    return {n["node"]: n.get("connections") or 0 for n in node.status()["nodes"] if n["reach"] == "up"}


def test_a_node_that_was_added_takes_its_share(name, crowd):
    """While messages come to all clients; what is acknowledged arrives, and nobody is moved twice."""
    with Cluster(3) as cluster:
        for number, node in enumerate(cluster.nodes):
            members = crowd(80, node, f"{name}{number}")
        added = cluster.add()
        added.start()
        cluster.settled()
        first = cluster.nodes[0]
        until(lambda: sorted(connections(first).values()) == [0, 80, 80, 80], what="what all have")
        share = lambda: first.broker.metric("heraldmq_connections_most_to_mean")
        until(lambda: share() == pytest.approx(80 / 60), what=share)
        said = first.command("rebalance", "--dry-run")
        assert "most on one: 80 (1.33 of the mean)" in said and not any(member.moves for member in members), said
        acknowledged, is_over = [], threading.Event()

        def publish():
            with cluster.nodes[1].client(name + "publisher") as publisher:
                for number in range(10**9):
                    if is_over.is_set():
                        return
                    payload = f"{number}".encode()
                    member = members[number % len(members)]
                    publisher.published(f"to/{member.client_id}", payload)
                    acknowledged.append((member, payload))

        publishing = threading.Thread(target=publish)
        publishing.start()
        began = time.monotonic()
        done = first.asked("rebalance", "--per-second", 20, "--wait", 50)
        took = time.monotonic() - began
        is_over.set()
        publishing.join(DEADLINE_S)
        assert done.returncode == 0, done
        counts = connections(first)
        print(f"{done.stdout.splitlines()[-1]}; {took:.1f} s; moved {sum(len(m.moves) for m in members)}")
        assert max(counts.values()) <= 1.1 * sum(counts.values()) / 4, counts
        assert all(len(member.moves) <= 1 for member in members)
        # At 20 a second, each of the three nodes needs a second for what it has too many.
        assert {move for member in members for move in member.moves} == {f"{added.place.address}:{MQTT}"}
        assert acknowledged
        lost = lambda: [payload for member, payload in acknowledged if not member.got[payload]]
        until(lambda: not lost(), what=lambda: f"lost: {lost()[:10]}")
        # A second one finds nothing to do, and moves nobody.
        again = first.asked("rebalance", "--wait", 30)
        assert again.returncode == 0 and all(len(member.moves) <= 1 for member in members), again


def test_it_stops_when_a_person_says_so(name, crowd):
    with Cluster(2) as cluster:
        first, second = cluster.nodes
        members = crowd(60, first, name)
        until(lambda: sorted(connections(second).values()) == [0, 60], what="what both have")
        # By the other node.
        second.command("rebalance", "--per-second", 1)
        until(lambda: any(member.moves for member in members), what="the first that is moved")
        second.command("rebalance", "--stop")
        log = lambda: first.broker.find("clients were moved to other nodes")
        until(log, what="the end")
        moved = sum(line["moved"] for line in log())
        assert 1 <= moved < 30 and sum(len(member.moves) for member in members) == moved


def test_one_node_has_nobody_to_give_clients_to(name):
    with Cluster(1) as cluster:
        refused = cluster.nodes[0].asked("rebalance")
        assert refused.returncode == 1 and "no other node is up" in refused.stderr, refused


def offered(node, client_id, version) -> tuple:
    """What a CONNECT comes to: the reason, and where the client is sent."""
    with raw.Raw(MQTT, host=node.place.address, version=version) as client:
        client.send(raw.connect(client_id, version=version))
        answer = client.expect(CONNACK)
        return answer.reason, answer.props.get("server_reference") if version == 5 else None


@pytest.mark.parametrize("mode", ["redirect", "refuse"])
def test_a_node_with_more_than_its_share_sends_clients_on(name, mode):
    with Cluster(2, {"clusterConfig.spreadAtConnect": mode}) as cluster:
        first, second = cluster.nodes
        with_some = [first.client(f"{name}-{number}") for number in range(40)]
        elsewhere = f"{second.place.address}:{MQTT}"
        # Not all of them stayed, and those that did not were told where to go.
        until(lambda: offered(first, name, 5) == (USE_ANOTHER_SERVER, elsewhere), what="a client that is sent on")
        answers = [offered(first, f"{name}five{number}", 5) for number in range(20)]
        assert set(answers) == {(0, None), (USE_ANOTHER_SERVER, elsewhere)}, answers
        # At each event loop every second one at most.
        assert 1 <= answers.count((USE_ANOTHER_SERVER, elsewhere)) <= 10, answers
        four = {offered(first, f"{name}four{number}", 4) for number in range(20)}
        assert four == ({(0, None)} if mode == "redirect" else {(0, None), (UNAVAILABLE, None)})
        # The other one takes all.
        assert {offered(second, f"{name}other{number}", 5) for number in range(10)} == {(0, None)}
        causes = first.broker.api("/api/v1/refused-logins")["items"]
        assert {item["cause"] for item in causes} == {"sent_to_another_node"}
        for client in with_some:
            client.close()
        until(lambda: connections(first)[first.id] == 0, what="no client")
        until(lambda: all(offered(first, name, 5)[0] == 0 for _ in range(4)), what="a node that sends nobody on")

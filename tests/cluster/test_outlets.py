"""Outlets in a cluster: the leader of the inbox shard of their session runs them, whatever happens to it.

P1, P4. While messages are published at all nodes, a lead is moved, a node is killed, cut off, drained or restarted. In the end
the target has everything that was acknowledged to a publisher, and each line that came again is explained. A position that is
there twice is that of a message whose acknowledgement by the outlet was lost with its leader. A text with two positions is one
that its publisher has sent again, or the one message of a publisher that was under way when a leader was lost: a node sends a
request of QoS 1 again, to the next leader.
"""

import collections
import contextlib
import json
import os
import signal
import threading

import pytest
from harness import raw
from harness.raw import PUBACK, Closed
from harness.sinks import HttpSink
from harness.wait import until
from staged.cluster import Cluster
from staged.network import network
from test_api import ask

BATCH = 16
# Messages that are with a process and not acknowledged: its Receive Maximum.
HELD = 2 * BATCH
# The only inbox shard has the session of each outlet.
SHARD = ("inbox", 0)


def outlet(target, name="lake") -> dict:
    batch = {"messages": BATCH, "lingerMs": 5}
    return {"name": name, "source": {"filter": "plant/#"}, "target": target, "batch": batch}


@pytest.fixture
def staged():
    """Three nodes, and the HTTP server that their outlet goes to."""
    places = network()
    with HttpSink(host=places.outside) as sink:
        outlets = [outlet({"http": {"url": sink.url, "timeoutSeconds": 10}})]
        with Cluster(3, places=places, more=lambda _node: {"outlets": outlets}) as cluster:
            runs(cluster)
            yield cluster, sink


def row(node, name="lake") -> dict:
    status, body = ask(node, f"/api/v1/outlets/{name}")
    assert status == 200, body
    return body


def runner(nodes, state):
    """The node that says that it runs the outlet, and that this is its state."""

    def found():
        for node in nodes:
            with contextlib.suppress(OSError):
                one = row(node)
                if one["state"] == state and one["node"] == node.id:
                    return node
        return None

    return found


def runs(cluster, state="running", nodes=None):
    """Waits until a node runs the outlet, and all nodes name it."""
    nodes = nodes or cluster.running()

    def agreed():
        node = runner(nodes, state)()
        return node if node and {row(each)["node"] for each in nodes} == {node.id} else None

    return until(agreed, what=lambda: f"one node that runs the outlet: {[row(node) for node in nodes]}")


class Publisher:
    """Publishes at one node until it is ended, one message after the other; what has no answer in time, or is refused, is
    sent again."""

    def __init__(self, node, number):
        self.node, self.number = node, number
        self.acknowledged: list[str] = []
        self.again: set[str] = set()
        self.is_ending = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        client, count = None, 0
        while not self.is_ending.is_set():
            text = f"{self.number}-{count:06}"
            try:
                if client is None:
                    host, port = self.node.mqtt
                    client = raw.Raw(port, host=host, timeout=3)
                    client.connect()
                client.published("plant/a", text.encode(), qos=1)
                self.acknowledged.append(text)
                count += 1
            except (OSError, Closed, AssertionError):
                self.again.add(text)
                if client:
                    client.close()
                client = None
                self.is_ending.wait(0.1)
        if client:
            client.close()

    def end(self):
        self.is_ending.set()
        self.thread.join()


class Publishers:
    """Context manager around a publisher at each node."""

    def __init__(self, cluster):
        self.all = [Publisher(node, number) for number, node in enumerate(cluster.nodes)]

    def go_on(self, nodes=None, count=3 * BATCH):
        """Waits until so many messages more are acknowledged at each of these nodes."""
        some = [one for one in self.all if nodes is None or one.node in nodes]
        goals = [(one, len(one.acknowledged) + count) for one in some]
        until(lambda: all(len(one.acknowledged) >= goal for one, goal in goals), what="acknowledgements")

    def end(self):
        for one in self.all:
            one.end()

    @property
    def acknowledged(self) -> set[str]:
        return {text for one in self.all for text in one.acknowledged}

    @property
    def again(self) -> set[str]:
        return {text for one in self.all for text in one.again}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def place_of(line) -> tuple[int, int]:
    incarnation, sequence = line["position"].split(".")
    return int(incarnation), int(sequence)


def has_all(publishers, lines):
    """Waits until everything that was acknowledged is there."""

    def missing():
        return publishers.acknowledged - {line["text"] for line in lines()}

    until(lambda: not missing(), what=lambda: f"{sorted(missing())[:10]} of {len(missing())}")


def explained(publishers, lines, lost=0) -> int:
    """Everything is there, in the order of the publishers, and what is there twice has a reason: so many leaders were lost.
    Gives how many lines are of a message that was there before."""
    texts, first = collections.defaultdict(set), {}
    for line in lines:
        place, text = place_of(line), line["text"]
        texts[text].add(place)
        assert first.setdefault(place, text) == text, f"{place} is {text} and {first[place]}"
    seen = list(first)
    assert seen == sorted(seen), "a message came before one that stood before it"
    doubled = len(lines) - len(first)
    print(f"{doubled} of {len(lines)} lines came again")
    sent_twice = {text for text, places in texts.items() if len(places) > 1}
    under_way = collections.Counter(text.split("-")[0] for text in sent_twice - publishers.again)
    assert all(count <= lost for count in under_way.values()), sorted(sent_twice - publishers.again)
    assert publishers.acknowledged <= set(texts), sorted(publishers.acknowledged - set(texts))[:10]
    for one in publishers.all:
        of_it = [text for text in dict.fromkeys(first.values()) if text.startswith(f"{one.number}-")]
        assert of_it == sorted(of_it), f"the order of publisher {one.number}"
    return doubled


def judged(publishers, sink, lost=0) -> int:
    publishers.end()
    has_all(publishers, sink.lines)
    return explained(publishers, sink.lines(), lost)


def moves(cluster) -> int:
    """Moves the lead until another node runs the outlet; balancing may move it back. Gives how often it was moved away."""
    before, count = runs(cluster), 0

    def is_elsewhere():
        nonlocal count
        with contextlib.suppress(AssertionError):
            if cluster.leads_now(*SHARD) is before:
                other = next(node for node in cluster.nodes if node is not before)
                before.command("transfer-leader", *map(str, SHARD), other.id)
                count += 1
        return runner(cluster.nodes, "running")() not in (None, before)

    until(is_elsewhere, what=lambda: f"another node to run the outlet: {[row(node) for node in cluster.nodes]}")
    return count


@pytest.mark.quick("P1", "P4")
def test_messages_of_all_nodes_arrive_once_and_in_order(staged):
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on(count=10 * BATCH)
        assert judged(publishers, sink) == 0
        assert publishers.again == set()

    # Balancing may move the lead at any time, and counts are those of the node that runs it.
    def agree():
        with contextlib.suppress(AssertionError, TypeError):
            where = cluster.leads_now(*SHARD)
            rows = {node: row(node) for node in cluster.nodes}
            # Each node has asked the one that runs it.
            seen = [(one["state"], one["paused"], one["figures"]["process"], one["figures"]["delivered"]) for one in rows.values()]
            return (
                all(one["node"] == where.id for one in rows.values())
                and seen == [("running", False, seen[0][2], seen[0][3])] * len(seen)
                and rows[where]["figures"]["lag_messages"] == 0
            )

    until(agree, what=lambda: [row(node) for node in cluster.nodes])


@pytest.mark.quick("P1", "P4")
def test_the_lead_is_moved(staged):
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on()
        count = moves(cluster)
        publishers.go_on()
        runs(cluster)
        # Balancing has moved it back as often, at most.
        doubled = judged(publishers, sink, 2 * count)
        assert doubled <= 2 * count * HELD


@pytest.mark.quick("P1", "P4")
def test_the_node_that_runs_it_is_killed_and_comes_back(staged):
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on()
        victim = runs(cluster)
        others = [node for node in cluster.nodes if node is not victim]
        victim.kill()
        assert runs(cluster, nodes=others) is not victim
        publishers.go_on(others)
        victim.start()
        cluster.settled()
        publishers.go_on()
        runs(cluster)
        # Its lead may be given back to it afterwards.
        assert judged(publishers, sink, 2) <= 2 * HELD


def test_the_node_that_runs_it_is_cut_off(staged):
    """Its process still reaches the target, and delivers what it holds; acknowledgements of that are not stored."""
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on()
        victim = runs(cluster)
        others = [node for node in cluster.nodes if node is not victim]
        cluster.cut_off(victim)
        until(lambda: runner(others, "running")(), what=lambda: f"another one: {[row(node) for node in others]}")
        publishers.go_on(others)
        # Of two processes one stops by itself.
        until(lambda: row(victim)["state"] == "elsewhere", what=lambda: row(victim))
        publishers.go_on(others)
        cluster.network.heal()
        cluster.settled()
        publishers.go_on()
        runs(cluster)
        # Its lead may be given back to it afterwards.
        assert judged(publishers, sink, 2) <= 2 * HELD


def test_the_node_that_runs_it_stands_still(staged):
    """It goes on where it was, when another node leads."""
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on()
        victim = runs(cluster)
        others = [node for node in cluster.nodes if node is not victim]
        victim.pause()
        assert runs(cluster, nodes=others) is not victim
        publishers.go_on(others)
        victim.resume()
        cluster.settled()
        publishers.go_on()
        runs(cluster)
        # Its lead may be given back to it afterwards.
        assert judged(publishers, sink, 2) <= 2 * HELD


def test_the_node_that_runs_it_is_drained(staged):
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on()
        drained = runs(cluster)
        others = [node for node in cluster.nodes if node is not drained]
        drained.command("drain")
        until(lambda: row(others[0])["node"] != drained.id, what=lambda: row(others[0]))
        assert runs(cluster) is not drained
        publishers.go_on(others)
        drained.command("drain", "--end")
        publishers.go_on()
        assert judged(publishers, sink, 2) <= 2 * HELD


def test_nodes_are_restarted_one_after_another(staged):
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        for node in cluster.nodes:
            publishers.go_on()
            node.stop()
            others = [other for other in cluster.nodes if other is not node]
            publishers.go_on(others)
            node.start(ready=False)
            cluster.settled()
        runs(cluster)
        publishers.go_on()
        # A lead may be moved when a node stops, and when it is back.
        assert judged(publishers, sink, 6) <= 6 * HELD


def test_a_pause_counts_at_all_nodes_and_outlives_the_one_that_runs_it(staged):
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on()
        victim = runs(cluster)
        others = [node for node in cluster.nodes if node is not victim]
        assert ask(others[0], "/api/v1/outlets/lake/pause", "POST")[0] == 204
        assert runs(cluster, "paused") is victim
        arrived = len(sink.lines())
        publishers.go_on()
        victim.kill()
        assert runs(cluster, "paused", others) is not victim
        publishers.go_on(others)
        assert len(sink.lines()) == arrived
        victim.start()
        cluster.settled()
        runs(cluster, "paused")
        assert ask(victim, "/api/v1/outlets/lake/resume", "POST")[0] == 204
        runs(cluster)
        assert judged(publishers, sink, 2) <= HELD


def test_a_process_that_hangs_is_ended_when_another_node_leads(staged):
    """As one does that writes to a file system that does not answer. Its node can run the outlet again afterwards."""
    cluster, sink = staged
    with Publishers(cluster) as publishers:
        publishers.go_on()
        node = runs(cluster)
        process = row(node)["figures"]["process"]
        os.kill(process, signal.SIGSTOP)
        count = moves(cluster)
        publishers.go_on()
        until(lambda: not os.path.exists(f"/proc/{process}"), what="the end of the process")
        while runs(cluster) is not node:
            count += moves(cluster)
        publishers.go_on()
        doubled = judged(publishers, sink, 2 * count)
        assert doubled <= 2 * count * HELD


def test_each_node_has_a_file_of_its_own(tmp_path):
    """What is in a file is there once, and what is in two is the batch that the node before had not acknowledged."""

    def path(node):
        return tmp_path / f"{node}.ndjson"

    def more(node):
        return {"outlets": [outlet({"file": {"path": str(path(node))}})]}

    with Cluster(3, more=more) as cluster, Publishers(cluster) as publishers:

        def lines(node):
            written = path(node).read_text().splitlines(keepends=True) if path(node).exists() else []
            return [json.loads(line) for line in written if line.endswith("\n")]

        publishers.go_on()
        victim = runs(cluster)
        others = [node for node in cluster.nodes if node is not victim]
        victim.kill()
        runs(cluster, nodes=others)
        publishers.go_on(others)
        victim.start()
        cluster.settled()
        publishers.go_on()
        publishers.end()
        runs(cluster)
        has_all(publishers, lambda: [line for node in cluster.nodes for line in lines(node)])
        for node in cluster.nodes:
            places = [place_of(line) for line in lines(node)]
            assert places == sorted(set(places)), node
        everything = sorted((line for node in cluster.nodes for line in lines(node)), key=place_of)
        assert explained(publishers, everything, 2) <= 2 * HELD

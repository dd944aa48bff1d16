"""The audit of a cluster: each node has the same chain, with each change and each note once, whichever node fails meanwhile."""

import http.client
import json
import random
import re

import pytest
from harness.broker import run
from harness.wait import until
from staged.cluster import HTTP, SETTLE_S, Cluster
from test_access import CHAIN, CHANGES, NoAnswer, Writers, add, agree, asked, done, stopped_and_verified


def export(node) -> bytes:
    connection = http.client.HTTPConnection(node.place.address, HTTP, timeout=SETTLE_S)
    headers = {"authorization": f"Bearer {node.cluster.token.read_text()}"}
    connection.request("GET", "/api/v1/audit/export", headers=headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 200, text
    return text


def entries(text) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()[1:-1]]


def verified(text, *args):
    """The exit code of `heraldmq audit verify`, and what it says."""
    done = run("audit", "verify", "-", *args, input=text.decode())
    return done.returncode, done.stdout + done.stderr


def whole(text, *args) -> bool:
    code, said = verified(text, *args)
    assert (code == 0) == said.startswith("whole: "), said
    return code == 0


def noted(node, action) -> list[str]:
    """The targets of the notes of an action, the first one first."""
    try:
        status, page = asked(node, "GET", f"/audit?action={action}&limit=500")
    except NoAnswer:
        return []
    assert status in (200, 503), page
    return [entry["target"] for entry in reversed(page["items"])] if status == 200 else []


def the_same(cluster) -> bytes:
    """What all nodes export, when all have the same."""

    def same():
        first, *others = map(export, cluster.nodes)
        return first if all(other == first for other in others) else None

    return until(same, SETTLE_S, "one audit at all nodes")


def expect_told(text, draw):
    """Each character that is another one than it was is told with its entry."""
    lines = text.splitlines(keepends=True)
    for number in [0, len(lines) - 3, *draw.sample(range(len(lines) - 2), 4)]:
        line = lines[number + 1]
        entry = json.loads(line)
        said = {
            "bytes": rf"entry {number} was changed",
            "hash": rf"entry {number} was changed",
            "actor": rf"what entry {number} says in words",
            "target": rf"what entry {number} says in words",
        }
        for field, why in said.items():
            begin = line.index(f'"{field}":"{entry[field]}"'.encode()) + len(f'"{field}":"')
            at = begin + draw.randrange(len(entry[field]))
            other = b"1" if line[at : at + 1] != b"1" else b"2"
            changed = [*lines[: number + 1], line[:at] + other + line[at + 1 :], *lines[number + 2 :]]
            code, told = verified(b"".join(changed))
            assert code == 1 and re.search(why, told), (field, at, told)


def test_each_change_is_in_the_audit_of_each_node_once_while_each_node_is_killed(name):
    with Cluster(3, **CHAIN) as cluster:
        heads = []
        with Writers(cluster.nodes, name, CHANGES) as writers:
            rounds = len(cluster.nodes)
            for number, node in enumerate(cluster.nodes):
                writers.reached(CHANGES * (2 * number + 1) // (2 * rounds + 1))
                heads.append(done(node, "GET", "/audit/head")["head"])
                node.kill()
                writers.reached(CHANGES * (2 * number + 2) // (2 * rounds + 1))
                node.start(ready=False)
                cluster.settled()
            writers.finish()
        agree(cluster.nodes, CHANGES)
        text = the_same(cluster)
        for head in heads:
            assert whole(text, "--head", head)
        code, said = verified(text, "--head", "0123456789abcdef" * 4)
        assert code == 1 and "not among the entries" in said, said
        kept = entries(text)
        assert [entry["revision"] for entry in kept] == [*range(1, CHANGES + 1)]
        assert {entry["action"] for entry in kept} == {"user.add", "user.remove"}
        added = {entry["target"]: entry["revision"] for entry in kept if entry["action"] == "user.add"}
        removed = [entry["target"] for entry in kept if entry["action"] == "user.remove"]
        assert len(added) + len(removed) == CHANGES and len({*removed}) == len(removed)
        assert added.keys() - {*removed} == writers.kept.keys()
        wrong = {user: told for user, told in writers.kept.items() if told not in (None, added[user])}
        assert not wrong, wrong
        expect_told(text, random.Random(name))
        # The same after all nodes were killed.
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start(ready=False)
        cluster.settled()
        agree(cluster.nodes, CHANGES)
        assert the_same(cluster) == text
        stopped_and_verified(cluster)


def pending(node) -> str:
    """The notes that a node has written down."""
    file = node.data_dir / "audit.pending"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("end", ["goes-on", "killed", "killed-again"])
def test_what_is_noted_while_nobody_leads_the_store_is_in_the_audit_once(name, end):
    with Cluster(3, **CHAIN) as cluster:
        add(cluster.nodes[0], name)
        agree(cluster.nodes, 1)
        alone, *others = cluster.nodes
        draining = alone.id
        done(alone, "POST", "/bans", {"client": f"{name}early"})
        until(lambda: len(noted(others[0], "bans.add")) == 1, SETTLE_S, "the note of a ban")
        for other in others:
            other.kill()
        ban, last = f"{name}late", f"{name}last"
        done(alone, "POST", "/bans", {"client": ban})
        until(lambda: ban in pending(alone), SETTLE_S, "a file with the note")
        for _ in range(["goes-on", "killed", "killed-again"].index(end)):
            alone.kill()
            assert ban in pending(alone)
            alone.start(ready=False)
            until(lambda: alone.broker.find("listening", kind="http"), SETTLE_S, "its HTTP port")
        for other in others:
            other.start(ready=False)
        cluster.settled()
        status, answer = asked(alone, "POST", f"/nodes/{draining}/drain", {})
        assert status == 202, answer
        done(alone, "POST", "/bans", {"client": last})
        # Notes of a node arrive in their order: when the last one is there, nothing of before comes any more.
        for node in cluster.nodes:
            until(lambda node=node: last in noted(node, "bans.add"), SETTLE_S, "the note of the last ban")
        text = the_same(cluster)
        assert whole(text)
        bans = [entry["target"] for entry in entries(text) if entry["action"] == "bans.add"]
        assert bans == [f"{name}early", ban, last]
        assert [entry["action"] for entry in entries(text)].count("nodes.drain") == 1
        assert ban not in pending(alone)
        stopped_and_verified(cluster)

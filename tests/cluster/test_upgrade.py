"""A cluster of the program `HERALDMQ_BEFORE`, whose nodes are upgraded one after the other under load."""

import pytest
from harness.broker import BEFORE, BINARY
from harness.wait import until
from staged.cluster import Cluster
from staged.load import FOREVER, Load
from staged.upgrade import STEP_S, change, finish, in_step, level_of, raised, say_nothing_wrong, upgrade
from test_api import ask

pytestmark = [
    pytest.mark.skipif(not BEFORE, reason="HERALDMQ_BEFORE names no program of an earlier version"),
    pytest.mark.timeout(400),
]

# Bytes of client identifiers.
LENGTHS = (0, 36, 41, 60_000)


def test_nodes_are_upgraded_one_after_the_other(name):
    with Cluster(3, binary=BEFORE) as cluster:
        with Load(cluster.nodes, name, rate=10, lengths=LENGTHS) as load:
            load.begin()
            for node in cluster.nodes:
                change(load, cluster, node, BINARY)
            for node in cluster.nodes:
                node.kill()
            for node in cluster.nodes:
                node.start(ready=False)
            load.until(lambda: in_step(cluster), STEP_S, lambda: f"replicas: {cluster.views(cluster.nodes)}")
            load.go_on()
            load.finish()
        say_nothing_wrong(cluster)


@pytest.mark.parametrize("is_paused", [True, False], ids=["paused", "down"])
def test_a_node_of_the_version_before_follows_what_it_has_missed(is_paused, name):
    """The second node has not met the third since its upgrade: what a request calls a session, the third must
    understand."""
    with Cluster(3, binary=BEFORE) as cluster:
        first, second, last = cluster.nodes
        topics = [f"{name}/{length}" for length in LENGTHS]
        identifiers = dict(zip(topics, [f"{name}{n}".ljust(length, "x") for n, length in enumerate(LENGTHS)]))

        def exchange(node, is_new=False):
            for topic, identifier in identifiers.items():
                with node.client(identifier, clean=False, props=FOREVER, session_present=not is_new) as client:
                    client.subscribe(topic, qos=2)
                    client.published(topic, b"first", qos=2)
                    client.published(topic, b"second", qos=1)
                    assert [m.payload for m in client.take(2)] == [b"first", b"second"]
                    client.disconnect()

        exchange(second, is_new=True)
        if not is_paused:
            last.kill()
        first.stop()
        upgrade(first)
        cluster.settled()
        if is_paused:
            last.pause()
        second.stop()
        upgrade(second)
        cluster.settled()
        exchange(second)
        last.resume() if is_paused else last.start(ready=False)
        cluster.settled(timeout=STEP_S)
        # The majority needs the third from now on.
        first.kill()
        cluster.settled(timeout=STEP_S)
        exchange(second)
        upgrade(first)
        last.stop()
        upgrade(last)
        cluster.settled(timeout=STEP_S)
        exchange(last)
        say_nothing_wrong(cluster)


def test_nodes_of_both_versions_answer_what_people_ask_each_other(name):
    """What nodes send each other then has the form that both read: nobody is left out, and all say the same."""
    lists = [
        f"/clients?prefix={name}",
        f"/clients?prefix={name}&durable=true",
        f"/clients/{name}0/subscriptions",
        f"/clients/{name}1/subscriptions",
        f"/retained?filter={name}/%23",
        f"/retained/levels?below={name}",
        f"/sessions/{name}away/queue",
        f"/shared-groups",
        "/listeners",
        "/drops",
    ]
    others = ["/nodes", "/shards", "/queues", "/stats", "/stats/history", "/top/publishers", "/health", f"/clients/{name}0"]
    with Cluster(3, binary=BEFORE) as cluster:
        first, second, _ = cluster.nodes
        first.stop()
        upgrade(first)
        cluster.settled(timeout=STEP_S)
        with (
            first.client(f"{name}0", props=FOREVER) as one,
            second.client(f"{name}1") as other,
            second.client(f"{name}away", props=FOREVER) as away,
        ):
            away.subscribe(f"{name}/#", qos=1)
            away.disconnect()
            for client in one, other:
                client.subscribe(f"$share/{name}/{name}/+", qos=1)
                client.subscribe(f"{name}/+", qos=1)
            for number in range(3):
                one.published(f"{name}/{number}", b"payload", qos=1, retain=True)

            def is_led() -> bool:
                return all(not ask(node, f"/api/v1/clients?prefix={name}")[1]["partial"] for node in cluster.nodes)

            # Leaders move once the node is there again.
            until(is_led, what="leaders of all shards that all nodes know")
            for path in lists:
                pages = [ask(node, f"/api/v1{path}") for node in cluster.nodes]
                for status, page in pages:
                    assert status == 200 and page["partial"] == [], (path, page)
                # Earlier versions do not count the lag of groups.
                said = [[{**row, "since": None, "lag": None} for row in page["items"]] for _, page in pages]
                # Of what is counted meanwhile only how many rows there are.
                assert all(len(rows) == len(said[0]) for rows in said), (path, said)
                if path not in ("/listeners", "/drops"):
                    assert all(rows == said[0] for rows in said), (path, said)
                assert said[0] or path == "/drops", path
            for path in others:
                for node in cluster.nodes:
                    status, said = ask(node, f"/api/v1{path}")
                    assert status == 200 and said["partial"] == [], (path, said)
            matching = {"topic": f"{name}/1", "qos": 1, "publisher": f"{name}0"}
            matches = [ask(node, "/api/v1/match", "POST", matching) for node in cluster.nodes]
            assert all(match == matches[0] for match in matches) and matches[0][1]["partial"] == [], matches
            rights = {"client_id": f"{name}1", "action": "publish", "topic": f"{name}/1"}
            verdicts = [ask(node, "/api/v1/acl/test", "POST", rights) for node in cluster.nodes]
            assert all(verdict == verdicts[0] for verdict in verdicts) and verdicts[0][1]["connected"], verdicts
            # Each changes a client of the other.
            for asked, client_id in (second, f"{name}0"), (first, f"{name}1"):
                status, made = ask(asked, f"/api/v1/clients/{client_id}/subscriptions", "POST", {"filter": name, "qos": 1})
                assert status == 200 and made["state"] == "connected", made
                status, gone = ask(asked, f"/api/v1/sessions/{client_id}", "DELETE")
                assert status == 200 and gone["disconnected"], gone


def test_a_queue_is_emptied_when_all_nodes_can_read_that_and_not_before(name):
    path = f"/api/v1/sessions/{name}/queue"
    everything = {"removed": 3, "bytes": 12, "complete": True}
    with Cluster(3, binary=BEFORE) as cluster:
        first, *others = cluster.nodes

        def fill():
            with first.client(name, props=FOREVER) as away, first.client(f"{name}-publisher") as publisher:
                away.subscribe(f"{name}/#", qos=1)
                away.disconnect()
                for number in range(3):
                    publisher.published(f"{name}/{number}", b"1234", qos=1)

        def is_refused() -> bool:
            status, problem = ask(first, path, "DELETE")
            return status == 409 and "cannot empty queues" in problem["detail"]

        fill()
        for node in cluster.nodes:
            # Two that cannot read it are a majority of each shard.
            if node is not first and not can_trim(first):
                assert is_refused()
            node.stop()
            upgrade(node)
            cluster.settled(timeout=STEP_S)
            say_nothing_wrong(cluster)
        assert len(ask(others[0], path)[1]["items"]) == 3
        if not can_trim(first):
            # One of them may go back.
            assert ask(first, path, "DELETE")[0] == 409
            split = first.asked("split", "inbox", "0")
            assert split.returncode == 1 and "the upgrade of the cluster is not finished" in split.stderr, split
            assert len(ask(others[0], path)[1]["items"]) == 3
            assert finish(first).returncode == 0
            raised(cluster)
        assert ask(first, path, "DELETE") == (200, everything)
        cluster.settled(timeout=STEP_S)
        say_nothing_wrong(cluster)


def can_trim(node) -> bool:
    """Whether the program before empties queues, too."""
    return level_of(node.data_dir) >= 3

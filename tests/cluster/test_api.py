"""What any node answers for all of them, and what it says when one is silent."""

import concurrent.futures
import contextlib
import json
import urllib.error
import urllib.parse
import urllib.request

import pytest
from staged.cluster import HTTP, Cluster

from harness.events import Stream
from harness.people import Browser, add_user
from harness.wait import DEADLINE_S, until


@pytest.fixture(scope="module")
def cluster():
    with Cluster(3) as cluster:
        cluster.spread()
        yield cluster


def ask(node, path, method="GET", body=None) -> tuple[int, dict]:
    headers = {"authorization": f"Bearer {node.cluster.token.read_text()}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    url = f"http://{node.place.address}:{HTTP}{path}"
    made = urllib.request.Request(url, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(made, timeout=DEADLINE_S) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_each_node_finds_the_clients_of_all(cluster, name):
    clients = [
        node.client(f"{name}{number}{kind}", props={"session_expiry": 600} if kind == "d" else None)
        for number, node in enumerate(cluster.nodes)
        for kind in "dt"
    ]
    ids = [f"{name}{number}{kind}" for number in range(3) for kind in "dt"]
    for node in cluster.nodes:
        status, page = ask(node, f"/api/v1/clients?prefix={name}")
        assert status == 200 and page["partial"] == [] and page["next"] is None
        assert [row["client_id"] for row in page["items"]] == ids
        homes = [row["node"] for row in page["items"]]
        assert homes == [n.id for n in cluster.nodes for _ in "dt"]
        status, found = ask(node, f"/api/v1/clients/{name}1t")
        assert status == 200 and found["node"] == cluster.nodes[1].id and found["connection"]["listener"] == "tcp"
        assert {n["node"] for n in ask(node, "/api/v1/nodes")[1]["items"]} == {n.id for n in cluster.nodes}
        shards = ask(node, "/api/v1/shards")[1]["items"]
        assert all(shard["serves"] and len(shard["voters"]) == 3 for shard in shards)
    # Of a client at another node.
    status, gone = ask(cluster.nodes[0], f"/api/v1/sessions/{name}2d", "DELETE")
    assert status == 200 and gone["disconnected"] and gone["session_ended"]
    until(lambda: ask(cluster.nodes[1], f"/api/v1/clients/{name}2d")[0] == 404, what="the end of the session")
    # Of one that is away.
    clients[0].disconnect()
    until(lambda: ask(cluster.nodes[2], f"/api/v1/clients/{name}0d")[1]["state"] == "away", what="the absence")
    status, gone = ask(cluster.nodes[2], f"/api/v1/sessions/{name}0d", "DELETE")
    assert status == 200 and gone["session_ended"] and not gone["disconnected"]
    assert ask(cluster.nodes[0], f"/api/v1/clients/{name}0d")[0] == 404
    for client in clients:
        client.close()


def test_each_node_knows_the_members_of_a_group_and_what_waits_for_them(cluster, name):
    group = f"$share/{name}/{name}/t"
    members = "/api/v1/shared-groups/members?filter=" + urllib.parse.quote(group, safe="")
    path = f"/api/v1/clients/{name}"
    with contextlib.ExitStack() as stack:
        for number, node in enumerate(cluster.nodes):
            away = node.client(f"{name}away{number}", props={"session_expiry": 600})
            away.subscribe(group, qos=1)
            away.disconnect()
            until(lambda n=number: ask(cluster.nodes[0], f"{path}away{n}")[1]["state"] == "away", what="the absence")
        publisher = stack.enter_context(cluster.nodes[0].client(f"{name}p"))
        for number in range(30):
            publisher.published(f"{name}/t", str(number), qos=1)
        for number, node in enumerate(cluster.nodes):
            for kind in "dt":
                props = {"session_expiry": 600} if kind == "d" else None
                client = stack.enter_context(node.client(f"{name}{number}{kind}", props=props))
                client.subscribe(group, qos=1)
        for node in cluster.nodes:

            def row() -> dict | None:
                status, page = ask(node, "/api/v1/shared-groups?limit=500")
                assert status == 200 and page["partial"] == []
                return next((row for row in page["items"] if row["given_filter"] == group), None)

            # Other nodes tell of members a moment after SUBACK.
            said = []

            def counted() -> bool:
                said[:] = [(of := row()) and (of["members"], of["online"], of["lag"])]
                return said == [(9, 6, 30)]

            until(counted, what=lambda: f"the counts at {node.id}, which says {said}", timeout=20)
            rows, after = [], ""
            while after is not None:
                status, page = ask(node, f"{members}&limit=2{after}")
                assert status == 200 and page["partial"] == [], page
                rows += page["items"]
                after = page["next"] and f"&after={page['next']}"
            assert [row["client_id"].removeprefix(name) for row in rows[:6]] == ["0d", "1d", "2d", "away0", "away1", "away2"]
            assert sorted(row["client_id"].removeprefix(name) for row in rows[6:]) == ["0t", "1t", "2t"]
            homes = {node.id for node in cluster.nodes}
            for kind in (rows[:3], rows[6:]):
                assert {row["node"] for row in kind} == homes and all(row["state"] == "connected" for row in kind)
            assert all((row["state"], row["node"], row["in_flight"]) == ("away", None, None) for row in rows[3:6]), rows
            assert sum(row["waiting"] for row in rows[3:6]) == 30 and all(row["waiting"] == 0 for row in rows[:3] + rows[6:])


def test_a_client_is_subscribed_from_any_node(cluster, name):
    home, asked, elsewhere = cluster.nodes
    path = f"/api/v1/clients/{name}/subscriptions"
    with home.client(name, props={"session_expiry": 600}) as client, elsewhere.client(f"{name}p") as publisher:
        for number in range(5):
            status, made = ask(asked, path, "POST", {"filter": f"{name}/{number}", "qos": 1})
            assert status == 200 and made["state"] == "connected" and made["node"] == home.id
            # Who has answered has told the other nodes.
            publisher.published(f"{name}/{number}", qos=1)
            client.message(topic=f"{name}/{number}")
        status, gone = ask(asked, f"{path}?filter={name}/0", "DELETE")
        assert status == 200 and gone["qos"] is None
        client.disconnect()
        until(lambda: ask(asked, f"/api/v1/clients/{name}")[1]["state"] == "away", what="the absence")
        # Each node, so also those that lead neither its session nor its inbox.
        for number, node in enumerate(cluster.nodes):
            status, made = ask(node, path, "POST", {"filter": f"{name}/away/{number}", "qos": 1})
            assert status == 200 and made["state"] == "away" and made["node"] is None
        status, gone = ask(asked, f"{path}?filter={name}/away/1", "DELETE")
        assert status == 200, gone
        rows = ask(elsewhere, path)[1]["items"]
        assert [row["filter"] for row in rows] == [f"{name}/{n}" for n in (1, 2, 3, 4)] + [f"{name}/away/{n}" for n in (0, 2)]

        def is_queued():
            publisher.published(f"{name}/away/2", qos=1)
            return ask(asked, f"/api/v1/clients/{name}")[1]["queue"]["messages"] > 0

        until(is_queued, what="a message by the new subscription")
    with home.client(name, clean=False, session_present=True, props={"session_expiry": 600}) as client:
        client.message(topic=f"{name}/away/2")
    assert ask(asked, f"/api/v1/sessions/{name}", "DELETE")[0] == 200


def test_messages_are_published_kept_and_read_at_any_node(cluster, name):
    one, two, three = cluster.nodes
    with two.client(f"{name}-on") as client, three.client(f"{name}-away", props={"session_expiry": 600}) as away:
        client.subscribe(f"{name}/#", qos=2)
        away.subscribe(f"{name}/#", qos=1)
        away.disconnect()
        # Other nodes know of the subscriptions as of SUBACK.
        messages = [{"topic": f"{name}/{number}", "payload": str(number), "retain": True} for number in range(50)]
        status, results = ask(one, "/api/v1/publish/bulk", "POST", {"messages": messages})
        assert status == 200 and all(result["published"]["retained"] for result in results)
        assert {client.message().topic for _ in messages} == {message["topic"] for message in messages}
    for node in cluster.nodes:
        page = ask(node, f"/api/v1/retained?filter={name}/%23&limit=20")[1]
        rows = page["items"]
        while page["next"]:
            page = ask(node, f"/api/v1/retained?filter={name}/%23&limit=20&after={page['next']}")[1]
            assert page["partial"] == []
            rows += page["items"]
        assert [row["topic"] for row in rows] == sorted(message["topic"] for message in messages)
        page = ask(node, f"/api/v1/retained/levels?below={name}&limit=500")[1]
        assert len(page["items"]) == 50 and page["next"] is None
        status, message = ask(node, f"/api/v1/retained/message?topic={name}/7")
        assert (status, message["payload"]) == (200, "7")
        queue = ask(node, f"/api/v1/sessions/{name}-away/queue?limit=500")[1]
        # Those of one topic keep their order; these topics are published by several event loops.
        assert sorted(row["topic"] for row in queue["items"]) == sorted(message["topic"] for message in messages)
        assert len(ask(node, "/api/v1/stats/history")[1]["nodes"]) == 3
    until(
        lambda: any(row["client_id"] == f"{name}-away" for row in ask(one, "/api/v1/queues")[1]["items"]),
        what="the queue among the largest",
    )
    # At one node it is emptied, at all of them it is empty.
    assert ask(two, f"/api/v1/sessions/{name}-away/queue", "DELETE")[1] == {"removed": 50, "bytes": 90, "complete": True}
    for node in cluster.nodes:
        assert ask(node, f"/api/v1/sessions/{name}-away/queue")[1]["items"] == []
    assert ask(three, "/api/v1/drops/totals")[1]["purged"] >= 50


def alarms_of(node, name):
    return [alarm for alarm in ask(node, "/api/v1/alarms")[1]["items"] if alarm["name"] == name]


def test_a_silent_node_is_named_and_not_waited_for(cluster, name):
    silent, asked = cluster.nodes[2], cluster.nodes[0]
    with silent.client(f"{name}s"), asked.client(f"{name}a"):
        identifier = silent.id
        silent.pause()
        try:
            status, page = ask(asked, f"/api/v1/clients?prefix={name}&budget_ms=500")
            assert status == 200 and f"{name}a" in [row["client_id"] for row in page["items"]]
            missing = {entry["node"]: entry["reason"] for entry in page["partial"] if entry["node"]}
            assert missing.get(identifier) in ("timeout", "down"), page
            # Whether it exists is not known.
            status, problem = ask(asked, f"/api/v1/clients/{name}s?budget_ms=500")
            assert status == 504 and problem["nodes"] == [identifier]
            # One of the others raises the alarm.
            down = until(lambda: alarms_of(asked, "node_down"), what="an alarm")
            assert len(down) == 1 and down[0]["node"] != identifier, down
        finally:
            silent.resume()
        until(lambda: ask(asked, f"/api/v1/clients/{name}s")[0] in (200, 404), what="an answer for certain")
        until(lambda: not alarms_of(asked, "node_down"), what="the end of the alarm")


def test_another_node_is_drained_and_called_back(cluster, name):
    asked, drained = cluster.nodes[0], cluster.nodes[1]
    path = f"/api/v1/nodes/{drained.id}"
    with drained.client(name) as client:
        status, would = ask(asked, f"{path}/drain", "POST", {"dry_run": True})
        assert status == 200 and would["possible"] and not would["begun"] and would["clients"] >= 1
        client.ping()
        status, begun = ask(asked, f"{path}/drain", "POST", {})
        assert status == 202 and begun["begun"]
        client.expect_disconnected(0x9C)
    until(lambda: ask(asked, path)[1]["health"]["drain"] is not None, what="the progress")
    until(lambda: ask(asked, path)[1]["health"]["drain"]["clients_left"] == 0, what="an empty node")
    health = ask(asked, "/api/v1/health")[1]
    assert health["state"] == "degraded" and [n["detail"] for n in health["nodes"] if not n["ok"]] == ["it is draining"]
    status, ended = ask(asked, f"{path}/drain", "DELETE")
    assert status == 202 and ended["begun"]
    until(lambda: ask(asked, path)[1]["state"] == "up", what="the end of the drain")
    with drained.client(f"{name}b") as client:
        client.ping()
    health = until(lambda: (h := ask(asked, "/api/v1/health")[1]) and all(n["ok"] for n in h["nodes"]) and h, what="health")
    # The nodes of this test have no secret.
    assert health["state"] == "degraded" and {alarm["name"] for alarm in health["alarms"]} == {"open_cluster"}


def test_what_an_eviction_would_take(cluster):
    asked, other = cluster.nodes[0], cluster.nodes[2]
    status, would = ask(asked, f"/api/v1/nodes/{other.id}/evict", "POST", {"dry_run": True})
    # Two of three voters remain.
    assert status == 200 and would["possible"] and would["voters"] > 0 and not would["begun"]
    status, would = ask(asked, f"/api/v1/nodes/{asked.id}/evict", "POST", {"dry_run": True, "force": True})
    assert status == 200 and not would["possible"] and "evict itself" in would["detail"]
    paused = cluster.nodes[1]
    paused.pause()
    try:
        def harm():
            return ask(asked, f"/api/v1/nodes/{other.id}/evict", "POST", {"dry_run": True})[1]

        found = until(lambda: (would := harm()) and not would["possible"] and would, what="a harm")
        assert "no majority" in found["detail"]
    finally:
        paused.resume()
    assert len(ask(asked, "/api/v1/nodes")[1]["items"]) == 3
    assert ask(asked, "/api/v1/nodes/ffff/drain", "POST", {})[0] == 404


def test_a_node_is_profiled_through_another_one(cluster):
    asked, profiled = cluster.nodes[0], cluster.nodes[1]
    path = f"/api/v1/nodes/{profiled.id}/profile"
    status, usage = ask(asked, f"{path}/threads")
    assert status == 200 and usage["node"] == profiled.id, usage
    assert any(thread["name"] == "loop-0" and thread["turns"] for thread in usage["threads"])
    status, memory = ask(asked, f"{path}/memory")
    assert status == 200 and memory["node"] == profiled.id, memory
    assert sum(row["bytes"] for row in memory["structures"]) == memory["resident_bytes"] > 0
    with concurrent.futures.ThreadPoolExecutor() as pool:

        def sample():
            # One of the requests below may be first.
            return until(lambda: (got := ask(asked, f"{path}/cpu?seconds=5&functions=true", "POST"))[0] == 200 and got, what="a profile")

        made = pool.submit(sample)

        def refused(node):
            status, problem = ask(node, f"{path}/cpu?seconds=1", "POST")
            return status == 409 and problem

        try:
            # One at a time, whichever node is asked.
            for node in (profiled, asked, cluster.nodes[2]):
                problem = until(lambda node=node: refused(node), what="a profile under way")
                assert "another CPU profile of this process is under way" in problem["detail"]
        finally:
            profile = made.result()[1]
    assert profile["node"] == profiled.id and profile["samples"] > 0 and len(profile["functions"]) == len(profile["places"])
    assert any("::" in function for function in profile["functions"]), profile["functions"]


def test_settings_name_the_nodes_that_differ(cluster):
    def whole(path) -> dict | None:
        found = ask(cluster.nodes[0], path)[1]
        return found if found["partial"] == [] else None

    # A node that was stopped a moment ago is missing until it is heard of again.
    found = until(lambda: whole("/api/v1/settings"), what="the settings of all")
    rows = {row["key"]: row for row in found["items"]}
    names = {row["node"] for row in rows["dataDir"]["differs"]}
    assert names == {node.id for node in cluster.nodes[1:]}
    assert rows["limits.session.queueMessages"]["differs"] == []
    stats = until(lambda: whole("/api/v1/stats"), what="the counts of all")
    assert len(stats["nodes"]) == 3
    assert stats["total"]["connects"] == sum(row["counts"]["connects"] for row in stats["nodes"])


def test_a_walk_over_a_split_and_a_restart_sees_each_session_once(cluster, name):
    ids = [f"{name}-{number:03}" for number in range(60)]
    for number, client_id in enumerate(ids):
        client = cluster.nodes[number % 3].client(client_id, props={"session_expiry": 600})
        client.disconnect()
        client.close()
    path = f"/api/v1/clients?prefix={name}&state=away&limit=10&budget_ms=5000"
    until(lambda: len(ask(cluster.nodes[0], path.replace("limit=10", "limit=100"))[1]["items"]) == 60, what="60 away")
    seen, after, page_number = [], "", 0
    while True:
        node = cluster.nodes[page_number % 3]

        def page():
            status, found = ask(node, path + after)
            # While a shard has no leader, an answer says so; the cursor stays good.
            return found if status == 200 and found["partial"] == [] else None

        found = until(page, what="a whole page")
        seen += [row["client_id"] for row in found["items"]]
        if found["next"] is None:
            break
        after = f"&after={found['next']}"
        page_number += 1
        if page_number == 2:
            shards = [s for s in ask(node, "/api/v1/shards?store=session")[1]["items"]]
            what = {"store": "session", "shard": shards[0]["shard"]}
            # A voter may lack much of the log still, if an earlier test has stopped its node.
            until(lambda: ask(node, "/api/v1/cluster/split", "POST", what)[0] == 204, what="a split")
            until(
                lambda: len(ask(node, "/api/v1/shards?store=session")[1]["items"]) == len(shards) + 1,
                what="the new shard",
            )
        if page_number == 4:
            restarted = cluster.nodes[1]
            restarted.kill()
            restarted.start()
    assert seen == ids


def test_each_node_tells_what_happens_on_all(cluster, name):
    asked, other, silent = cluster.nodes
    token = cluster.token.read_text().strip()
    with (
        Stream(asked.place.address, HTTP, token, prefix=name) as clients,
        Stream(asked.place.address, HTTP, token, type="node.state,shard.leader") as nodes,
    ):
        assert clients.next()[0] == nodes.next()[0] == "hello"
        other.client(name).close()
        events = clients.until(lambda kind, _: kind == "client.disconnected")
        assert {data["node"] for _, data in events} == {other.id}
        identifier = silent.id
        silent.pause()
        try:
            seen = nodes.until(lambda kind, data: kind == "node.state" and data["reason"] == "down")
            assert [data[0]["node"] for kind, data in seen if kind == "partial" and data][:1] == [identifier]
            subject = seen[-1][1]["subject"]
            assert (subject["node"], subject["state"]) == (identifier, "down")
        finally:
            silent.resume()
        nodes.until(lambda kind, data: kind == "node.state" and data["reason"] == "up")


def test_the_busiest_of_all_nodes_are_listed_at_each(cluster, name):
    def top(of, **query):
        query = "".join(f"&{key}={value}" for key, value in query.items())
        status, page = ask(cluster.nodes[2], f"/api/v1/top/{of}?limit=500{query}")
        assert status == 200 and page["partial"] == []
        return [row for row in page["items"] if (row.get("client_id") or row["topic"]).startswith(name)]

    first, second = (node.client(f"{name}-{number}") for number, node in enumerate(cluster.nodes[:2]))

    def is_told():
        for _ in range(10):
            first.published(f"{name}/t", b"12345", qos=1)
        second.published(f"{name}/t", b"12345", qos=1)
        return len(top("publishers")) == 2

    until(is_told, what="a window in which both have published")
    # Both lists are of one window, unless that ends between the questions.
    until(lambda: is_told() and summed(top("topics")) == pytest.approx(summed(top("publishers"))), what="the sum of both nodes")
    publishers = top("publishers")
    assert [row["client_id"] for row in publishers] == [f"{name}-0", f"{name}-1"]
    assert [row["node"] for row in publishers] == [node.id for node in cluster.nodes[:2]]
    [topic] = top("topics", by="bytes")
    assert topic["topic"] == f"{name}/t"


def summed(rows):
    return sum(row["messages_per_s"] for row in rows)


def test_a_session_counts_at_each_node_and_ends_at_all(tmp_path):
    users = tmp_path / "people"
    add_user(users, "anna", "password of anna")
    with Cluster(2, {"http.userFile": str(users), "http.operators": "anna", "http.anonymous": "none"}) as cluster:
        here, there = (Browser(node.place.address, HTTP) for node in cluster.nodes)
        assert here.login("anna")[0] == 200
        there.cookie = here.cookie
        status, me = there.ask("GET", "/me")
        assert (status, me["user"], me["role"]) == (200, "anna", "operator")
        assert there.ask("POST", "/bans", {"client": "x"})[1]["type"].endswith("csrf")
        there.csrf = me["csrf_token"]
        assert there.ask("POST", "/bans", {"client": "x"})[0] == 201
        kept = there.cookie
        assert there.ask("POST", "/logout")[0] == 204
        for browser in (here, there):
            browser.cookie = kept
            assert browser.ask("GET", "/me")[0] == 401
        # What she may do at a node is what that node's configuration says, whichever node her token names.
        other = cluster.nodes[1]
        other.stop()
        other.sets = {**other.sets, "http.operators": ""}
        other.start()
        cluster.settled()
        assert here.login("anna")[0] == 200
        there.cookie = here.cookie
        assert [browser.ask("GET", "/me")[1]["role"] for browser in (here, there)] == ["operator", "viewer"]
        there.csrf = here.csrf
        assert there.ask("POST", "/bans", {"client": "y"})[1]["type"].endswith("no-right")
        # The session of a node that is gone is gone, too: its user logs in at another one.
        assert here.login("anna")[0] == 200
        there.cookie = here.cookie
        assert there.ask("GET", "/me")[0] == 200
        cluster.nodes[0].kill()
        until(lambda: there.ask("GET", "/me")[0] == 401, what="the end of the session")
        assert there.login("anna")[0] == 200 and there.ask("GET", "/me")[0] == 200

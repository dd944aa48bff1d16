"""Shared groups as the API, the command line and their members show them: who is in them, and what waits."""

import urllib.parse

import pytest

from harness.broker import Broker, run
from harness.raw import PUBACK, PUBLISH, ack
from harness.wait import until
from test_api import request, walk
from test_classes import gone_away


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


def of_group(broker, subscription) -> dict | None:
    """The row of a group in the list."""
    rows = {row["given_filter"]: row for row in walk(broker, "/api/v1/shared-groups", 100)}
    return rows.get(subscription)


def counts(broker, subscription) -> tuple:
    row = of_group(broker, subscription)
    return row and (row["members"], row["online"], row["lag"])


def path_of(subscription) -> str:
    return "/api/v1/shared-groups/members?filter=" + urllib.parse.quote(subscription, safe="")


def members(broker, subscription) -> dict:
    """State, what waits and what is in flight, by member."""
    rows = walk(broker, path_of(subscription), 2)
    return {row["client_id"]: (row["state"], row["waiting"], row["in_flight"]) for row in rows}


def shown(broker, *args) -> str:
    out = run(*args, "--no-header", "--url", f"http://127.0.0.1:{broker.http_port}")
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_a_group_says_who_is_in_it_and_what_waits_for_them(broker, name):
    group, away, on = f"$share/jobs/{name}/#", f"{name}-away", f"{name}-on"
    gone_away(broker, away, group)
    with broker.client(f"{name}-publisher") as publisher:
        for number in range(7):
            publisher.published(f"{name}/x", str(number), qos=1)
        until(lambda: counts(broker, group) == (1, 0, 7), what="the lag of the member that is away")
        with broker.client(on, props={"receive_maximum": 2}) as client:
            client.subscribe(group, qos=1)
            assert counts(broker, group) == (2, 1, 7)
            for number in range(5):
                publisher.published(f"{name}/x", str(number), qos=1)
            # Whoever is connected gets what comes, and two are in flight at a time.
            until(lambda: counts(broker, group) == (2, 1, 12), what="the lag of both members")
            assert members(broker, group) == {away: ("away", 7, None), on: ("connected", 5, 2)}
            row = of_group(broker, group)
            assert (row["group"], row["filter"]) == ("jobs", f"{name}/#")
            (line,) = [line.split() for line in shown(broker, "groups", "--wide").splitlines() if line.startswith(group)]
            assert line == [group, "1", "1", "12"]
            lines = [line.split() for line in shown(broker, "group", group, "--wide").splitlines()]
            node = broker.api("/api/v1/nodes")["items"][0]["node_name"]
            assert lines == [[away, "away", "-", "7", "-"], [on, "connected", node, "5", "2"]]
            for _ in range(5):
                message = client.expect(PUBLISH)
                client.send(ack(PUBACK, message.pid))
            until(lambda: counts(broker, group) == (2, 1, 7), what="the acknowledged messages")
        until(lambda: counts(broker, group) == (1, 0, 7), what="the end of the member without a session")


def test_members_come_in_pages_durable_ones_first(broker, name):
    group = f"$share/{name}/t"
    for letter in "ca":
        gone_away(broker, f"{name}-{letter}", group)
    clients = [broker.client(f"{name}-{letter}") for letter in "xyb"]
    clients.append(broker.client(f"{name}-d", props={"session_expiry": 600}))
    for client in clients:
        client.subscribe(group, qos=1)
    rows = walk(broker, path_of(group), 2)
    ids = [row["client_id"].removeprefix(f"{name}-") for row in rows]
    assert ids[:3] == ["a", "c", "d"] and sorted(ids[3:]) == ["b", "x", "y"], ids
    assert [row["durable"] for row in rows] == [True] * 3 + [False] * 3
    assert [row["state"] for row in rows] == ["away"] * 2 + ["connected"] * 4
    assert counts(broker, group) == (6, 4, 0)
    for client in clients:
        client.close()


def test_a_group_that_nobody_is_in_is_not_found(broker, name):
    status, problem = request(broker, "GET", path_of(f"$share/{name}/t"))
    assert (status, problem["kind"]) == (404, "shared_group"), problem
    for filter in ("a/b", "$share/a", ""):
        status, problem = request(broker, "GET", path_of(filter))
        assert (status, problem["parameter"]) == (400, "filter"), (filter, problem)
    out = run("group", f"$share/{name}/t", "--url", f"http://127.0.0.1:{broker.http_port}")
    assert out.returncode == 3, out.stderr

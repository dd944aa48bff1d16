"""The HTTP API's messages: publishing, retained messages, queues, and what was counted over time."""

import base64
import urllib.parse

import pytest

from harness.broker import Broker
from harness.raw import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, ack
from harness.wait import until
from test_api import keys, request, walk  # noqa: F401
from test_classes import gone_away

# Properties of a message as the API takes them, and as clients get them.
FULL = {
    "payload_is_utf8": True,
    "content_type": "text/plain",
    "response_topic": "answers/1",
    "correlation_data": base64.b64encode(b"\x00\x01").decode(),
    "user_properties": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}],
}


@pytest.fixture(scope="module")
def stage(keys):  # noqa: F811
    with Broker({"http.keyFile": keys["file"]}) as broker:
        broker.keys = keys
        yield broker


def ask(broker, method, path, body=None, role="operator"):
    key = broker.keys[role].read_text().strip() if role else None
    return request(broker, method, path, body, key)


def published(broker, **message):
    status, answer = ask(broker, "POST", "/api/v1/publish", message)
    assert status == 200, answer
    return answer


def in_query(topic) -> str:
    return "topic=" + urllib.parse.quote(topic, safe="")


def test_a_message_is_published_with_its_properties_and_answered_as_a_client_is(stage, name):
    nobody = published(stage, topic=f"{name}/a", payload="x")
    assert nobody == {"topic": f"{name}/a", "reason_code": 16, "matched": False, "retained": None}
    away = f"{name}-away"
    gone_away(stage, away, f"{name}/#")
    with stage.client(f"{name}-on") as client:
        client.subscribe(f"{name}/+", qos=2)
        for qos in range(3):
            answer = published(stage, topic=f"{name}/a", payload="ä", qos=qos, message_expiry_s=600, **FULL)
            assert answer["reason_code"] == 0 and answer["matched"]
            got = client.message()
            assert (got.topic, got.payload, got.qos) == (f"{name}/a", "ä".encode(), qos)
            props = got.props
            assert props["payload_format"] == 1 and props["content_type"] == "text/plain"
            assert props["response_topic"] == "answers/1" and props["correlation_data"] == b"\x00\x01"
            assert 0 < props["message_expiry"] <= 600
            assert props["user_property"] == [("a", "1"), ("a", "2")]
        answer = published(stage, topic=f"{name}/b", payload=base64.b64encode(b"\xff\x00").decode(), encoding="base64")
        assert client.message().payload == b"\xff\x00"
    # It was answered, so the session that is away has it, after a crash as well.
    queue = walk(stage, f"/api/v1/sessions/{away}/queue", 2)
    assert [(message["topic"], message["payload_bytes"]) for message in queue] == [(f"{name}/a", 2)] * 3 + [(f"{name}/b", 2)]


def test_what_no_client_could_publish_is_refused(stage, name):
    for body, pointer in [
        ({"topic": ""}, "/topic"),
        ({"topic": "a/#"}, "/topic"),
        ({"topic": "$SYS/a"}, "/topic"),
        ({"topic": "a/" * 200}, "/topic"),
        ({"topic": "a", "qos": 3}, "/qos"),
        ({"topic": "a", "payload": "?", "encoding": "base64"}, "/payload"),
        ({"topic": "a", "payload": "/w==", "encoding": "base64", "payload_is_utf8": True}, "/payload"),
        ({"topic": "a", "response_topic": "+"}, "/response_topic"),
        ({"topic": "a", "correlation_data": "?"}, "/correlation_data"),
        ({"topic": "a", "content_type": "\0"}, "/content_type"),
        ({"topic": "a", "user_properties": [{"name": "a", "value": "\0"}]}, "/user_properties"),
    ]:
        status, problem = ask(stage, "POST", "/api/v1/publish", body)
        assert (status, problem["pointer"]) == (400, pointer), body
        # One of many does not keep the others from being published.
        good = {"topic": name, "payload": "x"}
        status, results = ask(stage, "POST", "/api/v1/publish/bulk", {"messages": [good, body, good]})
        assert status == 200 and [result["problem"] is None for result in results] == [True, False, True]
    for body in ({"topic": "a", "reatin": True}, {}, []):
        assert ask(stage, "POST", "/api/v1/publish", body)[0] == 400
    assert ask(stage, "POST", "/api/v1/publish", {"topic": "a"}, role="viewer")[0] == 403
    assert ask(stage, "POST", "/api/v1/publish", {"topic": "a"}, role=None)[0] == 401


def test_many_messages_keep_the_order_of_their_topics(stage, name):
    with stage.client(f"{name}-on") as client:
        client.subscribe(f"{name}/#", qos=1)
        messages = [{"topic": f"{name}/{number % 3}", "payload": str(number)} for number in range(1_000)]
        status, results = ask(stage, "POST", "/api/v1/publish/bulk", {"messages": messages})
        assert status == 200 and len(results) == 1_000
        assert all(result["published"]["reason_code"] == 0 for result in results)
        by_topic = {}
        for _ in messages:
            got = client.message()
            by_topic.setdefault(got.topic, []).append(int(got.payload))
        assert [by_topic[f"{name}/{topic}"] for topic in range(3)] == [list(range(topic, 1_000, 3)) for topic in range(3)]
    status, problem = ask(stage, "POST", "/api/v1/publish/bulk", {"messages": messages + messages[:1]})
    assert (status, problem["pointer"]) == (400, "/messages")
    large = [{"topic": name, "payload": "x" * 40_000}] * 20
    assert ask(stage, "POST", "/api/v1/publish/bulk", {"messages": large})[0] == 200
    assert ask(stage, "POST", "/api/v1/publish/bulk", {"messages": large * 2})[0] == 413
    assert ask(stage, "POST", "/api/v1/publish", {"topic": name, "payload": "x" * 70_000})[0] == 413


def test_a_full_queue_that_refuses_is_told(keys, name):  # noqa: F811
    options = {"limits.session.queueMessages": 1, "limits.session.queueFull": "refuse"}
    with Broker({**options, "http.keyFile": keys["file"]}) as broker:
        broker.keys = keys
        gone_away(broker, name, "a")
        published(broker, topic="a", payload="1")
        status, problem = ask(broker, "POST", "/api/v1/publish", {"topic": "a", "payload": "2"})
        assert (status, problem["type"], problem["reason_code"]) == (503, "urn:heraldmq:problem:not-stored", 0x97)
        published(broker, topic="a", payload="2", qos=0)
        (row,) = walk(broker, f"/api/v1/sessions/{name}/queue", 5)
        assert row["payload_bytes"] == 1


def test_what_is_not_retained_is_told(keys, name):  # noqa: F811
    options = {"retain.maxMessages": 1, "limits.topic.length": 65_535}
    with Broker({**options, "http.keyFile": keys["file"]}) as broker:
        broker.keys = keys
        answers = [
            ask(broker, "PUT", "/api/v1/retained/message", {"topic": f"{name}/{number}", "payload": "x"})
            for number in range(100)
        ]
        refused = [problem for status, problem in answers if status != 200]
        assert 0 < len(refused) < 100
        assert all((p["status"], p["reason_code"], p["retained"]) == (503, 0x97, False) for p in refused)
        assert broker.metric("heraldmq_messages_dropped_total", reason="retained_limit") == len(refused)
        assert len(walk(broker, "/api/v1/retained", 500)) == 100 - len(refused)
        status, problem = ask(broker, "PUT", "/api/v1/retained/message", {"topic": "a" * 60_001, "payload": "x"})
        assert (status, problem["pointer"]) == (400, "/topic")


def test_retained_messages_are_listed_read_set_and_removed(stage, name):
    topics = [f"{name}/{number // 10}/{number % 10}" for number in range(120)] + [f"{name}/7", f"{name}/x//y"]
    for topic in topics:
        status, answer = ask(stage, "PUT", "/api/v1/retained/message", {"topic": topic, "payload": topic})
        assert status == 200 and answer["retained"] is True
    # Level by level: `/` is the smallest character.
    order = sorted(topics, key=lambda topic: topic.split("/"))
    for limit in (7, 500):
        rows = walk(stage, f"/api/v1/retained?filter={name}/%23", limit)
        assert [row["topic"] for row in rows] == order
    assert rows[0].pop("retained_at") is not None
    assert rows[0] == {"topic": order[0], "qos": 1, "payload_bytes": len(order[0]), "expires_at": None}
    some = walk(stage, f"/api/v1/retained?filter={name}/%2B/3", 5)
    assert [row["topic"] for row in some] == [topic for topic in order if topic.endswith("/3")]
    # As a tree.
    levels = walk(stage, f"/api/v1/retained/levels?below={name}", 4)
    shown = {level["topic"]: (level["has_message"], level["has_more_below"]) for level in levels}
    assert list(shown) == sorted(shown) and len(shown) == len(levels) == 13
    assert shown[f"{name}/7"] == (True, True) and shown[f"{name}/x"] == (False, True)
    assert shown[f"{name}/11"] == (False, True)
    below = walk(stage, f"/api/v1/retained/levels?below={name}/x", 4)
    assert below == [{"topic": f"{name}/x/", "has_message": False, "has_more_below": True}]
    below = walk(stage, f"/api/v1/retained/levels?below={name}/x/", 4)
    assert below == [{"topic": f"{name}/x//y", "has_message": True, "has_more_below": False}]
    first = walk(stage, "/api/v1/retained/levels", 500)
    assert {"topic": name, "has_message": False, "has_more_below": True} in first
    # One, in full.
    topic = f"{name}/x//y"
    put = {"topic": topic, "payload": "\u2028", "message_expiry_s": 600, **FULL}
    assert ask(stage, "PUT", "/api/v1/retained/message", put)[0] == 200
    status, message = ask(stage, "GET", f"/api/v1/retained/message?{in_query(topic)}")
    assert status == 200 and message["expires_at"] is not None
    assert {key: message[key] for key in FULL} == FULL and message["payload"] == "\u2028"
    assert ask(stage, "GET", f"/api/v1/retained/message?{in_query(topic)}", role="viewer")[0] == 403
    with stage.client(f"{name}-on") as client:
        client.subscribe(topic, qos=1)
        assert client.message().payload == "\u2028".encode()
        status, answer = ask(stage, "DELETE", f"/api/v1/retained/message?{in_query(topic)}")
        assert status == 200 and answer["reason_code"] == 0
        assert client.message().payload == b""
    for method in ("GET", "DELETE"):
        status, problem = ask(stage, method, f"/api/v1/retained/message?{in_query(topic)}")
        assert (status, problem["kind"]) == (404, "retained")
    assert ask(stage, "PUT", "/api/v1/retained/message", {"topic": topic})[0] == 400
    assert ask(stage, "GET", "/api/v1/retained?filter=a%23b")[0] == 400


def test_queues_are_ranked_and_read(stage, name):
    lengths = {f"{name}-{number}": number * 10 for number in range(1, 5)}
    for client_id, length in lengths.items():
        gone_away(stage, client_id, f"{name}/{client_id}")
        messages = [{"topic": f"{name}/{client_id}", "payload": f"{number} {'x' * 20_000}"} for number in range(length)]
        for first in range(0, length, 20):
            assert ask(stage, "POST", "/api/v1/publish/bulk", {"messages": messages[first : first + 20]})[0] == 200

    def ranked(by):
        rows = stage.api(f"/api/v1/queues?by={by}")["items"]
        return [row for row in rows if row["client_id"] in lengths]

    until(lambda: {row["client_id"]: row["messages"] for row in ranked("messages")} == lengths, what="the figures")
    expected = sorted(lengths, key=lengths.get, reverse=True)
    for by, order in (("messages", expected), ("bytes", expected), ("age", expected[::-1])):
        until(lambda: [row["client_id"] for row in ranked(by)] == order, what=f"the order of {by}")
    row = ranked("bytes")[0]
    assert row["class"] == "device" and row["limit_messages"] == 10_000 and row["oldest_at"] is not None
    assert row["bytes"] > 40 * 20_000
    client_id = expected[0]
    for limit in (3, 500):
        rows = walk(stage, f"/api/v1/sessions/{client_id}/queue", limit)
        assert len(rows) == 40 and all(row["payload"] is None for row in rows)
    sequences = [int(row["sequence"]) for row in rows]
    assert sequences == sorted(set(sequences))
    assert ask(stage, "POST", "/api/v1/queue", {"client_id": client_id}, role="viewer")[0] == 403
    body = {"client_id": client_id, "limit": 5}
    page = ask(stage, "POST", "/api/v1/queue", body)[1]
    # Payloads of more than 16 KiB are not shown.
    assert [row["payload"] for row in page["items"]] == [None] * 5
    published(stage, topic=f"{name}/{client_id}", payload="short")
    rest = ask(stage, "POST", "/api/v1/queue", {**body, "limit": 500, "after": page["next"]})[1]
    assert rest["next"] is None and rest["items"][-1]["payload"] == "short"
    status, problem = ask(stage, "GET", f"/api/v1/sessions/{name}-nobody/queue")
    assert (status, problem["kind"]) == (404, "client")
    assert ask(stage, "GET", "/api/v1/queues?by=size")[0] == 400


def test_a_queue_is_emptied_for_operators(stage, name):
    away, path = f"{name}-away", f"/api/v1/sessions/{name}-away/queue"
    gone_away(stage, away, f"{name}/#")
    count, payload = 5_000, "1234567"
    messages = [{"topic": f"{name}/a", "payload": payload, "qos": 1}] * 500
    for _ in range(count // len(messages)):
        assert ask(stage, "POST", "/api/v1/publish/bulk", {"messages": messages})[0] == 200
    waiting = lambda: stage.api(f"/api/v1/clients/{away}")["queue"]["messages"]
    until(lambda: waiting() == count, what="the queue")
    dropped = stage.metric("heraldmq_messages_dropped_total", reason="purged")
    assert ask(stage, "DELETE", path, role="viewer")[0] == 403
    assert waiting() == count
    answer = ask(stage, "DELETE", f"{path}?budget_ms=5000")
    assert answer == (200, {"removed": count, "bytes": count * len(payload), "complete": True})
    assert waiting() == 0 and ask(stage, "GET", path)[1]["items"] == []
    assert stage.metric("heraldmq_messages_dropped_total", reason="purged") - dropped == count
    assert stage.drops(1)[0]["reason"] == "purged"
    assert stage.api("/api/v1/drops/totals")["purged"] >= count
    # The session is as it was, and gets what comes.
    assert ask(stage, "DELETE", path) == (200, {"removed": 0, "bytes": 0, "complete": True})
    published(stage, topic=f"{name}/b", payload="later", qos=1)
    with stage.client(away, clean=False, session_present=True, props={"session_expiry": 600}) as client:
        assert client.message().payload == b"later"
        client.ping()
    assert ask(stage, "DELETE", f"/api/v1/sessions/{name}-nobody/queue")[0] == 404
    # What ends with its connection waits in no store: neither is it listed.
    with stage.client(f"{name}-clean", props={"receive_maximum": 1}) as clean:
        clean.subscribe(f"{name}/b", qos=1)
        for method in ("GET", "DELETE"):
            assert ask(stage, method, f"/api/v1/sessions/{name}-clean/queue")[0] == 404


def test_queues_of_identifiers_that_fit_into_no_path_are_emptied(stage, name):
    awkward, other = f"{name}/../a b", f"{name}-other"
    gone_away(stage, other, f"{name}/#")
    with stage.client(awkward, clean=False, props={"session_expiry": 600}) as client:
        client.subscribe(f"{name}/#", qos=1)
        client.disconnect()
    until(lambda: stage.api(f"/api/v1/clients?prefix={name}/")["items"][0]["state"] == "away", what="its end")
    published(stage, topic=f"{name}/a", payload="123", qos=1)
    wanted = {"action": "empty_queue", "client_ids": [awkward, f"{name}-nobody", other]}
    assert ask(stage, "POST", "/api/v1/actions", wanted, role="viewer")[0] == 403
    status, (first, nobody, last) = ask(stage, "POST", "/api/v1/actions", wanted)
    assert status == 200
    for row, client_id in ((first, awkward), (last, other)):
        assert row == {"client_id": client_id, "done": None, "emptied": {"removed": 1, "bytes": 3, "complete": True}, "problem": None}
    assert nobody["emptied"] is None and nobody["problem"]["status"] == 404
    assert ask(stage, "POST", "/api/v1/queue", {"client_id": awkward})[1]["items"] == []


def test_a_queue_is_emptied_while_its_client_reads_slowly(stage, name):
    props = {"session_expiry": 600, "receive_maximum": 3}
    with stage.client(name, clean=False, props=props) as slow, stage.client(f"{name}-publisher") as publisher:
        slow.subscribe(f"{name}/#", qos=2)
        for number in range(600):
            publisher.published(f"{name}/a", str(number).encode(), qos=1 + number % 2)
        # It acknowledges none of these.
        got = [slow.recv() for _ in range(3)]
        purge = ask(stage, "DELETE", f"/api/v1/sessions/{name}/queue?budget_ms=5000")[1]
        assert purge["complete"] and 0 < purge["removed"] <= 597
        publisher.published(f"{name}/last", b"", qos=2)
        # What was on its way arrives, in order and once, and then what came later.
        numbers, last, is_over = [], None, False
        while not is_over:
            packet = got.pop(0) if got else slow.recv()
            if packet.kind == PUBLISH and packet.topic == f"{name}/last":
                last = packet.pid
            elif packet.kind == PUBLISH:
                numbers.append(int(packet.payload))
            answer = PUBCOMP if packet.kind == PUBREL else PUBACK if packet.qos == 1 else PUBREC
            slow.send(ack(answer, packet.pid))
            is_over = packet.kind == PUBREL and packet.pid == last
        assert numbers == sorted(set(numbers)) and len(numbers) + purge["removed"] == 600
        until(lambda: stage.api(f"/api/v1/clients/{name}")["queue"]["messages"] == 0, what="the end of the queue")


def test_the_history_has_samples_at_round_times(stage, name):
    def history(since=""):
        return stage.api(f"/api/v1/stats/history{since}")

    with stage.client(f"{name}-on"):
        published(stage, topic=name)
        until(lambda: any(history()["nodes"][0]["series"]["connections"]), what="a sample")
    answer = history()
    (node,) = answer["nodes"]
    assert answer["step_s"] == 10 and answer["partial"] == [] and node["end"].endswith("0.000Z")
    series = node["series"]
    assert len({len(values) for values in series.values()}) == 1
    # Later samples may be of the time without it.
    assert max(filter(None, series["connections"])) >= 1 and series["memory_bytes"][-1] > 1_000_000
    assert series["messages_in_per_s"][-1] is not None and series["cpu_cores"][-1] < 3
    later = history(f"?since={node['end']}")["nodes"][0]
    assert len(later["series"]["connections"]) < len(series["connections"])
    assert ask(stage, "GET", "/api/v1/stats/history?since=yesterday")[0] == 400


def test_a_shard_tells_its_load_over_time(stage, name):
    # Sessions that are stored and end.
    def of_shard(store):
        stage.client(name, clean=False, props={"session_expiry": 1}).close()
        answer = stage.api(f"/api/v1/shards/{store}/0/history")
        return answer["nodes"][0]

    until(lambda: any(of_shard("session")["series"]["requests_per_s"]), what="a sample with requests")
    node = of_shard("session")
    assert sorted(node["series"]) == ["cpu_cores", "log_bytes_per_s", "requests_per_s", "wait_ms"]
    assert len({len(values) for values in node["series"].values()}) == 1
    at = next(at for at, requests in enumerate(node["series"]["requests_per_s"]) if requests)
    found = {name: values[at] for name, values in node["series"].items()}
    # So few requests may cost less than is told.
    assert 0 <= found["cpu_cores"] < 2 and found["log_bytes_per_s"] > 0 and 0 <= found["wait_ms"] < 30_000

    def are_as_long():
        return len({len(of_shard(store)["series"]["cpu_cores"]) for store in ("session", "inbox")}) == 1

    # A sample may come between the two answers.
    until(are_as_long, what="as many samples of another shard")
    later = stage.api(f"/api/v1/shards/session/0/history?since={node['end']}")["nodes"][0]
    assert len(later["series"]["cpu_cores"]) < len(node["series"]["cpu_cores"])
    together = stage.api("/api/v1/stats/history")["nodes"][0]["series"]["shards_cpu_cores"]
    assert together[-1] is not None and together[-1] < 2
    status, problem = ask(stage, "GET", "/api/v1/shards/session/7/history")
    assert (status, problem["kind"]) == (404, "shard")

"""`heraldmq profile memory`: what takes the memory of a node, and how much of what a load adds has a name."""

import json
import resource
from contextlib import ExitStack

import pytest

from harness import raw
from harness.broker import Broker, run
from harness.wait import until
from test_access_users import Api

CONNECTIONS = 2_000
FILTERS_EACH = 10
RETAINED = 5_000
QUEUED = 5_000
PAYLOAD = b"x" * 1_024

# What the allocator rounds up, and what is in nobody's count. The allocator's unused pages are an upper bound, and what is too
# much in it is taken off "not_accounted_for".
WITHOUT_NAME = {"allocated_by_others", "allocator_unused_pages", "not_accounted_for"}
OF_PROCESS = {"allocator_partly_used_pages", "allocator_metadata", "thread_stacks", "program_data", "program_files"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    keys = {}
    for role in ("administrator", "operator"):
        keys[role] = folder / role
        keys[role].write_text(run("api-key", "add", folder / "keys.json", "--name", role, "--role", role).stdout)
    with Broker({"http.keyFile": folder / "keys.json"}) as broker:
        yield broker, keys


def command(broker, key, *args):
    return run("profile", "memory", "--url", f"http://127.0.0.1:{broker.http_port}", "--key-file", key, *args)


def profile(broker, key):
    done = command(broker, key, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row["structure"]: row for row in found["structures"]}
    assert sum(row["bytes"] for row in rows.values()) == found["resident_bytes"]
    return found, rows


def test_what_a_load_adds_has_a_name(broker):
    broker, keys = broker
    key = keys["administrator"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
    empty, before = profile(broker, key)
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            client = stack.enter_context(broker.client(f"client-{number}"))
            filters = [(f"a/long/enough/{number}/filter/{each}", 0) for each in range(FILTERS_EACH)]
            client.send(raw.subscribe(1, filters))
        away = broker.client("away", props={"session_expiry": 3_600})
        away.send(raw.subscribe(1, [("queue", raw.options(1))]))
        until(lambda: broker.metric("heraldmq_subscriptions") >= CONNECTIONS * FILTERS_EACH, what="the subscriptions")
        until(lambda: broker.metric("heraldmq_inboxes") == 1, what="the inbox")
        away.close()
        until(lambda: broker.metric("heraldmq_clients_connected") == CONNECTIONS, what="the end of a connection")
        publisher = stack.enter_context(broker.client("publisher"))
        for number in range(RETAINED):
            publisher.send(raw.publish(f"retained/{number}", PAYLOAD, retain=True))
        for number in range(QUEUED):
            publisher.send(raw.publish("queue", PAYLOAD, qos=1, pid=1 + number % 10))
            if number % 10 == 9:
                for _ in range(10):
                    publisher.expect(raw.PUBACK)
        until(lambda: broker.metric("heraldmq_retained_messages") == RETAINED, what="the retained messages")
        full, after = profile(broker, key)
        grown = full["resident_bytes"] - empty["resident_bytes"]
        named = {name: row["bytes"] - before[name]["bytes"] for name, row in after.items() if name not in WITHOUT_NAME}
        counts = {name: row["count"] for name, row in after.items()}
        assert counts["clients_connected"] == CONNECTIONS + 1
        assert counts["routes"] >= CONNECTIONS * FILTERS_EACH
        assert counts["retained_messages"] == RETAINED
        share = sum(named.values()) / grown
        print(f"grown by {grown}: {share:.2f} of it has a name:", named)
        assert 0.8 <= share <= 1.2, (grown, named)
        given = full["allocator"]["allocated"] - empty["allocator"]["allocated"]
        owned = sum(of for name, of in named.items() if name not in OF_PROCESS)
        print(f"the allocator gave {given}: {owned / given:.2f} of it has an owner")
        assert 0.8 <= owned / given <= 1.2, (given, named)
        shown = command(broker, key)
        assert shown.returncode == 0 and "retained messages" in shown.stdout and "resident memory" in shown.stdout


def test_only_administrators_look_and_the_audit_says_so(broker):
    broker, keys = broker
    refused = command(broker, keys["operator"])
    assert refused.returncode == 1 and "needs the role administrator" in refused.stderr
    api = Api(broker, keys["administrator"])
    # There is no audit before the first change.
    api.command("user", "add", "ann", "--stdin", input="correct horse\n")
    assert command(broker, keys["administrator"]).returncode == 0
    until(lambda: api.ask("GET", "/audit?action=nodes.profile.memory")[1].get("items"), what="the note in the audit")

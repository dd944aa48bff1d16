"""Shards that are split by hand on a node that runs alone, while sessions use them: nothing is lost, repeated or refused."""

import contextlib
import itertools
import json
import os
import subprocess
import threading

import pytest
import yaml

from harness import raw
from harness.broker import BINARY, Broker, run
from harness.wait import DEADLINE_S, Stopwatch, until

TOKEN = "0123456789abcdef"
DAY = {"session_expiry": 86_400}
# Messages per second: more than any machine can take.
HOT_RATE = 200_000
# The machine is to have time for them, whatever else it does.
FIRST = ("nice", "-n", "-15") if os.geteuid() == 0 else ()
# From which CPU time a second on a shard is busy, with that of waiting for a core.
BUSY_US = 250_000


class Splitting:
    """A broker whose shards can be split."""

    def __init__(self, folder, **fields):
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.data = folder / "data"
        self.fields = fields

    def broker(self):
        return Broker({"http.tokenFile": str(self.token)}, data_dir=self.data, **self.fields)

    def split(self, broker, store, shard, at=None):
        place = [] if at is None else ["--at", str(at)]
        url = f"http://127.0.0.1:{broker.http_port}"
        return run("cluster", "split", store, str(shard), *place, "--url", url, "--token-file", str(self.token))


@pytest.fixture
def splitting(tmp_path):
    return Splitting(tmp_path)


def shards(broker, store):
    """The ranges of the shards of a store, by their numbers."""
    status = broker.api("/api/v1/cluster")
    return {s["shard"]: (s["first"], s["last"]) for s in status["shards"] if s["store"] == store}


def served(broker, store, count):
    """Waits until so many shards of a store are there and led."""

    def all_led():
        status = broker.api("/api/v1/cluster")
        led = [s["leader"] for s in status["shards"] if s["store"] == store]
        return len(led) == count and all(led)

    until(all_led, what=f"{count} shards of the {store} store are led")


def test_status_shows_what_a_split_makes(splitting):
    with splitting.broker() as broker:
        whole = broker.api("/api/v1/cluster")
        assert whole["cluster"] is None and whole["nodes"] == []
        assert shards(broker, "inbox") == {0: (0, 65_535)}
        for store in ("session", "inbox"):
            done = splitting.split(broker, store, 0)
            assert (done.returncode, done.stderr) == (0, ""), store
            assert shards(broker, store) == {0: (0, 32_767), 32_768: (32_768, 65_535)}
            served(broker, store, 2)
            done = splitting.split(broker, store, 32_768, 40_000)
            assert (done.returncode, done.stderr) == (0, "")
            served(broker, store, 3)
        versions = {s["shard"]: s["version"] for s in broker.api("/api/v1/cluster")["shards"] if s["store"] == "inbox"}
        assert versions == {0: 2, 32_768: 3, 40_000: 3}
        text = run("cluster", "status", "--url", f"http://127.0.0.1:{broker.http_port}").stdout
        assert "runs alone" in text and "32768-39999" in text, text


@pytest.mark.parametrize(
    "arguments, why",
    [
        (("inbox", 7), "no shard 7"),
        (("inbox", 0, 1), None),
        (("inbox", 0, 65_534), None),
    ],
)
def test_where_a_shard_can_be_split(splitting, arguments, why):
    with splitting.broker() as broker:
        done = splitting.split(broker, *arguments)
        assert done.returncode == (1 if why else 0), done.stderr
        assert (why or "") in done.stderr
        # A second time there is nothing to be split there.
        if not why:
            served(broker, "inbox", 2)
            again = splitting.split(broker, *arguments)
            assert again.returncode == 1 and "the shard has the slots" in again.stderr, again.stderr


def test_nothing_is_lost_or_repeated(splitting, name):
    """Sessions of every kind get what is published while the shards of two stores are split again and again, each message
    once and in order."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(splitting.broker())
        online = [f"{name}n{number}" for number in range(12)]
        away = [f"{name}a{number}" for number in range(12)]
        clients = {}
        for number, client_id in enumerate(online + away):
            client = broker.client(client_id, clean=False, props=DAY)
            client.subscribe(f"{name}/all", qos=2)
            client.subscribe(f"{name}/one/{number}", qos=2)
            client.subscribe(f"$share/{name}/{name}/shared", qos=2)
            clients[client_id] = client
        for client_id in away:
            clients.pop(client_id).disconnect()
        for client in clients.values():
            stack.callback(client.close)

        acknowledged, failures, over = {}, [], threading.Event()

        def total():
            return sum(map(len, list(acknowledged.values())))

        def publish(number):
            """Publishes until all splits are done, and some more."""
            try:
                with broker.client(f"{name}p{number}", clean=False, props=DAY) as publisher:
                    for count in itertools.count():
                        for topic in ("all", f"one/{count % len(online + away)}", "shared"):
                            text = f"{number}:{count}"
                            publisher.published(f"{name}/{topic}", text, qos=2)
                            acknowledged.setdefault((number, topic), []).append(text)
                        if over.is_set():
                            return
            except BaseException as error:
                failures.append(error)

        got = {client_id: [] for client_id in online + away}

        def receive(client_id, client):
            try:
                while (message := client.message()).payload != b"end":
                    got[client_id].append((message.topic.removeprefix(f"{name}/"), message.payload.decode()))
            except BaseException as error:
                failures.append(error)

        receivers = [threading.Thread(target=receive, args=item) for item in clients.items()]
        publishers = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
        for thread in receivers + publishers:
            thread.start()
        for count, slot in enumerate((32_768, 16_384, 49_152, 8_192, 57_344, 24_576), start=2):
            for store in ("inbox", "session"):
                parent = max(number for number in shards(broker, store) if number < slot)
                done = splitting.split(broker, store, parent, slot)
                assert done.returncode == 0, done.stderr
                served(broker, store, count)
            before = total()
            until(lambda: total() >= before + 30 or failures, what="publishers go on")
        over.set()
        for thread in publishers:
            thread.join()
        assert not failures, failures
        served(broker, "inbox", 7)
        with broker.client(name + "end", clean=True) as last:
            last.published(f"{name}/all", "end", qos=2)
        for thread in receivers:
            thread.join()
        assert not failures, failures

        # What those get who were away is still there when the broker was killed.
        broker.kill()
        broker = stack.enter_context(splitting.broker())
        served(broker, "inbox", 7)
        for client_id in away:
            client = stack.enter_context(broker.client(client_id, session_present=True, clean=False, props=DAY))
            while (message := client.message()).payload != b"end":
                got[client_id].append((message.topic.removeprefix(f"{name}/"), message.payload.decode()))

        for number, client_id in enumerate(online + away):
            for (publisher, topic), published in acknowledged.items():
                if topic in ("all", f"one/{number}"):
                    received = [text for of, text in got[client_id] if of == topic and text.startswith(f"{publisher}:")]
                    assert received == published, (client_id, topic)
        shared = sorted(text for messages in got.values() for of, text in messages if of == "shared")
        assert shared == sorted(
            text for (_, topic), published in acknowledged.items() for text in published if topic == "shared"
        )
        totals = broker.drop_totals()
        assert not any(totals.values()), totals


def test_a_subscription_holds_over_a_split(splitting, name):
    """Who has its SUBACK gets what is published from then on, whichever half has the session."""
    with splitting.broker() as broker, broker.client(name + "p") as publisher, contextlib.ExitStack() as stack:
        clients = []
        for slot in (32_768, 16_384, 49_152, 1_000, 64_000):
            parent = max(number for number in shards(broker, "inbox") if number < slot)
            assert splitting.split(broker, "inbox", parent, slot).returncode == 0
            for number in range(10):
                client_id = f"{name}{slot}-{number}"
                client = stack.enter_context(broker.client(client_id, clean=False, props=DAY))
                client.subscribe(f"{name}/{slot}/{number}", f"{name}/all", qos=1)
                publisher.published(f"{name}/{slot}/{number}", "own")
                client.message(payload="own")
                clients.append(client)
            publisher.published(f"{name}/all", str(slot))
            for client in clients:
                client.message(payload=str(slot))
        for client in clients:
            client.unsubscribe(f"{name}/all")
        publisher.published(f"{name}/all", "none")
        for client in clients:
            client.ping()


def test_retained_messages_are_replayed_over_splits(splitting, name):
    """Each once to whoever subscribes, before and after, and those that are owed to a session that was away."""
    count = 600
    with splitting.broker() as broker, broker.client(name + "p") as publisher, contextlib.ExitStack() as stack:
        for number in range(count):
            publisher.published(f"{name}/{number}", str(number), retain=True)
        wanted = sorted(str(number).encode() for number in range(count))
        durable = stack.enter_context(broker.client(name + "d", clean=False, props=DAY))
        durable.subscribe(f"{name}/#", qos=1)
        owed = []
        for split, slot in enumerate((32_768, 8_192, 50_000), start=2):
            if split == 3:
                # In the middle of what it is owed.
                owed += durable.take(20)
            parent = max(number for number in shards(broker, "retain") if number < slot)
            done = splitting.split(broker, "retain", parent, slot)
            assert done.returncode == 0, done.stderr
            served(broker, "retain", split)
            client = stack.enter_context(broker.client(f"{name}{slot}"))
            client.subscribe(f"{name}/#", qos=0)
            assert sorted(message.payload for message in client.take(count)) == wanted
            client.ping()
        owed += durable.take(count - len(owed))
        assert sorted(message.payload for message in owed) == wanted
        # One is deleted, and one replaced, in whichever shard they are by now.
        publisher.published(f"{name}/1", b"", retain=True)
        publisher.published(f"{name}/2", b"new", retain=True)
        client = stack.enter_context(broker.client(f"{name}last"))
        client.subscribe(f"{name}/#", qos=0)
        payloads = [message.payload for message in client.take(count - 1)]
        assert sorted(payloads) == sorted((set(wanted) - {b"1", b"2"}) | {b"new"})


def test_wills_and_expiries_go_with_their_slots(splitting, name):
    with splitting.broker() as broker, broker.client(name + "s") as subscriber:
        subscriber.subscribe(f"{name}/#", qos=1)
        clients = [f"{name}{number}" for number in range(16)]
        for client_id in clients:
            will = {"topic": f"{name}/{client_id}", "payload": client_id.encode(), "qos": 1, "props": {"will_delay": 2}}
            broker.client(client_id, clean=False, props={"session_expiry": 3}, will=will).close()
        for slot in (32_768, 16_384, 49_152):
            parent = max(number for number in shards(broker, "session") if number < slot)
            assert splitting.split(broker, "session", parent, slot).returncode == 0
            served(broker, "session", len(shards(broker, "session")))
        assert sorted(message.payload.decode() for message in subscriber.take(len(clients))) == sorted(clients)
        until(lambda: broker.metric("heraldmq_sessions") == 1, what="the end of their sessions")
        for client_id in clients:
            broker.client(client_id, session_present=False, clean=False, props=DAY).close()
        subscriber.ping()


def test_a_split_folder_is_read_again(splitting, name):
    with splitting.broker() as broker:
        for number in range(20):
            with broker.client(f"{name}{number}", clean=False, props=DAY) as client:
                client.subscribe(f"{name}/#", qos=1)
                client.disconnect()
        # Without a slot, they would be split at the half of the load, once that is known.
        assert splitting.split(broker, "inbox", 0, 32_768).returncode == 0
        assert splitting.split(broker, "session", 0).returncode == 0
        with broker.client(name + "p") as publisher:
            publisher.published(f"{name}/x", "1")
        assert broker.stop() == 0
    for payload in ("2", "3"):
        with splitting.broker() as broker:
            assert shards(broker, "inbox") == {0: (0, 32_767), 32_768: (32_768, 65_535)}
            served(broker, "inbox", 2)
            with broker.client(name + "p") as publisher:
                publisher.published(f"{name}/x", payload)
            broker.kill()
    with splitting.broker() as broker:
        for number in range(20):
            with broker.client(f"{name}{number}", session_present=True, clean=False, props=DAY) as client:
                assert [message.payload for message in client.take(3)] == [b"1", b"2", b"3"]
    survey = json.loads(run("store", "inspect", splitting.data, "--json").stdout)
    inbox = next(store for store in survey["stores"] if store["name"] == "inbox")
    assert len(inbox["shards"]) == 2, inbox


def test_a_busy_shard_is_split_by_itself(tmp_path, name):
    """By BifroMQ's meaning of its options, which stand in the environment as in the published reports: entries of the log that
    put a message in many queues are dense."""
    env = {
        "inbox_store_split_policy": "bifromq",
        "inbox_store_max_io_density": "5",
        "inbox_store_io_nanos_limit": "1000000000",
        "inbox_store_range_split_max_cpu_usage": "1",
        "inbox_store_shards_per_node": "2",
        "session_store_split_policy": "none",
    }
    with Broker(data_dir=tmp_path / "data", env=env) as broker:
        members = [f"{name}{number}" for number in range(20)]
        clients = [broker.client(client_id, clean=False, props=DAY) for client_id in members]
        for client in clients:
            client.subscribe(f"{name}/all", qos=1)
        publisher = broker.client(f"{name}p")
        published = []

        def decision(store):
            status = broker.api("/api/v1/cluster")
            return {s["shard"]: s["split"]["decision"] for s in status["shards"] if s["store"] == store and "split" in s}

        def is_split():
            published.append(str(len(published)).encode())
            publisher.published(f"{name}/all", published[-1], qos=1)
            return len(shards(broker, "inbox")) == 2

        until(is_split, 2 * DEADLINE_S, "the inbox shard is split")
        served(broker, "inbox", 2)
        for client in clients:
            got = [client.message().payload for _ in published]
            assert got == published, client
        until(lambda: set(decision("inbox").values()) == {"new"}, what="both halves are new")
        assert decision("session") == {0: "by_hand_only"}
        assert broker.metric("heraldmq_splits_total", store="inbox", outcome="done") == 1
        text = run("cluster", "status", "--url", f"http://127.0.0.1:{broker.http_port}").stdout
        assert "by_hand_only" in text, text


def test_one_hot_session_is_named_and_its_shard_is_not_split(tmp_path):
    """With the settings as they are delivered but for the rate limit: one session has all the load of the store."""
    unlimited = {"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}
    workload = tmp_path / "hot.yml"
    pairs = {"pairs": 1, "rate": HOT_RATE, "payload": 64, "qos": 1, "clean_session": False}
    workload.write_text(yaml.safe_dump({"name": "hot", "parts": [{"pairs": pairs}]}))
    with Broker(unlimited, data_dir=tmp_path / "data", prefix=FIRST) as broker:
        arguments = ["bench", "run", str(workload), "--target", f"127.0.0.1:{broker.port}", "--duration", "10m"]
        with subprocess.Popen([*FIRST, BINARY, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
            try:

                def shard():
                    (shard,) = [s for s in broker.api("/api/v1/cluster")["shards"] if s["store"] == "inbox"]
                    return shard

                clock, most_us = Stopwatch(), 0

                def names():
                    nonlocal most_us
                    now, load = shard()["split"], shard().get("load") or {}
                    most_us = max(most_us, sum(load.get(f"{part}_us", 0) for part in ("propose", "apply", "read")))
                    if now["decision"] in ("new", "not_busy") and clock.seconds() > DEADLINE_S and most_us < BUSY_US:
                        pytest.skip(f"one session does not keep a thread of this machine busy: {most_us} µs a second")
                    return now["decision"] == "one_slot" and now.get("names")

                (name,) = until(names, 4 * DEADLINE_S, lambda: f"the slot: {shard()}")
            finally:
                bench.terminate()
        line = "one slot has most of the load of a busy shard, which a split cannot divide"
        warning = until(lambda: broker.find(line), what="the line")
        assert [line["store"] for line in warning] == ["inbox"] and name in warning[0]["names"]
        text = run("cluster", "status", "--url", f"http://127.0.0.1:{broker.http_port}").stdout
        assert name in text, text
        assert broker.metric("heraldmq_splits_total", store="inbox", outcome="done") == 0

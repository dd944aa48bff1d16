"""A data folder that the program `HERALDMQ_BEFORE` leaves, and this version goes on with: nothing is lost, nothing comes
twice. What `test_old_folders.py` shows of released formats, this shows of any commit, and of identifiers of each length.

Half of the folder is a checkpoint, which a first stop has left; then the program goes on with it and is stopped again.
Until the level is raised the program before goes on with what this version leaves, too; then it refuses it.
"""

import re
import signal

import pytest

from harness import raw
from harness.broker import BASE, BEFORE, BINARY, Broker, run
from harness.raw import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from harness.wait import until

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not BEFORE, reason="HERALDMQ_BEFORE names no program of an earlier version"),
]

FOREVER = {"session_expiry": 0xFFFFFFFF}

# Bytes of the client identifiers: a short one, a UUID in text, and of those that have a shorter name since, one of few
# bytes and one of almost as many as MQTT allows.
LENGTHS = (10, 36, 41, 60_000)
QUEUED, LEFT = 20, 200
RETAINED, REPLAYED = 260, 120
UNRELEASED, RELEASED = 77, 78


class Household:
    """Clients with identifiers of one length, and the messages between them."""

    def __init__(self, stage, length):
        self.length, self.root = length, f"{stage}{length}"
        # Topics that the session "half" has got.
        self.replayed = set()
        # Those that are open when the broker ends.
        self.open = []

    def client(self, broker, name, *, is_new=False, **fields):
        client_id = f"{self.root}{name}".ljust(self.length, "x")
        assert len(client_id) <= max(self.length, 20)
        return broker.client(
            client_id, **{"clean": False, "props": FOREVER, "session_present": not is_new} | fields
        )

    def topic(self, name):
        return f"{self.root}/{name}"

    def fill(self, broker):
        """One of everything that is kept. Connections that stay open end with the broker."""
        new = {"is_new": True}
        with self.client(broker, "keeper", **new) as keeper:
            for n in range(RETAINED):
                keeper.published(self.topic(f"kept/{n}"), f"{n}", qos=1 + n % 2, retain=True)
            keeper.disconnect()
        # Owed retained messages, none of which or some of which are replayed.
        for name, count in (("late", 0), ("half", REPLAYED)):
            owed = self.client(broker, name, **new, props=FOREVER | {"receive_maximum": 10})
            owed.subscribe(self.topic("kept/+"), qos=2)
            got = owed.take(count)
            self.replayed = {m.topic for m in got}
            assert len(self.replayed) == count
            owed.close()

        sleeper = self.client(broker, "sleep", **new)
        sleeper.subscribe(self.topic("queue/#"), qos=2)
        sleeper.subscribe((f"$share/group/{self.topic('shared/+')}", raw.options(2)))
        sleeper.subscribe(self.topic("last/+"), qos=2)
        sleeper.disconnect()
        # Has all messages of its group when another member comes.
        dead = self.client(broker, "dead", **new)
        dead.subscribe((f"$share/heirs/{self.topic('left/+')}", raw.options(2)))
        dead.disconnect()

        reader = self.client(broker, "read", **new)
        reader.subscribe(self.topic("flight/+"), qos=2)
        publisher = self.client(broker, "pub", **new)
        publisher.published(self.topic("flight/1"), b"sent at QoS 1")
        publisher.published(self.topic("flight/2"), b"sent at QoS 2", qos=2)
        publisher.published(self.topic("flight/3"), b"received at QoS 2", qos=2)
        self.flying = [reader.expect(PUBLISH).pid for _ in range(3)]
        reader.send(raw.ack(PUBREC, self.flying[2]))
        reader.expect(PUBREL, pid=self.flying[2])
        for n in range(QUEUED):
            publisher.published(self.topic(f"queue/{n % 3}"), f"{n}", qos=1 + n % 2)
            publisher.published(self.topic("shared/1"), f"{n}", qos=1 + n % 2)
        for n in range(LEFT):
            publisher.published(self.topic("left/1"), f"{n}", qos=1 + n % 2)
        with self.client(broker, "heir", **new) as heir:
            heir.subscribe((f"$share/heirs/{self.topic('left/+')}", raw.options(2)))
            heir.disconnect()
        # Sent, and not released. The second is for a group, and its PUBREL is lost with the broker.
        publisher.send(raw.publish(self.topic("queue/late"), b"unreleased", qos=2, pid=UNRELEASED))
        publisher.expect(PUBREC, pid=UNRELEASED, reason=0)
        publisher.send(raw.publish(self.topic("shared/late"), b"for the group", qos=2, pid=RELEASED))
        publisher.expect(PUBREC, pid=RELEASED, reason=0)
        will = {"topic": self.topic("last/words"), "payload": b"gone", "qos": 2, "props": {"will_delay": 1}}
        self.open = [reader, publisher, self.client(broker, "doomed", **new, will=will)]

    def leave(self, broker):
        """Ends a session with messages of a group. What others of the group have not got is a legacy."""
        self.open.append(self.client(broker, "dead", clean=True, props={}, session_present=False))

    def expect_all(self, broker):
        """What `fill` has left, as the clients see it."""
        publisher = self.client(broker, "pub")
        publisher.send(raw.publish(self.topic("queue/late"), b"unreleased", qos=2, pid=UNRELEASED, dup=True))
        publisher.answer(PUBREC, UNRELEASED)
        publisher.send(raw.publish(self.topic("shared/late"), b"for the group", qos=2, pid=RELEASED, dup=True))
        publisher.answer(PUBREC, RELEASED)
        for pid in (RELEASED, UNRELEASED):
            publisher.send(raw.ack(PUBREL, pid))
            publisher.answer(PUBCOMP, pid)

        sleeper = self.client(broker, "sleep")
        # The will may come at any time.
        expected = 2 * QUEUED + 3
        got = sleeper.take(expected)
        topics = {
            kind: [m.payload for m in got if m.topic.startswith(self.topic(kind))] for kind in ("queue", "shared", "last")
        }
        numbers = [b"%d" % n for n in range(QUEUED)]
        assert topics == {
            "queue": [*numbers, b"unreleased"],
            "shared": [*numbers, b"for the group"],
            "last": [b"gone"],
        }
        publisher.published(self.topic("queue/end"), b"end")
        assert sleeper.until("end") == []
        publisher.published(self.topic("shared/end"), b"end of the group")
        assert sleeper.until("end of the group") == []
        sleeper.disconnect()

        reader = self.client(broker, "read")
        again = [reader.recv() for _ in range(3)]
        assert [(p.kind, p.payload if p.kind == PUBLISH else None) for p in again] == [
            (PUBLISH, b"sent at QoS 1"),
            (PUBLISH, b"sent at QoS 2"),
            (PUBREL, None),
        ]
        assert [p.pid for p in again] == self.flying
        assert again[0].dup and again[1].dup
        reader.send(raw.ack(PUBACK, again[0].pid), raw.ack(PUBREC, again[1].pid), raw.ack(PUBCOMP, again[2].pid))
        reader.answer(PUBREL, again[1].pid)
        reader.send(raw.ack(PUBCOMP, again[1].pid))
        publisher.published(self.topic("flight/4"), b"end")
        assert reader.until("end") == []
        reader.disconnect()

        heir = self.client(broker, "heir")
        left = heir.take(LEFT)
        assert sorted(int(m.payload) for m in left) == list(range(LEFT))
        publisher.published(self.topic("left/end"), b"end")
        assert heir.until("end") == []
        heir.disconnect()

        every = {self.topic(f"kept/{n}") for n in range(RETAINED)}
        ends = set()
        for name, replayed in (("late", set()), ("half", self.replayed)):
            owed = self.client(broker, name, props=FOREVER | {"receive_maximum": 10})
            wanted = every - replayed | ends
            got = [message.topic for message in take(owed, len(wanted))]
            assert len(got) == len(set(got)) and set(got) == wanted
            ends.add(self.topic(f"kept/end-{name}"))
            publisher.published(self.topic(f"kept/end-{name}"), b"end")
            assert [message.payload for message in take(owed, 1)] == [b"end"]
            owed.disconnect()
        publisher.disconnect()

    def expect_nothing_more(self, broker):
        """All sessions are there, and what they have had does not come again."""
        with self.client(broker, "pub") as publisher:
            for name, topic in (
                ("sleep", "queue"),
                ("read", "flight"),
                ("late", "kept"),
                ("half", "kept"),
                ("heir", "left"),
            ):
                with self.client(broker, name) as client:
                    publisher.published(self.topic(f"{topic}/again"), f"again {name}", qos=2)
                    # What came for the other of these two while it was away.
                    missed = {"late": [b"end"], "half": [b"again late"]}.get(name, [])
                    assert [m.payload for m in client.until(f"again {name}")] == missed
                    client.disconnect()
            publisher.disconnect()


def take(client, count) -> list[raw.Packet]:
    """So many messages, each acknowledged when it comes, until the broker has heard all of that. PUBREL of a connection
    before may come first."""
    got, received = [], set()
    while len(got) < count or received:
        packet = client.recv()
        if packet.kind == PUBREL:
            received.discard(packet.pid)
            client.send(raw.ack(PUBCOMP, packet.pid))
            continue
        assert packet.kind == PUBLISH, packet
        got.append(packet)
        if packet.qos == 2:
            received.add(packet.pid)
        client.send(raw.ack(PUBREC if packet.qos == 2 else PUBACK, packet.pid))
    return got


def fill(broker, households):
    for household in households:
        household.fill(broker)
    for household in households:
        household.leave(broker)


def end(broker, number):
    broker.signal(number)
    assert broker.wait() in (0, -signal.SIGKILL)


def complaints(broker):
    return [line for line in broker.log_lines if line.get("level") == "ERROR"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("between", [None, signal.SIGTERM, signal.SIGKILL], ids=["at once", "stop", "kill"])
def test_a_folder_of_the_version_before_is_gone_on_with(number, between, tmp_path):
    data = tmp_path / "data"
    households = [Household(stage, length) for stage in "ab" for length in LENGTHS]
    with Broker(data_dir=data, binary=BEFORE) as broker:
        fill(broker, households[: len(LENGTHS)])
        end(broker, signal.SIGTERM)
    with Broker(data_dir=data, binary=BEFORE) as broker:
        fill(broker, households[len(LENGTHS) :])
        end(broker, number)
    if between:
        # Rows of the version before are written anew, or are read again.
        with Broker(data_dir=data) as broker:
            end(broker, between)
            assert not complaints(broker)
        verify(data)
    with Broker(data_dir=data) as broker:
        for household in households:
            household.expect_all(broker)
        end(broker, signal.SIGKILL)
        assert not complaints(broker)
    verify(data)
    with Broker(data_dir=data) as broker:
        for household in households:
            household.expect_nothing_more(broker)
        end(broker, signal.SIGTERM)
        assert not complaints(broker)
    verify(data)


# The level of this version.
NEWEST = 9


def format_of(data) -> str:
    return (data / "FORMAT").read_text().splitlines()[0]


def level_of(data) -> int:
    """Of shards that say none, as this version has noted it."""
    return int((data / "level").read_text())


def finish(broker, token, *args):
    url = f"http://127.0.0.1:{broker.http_port}"
    return run("cluster", "upgrade", "finish", "--url", url, "--token-file", token, *args)


def levels(broker) -> tuple[int, int]:
    level = broker.api("/api/v1/cluster")["level"]
    return level["lowest"], level["highest"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("is_empty", [True, False], ids=["nothing", "something"])
def test_a_folder_goes_there_and_back_until_the_level_is_raised(is_empty, number, tmp_path):
    data = tmp_path / "data"
    # Debug builds of earlier programs read logs with longer ones for minutes.
    lengths = (*LENGTHS[:-1], 4_000)
    by_stage = {stage: [Household(stage, length) for length in lengths] for stage in "abcd"}
    there = []

    def go(binary, stage, read=()):
        """The program goes on with the folder: what the stages `read` have left is there, and it leaves something itself."""
        with Broker(data_dir=data, binary=binary) as broker:
            for before in read:
                for household in by_stage[before]:
                    household.expect_all(broker)
                there.extend(by_stage[before])
            if stage:
                fill(broker, by_stage[stage])
            end(broker, number)
            assert not complaints(broker)
        verify(data, binary)

    go(BEFORE, None if is_empty else "a")
    go(BINARY, "b", "" if is_empty else "a")
    before = level_of(data)
    assert before < NEWEST
    go(BEFORE, "c", "b")
    go(BINARY, "d", "c")
    # A folder of nothing shows its level only when the program before has kept something in it.
    assert level_of(data) == before or is_empty
    before = level_of(data)
    assert before < NEWEST and f"format {NEWEST}" not in format_of(data)
    go(BEFORE, None, "d")

    token = tmp_path / "token"
    token.write_text("for-tests-only")
    with Broker({"http.tokenFile": token}, data_dir=data) as broker:
        broker.key = token.read_text()
        for household in there:
            household.expect_nothing_more(broker)
        tried = finish(broker, token, "--dry-run")
        assert tried.returncode == 0 and f"level {before} of {NEWEST} (" in tried.stdout, tried
        assert levels(broker) == (before, before)
        done = finish(broker, token)
        assert done.returncode == 0, done
        until(lambda: levels(broker) == (NEWEST, NEWEST), what="the level")
        assert format_of(data).endswith(f"format {NEWEST}")
        again = finish(broker, token)
        assert again.returncode == 0 and "there is nothing to raise" in again.stdout, again
        end(broker, number)
        assert not complaints(broker)
    verify(data)

    refused = run("serve", "--data-dir", data, "--set", "mqttServerConfig.tcpListener.port=0", "--set", "http.port=0", binary=BEFORE)
    assert refused.returncode == 1, refused
    known = re.search(rf"has format {NEWEST}; this HeraldMQ knows formats up to (\d)", refused.stderr)
    # The level of a folder with nothing in it may be the lowest of all.
    assert known and int(known[1]) < NEWEST and (is_empty or int(known[1]) == before), refused
    with Broker(data_dir=data) as broker:
        assert levels(broker) == (NEWEST, NEWEST)
        for household in there:
            for name in ("sleep", "read", "late", "half", "heir", "pub"):
                household.client(broker, name).close()
        end(broker, number)
        assert not complaints(broker)


def verify(data, binary=BINARY):
    got = run("store", "verify", data, binary=binary)
    assert got.returncode == 0, got.stdout + got.stderr


def test_rules_for_retained_messages_wait_for_the_level_and_count_from_then(tmp_path, name):
    data, token = tmp_path / "data", tmp_path / "token"
    token.write_text("for-tests-only")
    with Broker(data_dir=data, binary=BEFORE) as broker, broker.client("publisher") as publisher:
        for number in range(5):
            publisher.published(f"{name}/{number}", b"x", qos=1, retain=True)
        end(broker, signal.SIGTERM)
    if int(format_of(data).split()[-1]) >= 8:
        pytest.skip("rules end retained messages with the program of before already")
    config = {**BASE, "retain": {"maxAgeSeconds": 1}}
    with Broker({"http.tokenFile": token}, config=config, data_dir=data) as broker:
        broker.key = token.read_text()
        line = "rules for retained messages do nothing until the level of the cluster is raised"
        until(lambda: any(found["message"] == line for found in broker.log_lines), what="the log line")
        with broker.client("publisher") as publisher:
            publisher.published(f"{name}/new", b"x", qos=1, retain=True)
        rows = broker.api("/api/v1/retained")["items"]
        assert len(rows) == 6 and all(row["retained_at"] is None for row in rows)
        done = finish(broker, token)
        assert done.returncode == 0, done
        ended = lambda: broker.metric("heraldmq_retained_removed_total", reason="age")  # noqa: E731
        until(lambda: ended() == 6, what="the end of all messages")
        assert broker.api("/api/v1/retained")["items"] == []
        end(broker, signal.SIGKILL)
    verify(data)
    with Broker(data_dir=data) as broker:
        assert broker.metric("heraldmq_retained_messages") == 0
        assert not complaints(broker)

"""`heraldmq store inspect` and `heraldmq store verify` on the data folders of real brokers."""

import json
import pathlib
import shutil

import pytest

from harness import raw
from harness.broker import Broker, run
from harness.clock import LIBRARY, Clock
from harness.crowd import Crowd, Peer
from harness.wait import until

DAY_S = 86_400


def flip(path: pathlib.Path, offset: int, bits: int = 3):
    """Changes bits of one byte of a file: two, so that a log cannot be repaired."""
    content = bytearray(path.read_bytes())
    content[offset] ^= bits
    path.write_bytes(content)


def content(folder: pathlib.Path) -> dict:
    """Every file with its bytes and the time of its last change."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def fill(broker: Broker):
    """Two sessions that are away, with three messages each, and two retained messages."""
    for client_id in ("ann", "bob"):
        with broker.client(client_id, clean=False, props={"session_expiry": DAY_S}) as client:
            client.subscribe("news/#", qos=1)
            client.disconnect()
    with broker.client("publisher") as publisher:
        for number in range(3):
            publisher.published("news/a", f"message {number}")
        for topic in ("state/a", "state/b"):
            publisher.published(topic, "on", retain=True)


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    """The data folder of a broker that was filled and ended in order."""
    folder = tmp_path / "data"
    with Broker(data_dir=folder) as broker:
        fill(broker)
    return folder


def inspect(folder) -> dict:
    got = run("store", "inspect", folder, "--json")
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


def rows(survey: dict) -> dict:
    """How many rows there are, by kind, without the machines' own."""
    kinds = (kind for store in survey["stores"] for shard in store["shards"] for kind in shard["rows"])
    return {kind["kind"]: kind["rows"] for kind in kinds if kind["kind"] != "machine"}


def verify(folder, *, code, mentions=()):
    got = run("store", "verify", folder)
    said = got.stdout + got.stderr
    assert got.returncode == code, said
    assert all(word in said for word in mentions), said
    assert "panicked" not in said
    return got.stdout


def test_a_folder_that_was_left_in_order_is_right(data):
    before = content(data)
    said = verify(data, code=0, mentions=["OK", "nothing to apply again"])
    assert len(said.splitlines()) == 1
    assert inspect(data)["findings"] == []
    assert content(data) == before, "looking changes nothing"


def test_inspect_tells_what_there_is(data):
    survey = inspect(data)
    assert survey["format"] == 9 and survey["incarnation"] == 1 and survey["last_alive_ms"] > 0
    counted = rows(survey)
    assert counted["sessions"] == 2 and counted["inboxes"] == 2
    assert counted["queued messages"] == 6 and counted["shared messages"] == 3
    assert counted["retained messages"] == 2
    inbox = survey["stores"][1]["shards"][0]
    assert [(of["client"], of["messages"]) for of in inbox["fullest"]] == [("ann", 3), ("bob", 3)]
    assert all(abs(survey["last_alive_ms"] - of["oldest_ms"]) < 60_000 for of in inbox["fullest"])
    assert inbox["log"]["replay_requests"] == 0 and inbox["checkpoint"] == inbox["log"]["next"] - 1

    text = run("store", "inspect", data).stdout
    assert survey["node"] in text and "ann" in text and "queued messages" in text
    assert all(line == line.rstrip() for line in text.splitlines()), "no spaces at the ends of lines"


def test_what_a_killed_broker_leaves_is_right_and_is_applied_again(tmp_path):
    folder = tmp_path / "data"
    with Broker(data_dir=folder) as broker:
        fill(broker)
        broker.kill()
    said = verify(folder, code=0, mentions=["OK", "to apply again"])
    assert "nothing to apply again" not in said
    with Broker(data_dir=folder) as broker:
        with broker.client("ann", clean=False, session_present=True) as client:
            assert [of.payload for of in client.take(3)] == [b"message %d" % number for number in range(3)]


def test_a_folder_that_a_broker_uses_is_refused(data):
    with Broker(data_dir=data):
        verify(data, code=1, mentions=["in use by another process", str(data)])
        assert run("store", "inspect", data).returncode == 1


def test_flipped_bits_in_a_table_are_found_with_store_and_shard(data):
    table = max((data / "inbox").glob("shard-*/tables/*"))
    flip(table, 20)
    verify(data, code=1, mentions=["inbox store, shard 0", "damaged"])
    # It tells what can be told of the others.
    assert rows(inspect(data))["retained messages"] == 2
    said = run("store", "inspect", data).stdout
    assert "heraldmq store verify" in said


def test_status_lists_what_is_damaged_and_what_to_do(data):
    table = max((data / "inbox").glob("shard-*/tables/*"))
    flip(table, 20)
    with Broker(data_dir=data) as broker:
        until(lambda: broker.metric("heraldmq_store_shards_stopped", store="inbox") == 1, 10, "the shard is to stop")
        (listed,) = broker.api("/api/v1/cluster")["damaged"]
        assert (listed["store"], listed["shard"], listed["recovers_from"]) == ("inbox", 0, "nothing")
        assert "is damaged" in listed["damage"] and 0 <= listed["seconds"] < 60, listed
        assert "received_bytes" not in listed
        said = run("cluster", "status", "--url", f"http://127.0.0.1:{broker.http_port}").stdout
        lines = said.splitlines()
        row = lines[next(at for at, line in enumerate(lines) if line.startswith("damaged")) + 1]
        assert row.split()[:2] == ["inbox", "0"] and "nothing" in row and "does not serve" in row and "is damaged" in row, said
        assert any(line.startswith("inbox 0: put a backup back") for line in lines), said


def test_status_says_nothing_of_damage_where_there_is_none(data):
    with Broker(data_dir=data) as broker:
        said = run("cluster", "status", "--url", f"http://127.0.0.1:{broker.http_port}").stdout
        assert "damaged" not in said and "damaged" not in broker.api("/api/v1/cluster"), said


def test_flipped_bits_in_the_log_are_found_with_their_place(data):
    log = next((data / "log").rglob("*.raftlog"))
    flip(log, 69 + 8)
    verify(data, code=1, mentions=[log.name, "damaged from byte 69"])


def retained(broker: Broker) -> set:
    with broker.client("asks") as client, broker.client("publisher") as publisher:
        client.subscribe("state/#", qos=1)
        publisher.published("state/last", "")
        found = set()
        while (topic := client.message().topic) != "state/last":
            found.add(topic)
        return found


def test_a_shard_goes_on_without_what_damage_has_lost(tmp_path):
    folder = tmp_path / "data"
    topics = [f"state/{number:02}" for number in range(20)]
    with Broker(data_dir=folder) as broker:
        with broker.client("publisher") as publisher:
            for topic in topics:
                publisher.published(topic, f"payload of {topic}", retain=True)
        broker.kill()
    log = next((folder / "log").rglob("*.raftlog"))
    flip(log, log.read_bytes().index(b"payload of state/12"))
    said = verify(folder, code=1, mentions=[log.name, "damaged from byte", "retain store, shard 0", "missing"])
    assert "session store" not in said and "inbox store" not in said
    with Broker(data_dir=folder) as broker:
        until(lambda: broker.metric("heraldmq_store_shards_stopped", store="retain") == 1, 10, "the shard is to stop")
        assert broker.metric("heraldmq_store_log_damage") == 1
        with broker.client("ann", clean=False, props={"session_expiry": DAY_S}) as client:
            client.disconnect()
    # The log is another one by now, and what is missing is still missing.
    verify(folder, code=1, mentions=["retain store, shard 0", "missing"])
    refused = run("store", "recover", folder, "--accept-damage", "retain/7")
    assert refused.returncode == 1 and "no shard 7" in refused.stderr, refused
    wrong = run("store", "recover", folder, "--accept-damage", "retain")
    assert wrong.returncode == 2 and "retain/0" in wrong.stderr, wrong
    for expected in ("retain 0: goes on; LOST: ", "retain 0: nothing is missing"):
        done = run("store", "recover", folder, "--accept-damage", "retain/0")
        assert done.returncode == 0 and expected in done.stdout, done
    verify(folder, code=0, mentions=["OK"])
    with Broker(data_dir=folder) as broker:
        assert broker.metric("heraldmq_store_log_damage") == 0
        assert retained(broker) == set(topics[:12])


def test_one_flipped_bit_of_the_log_of_a_killed_broker_is_flipped_back(tmp_path):
    folder = tmp_path / "data"
    topics = [f"state/{number:02}" for number in range(20)]
    with Broker(data_dir=folder) as broker:
        with broker.client("publisher") as publisher:
            for topic in topics:
                publisher.published(topic, f"payload of {topic}", retain=True)
        broker.kill()
    log = next((folder / "log").rglob("*.raftlog"))
    at = log.read_bytes().index(b"payload of state/12")
    flip(log, at, bits=1)
    said = verify(folder, code=1, mentions=[log.name, f"a bit of byte {at} is flipped"])
    assert "missing" not in said
    with Broker(data_dir=folder) as broker:
        assert broker.metric("heraldmq_store_log_damage") == 1
        assert broker.metric("heraldmq_store_shards_stopped", store="retain") == 0
        assert retained(broker) == set(topics)
    verify(folder, code=0, mentions=["OK"])


def test_a_torn_end_of_the_log_is_noted_and_nothing_wrong(data):
    log = next((data / "log").rglob("*.raftlog"))
    with log.open("ab") as file:
        file.write(b"\x07" * 100)
    verify(data, code=0, mentions=["note:", "not whole", "OK"])


def test_a_newer_format_is_refused_with_both_numbers(data):
    path = data / "FORMAT"
    path.write_text(path.read_text().replace("format 9", "format 11"))
    verify(data, code=1, mentions=["format 11", "up to 9"])


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("…")
    verify(tmp_path, code=1, mentions=["no FORMAT file", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    verify(tmp_path / "none", code=1, mentions=["none"])


def test_a_store_that_is_gone_or_elsewhere(data, tmp_path):
    moved = tmp_path / "moved"
    shutil.move(data / "retain", moved)
    verify(data, code=1, mentions=["retain store", "is not in"])
    got = run("store", "verify", data, "--retain-store", moved)
    assert got.returncode == 0, got.stdout + got.stderr


def test_retained_messages_are_owed_until_they_are_sent(tmp_path):
    """The connection, or the broker, ends in the middle of many."""
    topics = {f"state/{n}" for n in range(300)}
    durable = {"session_expiry": DAY_S}
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        with broker.client("publisher") as publisher:
            for topic in topics:
                publisher.published(topic, "on", retain=True, qos=2)
        with broker.client("ann", clean=False, props=durable) as client:
            client.subscribe("state/+", qos=2)
            got = [client.message().topic for _ in range(100)]
        with broker.client("ann", clean=False, props=durable, session_present=True) as client:
            got += [client.message().topic for _ in range(99)]
            last = client.expect(raw.PUBLISH)
            client.send(raw.ack(raw.PUBREC, last.pid))
            client.answer(raw.PUBREL, last.pid)
            broker.kill()
    with Broker(data_dir=data) as broker:
        with broker.client("ann", clean=False, props=durable, session_present=True) as client:
            # Of the one before, too, if its PUBCOMP was not recorded yet.
            while (owed := client.expect(raw.PUBREL).pid) != last.pid:
                client.send(raw.ack(raw.PUBCOMP, owed))
            client.send(raw.ack(raw.PUBCOMP, last.pid))
            got += [last.topic] + [client.message().topic for _ in range(100)]
            client.ping()
    assert sorted(got) == sorted(topics)


def test_a_message_for_very_many_sessions_that_are_away_survives_a_crash(tmp_path):
    """It is queued for 1,024 sessions of a shard at a time, and acknowledged when all have it."""
    folder, sessions, at_once = tmp_path / "data", 2_500, 250
    persistent = {"clean": False, "props": {"session_expiry": DAY_S}}

    def batches(port):
        for first in range(0, sessions, at_once):
            with Crowd(port) as crowd:
                peers = [Peer(crowd, f"client-{first + n}", **persistent) for n in range(at_once)]
                yield crowd, peers
                for peer in peers:
                    peer.disconnect()
                crowd.run(lambda: not crowd.peers, what="the ends of the connections")

    with Broker({"inbox_store_initial_shards": 1}, data_dir=folder) as broker:
        for crowd, peers in batches(broker.port):
            asked = [(peer, peer.subscribe("news", qos=1)) for peer in peers]
            crowd.run(lambda: all(pid in peer.answered for peer, pid in asked), what="the SUBACKs")
        with broker.client("publisher") as publisher:
            publisher.published("news", "1", qos=2)
            publisher.published("news", "2", qos=1)
        broker.kill()
    with Broker(data_dir=folder) as broker:
        for crowd, peers in batches(broker.port):
            crowd.run(lambda: all(len(peer.session.seen) >= 2 for peer in peers), what="both messages")
            seen = [[payload for _, payload, _, _ in peer.session.seen] for peer in peers]
            assert seen == [[b"1", b"2"]] * at_once
        assert broker.stop() == 0
    verify(folder, code=0, mentions=["OK"])
    assert rows(inspect(folder)).get("queued messages", 0) == 0


@pytest.mark.skipif(not pathlib.Path(LIBRARY).exists(), reason="libfaketime is not installed")
def test_a_clock_that_is_earlier_than_the_data_folder_is_told(tmp_path):
    said = "the clock is earlier than when this node last ran: expiry intervals last longer by the difference"
    clock, data = Clock(tmp_path / "clock"), tmp_path / "data"
    for seconds, behind in ((0, None), (60, None), (-3_600, range(3_600, 3_700)), (-3_600, None)):
        clock.jump(seconds)
        with Broker(data_dir=data, prefix=clock.prefix) as broker:
            alive = (data / "alive").read_bytes()
            until(lambda: (data / "alive").read_bytes() != alive, what="a sign of life")
            found = broker.find(said)
            assert bool(found) == bool(behind)
            assert all(line["level"] == "WARN" and line["behind_s"] in behind for line in found)


def damage(folder, *args):
    return run("store", "damage", folder, "--seed", 4711, *args)


def test_a_seed_damages_a_copy_as_it_damages_another(data, tmp_path):
    before, said, changed = content(data), [], []
    for number in range(2):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(data, copy)
        got = damage(copy, "--yes-destroy-data", "--json")
        assert got.returncode == 0 and len(got.stdout.splitlines()) == 1, got.stderr
        said.append(json.loads(got.stdout))
        names = (path.removeprefix(str(data)) for path in before)
        damaged = {name for name in names if contents_differ(f"{data}{name}", f"{copy}{name}")}
        assert damaged == {f"/{said[-1]['file']}"}
        changed.append(read(f"{copy}/{said[-1]['file']}"))
    assert said[0] == said[1] and changed[0] == changed[1]
    assert content(data) == before
    text = damage(data, "--yes-destroy-data", "--kind", "lose", "--files", "table")
    assert text.returncode == 0 and ": removed, of " in text.stdout
    verify(data, code=1, mentions=[text.stdout.split("/")[0]])


def read(path) -> bytes | None:
    path = pathlib.Path(path)
    return path.read_bytes() if path.exists() else None


def contents_differ(one, other) -> bool:
    return read(one) != read(other)


def test_nothing_is_damaged_by_accident(data, tmp_path):
    before = content(data)
    got = damage(data)
    assert got.returncode == 2 and "--yes-destroy-data" in got.stderr
    assert content(data) == before
    got = damage(data, "--yes-destroy-data", "--file", "log/none")
    assert got.returncode == 1 and "no such file" in got.stderr
    assert content(data) == before
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("…")
    got = damage(tmp_path / "thesis", "--yes-destroy-data")
    assert got.returncode == 1 and "no data folder" in got.stderr
    assert (tmp_path / "thesis" / "thesis.txt").read_text() == "…"
    with Broker(data_dir=data):
        got = damage(data, "--yes-destroy-data")
        assert got.returncode == 1 and "in use by another process" in got.stderr

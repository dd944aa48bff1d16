"""Data folders that earlier versions left, and this one goes on with: nothing of them is lost.

`folders/NAME.tar.gz` is what `fill` leaves behind when its broker is killed. Once a change of a format is released, the
format before it is kept that way for good: `HERALD_KEEP_FOLDER=NAME` with the version that writes it.
"""

import os
import pathlib
import tarfile

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL

FOLDERS = pathlib.Path(__file__).with_name("folders")
KEPT = sorted(path.name.removesuffix(".tar.gz") for path in FOLDERS.glob("*.tar.gz"))

FOREVER = {"session_expiry": 0xFFFFFFFF}
QUEUED = 20


def fill(data):
    """Leaves something of everything that is kept: sessions, queues, what is in flight in both directions, shared
    subscriptions, retained messages, a will; half of it in the log alone."""
    with Broker(data_dir=data) as broker:
        sleeper = broker.client("sleeper", clean=False, props=FOREVER)
        sleeper.subscribe("queue/#", qos=2)
        sleeper.subscribe(("$share/group/shared/+", raw.options(1)))
        sleeper.subscribe("ids/+", qos=1, props={"subscription_identifier": 7})
        reader = broker.client("reader", clean=False, props=FOREVER)
        reader.subscribe("flight/+", qos=2)
        witness = broker.client("witness", clean=False, props=FOREVER)
        witness.subscribe("last/+", qos=1)
        sleeper.disconnect()
        witness.disconnect()
        will = {"topic": "last/words", "payload": b"gone", "qos": 1, "props": {"will_delay": 1}}
        broker.client("doomed", clean=False, props=FOREVER, will=will)
        publisher = broker.client("publisher", clean=False, props=FOREVER)
        publisher.published("flight/1", b"sent at QoS 1")
        publisher.published("flight/2", b"sent at QoS 2", qos=2)
        publisher.published("flight/3", b"received at QoS 2", qos=2)
        reader.expect(PUBLISH, qos=1, payload="sent at QoS 1")
        reader.expect(PUBLISH, qos=2, payload="sent at QoS 2")
        received = reader.expect(PUBLISH, qos=2, payload="received at QoS 2")
        reader.send(raw.ack(PUBREC, received.pid))
        reader.expect(PUBREL, pid=received.pid)
        publisher.published("kept/one", b"first", retain=True)
        publisher.published("kept/one", b"second", retain=True)
        publisher.published("kept/two", b"\x00\xff" * 5000, retain=True, props={"content_type": "bytes"})
        publisher.published("kept/none", b"x", retain=True)
        publisher.published("kept/none", b"", retain=True)
        for n in range(QUEUED):
            publisher.published(f"queue/{n % 3}", f"{n}", qos=1 + n % 2)
        publisher.published("shared/1", b"for the group")
        publisher.published("ids/1", b"with a number", props={"user_property": [("a", "b")]})
        # Not released.
        publisher.send(raw.publish("queue/late", b"unreleased", qos=2, pid=77))
        publisher.expect(PUBREC, pid=77)
        broker.kill()


def expect_all(data):
    """What `fill` has left, as clients see it."""
    with Broker(data_dir=data) as broker:
        publisher = broker.client("publisher", clean=False, props=FOREVER, session_present=True)
        publisher.send(raw.publish("queue/late", b"unreleased", qos=2, pid=77, dup=True))
        publisher.expect(PUBREC, pid=77)
        publisher.send(raw.ack(PUBREL, 77))
        publisher.expect(PUBCOMP, pid=77)
        publisher.published("queue/end", b"end")
        publisher.published("shared/2", b"end of the group")

        sleeper = broker.client("sleeper", clean=False, props=FOREVER, session_present=True)
        got = sleeper.until("end of the group")
        queue = [m.payload for m in got if m.topic.startswith("queue/")]
        assert queue == [b"%d" % n for n in range(QUEUED)] + [b"unreleased", b"end"]
        assert [m.qos for m in got if m.topic.startswith("queue/")][:4] == [1, 2, 1, 2]
        assert [m.payload for m in got if m.topic.startswith("shared/")] == [b"for the group"]
        (numbered,) = [m for m in got if m.topic == "ids/1"]
        assert numbered.props["subscription_identifier"] == [7]
        assert numbered.props["user_property"] == [("a", "b")]

        reader = broker.client("reader", clean=False, props=FOREVER, session_present=True)
        again = [reader.recv() for _ in range(3)]
        assert [(p.kind, p.payload if p.kind == PUBLISH else None) for p in again] == [
            (PUBLISH, b"sent at QoS 1"),
            (PUBLISH, b"sent at QoS 2"),
            (PUBREL, None),
        ]
        assert again[0].dup and again[1].dup
        reader.send(raw.ack(PUBACK, again[0].pid))

        witness = broker.client("witness", clean=False, props=FOREVER, session_present=True)
        witness.message(topic="last/words", payload="gone")

        clean = broker.client()
        clean.subscribe("kept/#", qos=1)
        kept = {m.topic: m for m in clean.take(2)}
        assert kept["kept/one"].payload == b"second"
        assert kept["kept/two"].payload == b"\x00\xff" * 5000
        assert kept["kept/two"].props["content_type"] == "bytes"
        assert all(m.retain for m in kept.values())
        clean.ping()
        assert broker.stop() == 0


@pytest.mark.parametrize("folder", KEPT)
def test_a_folder_of_an_earlier_version_is_gone_on_with(folder, tmp_path):
    with tarfile.open(FOLDERS / f"{folder}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    expect_all(tmp_path / "data")


def test_a_folder_of_this_version_is_gone_on_with(tmp_path):
    fill(tmp_path / "data")
    if kept := os.environ.get("HERALD_KEEP_FOLDER"):
        FOLDERS.mkdir(exist_ok=True)
        with tarfile.open(FOLDERS / f"{kept}.tar.gz", "w:gz", compresslevel=9) as archive:
            archive.add(tmp_path / "data", "data")
    expect_all(tmp_path / "data")

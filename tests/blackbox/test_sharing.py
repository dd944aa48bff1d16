"""What cores share for one message, exactly: the functions that write memory which the same message of other clients, in another
event loop, reads or writes as well.

`sharing/messages.csv` has what is allowed. A function that is not there fails, and so does one that writes more words:
`UPDATE_SHARING=1 ./run.sh -n 0 test_sharing.py` writes what is seen. A change that makes cores share more says in its commit why. What is shared, by whom and why: docs/internals/sharing.md.
"""

import contextlib
import csv
import os
import pathlib
import re

import pytest

from harness import counts, raw, steps
from harness.broker import Broker
from harness.raw import PUBACK, PUBCOMP, PUBREC, PUBREL
from harness.wait import until

TABLE = pathlib.Path(__file__).parent / "sharing" / "messages.csv"
COLUMNS = ("path", "function", "words", "locked")
IS_UPDATE = os.environ.get("UPDATE_SHARING") == "1"
PAYLOAD = bytes(32)
LOOPS = 2
# Timers and what is amortised over many messages are in few of them; a write that each message makes is in all.
WARM, MESSAGES = 20, 2
# Which thread runs a turn, and whether it has slept before, depends on the time, and so does what these write.
UNJUDGED = re.compile(r"herald_net::(parking::|event_loop::(run|look_after|wake|Peer<.*>::plan)$)")

pytestmark = [
    pytest.mark.skipif(not steps.is_possible(), reason="threads are stepped on Linux, x86-64"),
    pytest.mark.skipif(not counts.is_there(), reason=f"{counts.PROGRAM} is not there: cargo test --workspace --no-run"),
    # One worker, which writes the file.
    pytest.mark.xdist_group("sharing"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return steps.compiled(tmp_path_factory.mktemp("sharing"))


@pytest.fixture
def broker():
    with Broker({"sys.intervalSeconds": 0, "eventLoops": LOOPS}, binary=str(counts.PROGRAM)) as started:
        yield started


class Side:
    """A publisher and its subscribers, with a topic of their own."""

    def __init__(self, name, qos, is_shared, retain, **fields):
        self.name, self.qos, self.is_shared, self.retain, self.fields = name, qos, is_shared, retain, fields
        self.topic = f"topic/{name}"
        self.publisher, self.receivers = None, []

    def publish_from(self, client):
        self.publisher = client

    def receive_by(self, client):
        client.subscribe(f"$share/{self.name}/{self.topic}" if self.is_shared else self.topic, qos=self.qos)
        self.receivers.append(client)

    def message(self):
        """One message on its whole way, acknowledged by all."""
        publisher, pid = self.publisher, 1 if self.qos else None
        publisher.send(raw.publish(self.topic, PAYLOAD, qos=self.qos, pid=pid, retain=self.retain))
        if self.qos:
            publisher.expect(PUBACK if self.qos == 1 else PUBREC)
        if self.qos == 2:
            publisher.send(raw.ack(PUBREL, pid))
            publisher.expect(PUBCOMP)
        for receiver in self.receivers:
            message = receiver.expect(raw.PUBLISH)
            if self.qos == 1:
                receiver.send(raw.ack(PUBACK, message.pid))
            if self.qos == 2:
                receiver.send(raw.ack(PUBREC, message.pid))
                receiver.expect(PUBREL)
                receiver.send(raw.ack(PUBCOMP, message.pid))


# By path: the order in which both sides connect (the broker deals connections to its loops in turn, and p and s are the
# publishers and subscribers of the first side, P and S those of the second), and what their messages are.
SAME, ACROSS = "pPsS", "psSP"
PATHS = {
    "QoS 0": (SAME, {"qos": 0}),
    "QoS 1": (SAME, {"qos": 1}),
    "QoS 2": (SAME, {"qos": 2}),
    "QoS 0 to another loop": (ACROSS, {"qos": 0}),
    "QoS 1 to another loop": (ACROSS, {"qos": 1}),
    "QoS 1 to a shared group": (SAME, {"qos": 1, "is_shared": True}),
    "QoS 1 to a durable session": (SAME, {"qos": 1, "props": {"session_expiry": 3600}}),
    "QoS 1 retained": ("pP", {"qos": 1, "retain": True}),
}


def sides(broker, stack, order, qos=0, is_shared=False, retain=False, **fields):
    both = [Side(name, qos, is_shared, retain) for name in ("first", "second")]
    for number, letter in enumerate(order):
        side = both[letter.isupper()]
        is_publisher = letter in "pP"
        client = stack.enter_context(broker.client(f"{side.name}-{number:02}", **({} if is_publisher else fields)))
        (side.publish_from if is_publisher else side.receive_by)(client)
    return both


def shared(program, broker, tmp_path, order, fields) -> tuple[dict[str, int], dict]:
    """The fewest words by function that one message writes and the other side's touch."""
    with contextlib.ExitStack() as stack:
        first, second = sides(broker, stack, order, **fields)
        for _ in range(WARM):
            first.message()
            second.message()
        stepper = stack.enter_context(steps.Stepper(program, broker, tmp_path))
        of = {first: [], second: []}
        for _ in range(MESSAGES):
            for side, messages in of.items():
                messages.append(stepper.message(side.message))
    found = [message.shared([*of[first], *of[second]]) for message in of[first]]
    fewest = {name: min(len(one.get(name, ())) for one in found) for name in set().union(*found)}
    fewest = {name: count for name, count in fewest.items() if count and not UNJUDGED.match(name)}
    locked = {name: min(message.locked[name] for message in of[first]) for name in fewest}
    totals = {
        "locked": min(message.locked.total() for message in of[first]),
        "instructions": min(message.instructions for message in of[first]),
    }
    return {name: (count, locked[name]) for name, count in sorted(fewest.items())}, totals


QUICK = {"QoS 1", "QoS 1 to a durable session"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", [path if path in QUICK else pytest.param(path, marks=pytest.mark.full) for path in PATHS])
def test_cores_share_what_they_may(program, broker, tmp_path, path):
    found, totals = shared(program, broker, tmp_path, *PATHS[path])
    print(path, totals)
    for name, (words, locked) in found.items():
        print(f"  {words:4} {locked:4}  {name}")
    with TABLE.open(newline="") as file:
        table = list(csv.DictReader(file))
    if IS_UPDATE:
        mine = [{"path": path, "function": name, "words": words, "locked": locked} for name, (words, locked) in found.items()]
        rows = [row for row in table if row["path"] != path] + mine
        rows.sort(key=lambda row: (list(PATHS).index(row["path"]), row["function"]))
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(COLUMNS), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return
    allowed = {row["function"]: int(row["words"]) for row in table if row["path"] == path}
    more = {name: (allowed.get(name, 0), words) for name, (words, _) in found.items() if words > allowed.get(name, 0)}
    assert not more, f"{path}: words that event loops share, allowed and seen, by the functions that write them: {more}"


def test_the_page_has_the_fields_that_several_threads_write():
    root = pathlib.Path(__file__).parent.parent.parent
    lines = (root / "crates" / "xtask" / "sharing.csv").read_text().splitlines()[1:]
    fields = [line.split(",", 3) for line in lines]
    rows = [f"| `{place}` | {written} | {what} |" for place, written, by, what in fields if by == "several" and written in ("message", "turn")]
    page = (root / "docs" / "internals" / "sharing.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows

"""Retained messages: replay to filters that match none or many, churn, and durable subscribers."""

import time

from harness import raw
from harness.raw import PUBACK, PUBLISH, SUBACK

from . import Attack


def retain(stage, count, topic, payload=b"x"):
    """Retained messages of another client."""
    keeper = stage.ordinary(f"{stage.tag}-keeper")
    for first in range(0, count, 20_000):
        last = min(first + 20_000, count)
        made = [raw.publish(topic(n), payload, qos=1, pid=n % 20_000 + 1, retain=True) for n in range(first, last)]
        keeper.send(b"".join(made))
        keeper.got(PUBACK, last, 120)
    keeper.close()


class RetainedEmptyPages(Attack):
    """100,000 retained topics `d/N/x`; n filters `d/+/nN` in one packet, of which none matches."""

    leaves = True
    n, small = 1000, 60
    TOPICS = 100_000

    def prepare(self, stage):
        retain(stage, self.TOPICS, lambda number: f"d/{number}/x")

    def run(self, stage):
        stage.cause.visits += stage.n * self.TOPICS
        line = stage.connect(f"{stage.tag}s")
        line.send(raw.subscribe(1, [(f"d/+/n{number:04}", 0) for number in range(stage.n)], version=stage.version))
        line.got(SUBACK, 1)
        line.settle()


class RetainedEmptyPagesDurable(Attack):
    """The same for a session that outlives its connection."""

    leaves = True
    n, small = 500, 60
    TOPICS = 100_000

    def prepare(self, stage):
        retain(stage, self.TOPICS, lambda number: f"d/{number}/x")

    def run(self, stage):
        stage.cause.visits += stage.n * self.TOPICS
        stage.cause.synced += stage.n
        line = stage.durable(f"{stage.tag}s")
        line.send(raw.subscribe(1, [(f"d/+/n{number:04}", 1) for number in range(stage.n)], version=stage.version))
        line.got(SUBACK, 1)
        line.settle()


class RetainedSubscribeChurn(Attack):
    """n times SUBSCRIBE and UNSUBSCRIBE of a filter that 10,000 retained messages match."""

    leaves = True
    n, small = 100, 15
    TOPICS = 10_000

    def prepare(self, stage):
        retain(stage, self.TOPICS, lambda number: f"d/{number}/x")

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        line.parses = True
        stage.cause.deliveries += stage.n * self.TOPICS
        stage.cause.visits += stage.n * self.TOPICS
        for number in range(stage.n):
            line.send(raw.subscribe(1, [("d/#", 0)], version=stage.version))
            line.send(raw.unsubscribe(2, ["d/#"], version=stage.version))
        line.settle()


class RetainedReplayToDurable(Attack):
    """44 MB retained; n durable subscribers of all of it, who read nothing."""

    leaves = True
    n, small = 40, 16
    TOPICS = 440

    def prepare(self, stage):
        retain(stage, self.TOPICS, lambda number: f"d/{number}/x", b"x" * 100_000)

    def run(self, stage):
        stage.cause.deliveries += stage.n * self.TOPICS
        stage.cause.synced += stage.n * 20
        lines = []
        for number in range(stage.n):
            line = stage.durable(f"{stage.tag}s{number}", receive_buffer=8192)
            line.send(raw.subscribe(1, [("d/#", 1)], version=stage.version))
            stage.sent()
            stage.stall(line)
            lines.append(line)
        # They are gone again, and what they have not got waits for them.
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 3, what="the replay")
        for line in lines:
            line.reset()


class RetainedBigPages(Attack):
    """64 retained messages of 400 kB, which are one page; n durable subscribers, who must get all of them."""

    n, small = 4, 2
    leaves = True
    # Half of two subscribers is one, whose tenth of a second of CPU is nothing to compare with.
    grows = False
    TOPICS, SIZE = 64, 400_000

    def prepare(self, stage):
        retain(stage, self.TOPICS, lambda number: f"{stage.tag}/{number}", b"x" * self.SIZE)

    def run(self, stage):
        # What each of them is sent.
        stage.cause.deliveries += stage.n * self.TOPICS
        stage.cause.delivered += stage.n * self.TOPICS * self.SIZE
        for number in range(stage.n):
            line = stage.durable(f"{stage.tag}s{number}")

            def acknowledge(first, body, line=line):
                if first >> 4 == PUBLISH:
                    at = 2 + int.from_bytes(body[:2], "big")
                    line.send(b"\x40\x02" + body[at : at + 2])

            line.on_packet = acknowledge
            line.send(raw.subscribe(1, [(f"{stage.tag}/#", 1)], version=stage.version))
            line.got(PUBLISH, self.TOPICS, 20)
            line.settle()
            line.close()


class RetainedReplayToStalled(Attack):
    """44 MB retained; n clean subscribers of all of it, who read nothing."""

    leaves = True
    n, small = 40, 10
    TOPICS = 440

    def prepare(self, stage):
        retain(stage, self.TOPICS, lambda number: f"d/{number}/x", b"x" * 100_000)

    def run(self, stage):
        stage.cause.deliveries += stage.n * self.TOPICS
        for number in range(stage.n):
            line = stage.connect(f"{stage.tag}s{number}", receive_buffer=8192)
            line.send(raw.subscribe(1, [("d/#", 1)], version=stage.version))
            stage.sent()
            stage.stall(line)
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 2, what="the replay")


class RetainedChurn(Attack):
    """n times setting and clearing one retained message."""

    n, small = 20_000, 3000

    def run(self, stage):
        stage.cause.synced += 2 * stage.n
        line = stage.connect(f"{stage.tag}p")
        made = []
        for number in range(2 * stage.n):
            payload = b"x" if number % 2 == 0 else b""
            made.append(
                raw.publish(stage.tag, payload, version=stage.version, qos=1, pid=number % 60_000 + 1, retain=True)
            )
        for first in range(0, len(made), 20_000):
            part = made[first : first + 20_000]
            line.send(b"".join(part), len(part))
            line.got(PUBACK, first + len(part))


class RetainedDistinct(Attack):
    """n retained messages of one byte, each of another topic."""

    leaves = True
    n, small = 60_000, 8000

    def run(self, stage):
        stage.cause.synced += stage.n
        line = stage.connect(f"{stage.tag}p")
        made = [
            raw.publish(f"{number:x}", b"x", version=stage.version, qos=1, pid=number % 60_000 + 1, retain=True)
            for number in range(stage.n)
        ]
        for first in range(0, len(made), 20_000):
            part = made[first : first + 20_000]
            line.send(b"".join(part), len(part))
            line.got(PUBACK, first + len(part))


class RetainedLongTopics(Attack):
    """n retained messages with topics of 60 kB and 128 levels."""

    leaves = True
    n, small = 300, 60

    def sets(self, _folder):
        return {"limits.topic.length": 65_535}

    def run(self, stage):
        stage.cause.synced += stage.n
        line = stage.connect(f"{stage.tag}p")
        made = [
            raw.publish(
                f"{number}" + ("/" + "x" * 470) * 127, b"x", version=stage.version, qos=1, pid=number + 1, retain=True
            )
            for number in range(stage.n)
        ]
        line.send(b"".join(made), len(made))
        line.got(PUBACK, len(made))


class RetainedClearNothing(Attack):
    """n messages that clear a retained message that is not there."""

    n, small = 60_000, 10_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        made = [
            raw.publish(f"{number:x}", b"", version=stage.version, qos=1, pid=number % 60_000 + 1, retain=True)
            for number in range(stage.n)
        ]
        stage.cause.synced += stage.n
        for first in range(0, len(made), 20_000):
            part = made[first : first + 20_000]
            line.send(b"".join(part), len(part))
            line.got(PUBACK, first + len(part))

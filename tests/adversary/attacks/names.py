"""Client identifiers of 60,000 bytes: packets that cause requests to the stores, which name the session. Each attack is
played with an identifier of 20 bytes too; a long one may add to the log of the stores what its CONNECT packets have said.
"""

import collections

from harness import raw
from harness.raw import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, UNSUBACK

from . import Attack
from .publish import exactly_once, flood
from .retained import retain


class Receiver:
    """A session with a long identifier, and the acknowledgements that it owes. They are sent as they arise, or by `give`."""

    def __init__(self, stage, end, gives=True, **fields):
        self.stage, self.gives, self.owed = stage, gives, collections.deque()
        # Before the first message can come.
        self.line = stage.dial()
        self.line.on_packet = self._take
        stage.durable(stage.long_name(end), dialled=self.line, **fields)

    def _take(self, first, body):
        kind, qos = first >> 4, first >> 1 & 3
        if kind == PUBLISH and qos:
            at = 2 + int.from_bytes(body[:2], "big")
            answer = raw.ack(PUBACK if qos == 1 else PUBREC, int.from_bytes(body[at : at + 2], "big"))
        elif kind == PUBREL:
            answer = raw.ack(PUBCOMP, int.from_bytes(body[:2], "big"))
        else:
            return
        if self.gives:
            self.line.send(answer)
        else:
            self.owed.append(answer)

    def give(self, count):
        """So many acknowledgements, each of which the broker has read before the next is sent."""
        for _ in range(count):
            self.stage.until(lambda: self.owed, what="something to acknowledge")
            self.line.send(self.owed.popleft())
            self.line.settle()

    def subscribe(self, filter, qos):
        self.line.send(raw.subscribe(1, [(filter, qos)], version=self.line.version))
        self.line.got(SUBACK, self.line.counts[SUBACK] + 1)


def publish_all(stage, end, topic, count, qos=1):
    """Messages of a client with a short identifier."""
    line = stage.ordinary(f"{stage.tag}{end}")
    if qos == 2:
        exactly_once(line, count, topic)
    else:
        flood(line, [raw.publish(topic, b"x", qos=1, pid=number + 1) for number in range(count)], PUBACK)
    line.close()


class _LongName(Attack):
    n, small = 10_000, 200
    # Attacks with the same packets and short identifiers are compared with half of themselves.
    grows = False
    is_about_names = True


class LongNameQos2(_LongName):
    """n messages of QoS 2, with their PUBREL, of a session with an identifier of 60,000 bytes to a durable session that is
    away."""

    def prepare(self, stage):
        subscriber = stage.durable(f"{stage.tag}s")
        subscriber.send(raw.subscribe(1, [(stage.tag, 2)], version=stage.version))
        subscriber.got(SUBACK, 1)
        subscriber.close()

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        stage.cause.deliveries += stage.n
        exactly_once(stage.durable(stage.long_name("p")), stage.n, stage.tag)


class LongNameQos2ToItself(_LongName):
    """The same to a topic that only the publisher subscribes to, which acknowledges what it gets."""

    def run(self, stage):
        stage.cause.synced += 5 * stage.n
        stage.cause.deliveries += stage.n
        receiver = Receiver(stage, "p")
        receiver.subscribe(stage.tag, 2)
        exactly_once(receiver.line, stage.n, stage.tag)
        receiver.line.got(PUBREL, stage.n)
        receiver.line.settle()


class LongNameSubscribes(_LongName):
    """n filters in packets of their own, and their end one by one, of a session with an identifier of 60,000 bytes."""

    def run(self, stage):
        stage.cause.synced += 2 * stage.n
        line = stage.durable(stage.long_name("s"))
        names = [f"{stage.tag}/{number}" for number in range(stage.n)]
        line.send(b"".join(raw.subscribe(1, [(name, 0)], version=stage.version) for name in names), stage.n)
        line.got(SUBACK, stage.n)
        line.send(b"".join(raw.unsubscribe(1, [name], version=stage.version) for name in names), stage.n)
        line.got(UNSUBACK, stage.n)


class LongNameAcknowledges(_LongName):
    """n messages of QoS 1 wait for a session with an identifier of 60,000 bytes, which acknowledges them one at a time."""

    qos = 1

    def prepare(self, stage):
        receiver = Receiver(stage, "s")
        receiver.subscribe(stage.tag, self.qos)
        receiver.line.close()
        publish_all(stage, "p", stage.tag, stage.n, self.qos)

    def run(self, stage):
        stage.cause.synced += self.qos * stage.n
        stage.cause.deliveries += stage.n
        Receiver(stage, "s", gives=False).give(self.qos * stage.n)


class LongNameAcknowledgesQos2(LongNameAcknowledges):
    """The same for messages of QoS 2, each of which is acknowledged by PUBREC and PUBCOMP."""

    qos = 2


class LongNameMember(_LongName):
    """n messages of QoS 1 to a shared group whose one member has an identifier of 60,000 bytes: half of them while it is
    connected, half of them while it is away."""

    def run(self, stage):
        stage.cause.synced += 2 * stage.n
        stage.cause.deliveries += stage.n
        half = stage.n // 2
        member = Receiver(stage, "s")
        member.subscribe(f"$share/g/{stage.tag}/#", 1)
        publish_all(stage, "p", f"{stage.tag}/a", half)
        member.line.got(PUBLISH, half)
        member.line.settle()
        member.line.close()
        publish_all(stage, "p", f"{stage.tag}/a", stage.n - half)
        member = Receiver(stage, "s")
        member.line.got(PUBLISH, stage.n - half)
        member.line.settle()


class LongNameLegacy(_LongName):
    """n messages wait for a member of a shared group with an identifier of 60,000 bytes; its session ends, and another member
    gets them."""

    def prepare(self, stage):
        member = Receiver(stage, "s")
        member.subscribe(f"$share/g/{stage.tag}/#", 1)
        member.line.close()
        publish_all(stage, "p", f"{stage.tag}/a", stage.n)
        self.heir = stage.durable(f"{stage.tag}h")
        self.heir.on_packet = self._acknowledge
        self.heir.send(raw.subscribe(1, [(f"$share/g/{stage.tag}/#", 1)], version=stage.version))
        self.heir.got(SUBACK, 1)

    def _acknowledge(self, first, body):
        if first >> 4 == PUBLISH:
            at = 2 + int.from_bytes(body[:2], "big")
            self.heir.send(raw.ack(PUBACK, int.from_bytes(body[at : at + 2], "big")))

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        stage.cause.deliveries += stage.n
        # A clean session takes the place of the one that was there.
        stage.connect(stage.long_name("s"))
        self.heir.got(PUBLISH, stage.n)
        self.heir.settle()


class LongNameRetained(_LongName):
    """n retained messages for a durable subscriber with an identifier of 60,000 bytes, which acknowledges them."""

    leaves = True
    # More than are replayed, and acknowledged, at once.
    small = 1000

    def prepare(self, stage):
        retain(stage, stage.n, lambda number: f"{stage.tag}/{number}")

    def run(self, stage):
        stage.cause.synced += 2 * stage.n
        stage.cause.deliveries += stage.n
        stage.cause.visits += stage.n
        receiver = Receiver(stage, "s")
        receiver.subscribe(f"{stage.tag}/#", 1)
        receiver.line.got(PUBLISH, stage.n)
        receiver.line.settle()

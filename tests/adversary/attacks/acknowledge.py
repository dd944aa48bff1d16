"""PUBACK, PUBREC, PUBREL and PUBCOMP of identifiers that nobody knows, and QoS 2 left unfinished."""

from harness import raw
from harness.raw import PUBCOMP, PUBREC

from . import Attack


class _Unknown(Attack):
    n, small, kind = 200_000, 30_000, 0

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        made = [raw.ack(self.kind, number % 65535 + 1) for number in range(stage.n)]
        line.send(b"".join(made), stage.n)
        line.settle()


class PubackUnknown(_Unknown):
    """n PUBACK packets for nothing."""

    kind = 4


class PubrecUnknown(_Unknown):
    """n PUBREC packets for nothing."""

    kind = 5


class PubrelUnknown(_Unknown):
    """n PUBREL packets for nothing."""

    kind = 6


class PubcompUnknown(_Unknown):
    """n PUBCOMP packets for nothing."""

    kind = 7


class PubrelUnknownDurable(Attack):
    """n PUBREL packets for nothing, in a session that outlives its connection."""

    n, small = 100_000, 15_000

    def run(self, stage):
        line = stage.durable(f"{stage.tag}p")
        line.send(b"".join(raw.ack(6, number % 65535 + 1) for number in range(stage.n)), stage.n)
        line.settle()


class AcknowledgeUserProperties(Attack):
    """n PUBREL packets with 50 kB of the smallest user properties."""

    n, small, versions = 200, 40, (5,)

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        many = raw.prop("user_property", ("", "")) * 10_000
        line.send(raw.ack(6, 1, reason=0, props=many) * stage.n, stage.n)
        line.settle()


def leave_unreleased(stage, line, count):
    made = [raw.publish("u", version=line.version, qos=2, pid=number + 1) for number in range(count)]
    for first in range(0, count, 5000):
        line.send(b"".join(made[first : first + 5000]), len(made[first : first + 5000]))
        line.got(PUBREC, min(first + 5000, count))


class Unreleased(Attack):
    """n identifiers of QoS 2 without PUBREL in a durable session, a reconnect, then PUBREL for each."""

    leaves = True
    n, small = 60_000, 6000

    def run(self, stage):
        stage.cause.synced += 2 * stage.n
        line = stage.durable(f"{stage.tag}p")
        leave_unreleased(stage, line, stage.n)
        line.close()
        line = stage.durable(f"{stage.tag}p")
        line.send(b"".join(raw.ack(6, number + 1) for number in range(stage.n)), stage.n)
        line.got(PUBCOMP, stage.n)


class UnreleasedPublishAgain(Attack):
    """20,000 identifiers of QoS 2 without PUBREL; n further messages."""

    leaves = True
    n, small = 20_000, 3000
    LEFT = 20_000

    def prepare(self, stage):
        line = stage.durable(f"{stage.tag}p")
        leave_unreleased(stage, line, self.LEFT)
        self.line = line

    def run(self, stage):
        stage.cause.synced += stage.n
        line = self.line
        made = [raw.publish("u", version=line.version, qos=2, pid=self.LEFT + n + 1) for n in range(stage.n)]
        line.send(b"".join(made), len(made))
        line.got(PUBREC, self.LEFT + stage.n)


class UnreleasedReconnects(Attack):
    """n reconnects of a session with 20,000 identifiers of QoS 2 without PUBREL."""

    leaves = True
    n, small = 100, 20
    LEFT = 20_000

    def prepare(self, stage):
        line = stage.durable(f"{stage.tag}p")
        leave_unreleased(stage, line, self.LEFT)
        line.close()

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        for _ in range(stage.n):
            line = stage.durable(f"{stage.tag}p")
            line.close()


class SubscribedReconnects(Attack):
    """n reconnects of a session with 10,000 subscriptions."""

    leaves = True
    n, small = 500, 50

    def prepare(self, stage):
        line = stage.durable(f"{stage.tag}p")
        for first in range(0, 10_000, 1000):
            filters = [(f"{stage.tag}/{first + number}", 1) for number in range(1000)]
            line.send(raw.subscribe(1, filters, version=stage.version))
            line.got(raw.SUBACK, first // 1000 + 1)
        line.close()

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        for _ in range(stage.n):
            line = stage.durable(f"{stage.tag}p")
            line.close()


class QueuedReconnects(Attack):
    """n reconnects of a session with 10,000 queued messages, none of which is acknowledged."""

    leaves = True
    n, small = 200, 30

    def prepare(self, stage):
        line = stage.durable(f"{stage.tag}s")
        line.send(raw.subscribe(1, [(stage.tag, 1)], version=stage.version))
        line.got(raw.SUBACK, 1)
        line.close()
        publisher = stage.ordinary(f"{stage.tag}p")
        for first in range(0, 9000, 1000):
            made = [raw.publish(stage.tag, b"x" * 100, qos=1, pid=number + 1) for number in range(1000)]
            publisher.send(b"".join(made))
            publisher.got(raw.PUBACK, first + 1000)
        publisher.close()

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        # What is in flight is sent again to each.
        stage.cause.deliveries += stage.n * 128
        for _ in range(stage.n):
            line = stage.durable(f"{stage.tag}s")
            line.close()

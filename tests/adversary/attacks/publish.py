"""PUBLISH: small ones, long topics, many levels, properties, aliases, fan-out, receivers that stall."""

import time

from harness import raw
from harness.raw import CONNACK, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, varint

from . import Attack

WINDOW = 20_000


def flood(line, packets, answer=None):
    """Sends packets made beforehand, as far as an identifier allows before it is answered."""
    for first in range(0, len(packets), WINDOW):
        part = packets[first : first + WINDOW]
        line.send(b"".join(part), len(part))
        if answer:
            line.got(answer, first + len(part))
        if not line.is_open:
            return
    line.settle()


class PublishSmall(Attack):
    """n messages of QoS 0 of 5 or 6 bytes that nobody receives."""

    n, small = 400_000, 60_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        flood(line, [raw.publish("a", version=stage.version)] * stage.n)


class PublishSmallDistinct(Attack):
    """n messages of QoS 0, each of another topic, that nobody receives."""

    n, small = 200_000, 30_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        flood(line, [raw.publish(f"{number:x}", version=stage.version) for number in range(stage.n)])


class PublishQos1(Attack):
    """n small messages of QoS 1 that nobody receives."""

    n, small = 100_000, 20_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        made = [raw.publish("a", version=stage.version, qos=1, pid=n % 60_000 + 1) for n in range(stage.n)]
        flood(line, made, PUBACK)


def exactly_once(line, count, topic="a"):
    """Messages of QoS 2 with their PUBREL, as many at a time as there are packet identifiers for."""
    for first in range(0, count, WINDOW):
        number = min(WINDOW, count - first)
        made = [raw.publish(topic, version=line.version, qos=2, pid=pid + 1) for pid in range(number)]
        line.send(b"".join(made), number)
        line.got(PUBREC, first + number)
        line.send(b"".join(raw.ack(6, pid + 1) for pid in range(number)), number)
        line.got(PUBCOMP, first + number)


class PublishQos2(Attack):
    """n small messages of QoS 2 that nobody receives, with their PUBREL."""

    n, small = 60_000, 10_000

    def run(self, stage):
        exactly_once(stage.connect(f"{stage.tag}p"), stage.n)


class PublishQos2Durable(Attack):
    """The same from a session that outlives its connection: each identifier is a change."""

    n, small = 20_000, 4000

    def run(self, stage):
        stage.cause.synced += 2 * stage.n
        exactly_once(stage.durable(f"{stage.tag}p"), stage.n)


class PublishDuplicates(Attack):
    """One message of QoS 2, sent n times."""

    n, small = 100_000, 20_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        line.send(raw.publish("a", version=stage.version, qos=2, pid=1))
        again = raw.publish("a", version=stage.version, qos=2, pid=1, dup=True)
        flood(line, [again] * stage.n, PUBREC)


class PublishLongTopics(Attack):
    """n messages with topics of 60 kB, each another one."""

    n, small = 300, 60

    def sets(self, _folder):
        return {"limits.topic.length": 65_535}

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        flood(line, [raw.publish(f"{number}/".ljust(60_000, "x"), version=stage.version) for number in range(stage.n)])


class PublishManyLevels(Attack):
    """n messages with topics of 128 levels, each another one."""

    n, small = 30_000, 5000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        flood(line, [raw.publish(f"{number:x}" + "/" * 127, version=stage.version) for number in range(stage.n)])


class PublishUserProperties(Attack):
    """n messages of 100 kB of the smallest user properties, to one subscriber."""

    n, small, versions = 60, 12, (5,)

    def run(self, stage):
        stage.cause.deliveries += stage.n
        subscriber = stage.ordinary(f"{stage.tag}s")
        subscriber.send(raw.subscribe(1, [(stage.tag, 0)]))
        subscriber.got(SUBACK, 1)
        line = stage.connect(f"{stage.tag}p")
        many = raw.prop("user_property", ("", "")) * 20_000
        flood(line, [raw.publish(stage.tag, props=many)] * stage.n)


class PublishAliases(Attack):
    """n messages that set a topic alias anew, and n that only name it."""

    n, small, versions = 100_000, 20_000, (5,)

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        made = []
        for number in range(stage.n):
            alias = {"topic_alias": number % 10 + 1}
            made.append(raw.publish(f"{number:x}", props=alias))
            made.append(raw.publish("", props=alias))
        flood(line, made)


class PublishAliasesLong(Attack):
    """One topic of 60 kB behind an alias, named n times, to a subscriber that reads: allowed by what is delivered."""

    n, small, versions = 40_000, 6000, (5,)

    def sets(self, _folder):
        return {"limits.topic.length": 65_535}

    def prepare(self, stage):
        subscriber = stage.ordinary(f"{stage.tag}s")
        subscriber.parses = False
        subscriber.send(raw.subscribe(1, [("nobody/else", 0)]))

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        line.send(raw.publish(f"{stage.tag}/".ljust(60_000, "x"), props={"topic_alias": 1}))
        flood(line, [raw.publish("", props={"topic_alias": 1})] * stage.n)


class PublishAliasesDurable(Attack):
    """A topic of 4,096 bytes behind an alias, named by n messages of QoS 1, for a durable session that is away."""

    n, small, versions = 16_000, 400, (5,)
    leaves = True
    # The whole is written to a checkpoint, and half of it is too little for one.
    grows = False
    TOPIC = 4096
    qos, receivers = 1, 1

    def sets(self, _folder):
        return {"limits.session.queueMessages": 1_000_000, "limits.session.queueBytes": 1 << 30}

    def prepare(self, stage):
        subscribe_away(stage, self.receivers, f"{stage.tag}/#", self.qos)

    def run(self, stage):
        stage.cause.stores = True
        stage.cause.deliveries += stage.n * self.receivers
        stage.cause.synced += self.qos * stage.n
        # Each message is kept with its topic, once for all that get it.
        stage.cause.expanded += stage.n * self.TOPIC
        line = stage.connect(f"{stage.tag}p")
        alias = {"topic_alias": 1}
        line.send(raw.publish(f"{stage.tag}/".ljust(self.TOPIC, "x"), props=alias))
        made = [raw.publish("", qos=self.qos, pid=number + 1, props=alias) for number in range(stage.n)]
        flood(line, made, PUBACK if self.qos == 1 else PUBREC)
        if self.qos == 2:
            flood(line, [raw.ack(PUBREL, number + 1) for number in range(stage.n)], PUBCOMP)


class PublishAliasesDurableTen(PublishAliasesDurable):
    """The same for ten durable sessions that are away."""

    receivers = 10


class PublishAliasesDurableQos2(PublishAliasesDurable):
    """The same with messages of QoS 2 and their PUBREL, for one durable session."""

    qos = 2


class PublishAliasesDurableQos2Ten(PublishAliasesDurable):
    """The same with messages of QoS 2 and their PUBREL, for ten durable sessions."""

    qos, receivers = 2, 10


class PublishFanOut(Attack):
    """n small messages to 2,000 subscribers of the attacker's own; deliveries are allowed for."""

    leaves = True
    n, small = 200, 30
    RECEIVERS = 2000

    def prepare(self, stage):
        lines = []
        for number in range(self.RECEIVERS):
            line = stage.connect(f"{stage.tag}s{number}", waits=False)
            line.parses = True
            line.send(raw.subscribe(1, [(stage.tag, 0)], version=stage.version))
            lines.append(line)
            if number % 100 == 99:
                stage.pump(0.01)
        stage.until(lambda: all(line.counts[SUBACK] for line in lines), what="subscriptions")
        for line in lines:
            line.parses = False

    def run(self, stage):
        stage.cause.deliveries += stage.n * self.RECEIVERS
        line = stage.connect(f"{stage.tag}p")
        flood(line, [raw.publish(stage.tag, version=stage.version)] * stage.n)


def subscribe_away(stage, count, filter, qos=1):
    """Durable sessions that subscribe and are away."""
    for first in range(0, count, 100):
        lines = [stage.durable(f"{stage.tag}s{n}", waits=False) for n in range(first, min(first + 100, count))]
        for line in lines:
            line.send(raw.subscribe(1, [(filter, qos)], version=stage.version))
        stage.until(lambda lines=lines: all(line.counts[SUBACK] for line in lines), what="subscriptions")
        for line in lines:
            line.close()


class PublishFanOutDurable(Attack):
    """n small messages of QoS 1 to 500 durable sessions that are away."""

    leaves = True
    n, small = 200, 40
    RECEIVERS = 500

    def prepare(self, stage):
        subscribe_away(stage, self.RECEIVERS, stage.tag)

    def run(self, stage):
        stage.cause.deliveries += stage.n * self.RECEIVERS
        stage.cause.synced += stage.n
        line = stage.connect(f"{stage.tag}p")
        made = [raw.publish(stage.tag, version=stage.version, qos=1, pid=number + 1) for number in range(stage.n)]
        flood(line, made, PUBACK)


class PublishToManyDurable(Attack):
    """One message of QoS 1 to n durable sessions that are away."""

    leaves = True
    n, small = 200_000, 2000

    def prepare(self, stage):
        subscribe_away(stage, stage.n, stage.tag)

    def run(self, stage):
        stage.cause.stores = True
        stage.cause.deliveries += stage.n
        stage.cause.synced += 1
        line = stage.connect(f"{stage.tag}p")
        flood(line, [raw.publish(stage.tag, b"x", version=stage.version, qos=1, pid=1)], PUBACK)
        # It waits for the last of them, too.
        last = stage.dial()
        stage.durable(f"{stage.tag}s{stage.n - 1}", dialled=last)
        last.got(PUBLISH, 1)


class PublishPastStalled(Attack):
    """n messages of 1 kB and QoS 0 for a subscriber that does not read."""

    n, small = 40_000, 6000

    def run(self, stage):
        # What waits for it, up to limits.session.queueBytes.
        stage.cause.deliveries += stage.n
        stalled = stage.connect(f"{stage.tag}s", receive_buffer=8192)
        stalled.send(raw.subscribe(1, [(stage.tag, 0)], version=stage.version))
        stalled.got(SUBACK, 1)
        stage.stall(stalled)
        line = stage.connect(f"{stage.tag}p")
        flood(line, [raw.publish(stage.tag, b"x" * 1000, version=stage.version)] * stage.n)


class PublishRetainedPastStalled(Attack):
    """n retained topics of 60 kB that pass twenty subscribers, who do not read what was retained before."""

    leaves = True
    n, small = 400, 100
    STALLED = 20

    def sets(self, _folder):
        return {"limits.topic.length": 65_535}

    def prepare(self, stage):
        keeper = stage.ordinary(f"{stage.tag}k")
        made = [raw.publish(f"{stage.tag}/r/{n}", b"x" * 50_000, retain=True, qos=1, pid=n + 1) for n in range(400)]
        keeper.send(b"".join(made))
        keeper.got(PUBACK, len(made))

    def run(self, stage):
        stalled = [stage.connect(f"{stage.tag}s{n}", receive_buffer=8192) for n in range(self.STALLED)]
        for line in stalled:
            line.send(raw.subscribe(1, [(f"{stage.tag}/#", 0)], version=stage.version))
            line.got(SUBACK, 1)
            stage.stall(line)
        # Messages for those who do not read: references to what is queued once, up to the queue's limit.
        stage.cause.deliveries += stage.n * self.STALLED + 400 * self.STALLED
        line = stage.connect(f"{stage.tag}p")
        made = []
        for number in range(stage.n):
            topic = f"{stage.tag}/p/{number}/".ljust(60_000, "x")
            made.append(raw.publish(topic, b"x", version=stage.version, qos=1, pid=number + 1, retain=True))
        flood(line, made, PUBACK)


class PublishAtStalledSubscribers(Attack):
    """n subscribers of everything that acknowledge nothing, beside publishers of others at QoS 1."""

    n, small = 3, 3
    grows = False

    def sets(self, _folder):
        return {"limits.session.queueMessages": 100, "limits.connection.inflightMaximum": 16}

    durable = False

    def run(self, stage):
        # A second for a message every five milliseconds, for each of them.
        stage.cause.deliveries += stage.n * 2000
        for number in range(stage.n):
            line = (stage.durable if self.durable else stage.connect)(f"{stage.tag}s{number}")
            line.send(raw.subscribe(1, [("#", 1)], version=stage.version))
            line.got(SUBACK, 1)
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 8, what="their queues to be full")


class PublishAtStalledSubscribersDurable(PublishAtStalledSubscribers):
    """The same with sessions that outlive their connections."""

    durable = True
    leaves = True


class PublishPastFullQueue(Attack):
    """n messages of QoS 1 for a durable session that is away, whose queue is full: the newest is dropped."""

    n, small = 20_000, 3000
    leaves = True
    policy = "dropNewest"

    def sets(self, _folder):
        return {
            "limits.session.queueMessages": 500,
            "limits.connection.holdPublisherMs": 0,
            "limits.session.queueFull": self.policy,
        }

    def run(self, stage):
        stage.cause.deliveries += stage.n
        stage.cause.synced += stage.n
        away = stage.durable(f"{stage.tag}s")
        away.send(raw.subscribe(1, [(stage.tag, 1)], version=stage.version))
        away.got(SUBACK, 1)
        away.close()
        line = stage.connect(f"{stage.tag}p")
        made = [raw.publish(stage.tag, b"x", version=stage.version, qos=1, pid=n % 60_000 + 1) for n in range(stage.n)]
        flood(line, made, PUBACK)


class PublishPastFullQueueOldest(PublishPastFullQueue):
    """The same where the oldest is dropped."""

    policy = "dropOldest"


class PublishExpiring(Attack):
    """n messages for a durable session that is away, all of which expire in the same second."""

    n, small, versions = 9000, 2000, (5,)
    leaves = True

    def run(self, stage):
        stage.cause.deliveries += stage.n
        stage.cause.synced += 2 * stage.n
        away = stage.durable(f"{stage.tag}s")
        away.send(raw.subscribe(1, [(stage.tag, 1)]))
        away.got(SUBACK, 1)
        away.close()
        line = stage.connect(f"{stage.tag}p")
        props = {"message_expiry": 2}
        flood(line, [raw.publish(stage.tag, b"x", qos=1, pid=n + 1, props=props) for n in range(stage.n)], PUBACK)
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 3, what="the expiry")
        stage.durable(f"{stage.tag}s").settle()


class PublishMalformed(Attack):
    """n connections that publish to a topic with a wildcard."""

    is_refused = True
    n, small = 3000, 400

    def run(self, stage):
        bad = raw.publish("a/#", version=stage.version)
        for first in range(0, stage.n, 50):
            lines = [stage.connect(f"{stage.tag}{first + n}", waits=False) for n in range(50)]
            for line in lines:
                line.send(bad)
            stage.until(lambda lines=lines: all(not line.is_open for line in lines), what="the ends")


class PublishEmptyTopic(Attack):
    """n connections that publish without a topic and without an alias."""

    is_refused = True
    n, small = 3000, 400

    def run(self, stage):
        bad = raw.publish("", version=stage.version)
        for first in range(0, stage.n, 50):
            lines = [stage.connect(f"{stage.tag}{first + n}", waits=False) for n in range(50)]
            for line in lines:
                line.send(bad)
            stage.until(lambda lines=lines: all(not line.is_open for line in lines), what="the ends")


class PublishUnfinished(Attack):
    """n connections that announce packets of 2 MiB and send 1 kB of them."""

    n, small = 500, 100

    def run(self, stage):
        head = b"\x30" + varint(2_000_000) + b"\0\1a" + b"x" * 1000
        lines = []
        for number in range(stage.n):
            lines.append(stage.connect(f"{stage.tag}{number}", waits=False))
            lines[-1].send(head)
        stage.until(lambda: all(line.counts[CONNACK] or not line.is_open for line in lines), what="answers")
        stage.sent()

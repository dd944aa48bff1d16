"""SUBSCRIBE and UNSUBSCRIBE: many filters, the same ones, refused ones, long ones, those that all nearly match."""

import itertools
import time

from harness import raw
from harness.raw import PUBACK, SUBACK, UNSUBACK

from . import Attack
from .login import HASH_S, with_users
from .retained import retain


def filters_of(stage, count, made):
    """SUBSCRIBE packets of 1,000 filters each."""
    packets = []
    for first in range(0, count, 1000):
        filters = [made(number) for number in range(first, min(first + 1000, count))]
        packets.append(raw.subscribe(1, filters, version=stage.version))
    return packets


def subscribe_all(line, packets):
    before = line.counts[SUBACK]
    line.send(b"".join(packets), len(packets))
    line.got(SUBACK, before + len(packets))


class SubscribeManyFilters(Attack):
    """n filters in packets of 1,000, in a session without any limit that counts here."""

    n, small = 60_000, 8000

    def sets(self, _folder):
        return {"limits.session.subscriptions": 10_000_000}

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        stage.cause.visits += stage.n
        subscribe_all(line, filters_of(stage, stage.n, lambda number: (f"{number:x}", 0)))


class SubscribeOnePacket(Attack):
    """n filters of a few bytes in one packet, most of them beyond the limit of the session."""

    is_refused = True
    n, small = 200_000, 30_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        made = [(f"{number:x}", 0) for number in range(stage.n)]
        line.send(raw.subscribe(1, made, version=stage.version))
        line.got(SUBACK, 1)


class SubscribeOnePacketSame(Attack):
    """One filter, n times in one packet."""

    n, small = 200_000, 30_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        line.send(raw.subscribe(1, [("a", 0)] * stage.n, version=stage.version))
        line.got(SUBACK, 1)


class SubscribeTenThousand(Attack):
    """10,000 filters in one packet of 200 kB, n times."""

    n, small = 6, 2

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        for number in range(stage.n):
            made = [(f"{stage.tag}/long/{n:06}", 0) for n in range(10_000)]
            line.send(raw.subscribe(1, made, version=stage.version))
            line.got(SUBACK, number + 1)


class SubscribeTenThousandDurable(Attack):
    """The same in a session that outlives its connection."""

    n, small = 6, 2

    def run(self, stage):
        stage.cause.synced += 10_000
        line = stage.durable(f"{stage.tag}s")
        for number in range(stage.n):
            made = [(f"{stage.tag}/long/{n:06}", 0) for n in range(10_000)]
            line.send(raw.subscribe(1, made, version=stage.version))
            line.got(SUBACK, number + 1)


class SubscribeTenThousandMoreDurable(Attack):
    """n further filters in one packet, in a durable session with 10,000 others; then UNSUBSCRIBE of all of them in one
    packet."""

    n, small = 10_000, 10_000
    BEFORE = 10_000

    def sets(self, _folder):
        return {"limits.session.subscriptions": 1_000_000, "limits.session.subscriptionBytes": 1 << 30}

    def prepare(self, stage):
        self.line = stage.durable(f"{stage.tag}s")
        subscribe_all(self.line, filters_of(stage, self.BEFORE, lambda number: (f"{stage.tag}/{number:06}", 0)))

    def run(self, stage):
        stage.cause.stores = True
        stage.cause.synced += 2 * stage.n + self.BEFORE
        names = [f"{stage.tag}/{number:06}" for number in range(self.BEFORE + stage.n)]
        before = self.line.counts[SUBACK]
        further = [(name, 0) for name in names[self.BEFORE :]]
        self.line.send(raw.subscribe(1, further, version=stage.version))
        self.line.got(SUBACK, before + 1)
        self.line.send(raw.unsubscribe(2, names, version=stage.version))
        self.line.got(UNSUBACK, 1)


class SubscribeSameDurable(Attack):
    """A durable session with 10,000 filters, the first of which waits for retained messages that it does not
    acknowledge; then one filter n times in a packet."""

    n, small = 60_000, 8000
    leaves = True

    def prepare(self, stage):
        retain(stage, 500, lambda number: f"{stage.tag}/kept/{number}", b"x" * 1000)
        self.line = stage.durable(f"{stage.tag}s")
        self.line.send(raw.subscribe(1, [(f"{stage.tag}/kept/#", 1)], version=stage.version))
        subscribe_all(self.line, filters_of(stage, 9_990, lambda number: (f"{stage.tag}/{number}", 0)))

    def run(self, stage):
        before = self.line.counts[SUBACK]
        self.line.send(raw.subscribe(1, [("a/b/c", 0)] * stage.n, version=stage.version))
        self.line.got(SUBACK, before + 1)


class SubscribeSameDurableAtOnce(Attack):
    """A durable session subscribes to 10,000 filters in one packet, and to one of them n times in the next."""

    n, small = 60_000, 8000

    def run(self, stage):
        stage.cause.synced += 10_000
        line = stage.durable(f"{stage.tag}s")
        filters = [(f"{number:06}", 0) for number in range(10_000)]
        line.send(raw.subscribe(1, filters, version=stage.version))
        line.send(raw.subscribe(2, [("009999", 0)] * stage.n, version=stage.version))
        line.got(SUBACK, 2)
        line.settle()


class SubscribeSamePackets(Attack):
    """One filter in n packets, in a session with 9,999 others."""

    n, small = 20_000, 3000

    def prepare(self, stage):
        self.line = stage.connect(f"{stage.tag}s")
        subscribe_all(self.line, filters_of(stage, 9_999, lambda number: (f"{stage.tag}/{number}", 0)))

    def run(self, stage):
        self.line.send(raw.subscribe(1, [("a/b/c", 0)], version=stage.version) * stage.n, stage.n)
        self.line.got(SUBACK, 10 + stage.n)


class SubscribeSamePacketsDurable(Attack):
    """The same in a session that outlives its connection."""

    n, small = 10_000, 1500

    def prepare(self, stage):
        self.line = stage.durable(f"{stage.tag}s")
        subscribe_all(self.line, filters_of(stage, 9_999, lambda number: (f"{stage.tag}/{number}", 0)))

    def run(self, stage):
        stage.cause.synced += stage.n
        self.line.send(raw.subscribe(1, [("a/b/c", 0)], version=stage.version) * stage.n, stage.n)
        self.line.got(SUBACK, 10 + stage.n)


class SubscribeOneByOne(Attack):
    """n filters in packets of their own, and their end one by one, the latest first."""

    n, small = 10_000, 3000
    durable = False

    def run(self, stage):
        line = (stage.durable if self.durable else stage.connect)(f"{stage.tag}s")
        if self.durable:
            stage.cause.synced += 2 * stage.n
        names = [f"{stage.tag}/{number}" for number in range(stage.n)]
        line.send(b"".join(raw.subscribe(1, [(name, 0)], version=stage.version) for name in names), stage.n)
        line.got(SUBACK, stage.n)
        line.send(b"".join(raw.unsubscribe(1, [name], version=stage.version) for name in reversed(names)), stage.n)
        line.got(UNSUBACK, stage.n)


class SubscribeOneByOneDurable(SubscribeOneByOne):
    """The same in a session that outlives its connection."""

    n, small = 10_000, 1500
    durable = True


class SubscribeOwnTopics(Attack):
    """n times SUBSCRIBE to what the broker says of itself, and its end."""

    n, small = 3000, 500

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        # About a hundred topics come each time.
        stage.cause.deliveries += 100 * stage.n
        one = raw.subscribe(1, [("$SYS/#", 0)], version=stage.version)
        line.send((one + raw.unsubscribe(2, ["$SYS/#"], version=stage.version)) * stage.n, 2 * stage.n)
        line.got(UNSUBACK, stage.n)


class SubscribeRefused(Attack):
    """n filters that are refused, from a client with an identifier of 40 kB: what the log says of them."""

    is_refused = True
    n, small = 2000, 500

    def sets(self, _folder):
        return {"limits.topic.levels": 2}

    def run(self, stage):
        line = stage.connect("x" * 40_000)
        line.send(raw.subscribe(1, [("///", 0)] * stage.n, version=stage.version))
        line.got(SUBACK, 1)


class SubscribeRefusedPackets(Attack):
    """n packets with a filter of 1 kB each that is refused: what the log says of them."""

    is_refused = True
    n, small = 5000, 1000

    def sets(self, _folder):
        return {"limits.topic.levels": 2}

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        line.send(raw.subscribe(1, [("a/" * 500, 0)], version=stage.version) * stage.n, stage.n)
        line.got(SUBACK, stage.n)


class SubscribeLongFilters(Attack):
    """n filters of 60 kB."""

    n, small = 2000, 200

    def sets(self, _folder):
        return {"limits.topic.length": 65_535, "limits.session.subscriptionBytes": 1 << 30}

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        for first in range(0, stage.n, 20):
            made = [(f"{number}/".ljust(60_000, "x"), 0) for number in range(first, first + 20)]
            line.send(raw.subscribe(1, made, version=stage.version))
            line.got(SUBACK, first // 20 + 1)


class SubscribeLongFiltersDurable(Attack):
    """The same in a session that outlives its connection."""

    n, small = 1000, 200

    def sets(self, _folder):
        return {"limits.topic.length": 65_535, "limits.session.subscriptionBytes": 1 << 30}

    def run(self, stage):
        stage.cause.synced += stage.n
        line = stage.durable(f"{stage.tag}s")
        for first in range(0, stage.n, 20):
            made = [(f"{number}/".ljust(60_000, "x"), 0) for number in range(first, first + 20)]
            line.send(raw.subscribe(1, made, version=stage.version))
            line.got(SUBACK, first // 20 + 1)


class SubscribeManyLevels(Attack):
    """n filters of 128 levels, all different from the first level on: a node of the tree for each byte."""

    n, small = 8000, 1000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        stage.cause.visits += stage.n * 128
        subscribe_all(line, filters_of(stage, stage.n, lambda number: (f"{number:x}" + "/" * 127, 0)))


# Patterns of wildcards that a session may have.
PATTERNS = 64


def spread(stage, filters, durable=False, **fields) -> list:
    """Subscribes sessions to filters, to as many each as a session may have patterns of; the sessions' connections."""
    lines = []
    for first in range(0, len(filters), PATTERNS):
        line = (stage.durable if durable else stage.connect)(f"{stage.tag}s{first}")
        made = [(filter, 0) for filter in filters[first : first + PATTERNS]]
        line.send(raw.subscribe(1, made, version=stage.version, **fields))
        lines.append(line)
    stage.until(lambda: all(line.counts[SUBACK] or not line.is_open for line in lines), what="the subscriptions")
    return lines


class SubscribeNearlyMatching(Attack):
    """8,000 filters of `+` and names at 128 levels, of 125 sessions, that all nearly match, and of which the node has room
    for 1,000 patterns; n messages to topics of 128 levels."""

    is_refused = True
    n, small = 100, 20
    FILTERS = 8000
    durable = False
    leaves = True

    def prepare(self, stage):
        # Every choice of `+` or the name in 13 places, and an end that no topic has.
        choices = itertools.islice(itertools.product("a+", repeat=13), self.FILTERS)
        spread(stage, ["/".join(choice) + "/a" * 114 + "/z" for choice in choices], self.durable)

    def run(self, stage):
        publisher = stage.connect(f"{stage.tag}p")
        for number in range(stage.n):
            # The last level is another one each time: no cache knows the topic.
            publisher.send(raw.publish("a/" * 127 + str(number), version=stage.version))
        publisher.settle()


class SubscribeNearlyMatchingDurable(SubscribeNearlyMatching):
    """The same for a session that outlives its connection."""

    durable = True


class SubscribeBranching(Attack):
    """8,001 filters of `+` at 128 levels, of 126 sessions, but for two levels that differ each time, and of which the node
    has room for 1,000 patterns; n messages to such topics."""

    is_refused = True
    n, small = 200, 60
    leaves = True

    def prepare(self, stage):
        made = []
        for first, second in itertools.combinations(range(127), 2):
            levels = ["+"] * 128
            levels[first] = levels[second] = "a"
            levels[127] = "z"
            made.append("/".join(levels))
        spread(stage, made)

    def run(self, stage):
        publisher = stage.connect(f"{stage.tag}p")
        for number in range(stage.n):
            publisher.send(raw.publish("a/" * 127 + str(number), version=stage.version))
        publisher.settle()


# Filters of as many patterns as a node has room for, and bystanders do not need.
ALL_PATTERNS = 960


class SubscribeOverlapping(Attack):
    """960 filters, of 15 sessions, that match one topic; n messages to it."""

    n, small = 1000, 100

    def prepare(self, stage):
        # 14 levels, each `+` or the name.
        choices = itertools.islice(itertools.product("a+", repeat=14), ALL_PATTERNS)
        self.sessions = len(spread(stage, ["/".join(choice) for choice in choices]))

    def run(self, stage):
        stage.cause.deliveries += stage.n * self.sessions
        # The first of them matches all filters; what it came to is remembered for the others.
        stage.cause.visits += ALL_PATTERNS
        publisher = stage.connect(f"{stage.tag}p")
        publisher.send(raw.publish("/".join("a" * 14), version=stage.version) * stage.n, stage.n)
        publisher.settle()


class SubscribeOverlappingIdentifiers(Attack):
    """960 filters with a subscription identifier each, of 15 sessions, that match one topic; n messages to it."""

    n, small, versions = 200, 20, (5,)

    def prepare(self, stage):
        lines = []
        for number, choice in enumerate(itertools.islice(itertools.product("a+", repeat=14), ALL_PATTERNS)):
            if number % PATTERNS == 0:
                lines.append(stage.connect(f"{stage.tag}s{number}"))
            props = {"subscription_identifier": number + 1}
            lines[-1].send(raw.subscribe(1, [("/".join(choice), 0)], props=props))
        stage.until(lambda: sum(line.counts[SUBACK] for line in lines) == ALL_PATTERNS, what="the subscriptions")
        self.sessions = len(lines)

    def run(self, stage):
        # Each message carries all identifiers of its session, as the standard has it.
        stage.cause.deliveries += stage.n * self.sessions
        stage.cause.visits += stage.n * ALL_PATTERNS
        publisher = stage.connect(f"{stage.tag}p")
        publisher.send(raw.publish("/".join("a" * 14)) * stage.n, stage.n)
        publisher.settle()


class SubscribeChurn(Attack):
    """n times SUBSCRIBE and UNSUBSCRIBE of one filter."""

    n, small = 30_000, 5000
    durable = False

    def run(self, stage):
        line = (stage.durable if self.durable else stage.connect)(f"{stage.tag}s")
        if self.durable:
            stage.cause.synced += 2 * stage.n
        one = raw.subscribe(1, [("a", 0)], version=stage.version) + raw.unsubscribe(2, ["a"], version=stage.version)
        line.send(one * stage.n, 2 * stage.n)
        line.got(UNSUBACK, stage.n)


class SubscribeChurnDurable(SubscribeChurn):
    """The same in a session that outlives its connection."""

    n, small = 8000, 1000
    durable = True


class SubscribeChurnBesideTopics(Attack):
    """n times SUBSCRIBE and UNSUBSCRIBE of `#`, beside publishers whose matches are remembered."""

    n, small = 20_000, 3000

    def prepare(self, stage):
        publisher = stage.ordinary(f"{stage.tag}p")
        publisher.send(b"".join(raw.publish(f"{stage.tag}/{number}") for number in range(20_000)))
        publisher.settle()

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        line.parses = True
        # What the bystanders publish meanwhile.
        one = raw.subscribe(1, [("#", 0)], version=stage.version) + raw.unsubscribe(2, ["#"], version=stage.version)
        line.send(one * stage.n, 2 * stage.n)
        line.got(UNSUBACK, stage.n)


class UnsubscribeNothing(Attack):
    """n filters that nobody has, in packets of 1,000, from a session with 10,000 subscriptions."""

    n, small = 60_000, 8000
    durable = False

    def prepare(self, stage):
        self.line = (stage.durable if self.durable else stage.connect)(f"{stage.tag}s")
        subscribe_all(self.line, filters_of(stage, 10_000, lambda number: (f"{stage.tag}/{number}", 0)))

    def run(self, stage):
        for first in range(0, stage.n, 1000):
            made = [f"{number:x}" for number in range(first, first + 1000)]
            self.line.send(raw.unsubscribe(1, made, version=stage.version))
        self.line.got(UNSUBACK, stage.n // 1000)


class UnsubscribeNothingDurable(UnsubscribeNothing):
    """The same from a session that outlives its connection."""

    durable = True


class UnsubscribeAll(Attack):
    """10,000 subscriptions, all ended in one packet, n times."""

    n, small = 6, 2
    durable = False

    def run(self, stage):
        line = (stage.durable if self.durable else stage.connect)(f"{stage.tag}s")
        made = [f"{stage.tag}/{number}" for number in range(10_000)]
        packet = raw.subscribe(1, [(f, 0) for f in made], version=stage.version)
        for number in range(stage.n):
            if self.durable:
                stage.cause.synced += 20_000
            line.send(packet)
            line.send(raw.unsubscribe(2, made, version=stage.version))
            line.got(UNSUBACK, number + 1)


class UnsubscribeAllDurable(UnsubscribeAll):
    """The same in a session that outlives its connection."""

    durable = True


class SubscribeEmpty(Attack):
    """n connections that send a SUBSCRIBE without filters."""

    is_refused = True
    n, small = 3000, 400

    def run(self, stage):
        bad = raw.subscribe(1, [], version=stage.version)
        for first in range(0, stage.n, 50):
            lines = [stage.connect(f"{stage.tag}{first + n}", waits=False) for n in range(50)]
            for line in lines:
                line.send(bad)
            stage.until(lambda lines=lines: all(not line.is_open for line in lines), what="the ends")


class SharedGroups(Attack):
    """n shared groups of one session that match one topic; ten messages to it."""

    n, small = 70_000, 8000
    MESSAGES = 10

    def sets(self, _folder):
        return {"limits.session.subscriptions": 1_000_000}

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        subscribe_all(line, filters_of(stage, stage.n, lambda number: (f"$share/{number:x}/t", 0)))
        stage.cause.deliveries += self.MESSAGES * stage.n
        stage.cause.visits += self.MESSAGES * stage.n
        publisher = stage.connect(f"{stage.tag}p")
        for number in range(self.MESSAGES):
            publisher.send(raw.publish("t", version=stage.version, qos=1, pid=number + 1))
        publisher.got(PUBACK, self.MESSAGES)
        publisher.settle()


class SharedGroupsDurable(Attack):
    """n shared groups of a session that outlives its connection, and is away, match one topic; two messages to it."""

    n, small = 10_000, 2000
    MESSAGES = 2

    def run(self, stage):
        line = stage.durable(f"{stage.tag}s")
        subscribe_all(line, filters_of(stage, stage.n, lambda number: (f"$share/{number:x}/t", 1)))
        line.close()
        stage.cause.synced += stage.n
        stage.cause.deliveries += self.MESSAGES * stage.n
        stage.cause.visits += self.MESSAGES * stage.n
        publisher = stage.connect(f"{stage.tag}p")
        for number in range(self.MESSAGES):
            publisher.send(raw.publish("t", version=stage.version, qos=1, pid=number + 1))
        publisher.got(PUBACK, self.MESSAGES)


class SharedChurn(Attack):
    """n times joining and leaving a group of 500 members."""

    n, small = 10_000, 1500

    def prepare(self, stage):
        self.lines = []
        for number in range(500):
            line = stage.connect(f"{stage.tag}m{number}", waits=False)
            line.send(raw.subscribe(1, [("$share/g/t", 0)], version=stage.version))
            self.lines.append(line)
        stage.until(lambda: all(line.counts[SUBACK] for line in self.lines), what="the members")

    def run(self, stage):
        line = stage.connect(f"{stage.tag}s")
        one = raw.subscribe(1, [("$share/g/t", 0)], version=stage.version)
        one += raw.unsubscribe(2, ["$share/g/t"], version=stage.version)
        line.send(one * stage.n, 2 * stage.n)
        line.got(UNSUBACK, stage.n)


class SubscribeThenLost(Attack):
    """n connections with 1,000 subscriptions each that are lost."""

    n, small = 60, 8

    def run(self, stage):
        made = [(f"{stage.tag}/{number}", 0) for number in range(1000)]
        packet = raw.subscribe(1, made, version=stage.version)
        for number in range(stage.n):
            line = stage.connect(f"{stage.tag}s{number}")
            line.send(packet)
            line.got(SUBACK, 1)
            line.reset()
        # Nothing may be left behind for later.
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 0.2, what="the ends")


class SubscribeManySessionsOfOneUser(Attack):
    """n durable sessions of one user with 64 kB of filters each, of which most are away; another user subscribes as well."""

    is_refused = True
    leaves = True
    n, small = 80, 20
    grows = False
    FILTERS = 64

    def sets(self, _folder):
        # The share of one user is a quarter.
        return {"limits.node.subscriptionBytes": 4 << 20, "authentication.hashThreads": 1}

    def broker_fields(self, folder):
        return with_users(folder, "alice", "bob")

    def run(self, stage):
        for number in range(stage.n):
            line = stage.durable(f"{stage.tag}s{number}", username="alice", password=b"correct horse")
            made = [(f"{stage.tag}/{number}/{n}/".ljust(1000, "x"), 0) for n in range(self.FILTERS)]
            line.send(raw.subscribe(1, made, version=stage.version))
            line.got(SUBACK, 1)
            line.close()
        before = stage.refusals.total()
        other = stage.connect(f"{stage.tag}o", username="bob", password=b"correct horse")
        other.send(raw.subscribe(1, [(f"{stage.tag}/other", 0)], version=stage.version))
        other.got(SUBACK, 1)
        if stage.refusals.total() > before:
            stage.faults.append("another user has no room")

    def judge(self, stage, cost):
        cost.cpu = max(cost.cpu - HASH_S * (stage.n + 1), 0)

"""A load that uses everything at once: all levels of QoS, durable and clean sessions, shared groups whose members are
absent, slow and changing, large messages, sessions and messages that expire; and what `Load` has already, wills,
retained topics, and connections that take a client identifier from each other.

Absent on purpose: any judgement; that is `verify`.
"""

import itertools
import time

from harness.raw import CONNACK, SUBACK, UNSUBACK
from harness.wait import DEADLINE_S
from verify.history import NEVER, Member, Publication, Receipt, Return

from .load import PATIENCE, Load, Person, Publisher, Subscriber

MIB = 1 << 20
LARGE_EVERY = 2.0
# Interval of messages that expire, and how long their subscriber is away and there.
MESSAGE_EXPIRY, AWAY, THERE = 4, 7.0, 3.0
# Interval of sessions that expire, and how long their clients are away: less, and more.
SESSION_EXPIRY, BRIEFLY, LONG = 8, 1.0, 24.0
# Pause before a slow member acknowledges one message more.
SLOWLY = 0.1
# How long a changing member is in its group, and out of it.
CHANGE_EVERY = 2.0
# A broker takes no more than so many unanswered messages at a time to a slow member.
FEW = {"receive_maximum": 8}

# For large messages: connections are not slowed down.
SETTINGS = {
    "limits.connection.bytesPerSecondIn": 0,
    "limits.connection.bytesPerSecondOut": 0,
    "limits.session.queueMessages": 100_000,
    "limits.session.queueBytes": 256 * MIB,
}


class CleanPublisher(Publisher):
    """Has no session: what is not acknowledged when its connection ends is given up. Of QoS 0 it is no more than
    sent."""

    def __init__(self, load, client_id, topic, qos, rate):
        super().__init__(load, client_id, topic, qos, rate)
        self.connect = {"clean": True, "props": None}
        self.connections = 0

    def connected(self, connack):
        self.connections += 1
        self.flying.clear()

    def is_idle(self) -> bool:
        # Its messages are given up when its connection ends, so a wait for them ends.
        return not self.flying or not self.is_connected()

    def publication(self, payload, now):
        return Publication(
            payload, self.topic, self.client_id, self.qos, now, connection=self.connections, is_clean=True
        )

    def _send(self, pid, publication, dup):
        if publication.qos:
            return super()._send(pid, publication, dup)
        del self.flying[pid]
        super()._send(None, publication, dup)


class LargePublisher(Publisher):
    patience, window = 2 * PATIENCE, 2

    def packed(self, publication) -> bytes:
        return (publication.payload + b" ").ljust(MIB, b"x")


class LargeSubscriber(Subscriber):
    def message(self, topic, payload, qos):
        name = payload.split(b" ", 1)[0]
        if payload != (name + b" ").ljust(MIB, b"x"):
            self.history.damaged.append(f"{self.client_id} has got {len(payload)} bytes of {name!r} in place of {MIB}")
        super().message(topic, name, qos)


class ExpiringPublisher(Publisher):
    def publication(self, payload, now):
        return Publication(payload, self.topic, self.client_id, self.qos, now, expiry=MESSAGE_EXPIRY)


class AbsentSubscriber(Subscriber):
    """Is away most of the time."""

    since_there = NEVER

    def connected(self, connack):
        super().connected(connack)
        self.since_there = time.monotonic()

    def work(self, now):
        if self.since and self.load.is_publishing and now > self.since_there + THERE:
            self.leave(AWAY)


class CleanSubscriber(Person):
    """A session, and so a subscriber, for each connection: nothing is promised from one to the next."""

    def __init__(self, load, client_id, filter, qos=2):
        super().__init__(load, client_id, clean=True, props=None)
        self.filter, self.qos, self.numbers, self.number = filter, qos, itertools.count(), 0

    @property
    def subscriber(self) -> str:
        return f"{self.client_id}#{self.number}"

    def connected(self, connack):
        self.number = next(self.numbers)
        self.line.subscribe(self.filter, qos=self.qos)

    def message(self, topic, payload, qos):
        self.history.receipts.append(Receipt(self.subscriber, topic, payload, qos, time.monotonic()))


class GroupMember(Person):
    """A durable session in a shared group."""

    def __init__(self, load, client_id, group, filter, qos=2, **connect):
        super().__init__(load, client_id, **connect)
        self.group, self.filter, self.qos = group, filter, qos
        self.member: Member | None = None
        self.shared = f"$share/{group}/{filter}"

    def connected(self, connack):
        if self.member is None:
            self.line.subscribe(self.shared, qos=self.qos)

    def take(self, first, body):
        super().take(first, body)
        if first >> 4 == SUBACK and self.member is None:
            self.member = Member(self.client_id, self.group, self.filter, self.qos, time.monotonic())
            self.history.members.append(self.member)

    def message(self, topic, payload, qos):
        self.history.receipts.append(Receipt(self.client_id, topic, payload, qos, time.monotonic()))


class AbsentMember(GroupMember):
    since_there = NEVER

    def connected(self, connack):
        super().connected(connack)
        self.since_there = time.monotonic()

    def work(self, now):
        if self.member and self.load.is_publishing and now > self.since_there + THERE:
            self.leave(AWAY)


class SlowMember(GroupMember):
    """Acknowledges few messages, until it is to settle."""

    def __init__(self, load, client_id, group, filter):
        super().__init__(load, client_id, group, filter)
        self.connect["props"] = {**self.connect["props"], **FEW}
        self.is_slow, self.pays = True, 0.0

    def connected(self, connack):
        super().connected(connack)
        self.line.acknowledge = not self.is_slow

    def work(self, now):
        if self.is_slow and now >= self.pays:
            self.pays = now + SLOWLY
            self.line.pay(1)

    def settle(self):
        super().settle()
        self.is_slow = False
        if self.line:
            self.line.acknowledge = True
            self.line.pay()


class ChangingMember(GroupMember):
    """Leaves its group and joins it again, always connected: it takes what it has been given."""

    changes = NEVER
    is_leaving = False

    def connected(self, connack):
        if self.is_leaving:
            self.line.unsubscribe(self.shared)
        else:
            super().connected(connack)

    def take(self, first, body):
        super().take(first, body)
        now = time.monotonic()
        if first >> 4 == SUBACK:
            self.changes = now + CHANGE_EVERY
        if first >> 4 == UNSUBACK and self.is_leaving:
            self.is_leaving, self.member, self.changes = False, None, now + CHANGE_EVERY

    def work(self, now):
        if now < self.changes or not self.load.is_publishing:
            return
        self.changes = NEVER
        if self.member:
            self.member.until, self.is_leaving = now, True
            self.line.unsubscribe(self.shared)
        else:
            self.line.subscribe(self.shared, qos=self.qos)


class CleanMember(CleanSubscriber):
    """Is another member with each connection."""

    def __init__(self, load, client_id, group, filter, qos=1):
        super().__init__(load, client_id, f"$share/{group}/{filter}", qos)
        self.group, self.topics = group, filter

    def take(self, first, body):
        super().take(first, body)
        if first >> 4 == SUBACK:
            # It stays as long as its connection, and so promises nothing for later.
            now = time.monotonic()
            self.history.members.append(Member(self.subscriber, self.group, self.topics, self.qos, now, until=now, is_clean=True))


class Brief(Person):
    """Its session expires; it comes back in time and too late, by turns."""

    def __init__(self, load, client_id, filter):
        super().__init__(load, client_id, props={"session_expiry": SESSION_EXPIRY})
        self.filter, self.turns = filter, itertools.count()
        self.alive = self.ended = self.dialled = self.since_there = NEVER
        self.is_parting = self.tried = False

    def dial(self):
        self.is_parting = False
        self.tried = self.dialled != NEVER
        self.dialled = time.monotonic()
        super().dial()

    def connected(self, connack):
        now = time.monotonic()
        # A CONNECT that was not answered may have been carried out, and begins the interval anew.
        ended = NEVER if self.tried else self.ended
        if self.alive != NEVER:
            back = Return(
                self.client_id, SESSION_EXPIRY, self.alive, ended, self.dialled, now, connack.session_present
            )
            self.history.returns.append(back)
        self.alive, self.ended, self.since_there, self.dialled = self.dialled, NEVER, now, NEVER
        if not connack.session_present:
            self.line.subscribe(self.filter, qos=1)

    def take(self, first, body):
        if first >> 4 == CONNACK:
            # That it is forgotten may be right.
            self.is_known = False
        super().take(first, body)

    def turn(self, now):
        if self.is_parting and self.line is not None:
            if not self.line.open:
                self.ended = now
                self.line = None
            elif now > self.parted + PATIENCE:
                # Whether the end is known, nobody can say.
                self.line.reset()
                self.line = None
        super().turn(now)

    def work(self, now):
        # A second is longer than a ping and its answer take, or the connection is given up.
        self.alive = max(self.alive, self.line.heard - 1.0)
        if self.load.is_publishing and now > self.since_there + THERE:
            self.is_parting, self.parted = True, now
            self.tenure = None
            self.may_connect = now + (LONG if next(self.turns) % 2 else BRIEFLY)
            self.line.disconnect()


class MixedLoad(Load):
    """Its history has all of it. With `hop_every`, each so many seconds a publisher goes to another node, so that none
    is without."""

    def __init__(self, nodes, name, rate=15, hop_every=NEVER):
        super().__init__(nodes, name, subscribers=3, rate=rate, registers=2, every=(0.5, 0.2))
        messages = f"{name}/m"
        for qos in (0, 1, 2):
            CleanPublisher(self, f"{name}q{qos}", f"{messages}/c{qos}", qos, rate)
        clean = [p for p in self.people if isinstance(p, CleanPublisher)]
        large = LargePublisher(self, f"{name}l", f"{name}-l/1", 1, 1 / LARGE_EVERY)
        expiring = ExpiringPublisher(self, f"{name}e", f"{name}-e/1", 1, 5)
        self.publishers += [*clean, large, expiring]
        self.late_subscribers = [
            LargeSubscriber(self, f"{name}ls", f"{name}-l/#", qos=1),
            AbsentSubscriber(self, f"{name}es", f"{name}-e/#", qos=1),
            AbsentSubscriber(self, f"{name}as", f"{messages}/#", qos=2),
        ]
        CleanSubscriber(self, f"{name}cs", f"{messages}/#")
        # All that there is of members, in a group that gets all, and in one that gets QoS 1.
        every, some = f"{name}g", f"{name}h"
        self.members = [
            GroupMember(self, f"{name}g0", every, f"{messages}/+"),
            GroupMember(self, f"{name}g1", every, f"{messages}/+"),
            AbsentMember(self, f"{name}g2", every, f"{messages}/+"),
            SlowMember(self, f"{name}g3", every, f"{messages}/+"),
            ChangingMember(self, f"{name}g4", every, f"{messages}/+"),
            GroupMember(self, f"{name}h0", some, f"{messages}/0", qos=1),
            AbsentMember(self, f"{name}h1", some, f"{messages}/0", qos=1),
        ]
        CleanMember(self, f"{name}h2", some, f"{messages}/0")
        Brief(self, f"{name}b", f"{messages}/0")
        self.hop_every, self.next_hop = hop_every, time.monotonic() + hop_every
        self.hoppers = itertools.cycle([p for p in self.people if isinstance(p, Publisher)])

    def turn(self):
        super().turn()
        if self.is_publishing and time.monotonic() > self.next_hop:
            self.next_hop += self.hop_every
            hopper = next(self.hoppers)
            if hopper.is_connected():
                hopper.leave(0)

    def begin(self):
        subscribers = [*self.subscribers, *self.late_subscribers]
        self.until(lambda: all(s.since for s in subscribers) and all(m.member for m in self.members), what="members")
        super().begin()

    def go_on(self, messages=20, timeout=DEADLINE_S):
        # Those of large messages are slow.
        publishers, self.publishers = self.publishers, self.publishers[:4]
        try:
            super().go_on(messages, timeout)
        finally:
            self.publishers = publishers

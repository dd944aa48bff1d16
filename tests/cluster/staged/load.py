"""Clients that go on whatever happens to nodes, and a history of all they see.

Each is a person of its own, whose session outlives its connections: it connects to the next node when its
connection ends, is refused, or is silent for too long. One selector loop (`harness.crowd`) drives them, so
that the order of what they note is the order in which it happened.
Absent on purpose: any judgement; that is `verify`.
"""

import collections
import itertools
import time

from harness import raw
from harness.crowd import Crowd, Peer, Session
from harness.raw import CONNACK, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, SUBACK, UNSUBACK
from harness.wait import DEADLINE_S
from verify import checks
from verify.history import NEVER, History, Mourned, Operation, Publication, Receipt, Subscription, Tenure

# Silence, in seconds, after which a client gives a connection up; and the most that it becomes, doubled each time, so that
# clients of nodes that are only slow do not keep them busy with connections alone.
PATIENCE, LONGEST_PATIENCE = 2.0, 16.0
# Pause before it connects again.
PAUSE = 0.1
PING_EVERY = 0.5
FOREVER = {"session_expiry": 0xFFFFFFFF}
# Messages of QoS 1 and 2 of a publisher that may be unanswered.
WINDOW = 16
# Pause between two values of a retained topic: histories of registers are to be short.
SET_EVERY = 0.1
# Reads of retained topics that fail are given up after this.
READ_TIME = 5.0


class Line(Peer):
    """A connection; what comes on it is its person's business."""

    def __init__(self, person, **fields):
        self.person = person
        self.heard = self.opened = time.monotonic()
        self.is_pinged = False  # without an answer yet
        super().__init__(person.load.crowd, person.identifier, session=person.session, **fields)

    def take_bytes(self, data):
        self.heard = time.monotonic()
        super().take_bytes(data)

    def take(self, first, body):
        if first >> 4 in (SUBACK, UNSUBACK) and any(r >= 0x80 for r in raw.Packet(first, body, 5).reasons):
            # This node cannot store it; perhaps another can.
            return self.reset()
        super().take(first, body)
        if first >> 4 == PINGRESP:
            self.is_pinged = False
        self.person.take(first, body)

    def message(self, topic, payload, qos, dup):
        self.person.message(topic, payload, qos)

    def ping(self):
        if not self.is_pinged:
            self.is_pinged = True
            self.send(raw.packet(raw.PINGREQ << 4))


class Person:
    """A client with a durable session."""

    patience = PATIENCE

    def __init__(self, load, client_id, **connect):
        self.load, self.client_id = load, client_id
        # What it calls itself at the broker.
        self.identifier = load.identifier(client_id)
        self.session = Session(client_id)
        self.connect = {"clean": False, "props": FOREVER, **connect}
        self.line: Line | None = None
        self.tenure: Tenure | None = None
        self.may_connect = 0.0
        self.next_ping = 0.0
        self.is_known = False  # whether the broker has a session of it
        # It begins where nobody else does, and goes round from there.
        self.rotation = len(load.people)
        load.people.append(self)

    @property
    def history(self) -> History:
        return self.load.history

    def is_connected(self) -> bool:
        return self.tenure is not None and self.line is not None and self.line.open

    def is_connecting(self) -> bool:
        return self.tenure is None and self.line is not None and self.line.open

    def turn(self, now):
        if self.line is None or not self.line.open:
            self.gone()
            if now >= self.may_connect:
                self.may_connect = now + PAUSE
                self.dial()
        elif now > self.line.heard + self.patience:
            self.give_up()
        elif self.is_connected():
            if now >= self.next_ping:
                self.next_ping = now + PING_EVERY
                self.line.ping()
            self.work(now)

    def give_up(self):
        """Perhaps another node answers sooner."""
        self.patience = min(2 * self.patience, LONGEST_PATIENCE)
        self.line.reset()

    def dial(self):
        self.place = self.load.place(self.rotation)
        self.rotation += 1
        try:
            self.line = Line(self, place=self.place, **self.connect)
        except OSError:
            self.line = None

    def take(self, first, body):
        if first >> 4 == CONNACK:
            connack = raw.Packet(first, body, 5)
            if connack.reason:
                self.line.close()
                return
            if self.is_known and not connack.session_present:
                self.load.lost_sessions.append(self.client_id)
            self.is_known = not self.connect["clean"]
            if not connack.session_present:
                # The broker has forgotten it, so this client forgets it as well (§3.2.2.1.1).
                self.session.unreleased.clear()
            connect = self.line.opened
            self.tenure = Tenure(self.client_id, str(self.place), time.monotonic(), connect=connect)
            self.history.tenures.append(self.tenure)
            self.connected(connack)

    def gone(self):
        self.tenure = None

    def leave(self, seconds):
        """Ends the connection without DISCONNECT, and comes back some time later."""
        self.line.reset()
        self.gone()
        self.may_connect = time.monotonic() + seconds

    # -- what is different for each kind

    def is_idle(self) -> bool:
        """Whether nothing is under way that belongs into the history."""
        return True

    def settle(self):
        """From now on it takes all that comes, at once."""
        self.may_connect = 0.0

    def connected(self, connack):
        pass

    def work(self, now):
        pass

    def message(self, topic, payload, qos):
        pass


class Subscriber(Person):
    """Subscribes once; its session is durable."""

    def __init__(self, load, client_id, filter, qos=2):
        super().__init__(load, client_id)
        self.filter, self.qos, self.since = filter, qos, None

    def connected(self, connack):
        if self.since is None:
            self.line.subscribe(self.filter, qos=self.qos)

    def take(self, first, body):
        super().take(first, body)
        if first >> 4 == SUBACK:
            self.since = time.monotonic()
            self.history.subscriptions.append(Subscription(self.client_id, self.filter, self.qos, self.since))

    def message(self, topic, payload, qos):
        self.history.receipts.append(Receipt(self.client_id, topic, payload, qos, time.monotonic()))


class Contender(Person):
    """Does, again and again, what only the owner of its client identifier can do: it subscribes."""

    def __init__(self, load, client_id):
        super().__init__(load, client_id)
        self.asked = None  # when, if there is no answer yet

    def connected(self, connack):
        self.asked = None

    def work(self, now):
        if self.asked is None:
            self.asked = now
            self.line.subscribe(f"{self.client_id}/own", qos=1)

    def take(self, first, body):
        super().take(first, body)
        if first >> 4 == SUBACK and self.asked is not None:
            self.tenure.answered = max(self.tenure.answered, self.asked)
            self.asked = None


class Outgoing:
    def __init__(self, publication):
        self.publication, self.released = publication, False


class Publisher(Person):
    """Publishes at a rate, and sends again what was not acknowledged, as a durable session does."""

    window = WINDOW

    def __init__(self, load, client_id, topic, qos, rate):
        super().__init__(load, client_id)
        self.topic, self.qos, self.rate = topic, qos, rate
        self.flying: collections.OrderedDict[int, Outgoing] = collections.OrderedDict()
        self.pids, self.numbers = itertools.cycle(range(1, 60_000)), itertools.count()
        self.due = time.monotonic()

    def is_idle(self) -> bool:
        return not self.flying

    def connected(self, connack):
        for pid, outgoing in self.flying.items():
            if outgoing.released:
                self.line.send(raw.ack(raw.PUBREL, pid))
            else:
                outgoing.publication.copies += 1
                self._send(pid, outgoing.publication, dup=connack.session_present)

    def work(self, now):
        if self._is_stuck(now):
            # This node cannot store.
            return self.give_up()
        while self.load.is_publishing and self.due <= now and len(self.flying) < self.window:
            self.due += 1 / self.rate
            publication = self.publication(f"{self.client_id}:{next(self.numbers)}".encode(), now)
            publication.way = self.line.opened
            self.history.publications[publication.payload] = publication
            pid = next(self.pids)
            self.flying[pid] = Outgoing(publication)
            self._send(pid, publication, dup=False)

    def publication(self, payload, now) -> Publication:
        return Publication(payload, self.topic, self.client_id, self.qos, now)

    def _is_stuck(self, now) -> bool:
        oldest = next(iter(self.flying.values()), None)
        return oldest is not None and max(oldest.publication.sent, self.line.opened) + self.patience < now

    def _send(self, pid, publication, dup):
        fields = {"qos": publication.qos, "pid": pid, "dup": dup}
        if publication.expiry != NEVER:
            fields["props"] = {"message_expiry": int(publication.expiry)}
        self.line.send(raw.publish(publication.topic, self.packed(publication), **fields))

    def packed(self, publication) -> bytes:
        """What is sent for it."""
        return publication.payload

    def take(self, first, body):
        super().take(first, body)
        kind = first >> 4
        if kind not in (PUBACK, PUBREC, PUBCOMP):
            return
        packet = raw.Packet(first, body, 5)
        outgoing = self.flying.get(packet.pid)
        if outgoing is None:
            return
        if kind == PUBCOMP or packet.reason >= 0x80:
            del self.flying[packet.pid]
            return
        publication = outgoing.publication
        if publication.acked == NEVER:
            publication.acked = time.monotonic()
        if kind == PUBACK:
            del self.flying[packet.pid]
        else:
            outgoing.released = True
            self.line.send(raw.ack(raw.PUBREL, packet.pid))


class MournedPerson(Person):
    """Has a will, another for each connection."""

    def __init__(self, load, client_id, topic):
        super().__init__(load, client_id)
        self.topic, self.numbers, self.mourned = topic, itertools.count(), None

    def dial(self):
        if not self.load.is_publishing:
            return
        payload = f"{self.client_id}:{next(self.numbers)}".encode()
        self.connect["will"] = {"topic": self.topic, "payload": payload, "qos": 2}
        self.mourned = Mourned(self.client_id, self.topic, payload, time.monotonic(), died=True)
        super().dial()

    def connected(self, connack):
        self.history.mourned.append(self.mourned)

    def end(self, by_disconnect):
        """Ends the connection for good."""
        if self.is_connected():
            self.mourned.died = not by_disconnect
            self.line.disconnect() if by_disconnect else self.line.reset()


class Setter(Person):
    """Sets a retained topic, one value after another; what is not answered is not sent again."""

    def __init__(self, load, client_id, topic, every=SET_EVERY):
        super().__init__(load, client_id, clean=True, props=None)
        self.topic, self.numbers, self.every = topic, itertools.count(1), every
        self.value = self.start = None
        self.due = 0.0

    def is_idle(self) -> bool:
        return self.value is None

    def work(self, now):
        if self.value is None and self.load.is_publishing and now >= self.due:
            self.due = now + self.every
            self.value, self.start = f"{self.client_id}:{next(self.numbers)}".encode(), now
            self.line.send(raw.publish(self.topic, self.value, qos=1, pid=1, retain=True))
        elif self.value is not None and now > self.start + self.patience:
            self.give_up()

    def gone(self):
        super().gone()
        self._end(NEVER)

    def take(self, first, body):
        super().take(first, body)
        if first >> 4 == PUBACK and raw.Packet(first, body, 5).reason < 0x80:
            self._end(time.monotonic())

    def _end(self, end):
        if self.value is not None:
            self.history.operations.append(Operation(self.topic, "write", self.value, self.start, end))
            self.value = None


class Reader(Person):
    """Reads a retained topic: each time a new subscription of a new connection. A topic that has no value
    is not read, for nothing says so."""

    def __init__(self, load, client_id, topic, every=PAUSE):
        super().__init__(load, client_id, clean=True, props=None)
        self.topic, self.start, self.every = topic, None, every

    def connected(self, connack):
        self.may_connect = time.monotonic() + self.every
        self.start = time.monotonic()
        self.line.subscribe(self.topic, qos=0)

    def work(self, now):
        if now > self.start + READ_TIME or not self.load.is_publishing:
            self.line.disconnect()

    def take(self, first, body):
        super().take(first, body)
        # Live messages come without RETAIN, and say nothing about what a reader would find.
        if first >> 4 == PUBLISH and first & 1:
            value, end = raw.Packet(first, body, 5).payload, time.monotonic()
            self.history.operations.append(Operation(self.topic, "read", value, self.start, end))
            self.line.disconnect()


class Load:
    """Context manager: people with what they do, at the nodes of a cluster (a list, which may grow and
    shrink). `every`: seconds from one value of a retained topic to the next of a client, and from one read to the
    next; `lengths`: bytes that client identifiers have at least, by turns."""

    def __init__(
        self,
        nodes,
        name,
        *,
        publishers=4,
        subscribers=4,
        rate=50,
        contenders=1,
        mourned=4,
        registers=2,
        every=(SET_EVERY, PAUSE),
        lengths=(0,),
    ):
        self.nodes, self.name, self.lengths = nodes, name, lengths
        self.crowd = Crowd(None)
        self.history, self.lost_sessions, self.people = History(), [], []
        self.is_publishing = False
        self.subscribers = [Subscriber(self, f"{name}s{n}", f"{name}/#", qos=1 + n % 2) for n in range(subscribers)]
        self.publishers = [
            Publisher(self, f"{name}p{n}", f"{name}/m/{n}", qos=1 + n % 2, rate=rate) for n in range(publishers)
        ]
        # Two with one identifier take it from each other all the time.
        for n in range(contenders):
            Contender(self, f"{name}c{n}"), Contender(self, f"{name}c{n}")
        self.mourned = [MournedPerson(self, f"{name}w{n}", f"{name}/will/{n}") for n in range(mourned)]
        for n in range(registers):
            for k in range(2):
                Setter(self, f"{name}r{n}set{k}", f"{name}-r/{n}", every[0])
                Reader(self, f"{name}r{n}get{k}", f"{name}-r/{n}", every[1])

    def identifier(self, client_id) -> str:
        return client_id.ljust(self.lengths[sum(client_id.encode()) % len(self.lengths)], "x")

    def place(self, rotation) -> tuple[str, int]:
        # Another thread may change the list.
        nodes = list(self.nodes)
        return nodes[rotation % len(nodes)].mqtt

    def turn(self):
        now = time.monotonic()
        for person in self.people:
            person.turn(now)

    def until(self, done, timeout=DEADLINE_S, what="the condition"):
        self.crowd.run(done, timeout, what, self.turn)

    def begin(self):
        """All subscriptions are there, then publishing begins and is answered."""
        self.until(lambda: all(s.since for s in self.subscribers), what="all subscriptions")
        self.is_publishing = True
        for publisher in self.publishers:
            publisher.due = time.monotonic()
        self.go_on()

    def go_on(self, messages=20, timeout=DEADLINE_S):
        """Until each publisher has so many more messages acknowledged, of those sent from now on."""
        start = time.monotonic()

        def enough():
            acked = collections.Counter(
                p.publisher for p in self.history.publications.values() if p.sent >= start and p.acked != NEVER
            )
            return all(acked[p.client_id] >= messages for p in self.publishers)

        self.until(enough, timeout, lambda: f"{messages} acknowledged messages of each publisher")

    def pause(self, timeout=DEADLINE_S):
        """Until all that was sent has arrived, without anything new; then it goes on."""
        self.is_publishing = False
        self.until(lambda: all(p.is_idle() for p in self.people), timeout, "all acknowledgements")
        self.until(lambda: not any(self.missing()), timeout, lambda: f"what is missing: {list(self.missing())[:5]}")
        self.is_publishing = True
        for publisher in self.publishers:
            publisher.due = time.monotonic()

    def run_for(self, seconds):
        """Lets a fault last; not a way to wait for something."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, seconds + DEADLINE_S)

    def finish(self, timeout=DEADLINE_S):
        """Ends publishing, lets everything arrive, and judges."""
        self.is_publishing = False
        for person in self.people:
            person.settle()
        # Who is let in later would be mourned while it lives.
        self.until(lambda: not any(p.is_connecting() for p in self.mourned), timeout, "all answers to CONNECT")
        for n, person in enumerate(self.mourned):
            person.end(by_disconnect=n % 2 == 1)
        self.until(lambda: all(p.is_idle() for p in self.people), timeout, "all acknowledgements")
        died = [m.payload for m in self.history.mourned if m.died]
        expected = {(s.client_id, payload) for s in self.subscribers for payload in died if s.qos == 2}

        judged = -1

        def arrived():
            nonlocal judged
            if judged == len(self.history.receipts):
                return False
            judged = len(self.history.receipts)
            got = {(r.subscriber, r.payload) for r in self.history.receipts}
            return expected <= got and not any(self.missing())

        stuck = []
        if not self._comes_true(arrived, timeout):
            # What comes to another connection was not lost.
            stuck = [f"{who} was not sent {what} until it connected again" for who, what in self.missing()]
            for person in self.people:
                if person.line:
                    person.line.reset()
            judged = -1
            self._comes_true(arrived, timeout)
        found = checks.violations(self.history)
        if stuck and not {"lost", "group_lost"} & found.keys():
            found["stuck"] = stuck
        if self.lost_sessions:
            found["sessions"] = [f"the session of {client} is lost" for client in self.lost_sessions]
        told = [f"{kind}: {len(sentences)}, such as\n  {sentences[0]}" for kind, sentences in found.items()]
        assert not found, "\n".join(told)

    def missing(self):
        """What may still come: who is to get it, and the publication."""
        yield from checks.missing(self.history)
        yield from checks.group_missing(self.history)

    def _comes_true(self, condition, timeout) -> bool:
        try:
            self.until(condition, timeout)
        except AssertionError:
            return False
        return True

    def tell_recovery(self, fault):
        """Prints how long publishers had to wait after a fault."""
        times = checks.recoveries(self.history, fault)
        print(f"recovery of {len(times)} publishers: {checks.distribution(times.values())}")

    def __enter__(self):
        return self

    def __exit__(self, *exit):
        self.crowd.__exit__(*exit)

"""CONNECT: floods, large ones, refused ones, halves, and sessions that many connections fight for."""

import time

from harness import raw
from harness.raw import CONNACK

from . import Attack

BATCH = 50


def in_batches(stage, count, made):
    """`made(number)` gives a connection with its CONNECT sent; each batch is answered before it is closed."""
    for first in range(0, count, BATCH):
        lines = [made(first + number) for number in range(min(BATCH, count - first))]
        stage.until(lambda lines=lines: all(line.counts[CONNACK] or not line.is_open for line in lines), what="answers")
        for line in lines:
            line.send(raw.PING[:0] + raw.packet(0xE0))
        stage.sent()
        for line in lines:
            line.close()


class ConnectFlood(Attack):
    """n connections with a session of their own, CONNECT and DISCONNECT."""

    n, small = 4000, 500

    def run(self, stage):
        in_batches(stage, stage.n, lambda number: stage.connect(f"{stage.tag}{number}", waits=False))


class ConnectDurableFlood(Attack):
    """n connections, each with a session that outlives it."""

    n, small = 3000, 400

    def run(self, stage):
        # The session is created, and given up by its connection.
        stage.cause.synced += 3 * stage.n
        in_batches(stage, stage.n, lambda number: stage.durable(f"{stage.tag}{number}", waits=False))


class ConnectUserProperties(Attack):
    """n CONNECT packets of 60 kB of the smallest user properties."""

    n, small, versions = 100, 20, (5,)

    def run(self, stage):
        many = raw.prop("user_property", ("", "")) * 12_000
        in_batches(stage, stage.n, lambda number: stage.connect(f"{stage.tag}{number}", props=many, waits=False))


class ConnectWillProperties(Attack):
    """n CONNECT packets with wills of 60 kB of the smallest user properties, given up in order."""

    n, small, versions = 100, 20, (5,)

    def run(self, stage):
        will = {"topic": stage.tag, "props": raw.prop("user_property", ("", "")) * 12_000}
        in_batches(stage, stage.n, lambda number: stage.connect(f"{stage.tag}{number}", will=will, waits=False))


class ConnectLongNames(Attack):
    """n connections with client identifiers and user names of 30 kB."""

    n, small = 200, 40

    def run(self, stage):
        long = "x" * 30_000
        in_batches(
            stage, stage.n, lambda number: stage.connect(f"{number}{long}", username=f"{number}{long}", waits=False)
        )


class ConnectLongNamesDurable(Attack):
    """n sessions that outlive their connections, with client identifiers of 60 kB."""

    n, small = 200, 40

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        in_batches(stage, stage.n, lambda number: stage.durable(f"{number}".ljust(60_000, "x"), waits=False))


class ConnectRefused(Attack):
    """n CONNECT packets with an identifier that is not UTF-8, each on a connection of its own."""

    is_refused = True
    n, small = 4000, 500

    def run(self, stage):
        in_batches(stage, stage.n, lambda number: stage.connect(b"\xff%d" % number, waits=False))


class ConnectRefusedLong(Attack):
    """n CONNECT packets that are refused for their version, with identifiers of 60 kB: what the log says of them."""

    is_refused = True
    n, small = 200, 40

    def run(self, stage):
        in_batches(
            stage, stage.n, lambda number: stage.connect(f"{number}" + "x" * 60_000, level=9, waits=False)
        )


class ConnectHalves(Attack):
    """n CONNECT packets that come byte by byte and not to their end, 50 at a time."""

    n, small = 500, 100

    def run(self, stage):
        one = raw.connect("x" * 30, version=stage.version)[:-1]
        for _ in range(0, stage.n, BATCH):
            lines = [stage.dial() for _ in range(BATCH)]
            for at in range(len(one)):
                for line in lines:
                    line.send(one[at : at + 1])
                stage.pump(0.001)
            stage.sent()
            for line in lines:
                line.close()


class ConnectTwice(Attack):
    """n connections that send a second CONNECT, which closes them."""

    is_refused = True
    n, small = 3000, 400

    def run(self, stage):
        def twice(number):
            line = stage.connect(f"{stage.tag}{number}", waits=False)
            line.send(raw.connect(f"{stage.tag}{number}", version=stage.version))
            return line

        in_batches(stage, stage.n, twice)


class _Takeover(Attack):
    is_refused = True
    n, small = 3000, 400

    def one(self, stage):
        raise NotImplementedError

    def run(self, stage):
        old = None
        for _ in range(stage.n):
            new = self.one(stage)
            if old:
                old.close()
            old = new


class TakeoverStorm(_Takeover):
    """n connections with one client identifier, each of which takes the session from the one before."""

    def one(self, stage):
        return stage.connect(f"{stage.tag}same")


class TakeoverStormDurable(_Takeover):
    """The same with a session that outlives its connection."""

    def one(self, stage):
        stage.cause.synced += 3
        return stage.durable(f"{stage.tag}same")


class TakeoverStormTogether(Attack):
    """n connections with one client identifier, 50 of them at once."""

    is_refused = True
    n, small = 3000, 400

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        for _ in range(0, stage.n, BATCH):
            lines = [stage.durable(f"{stage.tag}same", waits=False) for _ in range(BATCH)]
            stage.until(lambda lines=lines: all(line.counts[CONNACK] or not line.is_open for line in lines), what="all")
            for line in lines:
                line.close()


class WillsStorm(Attack):
    """n connections with retained wills of 1 kB, which are all lost at once."""

    n, small = 2000, 300

    def run(self, stage):
        lines = []
        stage.cause.synced += stage.n
        for number in range(stage.n):
            will = {"topic": f"{stage.tag}/w/{number}", "payload": b"w" * 1000, "qos": 1, "retain": True}
            lines.append(stage.connect(f"{stage.tag}{number}", will=will, waits=False))
            if number % BATCH == BATCH - 1:
                stage.pump(0.001)
        stage.until(lambda: all(line.counts[CONNACK] or not line.is_open for line in lines), what="all answers")
        for line in lines:
            line.reset()


class WillsStormDurable(Attack):
    """The same for sessions that outlive their connections, with a delay of a second."""

    n, small, versions = 2000, 300, (5,)

    def run(self, stage):
        lines = []
        stage.cause.synced += 5 * stage.n
        for number in range(stage.n):
            will = {"topic": f"{stage.tag}/w/{number}", "payload": b"w" * 1000, "qos": 1, "retain": True}
            will["props"] = {"will_delay": 1}
            lines.append(stage.durable(f"{stage.tag}{number}", will=will, waits=False))
            if number % BATCH == BATCH - 1:
                stage.pump(0.001)
        stage.until(lambda: all(line.counts[CONNACK] or not line.is_open for line in lines), what="all answers")
        for line in lines:
            line.reset()
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 1.5, what="the delay")


class ExpiryStorm(Attack):
    """n sessions with one subscription each that end in the same second."""

    n, small, versions = 3000, 400, (5,)

    def run(self, stage):
        stage.cause.synced += 6 * stage.n

        def one(number):
            line = stage.connect(f"{stage.tag}{number}", clean=False, props={"session_expiry": 3}, waits=False)
            line.send(raw.subscribe(1, [(f"{stage.tag}/{number}", 1)]))
            return line

        in_batches(stage, stage.n, one)
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 4.5, what="the expiry")

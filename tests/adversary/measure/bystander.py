"""Clients that have nothing to do with the attack, in a process of their own: how long does the broker let them wait?

Several send PINGREQ every few milliseconds, and a publisher sends QoS 1 to a durable subscriber. Their identifiers
differ, so that every event loop has some. A line on standard input asks for the longest wait since the last line,
which is what is printed, as JSON.

Invariant: a wait that is not over yet counts with what it has lasted so far.
"""

import json
import os
import pathlib
import selectors
import socket
import subprocess
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "blackbox"))

from harness import raw  # noqa: E402

EVERY_S = 0.005
PINGERS = 6


class Bystander:
    """The process, seen from the test."""

    def __init__(self, host, port, tag, durable=True):
        arguments = [sys.executable, __file__, host, str(port), tag, str(int(durable))]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.longest()

    def longest(self) -> dict:
        """The longest waits since the last call, in seconds: of `ping`, of `publish`; `closed` connections; messages
        `published` since the last call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the bystanders' process has ended"
        return json.loads(line)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Waiter:
    """One connection that asks, waits for the answer, and asks again some milliseconds later."""

    def __init__(self, client, what, question, answer):
        self.stream, self.what, self.question, self.answer = client.socket, what, question, answer
        self.stream.setblocking(False)
        self.asked, self.next, self.worst, self.buffer = None, 0.0, 0.0, b""
        self.answers = 0

    def ask(self, now):
        self.asked = now
        self.stream.send(self.question)

    def read(self, now) -> bool:
        """False when the connection has ended."""
        try:
            data = self.stream.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self.buffer += data
        if self.asked is not None and self.answer in self.buffer:
            self.worst = max(self.worst, now - self.asked)
            self.asked, self.next, self.buffer = None, now + EVERY_S, b""
            self.answers += 1
        return True

    def take_worst(self, now) -> float:
        worst = max(self.worst, now - self.asked if self.asked is not None else 0)
        self.worst = 0.0
        return worst

    def take_answers(self) -> int:
        answers, self.answers = self.answers, 0
        return answers


class Acknowledger:
    """The durable subscriber: acknowledges all that comes."""

    def __init__(self, client):
        self.client, self.stream = client, client.socket

    def read(self, _now) -> bool:
        try:
            self.client.message(0.5)
        except (raw.Closed, AssertionError):
            return False
        self.stream.setblocking(False)
        return True


def main(host, port, tag, durable):
    try:
        # The wait is the broker's, not that of this process for a core.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        pass
    waiters, selector, closed = [], selectors.DefaultSelector(), 0
    for number in range(PINGERS):
        client = raw.Raw(port, host=host, timeout=120)
        client.connect(f"{tag}-bystander-{number * 7919}")
        waiters.append(Waiter(client, "ping", raw.PING, b"\xd0\x00"))
    if durable:
        topic = f"{tag}-bystander/topic"
        subscriber = raw.Raw(port, host=host, timeout=120)
        subscriber.connect(f"{tag}-bystander-s", props={"session_expiry": 600})
        subscriber.subscribe(topic, qos=1)
        selector.register(subscriber.socket, selectors.EVENT_READ, Acknowledger(subscriber))
        publisher = raw.Raw(port, host=host, timeout=120)
        publisher.connect(f"{tag}-bystander-p")
        waiters.append(Waiter(publisher, "publish", raw.publish(topic, b"x" * 32, qos=1, pid=1), b"\x40\x02\x00\x01"))
    for waiter in waiters:
        selector.register(waiter.stream, selectors.EVENT_READ, waiter)
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    while True:
        now = time.monotonic()
        for waiter in waiters:
            if waiter.asked is None and waiter.next <= now:
                waiter.ask(now)
        idle = [w.next - now for w in waiters if w.asked is None]
        for key, _ in selector.select(max(min(idle, default=1.0), 0)):
            now = time.monotonic()
            if key.data is None:
                if not sys.stdin.readline():
                    return
                found = {"closed": closed, "published": 0}
                for waiter in waiters:
                    found[waiter.what] = max(found.get(waiter.what, 0), waiter.take_worst(now))
                    answers = waiter.take_answers()
                    if waiter.what == "publish":
                        found["published"] += answers
                print(json.dumps(found), flush=True)
            elif not key.data.read(now):
                closed += 1
                selector.unregister(key.fileobj)
                if key.data in waiters:
                    waiters.remove(key.data)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1")

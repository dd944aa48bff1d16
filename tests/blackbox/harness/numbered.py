"""Numbered messages of QoS 0 or 1 that go on while a session leaves and comes back."""

import contextlib
import threading
import time

from harness.raw import PING, PINGRESP, PUBACK, PUBLISH, Closed, ack


# Messages that are published before their acknowledgements are read.
AT_ONCE = 20


class Publisher(threading.Thread):
    """Publishes numbers from 1 on, about so many a second, until it is told to end. `qos` by the number."""

    def __init__(self, client, topic, qos=lambda _: 0, rate=1000):
        super().__init__(daemon=True)
        self.client, self.topic, self.qos, self.rate = client, topic, qos, rate
        self.last, self.ends = 0, False
        self.unacknowledged = 0

    def run(self):
        begun, first = time.monotonic(), self.last
        while not self.ends:
            due = first + int((time.monotonic() - begun) * self.rate)
            for _ in range(min(due - self.last, 50)):
                self.publish()
            time.sleep(0.001)

    def publish(self):
        self.last += 1
        qos = self.qos(self.last)
        self.client.publish(self.topic, str(self.last).encode(), qos=qos)
        self.unacknowledged += qos > 0
        if self.last % AT_ONCE == 0:
            self.settle(AT_ONCE)

    def settle(self, at_most=0):
        """Reads acknowledgements until the broker has read all that was published, and all but so many are acknowledged:
        a PINGRESP may come before them, and more than Receive Maximum must not be under way."""
        self.client.send(PING)
        is_read = False
        while not is_read or self.unacknowledged > at_most:
            kind = self.client.recv().kind
            is_read |= kind == PINGRESP
            self.unacknowledged -= kind == PUBACK

    def end(self):
        """Returns the last number; all that was published before is with the broker."""
        self.ends = True
        self.join()
        self.settle()
        return self.last


class Reader:
    """A session that reads numbers, over its connections. `qos`: that they were published with, by the number."""

    def __init__(self, qos):
        self.numbers, self.qos = [], qos

    def take(self, packet, client):
        if packet.kind == PUBLISH:
            self.numbers.append(int(packet.payload))
            if packet.qos:
                client.send(ack(PUBACK, packet.pid))

    def read_until(self, client, number, timeout=60):
        """Until this number, or a later one, has come."""
        deadline = time.monotonic() + timeout
        while not self.numbers or self.numbers[-1] < number:
            assert time.monotonic() < deadline, f"{number} does not come; the last is {self.numbers[-1:]}"
            self.take(client.recv(), client)

    def leave(self, client):
        """Reads what the broker has sent, and goes."""
        client.send(PING)
        while (packet := client.recv()).kind != PINGRESP:
            self.take(packet, client)
        client.send(b"\xe0\x00")
        with contextlib.suppress(Closed, OSError):
            while True:
                self.take(client.recv(), client)

    def missed(self, last):
        """How many of the numbers up to the last one have not come."""
        return last - len(set(self.numbers))

    def backwards(self):
        """Those that came behind a later one of the same QoS."""
        last, found = {}, []
        for number in self.numbers:
            qos = self.qos(number)
            if number < last.get(qos, 0):
                found.append((number, last[qos]))
            last[qos] = max(number, last.get(qos, 0))
        return found

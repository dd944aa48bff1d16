"""Clients that fill a broker, and clients that look what is left.

Invariants: what is noted as promised was acknowledged; each wait has a deadline; looking takes no message from a queue, as nothing is
acknowledged.
"""

import random
import time

from harness import raw
from harness.raw import CONNACK, PUBACK, PUBLISH, SUBACK, Closed, Raw

from judge import Promised, Seen, compare

DAY_S = 86_400
SESSIONS, RETAINED, WILLS = 24, 24, 4
# The session that subscribes to wills.
OF_WILLS = "of-wills"
# Behind it nothing of a queue comes any more.
END = b"the end "


def fill(broker, promised: Promised, of: str, each=6):
    """Makes sessions as far as there are none, sets all retained messages, and queues `each` messages for each session, which is what
    the log ends with. `of`: what their payloads begin with."""
    draw = random.Random(of)
    if not promised.queues:
        for number in range(SESSIONS):
            make_session(broker, f"s{number:02}", f"queue/s{number:02}/#")
        make_session(broker, OF_WILLS, "will/#", f"queue/{OF_WILLS}/#")
        promised.queues = {f"s{number:02}": [] for number in range(SESSIONS)}
        promised.queues[OF_WILLS] = []
    with broker.client("filler") as filler:
        for number in range(RETAINED):
            payload = payload_of(draw, f"{of} {number}")
            filler.published(f"kept/{number:02}", payload, retain=True)
            promised.retain(f"kept/{number:02}", payload)
        for n in range(each):
            for name, queue in promised.queues.items():
                payload = payload_of(draw, f"{of} {name} {n}")
                filler.published(f"queue/{name}/a", payload)
                queue.append(payload)


def make_session(broker, name, *filters):
    with broker.client(name, clean=False, props={"session_expiry": DAY_S}) as client:
        client.subscribe(*filters, qos=1)
        client.disconnect()


def payload_of(draw, begin) -> bytes:
    return f"{begin} ".encode() + draw.randbytes(draw.randrange(200)).hex().encode()


def fill_log(broker, mebibytes):
    """So much goes through the log, and nothing of it stays."""
    with broker.client("large") as client:
        for n in range(mebibytes):
            client.published("large", bytes([n % 256]) * (1 << 20), retain=True)
        client.published("large", b"", retain=True)


def connect_wills(broker, promised: Promised) -> list[Raw]:
    """Connected clients, whose wills are due when the broker dies."""
    clients = []
    for number in range(WILLS):
        payload = f"will {number}".encode()
        will = {"topic": f"will/{number}", "payload": payload, "qos": 1}
        client = broker.client(f"w{number}", clean=False, props={"session_expiry": DAY_S}, will=will)
        clients.append(client)
        promised.wills.add(payload)
    return clients


class Look:
    """Looks at brokers for what is promised; `places` are host and port of each broker that is asked, in turn. `mark` is
    another one each time."""

    def __init__(self, places, promised: Promised, mark: str):
        self.places, self.promised, self.end = places, promised, END + mark.encode()
        self.seen = Seen()
        self.clients: dict[str, Raw] = {}
        self.marked: set[str] = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.clients.values():
            client.close()

    @property
    def missing(self):
        return compare(self.promised, self.seen)

    def go_on(self, seconds, is_over=lambda: False):
        """Until all has come that can still come, for so long at most, or until `is_over`."""
        deadline = time.monotonic() + seconds
        while not self._is_settled() and time.monotonic() < deadline and not is_over():
            self._turn(deadline)
        return self.missing

    def _is_settled(self) -> bool:
        """Whether nothing that is missing can still come: all queues have come to their ends."""
        missing = self.missing
        has_retained = len(self.seen.retained) >= len(self.promised.retained)
        return not (missing.unserved or missing.wills or (missing.retained and not has_retained))

    def _turn(self, deadline):
        names = [name for name in self.promised.queues if name not in self.seen.whole]
        for name in names:
            self._attempt(self._connect, name)
        for name in names:
            self._attempt(self._connected, name, deadline)
        self._attempt(self._retained, "looker", deadline)
        for name in names:
            if name in self.clients and name not in self.marked:
                self._attempt(self._mark, "marker", name, deadline)
        for name in names:
            if name in self.clients:
                self._attempt(self._read, name, deadline)
        if self.promised.wills - self.seen.wills and OF_WILLS in self.clients:
            self._attempt(self._read_wills, OF_WILLS, deadline)
        if not self._is_settled():
            # What was refused is asked for again, not too often.
            time.sleep(0.02)

    def _attempt(self, step, name, *rest):
        """A client that fails begins anew with the next turn."""
        try:
            step(name, *rest)
        except (Closed, OSError, AssertionError):
            if client := self.clients.pop(name, None):
                client.close()

    def _open(self, name, **fields) -> Raw:
        host, port = self.places[hash_of(name) % len(self.places)]
        client = Raw(port, host=host, timeout=2)
        self.clients[name] = client
        client.send(raw.connect(name, **fields))
        return client

    def _connect(self, name):
        if name not in self.clients:
            self._open(name, clean=False, props={"session_expiry": DAY_S})

    def _connected(self, name, deadline):
        client = self.clients.get(name)
        if client is None or hasattr(client, "is_connected"):
            return
        got = client.recv(left(deadline))
        assert got.kind == CONNACK and got.reason == 0, got
        client.is_connected = True
        # What was there once, and not the next time, is not there.
        self.seen.sessions[name] = self.seen.sessions.get(name, True) and got.session_present

    def _mark(self, name, session, deadline):
        marker = self.clients.get(name)
        if marker is None:
            marker = self._open(name)
            assert marker.recv(left(deadline)).reason == 0
        pid = marker.publish(f"queue/{session}/end", self.end, qos=1)
        got = marker.recv(left(deadline))
        assert got.kind == PUBACK and got.pid == pid and got.reason < 0x80, got
        self.marked.add(session)

    def _read(self, name, deadline):
        """What comes is kept also when the end does not come. Without a session there is no queue."""
        client, queue = self.clients[name], self.seen.queues.setdefault(name, [])
        if not self.seen.sessions.get(name):
            return
        while name not in self.seen.whole:
            got = client.recv(min(0.5, left(deadline)))
            if got.kind != PUBLISH:
                continue
            if got.topic.startswith("will/"):
                self.seen.wills.add(got.payload)
            elif got.payload == self.end:
                self.seen.whole.add(name)
            elif not got.payload.startswith(END) and got.payload not in queue:
                queue.append(got.payload)

    def _read_wills(self, name, deadline):
        client = self.clients[name]
        while self.promised.wills - self.seen.wills:
            got = client.recv(min(0.5, left(deadline)))
            if got.kind == PUBLISH and got.topic.startswith("will/"):
                self.seen.wills.add(got.payload)

    def _retained(self, name, deadline):
        if self.seen.is_retain_served and len(self.seen.retained) >= len(self.promised.retained):
            return
        client = self.clients.get(name)
        if client is None:
            client = self._open(name)
            assert client.recv(left(deadline)).reason == 0
            pid = client.next_pid()
            client.send(raw.subscribe(pid, [("kept/#", 1)]))
        while len(self.seen.retained) < len(self.promised.retained):
            got = client.recv(min(0.5, left(deadline)))
            if got.kind == SUBACK:
                assert got.reasons == [1], got
                self.seen.is_retain_served = True
            elif got.kind == PUBLISH:
                self.seen.retained[got.topic] = got.payload


def left(deadline) -> float:
    return max(0.01, deadline - time.monotonic())


def hash_of(name) -> int:
    return sum(name.encode())

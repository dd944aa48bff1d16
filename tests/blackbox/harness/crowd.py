"""Many clients in one selector loop, for tests of what only concurrency shows.

Purpose: publishers that keep a window of messages in flight, subscribers that acknowledge at once, late
or not at all, connections that break at any time; all of them driven by `Crowd.run`, so that a test
needs no threads and its choices come from one seeded generator.
Invariant: a client's session state (`Session`) outlives its connections, as the standard asks of a
client; every wait has a deadline.
Absent on purpose: reconnection by itself, and any judgement: what was seen is recorded for the test.
"""

import collections
import selectors
import socket
import struct
import time

from . import raw
from .raw import CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, UNSUBACK
from .wait import DEADLINE_S

# What a client takes from its socket at once.
CHUNK = 1 << 18


class Crowd:
    """The selector loop. Connections that are `paused` are not read."""

    def __init__(self, port, host="127.0.0.1"):
        self.place = (host, port)
        self.selector = selectors.DefaultSelector()
        self.peers: set[Peer] = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for peer in list(self.peers):
            peer.close()
        self.selector.close()

    def turn(self, wait=0.005):
        """Reads and writes what can be read and written now."""
        for key, events in self.selector.select(wait):
            peer = key.data
            if events & selectors.EVENT_WRITE and peer in self.peers:
                peer.flush()
            if events & selectors.EVENT_READ and peer in self.peers:
                peer.read()

    def run(self, done, timeout=DEADLINE_S, what="the condition", each_turn=None):
        """Turns until `done()`; fails at the deadline."""
        deadline = time.monotonic() + timeout
        while not done():
            assert time.monotonic() < deadline, f"{what() if callable(what) else what} not in {timeout} s"
            if each_turn:
                each_turn()
            self.turn()


class Session:
    """What a client keeps of a session between its connections, and what it has seen."""

    def __init__(self, client_id):
        self.client_id = client_id
        # Identifiers of QoS 2 messages received and not yet released. [MQTT-4.3.3-10]
        self.unreleased: set[int] = set()
        # (topic, payload, qos, dup) in the order of arrival; a QoS 2 message sent again is not one.
        self.seen: list[tuple[str, bytes, int, bool]] = []


class Peer:
    """A connection of the crowd (5.0 unless said otherwise). CONNECT is sent at once. `place` is host and
    port, if not those of the crowd."""

    def __init__(self, crowd, client_id, *, session=None, version=5, clean=True, place=None, **fields):
        self.crowd, self.version = crowd, version
        self.session = session or Session(client_id)
        self.socket = socket.create_connection(place or crowd.place, 5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.connack = self.reason = None  # CONNACK; reason code of a DISCONNECT
        self.open, self.paused = True, False
        self.answered = set()  # packet identifiers of SUBACK and UNSUBACK
        self.acknowledge = True  # whether messages are acknowledged when they come
        self.owed: collections.deque = collections.deque()  # acknowledgements not sent yet
        self._in, self._out, self._watched, self._pid = b"", bytearray(), selectors.EVENT_READ, 40_000
        crowd.peers.add(self)
        crowd.selector.register(self.socket, self._watched, self)
        self.send(raw.connect(client_id, version=version, clean=clean, **fields))

    # -- out

    def send(self, data: bytes):
        if self.open:
            empty = not self._out
            self._out += data
            if empty:
                self.flush()

    def flush(self):
        try:
            del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            return self.close()
        self._watch()

    def unsent(self) -> int:
        return len(self._out)

    def subscribe(self, *filters, qos=0) -> int:
        """Sends SUBSCRIBE; its identifier is in `answered` when SUBACK has come."""
        self._pid += 1
        self.send(raw.subscribe(self._pid, [(f, qos) for f in filters], version=self.version))
        return self._pid

    def unsubscribe(self, *filters) -> int:
        self._pid += 1
        self.send(raw.unsubscribe(self._pid, filters, version=self.version))
        return self._pid

    def pay(self, count=None):
        """Sends acknowledgements that are owed."""
        while self.owed and count != 0:
            self.send(self.owed.popleft())
            count = None if count is None else count - 1

    # -- in

    def pause(self, paused=True):
        self.paused = paused
        self._watch()

    def _watch(self):
        if not self.open:
            return
        wanted = (0 if self.paused else selectors.EVENT_READ) | (selectors.EVENT_WRITE if self._out else 0)
        if wanted == self._watched:
            return
        if not self._watched:
            self.crowd.selector.register(self.socket, wanted, self)
        elif not wanted:
            self.crowd.selector.unregister(self.socket)
        else:
            self.crowd.selector.modify(self.socket, wanted, self)
        self._watched = wanted

    def read(self):
        try:
            data = self.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self.close()
        self.take_bytes(data)

    def take_bytes(self, data):
        data, at = self._in + data, 0
        while self.open:
            length, shift, body = 0, 0, at + 1
            while body < len(data):
                digit = data[body]
                length |= (digit & 0x7F) << shift
                shift, body = shift + 7, body + 1
                if not digit & 0x80:
                    break
            else:
                break
            if len(data) < body + length:
                break
            self.take(data[at], data[body : body + length])
            at = body + length
        self._in = data[at:]

    def take(self, first, body):
        kind = first >> 4
        if kind == PUBLISH:
            self._message(first, body)
        elif kind == PUBREL:
            pid = struct.unpack_from(">H", body)[0]
            self.session.unreleased.discard(pid)
            self._answer(PUBCOMP, pid)
        elif kind == CONNACK:
            self.connack = raw.Packet(first, body, self.version)
        elif kind in (SUBACK, UNSUBACK):
            got = raw.Packet(first, body, self.version)
            assert all(reason < 0x80 for reason in got.reasons), got
            self.answered.add(got.pid)
        elif kind == DISCONNECT:
            self.reason = body[0] if body else 0

    def _message(self, first, body):
        qos, dup = first >> 1 & 3, bool(first & 8)
        at = 2 + struct.unpack_from(">H", body)[0]
        topic, pid = body[2:at].decode(), None
        if qos:
            pid, at = struct.unpack_from(">H", body, at)[0], at + 2
        if self.version == 5:
            assert body[at] < 0x80
            at += 1 + body[at]
        if qos == 2 and pid in self.session.unreleased:
            assert dup, f"identifier {pid} is in use for a message that was not released"
        else:
            if qos == 2:
                self.session.unreleased.add(pid)
            self.message(topic, body[at:], qos, dup)
        if qos:
            self._answer(PUBACK if qos == 1 else PUBREC, pid)

    def _answer(self, kind, pid):
        packet = raw.ack(kind, pid)
        if self.acknowledge and not self.owed:
            self.send(packet)
        else:
            self.owed.append(packet)

    def message(self, topic, payload, qos, dup):
        self.session.seen.append((topic, payload, qos, dup))

    # -- the end

    def close(self):
        if self.open:
            self.open = False
            self.crowd.peers.discard(self)
            if self._watched:
                self.crowd.selector.unregister(self.socket)
            self.socket.close()

    def reset(self):
        """Closes with a TCP reset."""
        if self.open:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def disconnect(self, session_expiry=None):
        """DISCONNECT; the broker closes."""
        props = None if session_expiry is None else {"session_expiry": session_expiry}
        self.send(raw.disconnect(0 if props else None, props))


class Publisher(Peer):
    """Sends the messages of `backlog`, (topic, payload, qos), with at most `window` of QoS 1 and 2 in
    flight. `acked` has those that the broker has accepted: payload → reason code."""

    def __init__(self, crowd, client_id, window=32, **fields):
        self.window, self.backlog, self.flying, self.acked = window, collections.deque(), {}, {}
        self._next = 0
        super().__init__(crowd, client_id, **fields)

    def idle(self) -> bool:
        return not (self.backlog or self.flying or self.unsent())

    def go_on(self, most=64):
        """Sends what the window allows, at most so many messages."""
        packets = []
        while self.backlog and len(packets) < most:
            topic, payload, qos = self.backlog[0]
            pid = None
            if qos:
                if len(self.flying) >= self.window:
                    break
                self._next = self._next % 30_000 + 1
                while self._next in self.flying:
                    self._next = self._next % 30_000 + 1
                pid = self._next
                self.flying[pid] = payload
            packets.append(raw.publish(topic, payload, qos=qos, pid=pid))
            self.backlog.popleft()
        if packets:
            self.send(b"".join(packets))

    def take(self, first, body):
        kind = first >> 4
        if kind not in (PUBACK, PUBREC, PUBCOMP):
            return super().take(first, body)
        pid, reason = struct.unpack_from(">H", body)[0], body[2] if len(body) > 2 else 0
        assert pid in self.flying, f"{raw.NAMES[kind]} of {pid}, which is not in flight"
        assert reason < 0x80, f"publish refused: {reason:#x}"
        if kind != PUBCOMP:
            self.acked[self.flying[pid]] = reason
        if kind == PUBREC:
            self.send(raw.ack(PUBREL, pid))
        else:
            del self.flying[pid]


class Sink(Peer):
    """Reads and forgets: a subscriber that keeps the broker busy and costs the test little."""

    def take_bytes(self, data):
        if not self.answered:
            super().take_bytes(data)

"""What an attack is played on: a broker, and connections that send bytes made beforehand.

Invariant: all connections are served by one loop in one thread (`Stage.pump`), so that an attacker that waits for
one answer still reads all others, unless it stalls on purpose; all that is sent while `counting` is counted.
"""

import collections
import selectors
import socket
import ssl
import time

from harness import raw
from harness.raw import CONNACK, DISCONNECT, PINGRESP, PUBACK, PUBREC, SUBACK

from .bars import SHORT_NAME, Cause

DEADLINE_S = 60


class TimedOut(Exception):
    """The broker did not do what it was waited for."""


class Line:
    """A connection that counts the packets that come, by kind. `reads` can be taken away: a stalled client."""

    def __init__(self, stage, stream, version):
        self.stage, self.stream, self.version = stage, stream, version
        self.reads, self.is_open = True, True
        self.counts = [0] * 16
        self.received = 0
        self._out, self._at = [], 0
        self._in = bytearray()
        self.parses = True
        # Of the broker's DISCONNECT.
        self.reason = ""
        # What is called with the kind and the body of each packet that comes.
        self.on_packet = None

    # -- out

    def send(self, data: bytes, packets=1):
        """Queues bytes; `Stage.pump` sends them."""
        if data and self.is_open:
            self._out.append(memoryview(data))
            self.stage.wants_write(self)
        self.stage.count(len(data), packets)

    def flush(self) -> bool:
        """Whether all is sent."""
        while self._out:
            view = self._out[0]
            try:
                sent = self.stream.send(view[self._at : self._at + (1 << 18)])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            except OSError:
                self.stage.is_ended(self)
                self._end()
                return True
            self._at += sent
            if self._at == len(view):
                self._out.pop(0)
                self._at = 0
        return True

    @property
    def is_sent(self) -> bool:
        return not self._out

    # -- in

    def read(self):
        # Not for ever: others have their turn.
        for _ in range(16):
            try:
                data = self.stream.recv(1 << 18)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                data = b""
            if not data:
                self.stage.is_ended(self)
                self._end()
                return
            self.received += len(data)
            if self.parses:
                self._in += data
                self._take_apart()

    def _take_apart(self):
        data, at, end = self._in, 0, len(self._in)
        while at + 2 <= end:
            length, shift, body = 0, 0, at + 1
            while body < end:
                digit = data[body]
                length |= (digit & 0x7F) << shift
                body, shift = body + 1, shift + 7
                if digit < 0x80:
                    break
            else:
                break
            if body + length > end:
                break
            kind = data[at] >> 4
            self.counts[kind] += 1
            self.stage.is_answered(self, kind, data[body : body + length])
            if self.on_packet:
                self.on_packet(data[at], bytes(data[body : body + length]))
            at = body + length
        del data[:at]

    # -- the end

    def _end(self):
        self.is_open = False
        self._out.clear()
        self.stage.forget(self)
        self.stream.close()

    def close(self):
        if self.is_open:
            self._end()

    def reset(self):
        """Closes with a TCP reset: what was sent last may be lost."""
        if self.is_open:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self._end()

    # -- exchanges

    def got(self, kind, count, timeout=DEADLINE_S):
        """Waits for so many packets of a kind in all, or the end of the connection."""
        self.stage.until(
            lambda: self.counts[kind] >= count or not self.is_open, timeout, f"{count} of {raw.NAMES[kind]}"
        )

    def settle(self, timeout=DEADLINE_S):
        """Waits for the answer to a PINGREQ behind all that was sent, or the end of the connection."""
        before = self.counts[PINGRESP]
        self.send(raw.PING)
        self.got(PINGRESP, before + 1, timeout)


class Stage:
    """`version` is the protocol level of the attack's connections; `tag` begins all names of one run. `name_length` is that
    of the identifiers that `long_name` makes."""

    def __init__(self, broker, version, n, tag, name_length=SHORT_NAME):
        self.broker, self.version, self.n, self.tag = broker, version, n, tag
        self.name_length = name_length
        self.host = broker.host
        self.cause, self.counting = Cause(), False
        self.faults: list[str] = []
        # What the broker did not let in: connections that it ended, and answers with reason codes of failure.
        self.refusals = collections.Counter()
        # Over several nodes: which shards are led by another node than before.
        self.leaders_moved = list
        self.lines: list[Line] = []
        self._selector = selectors.DefaultSelector()
        self._writing: set[Line] = set()

    def is_ended(self, line):
        """The broker has ended a connection."""
        self.refusals[f"the end of a connection{line.reason}"] += 1

    def is_answered(self, line, kind, body):
        """Notes reason codes of failure, in the words of the line's version."""
        if kind == CONNACK and len(body) > 1 and body[1]:
            self.refusals[f"CONNACK {body[1]:#04x}"] += 1
        elif kind == DISCONNECT and body:
            line.reason = f" with {body[0]:#04x}"
        elif kind in (PUBACK, PUBREC) and len(body) > 2 and body[2] >= 0x80:
            self.refusals[f"{raw.NAMES[kind]} {body[2]:#04x}"] += 1
        elif kind == SUBACK:
            start = 3 + body[2] if line.version == 5 else 2
            for code in body[start:]:
                if code >= 0x80:
                    self.refusals[f"SUBACK {code:#04x}"] += 1

    def count(self, size, packets=1):
        if self.counting:
            self.cause.sent += size
            self.cause.packets += packets

    # -- connections

    def dial(self, port=None, receive_buffer=None, source=None, context=None, host=None) -> Line:
        """A connection on which nothing has been said; with `context` its TLS handshake is done."""
        stream = socket.socket()
        if receive_buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            stream.bind((source, 0))
        stream.settimeout(DEADLINE_S)
        stream.connect((host or self.host, port or self.broker.port))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.counting:
            self.cause.connections += 1
        if context:
            stream = context.wrap_socket(stream, server_hostname="localhost")
            # A ClientHello, a Finished, and what surrounds them.
            self.count(600, 2)
        stream.setblocking(False)
        line = Line(self, stream, self.version)
        self.lines.append(line)
        self._selector.register(stream, selectors.EVENT_READ, line)
        return line

    def connect(self, client_id, *, dialled=None, version=None, waits=True, receive_buffer=None, **fields) -> Line:
        """A connection with its CONNECT sent, and answered if `waits`."""
        line = dialled or self.dial(receive_buffer=receive_buffer)
        line.version = version or self.version
        if self.counting:
            self.cause.names += len(client_id)
        line.send(raw.connect(client_id, version=line.version, **fields))
        if waits:
            line.got(CONNACK, 1)
        return line

    def durable(self, client_id, **fields) -> Line:
        """As `connect`, with a session that outlives the connection, in the words of the version."""
        if self.version == 5:
            fields.setdefault("props", {}).setdefault("session_expiry", 3600)
            fields.setdefault("clean", False)
            return self.connect(client_id, **fields)
        return self.connect(client_id, clean=False, **fields)

    def long_name(self, end) -> str:
        """A client identifier of the length that this run is about."""
        return f"{self.tag}{end}".ljust(self.name_length, "x")

    def ordinary(self, client_id, **fields) -> Line:
        """A client that is not the attacker: always of version 5."""
        return self.connect(client_id, version=5, **fields)

    def forget(self, line):
        self._writing.discard(line)
        try:
            self._selector.unregister(line.stream)
        except (KeyError, ValueError):
            pass
        if line in self.lines:
            self.lines.remove(line)

    def stall(self, line):
        """The line is not read any more."""
        line.reads = False
        self._register(line)

    def wants_write(self, line):
        if line not in self._writing:
            self._writing.add(line)
            self._register(line)

    def _register(self, line):
        events = (selectors.EVENT_READ if line.reads else 0) | (selectors.EVENT_WRITE if line in self._writing else 0)
        try:
            if events:
                self._selector.modify(line.stream, events, line)
            else:
                self._selector.unregister(line.stream)
        except KeyError:
            if events:
                self._selector.register(line.stream, events, line)

    # -- the loop

    def pump(self, timeout=0.05) -> bool:
        """Sends and reads what can be; whether there was anything."""
        events = self._selector.select(timeout)
        for key, mask in events:
            line = key.data
            if mask & selectors.EVENT_WRITE and line.is_open and line.flush():
                self._writing.discard(line)
                if line.is_open:
                    self._register(line)
            if mask & selectors.EVENT_READ and line.is_open and line.reads:
                line.read()
        return bool(events)

    def until(self, condition, timeout=DEADLINE_S, what="the condition"):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimedOut(f"{what}: not in {timeout} s")
            self.pump()

    def sent(self, timeout=DEADLINE_S):
        """Waits until all is in the kernel's hands."""
        self.until(lambda: not self._writing, timeout, "all is sent")

    def settle(self, lines=None, timeout=DEADLINE_S):
        """Waits for an answer to a PINGREQ on each of the connections, sent on all before."""
        lines = [line for line in (lines or self.lines) if line.is_open and line.reads]
        wanted = [(line, line.counts[PINGRESP] + 1) for line in lines]
        for line in lines:
            line.send(raw.PING)
        self.until(
            lambda: all(line.counts[PINGRESP] >= n or not line.is_open for line, n in wanted), timeout, "all answers"
        )

    def quiet(self, idle, timeout=DEADLINE_S) -> bool:
        """Waits until the broker uses hardly more than `idle` CPU seconds a second; false at the deadline."""
        deadline = time.monotonic() + timeout
        calm = 0
        while calm < 3:
            start, cpu, seen = time.monotonic(), self.broker.cpu(), False
            while time.monotonic() - start < 0.08:
                seen |= self.pump(0.02)
            rate = (self.broker.cpu() - cpu) / (time.monotonic() - start)
            calm = calm + 1 if rate < idle + 0.1 and not seen else 0
            if time.monotonic() > deadline:
                return False
        return True

    def close(self):
        for line in list(self.lines):
            line.close()
        self._selector.close()

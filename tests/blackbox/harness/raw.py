"""A raw MQTT client: bytes in, bytes out, nothing hidden.

Purpose: to send what no client library would send, and to see exactly what the broker answers.
It is written from the standards alone and shares nothing with the broker's own codec.
Invariant: every wait has a deadline; nothing here sleeps.
Absent on purpose: automatic pings, automatic acknowledgements (unless a test asks with `take`),
reconnection, threads.
"""

import itertools
import select
import socket
import struct
import time

from .wait import DEADLINE_S

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15
NAMES = (
    "RESERVED CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE "
    "UNSUBACK PINGREQ PINGRESP DISCONNECT AUTH"
).split()

# Property identifiers of 5.0 (table 2-4): name, identifier, kind.
_PROPERTIES = [
    ("payload_format", 0x01, "byte"),
    ("message_expiry", 0x02, "u32"),
    ("content_type", 0x03, "string"),
    ("response_topic", 0x08, "string"),
    ("correlation_data", 0x09, "binary"),
    ("subscription_identifier", 0x0B, "varint"),
    ("session_expiry", 0x11, "u32"),
    ("assigned_client_identifier", 0x12, "string"),
    ("server_keep_alive", 0x13, "u16"),
    ("authentication_method", 0x15, "string"),
    ("authentication_data", 0x16, "binary"),
    ("request_problem_information", 0x17, "byte"),
    ("will_delay", 0x18, "u32"),
    ("request_response_information", 0x19, "byte"),
    ("response_information", 0x1A, "string"),
    ("server_reference", 0x1C, "string"),
    ("reason_string", 0x1F, "string"),
    ("receive_maximum", 0x21, "u16"),
    ("topic_alias_maximum", 0x22, "u16"),
    ("topic_alias", 0x23, "u16"),
    ("maximum_qos", 0x24, "byte"),
    ("retain_available", 0x25, "byte"),
    ("user_property", 0x26, "pair"),
    ("maximum_packet_size", 0x27, "u32"),
    ("wildcard_subscription_available", 0x28, "byte"),
    ("subscription_identifier_available", 0x29, "byte"),
    ("shared_subscription_available", 0x2A, "byte"),
]
PROPERTY = {name: (identifier, kind) for name, identifier, kind in _PROPERTIES}
_BY_IDENTIFIER = {identifier: (name, kind) for name, identifier, kind in _PROPERTIES}
_REPEATABLE = {"user_property", "subscription_identifier"}


# ---- bytes out -------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A Variable Byte Integer in its shortest form."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def u16(value: int) -> bytes:
    return struct.pack(">H", value)


def binary(data: bytes) -> bytes:
    return u16(len(data)) + data


def text(value) -> bytes:
    """A UTF-8 Encoded String; bytes pass unchanged, so that ill-formed ones can be sent."""
    return binary(value if isinstance(value, bytes) else value.encode())


def prop(name: str, value) -> bytes:
    """One property; see `PROPERTY` for the names."""
    identifier, kind = PROPERTY[name]
    head = bytes([identifier])
    if kind == "byte":
        return head + bytes([value])
    if kind == "u16":
        return head + u16(value)
    if kind == "u32":
        return head + struct.pack(">I", value)
    if kind == "varint":
        return head + varint(value)
    if kind == "string":
        return head + text(value)
    if kind == "binary":
        return head + binary(value)
    return head + text(value[0]) + text(value[1])


def properties(values) -> bytes:
    """Property Length and properties, from a dict (a list as value repeats the property) or raw bytes."""
    if isinstance(values, bytes):
        return varint(len(values)) + values
    body = b""
    for name, value in (values or {}).items():
        for one in value if isinstance(value, list) else [value]:
            body += prop(name, one)
    return varint(len(body)) + body


def packet(first_byte: int, body: bytes = b"") -> bytes:
    return bytes([first_byte]) + varint(len(body)) + body


def connect(
    client_id="",
    *,
    version=5,
    clean=True,
    keep_alive=0,
    props=None,
    will=None,
    username=None,
    password=None,
    name=None,
    level=None,
    flags=None,
) -> bytes:
    """CONNECT. `will` is a dict: topic, payload, qos, retain, props. `flags` overrides the byte."""
    bits = 0x02 if clean else 0
    payload = text(client_id)
    if will is not None:
        bits |= 0x04 | will.get("qos", 0) << 3 | (0x20 if will.get("retain") else 0)
        if version == 5:
            payload += properties(will.get("props"))
        payload += text(will["topic"]) + binary(will.get("payload", b""))
    if username is not None:
        bits |= 0x80
        payload += text(username)
    if password is not None:
        bits |= 0x40
        payload += binary(password)
    head = text(name if name is not None else ("MQIsdp" if version == 3 else "MQTT"))
    head += bytes([version if level is None else level, bits if flags is None else flags]) + u16(keep_alive)
    if version == 5:
        head += properties(props)
    return packet(0x10, head + payload)


def publish(topic, payload=b"", *, version=5, qos=0, pid=None, retain=False, dup=False, props=None) -> bytes:
    body = text(topic)
    if pid is not None:
        body += u16(pid)
    if version == 5:
        body += properties(props)
    first = 0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    return packet(first, body + (payload if isinstance(payload, bytes) else payload.encode()))


def ack(kind: int, pid: int, *, reason=None, props=None) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP. Without a reason it has the short form."""
    body = u16(pid)
    if reason is not None:
        body += bytes([reason])
        if props is not None:
            body += properties(props)
    return packet(kind << 4 | (2 if kind == PUBREL else 0), body)


def subscribe(pid, filters, *, version=5, props=None) -> bytes:
    """SUBSCRIBE of (filter, options byte) pairs."""
    body = u16(pid) + (properties(props) if version == 5 else b"")
    return packet(0x82, body + b"".join(text(f) + bytes([options]) for f, options in filters))


def unsubscribe(pid, filters, *, version=5, props=None) -> bytes:
    body = u16(pid) + (properties(props) if version == 5 else b"")
    return packet(0xA2, body + b"".join(text(f) for f in filters))


def disconnect(reason=None, props=None) -> bytes:
    body = b"" if reason is None else bytes([reason])
    if props is not None:
        body += properties(props)
    return packet(0xE0, body)


def auth(reason=0x18, props=None) -> bytes:
    return packet(0xF0, bytes([reason]) + properties(props))


PING = packet(0xC0)


def options(qos=0, *, no_local=False, retain_as_published=False, retain_handling=0) -> int:
    """The Subscription Options byte of 5.0 (3.8.3.1)."""
    return qos | (4 if no_local else 0) | (8 if retain_as_published else 0) | retain_handling << 4


# ---- bytes in --------------------------------------------------------------------------------


class _Cursor:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        assert self.at + count <= len(self.data), f"the broker sent a short packet: {self.data.hex()}"
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return struct.unpack(">H", self.take(2))[0]

    def u32(self) -> int:
        return struct.unpack(">I", self.take(4))[0]

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if not digit & 0x80:
                return value
            shift += 7
            assert shift <= 21, "the broker sent a Variable Byte Integer of more than four bytes"

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        return self.binary().decode()

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    def properties(self) -> dict:
        inner = _Cursor(self.take(self.varint()))
        found: dict = {}
        while inner.at < len(inner.data):
            name, kind = _BY_IDENTIFIER[inner.varint()]
            value = (
                (inner.text(), inner.text()) if kind == "pair" else getattr(inner, {"string": "text"}.get(kind, kind))()
            )
            if name in _REPEATABLE:
                found.setdefault(name, []).append(value)
            else:
                assert name not in found, f"the broker sent {name} twice"
                found[name] = value
        return found


class Packet:
    """A packet from the broker, taken apart. Fields depend on `kind`."""

    def __init__(self, first: int, body: bytes, version: int):
        self.kind, self.flags, self.body = first >> 4, first & 0x0F, body
        self.size = 1 + len(varint(len(body))) + len(body)
        self.pid, self.reason, self.reasons, self.props = None, None, [], {}
        at, five = _Cursor(body), version == 5
        if self.kind == PUBLISH:
            self.dup, self.qos, self.retain = bool(first & 8), first >> 1 & 3, bool(first & 1)
            self.topic = at.text()
            if self.qos:
                self.pid = at.u16()
            if five:
                self.props = at.properties()
            self.payload = at.rest()
            return
        expected = 2 if self.kind == PUBREL else 0
        assert self.flags == expected, f"the broker sent {NAMES[self.kind]} with flags {self.flags:#x}"
        if self.kind == CONNACK:
            flags = at.byte()
            assert flags & 0xFE == 0, "[MQTT-3.2.2-1] reserved acknowledge flags are zero"
            self.session_present, self.reason = bool(flags), at.byte()
            # A refusal may come in the format of 3.1.1 when the version could not be agreed on.
            if five and at.at < len(body):
                self.props = at.properties()
        elif self.kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
            self.pid, self.reason = at.u16(), 0
            if five and at.at < len(body):
                self.reason = at.byte()
            if five and at.at < len(body):
                self.props = at.properties()
        elif self.kind in (SUBACK, UNSUBACK):
            self.pid = at.u16()
            if five:
                self.props = at.properties()
            self.reasons = list(at.rest())
        elif self.kind in (DISCONNECT, AUTH):
            self.reason = at.byte() if body else 0
            if at.at < len(body):
                self.props = at.properties()
        assert at.at == len(body), f"the broker sent {NAMES[self.kind]} with trailing bytes: {body.hex()}"

    def __repr__(self):
        fields = {
            k: v
            for k, v in vars(self).items()
            if k not in ("kind", "flags", "body", "size") and v not in (None, [], {})
        }
        return f"{NAMES[self.kind]}({', '.join(f'{k}={v!r}' for k, v in fields.items())})"


class Closed(Exception):
    """The broker closed the connection where a packet was expected."""


class Raw:
    """One network connection. `version` is the protocol level: 3 (3.1), 4 (3.1.1) or 5.

    `stream` is what is connected already, in place of a port: a socket, or what behaves like one."""

    def __init__(
        self,
        port=None,
        *,
        version=5,
        host="127.0.0.1",
        source=None,
        timeout=DEADLINE_S,
        receive_buffer=None,
        stream=None,
    ):
        self.version, self.timeout = version, timeout
        self._buffer = b""
        self._pids = itertools.cycle(range(1, 65536))
        if stream:
            self.socket = stream
            return
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer:
            # Before the connection opens, so that the window offered is small from the start.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            # Any address of 127.0.0.0/8 is ours: so one machine has many peers.
            self.socket.bind((source, 0))
        self.socket.settimeout(timeout)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes without DISCONNECT, as a lost network connection does."""
        self.socket.close()

    def reset(self):
        """Closes with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, *packets: bytes):
        self.socket.settimeout(self.timeout)
        self.socket.sendall(b"".join(packets))

    def next_pid(self) -> int:
        return next(self._pids)

    # -- receiving

    def has_come(self) -> bool:
        """Whether anything can be received, be it the end of the connection; waits for nothing."""
        return bool(self._buffer or select.select([self.socket], [], [], 0)[0])

    def recv(self, timeout=None) -> Packet:
        """The next packet. `Closed` at the end of the stream, `TimeoutError` at the deadline."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            length, shift, at = 0, 0, 1
            while at < len(self._buffer):
                digit = self._buffer[at]
                length |= (digit & 0x7F) << shift
                shift, at = shift + 7, at + 1
                if not digit & 0x80:
                    if len(self._buffer) < at + length:
                        break
                    first, body = self._buffer[0], self._buffer[at : at + length]
                    self._buffer = self._buffer[at + length :]
                    return Packet(first, body, self.version)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no packet in time; so far: {self._buffer.hex()!r}")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not data:
                assert not self._buffer, f"the stream ended inside a packet: {self._buffer.hex()}"
                raise Closed("end of stream")
            self._buffer += data

    def expect(self, kind: int, timeout=None, **fields) -> Packet:
        """The next packet must be of this kind and have these fields."""
        try:
            got = self.recv(timeout)
        except Closed as closed:
            raise AssertionError(f"expected {NAMES[kind]} {fields}, the broker closed ({closed})") from None
        except TimeoutError:
            raise AssertionError(f"expected {NAMES[kind]} {fields}, nothing came") from None
        assert got.kind == kind, f"expected {NAMES[kind]} {fields}, got {got}"
        for name, value in fields.items():
            if isinstance(value, str) and name == "payload":
                value = value.encode()
            assert getattr(got, name) == value, f"expected {NAMES[kind]} {fields}, got {got}"
        return got

    def expect_closed(self, timeout=None):
        """The next thing must be the end of the connection, without any packet before it."""
        try:
            got = self.recv(timeout)
        except Closed:
            return
        except TimeoutError:
            raise AssertionError("the broker left the connection open") from None
        raise AssertionError(f"expected the end of the connection, got {got}")

    def expect_disconnected(self, *reasons: int, timeout=None):
        """The broker ends an established connection: 5.0 with DISCONNECT and one of the reason
        codes, earlier versions without a word. [MQTT-4.13.1-1] [MQTT-3.14.4-2] [MQTT3-4.8.0-1]"""
        if self.version == 5:
            got = self.expect(DISCONNECT, timeout)
            assert got.reason in reasons, (
                f"expected DISCONNECT with one of {[hex(r) for r in reasons]}, got {hex(got.reason)}"
            )
            assert "session_expiry" not in got.props, "[MQTT-3.14.2-2] a server sends no Session Expiry Interval"
        self.expect_closed(timeout)

    def expect_refused(self, *reasons: int, timeout=None):
        """The broker refuses a CONNECT: CONNACK with one of the reason codes and the end of the
        connection, or (None among the reasons) the end alone. [MQTT-3.2.2-7] [MQTT3-3.2.2-5]"""
        try:
            got = self.recv(timeout)
        except Closed:
            assert None in reasons, f"expected CONNACK with one of {reasons}, the broker closed"
            return None
        assert got.kind == CONNACK, f"expected CONNACK with one of {reasons}, got {got}"
        assert got.reason in reasons, f"expected CONNACK with one of {reasons}, got {got}"
        assert not got.session_present, "[MQTT-3.2.2-6] [MQTT3-3.2.2-4] session present in a refusal"
        self.expect_closed(timeout)
        return got

    def ping(self):
        """A round trip with nothing in between."""
        self.send(PING)
        self.expect(PINGRESP)

    # -- exchanges

    def connect(self, client_id="", *, reason=0, session_present=None, **fields) -> Packet:
        """CONNECT and its CONNACK, which must carry the reason."""
        self.send(connect(client_id, version=self.version, **fields))
        got = self.expect(CONNACK, reason=reason)
        if session_present is not None:
            assert got.session_present == session_present, f"session present: {got}"
        return got

    def publish(self, topic, payload=b"", *, qos=0, pid=None, **fields) -> int:
        """Sends PUBLISH and returns its packet identifier; waits for nothing."""
        if qos and pid is None:
            pid = self.next_pid()
        self.send(publish(topic, payload, version=self.version, qos=qos, pid=pid, **fields))
        return pid

    def published(self, topic, payload=b"", *, qos=1, timeout=None, **fields) -> Packet:
        """PUBLISH and the whole acknowledgement; returns PUBACK or PUBREC. A reason code of 0x80
        or more fails the test."""
        pid = self.publish(topic, payload, qos=qos, **fields)
        if qos == 0:
            return None
        got = self.answer(PUBACK if qos == 1 else PUBREC, pid, timeout)
        assert got.reason < 0x80, f"publish refused: {got}"
        if qos == 2:
            self.send(ack(PUBREL, pid))
            self.answer(PUBCOMP, pid, timeout)
        return got

    def subscribe(self, *filters, qos=0, props=None, expect=None, **option) -> Packet:
        """SUBSCRIBE and its SUBACK.
        A filter is a string, with the given options, or a (filter, options byte) pair."""
        pid = self.next_pid()
        byte = options(qos, **option)
        pairs = [f if isinstance(f, tuple) else (f, byte) for f in filters]
        self.send(subscribe(pid, pairs, version=self.version, props=props))
        got = self.answer(SUBACK, pid)
        wanted = expect if expect is not None else [o & 3 for _, o in pairs]
        assert got.reasons == wanted, f"SUBACK {got.reasons}, expected {wanted}"
        return got

    def unsubscribe(self, *filters) -> Packet:
        pid = self.next_pid()
        self.send(unsubscribe(pid, filters, version=self.version))
        return self.answer(UNSUBACK, pid)

    def answer(self, kind: int, pid: int, timeout=None) -> Packet:
        """The answer to a packet of ours; messages that come before it stay to be read."""
        held = b""
        while True:
            got = self._open(kind, pid, timeout)
            if got.kind == kind and got.pid == pid:
                self._buffer = held + self._buffer
                return got
            assert got.kind in (PUBLISH, PUBREL), f"expected {NAMES[kind]} of {pid}, got {got}"
            held += packet(got.kind << 4 | got.flags, got.body)

    def _open(self, kind, pid, timeout) -> Packet:
        try:
            return self.recv(timeout)
        except (Closed, TimeoutError) as error:
            raise AssertionError(f"expected {NAMES[kind]} of {pid}: {error!r}") from None

    def message(self, timeout=None, **fields) -> Packet:
        """The next packet must be a PUBLISH with these fields; it is acknowledged in full."""
        got = self.expect(PUBLISH, timeout, **fields)
        if got.qos == 1:
            self.send(ack(PUBACK, got.pid))
        elif got.qos == 2:
            self.send(ack(PUBREC, got.pid))
            self.answer(PUBREL, got.pid, timeout)
            self.send(ack(PUBCOMP, got.pid))
        return got

    def take(self, count: int, timeout=None) -> list[Packet]:
        """That many messages, each acknowledged."""
        return [self.message(timeout) for _ in range(count)]

    def until(self, payload, timeout=None) -> list[Packet]:
        """The messages before the one with this payload, all acknowledged: how a test sees that
        something did NOT arrive, without waiting for a time to pass."""
        payload = payload if isinstance(payload, bytes) else payload.encode()
        seen = []
        while (got := self.message(timeout)).payload != payload:
            seen.append(got)
        return seen

    def disconnect(self, reason=None, props=None):
        self.send(disconnect(reason, props) if self.version == 5 else disconnect())
        self.expect_closed()
        self.socket.close()

"""WebSocket: the smallest frames, control frames, fragments without content, long heads."""

from harness import raw, websocket

from . import Attack

KIND = "mqtt-ws"


def masked(opcode, payload=b"", fin=True) -> bytes:
    """A frame whose mask changes nothing: made quickly."""
    assert len(payload) < 126
    return bytes([(0x80 if fin else 0) | opcode, 0x80 | len(payload)]) + b"\0\0\0\0" + payload


class _WebSocket(Attack):
    listeners = True

    def opened(self, stage):
        """A WebSocket on which a client is connected."""
        line = stage.dial(stage.broker.port_of(KIND))
        line.parses = False
        request = websocket.request()
        line.send(request)
        line.send(websocket.frame(websocket.BINARY, raw.connect(f"{stage.tag}w", version=stage.version)))
        stage.until(lambda: line.received > 100 or not line.is_open, what="the handshake")
        return line

    def answered(self, stage, line, count):
        """Waits for so many bytes more."""
        stage.until(lambda: line.received >= count or not line.is_open, what="the answers")


class WebsocketTinyFrames(_WebSocket):
    """n frames of one byte each, which are PINGREQ packets."""

    n, small = 60_000, 10_000

    def run(self, stage):
        line = self.opened(stage)
        before = line.received
        line.send(b"".join(masked(websocket.BINARY, bytes([byte])) for byte in raw.PING * (stage.n // 2)), stage.n)
        self.answered(stage, line, before + stage.n // 2 * 2)


class WebsocketPings(_WebSocket):
    """n control frames that are to be answered."""

    n, small = 60_000, 10_000

    def run(self, stage):
        line = self.opened(stage)
        before = line.received
        line.send(masked(websocket.PING, b"x" * 20) * stage.n, stage.n)
        self.answered(stage, line, before + stage.n * 20)


class WebsocketEmptyFragments(_WebSocket):
    """n fragments without content."""

    n, small = 100_000, 20_000

    def run(self, stage):
        line = self.opened(stage)
        before = line.received
        line.send(masked(websocket.BINARY, fin=False))
        line.send(masked(websocket.CONTINUATION, fin=False) * stage.n, stage.n)
        line.send(masked(websocket.CONTINUATION, raw.PING))
        self.answered(stage, line, before + 1)


class WebsocketHeads(_WebSocket):
    """n requests with 8 kB of header lines that are no WebSocket handshake."""

    is_refused = True
    n, small = 1000, 150

    def run(self, stage):
        head = ("GET /mqtt HTTP/1.1\r\nHost: x\r\n" + "a: b\r\n" * 1300 + "\r\n").encode()
        flood(stage, KIND, head)


class WebsocketHeadsEndless(_WebSocket):
    """n requests whose header lines do not end."""

    is_refused = True
    n, small = 1000, 150

    def run(self, stage):
        flood(stage, KIND, b"GET /mqtt HTTP/1.1\r\n" + b"a: b\r\n" * 2000)


def flood(stage, kind, data, packets=1):
    """n connections that send this and wait for their end, 50 at a time."""
    port = stage.broker.port_of(kind)
    for first in range(0, stage.n, 50):
        lines = []
        for _ in range(min(50, stage.n - first)):
            line = stage.dial(port)
            line.parses = False
            line.send(data, packets)
            lines.append(line)
        stage.until(
            lambda lines=lines: all(line.received or not line.is_open for line in lines), 20, "answers or ends"
        )
        for line in lines:
            line.close()

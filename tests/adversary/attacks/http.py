"""The HTTP port: heads, bodies, and the answers that cost the most."""

import json

from harness import raw
from harness.people import add_user

from . import Attack
from .websocket import flood

KIND = "http"
TOKEN = "for-tests-only"
# Streams of a node at once.
STREAMS = 32


class _Http(Attack):
    n, small = 300, 60

    def sets(self, folder):
        token = folder / "token"
        token.write_text(TOKEN)
        return {"http.tokenFile": token}

    def request(self) -> bytes:
        raise NotImplementedError

    def run(self, stage):
        flood(stage, KIND, self.request())


class HttpHeads(_Http):
    """n requests with 15 kB of header lines."""

    def request(self):
        return ("GET /healthz HTTP/1.1\r\nhost: x\r\n" + "x: " + "y" * 15_000 + "\r\n\r\n").encode()


class HttpManyHeads(_Http):
    """n requests with 90 header lines."""

    is_refused = True

    def request(self):
        lines = "".join(f"x{number}: y\r\n" for number in range(90))
        return f"GET /healthz HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode()


class HttpUnfinished(_Http):
    """n requests that do not end; they hold a place until their time is over."""

    n, small = 100, 50

    def run(self, stage):
        for _ in range(stage.n):
            line = stage.dial(stage.broker.port_of(KIND))
            line.parses = False
            line.send(b"GET /hea")
        stage.sent()


class HttpSlowBodies(_Http):
    """n logins whose bodies do not come; they hold a place until their time is over."""

    n, small = 100, 50

    def run(self, stage):
        head = "POST /api/v1/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
        for _ in range(stage.n):
            line = stage.dial(stage.broker.port_of(KIND))
            line.parses = False
            line.send(head.encode())
        stage.sent()


class HttpGuesses(_Http):
    """n logins with wrong passwords of a user of the API; after some they are refused before the password is looked at."""

    n, small = 600, 100

    def sets(self, folder):
        people = folder / "people"
        add_user(people, "anna", "password of anna")
        return {"http.userFile": people}

    def run(self, stage):
        port, left = stage.broker.port_of(KIND), stage.n
        while left:
            lines = []
            for _ in range(min(4, left)):
                body = json.dumps({"user": "anna", "password": f"guess {left}"})
                head = f"POST /api/v1/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                line = stage.dial(port)
                line.parses = False
                line.send((head + body).encode())
                lines.append(line)
                left -= 1
            stage.until(lambda lines=lines: all(line.received or not line.is_open for line in lines), 20, "answers")
            for line in lines:
                line.close()
        if not stage.broker.metric("heraldmq_refusals_total", reason="failed_logins"):
            stage.faults.append("all guesses were looked at")


class HttpStreams(_Http):
    """n streams of events, of which the broker keeps 32, while a client connects n times."""

    n, small = 300, 80

    def run(self, stage):
        request = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
        streams = []
        for _ in range(stage.n):
            line = stage.dial(stage.broker.port_of(KIND))
            line.parses = False
            line.send(request)
            streams.append(line)
        stage.until(lambda: all(line.received or not line.is_open for line in streams), 20, "answers or ends")
        for _ in range(stage.n):
            stage.connect(f"{stage.tag}f").close()
        # Each of the streams is told of each connection and of its end.
        stage.cause.deliveries += 2 * STREAMS * stage.n
        events = [line for line in streams if line.is_open]
        have_all = lambda: sum(line.received > 200 * stage.n for line in events)  # noqa: E731
        stage.until(lambda: have_all() >= STREAMS, 20, "the events at each stream")
        if have_all() > STREAMS:
            stage.faults.append(f"{have_all()} streams go on")


class HttpBigBody(_Http):
    """n bans without a token, with 60 kB of JSON."""

    is_refused = True
    n, small = 200, 40

    def request(self):
        body = ('{"client": "' + "x" * 60_000 + '"}').encode()
        head = f"POST /api/v1/bans HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        return head.encode() + b"\r\n\r\n" + body


class HttpNestedBody(_Http):
    """n bans with the token, with 60 kB of nested JSON."""

    n, small = 200, 40

    def request(self):
        body = b"[" * 60_000
        head = (
            f"POST /api/v1/bans HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class HttpWrongTokens(_Http):
    """n bans with a wrong token: what the log says of them."""

    n, small = 2000, 300

    def request(self):
        body = b'{"client": "x"}'
        head = (
            "POST /api/v1/bans HTTP/1.1\r\nhost: x\r\nauthorization: Bearer wrong\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class HttpMetrics(_Http):
    """n readings of the metrics on one connection after the other."""

    is_refused = True
    n, small = 300, 60

    def request(self):
        return b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class HttpMetricsPipelined(_Http):
    """n readings of the metrics on one connection, all asked for at once."""

    is_refused = True
    n, small = 1000, 150

    def run(self, stage):
        # Each is a request that is worth a connection: a page of 10 kB is made for it.
        stage.cause.connections += stage.n
        line = stage.dial(stage.broker.port_of(KIND))
        line.parses = False
        line.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * stage.n, stage.n)
        line.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        stage.until(lambda: not line.is_open, what="all answers")


class HttpDrops(_Http):
    """n readings of the list of drops, which is full of topics of 60 kB."""

    is_refused = True
    n, small = 20, 4

    def prepare(self, stage):
        stalled = stage.ordinary(f"{stage.tag}s", receive_buffer=8192)
        stalled.send(raw.subscribe(1, [(f"{stage.tag}/#", 0)]))
        stalled.got(9, 1)
        stage.stall(stalled)
        line = stage.ordinary(f"{stage.tag}p")
        for number in range(1600):
            line.send(raw.publish(f"{stage.tag}/{number}/".ljust(60_000, "x"), b"x" * 100))
            if number % 50 == 49:
                line.settle()
        drops = stage.broker.http("/api/v1/drops?limit=500")[1]
        self.answer = len(drops)
        assert len(json.loads(drops)["items"]) > 100

    def run(self, stage):
        # The list is what was asked for: it is made and written once for each.
        stage.cause.connections += stage.n
        stage.cause.deliveries += stage.n * 500
        for _ in range(stage.n):
            line = stage.dial(stage.broker.port_of(KIND))
            line.parses = False
            line.send(b"GET /api/v1/drops?limit=500 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        stage.until(lambda: not stage_lines(stage), what="all answers")


def stage_lines(stage):
    return [line for line in stage.lines if line.is_open and not line.parses]

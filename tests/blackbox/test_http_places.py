"""The places of the HTTP port: no stranger keeps monitors, logins or readers out of it."""

import http.client
import json
import pathlib
import socket
import time

import pytest

from harness.broker import Broker
from harness.people import Browser, add_user
from harness.wait import DEADLINE_S, until
from test_api import keys  # noqa: F401

# Connections of the port, and logins that are checked at once.
CONNECTIONS, LOGINS = 128, 16


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    file = tmp_path_factory.mktemp("people") / "people"
    add_user(file, "anna", "password of anna")
    return file


def dial(broker, data=b"", receive_buffer=None):
    line = socket.socket()
    if receive_buffer:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    line.settimeout(DEADLINE_S)
    line.connect(("127.0.0.1", broker.http_port))
    line.sendall(data)
    return line


def is_open(line) -> bool:
    """Whether the node has not closed a connection on which no answer is due."""
    line.setblocking(False)
    try:
        return line.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def sockets(broker) -> int:
    """How many sockets the process has."""
    found = 0
    for file in pathlib.Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            found += str(file.readlink()).startswith("socket:")
        except FileNotFoundError:
            pass
    return found


def answers(broker, path) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=DEADLINE_S)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


def refused(line) -> bool:
    """Whether a stream request that cannot be used is answered on this connection."""
    line.setblocking(True)
    line.settimeout(DEADLINE_S)
    try:
        line.sendall(b"GET /api/v1/events?type=nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
        text = b""
        while not text.endswith(b"}"):
            part = line.recv(65536)
            if not part:
                return False
            text += part
    except ConnectionError:
        return False
    return text.startswith(b"HTTP/1.1 400 ")


def test_a_refused_stream_keeps_the_place_of_its_connection():
    with Broker() as broker:
        lines = []
        for _ in range(2 * CONNECTIONS):
            lines.append(dial(broker))
            assert refused(lines[-1])
        still = sum(refused(line) for line in lines)
        assert 0 < still <= CONNECTIONS, f"{still} connections are served at once"
        for line in lines:
            line.close()


def test_answers_that_nobody_reads_end_with_their_connection():
    with Broker() as broker:
        before = sockets(broker)
        lines = [dial(broker, receive_buffer=4096) for _ in range(8)]
        for line in lines:
            line.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 100)
        until(lambda: sockets(broker) > before, what="the connections")
        # A connection without a stream ends after 60 s in any case.
        until(lambda: sockets(broker) <= before, 40, "the end of connections whose answers nobody reads")
        for line in lines:
            line.close()


def slow_login(broker):
    head = "POST /api/v1/login HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
    return dial(broker, head.encode())


@pytest.mark.parametrize("count", [LOGINS, 2 * CONNECTIONS])
def test_bodies_that_do_not_come_keep_no_login_out(people, count):
    with Broker({"http.userFile": people, "http.anonymous": "none"}) as broker:
        lines = [slow_login(broker) for _ in range(count)]
        for _ in range(5):
            status, answer = Browser("127.0.0.1", broker.http_port).login("anna")
            assert status == 200, answer
        for line in lines:
            line.close()


def test_bodies_that_do_not_come_keep_no_question_out(keys):  # noqa: F811
    with Broker({"http.keyFile": keys["file"]}) as broker:
        head = (
            "POST /api/v1/match HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
        )
        lines = [dial(broker, head.encode()) for _ in range(100)]
        assert answers(broker, "/api/v1/stats") == 200
        for line in lines:
            assert is_open(line), "a slow body is waited for while there are places"
            line.close()


def test_a_body_that_is_late_is_read():
    with Broker() as broker:
        body = json.dumps({"topic": "a"}).encode()
        head = f"POST /api/v1/match HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        line = dial(broker, head.encode() + body[:3])
        assert answers(broker, "/healthz") == 200
        line.sendall(body[3:])
        assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
        line.close()


@pytest.mark.parametrize("said", [b"", b"GET /hea"])
def test_half_open_connections_keep_nobody_out(said):
    with Broker() as broker:
        ends, lines = time.monotonic() + DEADLINE_S, []
        # Each round would wait for the end of the connections before it, two or three times 5 s.
        for _ in range(10):
            lines += [dial(broker, said) for _ in range(400)]
            assert answers(broker, "/healthz") == 200
            assert time.monotonic() < ends, "the answers wait for half-open connections"
        opened = list(map(is_open, lines))
        assert sum(opened) <= CONNECTIONS and not any(opened[:-CONNECTIONS])
        for path in ("/readyz", "/metrics", "/api/v1/stats"):
            assert answers(broker, path) == 200
        for line in lines:
            line.close()


def test_answers_under_way_leave_places_for_probes(keys):  # noqa: F811
    with Broker({"http.keyFile": keys["file"]}) as broker:
        # Nobody reads these answers: they keep their places until they are given up.
        lines = [dial(broker, receive_buffer=4096) for _ in range(2 * CONNECTIONS)]
        for line in lines:
            try:
                line.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20)
            except ConnectionError:
                pass
        for path in ("/healthz", "/readyz", "/metrics"):
            assert answers(broker, path) == 200
        for line in lines:
            line.close()

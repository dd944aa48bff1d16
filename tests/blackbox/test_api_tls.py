"""The HTTP port with TLS: who reaches it, by which certificates, and what becomes of those who do not speak TLS."""

import http.client
import json
import signal
import socket
import ssl
import urllib.error
import urllib.request

import pytest

from harness.broker import Broker, run
from harness.pki import Authority
from harness.wait import DEADLINE_S, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def files(authority, tmp_path):
    """The certificate and key of a port, as files of its own that a test may replace."""
    leaf = authority.issue("http")
    place = (tmp_path / "http.crt", tmp_path / "http.key")
    for source, target in zip(leaf.files, place):
        target.write_bytes(open(source, "rb").read())
    return place


def settings(files) -> dict:
    return {"http.sslConfig.certFile": files[0], "http.sslConfig.keyFile": files[1]}


class Https(Broker):
    """A broker whose HTTP port has TLS."""

    @property
    def http_port(self) -> int:
        return self.port_of("https")


def get(broker, authority, path="/api/v1/health", host="localhost") -> tuple[int, str, int]:
    """Status, body, and the serial number of the certificate."""
    context = ssl.create_default_context(cafile=authority.path)
    connection = http.client.HTTPSConnection(host, broker.http_port, timeout=DEADLINE_S, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        serial = int(connection.sock.getpeercert()["serialNumber"], 16)
        return answer.status, answer.read().decode(), serial
    finally:
        connection.close()


def test_the_port_answers_over_tls_only(authority, files, tmp_path):
    with Https(settings(files)) as broker:
        status, text, _ = get(broker, authority)
        assert status == 200 and json.loads(text)["state"] == "ok"
        assert get(broker, authority, "/metrics")[0] == 200
        url = f"https://localhost:{broker.http_port}"
        done = run("nodes", "--url", url, "--ca-file", authority.path)
        assert done.returncode == 0 and "NODE" in done.stdout, done.stderr
        stranger = Authority(tmp_path, "stranger")
        done = run("nodes", "--url", url, "--ca-file", stranger.path)
        assert done.returncode == 1 and "certificate" in done.stderr.lower(), done.stderr
        for wrong in (tmp_path / "missing", files[1]):
            done = run("nodes", "--url", url, "--ca-file", wrong)
            assert done.returncode == 2 and str(wrong) in done.stderr, done.stderr
        with pytest.raises(ssl.SSLError):
            get(broker, stranger)
        # Who does not speak TLS is closed.
        with socket.create_connection(("127.0.0.1", broker.http_port), DEADLINE_S) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b"".join(iter(lambda: plain.recv(4096), b""))
            assert not received.startswith(b"HTTP/")
        # Many who never say anything keep nobody out for long.
        silent = [socket.create_connection(("127.0.0.1", broker.http_port), DEADLINE_S) for _ in range(128)]
        assert get(broker, authority)[0] == 200
        for one in silent:
            one.close()


def test_new_certificates_count_from_a_reload_on(authority, files):
    with Https(settings(files)) as broker:
        before = get(broker, authority)[2]
        renewed = authority.issue("renewed")
        for source, target in zip(renewed.files, files):
            target.write_bytes(open(source, "rb").read())
        broker.signal(signal.SIGHUP)
        until(lambda: get(broker, authority)[2] == renewed.serial, what="the new certificate")
        assert before != renewed.serial
        files[1].write_text("no key")
        broker.signal(signal.SIGHUP)
        until(lambda: broker.find("certificates not reloaded; the HTTP port keeps its present ones"), what="the error")
        assert get(broker, authority)[2] == renewed.serial


def test_what_does_not_fit_is_refused_at_the_start(files, tmp_path):
    for sets, word in [
        ({"http.sslConfig.certFile": files[0]}, "keyFile"),
        ({**settings(files), "http.sslConfig.clientAuth": "REQUIRE"}, "trustCertsFile"),
        ({**settings(files), "http.sslConfig.keyFile": tmp_path / "missing"}, "missing"),
    ]:
        arguments = [f"--set={key}={value}" for key, value in sets.items()]
        done = run("serve", "--data-dir", tmp_path / "data", "--set=http.port=0", *arguments)
        assert done.returncode == 2 and word in done.stderr, done.stderr

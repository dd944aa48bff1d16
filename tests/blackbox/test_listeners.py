"""Listeners of all kinds: TCP, TLS, WebSocket, both, Unix socket; certificates; the PROXY protocol."""

import contextlib
import os
import signal
import socket
import ssl
import struct
import subprocess

import pytest
import yaml

from harness import raw, websocket
from harness.broker import BASE, Broker, run
from harness.listeners import KINDS, Listeners
from harness.paho import Paho
from harness.pki import DAY, Authority
from harness.raw import Closed, Raw
from harness.wait import DEADLINE_S, until
from harness.websocket import WebSocket, request

TLS_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
NO_RATES = {"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}


@pytest.fixture(scope="module")
def listeners(tmp_path_factory):
    with Listeners(tmp_path_factory.mktemp("listeners")) as shared:
        yield shared


def failed(listeners, kind, reason) -> float:
    return listeners.metric("heraldmq_listener_handshakes_failed_total", listener=kind, reason=reason)


def ends(stream) -> bytes:
    """What comes until the broker closes."""
    got = b""
    try:
        while data := stream.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    return got


def refused_start(folder, server, code=2) -> str:
    """What a broker with these listeners says before it gives up."""
    path = folder / "refused.yml"
    path.write_text(yaml.safe_dump({**BASE, "mqttServerConfig": server}))
    done = run("serve", "--config", path, "--data-dir", folder / "refused")
    assert done.returncode == code, done
    return done.stderr


# ---- other people's clients ---------------------------------------------------------------------


def paho(listeners, kind, **fields) -> Paho:
    unix = kind == "unix"
    return Paho(
        1883 if unix else listeners.port_of(f"mqtt-{kind}"),
        host=listeners.socket_path if unix else "localhost",
        transport="websockets" if kind in ("ws", "wss") else "unix" if unix else "tcp",
        cafile=listeners.ca.path if kind in ("tls", "wss") else None,
        **fields,
    )


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
@pytest.mark.parametrize("kind", KINDS)
def test_paho_on_every_listener(listeners, name, kind, version):
    with paho(listeners, kind, version=version) as client, paho(listeners, "tcp") as other:
        other.subscribe(name, 2)
        client.subscribe(f"{name}/back", 2)
        for qos in (0, 1, 2):
            client.publish(name, f"there {qos}", qos)
            assert other.message().payload == f"there {qos}".encode()
            other.publish(f"{name}/back", f"back {qos}", qos)
            assert client.message().payload == f"back {qos}".encode()


def test_mosquitto_pub_over_tls(tmp_path, name):
    with Listeners(tmp_path) as listeners:
        with listeners.client_on("unix") as client:
            client.subscribe(name, qos=1)
            command = ["mosquitto_pub", "-h", "localhost", "-p", str(listeners.port_of("mqtt-tls"))]
            message = ["-t", name, "-m", "hello", "-q", "1"]
            done = subprocess.run(
                [*command, "--cafile", listeners.ca.path, *message], capture_output=True, text=True, timeout=DEADLINE_S
            )
            assert done.returncode == 0, done
            client.message(payload=b"hello")
            # Another authority: the client does not trust this broker, and says so by an alert.
            stranger = Authority(tmp_path, "stranger")
            done = subprocess.run(
                [*command, "--cafile", stranger.path, *message], capture_output=True, text=True, timeout=DEADLINE_S
            )
            assert done.returncode != 0
            until(lambda: failed(listeners, "tls", "tls") == 1)


@pytest.mark.parametrize("kind", KINDS)
def test_pub_and_sub_on_every_listener(listeners, name, kind):
    where = {
        "tcp": ["-p", listeners.port],
        "tls": ["-p", listeners.port_of("mqtt-tls"), "--cafile", listeners.ca.path],
        "ws": ["-p", listeners.port_of("mqtt-ws"), "--ws"],
        "wss": ["-p", listeners.port_of("mqtt-wss"), "--ws=/mqtt", "--insecure"],
        "unix": ["--unix", listeners.socket_path],
    }[kind]
    payload = "x" * 100_000
    done = run("pub", *where, "-t", name, "-q", "1", "-r", "-s", input=payload)
    assert done.returncode == 0, done
    done = run("sub", *where, "-t", name, "-C", "1")
    assert (done.returncode, done.stdout) == (0, payload + "\n"), done
    # Why it is refused reaches a client through all layers, although the end follows at once.
    done = run("pub", *where, "-i", "x" * 60_001, "-t", name, "-m", "x")
    assert done.returncode == 1 and "0x85" in done.stderr, done


def test_pub_does_not_trust_a_stranger(listeners, name):
    port = listeners.port_of("mqtt-tls")
    done = run("pub", "-p", port, "--tls", "-t", name, "-m", "x")
    assert done.returncode == 1 and "certificate" in done.stderr, done


# ---- TLS ----------------------------------------------------------------------------------------


def s_client(port, *args) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["openssl", "s_client", "-connect", f"localhost:{port}", *args],
        input="",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize(
    "lowest, good, bad",
    [("1.2", ["-tls1_2", "-tls1_3"], "-tls1_1"), ("1.3", ["-tls1_3"], "-tls1_2")],
)
def test_versions_of_tls(tmp_path, lowest, good, bad):
    with Listeners(tmp_path, ssl_config={"minVersion": lowest}) as listeners:
        port = listeners.port_of("mqtt-tls")
        for version in good:
            done = s_client(port, version)
            assert done.returncode == 0 and f"TLSv{version[4:].replace('_', '.')}" in done.stdout, done
        # At its usual security level the client would not even offer 1.1.
        assert s_client(port, bad, "-cipher", "DEFAULT@SECLEVEL=0").returncode != 0
        until(lambda: failed(listeners, "tls", "tls") == 1)


@pytest.mark.parametrize("version", TLS_VERSIONS.values(), ids=TLS_VERSIONS)
def test_sessions_are_resumed(listeners, version):
    context = listeners.context(version=version)
    session = None
    for turn in range(2):
        stream = context.wrap_socket(listeners.dial("tls"), server_hostname="localhost", session=session)
        with Raw(stream=stream) as client:
            client.connect()
            assert stream.session_reused == (turn == 1)
            session = stream.session


def connects(listeners, **tls) -> bool:
    """Whether a client with this certificate is let in. 1.3 says only after the handshake that it is not."""
    try:
        with Raw(stream=listeners.stream("tls", **tls)) as client:
            client.connect()
            return True
    except (ssl.SSLError, Closed, AssertionError):
        return False


@pytest.mark.parametrize("version", TLS_VERSIONS.values(), ids=TLS_VERSIONS)
def test_client_certificates(tmp_path, version):
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "authority").issue("stranger")
    ca = Authority(tmp_path, "clients")
    good, revoked, expired = ca.issue("good"), ca.issue("revoked"), ca.issue("expired", ends=-1 * DAY)
    trust = {"trustCertsFile": ca.path, "crlFile": ca.revoke(revoked)}
    bad = [stranger, revoked, expired]
    for mode, without in [("OPTIONAL", True), ("REQUIRE", False)]:
        with Listeners(tmp_path, ssl_config={"clientAuth": mode, **trust}) as listeners:
            assert connects(listeners, client=good, version=version)
            assert connects(listeners, version=version) == without
            assert not any(connects(listeners, client=leaf, version=version) for leaf in bad)
            until(lambda: failed(listeners, "tls", "certificate") == len(bad) + (not without))
    with Listeners(tmp_path, ssl_config={"clientAuth": "NONE"}) as listeners:
        assert all(connects(listeners, client=leaf, version=version) for leaf in [good, *bad])


def test_a_revocation_list_that_is_not_replaced_in_time_is_an_alarm_and_counts(tmp_path):
    ca = Authority(tmp_path, "clients")
    good, revoked = ca.issue("good"), ca.issue("revoked")
    crl = ca.revoke(revoked, next_update=DAY / 24)
    ssl_config = {"clientAuth": "REQUIRE", "trustCertsFile": ca.path, "crlFile": crl}
    with Listeners(tmp_path, ssl_config=ssl_config) as listeners:

        def alarms():
            return [alarm for alarm in listeners.api("/api/v1/alarms")["items"] if alarm["name"] == "revocation_list"]

        assert alarms() == []
        ca.revoke(revoked, next_update=DAY / -24)
        listeners.signal(signal.SIGHUP)
        until(alarms, what="an alarm")
        assert len(alarms()) == 2 and "nextUpdate" in alarms()[0]["detail"]
        assert connects(listeners, client=good)
        assert not connects(listeners, client=revoked)
        ca.revoke(revoked)
        listeners.signal(signal.SIGHUP)
        until(lambda: alarms() == [], what="no alarm")


def test_certificates_are_read_again_at_sighup(tmp_path):
    with Listeners(tmp_path) as listeners:

        def serial() -> int:
            with listeners.stream("tls") as stream:
                return int(stream.getpeercert()["serialNumber"], 16)

        with listeners.client_on("tls") as old, listeners.client_on("wss") as old_wss:
            assert serial() == listeners.server.serial
            # "server" again: the new files take the place of the old ones.
            renewed = listeners.ca.issue("server")
            listeners.signal(signal.SIGHUP)
            until(lambda: serial() == renewed.serial)
            with open(renewed.cert, "w") as file:
                file.write("no certificate")
            listeners.signal(signal.SIGHUP)
            message = "certificates not reloaded; the listener keeps its present ones"
            problem = until(lambda: listeners.find(message, kind="tls"))[0]
            assert problem["level"] == "ERROR" and renewed.cert in problem["error"]
            assert serial() == renewed.serial
            old.ping()
            old_wss.ping()


def test_a_listener_with_unusable_files_is_named(tmp_path):
    ca = Authority(tmp_path)
    one, two = ca.issue("one"), ca.issue("two")
    for files, blamed in [
        ({"certFile": one.cert, "keyFile": two.key}, two.key),
        ({"certFile": str(tmp_path / "none.crt"), "keyFile": one.key}, "none.crt"),
        ({"certFile": one.cert, "keyFile": one.key, "identity": "%ou"}, "%ou"),
    ]:
        problem = refused_start(tmp_path, {"tlsListener": {"host": "127.0.0.1", "port": 0, "sslConfig": files}})
        assert "127.0.0.1:0 (tls)" in problem and blamed in problem


def test_large_messages_and_slow_readers_over_tls(tmp_path, name):
    with Listeners(tmp_path, NO_RATES) as listeners:
        payload = os.urandom(1_500_000)
        with listeners.client_on("tls") as slow, listeners.client_on("wss") as publisher:
            slow.subscribe(name, qos=1)
            # More than sockets hold: most waits in the broker until it is read.
            for _ in range(8):
                publisher.publish(name, payload, qos=1)
            for _ in range(8):
                assert slow.message().payload == payload
                publisher.expect(raw.PUBACK, reason=0)


# ---- WebSocket ----------------------------------------------------------------------------------


def opening(listeners, request: bytes) -> bytes:
    """The answer to an opening handshake, until the broker closes."""
    with listeners.dial("ws") as stream:
        stream.sendall(request)
        return ends(stream)


def test_the_subprotocol_is_mqtt(listeners):
    # [MQTT-6.0.0-3] [MQTT-6.0.0-4] [MQTT3-6.0.0-3] [MQTT3-6.0.0-4]
    with listeners.dial("ws") as stream:
        assert "\r\nsec-websocket-protocol: mqtt" in WebSocket(stream).head
    for protocol in (None, "chat"):
        assert opening(listeners, websocket.request(protocol=protocol)).startswith(b"HTTP/1.1 400 ")


def test_openings_that_are_refused(listeners):
    before = failed(listeners, "ws", "websocket")
    for request, status in [
        (websocket.request(path="/other"), b"404"),
        (websocket.request(Sec_WebSocket_Version="8"), b"426"),
        (websocket.request(Sec_WebSocket_Key=None), b"400"),
        (b"POST /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\x01", b"400"),
    ]:
        assert opening(listeners, request).startswith(b"HTTP/1.1 " + status + b" "), request
    until(lambda: failed(listeners, "ws", "websocket") == before + 5)


def test_packets_need_not_keep_to_frames(listeners, name):
    # [MQTT-6.0.0-2] [MQTT3-6.0.0-2]
    with listeners.client_on("ws") as client:
        client.subscribe(name)
        stream = client.socket.stream
        bytes_of_three = b"".join(raw.publish(name, text) for text in (b"one", b"two", b"three"))
        # Several packets in a frame; then a packet in a frame for each byte, in a message of many frames.
        stream.sendall(websocket.frame(websocket.BINARY, bytes_of_three))
        parts = [bytes_of_three[n : n + 1] for n in range(len(bytes_of_three))]
        stream.sendall(websocket.frame(websocket.BINARY, fin=False))
        for part in parts[:-1]:
            stream.sendall(websocket.frame(websocket.CONTINUATION, part, fin=False))
        stream.sendall(websocket.frame(websocket.CONTINUATION, parts[-1]))
        for text in (b"one", b"two", b"three") * 2:
            client.message(payload=text)


def test_frames_that_end_the_connection(listeners):
    for kind in ("ws", "wss"):
        for sent, code in [
            # [MQTT-6.0.0-1] [MQTT3-6.0.0-1]
            (websocket.frame(websocket.TEXT, b"text"), 1003),
            (websocket.frame(websocket.BINARY, b"bare", masked=False), 1002),
            (websocket.frame(websocket.CONTINUATION, b"of what"), 1002),
            (websocket.frame(websocket.PING, b"x", fin=False), 1002),
            (websocket.frame(websocket.CLOSE, struct.pack(">H", 1000)), 1000),
        ]:
            with listeners.client_on(kind) as client:
                client.socket.stream.sendall(sent)
                assert client.socket.close_code() == code
                assert ends(client.socket.stream) == b""


def test_a_goodbye_of_mqtt_ends_the_websocket_in_order(listeners):
    for kind in ("ws", "wss"):
        with listeners.client_on(kind) as client:
            client.send(raw.disconnect())
            assert client.socket.close_code() == 1000
            assert ends(client.socket.stream) == b""


def test_pings_are_answered(listeners):
    with listeners.client_on("wss") as client:
        client.socket.stream.sendall(websocket.frame(websocket.PING, b"there?"))
        assert client.socket.frame() == (websocket.PONG, b"there?")
        client.ping()


def test_a_client_that_only_pings_is_not_read_when_it_does_not_read(listeners):
    with listeners.client_on("ws") as client:
        stream = client.socket.stream
        stream.settimeout(1)
        before = listeners.rss()
        ping = websocket.frame(websocket.PING, b"x" * 125) * 500
        with pytest.raises(TimeoutError):
            for _ in range(2_000):
                stream.sendall(ping)
        assert listeners.rss() < before + 20_000_000


# ---- all of them --------------------------------------------------------------------------------


def test_a_session_is_taken_over_from_listener_to_listener(listeners, name):
    clients = []
    for kind in [*KINDS, "tls"]:
        clients.append(listeners.client_on(kind, name, session_present=bool(clients), clean=False, props={"session_expiry": 60}))
        if len(clients) > 1:
            clients[-2].expect_disconnected(0x8E)
    clients[-1].ping()
    for client in clients:
        client.close()


def test_a_goodbye_before_the_end_of_tls_is_heard(listeners, name):
    with listeners.client_on("tcp") as watcher:
        watcher.subscribe(name)
        client = Raw(stream=listeners.stream("tls"))
        # In one record and with the end of the stream behind it: no will is published.
        client.send(
            raw.connect(f"{name}c", will={"topic": name, "payload": b"will"}),
            raw.disconnect(),
        )
        with contextlib.suppress(ssl.SSLError):
            # The client's end of TLS; what the broker still sends then is an error of the client's.
            client.socket.unwrap()
        client.close()
        watcher.publish(name, b"end")
        watcher.message(payload=b"end")


@pytest.mark.parametrize("version", TLS_VERSIONS)
@pytest.mark.parametrize("kind, known", [("tls", "mqtt"), ("wss", "http/1.1")])
def test_names_of_application_protocols_keep_nobody_out(listeners, kind, known, version):
    offers = [["x-amzn-mqtt-ca"], ["mqttv3.1"], ["http/1.1"], None, ["mqtt"], ["h2", "http/1.1"], ["h2", "mqttv3.1"]]
    for offer in offers:
        stream = listeners.stream(kind, alpn=offer, version=TLS_VERSIONS[version])
        tls = stream.stream if kind == "wss" else stream
        assert tls.selected_alpn_protocol() == (known if known in (offer or []) else None), offer
        with Raw(stream=stream) as client:
            client.connect()
            client.ping()


def test_sessions_of_tls_are_resumed_without_a_name(listeners):
    context = listeners.context(version=TLS_VERSIONS["1.2"], alpn=["x-amzn-mqtt-ca"])
    session = None
    for is_resumed in [False, True]:
        stream = context.wrap_socket(listeners.dial("tls"), server_hostname="localhost", session=session)
        assert stream.session_reused == is_resumed
        session = stream.session
        with Raw(stream=stream) as client:
            client.connect()


def test_http_2_alone_opens_no_websocket(tmp_path):
    with Listeners(tmp_path) as listeners:
        for _ in range(3):
            with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
                listeners.stream("wss", alpn=["h2"])
        until(lambda: failed(listeners, "wss", "application_protocol") == 3)
        # What the log says of one address is one line a minute.
        line, *others = until(lambda: listeners.find("a connection is given up before CONNECT"))
        assert line["listener"] == "wss" and "127.0.0.1" in line["peer"] and not others
        # MQTT is no HTTP: there it is a name like others.
        listeners.stream("tls", alpn=["h2"]).close()


def test_slow_handshakes_run_into_the_limit(tmp_path):
    with Listeners(tmp_path, {"limits.connection.handshakeTimeoutMs": 300}) as listeners:
        for kind, beginning in [("tls", b"\x16\x03\x01"), ("ws", b"GET /mqtt HTTP/1.1\r\n"), ("wss", b"")]:
            with listeners.dial(kind) as stream:
                stream.sendall(beginning)
                assert ends(stream) == b""
            assert failed(listeners, kind, "timeout") == 1
        # TLS alone is not enough for wss.
        with listeners.context().wrap_socket(listeners.dial("wss"), server_hostname="localhost") as stream:
            assert stream.recv(1) == b""
        # What is done in time stays.
        with listeners.client_on("wss") as client:
            until(lambda: failed(listeners, "wss", "timeout") == 2)
            client.ping()


def test_connections_are_counted_by_listener(tmp_path):
    with Listeners(tmp_path) as listeners:
        clients = [listeners.client_on(kind) for kind in KINDS for _ in range(2)]
        for kind in KINDS:
            assert listeners.metric("heraldmq_listener_open", listener=kind) == 2
            assert listeners.metric("heraldmq_listener_accepted_total", listener=kind) == 2
        for client in clients:
            client.close()
        for kind in KINDS:
            until(lambda: listeners.metric("heraldmq_listener_open", listener=kind) == 0)


def test_a_unix_socket_is_replaced_only_if_nobody_listens(tmp_path):
    path = tmp_path / "mqtt.sock"
    server = {"tcpListener": {"port": 0}, "unixListener": {"path": str(path), "mode": "0600"}}
    config = {**BASE, "mqttServerConfig": server}
    with Broker(config=config) as first:
        assert path.stat().st_mode & 0o777 == 0o600
        assert str(path) in refused_start(tmp_path, server, code=1)
        first.kill()
    assert path.exists()
    with Broker(config=config):
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(path))
    assert not path.exists()


# ---- WebSocket ----------------------------------------------------------------------------------


@pytest.mark.parametrize("require", [False, True])
def test_pages_of_other_origins_open_no_websocket(require):
    ws = {"host": "127.0.0.1", "port": 0, "requireOrigin": require}
    ws["allowedOrigins"] = ["https://app.example.com", "http://localhost:3000"]
    with Broker(config={**BASE, "mqttServerConfig": {**BASE["mqttServerConfig"], "wsListener": ws}}) as broker:

        def status(**headers) -> str:
            with socket.create_connection(("127.0.0.1", broker.port_of("mqtt-ws")), timeout=DEADLINE_S) as stream:
                stream.sendall(request(**headers))
                return stream.recv(65536).split(b" ")[1].decode()

        for origin in ("https://app.example.com", "HTTPS://APP.EXAMPLE.COM", "http://localhost:3000"):
            assert status(Origin=origin) == "101", origin
        for origin in ("https://evil.example", "http://app.example.com", "https://app.example.com:8443", "null", ""):
            assert status(Origin=origin) == "403", origin
        assert status() == ("403" if require else "101")
        until(lambda: [line for line in broker.find("a connection is given up before CONNECT") if "Origin" in line["error"]])
    ws["allowedOrigins"], ws["requireOrigin"] = [], False
    with Broker(config={**BASE, "mqttServerConfig": {**BASE["mqttServerConfig"], "wsListener": ws}}) as broker:
        assert status(Origin="https://evil.example") == "101"


FOREIGN_PAGES = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
    # The page's site has given its name the address of this machine.
    {"Origin": "http://evil.example", "Host": "evil.example"},
]


def test_a_page_of_another_host_is_no_anonymous_client_of_this_machine():
    ws = {"host": "127.0.0.1", "port": 0}
    with Broker(config={**BASE, "mqttServerConfig": {**BASE["mqttServerConfig"], "wsListener": ws}}) as broker:

        def connack(**headers):
            stream = socket.create_connection(("127.0.0.1", broker.port_of("mqtt-ws")), timeout=DEADLINE_S)
            with Raw(stream=WebSocket(stream, headers=headers)) as client:
                client.send(raw.connect("page"))
                return client.expect(raw.CONNACK).reason

        assert connack() == connack(Origin="http://localhost:5173") == 0
        for headers in FOREIGN_PAGES:
            assert connack(**headers) == 0x87, headers
        until(lambda: any("not for web pages of other hosts" in line for line in broker.log_text), what="the line that says how to let them in")

    def listeners(**more) -> dict:
        return {"mqttServerConfig": {**BASE["mqttServerConfig"], "wsListener": {**ws, **more}}}

    for open_to_pages in ({"allowAnonymous": True}, listeners(allowedOrigins=["https://evil.example"])):
        with Broker(config={**BASE, **listeners(), **open_to_pages}) as broker:
            assert connack(Origin="https://evil.example") == 0


# ---- the PROXY protocol -------------------------------------------------------------------------

V1 = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n"
V2 = b"\r\n\r\n\x00\r\nQUIT\n" + struct.pack(
    ">BBH4s4sHH", 0x21, 0x11, 12, socket.inet_aton("192.0.2.7"), socket.inet_aton("192.0.2.1"), 40000, 1883
)
ALLOWED = {"allowAnonymous": True}


@pytest.mark.parametrize("head", [V1, V2], ids=["v1", "v2"])
def test_a_trusted_proxy_says_who_connects(tmp_path, head):
    trusted = {"version": "any", "trustedPeers": "127.0.0.0/8"}
    with Listeners(tmp_path, ALLOWED, proxy=trusted) as listeners:
        for kind in ("tcp", "tls", "ws", "wss"):
            with listeners.client_on(kind, head=head) as client:
                client.send(b"\x00\x00")
                client.expect_disconnected(0x81)
        closed = until(lambda: listeners.find("a client broke the protocol and is disconnected")[3:])
        assert closed and all(l["peer"] == "192.0.2.7:40000" for l in listeners.find(closed[0]["message"]))
    # Who comes from elsewhere is not on this machine: without allowAnonymous it is refused.
    with Listeners(tmp_path, proxy=trusted) as listeners:
        with Raw(stream=listeners.stream("tcp", head)) as client:
            client.send(raw.connect("x"))
            client.expect_refused(0x87)


def v2(command, family, body=b"") -> bytes:
    return b"\r\n\r\n\x00\r\nQUIT\n" + struct.pack(">BBH", command, family, len(body)) + body


# What names nobody, and what names a loopback address: that of the proxy's machine.
UNNAMED = {
    "unknown": b"PROXY UNKNOWN\r\n",
    "local": v2(0x20, 0x00),
    "local with addresses": v2(0x20, 0x11, V2[16:]),
    "unspec": v2(0x21, 0x00),
    "unix": v2(0x21, 0x31, b"x" * 216),
    "loopback": b"PROXY TCP4 127.0.0.1 127.0.0.1 40000 1883\r\n",
    "loopback of IPv6": b"PROXY TCP6 ::1 ::1 40000 1883\r\n",
    "mapped loopback": b"PROXY TCP6 ::ffff:127.0.0.1 ::1 40000 1883\r\n",
}


@pytest.mark.parametrize("head", UNNAMED.values(), ids=UNNAMED)
def test_what_comes_through_a_proxy_is_not_this_machine(tmp_path, head):
    rules = tmp_path / "rules"
    rules.write_text("allow address 127.0.0.0/8 all\nallow address ::1 all\n")
    closed = {"abuse.failedLogins": 3, "authorization.file": str(rules), "authorization.noMatch": "deny"}
    with Listeners(tmp_path, closed, proxy={"version": "any", "trustedPeers": "127.0.0.0/8"}) as listeners:

        def code(**fields) -> int:
            with Raw(stream=listeners.stream("tcp", head)) as client:
                client.send(raw.connect("", **fields))
                return client.expect(raw.CONNACK).reason

        assert code() == 0x87
        assert [code(username="u") for _ in range(4)] == [0x87, 0x87, 0x87, 0x97]
    with Listeners(tmp_path, closed | ALLOWED, proxy={"version": "any", "trustedPeers": "127.0.0.0/8"}) as listeners:
        with listeners.client_on("tcp", head=head) as client:
            client.subscribe("a", expect=[0x87])


def tlv(kind, value) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


def v2_with_certificate(name, verify=0, client=0x07) -> bytes:
    """What HAProxy sends with `send-proxy-v2-ssl-cn`."""
    ssl_tlv = tlv(0x20, struct.pack(">BI", client, verify) + tlv(0x21, b"TLSv1.3") + tlv(0x22, name))
    return v2(0x21, 0x11, V2[16:] + tlv(0x01, b"mqtt") + ssl_tlv)


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_a_certificate_that_the_proxy_has_verified_is_a_user_name(tmp_path, kind):
    closed = {"authentication.chain.kind": "tlsIdentity"}
    trusted = {"version": "any", "trustedPeers": "127.0.0.0/8", "userName": "commonName"}

    def code(listeners, head) -> int:
        with Raw(stream=listeners.stream(kind, head)) as client:
            client.send(raw.connect("device"))
            return client.expect(raw.CONNACK).reason

    with Listeners(tmp_path, closed, proxy=trusted) as listeners:
        assert code(listeners, v2_with_certificate(b"press-7")) == 0
        connected = until(lambda: listeners.find("a client is connected"))
        assert connected[0]["user"] == "press-7", connected
        for head in (
            v2_with_certificate(b"press-7", verify=1),
            v2_with_certificate(b"press-7", client=0x01),
            v2_with_certificate(b""),
            V2,
            V1,
        ):
            assert code(listeners, head) == 0x87, head
    with Listeners(tmp_path, closed, proxy={**trusted, "userName": "off"}) as listeners:
        assert code(listeners, v2_with_certificate(b"press-7")) == 0x87


@pytest.mark.parametrize(
    "header, value, client",
    [
        ("X-Forwarded-For", "203.0.113.9, 192.0.2.7, 127.0.0.9", "192.0.2.7:0"),
        ("X-Real-IP", "192.0.2.7", "192.0.2.7:0"),
        ("Forwarded", 'for="[2001:db8::7]:4711";proto=https, for=127.0.0.9', "[2001:db8::7]:0"),
        ("X-Forwarded-For", "192.0.2.7, unknown", None),
        ("X-Forwarded-For", None, None),
    ],
)
def test_a_trusted_proxy_says_by_a_header_for_whom_a_websocket_is(tmp_path, name, header, value, client):
    def peer_of(trusted) -> str:
        ws = {"host": "127.0.0.1", "port": 0, "forwarded": {"header": header, "trustedPeers": trusted}}
        listeners = {**BASE["mqttServerConfig"], "wsListener": ws}
        config = {**BASE, "allowAnonymous": True, "mqttServerConfig": listeners}
        with Broker(config=config) as broker:
            stream = socket.create_connection(("127.0.0.1", broker.port_of("mqtt-ws")), timeout=DEADLINE_S)
            given = {header.replace("-", "_"): value, "X_Other": "203.0.113.1"}
            with Raw(stream=WebSocket(stream, headers=given)) as session:
                session.connect(name)
                session.ping()
                return until(lambda: broker.find("a client is connected"))[0]["peer"]

    seen = peer_of("127.0.0.0/8")
    assert seen == client if client else seen.startswith("127.0.0.1:")
    # A peer that is not trusted is the client itself, whatever it says.
    assert peer_of("192.0.2.0/24").startswith("127.0.0.1:")


def test_untrusted_peers_of_a_proxy_listener_are_closed(tmp_path):
    with Listeners(tmp_path, proxy={"version": "any", "trustedPeers": "192.0.2.0/24"}) as listeners:
        with listeners.dial("tcp") as stream:
            stream.sendall(V1 + raw.connect("x"))
            assert ends(stream) == b""
        until(lambda: listeners.metric("heraldmq_listener_refused_total", listener="tcp") == 1)
        until(lambda: listeners.find("closed: only trusted peers may connect to this listener"))
        # A Unix socket has no proxy.
        listeners.client_on("unix").close()


def test_hostile_headers(tmp_path):
    with Listeners(tmp_path, proxy={"version": "2", "trustedPeers": "127.0.0.1"}) as listeners:
        hostile = [
            V1,
            raw.connect("no header"),
            b"PROXY " + b"A" * 200,
            V2[:12] + b"\x31" + V2[13:],
            V2[:14] + b"\xff\xff" + b"\x00" * 70_000,
        ]
        for head in hostile:
            with listeners.dial("tcp") as stream:
                stream.sendall(head)
                assert ends(stream) == b"", head[:20]
        until(lambda: failed(listeners, "tcp", "proxy") == len(hostile))

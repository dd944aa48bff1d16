"""A broker with a listener of each kind, and connections to them."""

import copy
import pathlib
import socket
import ssl

from .broker import BASE, Broker
from .pki import Authority, Leaf
from .raw import Raw
from .wait import DEADLINE_S
from .websocket import WebSocket

KINDS = ["tcp", "tls", "ws", "wss", "unix"]


class Listeners(Broker):
    """`ssl_config` and `proxy` are settings of all listeners that have them."""

    def __init__(self, folder: pathlib.Path, sets=None, ssl_config=None, proxy=None, **fields):
        self.ca = Authority(folder)
        self.server = self.ca.issue("server")
        self.socket_path = str(folder / "mqtt.sock")
        files = {"certFile": self.server.cert, "keyFile": self.server.key, **(ssl_config or {})}
        place = {"host": "127.0.0.1", "port": 0, "proxyProtocol": proxy or {}}
        config = copy.deepcopy(BASE)
        config["mqttServerConfig"] = {
            "tcpListener": dict(place),
            "tlsListener": {**place, "sslConfig": files},
            "wsListener": dict(place),
            "wssListener": {**place, "sslConfig": files},
            "unixListener": {"path": self.socket_path},
        }
        super().__init__(sets, config=config, **fields)

    def url(self, kind) -> str:
        path = "/mqtt" if kind in ("ws", "wss") else ""
        return f"{kind}://localhost:{self.port_of(f'mqtt-{kind}')}{path}"

    def dial(self, kind) -> socket.socket:
        """A socket to a listener, nothing said yet."""
        if kind == "unix":
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(DEADLINE_S)
            made.connect(self.socket_path)
            return made
        return socket.create_connection(("127.0.0.1", self.port_of(f"mqtt-{kind}")), timeout=DEADLINE_S)

    def context(self, client: Leaf | None = None, version=None, alpn=None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=self.ca.path)
        if client:
            made.load_cert_chain(*client.files)
        if alpn:
            made.set_alpn_protocols(alpn)
        if version:
            made.minimum_version = made.maximum_version = version
        return made

    def stream(self, kind, head=b"", **tls):
        """A connection on which MQTT can be spoken; `head` goes out first of all."""
        stream = self.dial(kind)
        if head:
            stream.sendall(head)
        if kind in ("tls", "wss"):
            stream = self.context(**tls).wrap_socket(stream, server_hostname="localhost")
        return WebSocket(stream) if kind in ("ws", "wss") else stream

    def client_on(self, kind, client_id="", head=b"", **connect) -> Raw:
        """A raw client that is connected."""
        client = Raw(stream=self.stream(kind, head))
        client.connack = client.connect(client_id, **connect)
        return client

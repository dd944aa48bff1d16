"""The PROXY protocol: headers that are long, broken, or do not end."""

from harness.broker import BASE

from . import Attack
from .websocket import flood

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


class _Proxy(Attack):
    is_refused = True
    n, small = 2000, 300
    head = b""

    def broker_fields(self, _folder):
        # The bystanders come without a header, through a listener of their own.
        place = {"host": "127.0.0.1", "port": 0}
        behind = {**place, "proxyProtocol": {"version": "any", "trustedPeers": "127.0.0.0/8"}}
        return {"config": {**BASE, "mqttServerConfig": {"tcpListener": place, "wsListener": behind}}}

    def run(self, stage):
        flood(stage, "mqtt-ws", self.head)


class ProxyGarbage(_Proxy):
    """n connections with what is no header."""

    head = b"PROXY TCP4 x y z\r\n"


class ProxyLong(_Proxy):
    """n headers of version 2 with 4 kB of extensions of no content, and a broken CONNECT."""

    n, small = 1000, 150
    addresses = b"\x7f\0\0\1\x7f\0\0\1\0\x01\0\x02"
    head = SIGNATURE + b"\x21\x11\x10\x00" + addresses + b"\xe0\0\0" * 1361 + b"\0" + b"\0" * 20


class ProxyTooLong(_Proxy):
    """n headers of version 2 that announce 65 kB."""

    head = SIGNATURE + b"\x21\x11\xff\xff" + b"x" * 1000


class ProxyEndless(_Proxy):
    """n headers of version 1 without an end."""

    head = b"PROXY TCP4 127.0.0.1 127.0.0.1 1 1" + b" " * 200

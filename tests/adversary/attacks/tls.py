"""TLS: handshakes, halves of them, the smallest records, changes of keys."""

import re
import ssl
import subprocess

from harness import raw

from . import Attack
from .websocket import flood

KIND = "mqtt-tls"


class _Tls(Attack):
    listeners = True

    def context(self, stage):
        return stage.broker.context()

    def port(self, stage):
        return stage.broker.port_of(KIND)


class TlsHandshakes(_Tls):
    """n whole handshakes, and nothing behind them."""

    n, small = 600, 80

    def run(self, stage):
        context = self.context(stage)
        for _ in range(stage.n):
            stage.dial(self.port(stage), context=context).close()


class TlsHalves(_Tls):
    """n connections that say ClientHello and go."""

    n, small = 2000, 200

    def prepare(self, stage):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        made = self.context(stage).wrap_bio(incoming, outgoing, server_hostname="localhost")
        try:
            made.do_handshake()
        except ssl.SSLWantReadError:
            pass
        self.hello = outgoing.read()

    def run(self, stage):
        flood(stage, KIND, self.hello)


class TlsGarbage(_Tls):
    """n connections that say what is not TLS."""

    is_refused = True
    n, small = 2000, 200

    def run(self, stage):
        flood(stage, KIND, b"GET / HTTP/1.1\r\n\r\n")


class TlsUnfinishedHello(_Tls):
    """n connections that announce a ClientHello of 16 kB and do not finish it."""

    n, small = 500, 100

    def run(self, stage):
        head = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff\x03\x03" + b"x" * 10_000
        lines = []
        for _ in range(stage.n):
            lines.append(stage.dial(self.port(stage)))
            lines[-1].parses = False
            lines[-1].send(head)
        stage.sent()


class TlsTinyRecords(_Tls):
    """n records of one byte each, which are PINGREQ packets."""

    n, small = 40_000, 8000

    def run(self, stage):
        line = stage.dial(self.port(stage), context=self.context(stage))
        stage.connect(f"{stage.tag}t", dialled=line)
        before = line.counts[13]
        for first in range(0, stage.n, 400):
            for byte in raw.PING * 200:
                # Each write is a record: 22 bytes around one.
                line.send(bytes([byte]))
                stage.count(22, 0)
            line.got(13, before + first // 2 + 200)


class TlsKeyUpdates(_Tls):
    """n changes of keys, each of which asks for one of the broker."""

    n, small = 5000, 1000

    def run(self, stage):
        stage.count(27 * stage.n, stage.n)
        stage.cause.connections += 1
        made = subprocess.run(
            ["openssl", "s_client", "-connect", f"localhost:{self.port(stage)}", "-tls1_3"],
            input=b"K\n" * stage.n,
            capture_output=True,
            timeout=60,
        )
        done = len(re.findall(rb"KEYUPDATE", made.stderr + made.stdout))
        if not done:
            stage.faults.append("openssl changed no keys")

"""The port between nodes, of a node that runs with others: connections of those who are not among them."""

import itertools
import os
import struct
import time

from harness.broker import BASE

from . import Attack

NUMBERS = itertools.count(1)


class _ClusterPort(Attack):
    is_refused = True
    n, small = 1000, 150
    data = b""
    PORT = 18899

    def broker_fields(self, folder):
        address = f"127.{200 + os.getpid() % 50}.{os.getpid() % 250 + 1}.{next(NUMBERS) % 250 + 1}"
        self.address = address
        secret = folder / "secret"
        secret.write_text("for-tests-only")
        config = {
            **BASE,
            "bootstrap": True,
            "allowAnonymous": True,
            "clusterConfig": {
                "env": "Test",
                "host": address,
                "port": self.PORT,
                "secretFile": str(secret),
                "seedEndpoints": f"{address}:{self.PORT}",
            },
        }
        return {"config": config}

    def run(self, stage):
        for first in range(0, stage.n, 50):
            lines = []
            for _ in range(min(50, stage.n - first)):
                line = stage.dial(self.PORT, host=self.address)
                line.parses = False
                line.send(self.data)
                lines.append(line)
            stage.until(
                lambda lines=lines: all(line.received or not line.is_open for line in lines), 20, "answers or ends"
            )
            for line in lines:
                line.close()


class ClusterPortGarbage(_ClusterPort):
    """n connections that say what is no handshake."""

    data = b"GET / HTTP/1.1\r\n\r\n" * 4


class ClusterPortHugeLength(_ClusterPort):
    """n connections that announce a frame of 4 GiB."""

    data = struct.pack("<I", 0xFFFF_FFFF) + b"x" * 100


class ClusterPortHugeLengthBigEndian(_ClusterPort):
    """The same in the other order of bytes."""

    data = struct.pack(">I", 0x7FFF_FFFF) + b"x" * 100


class ClusterPortSilent(_ClusterPort):
    """n connections from many addresses that say nothing: one more, which comes later, must find a place."""

    n, small = 300, 200
    grows = False

    def run(self, stage):
        def silent(source):
            line = stage.dial(self.PORT, host=self.address, source=source)
            line.parses = False
            return line

        lines = [silent(f"127.3.{number // 200}.{number % 200 + 1}") for number in range(stage.n)]
        stage.pump(0.2)
        latest = silent("127.4.0.1")
        start = time.monotonic()
        stage.until(lambda: not latest.is_open or time.monotonic() - start > 0.5, what="the time of a handshake")
        if not latest.is_open:
            stage.faults.append("a connection that came after the silent ones was closed at once")
        for line in [*lines, latest]:
            line.close()

"""PINGREQ, DISCONNECT, AUTH, and packets that are none."""

import time

from harness import raw
from harness.raw import PINGRESP

from . import Attack


class PingreqFlood(Attack):
    """n PINGREQ packets."""

    n, small = 400_000, 60_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p")
        line.send(raw.PING * stage.n, stage.n)
        line.got(PINGRESP, stage.n)


class PingreqUnread(Attack):
    """n PINGREQ packets from a client that reads no answer."""

    n, small = 400_000, 60_000

    def run(self, stage):
        line = stage.connect(f"{stage.tag}p", receive_buffer=8192)
        stage.stall(line)
        for _ in range(10):
            line.send(raw.PING * (stage.n // 10), stage.n // 10)
            stage.pump(0.05)
        # It is not read any more once its answers are stuck.
        start = time.monotonic()
        stage.until(lambda: line.is_sent or time.monotonic() - start > 2, what="what is taken")
        line.close()


class _Ended(Attack):
    is_refused = True
    n, small = 3000, 400
    ending = b""

    def bytes(self, stage) -> bytes:
        return self.ending

    def run(self, stage):
        ending = self.bytes(stage)
        for first in range(0, stage.n, 50):
            lines = [stage.connect(f"{stage.tag}{first + n}", waits=False) for n in range(50)]
            for line in lines:
                line.send(ending)
            stage.until(lambda lines=lines: all(not line.is_open for line in lines), what="the ends")


class DisconnectFlood(_Ended):
    """n connections that end in order."""

    ending = raw.packet(0xE0)


class DisconnectLong(_Ended):
    """n connections that end with 20 kB of reason and user properties, as a failure: what the log says of them."""

    n, small, versions = 300, 60, (5,)

    def bytes(self, stage):
        return raw.disconnect(0x80, {"reason_string": "r" * 10_000, "user_property": [("", "")] * 2000})


class AuthUnexpected(_Ended):
    """n connections with an AUTH packet that nobody asked for."""

    versions = (5,)
    ending = raw.auth(0x19, {"authentication_method": "x"})


class MalformedType(_Ended):
    """n connections with a packet of the reserved type."""

    ending = b"\x00\x00"


class MalformedLength(_Ended):
    """n connections with a length of five bytes."""

    ending = b"\x30\xff\xff\xff\xff\x7f"


class MalformedFlags(_Ended):
    """n connections with a PUBREL of wrong flags."""

    ending = b"\x60\x02\x00\x01"


class MalformedSubscribe(_Ended):
    """n connections with a SUBSCRIBE that ends within its filter."""

    ending = b"\x82\x06\x00\x01\x00\x00\x09a"


class MalformedUnsubscribe(_Ended):
    """n connections with an UNSUBSCRIBE without filters."""

    ending = b"\xa2\x02\x00\x01"


class MalformedPuback(_Ended):
    """n connections with a PUBACK of one byte."""

    ending = b"\x40\x01\x00"


class MalformedPacketForServer(_Ended):
    """n connections that send what only a server may send."""

    ending = b"\x20\x02\x00\x00"


class TooLarge(_Ended):
    """n connections that announce a packet of 256 MB."""

    ending = b"\x30\xff\xff\xff\x7f"

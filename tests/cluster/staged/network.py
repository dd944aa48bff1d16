"""Places for nodes on this machine: an address for each, the same ports on all, and links that can be cut.

As root, with the right to make networks, each place is a namespace of its own behind a bridge, and a cut drops
packets without a word, as a broken network does. Otherwise places are loopback addresses, and nothing can be cut.
Invariant: connections of clients, which come from outside of the places, are never cut.
"""

import dataclasses
import functools
import itertools
import os
import shutil
import subprocess

import pytest

# Numbers of bridges, which are also the third bytes of addresses.
NUMBERS = range(1, 255)

# What a place does not let in.
CUTS = """
table inet cuts {
    set peers { type ipv4_addr; }
    chain input {
        type filter hook input priority 0; policy accept;
        ip saddr @peers drop
        jump losses
    }
    chain losses { }
}
"""


@dataclasses.dataclass(frozen=True)
class Place:
    address: str
    # What stands before a command that is to run there.
    prefix: tuple[str, ...] = ()


def _ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Bridged:
    """Namespaces `hmqNUMBERnN` on the bridge `hmqNUMBER`; this process has the last address of the net."""

    def __init__(self):
        self.name, self.net = self._claim()
        self.places: list[Place] = []
        # Where places reach this process.
        self.outside = f"{self.net}.254"

    @staticmethod
    def _claim():
        """The first number that nobody uses: a bridge is made or not, there is nothing between."""
        for number in NUMBERS:
            name, net = f"hmq{number}", f"10.77.{number}"
            if subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True).returncode:
                continue
            _ip("addr", "add", f"{net}.254/24", "dev", name)
            _ip("link", "set", name, "up")
            return name, net
        raise RuntimeError("there is no free network; `ip link` shows who has them: hmq1, hmq2, …")

    def add(self) -> Place:
        number = len(self.places) + 1
        namespace, outside = f"{self.name}n{number}", f"{self.name}v{number}"
        address = f"{self.net}.{number}"
        place = Place(address, ("ip", "netns", "exec", namespace))
        _ip("netns", "add", namespace)
        self.places.append(place)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", outside, "master", self.name, "up")
        for command in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            _ip("-n", namespace, *command)
        self._nft(place, CUTS)
        return place

    @staticmethod
    def _nft(place, script):
        subprocess.run([*place.prefix, "nft", "-f", "-"], input=script, text=True, check=True)

    def cut(self, sender: Place, receiver: Place):
        """What `sender` sends does not reach `receiver` any more."""
        self._nft(receiver, f"add element inet cuts peers {{ {sender.address} }}")

    def mend(self, sender: Place, receiver: Place):
        """What `sender` sends reaches `receiver` again."""
        self._nft(receiver, f"delete element inet cuts peers {{ {sender.address} }}")

    def heal(self):
        """All links work again."""
        for place in self.places:
            self._nft(place, "flush set inet cuts peers")

    def lose(self, receiver: Place, percent: int):
        """So much of what other places send does not reach `receiver`; 0: all does."""
        others = f"ip saddr {self.net}.0/24 ip saddr != {self.net}.254"
        rule = f"add rule inet cuts losses {others} numgen random mod 100 < {percent} drop" if percent else ""
        self._nft(receiver, f"flush chain inet cuts losses\n{rule}")

    def delay(self, sender: Place, ms: int):
        """All that `sender` sends, also to clients, takes so much longer; 0: no longer."""
        change = ("add", "dev", "eth0", "root", "netem", "delay", f"{ms}ms") if ms else ("del", "dev", "eth0", "root")
        subprocess.run([*sender.prefix, "tc", "qdisc", *change], check=True, capture_output=True)

    def close(self):
        for number, place in enumerate(self.places, 1):
            # With its namespace the link would go too, but some time later.
            _ip("link", "del", f"{self.name}v{number}")
            _ip("netns", "del", place.prefix[-1])
        _ip("link", "del", self.name)


class Loopback:
    """127.NUMBER.0.N, with a number for each process of the test run."""

    def __init__(self):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
        self.net = f"127.{int(worker) + 1}.0"
        self.numbers = itertools.count(1)
        self.outside = "127.0.0.1"

    def add(self) -> Place:
        return Place(f"{self.net}.{next(self.numbers)}")

    def cut(self, sender, receiver):
        pytest.skip("only root can cut links")

    mend = lose = delay = cut

    def heal(self):
        pass

    def close(self):
        pass


@functools.cache
def may_isolate() -> bool:
    """Whether namespaces and cuts are to be had: root in a container may lack the right to them."""
    trial = "ip link add trial type bridge && nft 'add table inet trial'"
    tried = ["unshare", "--net", "sh", "-c", trial]
    return os.geteuid() == 0 and subprocess.run(tried, capture_output=True).returncode == 0


@functools.cache
def may_delay() -> bool:
    """Whether the kernel has netem."""
    tried = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return may_isolate() and bool(shutil.which("tc")) and not subprocess.run(tried, capture_output=True).returncode


def network():
    return Bridged() if may_isolate() else Loopback()

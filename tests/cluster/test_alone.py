"""The harness itself: the load finds nothing wrong where nothing is, and finds what is; a cut link is cut."""

import contextlib
import datetime
import subprocess
import sys
import time

import pytest
from staged.cluster import Cluster
from staged.load import Load
from staged.network import network


@pytest.fixture
def alone():
    with Cluster(1) as cluster:
        yield cluster


@pytest.fixture
def node(alone):
    return alone.nodes[0]


@pytest.fixture
def load(alone, name):
    with Load(alone.nodes, name) as load:
        load.begin()
        yield load


def test_a_load_finds_nothing_wrong(load):
    load.run_for(2)
    load.finish()
    history = load.history
    # All kinds of people have been at work.
    assert history.operations and history.mourned and len(history.tenures) > len(load.people)


def test_a_load_goes_on_after_a_kill(node, load):
    fault = time.monotonic()
    node.kill()
    node.start()
    load.go_on()
    load.tell_recovery(fault)
    load.finish()


def test_a_load_goes_on_after_a_pause(node, load):
    fault = time.monotonic()
    node.pause()
    load.run_for(3)
    node.resume()
    load.go_on()
    load.tell_recovery(fault)
    load.finish()


def test_a_slow_disk_delays_acknowledgements(alone, node, name):
    node.stop()
    node.slow_disk()
    node.start()
    with Load(alone.nodes, name) as load:
        load.begin()
        node.disk.delay(300)
        slow = time.monotonic()
        load.go_on(5)
        taken = [p.acked - p.sent for p in load.history.publications.values() if p.sent > slow + 0.3]
        node.disk.delay(0)
        load.finish()
    assert min(taken) >= 0.3


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_clock_jumps(alone, node, name, jump):
    node.stop()
    node.false_clock()
    node.start()
    with Load(alone.nodes, name) as load:
        load.begin()
        before = node.broker.log_lines[-1]["timestamp"]
        node.clock.jump(jump)
        load.go_on()
        load.finish()
    node.stop()
    after = node.broker.log_lines[-1]["timestamp"]
    hours = (datetime.datetime.fromisoformat(after) - datetime.datetime.fromisoformat(before)).total_seconds() / 3600
    assert round(hours) == jump / 3600


def test_what_a_wiped_node_has_lost_is_found(node, load):
    load.run_for(1)
    node.kill()
    node.wipe()
    node.start(bootstrap=True)
    load.run_for(1)
    with pytest.raises(AssertionError, match="is lost"):
        load.finish(timeout=15)


# ---- the network -------------------------------------------------------------------------------

PORT = 9000
RECEIVE = f"""
import socket, sys
socket_ = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
socket_.bind((sys.argv[1], {PORT}))
print("bound", flush=True)
while True:
    print(socket_.recv(100).decode(), flush=True)
"""
SEND = f"""
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), (sys.argv[1], {PORT}))
"""


class Ear:
    """Hears datagrams at a place."""

    def __init__(self, stack, place):
        self.place = place
        command = [*place.prefix, sys.executable, "-c", RECEIVE, place.address]
        self.process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(self.process.kill)
        assert self.next() == "bound"

    def next(self) -> str:
        return self.process.stdout.readline().strip()

    def send(self, ear, word):
        """Sends a word from here to another."""
        subprocess.run([*self.place.prefix, sys.executable, "-c", SEND, ear.place.address, word], check=True)


def test_a_cut_link_is_cut_in_its_direction():
    with contextlib.ExitStack() as stack:
        net = network()
        stack.callback(net.close)
        one, two = (Ear(stack, net.add()) for _ in range(2))
        one.send(two, "before")
        assert two.next() == "before"
        net.cut(one.place, two.place)
        one.send(two, "lost")
        two.send(one, "the other way")
        assert one.next() == "the other way"
        net.heal()
        one.send(two, "after")
        assert two.next() == "after"

"""The harness itself, at a single node: the load finds nothing wrong where nothing is, and finds what is."""

import datetime
import time

import pytest
from staged.cluster import Cluster
from staged.load import Load


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
    node.start()
    load.run_for(1)
    with pytest.raises(AssertionError, match="is lost"):
        load.finish(timeout=5)

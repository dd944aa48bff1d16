"""Inlets in a cluster: the leader of the inbox shard of their client identifier runs them, and a new one goes on.

P1, P4. While messages are published at another broker, the lead is moved, and the node that runs the inlet is killed. In the end a
durable subscriber has all of them; those that were under way may be there twice.
"""

import collections

import pytest
from harness.broker import BASE, Broker
from harness.raw import Raw
from staged.cluster import Cluster
from staged.network import network
from test_outlets import Publishers, moves, runs

# Messages that the other broker has sent and that are not acknowledged: the Receive Maximum of the inlet.
HELD = 1_000
NAME = "lake"


class Outside:
    """The other broker, as the publishers of outlets see a node."""

    def __init__(self, broker, host):
        self.mqtt = (host, broker.port)


@pytest.mark.quick("P1", "P4")
def test_the_inlet_moves_with_its_leader_and_loses_nothing():
    places = network()
    host = places.outside
    # What comes while the subscriber is away, or the inlet is, stays in the queue.
    limits = {"session": {"queueMessages": 1_000_000}}
    config = {**BASE, "allowAnonymous": True, "limits": limits, "mqttServerConfig": {"tcpListener": {"host": host, "port": 0}}}
    with Broker(config=config) as other:
        url = f"mqtt://{host}:{other.port}"
        inlets = [{"name": NAME, "from": {"mqtt": {"url": url, "filter": "plant/#"}}}]
        with Cluster(3, places=places, more=lambda _node: {"inlets": inlets, "limits": limits}) as cluster:
            runs(cluster)
            where, port = cluster.nodes[0].mqtt
            watcher = Raw(port, host=where)
            watcher.connect("watcher", clean=False, props={"session_expiry": 600})
            watcher.subscribe("plant/#", qos=1)
            watcher.close()
            outside = Outside(other, host)
            outside.nodes = [outside, outside]
            with Publishers(outside) as publishers:
                publishers.go_on()
                moves(cluster)
                publishers.go_on()
                victim = runs(cluster)
                others = [node for node in cluster.nodes if node is not victim]
                victim.kill()
                assert runs(cluster, nodes=others) is not victim
                publishers.go_on()
                publishers.end()
                victim.start()
                cluster.settled()
                runs(cluster)
                seen = collections.Counter()
                watcher = Raw(port, host=where)
                watcher.connect("watcher", clean=False, props={"session_expiry": 600})
                missing = publishers.acknowledged
                while missing:
                    text = watcher.message(topic="plant/a", qos=1).payload.decode()
                    missing.discard(text)
                    seen[text] += 1
                watcher.close()
                doubled = sum(count - 1 for count in seen.values())
                print(f"{doubled} of {len(seen)} came again")
                # Its lead may be moved and given back.
                assert doubled <= 4 * HELD

"""What queues do not keep is dropped once, whoever leads."""

import time

from staged.cluster import Cluster

from harness.wait import until
from test_api import ask

AGE_S = 6

SETTINGS = {
    "clientClasses.name": "application",
    "clientClasses.match.clientId": "*-app",
    "clientClasses.limits.session.queueAgeSeconds": AGE_S,
}


def test_messages_that_are_too_old_are_dropped_once_by_the_next_leader(name):
    app = f"{name}-app"
    with Cluster(3, SETTINGS) as cluster:
        with cluster.nodes[0].client(app, props={"session_expiry": 3600}) as client:
            client.subscribe(f"{name}/#", qos=1)
            client.disconnect()

        def waiting(node):
            status, found = ask(node, f"/api/v1/clients/{app}")
            return found["queue"]["messages"] if status == 200 and found["state"] == "away" else None

        def publish(node, numbers):
            with node.client(f"{name}-publisher") as publisher:
                for number in numbers:
                    publisher.published(f"{name}/x", str(number), qos=1)

        until(lambda: waiting(cluster.nodes[1]) == 0, what="the absence")
        leader = cluster.leader()
        publish(next(node for node in cluster.running() if node is not leader), range(100))
        old_at = time.time()
        leader.kill()
        until(lambda: cluster.leader() not in (None, leader), what="another leader")
        alive = cluster.running()
        publish(alive[0], range(100, 120))
        young_at = time.time()

        def dropped():
            return sum(node.broker.metric("heraldmq_messages_dropped_total", reason="retention_age") for node in alive)

        until(lambda: dropped() >= 100, what="the older ones to go")
        assert time.time() - old_at >= AGE_S
        assert dropped() == 100 or time.time() - young_at >= AGE_S
        until(lambda: dropped() == 120 and waiting(alive[0]) == 0, what="the others to go")
        assert time.time() - young_at >= AGE_S
        # The node that comes back drops nothing again.
        leader.start()
        cluster.settled()
        publish(leader, [7])
        assert waiting(leader) == 1
        with leader.client(app, clean=False, session_present=True, props={"session_expiry": 3600}) as client:
            client.message(payload="7")
        assert sum(node.broker.metric("heraldmq_messages_dropped_total", reason="retention_age") for node in cluster.nodes) == 120

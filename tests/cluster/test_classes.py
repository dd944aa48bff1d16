"""The class of a session is known to whoever leads its shard."""

from staged.cluster import Cluster

from harness.wait import until
from test_api import ask

CLASSES = {
    "limits.session.queueMessages": 5,
    "clientClasses.name": "application",
    "clientClasses.match.clientId": "*-app",
    "clientClasses.limits.session.queueMessages": 50,
}


def test_a_queue_has_the_limit_of_its_class_whoever_leads(name):
    with Cluster(3, CLASSES) as cluster:
        home = cluster.nodes[0]
        ids = {f"{name}-app": 50, f"{name}-dev": 5}
        for client_id in ids:
            with home.client(client_id, props={"session_expiry": 3600}) as client:
                client.subscribe(f"{name}/#", qos=1)
                client.disconnect()

        def queue(node, client_id):
            status, found = ask(node, f"/api/v1/clients/{client_id}")
            return found["queue"] if status == 200 and found["state"] == "away" else None

        def fill(node):
            with node.client(f"{name}-publisher") as publisher:
                for number in range(60):
                    publisher.published(f"{name}/x", str(number), qos=1)

        asked = cluster.nodes[1]
        until(lambda: all(queue(asked, client_id) for client_id in ids), what="the absence")
        # Each node leads once, the first one after a restart.
        for _ in range(3):
            leader = cluster.leader()
            fill(next(node for node in cluster.running() if node is not leader))
            asked = cluster.running()[0]
            for client_id, limit in ids.items():
                found = until(lambda: queue(asked, client_id), what="the queue")
                assert (found["messages"], found["limit_messages"]) == (limit, limit), client_id
            # What is queued is taken, so that the next leader has to know the limits too.
            for client_id, limit in ids.items():
                with leader.client(client_id, clean=False, session_present=True, props={"session_expiry": 3600}) as client:
                    for number in range(limit):
                        client.message(payload=str(number))
                    client.ping()
                    client.disconnect()
            until(lambda: all((q := queue(asked, of)) and q["messages"] == 0 for of in ids), what="empty queues")
            leader.kill()
            until(lambda: cluster.leader() is not leader, what="another leader")
            leader.start()
            cluster.settled()

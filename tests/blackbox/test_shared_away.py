"""What waits with members of shared groups that are away for too long goes to members that are connected."""

import signal

import yaml
from harness.broker import BASE, Broker
from harness.wait import until
from test_classes import gone_away, state

AWAY = {"session_expiry": 600}


def configured(seconds: int) -> dict:
    return {**BASE, "limits": {"session": {"sharedHandoverAwaySeconds": seconds}}}


def waiting(broker, client_id) -> int:
    return state(broker, client_id)["queue"]["messages"]


def looked(broker):
    """The broker has looked at its queues twice since this was called: it counts a message that was queued since."""
    of_all = lambda: broker.metric("heraldmq_class_waiting_messages", **{"class": "device"})
    with broker.client("publisher-of-looks") as publisher:
        for _ in range(2):
            counted = of_all()
            publisher.published("looks", "x", qos=1)
            until(lambda: of_all() > counted, what="a look")


def publish(broker, topic, count: int, publishers=("a", "b")):
    """Numbered messages of some publishers, by turns, with an acknowledgement each: they are queued."""
    clients = {publisher: broker.client(f"publisher-{publisher}") for publisher in publishers}
    try:
        for number in range(count):
            for publisher, client in clients.items():
                client.published(topic, f"{publisher} {number}", qos=1)
    finally:
        for client in clients.values():
            client.close()


def taken(client, count: int) -> list[tuple[str, int]]:
    """Publishers and numbers of so many messages."""
    texts = (packet.payload.decode().split() for packet in client.take(count))
    return [(publisher, int(number)) for publisher, number in texts]


def everything(count: int, publishers=("a", "b")) -> list[tuple[str, int]]:
    return sorted((publisher, number) for publisher in publishers for number in range(count))


def assert_in_order(messages):
    for publisher in {publisher for publisher, _ in messages}:
        numbers = [number for of, number in messages if of == publisher]
        assert numbers == sorted(numbers)


def nothing_waits(broker, *client_ids):
    for client_id in client_ids:
        until(lambda: waiting(broker, client_id) == 0, what=f"the queue of {client_id}")


def both_away(broker, name) -> tuple[str, str, str]:
    """Two workers that are away with a queue each, and the subscription of their group."""
    group = f"$share/jobs/{name}/#"
    workers = f"{name}-1", f"{name}-2"
    for worker in workers:
        gone_away(broker, worker, group)
    return *workers, group


def test_a_worker_that_comes_back_gets_what_waits_with_the_other(name):
    with Broker(config=configured(1)) as broker:
        first, second, group = both_away(broker, name)
        gone_away(broker, f"{name}-looks", "looks")
        publish(broker, f"{name}/x", 21, publishers=("a",))
        own, others = waiting(broker, first), waiting(broker, second)
        assert own + others == 21 and min(own, others) >= 10
        # Nobody is connected: everything stays where it is.
        looked(broker)
        assert (waiting(broker, first), waiting(broker, second)) == (own, others)
        with broker.client(first, clean=False, session_present=True, props=AWAY) as client:
            got = taken(client, own)
            assert_in_order(got)
            handed_over = taken(client, others)
            assert_in_order(handed_over)
            assert sorted(got + handed_over) == everything(21, publishers=("a",))
            nothing_waits(broker, first, second)
            client.ping()
            # The other is still a member, and gets nothing twice.
            with broker.client(second, clean=False, session_present=True, props=AWAY) as other:
                other.ping()
                client.disconnect()
                until(lambda: state(broker, first)["state"] == "away", what="the absence")
                publish(broker, f"{name}/x", 1)
                assert sorted(taken(other, 2)) == everything(1)
                other.ping()


def test_a_new_worker_gets_what_waits_with_both_in_the_order_of_each_queue(name):
    with Broker(config=configured(1)) as broker:
        first, second, group = both_away(broker, name)
        publish(broker, f"{name}/x", 15)
        queues = {waiting(broker, first), waiting(broker, second)}
        assert queues == {15}
        with broker.client(f"{name}-3", props=AWAY) as client:
            client.subscribe(group, qos=1)
            # One session's messages come before the other's.
            one, other = taken(client, 15), taken(client, 15)
            assert_in_order(one)
            assert_in_order(other)
            assert sorted(one + other) == everything(15)
            nothing_waits(broker, first, second, f"{name}-3")
            client.ping()


def test_a_long_queue_goes_in_parts_and_stays_in_order_and_other_messages_stay(name):
    count = 2_500
    worker, group = f"{name}-1", f"$share/jobs/{name}/#"
    with Broker(config=configured(1)) as broker:
        gone_away(broker, worker, group, "own")
        publish(broker, f"{name}/x", count // 2, publishers=("a",))
        publish(broker, "own", 3)
        publish(broker, f"{name}/x", count // 2, publishers=("b",))
        assert waiting(broker, worker) == count + 6
        with broker.client(f"{name}-new") as client:
            client.subscribe(group, qos=1)
            assert taken(client, count) == everything(count // 2)
            until(lambda: waiting(broker, worker) == 6, what="what is its own to be left")
            client.ping()
        with broker.client(worker, clean=False, session_present=True, props=AWAY) as client:
            own = taken(client, 6)
            assert_in_order(own)
            assert sorted(own) == everything(3)
            client.ping()


def test_what_waits_stays_if_that_is_wished_or_the_worker_comes_back_in_time(name):
    for seconds in (0, 3_600):
        with Broker(config=configured(seconds)) as broker:
            first, second, group = both_away(broker, name)
            gone_away(broker, f"{name}-looks", "looks")
            publish(broker, f"{name}/x", 10)
            own, others = waiting(broker, first), waiting(broker, second)
            with broker.client(first, clean=False, session_present=True, props=AWAY) as client:
                got = taken(client, own)
                looked(broker)
                assert waiting(broker, second) == others
                client.ping()
                if seconds:
                    with broker.client(second, clean=False, session_present=True, props=AWAY) as other:
                        of_other = taken(other, others)
                        other.ping()
                else:
                    # By a reload.
                    broker.write_config(yaml.safe_dump(configured(1)))
                    broker.signal(signal.SIGHUP)
                    of_other = taken(client, others)
                assert_in_order(of_other)
                assert sorted(got + of_other) == everything(10)
                client.ping()

"""How long messages take through the broker, as it measures that itself."""

import time

import pytest

from harness.broker import Broker
from harness.wait import until

ACKNOWLEDGEMENT = "heraldmq_publish_acknowledgement_seconds"
DELIVERY = "heraldmq_delivery_seconds"


@pytest.fixture(scope="module")
def stage():
    with Broker() as broker:
        yield broker


def counted(broker, name):
    """How many were measured, by QoS, and for how long all of them took, in s."""
    counts = [broker.metric(f"{name}_count", qos=str(qos)) for qos in range(3)]
    return counts, sum(broker.metric(f"{name}_sum", qos=str(qos)) for qos in range(3))


def more(broker, name, before):
    return [now - then for now, then in zip(counted(broker, name)[0], before[0], strict=True)]


def test_each_of_few_messages_is_measured_to_its_acknowledgement_and_receivers(stage, name):
    acknowledged, delivered = counted(stage, ACKNOWLEDGEMENT), counted(stage, DELIVERY)
    began = time.monotonic()
    with stage.client(f"{name}-1") as one, stage.client(f"{name}-2") as two, stage.client(name) as publisher:
        one.subscribe(f"{name}/#", qos=1)
        two.subscribe(f"{name}/#", qos=2)
        for qos in range(3):
            for _ in range(5 + qos):
                publisher.published(f"{name}/a", qos=qos)
        for client in (one, two):
            assert len([client.message() for _ in range(18)]) == 18
    took = time.monotonic() - began
    until(lambda: more(stage, ACKNOWLEDGEMENT, acknowledged) == [0, 6, 7], what="all acknowledgements")
    # One gets QoS 0, 1 and 1, the other one what was published.
    until(lambda: more(stage, DELIVERY, delivered) == [10, 6 + 6 + 7, 7], what="all deliveries")
    for metric, before, messages in ((ACKNOWLEDGEMENT, acknowledged, 13), (DELIVERY, delivered, 36)):
        mean = (counted(stage, metric)[1] - before[1]) / messages
        assert 0 < mean < took
    buckets = [stage.metric(f"{ACKNOWLEDGEMENT}_bucket", qos="1", le=le) for le in ("64.0", "+Inf")]
    assert buckets[0] == buckets[1] == counted(stage, ACKNOWLEDGEMENT)[0][1] > 0, buckets


def test_the_time_for_which_a_receiver_was_away_is_not_measured(stage, name):
    durable = {"clean": False, "props": {"session_expiry": 600}}
    before = counted(stage, DELIVERY)
    with stage.client(name) as publisher, stage.client(f"{name}-late") as late:
        with stage.client(f"{name}-away", **durable) as away:
            away.subscribe(f"{name}/#", qos=1)
            publisher.published(f"{name}/on", qos=1)
            away.message(topic=f"{name}/on")
            until(lambda: more(stage, DELIVERY, before) == [0, 1, 0], what="the delivery to who is connected")
            away.disconnect()
        publisher.published(f"{name}/off", qos=1)
        publisher.published(f"{name}/kept", b"1", qos=1, retain=True)
        with stage.client(f"{name}-away", session_present=True, **durable) as away:
            away.message(topic=f"{name}/off")
            away.message(topic=f"{name}/kept")
            # It was connected when the message was published, and has subscribed later.
            late.subscribe(f"{name}/kept", qos=1)
            assert late.message(topic=f"{name}/kept").retain
            publisher.published(f"{name}/on", qos=1)
            away.message(topic=f"{name}/on")
    until(lambda: more(stage, DELIVERY, before) == [0, 2, 0], what="the second delivery to who is connected")


def test_syncs_and_what_is_applied_are_measured(stage, name):
    syncs, applied = ("heraldmq_store_sync_seconds", "heraldmq_store_apply_seconds")
    before = [stage.metric(f"{metric}_count") for metric in (syncs, applied)]
    with stage.client(name, clean=False, props={"session_expiry": 60}) as client:
        client.subscribe(f"{name}/#", qos=1)
        for _ in range(3):
            client.published(f"{name}/a", qos=1)
    for metric, then in zip((syncs, applied), before, strict=True):
        # Each of the messages is acknowledged when it is synced, and after that applied.
        assert stage.metric(f"{metric}_count") >= then + 3
        assert 0 < stage.metric(f"{metric}_sum") < 60


def test_the_history_has_the_times_of_each_sample_and_drops_by_reason(stage, name):
    def series():
        (node,) = stage.api("/api/v1/stats/history")["nodes"]
        return node["series"]

    def last(value_of):
        return next((value for value in reversed(series().get(value_of, [])) if value), None)

    with stage.client(f"{name}-on") as subscriber, stage.client(name) as publisher:
        subscriber.subscribe(f"{name}/a")

        def is_sampled():
            # A session that is stored and ends.
            stage.client(f"{name}-stored", clean=False, props={"session_expiry": 1}).close()
            publisher.published(f"{name}/a", qos=1)
            subscriber.message()
            publisher.publish("$SYS/not-mine")
            return last("delivery_p99_ms") and last("log_sync_p99_ms") and last("apply_p99_ms")

        until(is_sampled, what="a sample with deliveries and syncs")
        for measured in ("publish_ack", "delivery"):
            p50, p99, longest = (last(f"{measured}_{part}_ms") for part in ("p50", "p99", "max"))
            assert 0 < p50 <= p99 <= longest < 30_000
        until(lambda: last("dropped_per_s.reserved_topic"), what="the reason of the drops")

    def reasons():
        names = {key.removeprefix("dropped_per_s.") for key in series() if key.startswith("dropped_per_s.")}
        return names, {reason for reason, count in stage.drop_totals().items() if count}

    # What is dropped is in the history with the next sample.
    until(lambda: len(set(map(frozenset, reasons()))) == 1, what=lambda: f"the same reasons: {reasons()}")
    assert len({len(values) for values in series().values()}) == 1

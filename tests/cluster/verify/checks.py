"""The promises, each as a function from a history to the violations it found, told in sentences."""

import collections
import math

from .history import NEVER, History
from .register import is_linearizable


def violations(history: History) -> dict[str, list[str]]:
    """All that is wrong with a history whose messages have all had time to arrive, by check."""
    checks = (lost, doubled, unordered, owned_twice, wills, retained)
    found = {check.__name__: list(check(history)) for check in checks}
    return {name: sentences for name, sentences in found.items() if sentences}


def matches(filter: str, topic: str) -> bool:
    """Whether a topic filter matches a topic name; neither begins with `$`. [MQTT 5.0 §4.7]"""
    names = topic.split("/")
    for n, level in enumerate(filter.split("/")):
        if level == "#":
            return True
        if n >= len(names) or level not in ("+", names[n]):
            return False
    return len(filter.split("/")) == len(names)


def missing(history: History):
    """Acknowledged publications of QoS 1 and 2, each with a subscriber that has not got it."""
    got = {(receipt.subscriber, receipt.payload) for receipt in history.receipts}
    for publication in history.publications.values():
        if publication.acked == NEVER or not publication.qos:
            continue
        for subscription in history.subscriptions:
            effective = subscription.since <= publication.sent and subscription.qos
            if not effective or not matches(subscription.filter, publication.topic):
                continue
            if (subscription.subscriber, publication.payload) not in got:
                yield subscription.subscriber, publication


def lost(history: History):
    """P1, P9: what was acknowledged arrives."""
    for subscriber, publication in missing(history):
        yield f"{subscriber} has not got {publication}"


def doubled(history: History):
    """What is published with QoS 2 and comes with QoS 2 comes once."""
    counts = collections.Counter((r.subscriber, r.payload) for r in history.receipts if r.qos == 2)
    for (subscriber, payload), count in counts.items():
        if count > 1:
            yield f"{subscriber} has got {payload!r} {count} times with QoS 2"


def unordered(history: History):
    """The first copies of a publisher's messages of one topic and QoS come in the order in which they
    were sent (§4.6 of the standard)."""
    last, seen = {}, set()
    for receipt in history.receipts:
        publication = history.publications.get(receipt.payload)
        if publication is None or (receipt.subscriber, receipt.payload) in seen:
            continue
        seen.add((receipt.subscriber, receipt.payload))
        stream = (receipt.subscriber, publication.publisher, publication.topic, publication.qos)
        before = last.get(stream)
        if before and before.sent > publication.sent:
            yield f"{receipt.subscriber} has got {publication} after {before}"
        else:
            last[stream] = publication


def owned_twice(history: History):
    """P5: times at which two connections certainly owned the same client identifier do not meet."""
    by_client = collections.defaultdict(list)
    for tenure in history.tenures:
        by_client[tenure.client_id].append(tenure)
    for tenures in by_client.values():
        tenures.sort(key=lambda tenure: tenure.connack)
        latest = None
        for tenure in tenures:
            if latest and tenure.connack < latest.answered:
                yield f"{latest} and {tenure} owned the same client identifier"
            if not latest or tenure.answered > latest.answered:
                latest = tenure


def wills(history: History):
    """P6: a will comes once if its connection ended without DISCONNECT, and never otherwise. Subscribers
    of QoS 2 are asked, whose subscriptions are older than the will."""
    counts = collections.Counter((r.subscriber, r.payload) for r in history.receipts)
    for mourned in history.mourned:
        for subscription in history.subscriptions:
            if subscription.qos != 2 or subscription.since > mourned.since:
                continue
            if not matches(subscription.filter, mourned.topic):
                continue
            count = counts[subscription.subscriber, mourned.payload]
            if count != mourned.died:
                yield f"{subscription.subscriber} has got the will of {mourned} {count} times"


def retained(history: History):
    """A retained message is a register: who reads it gets what was set last."""
    by_topic = collections.defaultdict(list)
    for operation in history.operations:
        by_topic[operation.topic].append(operation)
    for topic, operations in by_topic.items():
        if not is_linearizable(operations):
            told = "\n  ".join(map(str, sorted(operations, key=lambda o: o.start)))
            yield f"no order explains what was set and read of {topic}:\n  {told}"


def recoveries(history: History, fault: float) -> dict[str, float]:
    """For each publisher the seconds from a fault to the first acknowledgement of a message that was sent
    after it; infinite if there was none."""
    times = {p.publisher: math.inf for p in history.publications.values() if p.qos}
    for publication in history.publications.values():
        if publication.qos and publication.sent >= fault:
            taken = publication.acked - fault
            times[publication.publisher] = min(times[publication.publisher], taken)
    return times


def distribution(times) -> str:
    """Least, median, 90th percentile and greatest of some seconds."""
    times = sorted(times)
    if not times:
        return "none"

    def at(share):
        return times[min(len(times) - 1, int(share * len(times)))]

    return f"min {times[0]:.2f} s, median {at(0.5):.2f} s, p90 {at(0.9):.2f} s, max {times[-1]:.2f} s"

"""The promises, each as a function from a history to the violations it found, told in sentences."""

import bisect
import collections
import math

from .history import NEVER, History
from .register import is_linearizable


# What is between the clocks of the nodes and that of a history, and between sending and arriving, in seconds.
# How long a message can be on its way between nodes that lose packets.
ON_ITS_WAY = 5.0
TOLERANCE = 3.0
# How old what a node has written about its clients may be when it dies, and how late a connection is known to be lost.
LATENESS = 2.0
# How long it may take until others know that a node has died, and end what it had.
NOTICED = 12.0


def violations(history: History) -> dict[str, list[str]]:
    """All that is wrong with a history whose messages have all had time to arrive, by check."""
    checks = (
        lost,
        doubled,
        unordered,
        owned_twice,
        wills,
        retained,
        group_lost,
        group_doubled,
        expired,
        sessions,
        damaged,
    )
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
        if not _is_promised(publication):
            continue
        for subscription in history.subscriptions:
            effective = subscription.since <= publication.sent <= subscription.until and subscription.qos
            if not effective or not matches(subscription.filter, publication.topic):
                continue
            if publication.is_clean and subscription.since > history.calm:
                continue
            if (subscription.subscriber, publication.payload) not in got:
                yield subscription.subscriber, publication


def _is_promised(publication) -> bool:
    """Whether all who have subscribed must get it. What expires may do so before somebody is back."""
    return publication.acked != NEVER and publication.qos > 0 and publication.expiry == NEVER


def lost(history: History):
    """P1, P9: what was acknowledged arrives."""
    for subscriber, publication in missing(history):
        yield f"{subscriber} has not got {publication}"


def doubled(history: History):
    """What is published with QoS 2 and comes to a durable session with QoS 2 comes once."""
    yield from _more_than_once(_qos_2(history, durable=True))


def doubled_clean(history: History):
    """The same of clean sessions. Not among `violations`: what a publisher repeats at another node, because the first
    one has not acknowledged it, may have been sent to them before."""
    yield from _more_than_once(_qos_2(history, durable=False))


def _qos_2(history: History, durable) -> collections.Counter:
    """How often each message of QoS 2 came to each subscriber."""
    promised = {s.subscriber for s in history.subscriptions} | {m.subscriber for m in history.members}
    return collections.Counter(
        (r.subscriber, r.payload) for r in history.receipts if r.qos == 2 and (r.subscriber in promised) == durable
    )


def doubled_qos_0(history: History):
    """What is published with QoS 0 comes at most once. Not among `violations`: what a session gets while it moves from
    one connection to the next may come by both."""
    publications = history.publications
    unacknowledged = {payload for payload, publication in publications.items() if not publication.qos}
    counts = collections.Counter((r.subscriber, r.payload) for r in history.receipts if r.payload in unacknowledged)
    yield from _more_than_once(counts)


def _more_than_once(counts):
    for (subscriber, payload), count in counts.items():
        if count > 1:
            yield f"{subscriber} has got {payload!r} {count} times"


def unordered(history: History):
    """The first copies of a publisher's messages of one topic and QoS, 1 or 2, come in the order in which they were
    sent (§4.6 of the standard)."""
    yield from _overtaken(history, (1, 2))


def unordered_qos_0(history: History):
    """The same of QoS 0. Not among `violations`: a queue that was kept for an absent session may be overtaken by what
    comes when it is back."""
    yield from _overtaken(history, (0,))


def is_of_clean(subscriber: str) -> bool:
    """Clean sessions have numbers."""
    return "#" in subscriber


def _overtaken(history: History, levels):
    """Members of shared groups are left out: they get those of others late, when these are gone. What comes to a clean
    session comes by the link of its publisher's node: one link may lose packets, another not, and what a link has lost
    comes when its publisher sends it again."""
    last, seen = {}, set()
    members = {member.subscriber for member in history.members}
    for receipt in history.receipts:
        publication = history.publications.get(receipt.payload)
        if publication is None or publication.qos not in levels or receipt.subscriber in members:
            continue
        is_clean = is_of_clean(receipt.subscriber)
        if publication.copies > 1 and (is_clean or publication.expiry != NEVER):
            # The first of them may have expired, or be lost.
            continue
        if (receipt.subscriber, receipt.payload) in seen:
            continue
        seen.add((receipt.subscriber, receipt.payload))
        sender = (publication.publisher, publication.connection, publication.way if is_clean else 0)
        stream = (receipt.subscriber, sender, publication.topic, publication.qos)
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
            # One that did nothing may have owned it before the latest did, and have lost it when its CONNACK came.
            is_later = tenure.answered > tenure.connack or (latest and tenure.connect >= latest.connack)
            if latest and tenure.connack < latest.answered and is_later:
                yield f"{latest} and {tenure} owned the same client identifier"
            if not latest or tenure.answered > latest.answered:
                latest = tenure


def wills(history: History):
    """P6: a will comes once if its connection ended without DISCONNECT, and never otherwise. Subscribers
    of QoS 2 are asked, whose subscriptions are older than the will."""
    counts = collections.Counter((r.subscriber, r.payload) for r in history.receipts)
    for mourned in history.mourned:
        for subscription in history.subscriptions:
            if subscription.qos != 2 or subscription.since > mourned.since or subscription.until != NEVER:
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


def _groups(history: History) -> dict[str, list]:
    """The members of each shared group."""
    groups = collections.defaultdict(list)
    for member in history.members:
        groups[member.group].append(member)
    return groups


def _times_got(history: History, members, *, qos=(0, 1, 2)) -> collections.Counter:
    """How often each message came to any of these members."""
    names = {member.subscriber for member in members}
    return collections.Counter(r.payload for r in history.receipts if r.subscriber in names and r.qos in qos)


def group_missing(history: History):
    """Acknowledged publications that no member of a shared group has got, though one was subscribed from before it was
    sent until the end. What is on its way to a member with a clean session is nowhere else, and ends with the process
    of its publisher."""
    for group, members in _groups(history).items():
        has_clean = any(member.is_clean for member in members)
        got = _times_got(history, members)
        stayed = [member for member in members if member.until == NEVER and member.qos]
        for publication in history.publications.values():
            # A node without a majority accepts those of clean sessions, and knows only the members of before.
            if publication.is_clean or not _is_promised(publication) or got[publication.payload]:
                continue
            if has_clean and any(publication.sent <= death <= publication.acked + ON_ITS_WAY for death in history.deaths):
                continue
            if any(m.since <= publication.sent and matches(m.filter, publication.topic) for m in stayed):
                yield group, publication


def group_lost(history: History):
    """P1, P7: what was acknowledged comes to a member of each shared group."""
    for group, publication in group_missing(history):
        yield f"no member of {group} has got {publication}"


def group_doubled(history: History):
    """What is published with QoS 2 and subscribed to with QoS 2 comes to one member of a shared group, once."""
    for group, members in _groups(history).items():
        for payload, count in _times_got(history, members, qos=(2,)).items():
            publication = history.publications.get(payload)
            if history.members_are_apart and publication is not None and publication.copies > 1:
                continue
            if count > 1:
                to = sorted(
                    r.subscriber
                    for r in history.receipts
                    if r.payload == payload and r.subscriber in {m.subscriber for m in members}
                )
                yield f"members of {group} have got {payload!r} {count} times: {', '.join(to)}"


def expired(history: History):
    """Nothing comes after its message expiry interval. It begins when the broker has the message, which is before it
    acknowledges it; of what was sent more than once, nobody knows which copy came."""
    for receipt in history.receipts:
        publication = history.publications.get(receipt.payload)
        if publication is None or publication.expiry == NEVER or publication.acked == NEVER or publication.copies > 1:
            continue
        late = receipt.at - publication.acked - publication.expiry
        if late > TOLERANCE:
            yield f"{receipt.subscriber} has got {publication} {late:.1f} s after it had expired"


def sessions(history: History):
    """P4: a session is there until its expiry interval has passed since the end of its connection, and then not any
    more. A connection may end before its client notices, and of a node that dies it is known some time later."""
    for back in history.returns:
        gone_for_at_most = back.connack - back.alive + LATENESS
        if not back.session_present and gone_for_at_most < back.expiry:
            yield f"the session of {back.client_id} has not lasted: {back}"
        if back.session_present and back.ended != NEVER and back.connect > back.ended + back.expiry + NOTICED:
            yield f"the session of {back.client_id} has outlived its expiry interval: {back}"


def damaged(history: History):
    """What comes is what was sent."""
    yield from history.damaged


def recoveries(history: History, fault: float) -> dict[str, float]:
    """For each publisher the seconds from a fault to the first acknowledgement of a message that was sent
    after it; infinite if there was none."""
    times = {p.publisher: math.inf for p in history.publications.values() if p.qos}
    for publication in history.publications.values():
        if publication.qos and publication.sent >= fault:
            taken = publication.acked - fault
            times[publication.publisher] = min(times[publication.publisher], taken)
    return times


def gaps(history: History, begin: float, end: float) -> dict[str, float]:
    """For each publisher of QoS 1 and 2 the longest time between `begin` and `end` in which it had sent a message and
    got no acknowledgement of any; infinite if none came any more."""
    acks, waits = collections.defaultdict(list), collections.defaultdict(list)
    for publication in history.publications.values():
        if not publication.qos:
            continue
        if publication.acked != NEVER:
            acks[publication.publisher].append(publication.acked)
        if publication.sent < end and publication.acked >= begin:
            waits[publication.publisher].append(max(publication.sent, begin))
    found = {}
    for publisher, starts in waits.items():
        answers = sorted(acks[publisher])
        after = [bisect.bisect_right(answers, start) for start in starts]
        found[publisher] = max(
            answers[n] - start if n < len(answers) else math.inf for n, start in zip(after, starts)
        )
    return found


def distribution(times) -> str:
    """Least, median, 90th percentile and greatest of some seconds."""
    times = sorted(times)
    if not times:
        return "none"

    def at(share):
        return times[min(len(times) - 1, int(share * len(times)))]

    return f"min {times[0]:.2f} s, median {at(0.5):.2f} s, p90 {at(0.9):.2f} s, max {times[-1]:.2f} s"

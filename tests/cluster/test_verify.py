"""The checks of histories, each with a history that is right and one that is not."""

import itertools
import math
import random

import pytest
from verify import checks
from verify.history import History, Mourned, Operation, Publication, Receipt, Subscription, Tenure
from verify.register import is_linearizable


def publications(*parts, qos=1, acked=True) -> dict:
    """Publications of `p` to `t` at the seconds 1, 2, …"""
    made = [
        Publication(payload, "t", "p", qos, sent=float(n), acked=n + 0.5 if acked else math.inf)
        for n, payload in enumerate(parts, 1)
    ]
    return {publication.payload: publication for publication in made}


def receipts(*payloads, qos=1, subscriber="s") -> list:
    return [Receipt(subscriber, "t", payload, qos, at=10.0 + n) for n, payload in enumerate(payloads)]


def history(sent, got, since=0.0) -> History:
    return History(publications=sent, subscriptions=[Subscription("s", "#", 2, since)], receipts=got)


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a", "a/b", False),
        ("a/b", "a", False),
        ("a/+", "a/b", True),
        ("+/b", "a/b", True),
        ("a/+", "a", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a", True),
        ("b/#", "a/b", False),
    ],
)
def test_filters(filter, topic, expected):
    assert checks.matches(filter, topic) == expected


def test_what_was_acknowledged_must_arrive():
    both = publications(b"1", b"2")
    assert not checks.violations(history(both, receipts(b"1", b"2")))
    assert len(checks.violations(history(both, receipts(b"1")))["lost"]) == 1
    # Without acknowledgement, or before the SUBACK, nothing was promised.
    assert not list(checks.lost(history(publications(b"1", acked=False), [])))
    assert not list(checks.lost(history(publications(b"1"), [], since=1.1)))
    assert not list(checks.lost(history(publications(b"1", qos=0), [])))
    others = History(publications=both, subscriptions=[Subscription("s", "other", 1, 0.0)])
    assert not list(checks.lost(others))


def test_qos_2_comes_once():
    sent = publications(b"1", qos=2)
    assert not checks.violations(history(sent, receipts(b"1", qos=2)))
    assert len(list(checks.doubled(history(sent, receipts(b"1", b"1", qos=2))))) == 1
    # Each subscriber has its own copy, and QoS 1 may come twice.
    two = receipts(b"1", qos=2) + receipts(b"1", qos=2, subscriber="s2")
    assert not list(checks.doubled(history(sent, two)))
    assert not list(checks.doubled(history(publications(b"1"), receipts(b"1", b"1"))))


def test_order_is_that_of_the_publisher():
    sent = publications(b"1", b"2", b"3")
    assert len(list(checks.unordered(history(sent, receipts(b"1", b"3", b"2"))))) == 1
    # What was sent again after a loss of the connection is no first copy.
    assert not list(checks.unordered(history(sent, receipts(b"1", b"2", b"3", b"2", b"3"))))
    assert not list(checks.unordered(history(sent, receipts(b"2", b"3"))))
    sent[b"2"].publisher = "other"
    assert not list(checks.unordered(history(sent, receipts(b"2", b"1", b"3"))))


def tenures(*times) -> History:
    return History(tenures=[Tenure("c", place, connack, answered) for place, connack, answered in times])


def test_one_owner_at_a_time():
    assert not list(checks.owned_twice(tenures(("a", 1, 3), ("b", 3, 5), ("a", 6, 6))))
    # The first was answered after the second had its CONNACK.
    assert len(list(checks.owned_twice(tenures(("a", 1, 4), ("b", 3, 5))))) == 1
    # Also if a third came between that owned it for no time that could be observed.
    assert len(list(checks.owned_twice(tenures(("a", 1, 9), ("b", 3, 3), ("a", 5, 7))))) == 2
    different = History(tenures=[Tenure("c", "a", 1, 4), Tenure("d", "b", 3, 5)])
    assert not list(checks.owned_twice(different))


@pytest.mark.parametrize(
    ("died", "count", "is_right"),
    [(True, 1, True), (True, 0, False), (True, 2, False), (False, 0, True), (False, 1, False)],
)
def test_wills_come_once(died, count, is_right):
    made = history({}, [Receipt("s", "will/w", b"last", 2, 5.0)] * count)
    made.mourned = [Mourned("w", "will/w", b"last", since=1.0, died=died)]
    assert (not list(checks.wills(made))) == is_right
    # A watcher that came later was promised nothing.
    made.mourned[0].since = -1.0
    assert not list(checks.wills(made))


def write(value, start, end=math.inf):
    return Operation("t", "write", value, start, end)


def read(value, start, end):
    return Operation("t", "read", value, start, end)


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [read(None, 1, 2)],
        [write(1, 1, 2), read(1, 3, 4)],
        # At the same time: before or after.
        [write(1, 1, 4), read(None, 2, 3), read(1, 2, 3)],
        # Without answer: now, later, or never.
        [write(1, 1), read(None, 2, 3), read(1, 4, 5)],
        [write(1, 1), read(None, 2, 3)],
        [write(1, 1, 2), write(2, 1, 2), read(1, 3, 4)],
    ],
)
def test_registers_that_are_right(operations):
    assert is_linearizable(operations)
    assert not list(checks.retained(History(operations=operations)))


@pytest.mark.parametrize(
    "operations",
    [
        [write(1, 1, 2), read(None, 3, 4)],
        [read(1, 1, 2), write(1, 3, 4)],
        [write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)],
        # Two readers must agree on the order of the writes.
        [write(1, 1, 9), write(2, 1, 9), read(1, 2, 3), read(2, 4, 5), read(1, 6, 7)],
        # Once seen, it stays, although the write has not been answered.
        [write(1, 1), read(1, 2, 3), read(None, 4, 5)],
    ],
)
def test_registers_that_are_not(operations):
    assert not is_linearizable(operations)
    assert len(list(checks.retained(History(operations=operations)))) == 1


@pytest.mark.parametrize("seed", range(200))
def test_the_register_agrees_with_trying_all_orders(seed):
    chance = random.Random(seed)
    operations = []
    for _ in range(chance.randrange(1, 6)):
        start = chance.randrange(8)
        kind = chance.choice(["write", "read"])
        never = kind == "write" and chance.random() < 0.2
        end = math.inf if never else start + chance.randrange(5) + 0.5
        value = chance.choice([1, 2] if kind == "write" else [None, 1, 2])
        operations.append(Operation("t", kind, value, start, end))
    assert is_linearizable(operations) == any(map(is_explained, orders(operations)))


def orders(operations):
    """All orders of all that was answered and any of the rest."""
    answered = [o for o in operations if o.end < math.inf]
    rest = [o for o in operations if o.end == math.inf]
    for count in range(len(rest) + 1):
        for some in itertools.combinations(rest, count):
            yield from itertools.permutations(answered + list(some))


def is_explained(order) -> bool:
    value = None
    for n, operation in enumerate(order):
        if any(later.end < operation.start for later in order[n + 1 :]):
            return False
        if operation.kind == "write":
            value = operation.value
        elif operation.value != value:
            return False
    return True


def test_long_histories_are_judged_quickly():
    operations = [write(n, n, n + 2.5) for n in range(300)] + [read(n, n + 1, n + 2.5) for n in range(300)]
    assert is_linearizable(operations)


def test_histories_with_faults_are_judged_quickly():
    # Some writes without answer, seen and not seen, and a read that nothing explains.
    operations = [write(n, n, n + 2.5 if n % 20 else math.inf) for n in range(200)]
    operations += [read(n, n + 1, n + 2.5) for n in range(200) if n % 40]
    assert is_linearizable(operations)
    assert not is_linearizable([*operations, read(1, 250, 251)])


def test_recovery_times():
    sent = publications(b"1", b"2", b"3")
    sent[b"2"].acked = math.inf
    times = checks.recoveries(history(sent, []), fault=1.5)
    assert times == {"p": 2.0}
    assert checks.recoveries(history(sent, []), fault=9.0) == {"p": math.inf}
    assert checks.distribution([3.0, 1.0, 2.0]) == "min 1.00 s, median 2.00 s, p90 3.00 s, max 3.00 s"
    assert checks.distribution([]) == "none"

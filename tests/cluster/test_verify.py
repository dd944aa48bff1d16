"""The checks of histories, each with a history that is right and one that is not."""

import itertools
import math
import random

import pytest
from verify import checks
from verify.history import (
    NEVER,
    History,
    Member,
    Mourned,
    Operation,
    Publication,
    Receipt,
    Return,
    Subscription,
    Tenure,
)
from verify.register import is_linearizable

pytestmark = pytest.mark.quick


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


def test_a_session_that_its_client_ends_is_owed_what_was_sent_until_then():
    sent = publications(b"1", b"2")
    found = History(publications=sent, subscriptions=[Subscription("s", "#", 2, 0.0, until=1.5)], receipts=[])
    assert [publication.payload for _, publication in checks.missing(found)] == [b"1"]
    found.receipts = receipts(b"1")
    assert not checks.violations(found)


def test_qos_2_comes_once():
    sent = publications(b"1", qos=2)
    assert not checks.violations(history(sent, receipts(b"1", qos=2)))
    assert len(list(checks.doubled(history(sent, receipts(b"1", b"1", qos=2))))) == 1
    # Each subscriber has its own copy, and QoS 1 may come twice.
    two = history(sent, receipts(b"1", qos=2) + receipts(b"1", qos=2, subscriber="s2"))
    two.subscriptions.append(Subscription("s2", "#", 2, 0.0))
    assert not list(checks.doubled(two))
    assert not list(checks.doubled(history(publications(b"1"), receipts(b"1", b"1"))))


def test_what_comes_twice_to_clean_sessions_is_told_apart():
    sent = publications(b"1", qos=2)
    made = history(sent, receipts(b"1", qos=2) + receipts(b"1", b"1", qos=2, subscriber="clean"))
    assert not checks.violations(made)
    assert len(list(checks.doubled_clean(made))) == 1
    once = history(sent, receipts(b"1", b"1", qos=2))
    assert not list(checks.doubled_clean(once))


def test_order_is_that_of_the_publisher():
    sent = publications(b"1", b"2", b"3")
    assert len(list(checks.unordered(history(sent, receipts(b"1", b"3", b"2"))))) == 1
    # What was sent again after a loss of the connection is no first copy.
    assert not list(checks.unordered(history(sent, receipts(b"1", b"2", b"3", b"2", b"3"))))
    assert not list(checks.unordered(history(sent, receipts(b"2", b"3"))))
    sent[b"2"].publisher = "other"
    assert not list(checks.unordered(history(sent, receipts(b"2", b"1", b"3"))))


def test_each_connection_of_a_clean_publisher_has_an_order_of_its_own():
    sent = publications(b"1", b"2")
    sent[b"1"].connection, sent[b"2"].connection = 1, 2
    assert not list(checks.unordered(history(sent, receipts(b"2", b"1"))))
    sent[b"2"].connection = 1
    assert len(checks.violations(history(sent, receipts(b"2", b"1")))["unordered"]) == 1


def test_the_first_copy_of_what_expires_may_have_expired():
    sent = publications(b"1", b"2")
    sent[b"1"].expiry = sent[b"2"].expiry = 90.0
    made = history(sent, receipts(b"2", b"1"))
    assert len(list(checks.unordered(made))) == 1
    sent[b"1"].copies = 2
    assert not list(checks.unordered(made))


def test_the_order_of_qos_0_is_told_apart():
    made = history(publications(b"1", b"2", qos=0, acked=False), receipts(b"2", b"1", qos=0))
    assert not checks.violations(made)
    assert len(list(checks.unordered_qos_0(made))) == 1


def test_qos_0_comes_at_most_once():
    sent = publications(b"1", qos=0, acked=False)
    assert not list(checks.doubled_qos_0(history(sent, receipts(b"1", qos=0))))
    assert not list(checks.doubled_qos_0(history(sent, [])))
    assert len(list(checks.doubled_qos_0(history(sent, receipts(b"1", b"1", qos=0))))) == 1


def test_a_clean_publisher_is_promised_those_who_had_subscribed_before_the_first_fault():
    sent = publications(b"1")
    sent[b"1"].is_clean = True
    made = history(sent, [], since=0.5)
    made.calm = 0.7
    assert len(list(checks.lost(made))) == 1
    made.calm = 0.3
    assert not list(checks.lost(made))
    sent[b"1"].is_clean = False
    assert len(list(checks.lost(made))) == 1


def test_a_clean_session_gets_the_messages_of_one_link_in_order():
    sent = publications(b"1", b"2")
    made = history(sent, receipts(b"2", b"1", subscriber="c#1"))
    assert len(list(checks.unordered(made))) == 1
    # They came to two nodes.
    sent[b"2"].way = 1.0
    assert not list(checks.unordered(made))
    assert len(list(checks.unordered(history(sent, receipts(b"2", b"1"))))) == 1
    # The first copy was lost.
    sent[b"2"].way, sent[b"1"].copies = 0.0, 2
    assert not list(checks.unordered(made))


def group(sent, got, *, until=NEVER, qos=2) -> History:
    """Two members; `until` is when the first leaves."""
    members = [Member("a", "g", "t", qos, since=0.0, until=until), Member("b", "g", "t", qos, since=5.0)]
    return History(publications=sent, members=members, receipts=got)


def test_a_group_gets_what_was_acknowledged():
    sent = publications(b"1")
    assert not checks.violations(group(sent, receipts(b"1", subscriber="b")))
    assert len(checks.violations(group(sent, []))["group_lost"]) == 1
    # What comes to others does not count.
    assert len(checks.violations(group(sent, receipts(b"1", subscriber="c")))["group_lost"]) == 1
    # Nobody was subscribed from before it was sent until the end; or nothing was promised.
    assert not list(checks.group_lost(group(sent, [], until=3.0)))
    assert not list(checks.group_lost(group(publications(b"1", acked=False), [])))
    sent[b"1"].is_clean = True
    assert not list(checks.group_lost(group(sent, [])))


def test_a_process_that_ends_takes_with_it_what_is_on_its_way_to_a_clean_member():
    history = group(publications(b"1"), [])
    history.members.append(Member("c", "g", "t", 1, since=0.0, until=0.0, is_clean=True))
    assert len(list(checks.group_lost(history))) == 1
    acked = history.publications[b"1"].acked
    history.deaths.append(acked + 1.0)
    assert not list(checks.group_lost(history))
    history.deaths[:] = [acked + 100.0]
    assert len(list(checks.group_lost(history))) == 1
    # A group of durable members has everything.
    history.members.pop()
    history.deaths[:] = [acked + 1.0]
    assert len(list(checks.group_lost(history))) == 1


def test_one_member_gets_what_is_of_qos_2_once():
    sent = publications(b"1", qos=2)
    one, other = receipts(b"1", qos=2, subscriber="a"), receipts(b"1", qos=2, subscriber="b")
    assert not checks.violations(group(sent, one))
    assert len(checks.violations(group(sent, one + other))["group_doubled"]) == 1
    assert len(list(checks.group_doubled(group(sent, one + one)))) == 1
    # Also a member that has left counts, and QoS 1 may come to both.
    assert len(list(checks.group_doubled(group(sent, one + other, until=3.0)))) == 1
    both = receipts(b"1", subscriber="a") + receipts(b"1", subscriber="b")
    assert not list(checks.group_doubled(group(publications(b"1"), both)))


def test_messages_of_others_come_to_members_in_any_order():
    sent = publications(b"1", b"2")
    assert not checks.violations(group(sent, receipts(b"2", b"1", subscriber="a")))


def test_nothing_comes_after_its_expiry():
    sent = publications(b"1")
    sent[b"1"].expiry = 4.0
    in_time, late = ([Receipt("s", "t", b"1", 1, at)] for at in (1.5 + 4.0, 1.5 + 4.0 + checks.TOLERANCE + 0.1))
    assert not checks.violations(history(sent, in_time))
    assert len(checks.violations(history(sent, late))["expired"]) == 1
    # It may never come, and what was sent twice may come of either.
    assert not checks.violations(history(sent, []))
    sent[b"1"].copies = 2
    assert not list(checks.expired(history(sent, late)))


@pytest.mark.parametrize(
    ("alive", "ended", "connect", "session_present", "is_right"),
    [
        (10.0, 10.5, 11.0, True, True),
        (10.0, 10.5, 11.0, False, False),
        (10.0, 10.5, 90.0, False, True),
        (10.0, 10.5, 90.0, True, False),
        # Nobody knows when it ended.
        (10.0, NEVER, 90.0, True, True),
        # It may have ended before, or be known to have ended later.
        (10.0, 10.5, 17.0, False, True),
        (10.0, 10.5, 20.0, True, True),
    ],
)
def test_sessions_last_as_long_as_their_expiry_interval(alive, ended, connect, session_present, is_right):
    back = Return("c", 8.0, alive, ended, connect, connect + 0.1, session_present)
    assert bool(checks.violations(History(returns=[back]))) != is_right
    assert bool(list(checks.sessions(History(returns=[back])))) != is_right


def test_what_is_damaged_is_told():
    assert checks.violations(History(damaged=["s has got half of it"])) == {"damaged": ["s has got half of it"]}


def tenures(*times) -> History:
    return History(tenures=[Tenure("c", place, connack, answered) for place, connack, answered in times])


def test_one_owner_at_a_time():
    assert not list(checks.owned_twice(tenures(("a", 1, 3), ("b", 3, 5), ("a", 6, 6))))
    # The first was answered after the second had its CONNACK.
    assert len(list(checks.owned_twice(tenures(("a", 1, 4), ("b", 3, 5))))) == 1
    # Also if a third came between that owned it for no time that could be observed.
    assert len(list(checks.owned_twice(tenures(("a", 1, 9), ("b", 3, 3), ("a", 5, 7))))) == 2
    # That one did nothing. If its CONNECT was on its way before the first had its CONNACK, it may have owned it before.
    early = tenures(("a", 1, 9), ("b", 3, 3))
    assert len(list(checks.owned_twice(early))) == 1
    early.tenures[1].connect = 0.5
    assert not list(checks.owned_twice(early))
    early.tenures[1].answered = 4
    assert len(list(checks.owned_twice(early))) == 1
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


def test_gaps():
    sent = publications(*(b"%d" % n for n in range(1, 9)))
    # Sent at 1, 2, …, each acknowledged half a second later, but for those of 3 to 5.
    for n in (3, 4, 5):
        sent[b"%d" % n].acked = 7.25
    made = history(sent, [])
    assert checks.gaps(made, 1.0, 3.0) == {"p": 0.5}
    assert checks.gaps(made, 2.0, 9.0) == {"p": 3.5}
    # What began before counts from then on.
    assert checks.gaps(made, 4.5, 5.0) == {"p": 2.0}
    sent[b"8"].acked = math.inf
    assert checks.gaps(made, 7.9, 9.0) == {"p": math.inf}
    # Of QoS 0 nothing is acknowledged.
    assert checks.gaps(history(publications(b"1", qos=0, acked=False), []), 0.0, 9.0) == {}

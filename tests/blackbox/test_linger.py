"""Sessions with many subscriptions whose clients connect again soon: their routes stay meanwhile. Counted, not timed."""

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import PUBLISH, SUBACK
from harness.wait import Stopwatch, until

# So many that their routes stay for as long as any do.
MANY, LINGERS_S = 20_000, 10

DURABLE = {"clean": False, "props": {"session_expiry": 3600}}

QUIET = {"eventLoops": 1, "sys.intervalSeconds": 0, "limits.session.subscriptions": MANY + 100}


@pytest.fixture(scope="module")
def quiet():
    with Broker(QUIET) as broker:
        yield broker


def subscribe_many(client, name, count=MANY, option=1):
    """Owes no retained messages: while the store has not heard that these have been looked for, the next connection has its
    routes made anew."""
    option |= raw.options(retain_handling=2)
    for first in range(0, count, 1000):
        filters = [(f"{name}/{number}", option) for number in range(first, min(first + 1000, count))]
        client.send(raw.subscribe(first + 1, filters))
        client.expect(SUBACK, pid=first + 1)


def lingering(broker) -> int:
    return int(broker.metric("heraldmq_sessions_routed_after_disconnect"))


def leave(broker, client):
    """The connection ends, and the session lingers."""
    before = lingering(broker)
    client.close()
    until(lambda: lingering(broker) == before + 1, what="a session that lingers")


def is_over(broker):
    until(lambda: lingering(broker) == 0, what="the end of the lingering")


def end(broker, name):
    """The session ends, and its routes go at once."""
    with broker.client(name) as client:
        client.disconnect()
    is_over(broker)
    no_filters(broker)


def no_filters(broker):
    """Nor those of sessions that are away: routes change no more."""
    for of in ("subscription", "inbox"):
        until(lambda of=of: broker.metric(f"heraldmq_{of}_filters_bytes") == 0, what=f"no filters: {of}")


def away(broker, name, count=MANY, qos=1, fields=DURABLE):
    """A session with many subscriptions that lingers."""
    client = broker.client(name, **fields)
    subscribe_many(client, name, count, qos)
    leave(broker, client)


def test_a_client_that_comes_back_soon_changes_no_routes(quiet, name):
    away(quiet, name)
    with quiet.client(f"{name}p") as publisher:

        def misses(topic):
            publisher.published(topic, b"x")
            return quiet.metric("heraldmq_match_cache_misses_total")

        topics = [f"{name}/{number}" for number in (0, 77, MANY - 1)]
        before = [misses(topic) for topic in topics][-1]
        for _ in range(10):
            leave(quiet, quiet.client(name, session_present=True, **DURABLE))
            assert [misses(topic) for topic in topics] == [before] * len(topics)
        with quiet.client(name, session_present=True, **DURABLE) as client:
            assert lingering(quiet) == 0
            got = client.take(11 * len(topics))
            assert [message.topic for message in got] == topics * 11
            assert misses(topics[0]) == before
            assert quiet.metric("heraldmq_subscriptions") >= MANY
            client.message(topic=topics[0])
            client.disconnect()
    end(quiet, name)


@pytest.mark.parametrize("gone", ["dead", "kept"])
@pytest.mark.parametrize("setting", ["offline", "always", "never"])
def test_qos_0_of_the_absence_comes_as_the_setting_says(name, setting, gone):
    with Broker({**QUIET, "inbox.qos0": setting}) as broker:
        away(broker, name, 1000 if gone == "dead" else MANY)
        if gone == "dead":
            is_over(broker)
        with broker.client(f"{name}p") as publisher:
            publisher.publish(f"{name}/7", b"0")
            publisher.published(f"{name}/8", b"1")
        with broker.client(name, session_present=True, **DURABLE) as client:
            with broker.client(f"{name}q") as publisher:
                publisher.published(f"{name}/9", b"end")
            seen = [message.payload for message in client.until(b"end")]
            assert sorted(seen) == ([b"1"] if setting == "never" else [b"0", b"1"])
        # Of a session that is away, and nobody stores anything for, nothing is known by which it could be counted.
        drops = broker.metric("heraldmq_messages_dropped_total", reason="offline_qos0")
        assert drops == (1 if (setting, gone) == ("never", "kept") else 0)


def test_after_a_while_routes_go_and_the_session_is_as_it_was(quiet, name):
    away(quiet, name, count=100)
    is_over(quiet)
    assert quiet.metric("heraldmq_subscription_filters_bytes") == 0
    with quiet.client(f"{name}p") as publisher:
        publisher.publish(f"{name}/1", b"away")
        publisher.published(f"{name}/2", b"end")
        with quiet.client(name, session_present=True, **DURABLE) as client:
            assert [message.payload for message in client.take(2)] == [b"away", b"end"]
            publisher.publish(f"{name}/3", b"direct")
            client.message(payload="direct")
            client.disconnect()
    end(quiet, name)


def test_messages_that_came_meanwhile_are_sent_for_the_first_time(quiet, name):
    with quiet.client(f"{name}p") as publisher:
        client = quiet.client(name, **DURABLE)
        subscribe_many(client, name)
        publisher.published(f"{name}/1", b"sent")
        client.expect(PUBLISH, payload=b"sent", dup=False)
        leave(quiet, client)
        publisher.published(f"{name}/1", b"new")
        with quiet.client(name, session_present=True, **DURABLE) as client:
            client.message(payload="sent", dup=True)
            client.message(payload="new", dup=False)
            client.disconnect()
    end(quiet, name)


def test_what_a_later_connection_unsubscribes_does_not_come(quiet, name):
    away(quiet, name)
    with quiet.client(name, session_present=True, **DURABLE) as client, quiet.client(f"{name}p") as publisher:
        assert client.unsubscribe(f"{name}/1", f"{name}/none").reasons == [0, 0x11]
        client.subscribe(f"{name}/new", qos=1)
        for qos in (0, 1):
            for topic in ("1", "2", "new"):
                publisher.publish(f"{name}/{topic}", topic.encode(), qos=qos)
        got = sorted(message.payload for message in client.take(4))
        assert got == [b"2", b"2", b"new", b"new"]
        leave(quiet, client)
        publisher.publish(f"{name}/1", b"no")
        publisher.publish(f"{name}/new", b"yes")
        with quiet.client(name, session_present=True, **DURABLE) as client:
            client.message(payload="yes")
            assert client.unsubscribe(f"{name}/1").reasons == [0x11]
            client.disconnect()
    end(quiet, name)


def test_a_clean_start_ends_it(quiet, name):
    away(quiet, name)
    with quiet.client(name, session_present=False) as client, quiet.client(f"{name}p") as publisher:
        assert lingering(quiet) == 0
        assert quiet.metric("heraldmq_subscription_filters_bytes") == 0
        client.subscribe(f"{name}/end", qos=1)
        publisher.publish(f"{name}/1", b"no")
        publisher.publish(f"{name}/1", b"no", qos=1)
        publisher.publish(f"{name}/end", b"end", qos=1)
        assert client.until(b"end") == []


def test_a_session_that_ends_soon_does_not_linger(quiet, name):
    short = {"clean": False, "props": {"session_expiry": 1}}
    with quiet.client(name, **short) as client:
        subscribe_many(client, name)
        client.disconnect()
    until(lambda: quiet.metric("heraldmq_subscription_filters_bytes") == 0, what="no filters of connected clients")
    assert lingering(quiet) == 0
    no_filters(quiet)


def test_a_client_that_connects_and_goes_away_at_once_changes_no_routes(name):
    # A broker of its own: routes of other tests' sessions go some time after these have ended, and empty the cache as well.
    with Broker(QUIET) as broker, broker.client(f"{name}p") as publisher:

        def misses():
            return broker.metric("heraldmq_match_cache_misses_total")

        def is_judged():
            """False: it has taken so long that the routes may have gone by themselves."""
            client = broker.client(name, session_present=True, **DURABLE)
            clock = Stopwatch()
            leave(broker, client)
            publisher.published(f"{name}/1", b"0")
            before = misses()
            accepted = broker.metric("heraldmq_sockets_accepted_total")
            for _ in range(10):
                gone = broker.raw()
                gone.send(raw.connect(name, **DURABLE))
                gone.close()
            # One that is handled later would take the session from the client below.
            until(lambda: broker.metric("heraldmq_sockets_accepted_total") == accepted + 10, what="all ten connections")
            until(lambda: broker.metric("heraldmq_connections_open") == 1, what="the end of all ten")
            publisher.published(f"{name}/1", b"1")
            more = misses() - before
            in_time = clock.seconds() < LINGERS_S
            assert more == 0 or not in_time, more
            with broker.client(name, session_present=True, **DURABLE) as client:
                assert [message.payload for message in client.take(2)] == [b"0", b"1"]
            return in_time

        away(broker, name)
        until(is_judged, what="ten connections while the routes stay")


def test_a_client_does_not_hear_itself_by_no_local(quiet, name):
    option = raw.options(1, no_local=True)
    client = quiet.client(name, **DURABLE)
    subscribe_many(client, name, option=option)
    leave(quiet, client)
    with quiet.client(name, session_present=True, **DURABLE) as client, quiet.client(f"{name}p") as other:
        client.publish(f"{name}/1", b"own")
        client.published(f"{name}/1", b"own")
        other.publish(f"{name}/1", b"end")
        assert client.until(b"end") == []
        client.disconnect()
    end(quiet, name)


def test_what_a_shared_group_gets_meanwhile_goes_to_the_inbox_of_a_member(quiet, name):
    client = quiet.client(name, **DURABLE)
    subscribe_many(client, name)
    client.subscribe(f"$share/g/{name}/shared", qos=1)
    leave(quiet, client)
    with quiet.client(f"{name}p") as publisher:
        publisher.publish(f"{name}/shared", b"0")
        publisher.published(f"{name}/shared", b"1")
    with quiet.client(name, session_present=True, **DURABLE) as client:
        assert [message.payload for message in client.take(2)] == [b"0", b"1"]
        client.disconnect()
    end(quiet, name)


def test_filters_count_once_while_a_session_lingers(quiet, name):
    away(quiet, name)
    filters = sum(len(f"{name}/{number}") for number in range(MANY))
    for _ in range(3):
        assert quiet.metric("heraldmq_subscription_filters_bytes") == filters
        client = quiet.client(name, session_present=True, **DURABLE)
        assert quiet.metric("heraldmq_subscription_filters_bytes") == filters
        leave(quiet, client)
    end(quiet, name)


def test_wildcards_count_for_the_limit_of_the_next_connection(name):
    with Broker({**QUIET, "limits.session.wildcardPatterns": 2}) as broker:
        client = broker.client(name, **DURABLE)
        client.subscribe(f"+/{name}", f"{name}/+", qos=1)
        subscribe_many(client, name)
        leave(broker, client)
        with broker.client(name, session_present=True, **DURABLE) as client:
            client.subscribe(f"+/+/{name}", f"+/{name}2", qos=1, expect=[0x97, 1])
            client.unsubscribe(f"{name}/+")
            client.subscribe(f"+/+/{name}", qos=1)

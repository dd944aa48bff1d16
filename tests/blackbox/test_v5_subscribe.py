"""MQTT 5.0 by raw packets: subscriptions, filters, overlap, shared subscriptions, $SYS."""

import collections

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import PUBACK, PUBLISH, PUBREC, PUBREL, SUBACK, UNSUBACK
from harness.wait import until

KEEP = {"session_expiry": 60}


@pytest.fixture
def publisher(broker, name):
    with broker.client(name + "p") as client:
        yield client


@pytest.fixture
def subscriber(broker, name):
    with broker.client(name + "s") as client:
        yield client


# ---- SUBSCRIBE and SUBACK ------------------------------------------------------------------------


def test_suback_answers_each_filter_in_order(broker, name):
    # [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.8.4-7] [MQTT-3.9.3-1] [MQTT-3.9.3-2] [MQTT-2.2.1-6]
    with broker.client(name) as client:
        filters = [(name + "/a", 2), ("bad/#/filter", 0), (name + "/b", 0), ("$share//x", 1), (name + "/c", 1)]
        client.send(raw.subscribe(999, filters))
        assert client.expect(SUBACK, pid=999).reasons == [2, 0x8F, 0, 0x8F, 1]
        client.published(name + "/c", b"works")
        client.message(payload="works")


@pytest.mark.parametrize(
    "filter",
    [
        "a/#/b",  # [MQTT-4.7.1-1] last
        "a#",  # [MQTT-4.7.1-1] a level of its own
        "#a",
        "##",
        "a+",  # [MQTT-4.7.1-2] a level of its own
        "+a/b",
        "a/+b",
        "++",
        "$share//a",  # [MQTT-4.8.2-1] at least one character
        "$share/g",  # [MQTT-4.8.2-2] a filter must follow
        "$share/g/",
        "$share/g+/a",  # [MQTT-4.8.2-2] no wildcards in the name
        "$share/#/a",
        "$share/",
        "$share/g/a/#/b",
    ],
)
def test_invalid_filters(broker, name, filter):
    # 0x8F of table 3-8; the connection lives
    with broker.client(name) as client:
        client.subscribe(filter, expect=[0x8F])
        client.ping()


@pytest.mark.parametrize("packet", [raw.subscribe(1, [("a", 0), ("", 0)]), raw.unsubscribe(1, ["a", ""])])
def test_empty_filter(broker, name, packet):
    # [MQTT-4.7.3-1]
    with broker.client(name) as client:
        client.send(packet)
        client.expect_disconnected(0x81, 0x82)


@pytest.mark.parametrize("byte, reasons", [(0x40, {0x81}), (0x80, {0x81}), (0x03, {0x81, 0x82}), (0x30, {0x81, 0x82})])
def test_reserved_subscription_options(broker, name, byte, reasons):
    # [MQTT-3.8.3-5] reserved bits; 3.8.3.1: QoS 3 and Retain Handling 3 are protocol errors
    with broker.client(name) as client:
        client.send(raw.subscribe(1, [(name, byte)]))
        client.expect_disconnected(*reasons)


def test_no_local_on_a_shared_subscription(broker, name):
    # [MQTT-3.8.3-4]
    with broker.client(name) as client:
        client.send(raw.subscribe(1, [(f"$share/g/{name}", raw.options(no_local=True))]))
        client.expect_disconnected(0x82)


def test_no_local(broker, name):
    # [MQTT-3.8.3-3]
    with broker.client(name) as client, broker.client(name + "o") as other:
        client.subscribe(name, qos=1, no_local=True)
        client.published(name, b"own")
        other.published(name, b"other")
        client.message(payload="other")


def test_no_local_is_about_the_client_identifier(broker, name):
    # [MQTT-3.8.3-3] it holds for what the same client published over an earlier connection
    with broker.client(name, props=KEEP) as client:
        client.subscribe(name, qos=1, no_local=True)
    with (
        broker.client(name, clean=False, props=KEEP, session_present=True) as client,
        broker.client(name + "o") as other,
    ):
        client.published(name, b"own")
        other.published(name, b"other")
        client.message(payload="other")


def test_subscribing_again_replaces(broker, name, publisher):
    # [MQTT-3.8.4-3] one copy, with the newer options and identifier
    with broker.client(name) as client:
        client.subscribe(name, qos=2, props={"subscription_identifier": 1})
        client.subscribe(name, qos=0, props={"subscription_identifier": 2})
        publisher.published(name, b"x", qos=2)
        assert client.message(qos=0).props == {"subscription_identifier": [2]}
        client.subscribe(name, qos=1)
        publisher.published(name, b"y", qos=2)
        assert client.message(qos=1, payload="y").props == {}


def test_subscriptions_are_effective_at_suback(broker, name, publisher):
    # P3
    with broker.client(name) as client:
        for number in range(100):
            client.subscribe(f"{name}/{number}")
            publisher.publish(f"{name}/{number}", str(number))
            client.message(payload=str(number))


def test_unsubscribe(broker, name, publisher):
    # [MQTT-3.10.4-1] [MQTT-3.10.4-2] [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-3.11.3-1] [MQTT-3.11.3-2]
    with broker.client(name) as client:
        client.subscribe(f"{name}/a", f"{name}/+", f"{name}/end")
        client.send(raw.unsubscribe(77, [f"{name}/a", f"{name}/none", f"{name}/+", f"{name}/a"]))
        assert client.expect(UNSUBACK, pid=77).reasons == [0x00, 0x11, 0x00, 0x11]
        publisher.publish(f"{name}/a", b"x")
        publisher.publish(f"{name}/end", b"end")
        assert client.until(b"end") == []


def test_unsubscribe_compares_characters(broker, name, publisher):
    # [MQTT-3.10.4-1] a filter that merely covers the subscription is another filter
    with broker.client(name) as client:
        client.subscribe(f"{name}/a")
        assert client.unsubscribe(f"{name}/+", f"{name}/A", f"{name}/a/").reasons == [0x11] * 3
        publisher.publish(f"{name}/a", b"still")
        client.message(payload="still")


def test_unsubscribing_completes_what_is_in_flight(broker, name, publisher):
    # [MQTT-3.10.4-3]
    client = broker.client(name, props=KEEP)
    client.subscribe(name, qos=2)
    publisher.published(name, b"x", qos=2)
    pid = client.expect(PUBLISH).pid
    assert client.unsubscribe(name).reasons == [0]
    client.close()
    with broker.client(name, clean=False, session_present=True) as client:
        client.message(payload="x", dup=True, pid=pid)


# ---- matching ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filter, matching, others",
    [
        ("/#", ["", "/", "/a", "/a/b", "//"], ["x"]),  # 4.7.1.2: the parent too
        ("/+", ["/", "/a"], ["", "/a/b", "/a/"]),  # 4.7.1.3
        ("/+/+", ["//", "/a/b", "/a/"], ["/a", "/a/b/c"]),
        ("/+/b/#", ["/a/b", "/a/b/c", "//b/"], ["/a", "/a/c/b"]),
        ("/a", ["/a"], ["/A", "/a/", "/a ", "//a"]),  # 4.7.3: case, spaces and each "/" count
        ("/é", ["/é"], ["/e\u0301"]),  # [MQTT-4.7.3-4] no normalisation
        ("/\ufeffa", ["/\ufeffa"], ["/a"]),  # [MQTT-1.5.4-3]
        ("/$SYS/#", ["/$SYS", "/$SYS/a"], ["/SYS"]),  # 4.7.2: "$" is special at the start alone
        ("/" + "l/" * 60 + "#", ["/" + "l/" * 60 + "x"], ["/" + "l/" * 59 + "x"]),
    ],
)
def test_matching(broker, name, filter, matching, others):
    # [MQTT-3.3.2-3] [MQTT-4.7.1-1] [MQTT-4.7.1-2]
    with broker.client(name) as client, broker.client(name + "p") as publisher:
        client.subscribe(name + filter)
        client.subscribe(name + "end")
        for topic in others + matching:
            publisher.publish(name + topic, topic)
        publisher.publish(name + "end", b"end")
        assert [m.topic for m in client.until(b"end")] == [name + t for t in matching]


def test_wildcards_do_not_match_dollar_topics(broker, name):
    # [MQTT-4.7.2-1] neither "#" nor "+/…" shows $SYS or any other topic that starts with "$"
    with broker.client(name) as client, broker.client(name + "p") as publisher:
        client.subscribe("#", f"+/{name}/#")
        publisher.publish(f"${name}/{name}", b"hidden")
        publisher.publish(f"a/{name}", b"end")
        while (got := client.message()).payload != b"end":
            assert not got.topic.startswith("$"), got


def test_sys_topics(name):
    # 4.7.2; the names that Mosquitto users know, retained and renewed
    with Broker() as broker, broker.client(name) as client:
        client.subscribe("$SYS/#")
        seen = {}

        def complete():
            got = client.message()
            seen[got.topic] = got.payload.decode()
            return wanted <= set(seen) and seen["$SYS/broker/clients/connected"] == "1"

        wanted = {
            "$SYS/broker/" + topic
            for topic in (
                "version",
                "uptime",
                "clients/connected",
                "clients/total",
                "messages/received",
                "messages/sent",
                "subscriptions/count",
                "retained messages/count",
                "bytes/received",
                "bytes/sent",
            )
        }
        until(complete, what=lambda: f"the topics {sorted(wanted - set(seen))}")
        assert "heraldmq" in seen["$SYS/broker/version"].lower()


# ---- overlapping subscriptions -------------------------------------------------------------------


def test_overlapping_subscriptions_give_one_copy(broker, name, publisher):
    # [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4] highest QoS, all identifiers
    with broker.client(name) as client:
        client.subscribe(f"{name}/#", qos=0, props={"subscription_identifier": 1})
        client.subscribe(f"{name}/+", qos=2, props={"subscription_identifier": 268_435_455})
        client.subscribe(f"{name}/a", qos=1)
        publisher.published(f"{name}/a", b"x", qos=2)
        got = client.message(payload="x", qos=2)
        assert sorted(got.props["subscription_identifier"]) == [1, 268_435_455]
        publisher.publish(f"{name}/a", b"end")
        assert client.until(b"end") == []


def test_overlapping_no_local(broker, name):
    # [MQTT-3.8.3-3] [MQTT-3.3.4-2] no-local takes away one subscription's match, not the other's
    with broker.client(name) as client:
        client.subscribe(f"{name}/#", qos=2, no_local=True, props={"subscription_identifier": 1})
        client.subscribe(f"{name}/a", qos=1, props={"subscription_identifier": 2})
        client.published(f"{name}/a", b"x", qos=2)
        assert client.message(qos=1).props["subscription_identifier"] == [2]


def test_identifiers_stay_with_queued_messages(broker, name, publisher):
    # [MQTT-3.3.4-4] for messages that waited in the session
    with broker.client(name, props=KEEP) as client:
        client.subscribe(f"{name}/a", qos=1, props={"subscription_identifier": 7})
        client.subscribe(f"{name}/+", qos=1, props={"subscription_identifier": 8})
        client.disconnect()
    publisher.published(f"{name}/a", b"x")
    with broker.client(name, clean=False, session_present=True) as client:
        assert sorted(client.message().props["subscription_identifier"]) == [7, 8]


def test_retained_messages_carry_the_identifier(broker, name, publisher):
    # [MQTT-3.3.4-3]
    publisher.published(name, b"kept", retain=True)
    with broker.client(name) as client:
        client.subscribe(name, props={"subscription_identifier": 300})
        assert client.message(retain=True).props["subscription_identifier"] == [300]


# ---- shared subscriptions ------------------------------------------------------------------------


def collect(members, count):
    """Takes messages from several clients, acknowledging, until there are `count`; by member."""
    got = [[] for _ in members]

    def all_there():
        for member, mine in zip(members, got):
            while member.has_come():
                mine.append(member.message())
        return sum(map(len, got)) >= count

    until(all_there, what=lambda: f"{count} messages, got {[len(g) for g in got]}")
    return got


@pytest.mark.parametrize("prefix", ["$share/g/", "$queue/"])
def test_shared_subscription(broker, name, publisher, prefix):
    # 4.8.2: each message to one member, all members take part; others are not touched
    with broker.client(name + "1") as one, broker.client(name + "2") as two, broker.client(name + "3") as outside:
        for member in (one, two):
            member.subscribe(f"{prefix}{name}/+", qos=1)
        outside.subscribe(f"{name}/+", qos=1)
        for number in range(60):
            publisher.published(f"{name}/t", str(number))
        got = collect([one, two], 60)
        payloads = [int(m.payload) for part in got for m in part]
        assert sorted(payloads) == list(range(60))
        assert all(len(part) >= 10 for part in got), [len(part) for part in got]
        assert [int(m.payload) for m in outside.take(60)] == list(range(60))


def test_each_group_gets_its_copy(broker, name, publisher):
    # 4.8.2
    with broker.client(name + "1") as one, broker.client(name + "2") as two, broker.client(name + "3") as three:
        one.subscribe(f"$share/g/{name}")
        two.subscribe(f"$share/h/{name}")
        three.subscribe(f"$queue/{name}")
        for number in range(10):
            publisher.publish(name, str(number))
        for member in (one, two, three):
            assert [int(m.payload) for m in member.take(10)] == list(range(10))


def test_shared_and_own_subscription_of_one_client(broker, name, publisher):
    # 4.8.2: a shared subscription is apart from the client's other ones: a copy by each
    with broker.client(name) as client:
        client.subscribe(f"$share/g/{name}", qos=1)
        client.subscribe(name, qos=1)
        publisher.published(name, b"x")
        publisher.published(name, b"end")
        assert sorted(m.payload for m in client.take(4)) == [b"end", b"end", b"x", b"x"]


def test_shared_qos(broker, name, publisher):
    # [MQTT-4.8.2-3] [MQTT-3.8.4-8]
    with broker.client(name) as client:
        client.subscribe(f"$share/g/{name}", qos=1)
        publisher.published(name, b"x", qos=2)
        client.message(qos=1)
        publisher.published(name, b"x", qos=0)
        client.message(qos=0)


def test_no_retained_messages_for_shared_subscriptions(broker, name, publisher):
    # 4.8.2: a shared subscription gets no retained messages when it is made
    publisher.published(name, b"kept", retain=True)
    with broker.client(name) as client:
        client.subscribe(f"$share/g/{name}", qos=1)
        publisher.published(name, b"end")
        assert client.until(b"end") == []


def test_unsubscribing_from_a_group(broker, name, publisher):
    # [MQTT-3.10.4-1] for shared filters
    with broker.client(name + "1") as one, broker.client(name + "2") as two:
        for member in (one, two):
            member.subscribe(f"$share/g/{name}", qos=1)
        assert one.unsubscribe(name, f"$share/h/{name}", f"$share/g/{name}").reasons == [0x11, 0x11, 0x00]
        for number in range(10):
            publisher.published(name, str(number))
        assert [int(m.payload) for m in two.take(10)] == list(range(10))
        one.ping()


def test_shared_members_with_room_are_preferred(broker, name, publisher):
    # 4.8.2 leaves the choice to the server; the issue asks for free in-flight room
    with broker.client(name + "1", props={"receive_maximum": 1}) as stuck, broker.client(name + "2") as quick:
        for member in (stuck, quick):
            member.subscribe(f"$share/g/{name}", qos=1)
        for number in range(30):
            publisher.published(name, str(number))
        got = [int(m.payload) for m in collect([quick], 29)[0]]
        held = {int(stuck.expect(PUBLISH).payload)} if len(got) < 30 else set()
        assert set(got) | held == set(range(30))


@pytest.mark.parametrize("prefix", ["$share/g/", "$queue/", "$oshare/g/"])
def test_redispatch_when_a_member_leaves(broker, name, publisher, prefix):
    # 4.8.2 (QoS 1): what a leaving member had not acknowledged goes to another
    with broker.client(name + "2", props={"receive_maximum": 1000}) as stays:
        leaves = broker.client(name + "1", props={"receive_maximum": 1000})
        for member in (leaves, stays):
            member.subscribe(prefix + name, qos=1)
        for number in range(20):
            publisher.published(name, str(number))
        seen = set()
        leaves.close()
        while len(seen) < 20:
            seen.add(int(stays.message().payload))
        assert seen == set(range(20))


def test_no_redispatch_of_qos2_in_flight(broker, name, publisher):
    # [MQTT-4.8.2-5] a QoS 2 message that a session took with it goes to nobody else
    with broker.client(name + "2") as stays:
        leaves = broker.client(name + "1")
        leaves.subscribe(f"$share/g/{name}", qos=2)
        publisher.published(name, b"taken", qos=2)
        pid = leaves.expect(PUBLISH, qos=2, payload="taken").pid
        leaves.send(raw.ack(PUBREC, pid))
        leaves.expect(PUBREL, pid=pid)
        stays.subscribe(f"$share/g/{name}", qos=2)
        leaves.close()
        with broker.client(name + "1", session_present=False):
            publisher.published(name, b"end", qos=2)
            assert stays.until(b"end") == []


def test_qos2_in_flight_is_completed_on_return(broker, name, publisher):
    # [MQTT-4.8.2-4]
    leaves = broker.client(name + "1", props=KEEP)
    with broker.client(name + "2") as stays:
        leaves.subscribe(f"$share/g/{name}", qos=2)
        publisher.published(name, b"mine", qos=2)
        pid = leaves.expect(PUBLISH, payload="mine").pid
        stays.subscribe(f"$share/g/{name}", qos=2)
        leaves.close()
        with broker.client(name + "1", clean=False, session_present=True) as back:
            back.message(payload="mine", dup=True, pid=pid)


def test_a_refusal_discards_the_shared_message(broker, name, publisher):
    # [MQTT-4.8.2-6]
    with broker.client(name + "1") as refuses:
        refuses.subscribe(f"$share/g/{name}", qos=1)
        publisher.published(name, b"unwanted")
        got = refuses.expect(PUBLISH, payload="unwanted")
        with broker.client(name + "2") as other:
            other.subscribe(f"$share/g/{name}", qos=1)
            refuses.send(raw.ack(PUBACK, got.pid, reason=0x83))
            refuses.ping()
            refuses.disconnect()
            publisher.published(name, b"end")
            assert other.until(b"end") == []


def test_shared_messages_wait_for_an_offline_group(broker, name, publisher):
    # [MQTT-4.5.0-1] a group whose members are all away, but have sessions, loses nothing
    for member in "12":
        with broker.client(name + member, props=KEEP) as client:
            client.subscribe(f"$share/g/{name}", qos=1)
            client.disconnect()
    for number in range(10):
        publisher.published(name, str(number))
    with broker.client(name + "1", clean=False, session_present=True) as one:
        with broker.client(name + "2", clean=False, session_present=True) as two:
            got = collect([one, two], 10)
    assert sorted(int(m.payload) for part in got for m in part) == list(range(10))


def test_what_an_ended_session_had_queued_goes_to_another(broker, name, publisher):
    # More than are handed over at once; with what the other member subscribed with.
    with broker.client(name + "1", props=KEEP) as leaves:
        leaves.subscribe(f"$share/g/{name}", qos=2, props={"subscription_identifier": 7})
        leaves.disconnect()
    for number in range(300):
        publisher.published(name, str(number), qos=2)
    with broker.client(name + "2", props=KEEP) as stays:
        stays.subscribe(f"$share/g/{name}", qos=1, props={"subscription_identifier": 8})
        broker.client(name + "1", session_present=False).close()
        got = stays.take(300)
        assert [int(m.payload) for m in got] == list(range(300))
        assert all((m.qos, m.props["subscription_identifier"]) == (1, [8]) for m in got)


def test_what_an_ended_session_had_queued_survives_a_crash(tmp_path, name):
    with Broker(data_dir=tmp_path) as broker:
        for member in "12":
            with broker.client(name + member, props=KEEP) as client:
                client.subscribe(f"$share/g/{name}", qos=2)
                client.disconnect()
        with broker.client() as publisher:
            for number in range(600):
                publisher.published(name, str(number), qos=2)
        broker.client(name + "1", session_present=False).close()
        broker.kill()
    with Broker(data_dir=tmp_path) as broker:
        with broker.client(name + "2", clean=False, session_present=True) as stays:
            got = sorted(int(m.payload) for m in stays.take(600))
            assert got == list(range(600))


def test_online_members_are_preferred_to_offline_ones(broker, name, publisher):
    # 4.8.2: the server may choose; a member that is away would delay the message
    with broker.client(name + "1", props=KEEP) as away, broker.client(name + "2") as here:
        for member in (away, here):
            member.subscribe(f"$share/g/{name}", qos=1)
        away.disconnect()
        for number in range(10):
            publisher.published(name, str(number))
        assert [int(m.payload) for m in here.take(10)] == list(range(10))


def test_ordered_shared_subscription(broker, name):
    # $oshare: one publisher's messages keep to one member, and so keep their order
    members = [broker.client(f"{name}m{n}") for n in range(3)]
    publishers = [broker.client(f"{name}p{n}") for n in range(12)]
    for member in members:
        member.subscribe(f"$oshare/g/{name}", qos=1)
    for number in range(20):
        for which, publisher in enumerate(publishers):
            publisher.published(name, f"{which} {number}")
    got = collect(members, 240)
    owner = collections.defaultdict(set)
    for member, part in enumerate(got):
        by_publisher = collections.defaultdict(list)
        for message in part:
            which, number = map(int, message.payload.split())
            owner[which].add(member)
            by_publisher[which].append(number)
        assert all(numbers == list(range(20)) for numbers in by_publisher.values())
    assert all(len(keepers) == 1 for keepers in owner.values())
    assert len({k for keepers in owner.values() for k in keepers}) > 1, "one member got everything"
    for client in members + publishers:
        client.close()


def test_an_ordered_shared_subscription_keeps_a_publisher_that_reconnects(broker, name):
    members = [broker.client(f"{name}m{n}") for n in range(5)]
    for member in members:
        member.subscribe(f"$oshare/g/{name}", qos=1)
    others = []
    for number in range(12):
        others.append(broker.client(f"{name}o{number}"))  # takes the place that the publisher had
        with broker.client(f"{name}p") as client:
            client.published(name, str(number))
    got = [len(part) for part in collect(members, 12)]
    assert sorted(got) == [0, 0, 0, 0, 12]
    for client in members + others:
        client.close()


def test_shared_subscriptions_survive_reconnection(broker, name, publisher):
    # 4.1: subscriptions are part of the session
    with broker.client(name, props=KEEP) as client:
        client.subscribe(f"$share/g/{name}", qos=1)
    with broker.client(name, clean=False, session_present=True) as client:
        publisher.published(name, b"x")
        client.message(payload="x")


# ---- retained messages: what is looked at ----------------------------------------------------------


def test_looking_for_retained_messages_is_spread_over_turns(name):
    """A small SUBSCRIBE can make the broker look at a million topics: it does so a slice a turn, for each client."""
    topics, filters = 20_000, 50
    with Broker() as broker, broker.client(name) as client, broker.client(name + "p") as publisher:
        publisher.send(*(raw.publish(f"{name}/{n}/x", b"1", retain=True) for n in range(topics)))
        publisher.published(f"{name}/found/n{filters - 1}", b"found", qos=1, retain=True)
        before = broker.metric("heraldmq_loop_turns_total")
        client.subscribe(*(f"{name}/+/n{n}" for n in range(filters)))
        assert client.message().payload == b"found"
        assert broker.metric("heraldmq_loop_turns_total") - before > topics * filters / 2_048
        # A client that goes away while it is looked for does not stop anything.
        client.subscribe(*(f"{name}/+/m{n}" for n in range(filters)))
        client.close()
        publisher.ping()


"""MQTT 3.1.1 and 3.1 by raw packets: what differs from 5.0, and the core in their own encoding."""

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import CONNACK, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, UNSUBACK
from harness.wait import Stopwatch, elapse, until

pytestmark = pytest.mark.parametrize("version", [4, 3], ids=["3.1.1", "3.1"])


@pytest.fixture
def client(broker, name, version):
    """A connected client of the version at hand."""
    with broker.client(name, version=version) as connected:
        yield connected


@pytest.fixture
def publisher(broker, name, version):
    with broker.client(name + "p", version=version) as connected:
        yield connected


# ---- connecting --------------------------------------------------------------------------------


def test_connack(client):
    # [MQTT3-3.2.0-1] [MQTT3-3.1.4-4] [MQTT31-4] two bytes, no properties
    assert client.connack.body == b"\x00\x00"


def test_clean_session_and_session_present(broker, name, version):
    # [MQTT3-3.1.4-3] [MQTT3-3.1.3-2] [MQTT3-3.1.3-5] [MQTT3-4.1.0-2] [MQTT31-4]
    with broker.client(name, version=version, clean=False, session_present=False) as client:  # [MQTT3-3.2.2-3]
        client.subscribe(name, qos=1)
        client.disconnect()
    # [MQTT3-3.1.2-4] [MQTT3-3.2.2-2]; 3.1 has a reserved byte where 3.1.1 has the flag
    with broker.client(name, version=version, clean=False, session_present=version == 4) as client:
        client.published(name, b"kept")
        client.message(payload="kept")
        client.disconnect()
    # [MQTT3-3.1.2-6] [MQTT3-3.2.2-1]
    with broker.client(name, version=version, clean=True, session_present=False) as client:
        client.published(name, b"nobody")
        client.ping()
        client.disconnect()
    # [MQTT3-3.1.2-6] a clean session lasts as long as its connection
    with broker.client(name, version=version, clean=False, session_present=False):
        pass


def test_empty_client_identifier(broker, version):
    with broker.raw(version) as client:
        client.send(raw.connect("", version=version, clean=True))
        if version == 4:
            # [MQTT3-3.1.3-6] one is assigned
            client.expect(CONNACK, reason=0, session_present=False)
            client.ping()
        else:
            # [MQTT31-3] between 1 and 23 characters, else 2
            client.expect_refused(2)


def test_empty_client_identifier_with_a_stored_session(broker, version):
    # [MQTT3-3.1.3-7] [MQTT3-3.1.3-8] [MQTT3-3.1.3-9] 2, then closed
    with broker.raw(version) as client:
        client.send(raw.connect("", version=version, clean=False))
        client.expect_refused(2)


def test_long_client_identifier(broker, name, version):
    # 3.1 has 23 characters at most, which many of its clients do not keep to
    with broker.client((name + "x" * 100)[:100], version=version) as client:
        client.ping()


def test_strict_client_identifiers(name, version):
    # [MQTT31-2] 23 characters at most; 3.1.1 allows more
    long = (name + "x" * 30)[:24]
    with Broker({"mqtt.strictClientIdV31": True}) as broker:
        with broker.raw(version) as client:
            client.send(raw.connect(long, version=version))
            client.expect(CONNACK, reason=0) if version == 4 else client.expect_refused(2)
        with broker.client(long[:23], version=version):
            pass


def test_other_protocol_levels(broker, version):
    # [MQTT3-3.1.2-2] [MQTT31-9] [MQTT31-1] 1, then closed
    with broker.raw(version) as client:
        client.send(raw.connect("x", version=version, level=2 if version == 3 else 3))
        client.expect_refused(1)


def test_ping(client):
    # [MQTT3-3.12.4-1]
    client.ping()


def test_takeover(broker, name, version):
    # [MQTT3-3.1.4-2] closed without a word: these versions have no DISCONNECT from the server
    with broker.client(name, version=version, clean=False) as old:
        with broker.client(name, version=version, clean=False) as new:
            old.expect_closed()
            new.ping()


def test_keep_alive(broker, name, version):
    # [MQTT3-3.1.2-24] at one and a half times, and inbound packets keep alive: who pings outlasts who came later
    with broker.client(name + "p", version=version, keep_alive=6) as pinging:
        clock = Stopwatch()
        with broker.client(name, version=version, keep_alive=6) as silent:

            def ended():
                pinging.ping()
                return silent.has_come()

            until(ended, what="the end of the silent client")
            silent.expect_closed()
            assert clock.seconds() >= 8.9
        pinging.ping()


def test_keep_alive_maximum(name, version):
    # These versions cannot be told a server keep-alive: the client's own value counts, at 1.5.
    with Broker({"mqtt.keepAliveMaximum": 1}) as broker, broker.client(name, version=version, keep_alive=600) as client:
        # For one of 5.0 that came later the maximum has passed.
        with broker.client(name + "5", keep_alive=600) as five:
            five.expect_disconnected(0x8D)
        client.ping()


def test_session_expiry_of_old_sessions(name, version):
    # mqtt.sessionExpiryV3: 3.1.2.4 lets a server discard stored sessions by its own rule
    with Broker({"mqtt.sessionExpiryV3": 1}) as broker:
        with broker.client(name, version=version, clean=False) as client:
            client.subscribe(name, qos=1)
            assert broker.metric("heraldmq_sessions") == 1
            client.disconnect()
        until(lambda: broker.metric("heraldmq_sessions") == 0, what="the end of the session")
        with broker.client(name, version=version, clean=False) as client:
            client.published(name, b"nobody")
            client.ping()


# ---- wills -------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_will(broker, name, version, client, qos, retain):
    # [MQTT3-3.1.2-8] [MQTT3-3.1.2-9] [MQTT3-3.1.2-16] [MQTT3-3.1.2-17]
    client.subscribe(name + "/will", qos=2)
    will = {"topic": name + "/will", "payload": b"bye", "qos": qos, "retain": retain}
    broker.client(name + "w", version=version, will=will).close()
    client.message(payload="bye", qos=qos, retain=False)
    with broker.client(name + "late", version=version) as late:
        late.subscribe(name + "/will", qos=2)
        late.published(name + "/will", b"end")
        assert [m.payload for m in late.until(b"end")] == ([b"bye"] if retain else [])
    client.published(name + "/will", b"", retain=True)


def test_no_will_after_disconnect(broker, name, version, client):
    # [MQTT3-3.1.2-10] [MQTT3-3.14.4-3]
    client.subscribe(name + "/#")
    with broker.client(name + "w", version=version, will={"topic": name + "/will", "payload": b"bye"}) as other:
        other.disconnect()
    client.publish(name + "/end", b"end")
    assert client.until(b"end") == []


def test_will_on_keep_alive_timeout_and_on_error(broker, name, version, client):
    # [MQTT3-3.1.2-8] 3.1.2.5
    client.subscribe(name + "/#")
    with broker.client(name + "1", version=version, keep_alive=1, will={"topic": name + "/1", "payload": b"silent"}):
        client.message(payload="silent")
    with broker.client(name + "2", version=version, will={"topic": name + "/2", "payload": b"wrong"}) as wrong:
        wrong.publish("a/#", b"x")
        wrong.expect_closed()
        client.message(payload="wrong")


# ---- publish -----------------------------------------------------------------------------------


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos(name, client, publisher, published, granted):
    # [MQTT3-3.3.4-1] [MQTT3-2.3.1-5] [MQTT3-3.8.4-6] [MQTT3-4.3.1-1] [MQTT3-4.3.2-1] [MQTT3-4.3.2-2] [MQTT3-4.3.3-1] [MQTT3-4.3.3-2] [MQTT3-3.3.1-2]
    client.subscribe(name, qos=granted)
    publisher.published(name, b"x", qos=published)
    client.message(topic=name, payload="x", qos=min(published, granted), dup=False, retain=False)


def test_acknowledgements_have_their_short_form(name, publisher):
    # [MQTT3-2.3.1-6] 3.4 to 3.7: the packet identifier and nothing else
    publisher.publish(name, b"x", qos=1, pid=3)
    assert publisher.expect(PUBACK).body == b"\x00\x03"
    publisher.publish(name, b"x", qos=2, pid=4)
    assert publisher.expect(PUBREC).body == b"\x00\x04"
    publisher.send(raw.ack(PUBREL, 4))
    assert publisher.expect(PUBCOMP).body == b"\x00\x04"


def test_qos2_exactly_once_across_reconnection(broker, name, version, client):
    # [MQTT3-4.3.3-2] [MQTT3-4.4.0-1]
    client.subscribe(name, qos=2)
    sender = broker.client(name + "s", version=version, clean=False)
    sender.publish(name, b"once", qos=2, pid=5)
    sender.expect(PUBREC, pid=5)
    sender.close()
    with broker.client(name + "s", version=version, clean=False) as sender:
        sender.publish(name, b"once", qos=2, pid=5, dup=True)
        sender.expect(PUBREC, pid=5)
        sender.send(raw.ack(PUBREL, 5))
        sender.expect(PUBCOMP, pid=5)
        assert [m.payload for m in client.take(1)] == [b"once"]
        sender.published(name, b"end")
        assert client.until(b"end") == []


def test_acknowledgements_come_in_order(name, publisher, version):
    # [MQTT3-4.6.0-2] [MQTT3-4.6.0-3] [MQTT3-4.6.0-4] hold for both sides
    publisher.send(*(raw.publish(name, b"x", version=version, qos=1, pid=p) for p in range(1, 51)))
    assert [publisher.expect(PUBACK).pid for _ in range(50)] == list(range(1, 51))
    publisher.send(*(raw.publish(name, b"x", version=version, qos=2, pid=p) for p in range(1, 51)))
    assert [publisher.expect(PUBREC).pid for _ in range(50)] == list(range(1, 51))
    publisher.send(*(raw.ack(PUBREL, p) for p in range(1, 51)))
    assert [publisher.expect(PUBCOMP).pid for _ in range(50)] == list(range(1, 51))


def test_longest_topic(name, version):
    # [MQTT3-4.7.3-3]
    topic = name + "x" * (65535 - len(name))
    with Broker({"limits.topic.length": 65535}) as broker, broker.client(name, version=version) as client:
        client.subscribe(topic)
        client.publish(topic, b"far")
        client.message(topic=topic, payload="far")


def test_nothing_is_processed_after_disconnect(broker, name, version, client):
    # [MQTT3-3.14.4-2]
    client.subscribe(name)
    with broker.client(name + "d", version=version) as other:
        other.send(raw.disconnect(), raw.publish(name, b"after the end", version=version))
        other.expect_closed()
    client.publish(name, b"end")
    assert client.until(b"end") == []


def test_dup_flags_of_3_1(broker, name, version):
    # [MQTT31-6] 3.1 alone lets PUBREL, SUBSCRIBE and UNSUBSCRIBE be sent again with DUP
    if version == 4:
        pytest.skip("reserved flags in 3.1.1")
    with broker.client(name, version=version) as client:
        client.send(b"\x8a" + raw.subscribe(1, [(name, 1)], version=version)[1:])
        client.expect(SUBACK, pid=1)
        client.publish(name, b"x", qos=2, pid=2)
        client.answer(PUBREC, 2)
        client.send(b"\x6a\x02\x00\x02")
        client.answer(PUBCOMP, 2)
        client.message(payload="x")
        client.send(b"\xaa" + raw.unsubscribe(3, [name], version=version)[1:])
        client.expect(UNSUBACK, pid=3)


def test_pubrel_of_an_unknown_identifier(publisher):
    # [MQTT3-4.3.3-2] PUBREL is answered with PUBCOMP
    publisher.send(raw.ack(PUBREL, 4711))
    publisher.expect(PUBCOMP, pid=4711)


def test_redelivery(broker, name, version, publisher):
    # [MQTT3-4.4.0-1] [MQTT3-3.3.1-1] [MQTT3-4.6.0-1] messages with DUP, PUBREL, identifiers, order
    client = broker.client(name, version=version, clean=False)
    client.subscribe(name, qos=2)
    for number, qos in enumerate((2, 1, 2)):
        publisher.published(name, str(number), qos=qos)
    first = [client.expect(PUBLISH) for _ in range(3)]
    client.send(raw.ack(PUBREC, first[0].pid))
    client.expect(PUBREL, pid=first[0].pid)
    client.close()
    with broker.client(name, version=version, clean=False) as client:
        again = [client.recv() for _ in range(3)]
        assert [p.pid for p in again if p.kind == PUBREL] == [first[0].pid]
        assert [(p.pid, p.payload, p.dup) for p in again if p.kind == PUBLISH] == [
            (p.pid, p.payload, True) for p in first[1:]
        ]


def test_offline_queue(broker, name, version, publisher):
    # [MQTT3-3.1.2-5] [MQTT3-4.1.0-1] [MQTT3-4.5.0-1] [MQTT3-4.6.0-5] [MQTT3-4.6.0-6]
    with broker.client(name, version=version, clean=False) as client:
        client.subscribe(name, qos=2)
        client.disconnect()
    for number in range(30):
        publisher.published(name, str(number), qos=1 + number % 2)
    with broker.client(name, version=version, clean=False) as client:
        assert [int(m.payload) for m in client.take(30)] == list(range(30))


def test_in_flight_window(broker, name, version, publisher):
    # limits.connection.inflightMaximum is 128: no Receive Maximum in these versions
    with broker.client(name, version=version) as client:
        client.subscribe(name, qos=1)
        for number in range(130):
            publisher.published(name, str(number))
        pids = [client.expect(PUBLISH, payload=str(n)).pid for n in range(128)]
        client.ping()
        assert len(set(pids)) == 128 and 0 not in pids  # [MQTT3-2.3.1-4]
        client.send(*(raw.ack(PUBACK, p) for p in pids))
        client.take(2)


def test_retained_messages(name, client, publisher):
    # [MQTT3-3.3.1-5] [MQTT3-3.3.1-6] [MQTT3-3.3.1-8] [MQTT3-3.3.1-9] [MQTT3-3.3.1-10] [MQTT3-3.3.1-11] [MQTT3-3.3.1-12]
    publisher.published(name, b"kept", qos=1, retain=True)
    client.subscribe(name, qos=2)
    client.message(payload="kept", qos=1, retain=True)
    publisher.published(name, b"live", retain=True)
    client.message(payload="live", retain=False)
    publisher.published(name, b"passing")
    client.message(payload="passing", retain=False)
    client.subscribe(name, qos=0)  # [MQTT3-3.8.4-3] replaced, retained ones sent again
    client.message(payload="live", qos=0, retain=True)
    publisher.published(name, b"", retain=True)
    client.message(payload="", retain=False)
    client.subscribe(name)
    client.ping()


# ---- subscribe ---------------------------------------------------------------------------------


def test_suback_in_order_with_failures(client, version, name):
    # [MQTT31-5] 3.1 has no code for failure, and must see none
    # [MQTT3-4.7.1-2] [MQTT3-4.7.1-3] [MQTT3-2.3.1-7] [MQTT3-3.8.4-1] [MQTT3-3.8.4-2] [MQTT3-3.8.4-4] [MQTT3-3.8.4-5] [MQTT3-3.9.3-1] [MQTT3-3.9.3-2]
    filters = [(name + "/a", 2), ("bad/#/filter", 0), (name + "/b", 0), ("a+", 1), (name + "/c", 1)]
    client.send(raw.subscribe(500, filters, version=version))
    refused = 0x80 if version == 4 else 0
    assert client.expect(SUBACK, pid=500).reasons == [2, refused, 0, refused, 1]
    client.published(name + "/c", b"works", qos=1)
    client.message(payload="works", qos=1)


def test_unsubscribe(client, name, version):
    # [MQTT3-3.10.4-1] [MQTT3-3.10.4-2] [MQTT3-3.10.4-4] [MQTT3-3.10.4-5] [MQTT3-3.10.4-6]
    client.subscribe(name, name + "/end")
    client.send(raw.unsubscribe(77, [name, name + "/none"], version=version))
    assert client.expect(UNSUBACK, pid=77).body == b"\x00\x4d"
    client.publish(name, b"x")
    client.publish(name + "/end", b"end")
    assert client.until(b"end") == []


def test_unsubscribing_completes_what_is_in_flight(broker, name, version):
    # [MQTT3-3.10.4-3]
    with broker.client(name, version=version) as client:
        client.subscribe(name, qos=2)
        client.publish(name, b"x", qos=1, pid=1)
        client.answer(PUBACK, 1)
        pid = client.expect(PUBLISH).pid
        client.unsubscribe(name)
        client.send(raw.ack(PUBACK, pid))
        client.ping()


def test_overlapping_subscriptions(client, name):
    # [MQTT3-3.3.5-1] the highest QoS; one copy
    client.subscribe((f"{name}/#", 0), (f"{name}/+", 2), (f"{name}/a", 1))
    client.published(f"{name}/a", b"x", qos=2)
    client.message(payload="x", qos=2)
    client.publish(f"{name}/a", b"end")
    assert client.until(b"end") == []


def test_matching(client, name):
    # [MQTT3-3.3.2-3] [MQTT3-4.7.1-2] [MQTT3-4.7.1-3] [MQTT3-4.7.2-1] [MQTT3-4.7.3-4] [MQTT3-1.5.3-3]
    client.subscribe(f"{name}/+/b/#", f"{name}/\ufeffé", f"+/{name}")
    topics = ["/a/b", "/a/b/c", "//b", "/a/c", "/\ufeffé", "/é", "/\ufeffe\u0301", "/A/B"]
    for topic in topics:
        client.publish(name + topic, b"x")
    client.publish(f"$x/{name}", b"hidden")
    client.publish(f"x/{name}", b"end")
    assert [m.topic[len(name) :] for m in client.until(b"end")] == ["/a/b", "/a/b/c", "//b", "/\ufeffé"]


def test_wildcards_not_available(name, version):
    # [MQTT3-3.8.3-2]
    with Broker({"mqtt.wildcardSubscriptionAvailable": False}) as broker:
        with broker.client(name, version=version) as client:
            client.send(raw.subscribe(1, [(name + "/#", 0)], version=version))
            client.expect(SUBACK, reasons=[0x80 if version == 4 else 0])  # [MQTT31-5]
            client.publish(name + "/x", b"unseen")
            client.ping()


def test_dup_is_not_passed_on(name, client):
    # [MQTT3-3.3.1-3]
    client.subscribe(name, qos=1)
    client.publish(name, b"x", qos=1, pid=1, dup=True)
    client.answer(PUBACK, 1)
    client.message(payload="x", dup=False)


def test_retained_messages_outlive_sessions(broker, name, version, client):
    # [MQTT3-3.1.2-7]; [MQTT3-3.3.1-7] the later one at QoS 0 takes the place of the one before
    with broker.client(name + "r", version=version) as other:
        other.published(name, b"one", retain=True)
        other.publish(name, b"two", retain=True)
        # Its acknowledgement says that what went before it to this topic has been handled, too: QoS 0 has none.
        other.published(name, b"three")
        other.disconnect()
    client.subscribe(name, qos=1)
    client.message(payload="two", qos=0, retain=True)


def test_no_will_without_one(broker, name, version, client):
    # [MQTT3-3.1.2-12] [MQTT3-3.1.2-10] a will that was published is gone for the next connection
    client.subscribe(name + "/#")
    will = {"topic": name + "/will", "payload": b"bye"}
    broker.client(name + "w", version=version, clean=False, will=will).close()
    client.message(payload="bye")
    broker.client(name + "w", version=version, clean=False).close()
    client.publish(name + "/end", b"end")
    assert client.until(b"end") == []


def test_own_messages_come_back(client, name):
    # These versions know no no-local.
    client.subscribe(name, qos=1)
    client.published(name, b"own")
    client.message(payload="own")


def test_shared_subscriptions(broker, name, version, publisher):
    # An extension for these versions, as in all brokers; the same filters.
    with broker.client(name + "1", version=version) as one, broker.client(name + "2", version=version) as two:
        one.subscribe(f"$share/g/{name}", qos=1)
        two.subscribe(f"$share/g/{name}", qos=1)
        two.unsubscribe(f"$share/g/{name}")
        for number in range(10):
            publisher.published(name, str(number))
        assert [int(m.payload) for m in one.take(10)] == list(range(10))


# ---- across versions ---------------------------------------------------------------------------


def test_properties_of_5_are_left_out(broker, name, client):
    # A 5.0 publisher with every property, and an older subscriber: an ordinary packet arrives.
    client.subscribe(name, qos=1)
    props = {
        "payload_format": 1,
        "message_expiry": 10,
        "content_type": "t",
        "response_topic": "r",
        "correlation_data": b"c",
        "user_property": [("k", "v")],
        "topic_alias": 1,
    }
    with broker.client(name + "5") as five:
        five.published(name, b"x", props=props)
    got = client.message(payload="x", qos=1)
    assert got.size == len(raw.publish(name, b"x", version=4, qos=1, pid=1))


def test_to_a_client_of_5(broker, name, version, publisher):
    # The other way round: no properties but those of the subscription.
    with broker.client(name + "5") as five:
        five.subscribe(name, qos=1, props={"subscription_identifier": 4})
        publisher.published(name, b"x")
        assert five.message(payload="x").props == {"subscription_identifier": [4]}


def test_message_expiry_for_old_clients(broker, name, version):
    # [MQTT-3.3.2-5] the publisher's wish holds for subscribers of every version
    with broker.client(name, version=version, clean=False) as client:
        client.subscribe(name, qos=1)
        client.disconnect()
    with broker.client(name + "5") as five:
        five.published(name, b"dies", props={"message_expiry": 1})
        five.published(name, b"lives")
    elapse(1.5)
    with broker.client(name, version=version, clean=False) as client:
        client.message(payload="lives")


def test_a_session_changes_its_version(broker, name, version):
    # A session made by one version is resumed by another, with all that waits in it.
    with broker.client(name, version=version, clean=False) as client:
        client.subscribe(name, qos=1)
        client.disconnect()
    with broker.client(name, clean=False, props={"session_expiry": 60}, session_present=True) as five:
        five.disconnect()
    with broker.client(name + "p") as publisher:
        publisher.published(name, b"x", props={"user_property": [("k", "v")]})
    with broker.client(name, version=version, clean=False) as client:
        client.message(payload="x")


def test_identifiers_of_the_session_stay_in_use(broker, name, version, client):
    # [MQTT3-2.3.1-4] new messages never take the identifier of one still in flight
    client.subscribe(name, qos=1)
    with broker.client(name + "p", version=version) as publisher:
        publisher.published(name, b"stays")
        stays = client.expect(PUBLISH, payload="stays").pid
        for number in range(300):
            publisher.published(name, str(number))
            got = client.message(payload=str(number))
            assert got.pid != stays

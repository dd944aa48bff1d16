"""MQTT 5.0 by raw packets: publishing, acknowledgement, flow control, redelivery, properties."""

import collections
import contextlib

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from harness.wait import Stopwatch, elapse, until

KEEP = {"session_expiry": 60}


@pytest.fixture
def publisher(broker, name):
    with broker.client(name + "p") as client:
        yield client


@pytest.fixture
def subscriber(broker, name):
    with broker.client(name + "s") as client:
        yield client


def test_longest_topic(name):
    # [MQTT-4.7.3-3] 65,535 bytes, in few levels
    topic = name + "x" * (65535 - len(name))
    with Broker({"limits.topic.length": 65535}) as broker:
        with broker.client(name + "p") as publisher, broker.client(name + "s") as subscriber:
            subscriber.subscribe(topic)
            publisher.publish(topic, b"far")
            subscriber.message(topic=topic, payload="far")


# ---- quality of service ------------------------------------------------------------------------


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_is_the_lesser_of_both(name, publisher, subscriber, published, granted):
    # [MQTT-3.8.4-8] [MQTT-3.3.4-1] [MQTT-4.3.2-4] [MQTT-2.2.1-2] [MQTT-3.3.1-2] [MQTT-4.3.1-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2]
    subscriber.subscribe(name, qos=granted)
    publisher.published(name, b"x", qos=published)
    got = subscriber.message(topic=name, payload="x", qos=min(published, granted), dup=False, retain=False)
    assert got.qos == 0 or got.pid > 0  # [MQTT-2.2.1-4]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 200_000])
def test_payload_sizes(name, publisher, subscriber, size):
    # 3.3.3: a payload of zero length is valid; Remaining Length of one to three bytes and more
    subscriber.subscribe(name, qos=1)
    payload = bytes(n * 7 % 256 for n in range(size))
    publisher.published(name, payload)
    assert subscriber.message().payload == payload


def test_dup_is_not_passed_on(name, publisher, subscriber):
    # [MQTT-3.3.1-3]
    subscriber.subscribe(name, qos=1)
    publisher.publish(name, b"x", qos=1, dup=True)
    publisher.expect(PUBACK)
    subscriber.message(payload="x", dup=False)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_order_of_one_publisher(name, publisher, subscriber, qos):
    # [MQTT-4.6.0-5] [MQTT-4.6.0-6]
    subscriber.subscribe(name, qos=qos)
    count = 500
    for number in range(count):
        publisher.publish(name, str(number), qos=qos)
        if qos == 2:
            # Stays inside the broker's Receive Maximum [MQTT-3.3.4-7].
            pid = publisher.expect(PUBREC).pid
            publisher.send(raw.ack(PUBREL, pid))
            publisher.expect(PUBCOMP, pid=pid)
    assert [int(m.payload) for m in subscriber.take(count)] == list(range(count))


def test_acknowledgements_come_in_order(name, publisher):
    # [MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-4] hold for both sides of the protocol
    publisher.send(*(raw.publish(name, b"x", qos=1, pid=p) for p in range(1, 101)))
    assert [publisher.expect(PUBACK).pid for _ in range(100)] == list(range(1, 101))
    publisher.send(*(raw.publish(name, b"x", qos=2, pid=p) for p in range(1, 101)))
    assert [publisher.expect(PUBREC).pid for _ in range(100)] == list(range(1, 101))
    publisher.send(*(raw.ack(PUBREL, p) for p in range(1, 101)))
    assert [publisher.expect(PUBCOMP).pid for _ in range(100)] == list(range(1, 101))


def test_qos1_packet_identifier_is_free_after_puback(name, publisher, subscriber):
    # [MQTT-4.3.2-5] the same identifier again is a new publication, whatever its DUP flag
    subscriber.subscribe(name, qos=1)
    for dup in (False, True):
        publisher.publish(name, b"same", qos=1, pid=7, dup=dup)
        publisher.expect(PUBACK, pid=7)
    assert len(subscriber.take(2)) == 2


def test_no_matching_subscribers(name, publisher):
    # 3.4.2.1: 0x10 may be used in place of 0x00, nothing else
    assert publisher.published(name, b"nobody", qos=1).reason in (0x00, 0x10)
    assert publisher.published(name, b"nobody", qos=2).reason in (0x00, 0x10)


# ---- QoS 2, inbound ----------------------------------------------------------------------------


def test_qos2_duplicate_before_release(name, publisher, subscriber):
    # [MQTT-4.3.3-8] [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12] [MQTT-2.2.1-5]
    subscriber.subscribe(name, qos=2)
    for dup in (False, True, True):
        publisher.publish(name, b"once", qos=2, pid=7, dup=dup)
        publisher.expect(PUBREC, pid=7)
    publisher.send(raw.ack(PUBREL, 7))
    publisher.expect(PUBCOMP, pid=7, reason=0)
    # After PUBCOMP the identifier names a new publication.
    publisher.published(name, b"again", qos=2, pid=7)
    assert [m.payload for m in subscriber.take(2)] == [b"once", b"again"]
    publisher.publish(name, b"end")
    assert subscriber.until(b"end") == []


def test_qos2_exactly_once_across_reconnection(broker, name, subscriber):
    # [MQTT-4.3.3-10] the identifier is part of the session (4.1)
    subscriber.subscribe(name, qos=2)
    sender = broker.client(name, clean=False, props=KEEP)
    sender.publish(name, b"once", qos=2, pid=5)
    sender.expect(PUBREC, pid=5)
    sender.close()
    with broker.client(name, clean=False, props=KEEP, session_present=True) as sender:
        sender.publish(name, b"once", qos=2, pid=5, dup=True)
        sender.expect(PUBREC, pid=5)
        sender.send(raw.ack(PUBREL, 5))
        sender.expect(PUBCOMP, pid=5, reason=0)
        sender.published(name, b"new", qos=2, pid=5)
        assert [m.payload for m in subscriber.take(2)] == [b"once", b"new"]
        sender.publish(name, b"end")
        assert subscriber.until(b"end") == []


def test_qos2_identifiers_end_with_the_session(broker, name, subscriber):
    # [MQTT-3.1.2-4] a new session remembers no identifier
    subscriber.subscribe(name, qos=2)
    sender = broker.client(name, clean=False, props=KEEP)
    sender.publish(name, b"first", qos=2, pid=5)
    sender.expect(PUBREC, pid=5)
    sender.close()
    with broker.client(name, clean=True, session_present=False) as sender:
        sender.published(name, b"second", qos=2, pid=5)
    assert [m.payload for m in subscriber.take(2)] == [b"first", b"second"]


def test_pubrel_of_an_unknown_identifier(publisher):
    # 3.7.2.1: 0x92, and the connection lives
    publisher.send(raw.ack(PUBREL, 4711))
    publisher.expect(PUBCOMP, pid=4711, reason=0x92)


def test_pubrec_of_an_unknown_identifier(publisher):
    # 3.6.2.1: PUBREL with 0x92
    publisher.send(raw.ack(PUBREC, 4711))
    publisher.expect(PUBREL, pid=4711, reason=0x92)


@pytest.mark.parametrize("kind", [PUBACK, PUBCOMP])
def test_acknowledgement_of_an_unknown_identifier(publisher, kind):
    # 4.4: no error is defined for it; it changes nothing
    publisher.send(raw.ack(kind, 4711))
    publisher.ping()


# ---- redelivery --------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_are_resent_on_reconnection(broker, name, publisher, qos):
    # [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.3.2-3] [MQTT-4.3.3-3] same identifiers, DUP, same order
    client = broker.client(name, clean=False, props=KEEP)
    client.subscribe(name, qos=qos)
    for number in range(5):
        publisher.published(name, str(number), qos=qos)
    first = [client.expect(PUBLISH, qos=qos, dup=False) for _ in range(5)]
    # Nothing is resent on a connection that lives.
    client.ping()
    client.close()
    with broker.client(name, clean=False, props=KEEP, session_present=True) as client:
        again = [client.expect(PUBLISH, qos=qos, dup=True) for _ in range(5)]
        assert [(m.pid, m.payload) for m in again] == [(m.pid, m.payload) for m in first]


def test_acknowledged_messages_are_not_resent(broker, name, publisher):
    # [MQTT-4.4.0-2] an error in PUBACK or PUBREC acknowledges too
    client = broker.client(name, clean=False, props=KEEP)
    client.subscribe(name, qos=2)
    for payload, qos in (("a", 1), ("b", 1), ("c", 2), ("d", 1)):
        publisher.published(name, payload, qos=qos)
    a, b, c, d = [client.expect(PUBLISH) for _ in range(4)]
    client.send(raw.ack(PUBACK, a.pid), raw.ack(PUBACK, b.pid, reason=0x80), raw.ack(PUBREC, c.pid, reason=0x87))
    client.ping()
    client.close()
    with broker.client(name, clean=False, props=KEEP, session_present=True) as client:
        client.message(payload="d", dup=True, pid=d.pid)
        client.ping()


def test_pubrel_owed_across_reconnection(broker, name, publisher):
    # [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6] [MQTT-4.4.0-1] PUBREL again, the message not
    client = broker.client(name, clean=False, props=KEEP)
    client.subscribe(name, qos=2)
    publisher.published(name, b"x", qos=2)
    pid = client.expect(PUBLISH, qos=2).pid
    client.send(raw.ack(PUBREC, pid))
    client.expect(PUBREL, pid=pid, reason=0)
    client.close()
    for _ in range(2):
        client = broker.client(name, clean=False, props=KEEP, session_present=True)
        client.expect(PUBREL, pid=pid)
        client.ping()
        client.close()
    with broker.client(name, clean=False, props=KEEP, session_present=True) as client:
        client.expect(PUBREL, pid=pid)
        client.send(raw.ack(PUBCOMP, pid))
        client.ping()
        client.close()
    with broker.client(name, clean=False, session_present=True) as client:
        client.ping()


# ---- flow control ------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_receive_maximum_of_the_client(broker, name, publisher, qos):
    # [MQTT-3.3.4-9] [MQTT-3.3.4-10] [MQTT-4.9.0-1] [MQTT-4.9.0-2] [MQTT-4.9.0-3]
    with broker.client(name, props={"receive_maximum": 3}) as client:
        client.subscribe(name, qos=qos)
        for number in range(6):
            publisher.published(name, str(number), qos=qos)
        window = [client.expect(PUBLISH, payload=str(n)) for n in range(3)]
        assert len({m.pid for m in window}) == 3
        client.ping()  # answered, and no fourth message before it
        if qos == 2:
            # PUBREC frees no room; PUBCOMP does (4.9).
            client.send(raw.ack(PUBREC, window[0].pid))
            client.expect(PUBREL, pid=window[0].pid)
            client.ping()
        client.send(raw.ack(PUBACK if qos == 1 else PUBCOMP, window[0].pid))
        fourth = client.expect(PUBLISH, payload="3")
        assert fourth.pid not in {m.pid for m in window[1:]}  # [MQTT-2.2.1-4]
        client.ping()


def test_refused_pubrec_frees_room(broker, name, publisher):
    # 4.9: PUBREC with 0x80 or more increments the send quota
    with broker.client(name, props={"receive_maximum": 1}) as client:
        client.subscribe(name, qos=2)
        publisher.published(name, b"0", qos=2)
        publisher.published(name, b"1", qos=2)
        client.send(raw.ack(PUBREC, client.expect(PUBLISH, payload="0").pid, reason=0x83))
        client.expect(PUBLISH, payload="1")


def test_inflight_limit_of_the_server(name):
    # limits.connection.inflightMaximum, below the client's Receive Maximum
    with Broker({"limits.connection.inflightMaximum": 4}) as broker:
        with broker.client(name, props={"receive_maximum": 100}) as client, broker.client(name + "p") as publisher:
            client.subscribe(name, qos=1)
            for number in range(10):
                publisher.published(name, str(number))
            pids = [client.expect(PUBLISH, payload=str(n)).pid for n in range(4)]
            client.ping()
            client.send(*(raw.ack(PUBACK, p) for p in pids))
            client.take(6)


def test_in_flight_identifiers_are_distinct(broker, name, publisher):
    # [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
    with broker.client(name, props={"receive_maximum": 1000}) as client:
        client.subscribe(name, qos=1)
        for number in range(128):
            publisher.published(name, str(number))
        pids = [client.expect(PUBLISH).pid for _ in range(128)]
        assert len(set(pids)) == 128 and 0 not in pids


def test_receive_maximum_of_the_server_exceeded(name):
    # [MQTT-3.3.4-7] 3.3.4: DISCONNECT 0x93
    with Broker({"limits.connection.receiveMaximum": 2}) as broker, broker.client(name) as client:
        assert client.connack.props["receive_maximum"] == 2
        client.publish(name, b"x", qos=2, pid=1)
        client.publish(name, b"x", qos=2, pid=2)
        client.expect(PUBREC, pid=1)
        client.expect(PUBREC, pid=2)
        # A retransmission is not one more. 4.3.3
        client.publish(name, b"x", qos=2, pid=2, dup=True)
        client.expect(PUBREC, pid=2)
        client.publish(name, b"x", qos=2, pid=3)
        client.expect_disconnected(0x93)


def test_receive_maximum_is_usable_again_and_again(name):
    # [MQTT-3.3.4-7] each PUBCOMP gives one place back
    with Broker({"limits.connection.receiveMaximum": 2}) as broker, broker.client(name) as client:
        for _ in range(20):
            client.published(name, b"x", qos=2)
            client.published(name, b"x", qos=1)


# ---- topic aliases -----------------------------------------------------------------------------


def test_inbound_topic_alias(name, publisher, subscriber):
    # [MQTT-3.3.2-12] all values up to the maximum; an alias can be given another topic
    subscriber.subscribe(name + "/#")
    for alias in (1, 64):
        publisher.publish(name + "/a", b"1", props={"topic_alias": alias})
        publisher.publish("", b"2", props={"topic_alias": alias})
        publisher.publish(name + "/b", b"3", props={"topic_alias": alias})
        publisher.publish("", b"4", qos=1, pid=1, props={"topic_alias": alias})
        publisher.expect(PUBACK)
        got = subscriber.take(4)
        assert [(m.topic[len(name) :], m.payload) for m in got] == [
            ("/a", b"1"),
            ("/a", b"2"),
            ("/b", b"3"),
            ("/b", b"4"),
        ]
        # The subscriber allowed no aliases [MQTT-3.1.2-27].
        assert not any("topic_alias" in m.props for m in got)


@pytest.mark.parametrize("alias, reasons", [(65, {0x94}), (65535, {0x94}), (0, {0x94, 0x82, 0x81})])
def test_topic_alias_out_of_range(broker, name, alias, reasons):
    # [MQTT-3.3.2-8] [MQTT-3.3.2-9] [MQTT-3.2.2-17] 0x94
    with broker.client(name) as client:
        client.publish(name, b"x", props={"topic_alias": alias})
        client.expect_disconnected(*reasons)


def test_topic_alias_maximum_zero(name):
    # [MQTT-3.2.2-18] absent or 0: none may be sent
    with Broker({"mqtt.topicAliasMaximum": 0}) as broker, broker.client(name) as client:
        assert client.connack.props.get("topic_alias_maximum", 0) == 0
        client.publish(name, b"x", props={"topic_alias": 1})
        client.expect_disconnected(0x94)


@pytest.mark.parametrize("props", [{"topic_alias": 3}, {}])
def test_empty_topic_without_a_known_alias(broker, name, props):
    # 3.3.2.1, 3.3.4: a protocol error. (0x94 is for values out of range.)
    with broker.client(name) as client:
        client.publish("", b"x", props=props)
        client.expect_disconnected(0x82)


def test_topic_aliases_end_with_the_connection(broker, name):
    # [MQTT-3.3.2-7]
    client = broker.client(name, clean=False, props=KEEP)
    client.publish(name, b"x", props={"topic_alias": 1})
    client.ping()
    client.close()
    with broker.client(name, clean=False, props=KEEP, session_present=True) as client:
        client.publish("", b"x", props={"topic_alias": 1})
        client.expect_disconnected(0x82)


def test_outbound_topic_aliases(broker, name, publisher):
    # [MQTT-3.1.2-26] [MQTT-3.3.2-11] never past the client's maximum; each alias
    # is introduced with its topic; every message can be told its topic
    with broker.client(name, props={"topic_alias_maximum": 3}) as client:
        client.subscribe(name + "/#", qos=1)
        known, used = {}, 0
        for number in range(60):
            publisher.published(f"{name}/{number % 5}", str(number))
        for number in range(60):
            got = client.message()
            alias = got.props.get("topic_alias")
            if alias is not None:
                used += 1
                assert 1 <= alias <= 3
                if got.topic:
                    known[alias] = got.topic
            topic = got.topic or known[alias]
            assert (topic, got.payload) == (f"{name}/{number % 5}", str(number).encode())
        assert used > 0, "aliases were allowed and never used"


# ---- properties of the message -----------------------------------------------------------------


def test_properties_are_passed_on_unaltered(name, publisher, subscriber):
    # [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]
    props = {
        "payload_format": 1,
        "content_type": "text/plain; charset=utf-8",
        "response_topic": name + "/reply é",
        "correlation_data": bytes(range(256)),
        "user_property": [("z", "1"), ("a", "2"), ("z", "1"), ("", ""), ("é", "🦀")],
    }
    subscriber.subscribe(name, qos=2)
    for qos in (0, 1, 2):
        publisher.published(name, "payload é", qos=qos, props=props)
        assert subscriber.message(payload="payload é").props == props


def test_request_and_response(broker, name):
    # 4.10, [MQTT-3.3.2-15] [MQTT-3.3.2-16]
    with broker.client(name + "q") as asker, broker.client(name + "r") as answerer:
        answerer.subscribe(name + "/do")
        asker.subscribe(name + "/reply")
        asker.publish(name + "/do", b"2+2", props={"response_topic": name + "/reply", "correlation_data": b"\x07"})
        got = answerer.message()
        answerer.publish(got.props["response_topic"], b"4", props={"correlation_data": got.props["correlation_data"]})
        assert asker.message(payload="4").props == {"correlation_data": b"\x07"}


def test_message_expiry_is_passed_on(name, publisher, subscriber):
    # [MQTT-3.3.2-6]
    subscriber.subscribe(name)
    clock = Stopwatch()
    publisher.publish(name, b"x", props={"message_expiry": 100})
    assert 99 - clock.seconds() <= subscriber.message().props["message_expiry"] <= 100
    publisher.publish(name, b"x")
    assert "message_expiry" not in subscriber.message().props


def test_message_expiry_in_the_queue(broker, name, publisher):
    # [MQTT-3.3.2-5] what expired is gone, [MQTT-3.3.2-6] the rest has less time left
    with broker.client(name, props=KEEP) as client:
        client.subscribe(name, qos=1)
        client.disconnect()
    clock = Stopwatch()
    publisher.published(name, b"dies", props={"message_expiry": 1})
    publisher.published(name, b"lives", props={"message_expiry": 100})
    publisher.published(name, b"for ever")
    elapse(1.6)
    with broker.client(name, clean=False, session_present=True) as client:
        left = client.message(payload="lives").props["message_expiry"]
        assert 99 - clock.seconds() <= left <= 99
        assert "message_expiry" not in client.message(payload="for ever").props
    # P7: no silent drop
    assert any(d["topic"] == name and d["client_id"] == name for d in broker.drops())


def test_message_expiry_behind_a_full_window(broker, name, publisher):
    # [MQTT-3.3.2-5] also for a client that is there but does not acknowledge
    with broker.client(name, props={"receive_maximum": 1}) as client:
        client.subscribe(name, qos=1)
        publisher.published(name, b"first")
        publisher.published(name, b"dies", props={"message_expiry": 1})
        publisher.published(name, b"last")
        first = client.expect(PUBLISH, payload="first")
        elapse(1.3)
        client.send(raw.ack(PUBACK, first.pid))
        client.expect(PUBLISH, payload="last")


def test_an_expired_message_is_still_acknowledged(name, publisher):
    # [MQTT-4.3.3-13] the exchange goes on, whatever became of the message
    publisher.publish(name, b"x", qos=2, pid=8, props={"message_expiry": 1})
    publisher.expect(PUBREC, pid=8)
    elapse(1.2)
    publisher.send(raw.ack(PUBREL, 8))
    publisher.expect(PUBCOMP, pid=8, reason=0)


def test_a_message_sent_once_does_not_expire(broker, name, publisher):
    # [MQTT-4.3.3-7]; 3.3.2.3.3 speaks of starting onward delivery only
    client = broker.client(name, clean=False, props=KEEP)
    client.subscribe(name, qos=2)
    publisher.published(name, b"sent", qos=2, props={"message_expiry": 5})
    pid = client.expect(PUBLISH, payload="sent").pid
    client.close()
    elapse(5.3)
    with broker.client(name, clean=False, session_present=True) as client:
        client.message(payload="sent", dup=True, pid=pid)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_maximum_packet_size_of_the_client(broker, name, publisher, qos):
    # [MQTT-3.1.2-24] [MQTT-3.1.2-25] not sent, as if delivered; P7: counted, and in the ring
    with broker.client(name, props={"maximum_packet_size": 100, "receive_maximum": 1}) as client:
        client.subscribe(name, qos=qos)
        publisher.published(name, b"x" * 200, qos=qos)
        publisher.published(name, b"small", qos=qos)
        got = client.message(payload="small")
        assert got.size <= 100
    found = until(lambda: [d for d in broker.drops() if d["client_id"] == name], what="the drop in the ring")
    assert found[0]["topic"] == name and found[0]["qos"] == qos and found[0]["reason"]
    assert broker.drop_totals()[found[0]["reason"]] >= 1


def test_maximum_packet_size_exactly(broker, name, publisher):
    # [MQTT-3.1.2-24] "exceeding": a packet of just that size is sent
    topic = name
    frame = raw.publish(topic, b"x" * 50)
    with broker.client(name, props={"maximum_packet_size": len(frame)}) as client:
        client.subscribe(topic)
        publisher.publish(topic, b"x" * 51)
        publisher.publish(topic, b"y" * 50)
        assert client.message(payload="y" * 50).size == len(frame)


def test_maximum_packet_size_counts_the_properties(broker, name, publisher):
    # [MQTT-3.1.2-24] [MQTT-3.3.2-17] user properties must pass unaltered, so the whole is dropped
    with broker.client(name, props={"maximum_packet_size": 100}) as client:
        client.subscribe(name)
        publisher.publish(name, b"x", props={"user_property": [("k", "v" * 100)]})
        publisher.publish(name, b"small")
        client.message(payload="small")


def test_payload_format_checking(name):
    # mqtt.checkPayloadFormat: 0x99 (3.4.2.1)
    with (
        Broker({"mqtt.checkPayloadFormat": True}) as broker,
        broker.client(name) as client,
        broker.client(name + "s") as other,
    ):
        other.subscribe(name)
        client.published(name, "gültig", props={"payload_format": 1})
        client.published(name, b"\xff\xfe", props={"payload_format": 0})
        client.publish(name, b"\xff\xfe", qos=1, pid=9, props={"payload_format": 1})
        client.expect(PUBACK, pid=9, reason=0x99)
        client.publish(name, b"\xff\xfe", qos=2, pid=10, props={"payload_format": 1})
        client.expect(PUBREC, pid=10, reason=0x99)
        # [MQTT-4.3.3-9] refused: the identifier names a new publication at once
        client.published(name, b"end", qos=2, pid=10)
        assert [m.payload for m in other.until(b"end")] == ["gültig".encode(), b"\xff\xfe"]


def test_payload_format_is_not_checked_by_default(name, publisher, subscriber):
    # [MQTT-3.3.2-4] passed on as it is
    subscriber.subscribe(name)
    publisher.publish(name, b"\xff", props={"payload_format": 1})
    assert subscriber.message().payload == b"\xff"


# ---- retained messages -------------------------------------------------------------------------


def test_retained_message(broker, name, publisher, subscriber):
    # [MQTT-3.3.1-5] [MQTT-3.3.1-9] the last one, its QoS and its properties
    props = {"content_type": "x", "user_property": [("b", "1"), ("a", "2")]}
    publisher.published(name, b"old", retain=True)
    publisher.published(name, b"new", qos=1, retain=True, props=props)
    subscriber.subscribe(name, qos=2)
    assert subscriber.message(payload="new", qos=1, retain=True, dup=False).props == props
    # [MQTT-3.3.1-8] without RETAIN, nothing is stored or removed
    publisher.published(name, b"passing")
    with broker.client(name + "late") as late:
        late.subscribe(name)
        late.message(payload="new", qos=0, retain=True)
        # [MQTT-3.3.1-6] [MQTT-3.3.1-7] empty: delivered as any message, stored by nobody
        publisher.published(name, b"", retain=True)
        late.message(payload="", retain=False)
    with broker.client(name + "later") as later:
        later.subscribe(name, qos=1)
        publisher.publish(name, b"end")
        assert later.until(b"end") == []


def test_retained_messages_outlive_the_session_of_their_sender(broker, name, subscriber):
    # 4.1: retained messages are no part of session state
    with broker.client(name) as client:
        client.published(name, b"kept", retain=True)
        client.disconnect()
    subscriber.subscribe(name)
    subscriber.message(payload="kept", retain=True)


def test_retain_handling(name, publisher, subscriber):
    # [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
    publisher.published(name, b"kept", retain=True)

    def sent_on_subscribing(handling):
        subscriber.subscribe(name, retain_handling=handling)
        publisher.publish(name, b"end")
        return [m.payload for m in subscriber.until(b"end")]

    assert sent_on_subscribing(2) == []
    assert sent_on_subscribing(1) == []  # the subscription existed
    assert sent_on_subscribing(0) == [b"kept"]
    assert sent_on_subscribing(0) == [b"kept"]  # [MQTT-3.8.4-4] sent again
    subscriber.unsubscribe(name)
    assert sent_on_subscribing(1) == [b"kept"]


def test_retain_as_published(broker, name, publisher):
    # [MQTT-3.3.1-12] [MQTT-3.3.1-13]
    with broker.client(name + "0") as zero, broker.client(name + "1") as one:
        zero.subscribe(name)
        one.subscribe(name, retain_as_published=True)
        for retain in (True, False):
            publisher.published(name, b"x", retain=retain)
            zero.message(retain=False)
            one.message(retain=retain)


def test_retained_messages_and_wildcards(name, publisher, subscriber):
    # [MQTT-3.3.1-9] all that match
    for topic in ("a", "a/b", "a/b/c", "d"):
        publisher.published(f"{name}/{topic}", topic, retain=True)
    for filter, expected in (
        ("#", {"a", "a/b", "a/b/c", "d"}),
        ("+", {"a", "d"}),
        ("a/#", {"a", "a/b", "a/b/c"}),
        ("+/b", {"a/b"}),
    ):
        subscriber.subscribe(f"{name}/{filter}", qos=1)
        assert {m.payload.decode() for m in subscriber.take(len(expected))} == expected
        subscriber.unsubscribe(f"{name}/{filter}")
        subscriber.ping()


def connected(broker, stack, prefix, count=8) -> list:
    """Clients that are spread over the event loops by their identifiers."""
    return [stack.enter_context(broker.client(f"{prefix}{n}")) for n in range(count)]


@pytest.fixture(scope="module")
def loops():
    with Broker({"eventLoops": 4}) as broker:
        yield broker


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_retained_last_is_delivered_last(loops, name, qos):
    with contextlib.ExitStack() as stack:
        publishers = connected(loops, stack, name + "p")
        subscribers = connected(loops, stack, name + "s")
        for subscriber in subscribers:
            subscriber.subscribe(f"{name}/#", qos=qos)
        last = [{} for _ in subscribers]
        topics = [f"{name}/{n}" for n in range(400)]
        for begin in range(0, len(topics), 100):
            burst = topics[begin : begin + 100]
            # Each in one write, so that several loops handle them at the same time.
            for number, publisher in enumerate(publishers):
                pids = [publisher.next_pid() if qos else None for _ in burst]
                payload = b"%d" % number
                publisher.send(*(raw.publish(t, payload, qos=qos, pid=i, retain=True) for t, i in zip(burst, pids)))
            for subscriber, seen in zip(subscribers, last):
                for got in subscriber.take(len(publishers) * len(burst)):
                    seen[got.topic] = got.payload
            for publisher in publishers if qos else ():
                for _ in burst:
                    publisher.expect(PUBACK, reason=0)
        late = stack.enter_context(loops.client(name + "late"))
        late.subscribe(f"{name}/#")
        retained = {got.topic: got.payload for got in late.take(len(topics))}
        assert sorted(retained) == sorted(topics)
        others = [topic for topic in topics for seen in last if seen[topic] != retained[topic]]
        assert not others, f"{len(others)} last messages of {len(subscribers) * len(topics)} are not those retained"


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_to_a_topic_keep_their_order_whether_they_are_retained_or_not(loops, name, qos):
    # [MQTT-4.6.0-5]
    with contextlib.ExitStack() as stack:
        publishers = connected(loops, stack, name + "p", 4)
        subscribers = connected(loops, stack, name + "s", 4)
        for subscriber in subscribers:
            subscriber.subscribe(f"{name}/#", qos=qos)
        rounds, each = 50, 6
        sent = [b"%d" % n for n in range(rounds * each)]
        seen = collections.defaultdict(list)
        for begin in range(0, len(sent), each):
            for number, publisher in enumerate(publishers):
                for n in range(begin, begin + each):
                    # Pairs of both kinds, so that each follows itself and the other one.
                    publisher.publish(f"{name}/{number % 2}", sent[n] + b" %d" % number, qos=qos, retain=n // 2 % 2 == 0)
            for which, subscriber in enumerate(subscribers):
                for got in subscriber.take(each * len(publishers)):
                    payload, number = got.payload.split(b" ")
                    seen[which, number].append(payload)
            if qos:
                for publisher in publishers:
                    assert [publisher.expect(PUBACK, reason=0).pid for _ in range(each)]
        assert len(seen) == len(subscribers) * len(publishers)
        assert all(payloads == sent for payloads in seen.values())


def test_retained_message_expiry(broker, name, publisher, subscriber):
    # [MQTT-3.3.2-5] 3.3.2.3.3, also for the retained store
    clock = Stopwatch()
    publisher.published(name + "/a", b"dies", retain=True, props={"message_expiry": 1})
    publisher.published(name + "/b", b"lives", retain=True, props={"message_expiry": 100})
    elapse(1.6)
    subscriber.subscribe(name + "/+")
    left = subscriber.message(payload="lives", retain=True).props["message_expiry"]
    assert 99 - clock.seconds() <= left <= 99
    subscriber.ping()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_thousand_retained_messages_through_a_small_window(broker, name, publisher, qos):
    # [MQTT-3.3.1-9] [MQTT-3.3.4-9] all of them, never more in flight than Receive Maximum
    for number in range(1000):
        publisher.publish(f"{name}/{number}", str(number), qos=1, retain=True)
        if number % 100 == 99:
            for _ in range(100):
                publisher.expect(PUBACK)
    with broker.client(name, props={"receive_maximum": 5}) as client:
        client.subscribe(name + "/#", qos=qos)
        seen, waiting = set(), []
        while len(seen) < 1000:
            got = client.recv()
            if got.kind == PUBREL:
                client.send(raw.ack(PUBCOMP, got.pid))
                continue
            assert got.kind == PUBLISH and got.retain and got.qos == min(qos, 1)
            seen.add(int(got.payload))
            if got.qos:
                waiting.append(got.pid)
                assert len(waiting) <= 5
                if len(waiting) == 5 or len(seen) == 1000:
                    client.send(*(raw.ack(PUBACK, p) for p in waiting))
                    waiting.clear()
        assert seen == set(range(1000))
        # The client is served as before.
        publisher.publish(f"{name}/x", b"end")
        client.message(payload="end", retain=False)
    for number in range(1000):
        publisher.publish(f"{name}/{number}", b"", retain=True)
    publisher.ping()


def test_retained_and_live_messages_are_not_lost_between_each_other(broker, name, publisher):
    # [MQTT-3.8.4-4] P3: a publish after SUBACK arrives, even while retained ones are being sent
    for number in range(200):
        publisher.published(f"{name}/{number}", b"kept", retain=True)
    with broker.client(name, props={"receive_maximum": 2}) as client:
        client.subscribe(name + "/#", qos=1)
        publisher.published(f"{name}/live", b"live")
        payloads = [m.payload for m in client.take(201)]
        assert payloads.count(b"live") == 1 and payloads.count(b"kept") == 200

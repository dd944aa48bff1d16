"""MQTT 5.0 by raw packets: connecting, sessions, keep-alive, takeover, wills."""

import contextlib

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import CONNACK, DISCONNECT, PINGRESP, PUBACK, PUBLISH, SUBACK, UNSUBACK
from harness.wait import Stopwatch, until

# ---- CONNACK ---------------------------------------------------------------------------------


def test_connack_announces_the_limits(broker, name):
    # [MQTT-3.1.4-5] [MQTT-3.2.0-1] The values are the documented defaults. What is supported is
    # announced by absence or by 1; 2 is not a permitted value of Maximum QoS [MQTT-3.2.2-9].
    with broker.client(name) as client:
        props = client.connack.props
        assert props["receive_maximum"] == 1024
        assert props["topic_alias_maximum"] == 64
        assert props["maximum_packet_size"] == 2097152
        assert "maximum_qos" not in props
        for feature in ("retain", "wildcard_subscription", "subscription_identifier", "shared_subscription"):
            assert props.get(f"{feature}_available", 1) == 1
        for absent in (
            "assigned_client_identifier",
            "server_keep_alive",
            "response_information",
            "authentication_method",
        ):
            # [MQTT-4.12.0-6] no Authentication Method without one in CONNECT
            assert absent not in props


def test_packets_sent_behind_connect_are_processed(broker, name):
    # 3.1.4: clients may send before CONNACK has arrived. [MQTT-3.2.0-1] CONNACK still comes first.
    with broker.raw() as client:
        client.send(
            raw.connect(name), raw.subscribe(1, [(name, 1)]), raw.publish(name, b"early", qos=1, pid=2), raw.PING
        )
        client.expect(CONNACK, reason=0)
        client.expect(SUBACK, pid=1)
        got = [client.recv() for _ in range(3)]
        assert sorted(p.kind for p in got) == sorted([PUBLISH, PUBACK, PINGRESP]), got


def test_packets_cut_into_single_bytes(broker, name):
    # [MQTT-4.2.0-1] [MQTT3-7.1.1-1] the transport is a stream of bytes; packets have no relation to segments.
    with broker.raw() as client:
        for byte in raw.connect(name) + raw.subscribe(1, [(name, 0)]) + raw.publish(name, b"x"):
            client.send(bytes([byte]))
        client.expect(CONNACK, reason=0)
        client.expect(SUBACK)
        client.expect(PUBLISH, payload="x")


@pytest.mark.parametrize("level", [6, 7, 100, 127])
def test_a_later_version_is_refused_in_the_form_of_5_0(broker, name, level):
    # [MQTT-3.1.2-2] CONNACK: no session present, 0x84, no properties; then the end of the connection
    with broker.raw() as client:
        client.send(raw.connect(name, level=level))
        client.expect(CONNACK, body=b"\x00\x84\x00")
        client.expect_closed()


@pytest.mark.parametrize("level", [0, 2, 3, 0x85, 0xFF])
def test_other_versions_that_are_not_served_are_refused_in_the_form_of_3_1_1(broker, name, level):
    # [MQTT-3.1.2-2] [MQTT3-3.1.2-2]
    with broker.raw(version=4) as client:
        client.send(raw.connect(name, version=4, level=level))
        client.expect(CONNACK, body=b"\x00\x01")
        client.expect_closed()


@pytest.mark.parametrize("clean", [True, False])
def test_assigned_client_identifier(broker, clean):
    # [MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16] new, unique, and good for coming back with
    with broker.client("", clean=clean, props={"session_expiry": 30}) as one, broker.client("") as two:
        first = one.connack.props["assigned_client_identifier"]
        assert first and first != two.connack.props["assigned_client_identifier"]
        assert not one.connack.session_present
        one.disconnect()
        with broker.client(first, clean=False, session_present=True):
            pass


@pytest.mark.parametrize("length", [1, 23, 200])
def test_client_identifier_lengths(broker, name, length):
    # [MQTT-3.1.3-5] 1 to 23 letters and digits must be allowed; more is allowed here too
    alphabet = name + "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" * 4
    with broker.client(alphabet[:length] if length > 1 else "Z"):
        pass


def test_client_identifier_of_other_scripts(broker, name):
    # [MQTT-3.1.3-4] any UTF-8 Encoded String
    with broker.client(name + "é漢🦀", props={"session_expiry": 30}) as client:
        client.disconnect()
    with broker.client(name + "é漢🦀", clean=False, session_present=True):
        pass


def test_ping(broker, name):
    # [MQTT-3.12.4-1]
    with broker.client(name) as client:
        client.ping()


def test_disconnect_closes_the_connection(broker, name):
    # 3.14.4: the server closes the connection if the client has not done so
    with broker.client(name) as client:
        client.send(raw.disconnect())
        client.expect_closed()


def test_nothing_is_processed_after_disconnect(broker, name):
    # [MQTT-3.14.4-1] nothing may follow DISCONNECT; what does is not processed
    with broker.client(name) as watcher, broker.client(name + "b") as client:
        watcher.subscribe(name)
        client.send(raw.disconnect(), raw.publish(name, b"after the end"))
        client.expect_closed()
        watcher.publish(name, b"end")
        assert watcher.until(b"end") == []


# ---- enhanced authentication -----------------------------------------------------------------


def test_unknown_authentication_method(broker, name):
    # [MQTT-4.12.0-1] 0x8C
    with broker.raw() as client:
        client.send(raw.connect(name, props={"authentication_method": "SCRAM-SHA-1", "authentication_data": b"x"}))
        client.expect_refused(0x8C)


@pytest.mark.parametrize("reason", [0x18, 0x19])
def test_auth_without_authentication_method(broker, name, reason):
    # [MQTT-4.12.0-7] a protocol error
    with broker.client(name) as client:
        client.send(raw.auth(reason, {"authentication_method": "x"}))
        client.expect_disconnected(0x82)


# ---- sessions --------------------------------------------------------------------------------


def test_clean_start_and_session_present(broker, name):
    # [MQTT-3.1.3-2]
    kept = {"session_expiry": 60}
    # [MQTT-3.1.2-6] [MQTT-3.2.2-3] nothing stored: 0
    with broker.client(name, clean=False, props=kept, session_present=False) as client:
        client.subscribe(name, qos=1)
        client.disconnect()
    # [MQTT-3.1.2-5] [MQTT-3.2.2-3] stored: 1, and its subscriptions live
    with broker.client(name, clean=False, props=kept, session_present=True) as client:
        client.published(name, b"kept")
        client.message(payload="kept", qos=1)
        client.disconnect()
    # [MQTT-3.1.2-4] [MQTT-3.2.2-2] clean start: discarded, 0
    with broker.client(name, clean=True, props=kept, session_present=False) as client:
        client.published(name, b"nobody")
        client.ping()
        client.disconnect()
    # The new session is stored in its turn.
    with broker.client(name, clean=False, session_present=True):
        pass


def test_publish_to_self_before_own_ack_is_either_order(broker, name):
    # A client that subscribes to its own topic gets both PUBACK and PUBLISH, in no stated order.
    with broker.client(name) as client:
        client.subscribe(name, qos=1)
        client.publish(name, b"x", qos=1)
        assert sorted(client.recv().kind for _ in range(2)) == [PUBLISH, PUBACK]


def test_without_expiry_the_session_ends_with_the_connection(broker, name):
    # [MQTT-3.1.2-23] [MQTT-4.1.0-2] absent means 0
    for graceful in (True, False):
        with broker.client(name, clean=False) as client:
            client.subscribe(name, qos=1)
            client.disconnect() if graceful else client.close()
        with broker.client(name, clean=False, session_present=False):
            pass


def test_session_expiry(broker, name):
    # [MQTT-4.1.0-2] [MQTT-3.1.2-8] The will, delayed for longer than the session lives, is
    # published when the session ends: it tells the test when.
    with broker.client(name + "w") as watcher:
        watcher.subscribe(name + "/will")
        will = {"topic": name + "/will", "payload": b"gone", "props": {"will_delay": 3600}}
        client = broker.client(name, clean=False, props={"session_expiry": 1}, will=will)
        clock = Stopwatch()
        client.close()
        watcher.message(payload="gone")
        assert clock.seconds() >= 0.9
        with broker.client(name, clean=False, session_present=False):
            pass


def a_session_ends(broker, name, expiry=1):
    """A session begins and ends by its expiry. What was to happen so many seconds after an earlier event has happened
    then, too."""
    topic = f"{name}-ended"
    with broker.client(f"{name}-witness") as witness:
        witness.subscribe(topic)
        will = {"topic": topic, "payload": b"ended", "props": {"will_delay": 3600}}
        broker.client(f"{name}-brief", props={"session_expiry": expiry}, will=will).close()
        witness.message(payload="ended")


def test_session_is_kept_until_its_expiry(broker, name):
    # [MQTT-3.1.2-23] when a shorter one has ended
    broker.client(name, clean=False, props={"session_expiry": 600}).close()
    a_session_ends(broker, name)
    with broker.client(name, clean=False, session_present=True):
        pass


def test_disconnect_changes_the_session_expiry(broker, name):
    # 3.14.2.2.2
    with broker.client(name, clean=False, props={"session_expiry": 600}) as client:
        client.disconnect(0, {"session_expiry": 0})
    with broker.client(name, clean=False, props={"session_expiry": 1}, session_present=False) as client:
        client.disconnect(0, {"session_expiry": 600})
    a_session_ends(broker, name)
    with broker.client(name, clean=False, session_present=True):
        pass


def test_disconnect_cannot_give_a_session_an_expiry(broker, name):
    # 3.14.2.2.2: from 0 to non-zero is a protocol error
    with broker.client(name, props={"session_expiry": 0}) as client:
        client.send(raw.disconnect(0, {"session_expiry": 10}))
        client.expect_disconnected(0x82)


def test_maximum_session_expiry(name):
    # 3.2.2.3.2: the server says which expiry it uses instead
    with Broker({"mqtt.sessionExpiryMaximum": 5}) as broker:
        with broker.client(name, props={"session_expiry": 0xFFFFFFFF}) as client:
            assert client.connack.props["session_expiry"] == 5
        with broker.client(name, props={"session_expiry": 3}) as client:
            assert client.connack.props.get("session_expiry", 3) == 3


def test_subscriptions_and_queue_survive_a_lost_connection(broker, name):
    # [MQTT-4.5.0-1] [MQTT-4.1.0-1] [MQTT-4.6.0-6] stored in order, whatever the QoS
    keep = {"session_expiry": 60}
    client = broker.client(name, clean=False, props=keep)
    client.subscribe(name + "/+", qos=2)
    client.close()
    with broker.client(name + "p") as publisher:
        for number in range(50):
            publisher.published(f"{name}/t", str(number), qos=1)
    with broker.client(name, clean=False, props=keep, session_present=True) as client:
        got = client.take(50)
        assert [m.payload for m in got] == [str(n).encode() for n in range(50)]
        assert not any(m.dup for m in got), "[MQTT-4.3.2-2] first delivery: DUP 0"


@pytest.mark.parametrize("policy, stored", [("offline", True), ("always", True), ("never", False)])
def test_qos0_for_offline_sessions(name, policy, stored):
    # inbox.qos0 of the documented options
    with Broker({"inbox.qos0": policy}) as broker:
        with broker.client(name, clean=False, props={"session_expiry": 60}) as client:
            client.subscribe(name, qos=1)
            client.disconnect()
        with broker.client(name + "p") as publisher:
            publisher.publish(name, b"zero")
            publisher.published(name, b"end", qos=1)
        with broker.client(name, clean=False, session_present=True) as client:
            assert [m.payload for m in client.until(b"end")] == ([b"zero"] if stored else [])


# ---- takeover --------------------------------------------------------------------------------


@pytest.mark.parametrize("newcomer", [3, 4, 5])
def test_takeover(broker, name, newcomer):
    # [MQTT-3.1.4-3] the old connection gets 0x8E and is closed; the session goes on
    with broker.client(name, clean=False, props={"session_expiry": 60}) as old:
        old.subscribe(name, qos=1)
        with broker.client(name, version=newcomer, clean=False) as new:
            if newcomer > 3:  # 3.1 has no session present flag
                assert new.connack.session_present
            old.expect_disconnected(0x8E)
            new.published(name, b"still subscribed")
            new.message(payload="still subscribed")


def test_takeover_by_a_clean_start(broker, name):
    # [MQTT-3.1.4-3] [MQTT-3.1.4-4] [MQTT-3.1.2-4]
    with broker.client(name, clean=False, props={"session_expiry": 60}) as old:
        old.subscribe(name, qos=1)
        with broker.client(name, session_present=False) as new:
            old.expect_disconnected(0x8E)
            new.published(name, b"no longer subscribed")
            new.ping()


def test_takeover_moves_what_was_in_flight(broker, name):
    # [MQTT-4.4.0-1] the new connection gets the unacknowledged messages again, DUP set
    with broker.client(name, clean=False, props={"session_expiry": 60}) as old, broker.client(name + "p") as publisher:
        old.subscribe(name, qos=1)
        publisher.published(name, b"once")
        pid = old.expect(PUBLISH, payload="once").pid
        with broker.client(name, clean=False, session_present=True) as new:
            new.message(payload="once", dup=True, pid=pid)


@pytest.mark.parametrize("delay, ends, published", [(0, False, True), (60, False, False), (60, True, True)])
def test_will_at_takeover(broker, name, delay, ends, published):
    # 3.1.4 (the note on takeover), [MQTT-3.1.3-9]: the will is sent if it has no delay, or if the
    # session ends with the takeover; a delayed will of a session that goes on is cancelled
    with broker.client(name + "w") as watcher:
        watcher.subscribe(name + "/will")
        will = {"topic": name + "/will", "payload": b"will", "props": {"will_delay": delay}}
        keep = {"session_expiry": 60}
        with broker.client(name, clean=False, props=keep, will=will) as old:
            with broker.client(name, clean=ends, props=keep) as new:
                old.expect_disconnected(0x8E)
                new.published(name + "/will", b"end")
                if published:
                    # Its order against the new connection's messages is not stated.
                    assert {watcher.message().payload, watcher.message().payload} == {b"will", b"end"}
                else:
                    assert watcher.until(b"end") == []


def test_many_takeovers_at_once(broker, name):
    # One owner per client identifier: whoever came last stays, each other got 0x8E.
    clients = [broker.client(name, clean=False, props={"session_expiry": 60}) for _ in range(20)]
    for old in clients[:-1]:
        old.expect_disconnected(0x8E)
    clients[-1].ping()
    clients[-1].close()


# ---- keep-alive ------------------------------------------------------------------------------


def test_keep_alive_closes_a_silent_client(broker, name):
    # [MQTT-3.1.2-22] [MQTT-3.2.2-22] one and a half times the interval; 0x8D. The interval is the client's own.
    with broker.client(name + "l", keep_alive=600) as long:
        clock = Stopwatch()
        with broker.client(name, keep_alive=1) as client:
            client.expect_disconnected(0x8D)
            assert clock.seconds() >= 1.4
        long.ping()


def test_keep_alive_counts_inbound_packets_only(broker, name):
    # [MQTT-3.1.2-22] what the server sends, QoS 0 or not, does not keep a client alive
    clock = Stopwatch()
    with broker.client(name + "p") as publisher, broker.client(name, keep_alive=4) as client:
        client.subscribe(name)

        def ended():
            publisher.publish(name, b"noise")
            got = client.recv()
            return got if got.kind == DISCONNECT else None

        assert until(ended, what="the end in spite of outbound messages").reason == 0x8D
        assert clock.seconds() >= 5.9


def test_any_inbound_packet_keeps_alive(broker, name):
    # [MQTT-3.1.2-22] any control packet, not PINGREQ alone: who sends some outlasts who came later and is silent
    with (
        broker.client(name + "1", keep_alive=8) as pinging,
        broker.client(name + "2", keep_alive=8) as publishing,
        broker.client(name, keep_alive=8) as silent,
    ):

        def ended():
            pinging.ping()
            publishing.publish(name, b"here")
            return silent.has_come()

        until(ended, what="the end of the silent client")
        silent.expect_disconnected(0x8D)
        for client in (pinging, publishing):
            client.ping()


def test_half_a_packet_does_not_keep_alive(broker, name):
    # [MQTT-3.1.2-22] speaks of control packets; bytes of one that never ends are none
    with broker.client(name, keep_alive=1) as client:
        # More than can be sent until the deadline.
        client.send(b"\x30\xff\xff\x03")

        def ended():
            with contextlib.suppress(ConnectionError):
                client.send(b"\x00")
            return client.has_come()

        until(ended, what="the end in spite of single bytes")
        client.expect_disconnected(0x8D)


def test_server_keep_alive(name):
    # 3.2.2.3.14, [MQTT-3.1.2-21] [MQTT-3.2.2-21]: the server's value rules
    with Broker({"mqtt.keepAliveMaximum": 1}) as broker:
        clock = Stopwatch()
        with broker.client(name, keep_alive=0) as never, broker.client(name + "l", keep_alive=600) as long:
            assert never.connack.props["server_keep_alive"] == 1
            assert long.connack.props["server_keep_alive"] == 1
            never.expect_disconnected(0x8D)
            long.expect_disconnected(0x8D)
            assert clock.seconds() >= 1.4


# ---- wills -----------------------------------------------------------------------------------


@pytest.fixture
def watcher(broker, name):
    with broker.client(name + "w") as client:
        client.subscribe((f"{name}/#", raw.options(2, retain_as_published=True)))
        yield client


def test_will_when_the_connection_is_lost(broker, name, watcher):
    # [MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-9] [MQTT-3.1.2-14] [MQTT-3.1.3-10], with its properties in order
    props = {
        "payload_format": 1,
        "message_expiry": 100,
        "content_type": "text/plain",
        "response_topic": name + "/r",
        "correlation_data": b"\x00\x01",
        "user_property": [("b", "1"), ("a", "2"), ("b", "1")],
    }
    will = {"topic": name + "/will", "payload": b"bye", "qos": 2, "props": props}
    clock = Stopwatch()
    broker.client(name, will=will).close()
    got = watcher.message(topic=name + "/will", payload="bye", qos=2, retain=False)
    expiry = got.props.pop("message_expiry")
    assert 99 - clock.seconds() <= expiry <= 100
    assert got.props == {k: v for k, v in props.items() if k != "message_expiry"}


def test_will_after_a_reset(broker, name, watcher):
    # [MQTT-3.1.2-8]
    broker.client(name, will={"topic": name + "/will", "payload": b"reset"}).reset()
    watcher.message(payload="reset")


def test_no_will_after_normal_disconnection(broker, name, watcher):
    # [MQTT-3.1.2-10] [MQTT-3.14.4-3]
    with broker.client(name, will={"topic": name + "/will", "payload": b"bye"}) as client:
        client.disconnect()
    watcher.published(name + "/end", b"end", qos=0)
    assert watcher.until(b"end") == []


def test_will_on_disconnect_with_will(broker, name, watcher):
    # 3.14.2.1: 0x04
    with broker.client(name, will={"topic": name + "/will", "payload": b"bye"}) as client:
        client.disconnect(0x04)
    watcher.message(payload="bye")


def test_will_on_disconnect_with_an_error(broker, name, watcher):
    # [MQTT-3.1.2-8] only reason code 0x00 deletes the will
    with broker.client(name, will={"topic": name + "/will", "payload": b"bye"}) as client:
        client.disconnect(0x80)
    watcher.message(payload="bye")


def test_will_on_a_protocol_error(broker, name, watcher):
    # [MQTT-3.1.2-8] 3.1.2.5: the server closes because of an error
    with broker.client(name, will={"topic": name + "/will", "payload": b"bye"}) as client:
        client.send(raw.publish("a/+", b"x"))
        client.expect_disconnected(0x81, 0x82, 0x90)
    watcher.message(payload="bye")


def test_will_on_keep_alive_timeout(broker, name, watcher):
    # [MQTT-3.1.2-22] "as if the network had failed"
    with broker.client(name, keep_alive=1, will={"topic": name + "/will", "payload": b"silent"}) as client:
        client.expect_disconnected(0x8D)
        watcher.message(payload="silent")


def test_retained_will(broker, name, watcher):
    # [MQTT-3.1.2-15]
    broker.client(name, will={"topic": name + "/will", "payload": b"kept", "qos": 1, "retain": True}).close()
    watcher.message(payload="kept", retain=True)
    with broker.client(name + "late") as late:
        late.subscribe(name + "/will", qos=1)
        late.message(payload="kept", retain=True, qos=1)
        late.published(name + "/will", b"", qos=0, retain=True)


def test_will_delay(broker, name, watcher):
    # [MQTT-3.1.2-8]
    will = {"topic": name + "/will", "payload": b"late", "props": {"will_delay": 1}}
    client = broker.client(name, props={"session_expiry": 60}, will=will)
    clock = Stopwatch()
    client.close()
    got = watcher.message(payload="late")
    assert clock.seconds() >= 0.9
    assert "will_delay" not in got.props


def test_will_delay_cancelled_by_reconnecting(broker, name, watcher):
    # [MQTT-3.1.3-9], and the will does not come back when its delay has passed
    will = {"topic": name + "/will", "payload": b"never", "props": {"will_delay": 5}}
    keep = {"session_expiry": 60}
    broker.client(name, props=keep, will=will).close()
    with broker.client(name, clean=False, props=keep, session_present=True):
        a_session_ends(broker, name, 5)
        watcher.publish(name + "/end", b"end")
        assert watcher.until(b"end") == []


def test_will_is_published_once(broker, name, watcher):
    # [MQTT-3.1.2-10] removed once published
    keep = {"session_expiry": 60}
    broker.client(name, props=keep, will={"topic": name + "/will", "payload": b"bye"}).close()
    watcher.message(payload="bye")
    broker.client(name, clean=False, props=keep, session_present=True).close()
    # [MQTT-3.1.2-10] the second connection had no will
    with broker.client(name + "p") as other:
        other.published(name + "/end", b"end")
    assert watcher.until(b"end") == []


def test_will_reaches_the_senders_own_session(broker, name):
    # [MQTT-4.5.0-1] a persistent session that subscribes to its own will finds it on return
    keep = {"session_expiry": 60}
    with broker.client(name, props=keep, will={"topic": name + "/will", "payload": b"own", "qos": 1}) as client:
        client.subscribe(name + "/will", qos=1)
    with broker.client(name, clean=False, props=keep, session_present=True) as client:
        client.message(payload="own", qos=1)


# ---- what the server may be configured not to support -------------------------------------------


def test_maximum_qos(name):
    with Broker({"mqtt.maximumQos": 1}) as broker:
        with broker.client(name) as client:
            # [MQTT-3.2.2-9] announced; [MQTT-3.2.2-10] SUBSCRIBE still accepted
            assert client.connack.props["maximum_qos"] == 1
            client.subscribe(name, qos=2, expect=[1])
            # [MQTT-3.2.2-11] a client that does not listen gets 0x9B
            client.publish(name, b"x", qos=2)
            client.expect_disconnected(0x9B)
        with broker.raw() as client:
            # [MQTT-3.2.2-12]
            client.send(raw.connect(name, will={"topic": "w", "qos": 2}))
            client.expect_refused(0x9B)


def test_retain_not_available(name):
    with Broker({"mqtt.retainAvailable": False}) as broker:
        with broker.client(name) as client:
            assert client.connack.props["retain_available"] == 0
            # [MQTT-3.2.2-14]
            client.publish(name, b"x", retain=True)
            client.expect_disconnected(0x9A)
        with broker.raw() as client:
            # [MQTT-3.2.2-13]
            client.send(raw.connect(name, will={"topic": "w", "retain": True}))
            client.expect_refused(0x9A)


@pytest.mark.parametrize(
    "option, announced, subscription, props, reason",
    [
        ("wildcardSubscriptionAvailable", "wildcard_subscription_available", "a/#", None, 0xA2),
        ("sharedSubscriptionAvailable", "shared_subscription_available", "$share/g/a", None, 0x9E),
        (
            "subscriptionIdentifierAvailable",
            "subscription_identifier_available",
            "a",
            {"subscription_identifier": 1},
            0xA1,
        ),
    ],
)
def test_subscriptions_not_available(name, option, announced, subscription, props, reason):
    # 3.2.2.3.11 to 13: a protocol error with the code of its own, in SUBACK or DISCONNECT
    with Broker({f"mqtt.{option}": False}) as broker, broker.client(name) as client:
        assert client.connack.props[announced] == 0
        client.send(raw.subscribe(1, [(subscription, 0)], props=props))
        got = client.recv()
        assert (got.kind, got.reasons if got.kind == SUBACK else got.reason) in [
            (SUBACK, [reason]),
            (DISCONNECT, reason),
        ], got


def test_response_information(name):
    with Broker({"mqtt.responseInformation": "replies/"}) as broker:
        # [MQTT-3.1.2-28] only when asked for
        for asked, expected in ((None, None), (0, None), (1, "replies/")):
            props = {} if asked is None else {"request_response_information": asked}
            with broker.client(name, props=props) as client:
                assert client.connack.props.get("response_information") == expected


def test_request_problem_information(broker, name):
    # [MQTT-3.1.2-29] with 0, no reason string or user property but on PUBLISH, CONNACK, DISCONNECT
    with broker.client(name, props={"request_problem_information": 0}) as client:
        client.send(raw.subscribe(1, [("a/#/b", 0)]))
        assert not client.expect(SUBACK, pid=1).props
        client.send(raw.unsubscribe(2, [name]))
        assert not client.expect(UNSUBACK, pid=2).props
        client.send(raw.ack(raw.PUBREL, 9))
        got = client.expect(raw.PUBCOMP, pid=9)
        assert got.reason == 0x92 and not got.props


def test_answers_to_clients_with_small_packets(broker, name):
    # [MQTT-3.9.2-1] [MQTT-3.9.2-2] [MQTT-3.11.2-1] [MQTT-3.11.2-2] [MQTT-3.4.2-2] [MQTT-3.4.2-3] [MQTT-3.5.2-2]
    # [MQTT-3.5.2-3] [MQTT-3.6.2-2] [MQTT-3.6.2-3] [MQTT-3.7.2-2] [MQTT-3.7.2-3] [MQTT-3.2.2-19] [MQTT-3.2.2-20]
    # [MQTT-3.14.2-3] [MQTT-3.14.2-4]: reason strings and user properties are left out where they do not fit
    with broker.client(name, props={"maximum_packet_size": 40}) as client:
        assert client.connack.size <= 40
        client.send(raw.subscribe(1, [("a/#/b", 0)]))
        assert client.expect(SUBACK, reasons=[0x8F]).size <= 40
        client.send(raw.unsubscribe(2, [name]))
        assert client.expect(UNSUBACK, reasons=[0x11]).size <= 40
        client.publish(name, b"x", qos=1)
        assert client.expect(PUBACK).size <= 40
        client.send(raw.ack(raw.PUBREL, 9), raw.ack(raw.PUBREC, 9))
        assert client.expect(raw.PUBCOMP, reason=0x92).size <= 40
        assert client.expect(raw.PUBREL, reason=0x92).size <= 40
        client.send(raw.publish("a/#", b"x"))
        assert client.expect(DISCONNECT).size <= 40


def test_connections_are_counted_down(name):
    # P8: what a client leaves behind is nothing; seen by the broker's own count in $SYS
    with Broker() as broker, broker.client(name) as watcher:
        watcher.subscribe("$SYS/broker/clients/connected")
        others = [broker.client(f"{name}{n}") for n in range(10)]

        def connected():
            return int(watcher.message().payload)

        until(lambda: connected() == 11, what="11 clients in $SYS")
        for other in others:
            other.close()
        until(lambda: connected() == 1, what="1 client in $SYS")

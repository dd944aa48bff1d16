"""Input that no client should send: each case ends with the right code, because of the input and not of time, and a
bystander who talks over another connection does not notice.

The standard demands the end of the connection; which of Malformed Packet (0x81), Protocol Error
(0x82) or a more special code stands in the DISCONNECT is often open, so a case lists all that fit.
"""

import contextlib
import random
import struct

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import PUBACK, PUBCOMP, PUBREC, PUBREL
from harness.wait import Stopwatch, until

MALFORMED = (0x81, 0x82)


@pytest.fixture(scope="module")
def broker():
    """One in which no time ends a connection before the deadline of a test does: what ends is ended by its input."""
    with Broker({"limits.connection.connectTimeoutMs": 600_000}) as patient:
        yield patient


@pytest.fixture(autouse=True)
def bystander(broker, name):
    """An ordinary client: it sends to itself before and after each case."""
    with broker.client(name + "by") as client:
        client.subscribe(name + "by", qos=2)
        client.published(name + "by", b"before", qos=2)
        client.message(payload="before")
        yield client
        client.published(name + "by", b"after", qos=2)
        client.message(payload="after")


# ---- CONNECT -----------------------------------------------------------------------------------

_V5_TAIL = b"\x00\x00" + b"\x00"  # keep-alive 0, no properties


def _connect(name=b"MQTT", level=5, flags=2, tail=_V5_TAIL, payload=raw.text("x")):
    return raw.packet(0x10, raw.text(name) + bytes([level, flags]) + tail + payload)


CONNECTS = {
    # [MQTT-3.1.2-1] [MQTT3-3.1.2-1] name: 0x84 may be told, or nothing
    "protocol name MQTX": (_connect(name=b"MQTX"), (0x84, 1, 0x81)),
    "protocol name mqtt": (_connect(name=b"mqtt"), (0x84, 1, 0x81)),
    "protocol name empty": (_connect(name=b""), (0x84, 1, 0x81)),
    "protocol name long": (_connect(name=b"M" * 1000), (0x84, 1, 0x81)),
    "protocol name MQIsdp, level 5": (_connect(name=b"MQIsdp"), (0x84, 1, 0x81)),
    "protocol name MQTT, level 3": (_connect(level=3, tail=b"\x00\x00"), (0x84, 1, 0x81)),
    # [MQTT-3.1.2-2] [MQTT3-3.1.2-2] level
    "level 0": (_connect(level=0), (0x84, 1)),
    "level 2": (_connect(level=2), (0x84, 1)),
    "level 6": (_connect(level=6), (0x84,)),
    "level 255": (_connect(level=255), (0x84, 1)),
    "level 0x85, 5.0 with the bit of bridges": (_connect(level=0x85), (1,)),
    # [MQTT-3.1.2-3] reserved flag; [MQTT-3.1.2-11] [MQTT-3.1.2-13] will bits
    "reserved flag": (_connect(flags=3), MALFORMED),
    "will qos without will": (_connect(flags=2 | 8), MALFORMED),
    "will retain without will": (_connect(flags=2 | 32), MALFORMED),
    # [MQTT-3.1.2-12]
    "will qos 3": (
        _connect(flags=2 | 4 | 24, payload=raw.text("x") + b"\x00" + raw.text("w") + raw.text("p")),
        MALFORMED,
    ),
    # [MQTT-3.1.2-9] [MQTT-3.1.2-17] [MQTT-3.1.2-19] fields that are announced must be there
    "will missing": (_connect(flags=2 | 4), MALFORMED),
    "user name missing": (_connect(flags=2 | 0x80), MALFORMED),
    "password missing": (_connect(flags=2 | 0x40), MALFORMED),
    # [MQTT-3.1.2-16] [MQTT-3.1.2-18] [MQTT-3.1.3-1] and nothing else
    "bytes behind the payload": (_connect(payload=raw.text("x") + b"more"), MALFORMED),
    "client identifier missing": (_connect(payload=b""), MALFORMED),  # [MQTT-3.1.3-3]
    "client identifier cut": (_connect(payload=b"\x00\x05ab"), MALFORMED),
    # [MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-3.1.3-4] [MQTT-3.1.3-11] [MQTT-3.1.3-12]
    "client identifier not UTF-8": (_connect(payload=raw.text(b"\xff")), (0x81, 0x82, 0x85)),
    "client identifier with NUL": (_connect(payload=raw.text(b"a\0b")), (0x81, 0x82, 0x85)),
    "client identifier with a surrogate": (_connect(payload=raw.text(b"\xed\xa0\x80")), (0x81, 0x82, 0x85)),
    "client identifier overlong UTF-8": (_connect(payload=raw.text(b"\xc0\xaf")), (0x81, 0x82, 0x85)),
    "user name not UTF-8": (
        _connect(flags=2 | 0x80, payload=raw.text("x") + raw.text(b"\xc3\x28")),
        (0x81, 0x82, 0x86),
    ),
    "will topic not UTF-8": (raw.connect("x", will={"topic": b"\xff"}), (0x81, 0x82, 0x90)),
    "will topic with a wildcard": (raw.connect("x", will={"topic": "a/#"}), (0x81, 0x82, 0x90)),
    "will topic empty": (raw.connect("x", will={"topic": ""}), (0x81, 0x82, 0x90)),
    # fixed header flags [MQTT-2.1.3-1]
    "fixed header flags": (b"\x11" + _connect()[1:], MALFORMED),
    # properties (2.2.2, 3.1.2.11)
    "unknown property": (raw.connect("x", props=b"\x7f\x00"), MALFORMED),
    "property of another packet": (raw.connect("x", props={"topic_alias": 1}), MALFORMED),
    "duplicated session expiry": (raw.connect("x", props={"session_expiry": [1, 1]}), MALFORMED),
    "duplicated receive maximum": (raw.connect("x", props={"receive_maximum": [5, 5]}), MALFORMED),
    "receive maximum 0": (raw.connect("x", props={"receive_maximum": 0}), MALFORMED),
    "maximum packet size 0": (raw.connect("x", props={"maximum_packet_size": 0}), MALFORMED),
    "request problem information 2": (raw.connect("x", props={"request_problem_information": 2}), MALFORMED),
    "request response information 2": (raw.connect("x", props={"request_response_information": 2}), MALFORMED),
    "authentication data without method": (raw.connect("x", props={"authentication_data": b"x"}), MALFORMED),
    "property length too long": (_connect(tail=b"\x00\x00\x7f", payload=raw.text("x")), MALFORMED),
    "property length overlong": (_connect(tail=b"\x00\x00\x80\x80\x80\x80\x00"), MALFORMED),
    "property cut": (raw.connect("x", props=b"\x11\x00"), MALFORMED),
    "user property not UTF-8": (raw.connect("x", props={"user_property": (b"\xff", "v")}), MALFORMED),  # [MQTT-1.5.7-1]
    "will property in the wrong place": (raw.connect("x", props={"will_delay": 1}), MALFORMED),
    "will delay duplicated": (raw.connect("x", will={"topic": "t", "props": {"will_delay": [1, 1]}}), MALFORMED),
    "empty": (raw.packet(0x10), MALFORMED + (0x84, 1)),
}


@pytest.mark.parametrize("case", CONNECTS)
def test_bad_connect(broker, case):
    # [MQTT-3.1.4-1] [MQTT-4.13.1-1] [MQTT-3.2.2-7] [MQTT-3.2.2-8] [MQTT-4.13.2-1]: a CONNACK with an error, or the end alone
    packet, reasons = CONNECTS[case]
    with broker.raw() as client:
        client.send(packet)
        try:
            got = client.recv()
        except raw.Closed:
            return
        assert got.kind == raw.CONNACK and got.reason in reasons, got
        client.expect_closed()


def _old(flags=2, payload=raw.text("x"), **fields):
    return _connect(level=4, flags=flags, tail=b"\x00\x00", payload=payload, **fields)


_X, _W, _U = raw.text("x"), raw.text("will"), raw.text("user")

CONNECTS_V311 = {
    "protocol name": _old(name=b"MQTX"),  # [MQTT3-3.1.2-1]
    "reserved flag": _old(flags=3),  # [MQTT3-3.1.2-3]
    "password without user name": _old(flags=2 | 0x40, payload=_X + _U),  # [MQTT3-3.1.2-22]
    "will qos without will": _old(flags=2 | 8),  # [MQTT3-3.1.2-13]
    "will retain without will": _old(flags=2 | 32),  # [MQTT3-3.1.2-15]
    "will qos 3": _old(flags=2 | 4 | 24, payload=_X + _W + _W),  # [MQTT3-3.1.2-14]
    "will missing": _old(flags=2 | 4),  # [MQTT3-3.1.2-9]
    "will payload missing": _old(flags=2 | 4, payload=_X + _W),  # [MQTT3-3.1.3-1]
    "fields without flags": _old(payload=_X + _W + _W),  # [MQTT3-3.1.2-11] [MQTT3-3.1.2-18]
    "user name missing": _old(flags=2 | 0x80),  # [MQTT3-3.1.2-19]
    "password without its flag": _old(flags=2 | 0x80, payload=_X + _U + _U),  # [MQTT3-3.1.2-20]
    "password missing": _old(flags=2 | 0xC0, payload=_X + _U),  # [MQTT3-3.1.2-21]
    "client identifier missing": _old(payload=b""),  # [MQTT3-3.1.3-3]
    "client identifier not UTF-8": _old(payload=raw.text(b"\xff")),  # [MQTT3-1.5.3-1] [MQTT3-3.1.3-4]
    "client identifier with NUL": _old(payload=raw.text(b"\0")),  # [MQTT3-1.5.3-2]
    "will topic not UTF-8": _old(flags=2 | 4, payload=_X + raw.text(b"\xff") + _W),  # [MQTT3-3.1.3-10]
    "user name not UTF-8": _old(flags=2 | 0x80, payload=_X + raw.text(b"\xff")),  # [MQTT3-3.1.3-11]
}


@pytest.mark.parametrize("case", CONNECTS_V311)
def test_bad_connect_v311(broker, case):
    # [MQTT3-3.1.4-1] [MQTT3-3.2.2-6] closed without CONNACK
    with broker.raw(4) as client:
        client.send(CONNECTS_V311[case])
        client.expect_closed()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    "packet",
    [
        raw.PING,
        raw.disconnect(),
        raw.packet(0x30, b"\x00\x01ax"),
        raw.subscribe(1, [("a", 0)], version=4),
        raw.auth(),
        b"\x00\x00",
    ],
    ids=["PINGREQ", "DISCONNECT", "PUBLISH", "SUBSCRIBE", "AUTH", "reserved"],
)
def test_first_packet_is_not_connect(broker, version, packet):
    # [MQTT-3.1.0-1] [MQTT3-3.1.0-1]; [MQTT-3.14.0-1] no DISCONNECT before CONNACK
    with broker.raw(version) as client:
        client.send(packet)
        client.expect_closed()


@pytest.mark.parametrize("version", [4, 5])
def test_second_connect(broker, name, version):
    # [MQTT-3.1.0-2] [MQTT3-3.1.0-2] [MQTT-3.2.0-2] no second CONNACK either
    with broker.client(name, version=version) as client:
        client.send(raw.connect(name, version=version))
        client.expect_disconnected(0x82)


def test_nothing_after_a_refused_connect_counts(broker, name, bystander):
    # [MQTT-3.1.4-6] [MQTT3-3.1.4-5]
    bystander.subscribe(name)
    with broker.raw() as client:
        client.send(raw.connect(name, props={"authentication_method": "x"}), raw.publish(name, b"never"))
        client.expect_refused(0x8C)
    bystander.publish(name, b"end")
    assert bystander.until(b"end") == []


# ---- after CONNECT, 5.0 ------------------------------------------------------------------------


def _props(values):
    return raw.publish("a", b"", props=values)


V5 = {
    # fixed header
    "packet type 0": (b"\x00\x00", MALFORMED),
    "AUTH flags": (b"\xf1\x00", MALFORMED),  # [MQTT-3.15.1-1]
    "PINGREQ flags": (b"\xc1\x00", MALFORMED),  # [MQTT-2.1.3-1]
    "PINGREQ with a body": (b"\xc0\x01\x00", MALFORMED),
    "SUBSCRIBE flags": (b"\x80" + raw.subscribe(1, [("a", 0)])[1:], MALFORMED),  # [MQTT-3.8.1-1]
    "UNSUBSCRIBE flags": (b"\xa0" + raw.unsubscribe(1, ["a"])[1:], MALFORMED),  # [MQTT-3.10.1-1]
    "PUBREL flags": (b"\x60\x02\x00\x01", MALFORMED),  # [MQTT-3.6.1-1]
    "PUBACK flags": (b"\x42\x02\x00\x01", MALFORMED),
    "DISCONNECT flags": (b"\xe1\x00", MALFORMED),  # [MQTT-3.14.1-1]
    "remaining length of five bytes": (b"\x30\xff\xff\xff\xff\x01", MALFORMED),  # 1.5.5
    "remaining length never ending": (b"\x30" + b"\x80" * 10, MALFORMED),
    "remaining length longer than needed": (b"\xc0\x80\x00", MALFORMED),  # [MQTT-1.5.5-1]
    "property length longer than needed": (raw.packet(0x30, raw.text("a") + b"\x80\x00"), MALFORMED),  # [MQTT-1.5.5-1]
    "property length missing": (raw.packet(0x82, b"\x00\x01"), MALFORMED),  # [MQTT-2.2.2-1]
    # packets for the other direction
    "CONNACK": (b"\x20\x03\x00\x00\x00", MALFORMED),
    "SUBACK": (b"\x90\x04\x00\x01\x00\x00", MALFORMED),
    "UNSUBACK": (b"\xb0\x04\x00\x01\x00\x00", MALFORMED),
    "PINGRESP": (b"\xd0\x00", MALFORMED),
    # PUBLISH
    "publish to #": (raw.publish("#", b""), (0x81, 0x82, 0x90)),  # [MQTT-3.3.2-2] [MQTT-4.7.0-1]
    "publish to a/+": (raw.publish("a/+", b""), (0x81, 0x82, 0x90)),
    "publish to a+b": (raw.publish("a+b", b""), (0x81, 0x82, 0x90)),
    "topic empty": (raw.publish("", b""), (0x81, 0x82, 0x90)),  # [MQTT-4.7.3-1]
    "topic not UTF-8": (raw.publish(b"\xff\xfe", b""), (0x81, 0x82, 0x90)),  # [MQTT-3.3.2-1] [MQTT-1.5.4-1]
    "topic with NUL": (raw.publish(b"a\0", b""), (0x81, 0x82, 0x90)),  # [MQTT-1.5.4-2] [MQTT-4.7.3-2]
    "topic with a surrogate": (raw.publish(b"\xed\xbf\xbf", b""), (0x81, 0x82, 0x90)),
    "topic above U+10FFFF": (raw.publish(b"\xf4\x90\x80\x80", b""), (0x81, 0x82, 0x90)),
    "topic cut": (raw.packet(0x30, b"\x00\x09abc"), MALFORMED),
    "publish with nothing": (raw.packet(0x30), MALFORMED),
    "qos 3": (raw.publish("a", b"", qos=3, pid=1), MALFORMED),  # [MQTT-3.3.1-4]
    "qos 0 with dup": (raw.publish("a", b"", dup=True), MALFORMED),  # [MQTT-3.3.1-2]
    "packet identifier 0, qos 1": (raw.publish("a", b"", qos=1, pid=0), MALFORMED),  # [MQTT-2.2.1-3]
    "packet identifier 0, qos 2": (raw.publish("a", b"", qos=2, pid=0), MALFORMED),
    "packet identifier missing": (raw.packet(0x32, raw.text("a")), MALFORMED),
    "subscription identifier from a client": (_props({"subscription_identifier": 1}), MALFORMED),  # [MQTT-3.3.4-6]
    "payload format twice": (_props({"payload_format": [1, 1]}), MALFORMED),
    "message expiry twice": (_props({"message_expiry": [1, 2]}), MALFORMED),
    "content type twice": (_props({"content_type": ["a", "b"]}), MALFORMED),
    "correlation data twice": (_props({"correlation_data": [b"a", b"b"]}), MALFORMED),
    "topic alias twice": (_props({"topic_alias": [1, 2]}), MALFORMED),
    "response topic with a wildcard": (_props({"response_topic": "a/#"}), (0x81, 0x82, 0x90)),  # [MQTT-3.3.2-14]
    "response topic not UTF-8": (_props({"response_topic": b"\xff"}), (0x81, 0x82, 0x90)),  # [MQTT-3.3.2-13]
    "content type not UTF-8": (_props({"content_type": b"\xff"}), MALFORMED),  # [MQTT-3.3.2-19]
    "user property value not UTF-8": (_props({"user_property": ("k", b"\xff")}), MALFORMED),  # [MQTT-1.5.7-1]
    "property of another packet": (_props({"session_expiry": 1}), MALFORMED),
    "unknown property": (_props(b"\x00\x00"), MALFORMED),
    "property cut": (_props(b"\x02\x00\x00"), MALFORMED),
    "property length past the end": (raw.packet(0x30, raw.text("a") + b"\x7f"), MALFORMED),
    # acknowledgements
    "PUBACK with pid 0": (raw.ack(PUBACK, 0), MALFORMED),
    "PUBREL with pid 0": (raw.ack(PUBREL, 0), MALFORMED),
    "PUBACK of one byte": (raw.packet(0x40, b"\x00"), MALFORMED),
    "PUBACK reason unknown": (raw.ack(PUBACK, 1, reason=0x55), MALFORMED),  # [MQTT-3.4.2-1]
    "PUBREC reason unknown": (raw.ack(PUBREC, 1, reason=0x55), MALFORMED),  # [MQTT-3.5.2-1]
    "PUBREL reason unknown": (raw.ack(PUBREL, 1, reason=0x80), MALFORMED),  # [MQTT-3.6.2-1]
    "PUBCOMP reason unknown": (raw.ack(PUBCOMP, 1, reason=0x80), MALFORMED),  # [MQTT-3.7.2-1]
    "PUBACK property of another packet": (raw.ack(PUBACK, 1, reason=0, props={"topic_alias": 1}), MALFORMED),
    "PUBACK reason string twice": (raw.ack(PUBACK, 1, reason=0, props={"reason_string": ["a", "b"]}), MALFORMED),
    # SUBSCRIBE, UNSUBSCRIBE
    "SUBSCRIBE with pid 0": (raw.subscribe(0, [("a", 0)]), MALFORMED),  # [MQTT-2.2.1-3]
    "SUBSCRIBE without filters": (raw.subscribe(1, []), MALFORMED),  # [MQTT-3.8.3-2]
    "SUBSCRIBE without options": (raw.packet(0x82, b"\x00\x01\x00" + raw.text("a")), MALFORMED),
    "SUBSCRIBE filter not UTF-8": (raw.subscribe(1, [(b"\xff", 0)]), (0x81, 0x82, 0x8F)),  # [MQTT-3.8.3-1]
    "SUBSCRIBE filter with NUL": (raw.subscribe(1, [(b"a\0", 0)]), (0x81, 0x82, 0x8F)),  # [MQTT-4.7.3-2]
    "SUBSCRIBE identifier 0": (raw.subscribe(1, [("a", 0)], props={"subscription_identifier": 0}), MALFORMED),
    "SUBSCRIBE identifier twice": (raw.subscribe(1, [("a", 0)], props={"subscription_identifier": [1, 2]}), MALFORMED),
    "SUBSCRIBE identifier of five bytes": (raw.subscribe(1, [("a", 0)], props=b"\x0b\xff\xff\xff\xff\x01"), MALFORMED),
    "UNSUBSCRIBE with pid 0": (raw.unsubscribe(0, ["a"]), MALFORMED),
    "UNSUBSCRIBE without filters": (raw.unsubscribe(1, []), MALFORMED),  # [MQTT-3.10.3-2]
    "UNSUBSCRIBE filter not UTF-8": (raw.unsubscribe(1, [b"\xff"]), (0x81, 0x82, 0x8F)),  # [MQTT-3.10.3-1]
    # DISCONNECT, AUTH
    "DISCONNECT reason unknown": (raw.disconnect(0x55), MALFORMED),  # [MQTT-3.14.2-1]
    "DISCONNECT property twice": (raw.disconnect(0, {"reason_string": ["a", "b"]}), MALFORMED),
    "AUTH reason unknown": (raw.auth(0x55), MALFORMED),  # [MQTT-3.15.2-1]
}


@pytest.mark.parametrize("case", V5)
def test_bad_packet(broker, name, case):
    # [MQTT-4.13.1-1] [MQTT-3.14.4-2]
    packet, reasons = V5[case]
    with broker.client(name) as client:
        client.send(packet)
        client.expect_disconnected(*reasons)


@pytest.mark.parametrize("case", ["PUBREL reason unknown", "DISCONNECT flags", "qos 3", "SUBSCRIBE flags"])
def test_malformed_is_named_so(broker, name, case):
    # [MQTT-3.14.1-1] [MQTT-3.6.1-1] [MQTT-3.8.1-1]: "Malformed Packet" is 0x81 where the standard says the word
    packet, _ = V5[case]
    if case == "PUBREL reason unknown":
        packet = b"\x60\x02\x00\x01"
    with broker.client(name) as client:
        client.send(packet)
        client.expect_disconnected(0x81)


# ---- after CONNECT, 3.1.1 ----------------------------------------------------------------------

V311 = {
    "packet type 0": b"\x00\x00",
    "packet type 15": b"\xf0\x00",  # AUTH does not exist yet
    "PINGREQ flags": b"\xc1\x00",  # [MQTT3-2.2.2-1] [MQTT3-2.2.2-2]
    "SUBSCRIBE flags": b"\x80" + raw.subscribe(1, [("a", 0)], version=4)[1:],  # [MQTT3-3.8.1-1]
    "UNSUBSCRIBE flags": b"\xa0" + raw.unsubscribe(1, ["a"], version=4)[1:],  # [MQTT3-3.10.1-1]
    "PUBREL flags": b"\x60\x02\x00\x01",  # [MQTT3-3.6.1-1]
    "DISCONNECT flags": b"\xe1\x00",  # [MQTT3-3.14.1-1]
    "remaining length of five bytes": b"\x30\xff\xff\xff\xff\x01",
    "CONNACK": b"\x20\x02\x00\x00",
    "publish to a/#": raw.publish("a/#", b"", version=4),  # [MQTT3-3.3.2-2] [MQTT3-4.7.1-1]
    "topic empty": raw.publish("", b"", version=4),  # [MQTT3-4.7.3-1]
    "topic not UTF-8": raw.publish(b"\xff", b"", version=4),  # [MQTT3-1.5.3-1] [MQTT3-3.3.2-1]
    "topic with NUL": raw.publish(b"a\0", b"", version=4),  # [MQTT3-1.5.3-2] [MQTT3-4.7.3-2]
    "topic with a surrogate": raw.publish(b"\xed\xa0\x80", b"", version=4),
    "qos 3": raw.publish("a", b"", version=4, qos=3, pid=1),  # [MQTT3-3.3.1-4]
    "qos 0 with dup": raw.publish("a", b"", version=4, dup=True),  # [MQTT3-3.3.1-2]
    "packet identifier 0": raw.publish("a", b"", version=4, qos=1, pid=0),  # [MQTT3-2.3.1-1]
    "SUBSCRIBE with pid 0": raw.subscribe(0, [("a", 0)], version=4),
    "SUBSCRIBE without filters": raw.subscribe(1, [], version=4),  # [MQTT3-3.8.3-3]
    "SUBSCRIBE qos 3": raw.subscribe(1, [("a", 3)], version=4),  # [MQTT3-3.8.3-4]
    "SUBSCRIBE reserved bits": raw.subscribe(1, [("a", 4)], version=4),  # [MQTT3-3.8.3-4]
    "SUBSCRIBE filter not UTF-8": raw.subscribe(1, [(b"\xff", 0)], version=4),  # [MQTT3-3.8.3-1]
    "SUBSCRIBE filter empty": raw.subscribe(1, [("", 0)], version=4),  # [MQTT3-4.7.3-1]
    "UNSUBSCRIBE filter empty": raw.unsubscribe(1, [""], version=4),  # [MQTT3-4.7.3-1]
    "UNSUBSCRIBE without filters": raw.unsubscribe(1, [], version=4),  # [MQTT3-3.10.3-2]
    "UNSUBSCRIBE filter not UTF-8": raw.unsubscribe(1, [b"\xff"], version=4),  # [MQTT3-3.10.3-1]
    "PUBACK in the long form of 5.0": b"\x40\x03\x00\x01\x00",
    "DISCONNECT with a reason": b"\xe0\x01\x00",
}


@pytest.mark.parametrize("case", V311)
def test_bad_packet_v311(broker, name, case):
    # [MQTT3-4.8.0-1] closed, and no packet: these versions have none for it
    with broker.client(name, version=4) as client:
        client.send(V311[case])
        client.expect_closed()


# ---- time and size -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", [b"", b"\x10", raw.connect("slow")[:9]], ids=["nothing", "one byte", "half a CONNECT"]
)
def test_connect_that_does_not_come(start):
    # 3.1.4: the server closes if CONNECT does not come "within a reasonable amount of time"
    with Broker({"limits.connection.connectTimeoutMs": 400}) as broker:
        clock = Stopwatch()
        with broker.raw() as client:
            client.send(start)
            client.expect_closed()
            assert clock.seconds() >= 0.3


def test_slow_loris_connect():
    # The same for a CONNECT that comes byte by byte: the clock is not wound up again. It has more bytes than there is
    # time for until the deadline.
    packet = iter(raw.connect("slow", will={"topic": "w" * 1000, "payload": b"x" * 30_000}))
    with Broker({"limits.connection.connectTimeoutMs": 500}) as broker:
        clock = Stopwatch()
        with broker.raw() as client:

            def ended():
                with contextlib.suppress(ConnectionError):
                    client.send(bytes([next(packet)]))
                return client.has_come()

            until(ended, what="the end in spite of single bytes")
            client.expect_closed()
            assert clock.seconds() >= 0.4


def test_many_slow_connections_do_not_keep_others_out():
    # 200 connections that say nothing, and an ordinary client
    with Broker({"limits.connection.connectTimeoutMs": 8000}) as broker:
        idle = [broker.raw() for _ in range(200)]
        for client in idle[::2]:
            client.send(b"\x10\x7f")
        with broker.client("ordinary") as client:
            client.ping()
        for client in idle:
            client.expect_closed()


def test_a_gigabyte_announced_and_never_sent(name):
    # P8: memory follows what has come, not what was announced; past the limit it ends at once
    with Broker() as broker:
        clients = [broker.client(f"{name}{n}") for n in range(50)]
        before = broker.rss()
        for client in clients:
            # 268,435,455 bytes, the most that Remaining Length can say; four of them are a gigabyte
            client.send(b"\x30\xff\xff\xff\x7f\x00\x01a" + b"x" * 1000)
            client.expect_disconnected(0x95)
        assert broker.rss() - before < 20_000_000
        with broker.client(name) as client:
            client.ping()


def test_the_limit_announced_and_never_sent(name):
    # P8: the largest permitted packet, begun 200 times and never completed
    with Broker() as broker:
        clients = [broker.client(f"{name}{n}") for n in range(200)]
        before = broker.rss()
        for client in clients:
            body = 2097152 - 5
            client.send(b"\x30" + raw.varint(body) + b"\x00\x01a\x00" + b"x" * 100)
        with broker.client(name) as other:
            other.ping()
        assert broker.rss() - before < 20_000_000, "200 announcements of 2 MiB cost memory"
        for client in clients:
            client.close()


def test_packet_over_the_maximum(name):
    # [MQTT-3.2.2-15] 0x95; just at the limit it passes
    with Broker({"limits.connection.maximumPacketSize": 1000}) as broker:
        with broker.client(name) as client:
            assert client.connack.props["maximum_packet_size"] == 1000
            client.subscribe(name)
            fits = b"x" * (1000 - len(raw.publish(name, b"")) - 1)
            assert len(raw.publish(name, fits)) == 1000
            client.publish(name, fits)
            assert client.message().payload == fits
            client.publish(name, fits + b"x")
            client.expect_disconnected(0x95)
        with broker.client(name, version=4) as client:
            client.send(raw.publish(name, b"x" * 1000, version=4))
            client.expect_closed()


def test_connect_over_the_maximum(broker, name):
    # limits.connection.maximumConnectSize: 65,536 before authentication
    with broker.raw() as client:
        client.send(raw.connect(name, props={"user_property": [("k", "v" * 60000)] * 2})[:70000])
        client.expect_refused(0x95, None)


def test_large_connect_in_the_limit(broker, name):
    with broker.client(name, props={"user_property": [("k", "v" * 60000)]}, username="anyone", password=b"x"):
        pass


def test_half_packets_then_the_end(broker, name):
    # A connection may end anywhere in a packet.
    whole = raw.connect(name) + raw.subscribe(1, [(name, 2)]) + raw.publish(name, b"x" * 50, qos=2, pid=1)
    for end in range(1, len(whole), 3):
        with broker.raw() as client:
            client.send(whole[:end])


def drain(client, data):
    """Sends the data and the end of the stream, and reads to the broker's end of it."""
    try:
        client.send(data)
        client.socket.shutdown(1)
        client.socket.settimeout(client.timeout)
        while client.socket.recv(65536):
            pass
    except TimeoutError:
        raise AssertionError("the broker left the connection open") from None
    except OSError:
        pass  # already closed by the broker: that is what it should do


def test_random_garbage(broker, name, bystander):
    # 200 connections of noise, half of them behind a proper CONNECT, while the bystander works
    bystander.subscribe(name)
    noise = random.Random(20260901)
    open_clients = []
    for number in range(200):
        client = broker.raw()
        if number % 2:
            client.send(raw.connect(f"{name}{number}"))
        open_clients.append((client, noise.randbytes(noise.randrange(1, 400))))
        bystander.publish(name, str(number))
        bystander.message(payload=str(number))
    for client, data in open_clients:
        try:
            client.send(data[: len(data) // 2])
        except ConnectionError:
            pass
    for client, data in open_clients:
        drain(client, data[len(data) // 2 :])
        client.close()
    bystander.publish(name, b"well")
    bystander.message(payload="well")


def test_mutated_packets(broker, name, bystander):
    # Valid packets with one byte changed: the broker answers or closes, and stays well
    noise = random.Random(7)
    valid = [
        raw.publish(name + "/n", b"payload", qos=2, pid=1, props={"message_expiry": 9, "user_property": [("k", "v")]}),
        raw.subscribe(2, [(name + "/+", 1)], props={"subscription_identifier": 3}),
        raw.unsubscribe(3, [name]),
        raw.ack(PUBREL, 1, reason=0, props={"reason_string": "x"}),
        raw.disconnect(0, {"session_expiry": 0}),
    ]
    for number in range(300):
        data = bytearray(noise.choice(valid))
        data[noise.randrange(len(data))] = noise.randrange(256)
        with broker.client(f"{name}{number}") as client:
            drain(client, bytes(data))


def test_http_request_to_the_mqtt_port(broker):
    # [MQTT-3.1.0-1] 'G' is a reserved flag combination of type 4, first packet not CONNECT
    with broker.raw() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.expect_closed()


def test_tls_hello_to_the_mqtt_port(broker):
    with broker.raw() as client:
        client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + struct.pack(">Q", 7) * 60)
        client.expect_closed()


def test_many_properties(broker, name):
    # A packet full of the smallest user properties: bounded work, passed on whole
    with broker.client(name) as client:
        client.subscribe(name)
        many = [("", "")] * 20000
        client.publish(name, b"x", props={"user_property": many})
        assert client.message().props["user_property"] == many


def test_many_filters_in_one_subscribe(broker, name):
    # [MQTT-3.8.4-5] thousands in one packet: answered one by one
    with broker.client(name) as client:
        count = 5000
        client.send(raw.subscribe(1, [(f"{name}/{n}", 0) for n in range(count)]))
        assert client.expect(raw.SUBACK, pid=1).reasons == [0] * count


def test_client_that_reads_nothing_and_asks_much(name):
    # P8: answers to one who does not read are bounded too
    with Broker() as broker, broker.client(name) as other:
        before = broker.rss()
        with broker.client(name + "x") as client:
            client.socket.settimeout(1)
            try:
                for _ in range(400):
                    client.socket.sendall(raw.PING * 10000)
            except (TimeoutError, ConnectionError):
                pass  # held back, or closed
            other.ping()
            assert broker.rss() - before < 40_000_000

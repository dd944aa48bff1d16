"""paho-mqtt of PyPI, in all its versions of the protocol, on every feature it has."""

import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

from harness.broker import Broker
from harness.paho import Paho, props
from harness.wait import DEADLINE_S, Stopwatch, elapse, until

ALL = ["3.1", "3.1.1", "5.0"]


def feature(text):
    return pytest.mark.feature("paho-mqtt", text)


@pytest.fixture
def paho(broker, name):
    """Makes clients of the shared broker; ends them after the test."""
    made = []

    def make(suffix="", version="5.0", **fields):
        made.append(Paho(broker.port, name + suffix, version, **fields))
        return made[-1]

    yield make
    for client in made:
        client.__exit__()


# ---- all versions ------------------------------------------------------------------------------


@feature("connect, 3.1 / 3.1.1 / 5.0")
@pytest.mark.parametrize("version", ALL)
def test_connect(paho, version):
    assert not paho("", version).flags.session_present


@feature("QoS 0, 1, 2 both ways")
@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_qos(paho, name, version, qos):
    client = paho("", version)
    client.subscribe(name, qos)
    client.publish(name, b"x", qos)
    got = client.message()
    assert (got.topic, got.payload, got.qos, got.retain) == (name, b"x", qos, False)


@feature("order of 500 messages")
@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_order(paho, name, version, qos):
    subscriber, publisher = paho("s", version), paho("p", version)
    subscriber.subscribe(name, qos)
    for number in range(500):
        last = publisher.client.publish(name, str(number), qos)
    last.wait_for_publish(20)
    assert [int(subscriber.message().payload) for _ in range(500)] == list(range(500))


@feature("session present, queue of an offline session")
@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_session(broker, paho, name, version):
    keep = {"connect": props("CONNECT", SessionExpiryInterval=60)} if version == "5.0" else {}
    with Paho(broker.port, name, version, clean=False, **keep) as client:
        assert not client.flags.session_present
        client.subscribe(name, 2)
    publisher = paho("p", version)
    for qos in (1, 2, 1):
        publisher.publish(name, str(qos), qos)
    with Paho(broker.port, name, version, clean=False, **keep) as client:
        assert client.flags.session_present
        # paho shows a QoS 2 message at its PUBREL, so the QoS 1 messages overtake it here.
        assert sorted(client.message().payload for _ in range(3)) == [b"1", b"1", b"2"]
    with Paho(broker.port, name, version, clean=True) as client:
        assert not client.flags.session_present


@feature("retained messages")
@pytest.mark.parametrize("version", ALL)
def test_retained(paho, name, version):
    client = paho("", version)
    client.publish(name + "/a", b"kept", 1, retain=True)
    client.subscribe(name + "/+", 1)
    got = client.message()
    assert got.payload == b"kept" and got.retain
    client.publish(name + "/a", b"", 1, retain=True)
    assert client.message().payload == b""
    client.subscribe(name + "/#", 1)
    client.publish(name + "/b", b"end", 1)
    assert all(not m.retain for m in client.until(b"end"))


@feature("will")
@pytest.mark.parametrize("version", ALL)
def test_will(paho, name, version):
    watcher = paho("w", version)
    watcher.subscribe(name, 1)
    paho("", version, will={"topic": name, "payload": b"bye", "qos": 1}).lose()
    assert watcher.message().payload == b"bye"


@feature("keep-alive by PINGREQ")
def test_keep_alive(broker, paho, name):
    # They outlast a client that came later and is silent.
    clients = {f"{name}/{version}": paho(version, version, keepalive=10) for version in ALL}
    for topic, client in clients.items():
        client.subscribe(topic)
    with broker.client(name, keep_alive=10) as silent:
        silent.expect_disconnected(0x8D)
    for topic, client in clients.items():
        client.publish(topic, b"still here")
        assert client.message().payload == b"still here"


@feature("unsubscribe")
@pytest.mark.parametrize("version", ALL)
def test_unsubscribe(paho, name, version):
    client = paho("", version)
    client.subscribe([(name, 1), (name + "/end", 1)])
    client.unsubscribe(name)
    client.publish(name, b"x", 1)
    client.publish(name + "/end", b"end", 1)
    assert client.until(b"end") == []


@feature("takeover")
@pytest.mark.parametrize("version", ALL)
def test_takeover(paho, version):
    old = paho("", version)
    paho("", version)
    reason, _ = old.disconnected.get(timeout=DEADLINE_S)
    if version == "5.0":
        assert reason.value == 0x8E


@feature("large messages")
@pytest.mark.parametrize("version", ALL)
def test_large_messages(paho, name, version):
    client = paho("", version)
    client.subscribe(name, 1)
    payload = bytes(range(256)) * 1000
    client.publish(name, payload, 1)
    assert client.message().payload == payload


@feature("wildcards, $ topics apart")
@pytest.mark.parametrize("version", ALL)
def test_wildcards(paho, name, version):
    client = paho("", version)
    client.subscribe([(f"{name}/+/x", 0), (f"{name}/deep/#", 0), (f"+/{name}", 0)])
    for topic in (f"{name}/1/x", f"{name}/1/y", f"{name}/deep", f"{name}/deep/er/still", f"$no/{name}"):
        client.publish(topic, topic)
    client.publish(f"a/{name}", b"end")
    assert [m.topic for m in client.until(b"end")] == [f"{name}/1/x", f"{name}/deep", f"{name}/deep/er/still"]


# ---- 5.0 ---------------------------------------------------------------------------------------


@feature("session expiry")
def test_session_expiry(broker, paho, name):
    # The will, delayed for longer than the session lives, is published when the session ends.
    watcher = paho("w")
    watcher.subscribe(name, 1)
    will = {"topic": name, "payload": b"ended", "properties": props("WILLMESSAGE", WillDelayInterval=3600)}
    expiry = props("CONNECT", SessionExpiryInterval=1)
    Paho(broker.port, name, clean=False, connect=expiry, will=will).lose()
    assert watcher.message().payload == b"ended"
    with Paho(broker.port, name, clean=False) as client:
        assert not client.flags.session_present


@feature("retain handling, retain as published")
def test_retain_options(paho, name):
    client = paho()
    client.publish(name, b"kept", 1, retain=True)

    def sent(**options):
        client.subscribe(name, options=SubscribeOptions(qos=1, **options))
        client.publish(name, b"end", 1)
        return [m.payload for m in client.until(b"end")]

    assert sent(retainHandling=2) == []
    assert sent(retainHandling=1) == []
    assert sent(retainHandling=0) == [b"kept"]
    client.subscribe(name, options=SubscribeOptions(qos=1, retainAsPublished=True, retainHandling=2))
    client.publish(name, b"flagged", 1, retain=True)
    assert client.message().retain


@feature("expiry of retained messages")
def test_retained_expiry(paho, name):
    client = paho()
    clock = Stopwatch()
    client.publish(name + "/a", b"dies", 1, retain=True, MessageExpiryInterval=1)
    client.publish(name + "/b", b"lives", 1, retain=True, MessageExpiryInterval=100)
    elapse(1.5)
    client.subscribe(name + "/+", 1)
    got = client.message()
    assert got.payload == b"lives" and 99 - clock.seconds() <= got.properties.MessageExpiryInterval <= 99


@feature("will delay, will properties")
def test_will_delay(paho, name):
    watcher = paho("w")
    watcher.subscribe(name, 1)
    will = props("WILLMESSAGE", WillDelayInterval=1, ContentType="t", UserProperty=[("b", "1"), ("a", "2")])
    client = paho(
        "",
        connect=props("CONNECT", SessionExpiryInterval=60),
        will={"topic": name, "payload": b"bye", "properties": will},
    )
    clock = Stopwatch()
    client.lose()
    got = watcher.message()
    assert got.payload == b"bye" and clock.seconds() >= 0.9
    assert got.properties.ContentType == "t" and got.properties.UserProperty == [("b", "1"), ("a", "2")]


@feature("will delay cancelled by reconnecting")
def test_will_delay_cancelled(paho, name):
    watcher = paho("w")
    watcher.subscribe(name, 1)
    keep = props("CONNECT", SessionExpiryInterval=60)

    def will(payload):
        return {"topic": name, "payload": payload, "properties": props("WILLMESSAGE", WillDelayInterval=5)}

    paho("", connect=keep, will=will(b"bye")).lose()
    paho("", connect=keep, clean=False)
    # The will of one that is lost later, and does not come back, would come behind it.
    paho("other", connect=keep, will=will(b"end")).lose()
    assert watcher.until(b"end") == []


@feature("topic aliases, inbound")
def test_topic_alias(paho, name):
    client = paho()
    client.subscribe(name, 1)
    client.publish(name, b"1", 1, TopicAlias=5)
    client.publish("", b"2", 1, TopicAlias=5)
    assert [client.message().topic for _ in range(2)] == [name, name]


@feature("topic aliases, outbound")
def test_topic_alias_outbound(paho, name):
    client = paho("", connect=props("CONNECT", TopicAliasMaximum=4))
    client.subscribe(name, 1)
    for number in range(5):
        client.publish(name, str(number), 1)
    got = [client.message() for _ in range(5)]
    # paho hands the alias over as it came: the topic is given once.
    known = {}
    for message in got:
        alias = getattr(message.properties, "TopicAlias", None)
        if message.topic:
            known[alias] = message.topic
        assert (message.topic or known[alias]) == name


@feature("subscription identifiers, one copy for overlapping subscriptions")
def test_subscription_identifiers(paho, name):
    client = paho()
    client.subscribe(name + "/#", 0, properties=props("SUBSCRIBE", SubscriptionIdentifier=1))
    client.subscribe(name + "/a", 2, properties=props("SUBSCRIBE", SubscriptionIdentifier=2))
    client.publish(name + "/a", b"x", 2)
    got = client.message()
    assert sorted(got.properties.SubscriptionIdentifier) == [1, 2] and got.qos == 2
    client.publish(name + "/a", b"end", 2)
    assert client.until(b"end") == []


@feature("no local")
def test_no_local(paho, name):
    client, other = paho(), paho("o")
    client.subscribe(name, options=SubscribeOptions(qos=1, noLocal=True))
    client.publish(name, b"own", 1)
    other.publish(name, b"other", 1)
    assert client.message().payload == b"other"


@feature("message expiry, remaining interval")
def test_message_expiry(broker, paho, name):
    with Paho(broker.port, name, connect=props("CONNECT", SessionExpiryInterval=60)) as client:
        client.subscribe(name, 1)
    until(lambda: broker.metric("heraldmq_clients_connected") == 0, what="the end of the connection")
    publisher = paho("p")
    clock = Stopwatch()
    publisher.publish(name, b"dies", 1, MessageExpiryInterval=1)
    publisher.publish(name, b"lives", 1, MessageExpiryInterval=100)
    elapse(1.5)
    with Paho(broker.port, name, clean=False) as client:
        got = client.message()
        assert got.payload == b"lives" and 99 - clock.seconds() <= got.properties.MessageExpiryInterval <= 99


@feature("request and response")
def test_request_response(paho, name):
    asker, answerer = paho("q"), paho("r")
    answerer.subscribe(name + "/do", 1)
    asker.subscribe(name + "/reply", 1)
    asker.publish(name + "/do", b"2+2", 1, ResponseTopic=name + "/reply", CorrelationData=b"\x00\x07")
    got = answerer.message()
    answerer.publish(got.properties.ResponseTopic, b"4", 1, CorrelationData=got.properties.CorrelationData)
    got = asker.message()
    assert got.payload == b"4" and got.properties.CorrelationData == b"\x00\x07"


@feature("user properties in order, content type, payload format")
def test_properties(paho, name):
    client = paho()
    client.subscribe(name, 1)
    users = [("z", "1"), ("a", "2"), ("z", "1")]
    client.publish(name, "é", 1, UserProperty=users, ContentType="text/plain", PayloadFormatIndicator=1)
    got = client.message().properties
    assert got.UserProperty == users and got.ContentType == "text/plain" and got.PayloadFormatIndicator == 1


@feature("assigned client identifier")
def test_assigned_client_identifier(broker):
    with Paho(broker.port, "") as client:
        assert client.props.AssignedClientIdentifier


@feature("maximum packet size")
def test_maximum_packet_size(paho, name):
    client = paho("", connect=props("CONNECT", MaximumPacketSize=200))
    client.subscribe(name, 1)
    other = paho("o")
    other.publish(name, b"x" * 500, 1)
    other.publish(name, b"small", 1)
    assert client.message().payload == b"small"


@feature("receive maximum")
def test_receive_maximum(paho, name):
    client = paho("", connect=props("CONNECT", ReceiveMaximum=2), manual_ack=True)
    client.subscribe(name, 1)
    other = paho("o")
    for number in range(10):
        other.publish(name, str(number), 1)
    for number in range(10):
        # Never more than two that wait for their acknowledgement.
        got = client.message()
        assert int(got.payload) == number and client.messages.qsize() <= 1
        client.client.ack(got.mid, got.qos)


@feature("shared subscriptions")
def test_shared_subscriptions(paho, name):
    members = [paho("1"), paho("2")]
    for member in members:
        member.subscribe(f"$share/g/{name}", 1)
    publisher = paho("p")
    for number in range(20):
        publisher.publish(name, str(number), 1)
    got = []
    while len(got) < 20:
        for member in members:
            while not member.messages.empty():
                got.append(int(member.message().payload))
    assert sorted(got) == list(range(20))


@feature("reason codes of SUBACK, UNSUBACK, DISCONNECT")
def test_reason_codes(paho, name):
    client = paho()
    assert [r.value for r in client.subscribe([(name, 1), ("$share//bad", 0)])] == [1, 0x8F]
    assert [r.value for r in client.unsubscribe([name, name + "/none"])] == [0x00, 0x11]
    client.client.publish(name, b"x", properties=props("PUBLISH", TopicAlias=60000))
    reason, _ = client.disconnected.get(timeout=DEADLINE_S)
    assert reason.value == 0x94


@feature("server keep-alive")
def test_server_keep_alive(name):
    with Broker({"mqtt.keepAliveMaximum": 5}) as broker, Paho(broker.port, name, keepalive=100) as client:
        assert client.props.ServerKeepAlive == 5


@feature("refused: enhanced authentication (0x8C)")
def test_enhanced_authentication(broker, name):
    client = Paho(broker.port, name, connect=props("CONNECT", AuthenticationMethod="x"), wait=False)
    _, reason, _ = client.connected.get(timeout=DEADLINE_S)
    assert reason.value == 0x8C
    client.client.loop_stop()


@feature("$SYS topics")
def test_sys(paho):
    client = paho()
    client.subscribe("$SYS/broker/version")
    assert client.message().retain

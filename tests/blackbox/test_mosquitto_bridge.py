"""Mosquitto at the edge, bridged to the broker as the centre, and what a bridge is to the broker.

`docs/operate/bridging-from-mosquitto.md` shows the configurations that are used here.
"""

import functools

import pytest

from harness import raw
from harness.broker import BASE, Broker
from harness.mosquitto import Mosquitto
from harness.pki import Authority
from harness.postgres import free_port
from harness.raw import CONNACK, PUBACK, PUBREC, SUBACK
from harness.wait import until
from test_authentication import passwd

BOTH = "topic # both 1"


def feature(text):
    return pytest.mark.feature("mosquitto-bridge", text)


@pytest.fixture
def own_broker():
    """One whose log has a line for each client: lines are limited per second."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def edge_of(tmp_path):
    """Starts an edge whose bridge leads to a broker."""
    started = []

    def start(broker, *bridge) -> Mosquitto:
        made = Mosquitto(tmp_path, f"127.0.0.1:{broker.port}", *bridge)
        started.append(made)
        return made

    yield start
    for made in started:
        made.close()


@pytest.fixture
def edge(broker, edge_of):
    """Starts an edge whose bridge leads to the shared broker."""
    return functools.partial(edge_of, broker)


def dropped(broker, reason) -> float:
    return broker.metric("heraldmq_messages_dropped_total", reason=reason)


# ---- with mosquitto ---------------------------------------------------------------------------

VERSIONS = [
    pytest.param([BOTH], "3.1.1", True, marks=feature("default settings")),
    pytest.param(["bridge_protocol_version mqttv31", BOTH], "3.1", True, marks=feature("mqttv31")),
    pytest.param(["bridge_protocol_version mqttv50", BOTH], "5.0", None, marks=feature("mqttv50")),
    pytest.param(
        ["try_private false", "topic {name}/out/# out 1", "topic {name}/in/# in 1"],
        "3.1.1",
        None,
        marks=feature("try_private false"),
    ),
]


@pytest.mark.parametrize("settings, version, is_bridge", VERSIONS)
def test_messages_in_both_directions(own_broker, edge_of, name, settings, version, is_bridge):
    broker, client_id = own_broker, f"{name}.edge"
    bridge = edge_of(broker, *[line.format(name=name) for line in settings], f"remote_clientid {client_id}")
    bridge.bridged(1)
    # The first attempt is let in, with what it says of itself.
    assert bridge.attempts() == 1, bridge.log
    (line,) = until(lambda: broker.find("a client is connected", client_id=client_id), what="the log line")
    assert (line["version"], line.get("bridge")) == (version, is_bridge)
    with bridge.client("local") as local, broker.client(f"{name}far") as far:
        local.subscribe(f"{name}/#", qos=1)
        far.subscribe(f"{name}/#", qos=1, retain_as_published=True)
        local.published(f"{name}/out/1", b"to the centre", qos=1)
        far.message(topic=f"{name}/out/1", payload="to the centre", qos=1, retain=False)
        far.published(f"{name}/in/1", b"to the edge", qos=1)
        # What the edge has published comes to it once: the centre does not send it back.
        local.message(topic=f"{name}/out/1", payload="to the centre", qos=1)
        local.message(topic=f"{name}/in/1", payload="to the edge", qos=1)
        far.message(topic=f"{name}/in/1", payload="to the edge", qos=1)


@feature("retained messages in both directions")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
def test_retained_messages_are_retained_on_the_other_side(broker, edge, name, version):
    bridge = edge(f"bridge_protocol_version {version}", f"topic {name}/# both 1", f"remote_clientid {name}")
    bridge.bridged(1)
    with bridge.client("local") as local, broker.client(f"{name}far") as far:
        far.subscribe(f"{name}/#", qos=1, retain_as_published=True)
        local.subscribe(f"{name}/#", qos=1)
        local.published(f"{name}/a", b"of the edge", qos=1, retain=True)
        far.message(topic=f"{name}/a", retain=True)
        far.published(f"{name}/b", b"of the centre", qos=1, retain=True)
        local.message(topic=f"{name}/a")
        local.message(topic=f"{name}/b")
        with bridge.client("late") as late:
            late.subscribe(f"{name}/b", qos=1)
            late.message(topic=f"{name}/b", payload="of the centre", retain=True)
        with broker.client(f"{name}late") as late:
            late.subscribe(f"{name}/a", qos=1)
            late.message(topic=f"{name}/a", payload="of the edge", retain=True)
        for topic in ("a", "b"):
            far.published(f"{name}/{topic}", b"", qos=1, retain=True)


@feature("prefixes")
def test_topics_are_mapped_by_prefixes(broker, edge, name):
    bridge = edge(f'topic # out 1 "" {name}/', f"topic # in 1 cmd/ {name}/cmd/", f"remote_clientid {name}")
    bridge.bridged(1)
    with bridge.client("local") as local, broker.client(f"{name}far") as far:
        far.subscribe(f"{name}/#", qos=1)
        local.subscribe("cmd/#", qos=1)
        local.published("temperature", b"21", qos=1)
        far.message(topic=f"{name}/temperature", payload="21")
        far.published(f"{name}/cmd/reboot", b"now", qos=1)
        local.message(topic="cmd/reboot", payload="now")


@feature("notifications")
def test_notifications_are_dropped_and_counted(name, tmp_path):
    with Broker() as broker, broker.client("watcher") as watcher:
        watcher.subscribe("$SYS/broker/connection/#", "after")
        settings = f"topic {name}/# both 1", f"remote_clientid {name}"
        with Mosquitto(tmp_path, f"127.0.0.1:{broker.port}", *settings) as edge:
            edge.bridged(1)
            # Its will, and that it is up.
            until(lambda: dropped(broker, "bridge_notification") >= 2, what="two notifications")
            edge.process.kill()
        until(lambda: broker.find("the connection of a client has ended", client_id=name), what="the bridge to be gone")
        broker.client("other").published("after", b"all", qos=1)
        watcher.message(topic="after")
        assert dropped(broker, "bridge_notification") == 2
        assert dropped(broker, "reserved_topic") == 0
        topic = f"$SYS/broker/connection/{name}/state"
        drops = [(d["client_id"], d["topic"], d["reason"]) for d in broker.drops()]
        assert drops == [(name, topic, "bridge_notification")] * 2


@feature("a restart of the centre")
def test_the_edge_keeps_messages_while_the_centre_is_down(name, tmp_path):
    port = free_port()
    fields = {"sets": {"mqttServerConfig.tcpListener.port": port}, "data_dir": tmp_path / "data"}
    later = {f"late {number}" for number in range(10)}
    with Broker(**fields) as centre:
        centre.client("far", version=4, clean=False).subscribe(f"{name}/#", qos=1)
        bridge = Mosquitto(tmp_path, f"127.0.0.1:{port}", f"topic {name}/# both 1")
        bridge.bridged(1)
    with bridge:
        until(lambda: bridge.lines("Socket error|disconnect|closed"), what=bridge._log)
        with bridge.client("local") as local:
            for payload in sorted(later):
                local.published(f"{name}/x", payload.encode(), qos=1)
        with Broker(**fields) as centre, centre.client("far", version=4, clean=False, session_present=True) as far:
            got = {far.message(topic=f"{name}/x").payload.decode() for _ in later}
            assert got == later


@feature("a restart of the edge")
def test_the_centre_keeps_messages_while_the_edge_is_down(broker, edge, name):
    settings = (f"topic {name}/# both 1", f"remote_clientid {name}")
    first = edge(*settings)
    first.bridged(1)
    first.client("local", clean=False).subscribe(f"{name}/#", qos=1)
    first.stop()
    with broker.client(f"{name}far") as far:
        for number in range(10):
            far.published(f"{name}/{number}", b"late", qos=1)
    second = edge(*settings)
    with second.client("local", clean=False) as local:
        assert {local.message().topic for _ in range(10)} == {f"{name}/{number}" for number in range(10)}


@feature("TLS, user and password, rules")
def test_tls_with_user_and_password(name, tmp_path):
    users, rules = tmp_path / "users", tmp_path / "rules.acl"
    passwd(users, "site1", "secret")
    rules.write_text(
        "allow user site1 publish site1/#\n"
        "allow user site1 subscribe site1/cmd/#\n"
        "deny user site1 publish,subscribe #\n"
    )
    ca = Authority(tmp_path)
    server = ca.issue("server")
    tls = {"host": "127.0.0.1", "port": 0, "sslConfig": {"certFile": server.cert, "keyFile": server.key}}
    config = {
        **BASE,
        "mqttServerConfig": {**BASE["mqttServerConfig"], "tlsListener": tls},
        "authentication": {"chain": [{"kind": "passwordFile", "file": str(users)}]},
        "authorization": {"file": str(rules)},
    }
    settings = [
        f"bridge_cafile {ca.path}",
        "remote_username site1",
        "remote_password secret",
        'topic # out 1 "" site1/',
        "topic # in 1 cmd/ site1/cmd/",
    ]
    with Broker(config=config) as broker:
        with Mosquitto(tmp_path, f"localhost:{broker.port_of('mqtt-tls')}", *settings) as edge:
            edge.bridged(1)
            assert edge.attempts() == 1, edge.log
            (line,) = until(lambda: broker.find("a client is connected", user="site1"), what="the log line")
            assert line["bridge"] is True
            login = {"username": "site1", "password": b"secret"}
            with edge.client("local") as local, broker.client("far", **login) as far:
                local.subscribe("cmd/#", qos=1)
                far.published("site1/cmd/reboot", b"now", qos=1)
                local.message(topic="cmd/reboot", payload="now")
            assert dropped(broker, "bridge_notification") == 2
            assert dropped(broker, "publish_denied") == 0


# ---- by raw packets ----------------------------------------------------------------------------


def bridge_of(broker, client_id, *, version=4, **fields) -> raw.Raw:
    """A connection with the level of a bridge."""
    client = broker.raw(version)
    client.send(raw.connect(client_id, version=version, level=0x80 | version, **fields))
    client.connack = client.expect(CONNACK, reason=0)
    return client


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("clean", [True, False])
def test_a_bridge_gets_what_others_publish_as_it_was_published(broker, name, version, clean):
    with bridge_of(broker, name, version=version, clean=clean) as bridge, broker.client(f"{name}o") as other:
        bridge.subscribe(f"{name}/#", qos=1)
        bridge.published(f"{name}/own", b"own", qos=1)
        other.published(f"{name}/a", b"kept", qos=1, retain=True)
        bridge.message(topic=f"{name}/a", retain=True, qos=1)
        other.published(f"{name}/b", b"not kept", qos=1)
        bridge.message(topic=f"{name}/b", retain=False, qos=1)
        other.published(f"{name}/a", b"", qos=1, retain=True)
        bridge.message(topic=f"{name}/a", retain=True, payload="")


def test_what_a_bridge_subscribed_to_stays_so_in_its_session(broker, name):
    # Also when the client comes back without the bit: the options belong to the subscription.
    bridge_of(broker, name, clean=False).subscribe(f"{name}/#", qos=1)
    with broker.client(f"{name}o") as other:
        other.published(f"{name}/a", b"kept", qos=1, retain=True)
        with broker.client(name, version=4, clean=False, session_present=True) as later:
            later.message(topic=f"{name}/a", retain=True)
            later.published(f"{name}/own", b"own", qos=1)
            other.published(f"{name}/last", b"last", qos=1)
            later.message(topic=f"{name}/last", retain=False)
        other.published(f"{name}/a", b"", qos=1, retain=True)


@pytest.mark.parametrize("filter", ["$share/g/{}", "$queue/{}", "$oshare/g/{}"])
def test_a_shared_subscription_of_a_bridge_brings_its_own_messages(broker, name, filter):
    # [MQTT-3.8.3-4] no local is not for shared subscriptions
    with bridge_of(broker, name) as bridge:
        bridge.send(raw.subscribe(1, [(filter.format(name), 1)], version=4))
        bridge.expect(SUBACK, pid=1, reasons=[1])
        bridge.published(name, b"own", qos=1)
        bridge.message(topic=name, payload="own")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_notification_is_acknowledged_and_goes_nowhere(broker, name, version, qos):
    topic = f"$SYS/broker/connection/{name}/state"
    with broker.client(f"{name}w") as watcher, broker.client(name, version=version) as client:
        watcher.subscribe("$SYS/broker/connection/#", name)
        pid = client.publish(topic, b"1", qos=qos, retain=True)
        if qos:
            answer = client.answer(PUBACK if qos == 1 else PUBREC, pid)
            assert answer.reason in (0, 0x10)
        client.published(name, b"behind", qos=1)
        watcher.message(topic=name, payload="behind")
        assert [d["reason"] for d in broker.drops() if d["client_id"] == name] == ["bridge_notification"]
    with broker.client(f"{name}l") as late:
        late.subscribe("$SYS/broker/connection/#", name)
        client = broker.client(name)
        client.published(name, b"nothing retained", qos=1)
        late.message(topic=name, payload="nothing retained")


@pytest.mark.parametrize("version, clean", [(4, True), (4, False), (5, True)])
def test_a_will_that_is_a_notification_is_not_published(broker, name, version, clean):
    topic = f"$SYS/broker/connection/{name}/state"
    will = {"topic": topic, "payload": b"0", "qos": 1, "retain": True}
    with broker.client(f"{name}w") as watcher:
        watcher.subscribe("$SYS/broker/connection/#", name)
        broker.client(name, version=version, clean=clean, will=will).reset()
        # The next connection is let in when the end of the last one is recorded.
        broker.client(name).published(name, b"after it", qos=1)
        watcher.message(topic=name, payload="after it")
    assert [d["reason"] for d in broker.drops() if d["client_id"] == name] == ["bridge_notification"]


@pytest.mark.parametrize(
    "topic", ["$SYS/broker/connection/state", "$SYS/broker/connection//state", "$SYS/broker/connection/x/status"]
)
def test_other_topics_of_the_broker_stay_its_own(broker, name, topic):
    with broker.client(name) as client:
        assert client.answer(PUBACK, client.publish(topic, b"1", qos=1)).reason == 0x87
    client = broker.raw(4)
    client.send(raw.connect(name, version=4, will={"topic": topic}))
    client.expect_refused(5)


def test_rules_are_not_asked_about_notifications(name, tmp_path):
    rules = tmp_path / "rules.acl"
    rules.write_text("deny all publish #\ndeny all publish $SYS/#\n")
    topic = f"$SYS/broker/connection/{name}/state"
    sets = {"authorization.file": rules, "authorization.denyPublishV3": "disconnect"}
    with Broker(sets) as broker, bridge_of(broker, name, will={"topic": topic, "payload": b"0"}) as bridge:
        bridge.published(topic, b"1", qos=1)
        bridge.ping()
        assert [d["reason"] for d in broker.drops()] == ["bridge_notification"] * 2

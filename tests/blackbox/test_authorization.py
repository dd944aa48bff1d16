"""Authorization: rules of a file, by client identifier, address and the lack of a user name, for each
action, with the answers of each version of MQTT; and `heraldmq acl test`."""

import contextlib
import signal
import subprocess

import pytest

from harness import raw
from harness.broker import Broker, run
from harness.paho import Paho
from harness.raw import PUBACK, PUBCOMP, PUBREC, PUBREL
from harness.wait import DEADLINE_S, until

DENIED = 0x87
FAILURE = 0x80  # SUBACK of 3.1.1
NOT_AUTHORIZED_V3 = 5  # CONNACK of 3.1.1


@pytest.fixture
def with_rules(tmp_path):
    """Starts a broker with these rules; `reload` changes them."""
    path = tmp_path / "rules.acl"

    def start(text, **sets):
        path.write_text(text)
        options = {"authorization.file": path, **{f"authorization.{k}": v for k, v in sets.items()}}
        broker = Broker(options)
        broker.rules_path = path
        return broker

    return start


def reload(broker, text, message="configuration reloaded"):
    """Changes the rule file; returns when the broker has read it."""
    broker.rules_path.write_text(text)
    before = len(broker.find(message))
    broker.signal(signal.SIGHUP)
    until(lambda: len(broker.find(message)) > before, what=message)


def drops_of(broker, client_id):
    """What is recorded of a client, oldest first."""
    return [(d["reason"], d["topic"]) for d in reversed(broker.drops()) if d["client_id"] == client_id]


def denied(broker, action):
    """The counter of denials."""
    lines = broker.http("/metrics")[1].splitlines()
    return next(int(l.split()[1]) for l in lines if l.startswith(f'heraldmq_denied_total{{action="{action}"}}'))


# ---- publish -----------------------------------------------------------------------------------


def test_publish_denied_v5(with_rules):
    with with_rules("allow client gw-* publish gateways/%c/#\ndeny all publish #\n") as broker:
        with broker.client("gw-1") as gateway, broker.client("watcher") as watcher:
            watcher.subscribe("#")
            for topic in ("gateways/gw-2/up", "other"):
                gateway.publish(topic, b"0")
                assert gateway.answer(PUBACK, gateway.publish(topic, b"1", qos=1)).reason == DENIED
                assert gateway.answer(PUBREC, gateway.publish(topic, b"2", qos=2)).reason == DENIED
            # [MQTT-4.3.3-9] the identifiers are free again, and what is allowed goes on
            assert gateway.published("gateways/gw-1/up", b"mine", qos=2).reason == 0
            assert watcher.until("mine") == []
            dropped = [("publish_denied", topic) for topic in ("gateways/gw-2/up", "other") for _ in range(3)]
            assert drops_of(broker, "gw-1") == dropped
            assert broker.drop_totals()["publish_denied"] == denied(broker, "publish") == len(dropped)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_denied_v3_is_ignored(with_rules, name, qos, version):
    # [MQTT3-3.3.5-2] [MQTT31-7]
    with with_rules(f"deny all publish {name}/no\n") as broker:
        with broker.client(name, version=version) as client:
            client.subscribe("#")
            client.published(f"{name}/no", b"no", qos=qos)
            client.published(f"{name}/yes", b"yes", qos=qos)
            assert client.until("yes") == []
            assert drops_of(broker, name) == [("publish_denied", f"{name}/no")]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_denied_v3_disconnects_if_set_so(with_rules, name, qos):
    with with_rules(f"deny all publish {name}/no\n", denyPublishV3="disconnect") as broker:
        with broker.client(name, version=4) as client:
            client.publish(f"{name}/no", qos=qos)
            client.expect_closed()
        with broker.client(name) as client:  # 5.0 has a code for it
            pid = client.publish(f"{name}/no", qos=qos)
            if qos:
                assert client.answer(PUBACK if qos == 1 else PUBREC, pid).reason == DENIED
            client.ping()


def test_a_durable_session_publishes_what_it_may(with_rules, name):
    with with_rules(f"deny all publish {name}/no\n") as broker:
        with broker.client(name, props={"session_expiry": 60}) as client:
            client.subscribe(f"{name}/#", qos=2)
            for _ in range(3):
                pid = client.publish(f"{name}/no", qos=2)
                assert client.answer(PUBREC, pid).reason == DENIED
            client.published(f"{name}/yes", b"yes", qos=2)
            client.message(payload="yes")


# ---- subscribe ---------------------------------------------------------------------------------


def test_subscribe_denied_per_filter(with_rules, name):
    rules = f"deny all subscribe eq:#\nallow all subscribe {name}/+ {name}/%c/#\ndeny all subscribe {name}/#\n"
    with with_rules(rules) as broker:
        filters = ["#", f"{name}/a", f"{name}/+", f"{name}/#", f"$share/g/{name}/#", f"$share/g/{name}/x", "other/#"]
        granted = [False, True, True, False, False, True, True]
        for version, refused in ((5, DENIED), (4, FAILURE)):
            with broker.client("c", version=version) as client:
                client.subscribe(*filters, expect=[0 if ok else refused for ok in granted])
                client.subscribe(f"{name}/c/d/#", expect=[0])
                client.subscribe(f"{name}/d/d/#", expect=[refused])
                client.publish(f"{name}/x/y")
                client.publish(f"{name}/c/d", b"once")
                client.message(payload="once")
                client.ping()
        assert denied(broker, "subscribe") == 8
        assert drops_of(broker, "c")[:2] == [("subscribe_denied", "#"), ("subscribe_denied", f"{name}/#")]
        assert broker.drop_totals().get("subscribe_denied") is None


def test_a_client_identifier_cannot_widen_a_rule(with_rules, name):
    with with_rules(f"allow all all {name}/%c/#\ndeny all all\n") as broker:
        for client_id in ("+", "#", "a/b", "a/+"):
            with broker.client(client_id) as client:
                client.subscribe(f"{name}/{client_id}", expect=[DENIED])
                client.subscribe(f"{name}/a/b/c", expect=[DENIED])
        with broker.client("$SYS") as client:
            client.subscribe(f"{name}/$SYS/#", expect=[0])
            client.subscribe("$SYS/#", expect=[DENIED])


# ---- receive -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_what_is_denied_does_not_come_by_a_broader_filter(with_rules, name, version):
    with with_rules("deny client s* subscribe secret/#\n") as broker:
        with broker.client("s1", version=version) as subscriber, broker.client("p") as publisher:
            refused = DENIED if version == 5 else FAILURE
            subscriber.subscribe("#", "secret/+", "secret/a/b", expect=[1, refused, refused], qos=1)
            subscriber.subscribe("$share/g/#", qos=1)
            for qos in (0, 1):
                publisher.publish("secret/a", b"no", qos=qos)
                publisher.publish("secret", b"no", qos=qos)
            publisher.publish("open", b"yes")
            assert subscriber.until("yes") == []
            # Once for each message as a subscriber, and once as a member of the group.
            until(lambda: denied(broker, "receive") == 8, what="the denials")
            assert set(drops_of(broker, "s1")) == {
                ("subscribe_denied", "secret/+"),
                ("subscribe_denied", "secret/a/b"),
                ("receive_denied", "secret/a"),
                ("receive_denied", "secret"),
            }


def test_receive_alone_leaves_the_subscription(with_rules):
    with with_rules("allow client a receive secret/#\ndeny all receive secret/#\n") as broker:
        with broker.client("a") as a, broker.client("b") as b:
            a.subscribe("secret/#")
            b.subscribe("secret/#", "open")
            a.publish("secret/x", b"secret")
            a.message(payload="secret")
            a.publish("open", b"open")
            assert b.until("open") == []


def test_retained_messages_are_replayed_to_whom_they_may_reach(with_rules, name):
    count = 300  # several pages, of which most bring nothing
    with with_rules(f"deny client s receive {name}/secret/#\n") as broker:
        with broker.client("p") as publisher:
            for number in range(count):
                publisher.published(f"{name}/secret/{number}", b"no", retain=True)
            publisher.published(f"{name}/zzz", b"yes", retain=True)
        for fields in ({}, {"props": {"session_expiry": 60}}):
            with broker.client("s", **fields) as subscriber:
                subscriber.subscribe(f"{name}/#", qos=1)
                subscriber.message(payload="yes", retain=True)
                subscriber.ping()
        assert denied(broker, "receive") == 2 * count


def test_queued_messages_are_judged_at_delivery(with_rules, name):
    with with_rules("") as broker:
        with broker.client(name, props={"session_expiry": 60}) as sleeper:
            sleeper.subscribe(f"{name}/#", qos=2)
        with broker.client("p") as publisher:
            for number in range(600):  # more than the shard gives at once
                publisher.published(f"{name}/secret", str(number), qos=1 + number % 2)
            publisher.published(f"{name}/open", b"open", qos=1)
        reload(broker, f"deny client {name} receive {name}/secret\n")
        with broker.client(name, clean=False, props={"session_expiry": 60}, session_present=True) as sleeper:
            sleeper.message(payload="open")
            sleeper.published(f"{name}/open", b"again", qos=1)
            sleeper.message(payload="again")
        assert denied(broker, "receive") == 600
        # What was passed over is done, and does not come when it would be allowed.
        with broker.client(name, clean=False, props={"session_expiry": 60}, session_present=True) as sleeper:
            reload(broker, "")
            sleeper.published(f"{name}/open", b"last", qos=1)
            sleeper.message(payload="last")


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_before_is_judged_again(with_rules, name, qos):
    durable = {"clean": False, "props": {"session_expiry": 60}}
    with with_rules("") as broker:
        with broker.client(name, **durable) as client:
            client.subscribe(f"{name}/#", qos=qos)
            with broker.client("p") as publisher:
                publisher.published(f"{name}/secret", b"secret", qos=qos)
                publisher.published(f"{name}/open", b"open", qos=qos)
            assert [client.recv().payload for _ in range(2)] == [b"secret", b"open"]
        reload(broker, f"deny all receive {name}/secret\n")
        with broker.client(name, session_present=True, **durable) as client:
            if qos == 2:
                # The client may hold its identifier, which is to be free again.
                released = client.expect(PUBREL)
                client.send(raw.ack(PUBCOMP, released.pid))
            # [MQTT-4.4.0-1]
            assert client.message(payload="open").dup
            client.ping()
        assert ("receive_denied", f"{name}/secret") in drops_of(broker, name)
        reload(broker, "")
        with broker.client(name, session_present=True, **durable) as client:
            client.ping()


# ---- retain, wills -----------------------------------------------------------------------------


def test_retain_denied(with_rules, name):
    with with_rules(f"deny all retain {name}/#\n") as broker:
        with broker.client(name) as client, broker.client(name + "3", version=4) as old:
            client.subscribe(f"{name}/#")
            assert client.answer(PUBACK, client.publish(f"{name}/a", b"no", qos=1, retain=True)).reason == DENIED
            client.publish(f"{name}/a", b"no", retain=True)
            client.ping()
            old.published(f"{name}/a", b"no", qos=1, retain=True)
            client.published(f"{name}/a", b"yes", qos=1)
            assert client.until("yes") == []
        with broker.client(name) as client:
            client.subscribe(f"{name}/#")
            client.ping()
        assert broker.drop_totals()["retain_denied"] == denied(broker, "retain") == 3


@pytest.mark.parametrize("version, code", [(4, NOT_AUTHORIZED_V3), (5, DENIED)])
def test_a_will_is_judged_at_connect(with_rules, name, version, code):
    with with_rules(f"deny all publish {name}/no\ndeny all retain {name}/kept\n") as broker:
        for will in ({"topic": f"{name}/no"}, {"topic": f"{name}/kept", "retain": True}):
            client = broker.raw(version)
            client.send(raw.connect(name, version=version, will=will))
            client.expect_refused(code)
        denied = {("publish_denied", f"{name}/no"), ("retain_denied", f"{name}/kept")}
        assert set(drops_of(broker, name)) == denied
        with broker.client("watcher") as watcher:
            watcher.subscribe(f"{name}/#")
            broker.client(name, version=version, will={"topic": f"{name}/kept", "payload": b"will"}).close()
            watcher.message(payload="will")


@pytest.mark.parametrize("version, code", [(4, NOT_AUTHORIZED_V3), (5, DENIED)])
def test_the_broker_s_own_topics_are_nobody_s_will(name, version, code):
    with Broker() as broker:
        for topic in ("$SYS", "$SYS/broker/version"):
            client = broker.raw(version)
            client.send(raw.connect(name, version=version, will={"topic": topic, "retain": True}))
            client.expect_refused(code)
        reserved = ("reserved_topic", "$SYS"), ("reserved_topic", "$SYS/broker/version")
        assert sorted(drops_of(broker, name)) == sorted(reserved)


def test_what_only_begins_like_the_broker_s_own_topics_is_a_client_s(name):
    with Broker() as broker, broker.client(name) as client, broker.client("other") as other:
        client.published("$SYSTEM/x", b"kept", qos=1, retain=True)
        other.subscribe("$SYSTEM/#")
        other.message(topic="$SYSTEM/x", payload="kept")
        for topic in ("$SYS", "$SYS/x"):
            assert client.answer(PUBACK, client.publish(topic, qos=1)).reason == DENIED


# ---- who ---------------------------------------------------------------------------------------


def test_addresses_and_anonymous_clients(with_rules, name):
    rules = """
        deny  address 10.0.0.0/8,::1 publish by-address
        allow address 127.0.0.0/8 publish by-address
        deny  user "*" publish by-user
        allow anonymous publish by-user
        deny  all all
    """
    with with_rules(rules) as broker:
        # A user name that nobody has confirmed is none.
        for fields in ({}, {"username": "ann"}):
            with broker.client(name, **fields) as client:
                assert client.published("by-address", qos=1).reason < DENIED
                assert client.published("by-user", qos=1).reason < DENIED
                assert client.answer(PUBACK, client.publish("other", qos=1)).reason == DENIED


@pytest.mark.parametrize("rules", ["", "allow all publish a\n"])
def test_no_match_denies_if_set_so(with_rules, rules):
    with with_rules(rules, noMatch="deny") as broker, broker.client("c") as client:
        client.subscribe("a", expect=[DENIED])
        assert client.answer(PUBACK, client.publish("a", qos=1)).reason == (DENIED if not rules else 0x10)
        assert client.answer(PUBACK, client.publish("b", qos=1)).reason == DENIED


# ---- shared groups -----------------------------------------------------------------------------

DURABLE = {"clean": False, "props": {"session_expiry": 60}}


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("group", ["$share/g", "$oshare/g"])
def test_a_group_gives_others_what_a_member_may_not_receive(with_rules, name, durable, qos, group):
    fields = DURABLE if durable else {}
    payloads = [str(number).encode() for number in range(40)]
    with with_rules(f"deny client {name}-no* receive {name}/t\n") as broker, contextlib.ExitStack() as stack:
        for number in range(6):
            denied_one = stack.enter_context(broker.client(f"{name}-no{number}", **fields))
            denied_one.subscribe(f"{group}/{name}/#", qos=qos)
        member = stack.enter_context(broker.client(name, **fields))
        member.subscribe(f"{group}/{name}/#", qos=qos)
        # Several publishers, for an ordered group chooses by them.
        publishers = [stack.enter_context(broker.client(f"{name}-p{number}")) for number in range(4)]
        for number, payload in enumerate(payloads):
            publishers[number % 4].published(f"{name}/t", payload, qos=qos)
        assert sorted(m.payload for m in member.take(len(payloads))) == sorted(payloads)
        assert broker.drop_totals().get("receive_denied", 0) == denied(broker, "receive") == 0


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_no_member_may_receive_is_dropped_once(with_rules, name, durable, qos):
    fields = DURABLE if durable else {}
    with with_rules(f"deny all receive {name}/secret\n") as broker, contextlib.ExitStack() as stack:
        members = [stack.enter_context(broker.client(f"{name}-{number}", **fields)) for number in range(5)]
        for member in members:
            member.subscribe(f"$share/g/{name}/#", qos=qos)
        with broker.client("p") as publisher:
            for _ in range(10):
                publisher.published(f"{name}/secret", b"secret", qos=qos)
        until(lambda: broker.drop_totals().get("receive_denied", 0) == 10, what="the drops")
        assert denied(broker, "receive") == 10
        for member in members:
            member.ping()


@pytest.mark.parametrize("durable", [False, True])
def test_a_group_gets_back_what_was_queued_for_a_member(with_rules, name, durable):
    props = {"receive_maximum": 1, "session_expiry": 60 if durable else 0}
    with with_rules("") as broker, broker.client("p") as publisher:
        with broker.client(f"{name}-1", clean=not durable, props=props) as first:
            first.subscribe(f"$share/g/{name}/#", qos=1)
            payloads = [str(number).encode() for number in range(10)]
            for payload in payloads:
                publisher.published(f"{name}/t", payload, qos=1)
            # It is in flight, and stays.
            assert first.recv().payload == payloads[0]
            with broker.client(f"{name}-2") as second:
                second.subscribe(f"$share/g/{name}/#", qos=1)
                reload(broker, f"deny client {name}-1 receive {name}/t\n")
                assert [m.payload for m in second.take(9)] == payloads[1:]
                publisher.published(f"{name}/t", b"later", qos=1)
                assert second.message().payload == b"later"
            assert drops_of(broker, f"{name}-1") == []


def test_a_group_gets_back_what_waited_for_a_session_without_a_connection(with_rules, name):
    payloads = [str(number).encode() for number in range(10)]
    with with_rules("") as broker, broker.client("p") as publisher:
        with broker.client(f"{name}-1", **DURABLE) as first:
            first.subscribe(f"$share/g/{name}/#", qos=1)
        for payload in payloads:
            publisher.published(f"{name}/t", payload, qos=1)
        reload(broker, f"deny client {name}-1 receive {name}/t\n")
        with broker.client(f"{name}-2") as second:
            second.subscribe(f"$share/g/{name}/#", qos=1)
            with broker.client(f"{name}-1", session_present=True, **DURABLE) as first:
                first.ping()
                assert [m.payload for m in second.take(len(payloads))] == payloads
        assert drops_of(broker, f"{name}-1") == []


# ---- reload ------------------------------------------------------------------------------------


def test_rules_that_change_while_a_session_lingers_count_for_it(with_rules, name):
    durable = {"clean": False, "props": {"session_expiry": 60}}
    many = [f"{name}/{number}" for number in range(5000)]
    with with_rules("") as broker, broker.client(f"{name}p") as publisher:
        client = broker.client(name, **durable)
        client.subscribe(*many, qos=1)
        client.close()
        until(lambda: broker.metric("heraldmq_sessions_routed_after_disconnect") == 1, what="a session that lingers")
        publisher.published(f"{name}/1", b"before")
        publisher.published(f"{name}/2", b"before")
        reload(broker, f"deny client {name} receive {name}/1\ndeny client {name} subscribe {name}/1\n")
        publisher.publish(f"{name}/1", b"0")
        with broker.client(name, session_present=True, **durable) as client:
            client.message(topic=f"{name}/2", payload="before")
            until(lambda: broker.metric("heraldmq_subscriptions_revoked_total") == 1, what="the end of a subscription")
            publisher.published(f"{name}/2", b"end")
            assert client.until(b"end") == []
            assert client.unsubscribe(*many[:3]).reasons == [0, 0x11, 0]


def test_reload_counts_at_once_and_subscriptions_stay(with_rules, name):
    # Rules about something else, so that decisions are made and remembered.
    others = "deny all all nobody\n"
    with with_rules(others) as broker, broker.client(name) as subscriber, broker.client("p") as publisher:
        subscriber.subscribe(f"{name}/#")
        publisher.publish(f"{name}/a", b"1")
        subscriber.message(payload="1")
        publisher.published(f"{name}/p", b"p", qos=1)
        subscriber.message(payload="p")

        reload(broker, f"deny all subscribe {name}/a\ndeny client p publish {name}/p\n")
        publisher.publish(f"{name}/a", b"2")
        publisher.publish(f"{name}/b", b"3")
        assert subscriber.until("3") == []
        assert publisher.answer(PUBACK, publisher.publish(f"{name}/p", qos=1)).reason == DENIED

        reload(broker, "allow\nwrong", message="configuration not reloaded")
        problem = f'{broker.rules_path}:2: "wrong" is neither allow nor deny'
        until(lambda: broker.find("configuration not reloaded", problem=problem), what=problem)
        publisher.publish(f"{name}/a", b"4")
        assert publisher.answer(PUBACK, publisher.publish(f"{name}/p", qos=1)).reason == DENIED
        # A message is judged where the subscriber is: that has to be done before the rules change.
        publisher.publish(f"{name}/b", b"judged")
        assert subscriber.until("judged") == []

        reload(broker, others)
        publisher.publish(f"{name}/a", b"5")
        subscriber.message(payload="5")
        publisher.published(f"{name}/p", qos=1)


def revoked(broker):
    return broker.metric("heraldmq_subscriptions_revoked_total")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("durable", [False, True])
def test_what_became_forbidden_is_unsubscribed(with_rules, name, version, durable):
    fields = {"version": version, "clean": not durable}
    if version == 5 and durable:
        fields["props"] = {"session_expiry": 60}
    filters = [f"{name}/open/#", f"{name}/secret/#", f"$share/g/{name}/secret/+", f"{name}/#"]
    with with_rules("") as broker, broker.client("p") as publisher, broker.client(name, **fields) as client:
        client.subscribe(*filters, qos=1)
        reload(broker, f"deny all subscribe {name}/secret/#\n")
        until(lambda: revoked(broker) == 2, what="the end of two subscriptions")
        assert sorted(drops_of(broker, name)) == [
            ("subscribe_denied", f"{name}/secret/#"),
            ("subscribe_denied", f"{name}/secret/+"),
        ]
        client.unsubscribe(f"{name}/#")
        # Allowed again, they are not back.
        reload(broker, "")
        publisher.published(f"{name}/secret/a", b"secret")
        publisher.published(f"{name}/open/a", b"open")
        assert client.until("open") == []
        if durable:
            client.close()
            publisher.published(f"{name}/secret/a", b"secret")
            publisher.published(f"{name}/open/a", b"later")
            with broker.client(name, session_present=True, **fields) as client:
                assert client.until("later") == []
        assert revoked(broker) == 2


def test_a_session_is_judged_when_it_is_resumed(with_rules, name):
    durable = {"clean": False, "props": {"session_expiry": 60}}
    with with_rules("") as broker, broker.client("p") as publisher:
        with broker.client(name, **durable) as client:
            client.subscribe(f"{name}/secret", f"{name}/open", qos=1)
        reload(broker, f"deny all subscribe {name}/secret\n")
        with broker.client(name, session_present=True, **durable) as client:
            until(lambda: revoked(broker) == 1, what="the end of a subscription")
            reload(broker, "")
            publisher.published(f"{name}/secret", b"secret")
            publisher.published(f"{name}/open", b"open")
            assert client.until("open") == []


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_queued_for_a_connected_client_is_judged_by_new_rules(with_rules, name, durable, qos):
    props = {"session_expiry": 60 if durable else 0, "receive_maximum": 1}
    with with_rules("") as broker, broker.client("p") as publisher:
        with broker.client(name, clean=not durable, props=props) as client:
            client.subscribe(f"{name}/#", qos=qos)
            publisher.published(f"{name}/a", b"a", qos=qos)
            first = client.recv()
            for topic in ("secret", "b", "secret", "c"):
                publisher.published(f"{name}/{topic}", topic.encode(), qos=qos)
            client.ping()
            reload(broker, f"deny all receive {name}/secret\n")
            if qos == 1:
                client.send(raw.ack(PUBACK, first.pid))
            else:
                client.send(raw.ack(PUBREC, first.pid))
                client.answer(PUBREL, first.pid)
                client.send(raw.ack(PUBCOMP, first.pid))
            assert [m.payload for m in client.take(2)] == [b"b", b"c"]
            client.ping()
            assert drops_of(broker, name) == [("receive_denied", f"{name}/secret")] * 2
        reload(broker, "")
        with broker.client(name, clean=not durable, session_present=durable, props=props) as client:
            client.ping()


@pytest.mark.parametrize("durable", [False, True])
def test_a_will_that_became_forbidden_is_not_published(with_rules, name, durable):
    props = {"session_expiry": 60 if durable else 0}
    with with_rules("") as broker, broker.client("watcher") as watcher:
        watcher.subscribe(f"{name}/#", qos=1)
        for topic in ("no", "yes"):
            will = {"topic": f"{name}/{topic}", "payload": topic.encode(), "qos": 1}
            client = broker.client(f"{name}{topic}", will=will, props=props)
            if topic == "no":
                reload(broker, f"deny all publish {name}/no\n")
                denied = ("publish_denied", f"{name}/no")
                until(lambda: denied in drops_of(broker, f"{name}no"), what="the will taken back")
            client.close()
        assert watcher.until("yes") == []


def test_a_broker_does_not_start_with_wrong_rules(with_rules, tmp_path):
    for text in ("deny all publish a#\n", None):
        path = tmp_path / "rules"
        if text:
            path.write_text(text)
        else:
            path.unlink()
        broker = Broker({"authorization.file": path}, ready=False)
        try:
            assert broker.wait() == 2
            assert any(str(path) in line for line in broker.log_text)
        finally:
            broker.close()


# ---- other people's clients --------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_paho(with_rules, name, version):
    with with_rules(f"deny client {name} publish,subscribe {name}/no/#\n") as broker:
        with Paho(broker.port, name, version) as client:
            reasons = client.subscribe([(f"{name}/no/a", 1), (f"{name}/#", 1)])
            assert [r.is_failure for r in reasons] == [True, False]
            client.publish(f"{name}/no/a", b"no", qos=1)
            client.publish(f"{name}/yes", b"yes", qos=1)
            client.until(b"yes")


def test_mosquitto_clients(with_rules, name):
    with with_rules(f"deny client {name} publish,subscribe {name}/no\n") as broker:
        common = ["-p", str(broker.port), "-i", name, "-V", "5", "-t", f"{name}/no"]
        sub = subprocess.run(["mosquitto_sub", *common, "-W", "60"], capture_output=True, text=True, timeout=2 * DEADLINE_S)
        assert "denied" in sub.stderr
        pub = ["mosquitto_pub", *common, "-q", "1", "-m", "x"]
        assert "Not authorized" in subprocess.run(pub, capture_output=True, text=True, timeout=DEADLINE_S).stderr


# ---- the command -------------------------------------------------------------------------------

RULES = """\
# a remark
allow user "dashboard" subscribe $SYS/#
allow user "*" and address 10.0.0.0/8 all users/%u/#
deny  all subscribe $SYS/# eq:#
"""


@pytest.mark.parametrize(
    "question, allowed, line",
    [
        ("--user dashboard --client a subscribe $SYS/broker/#", True, 2),
        ("--user ann --client a subscribe $SYS/broker/#", False, 4),
        ("--client a subscribe $share/g/#", False, 4),
        ("--user ann --client a --address 10.0.0.9 retain users/ann/x", True, 3),
        ("--user ann --client a --address 11.0.0.9 publish users/ann/x", True, None),
        ("--user ann --client a receive $SYS/x", False, 4),
    ],
)
def test_acl_test(tmp_path, question, allowed, line):
    rules = tmp_path / "rules.acl"
    rules.write_text(RULES)
    got = run("acl", "test", "--rules", rules, *question.split())
    assert (got.returncode, got.stderr) == (0 if allowed else 1, "")
    decision, reason = got.stdout.splitlines()
    assert decision == ("allow" if allowed else "deny")
    if line:
        assert reason == f"{rules}:{line}: {RULES.splitlines()[line - 1]}"
    else:
        assert "noMatch" in reason


def test_acl_test_with_a_configuration(tmp_path):
    rules, config = tmp_path / "rules.acl", tmp_path / "conf.yml"
    config.write_text(f"authorization: {{file: {rules}, noMatch: deny}}\n")
    question = ["acl", "test", "--config", config, "--client", "a", "publish", "t"]
    rules.write_text("deny all publish u\n")
    got = run(*question)
    assert got.returncode == 1 and "noMatch" in got.stdout
    assert run("check-config", config).returncode == 0

    rules.write_text("deny all publish u\ndeny everybody publish u\n")
    for command in (question, ["check-config", config]):
        got = run(*command)
        assert got.returncode == 2 and f"{rules}:2: " in got.stderr and got.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        ["--client", "a", "publish", "t"],
        ["--rules", "/nowhere", "--client", "a", "publish", "t"],
        ["--rules", "/dev/null", "--client", "a", "read", "t"],
        ["--rules", "/dev/null", "--client", "a", "publish", "t/#"],
        ["--rules", "/dev/null", "--client", "a", "subscribe", "t#"],
        ["--rules", "/dev/null", "publish", "t"],
        ["--rules", "/dev/null", "--client", "a", "--address", "ten", "publish", "t"],
    ],
)
def test_acl_test_with_mistakes(args):
    got = run("acl", "test", *args)
    assert got.returncode == 2 and got.stderr and not got.stdout

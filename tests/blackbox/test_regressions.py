"""Bugs that were found once, each with a test named after it."""

import datetime
import threading

import pytest

from harness import raw
from harness.broker import Broker
from harness.raw import PUBACK, PUBLISH, PUBREC, Closed
from harness.wait import until
from test_http import metrics

NO_RATES = {"limits.connection.bytesPerSecondIn": 0, "limits.connection.bytesPerSecondOut": 0}


def gauge(broker, name) -> float:
    return metrics(broker)[f"heraldmq_{name}"].samples[0].value


def test_a_connect_behind_a_refused_one_opens_no_session(name):
    # [MQTT-3.1.4-2] [MQTT3-3.1.4-5] what follows a refused CONNECT is not processed
    with Broker() as broker:
        for first in (raw.connect("", version=4, clean=False), raw.PING):
            with broker.raw(4) as client:
                client.send(first + raw.connect(name, version=4))
                with pytest.raises(Closed):
                    while True:
                        assert client.recv().reason != 0
        until(lambda: gauge(broker, "connections_open") == 0, what="the connections are closed")
        assert gauge(broker, "sessions") == gauge(broker, "clients_connected") == 0


def test_a_group_that_is_gone_lends_its_number_to_no_other(name):
    with Broker() as broker, broker.client(name + "p") as publisher:
        leaver = broker.client(name + "x")
        leaver.subscribe(f"$share/one/{name}/secret", qos=1)
        publisher.published(f"{name}/secret", b"secret")
        leaver.expect(PUBLISH, payload="secret")
        leaver.unsubscribe(f"$share/one/{name}/secret")
        with broker.client(name + "y") as stranger:
            stranger.subscribe(f"$share/two/{name}/other", qos=1)
            leaver.disconnect()
            until(lambda: broker.drop_totals()["no_group_member"] == 1, what="the message is dropped by name")
            publisher.published(f"{name}/other", b"mine")
            stranger.message(payload="mine")


def test_accept_timers_do_not_multiply():
    # Two listeners in one loop, and more connections than connectionsPerSecond allows
    listeners = "[{host: 127.0.0.1, port: 0}, {host: 127.0.0.1, port: 0}]"
    config = f"eventLoops: 1\nmqttServerConfig:\n  tcpListener: {listeners}\n"
    with Broker({"limits.node.connectionsPerSecond": 20, "http.port": 0}, config=config) as broker:
        ports = [int(line["address"].rsplit(":")[-1]) for line in broker.find("listening", kind="mqtt-tcp")]
        assert len(ports) == 2
        before = broker.rss()
        clients = [raw.Raw(port) for port in ports * 20]
        for number, client in enumerate(clients):
            client.connect(f"c{number}")
        assert broker.rss() - before < 20 << 20
        for client in clients:
            client.close()


def test_one_fast_publisher_does_not_overrun_who_reads(name):
    # QoS 0, far more than the queue holds in what arrives at once
    count = 300_000
    # Who reads may have to wait for a processor.
    with Broker({**NO_RATES, "limits.connection.holdPublisherMs": 60_000}) as broker:
        with broker.client(name + "s") as reader, broker.client(name + "p") as publisher:
            reader.subscribe(name)
            one = raw.publish(name, b"x")
            flood = threading.Thread(target=publisher.send, args=(one * count,))
            flood.start()
            # Only counted, or this program would be the slow one.
            left = count * len(one)
            while left > 0:
                left -= len(reader.socket.recv(1 << 20))
            flood.join()
            assert left == 0 and broker.drop_totals()["queue_full_messages"] == 0


def test_acknowledgements_alone_release_held_publishers(name):
    sets = {**NO_RATES, "limits.connection.holdPublisherMs": 60_000, "limits.session.queueBytes": 1_000_000}
    with Broker(sets) as broker:
        with broker.client(name + "s") as reader, broker.client(name + "p") as publisher:
            reader.subscribe(name, qos=1)
            for number in range(20):
                publisher.publish(name, bytes(100_000), qos=1, pid=number + 1)
            until(lambda: broker.metric("heraldmq_publishers_paused") == 1, what="a publisher that waits")
            taken = []

            def nothing_came():
                """Whether a round trip brings nothing but itself."""
                before = len(taken)
                reader.send(raw.PING)
                while (packet := reader.recv()).kind == PUBLISH:
                    taken.append(packet.pid)
                return len(taken) == before

            until(nothing_came, what="all that the broker sends of itself")
            assert broker.metric("heraldmq_publishers_paused") == 1
            assert 5 <= len(taken) < 20
            reader.send(*(raw.ack(PUBACK, pid) for pid in taken))
            reader.take(20 - len(taken))


def test_a_client_takes_its_own_connection_over_at_the_limit(name):
    with Broker({"limits.node.connections": 1}) as broker:
        first = broker.client(name)
        second = broker.client(name)
        first.expect_disconnected(0x8E)
        with broker.raw() as other:
            other.send(raw.connect(name + "o"))
            other.expect_refused(0x97)
        second.disconnect()


def test_retained_messages_outgrow_no_queue(name):
    sets = {**NO_RATES, "limits.session.queueMessages": 5}
    with Broker(sets) as broker, broker.client(name + "p") as publisher:
        for number in range(40):
            publisher.published(f"{name}/{number:02}", b"kept", retain=True)
        with broker.client(name) as client:
            client.subscribe(f"{name}/+", qos=1)
            assert len({m.topic for m in client.take(40)}) == 40
        assert sum(broker.drop_totals().values()) == 0


# Of a time limit that nothing waits for.
FOREVER_MS = 600_000


def test_shutdown_does_not_wait_for_who_never_connected():
    with Broker({"limits.connection.connectTimeoutMs": FOREVER_MS}) as broker:
        silent = broker.raw()
        until(lambda: gauge(broker, "connections_open") == 1, what="the connection is there")
        assert broker.stop() == 0
        stopped = broker.find("stopped")[0]["timestamp"]
        began = broker.find("shutting down")[0]["timestamp"]
        took = datetime.datetime.fromisoformat(stopped) - datetime.datetime.fromisoformat(began)
        assert took.total_seconds() < FOREVER_MS / 1000 / 10
        silent.close()


def test_a_group_gets_what_reuses_a_packet_identifier_in_every_shard(name):
    # [MQTT-4.3.3-9] [MQTT3-4.3.3-2] a packet identifier that is released belongs to the next message
    with Broker({"inbox_store_initial_shards": 4}) as broker:
        members = [broker.client(f"{name}{n}", props={"session_expiry": 60}) for n in range(8)]
        for number, member in enumerate(members):
            member.subscribe(f"$share/g{number}/{name}", qos=2)
        with broker.client(name, props={"session_expiry": 60}) as publisher:
            for number in range(3):
                publisher.published(name, str(number), qos=2, pid=1)
        for member in members:
            assert [m.payload for m in member.take(3)] == [b"0", b"1", b"2"]


def test_a_packet_identifier_that_is_refused_when_it_comes_again_is_free(name):
    # [MQTT-4.3.3-9] a PUBREC of 0x80 or more ends the message; the next one with its identifier is new
    sets = {"limits.session.queueMessages": 10, "limits.session.queueFull": "refuse"}
    durable = {"session_expiry": 60}
    with Broker(sets) as broker, broker.client(name) as reader:
        reader.subscribe(name, qos=2)
        publisher = broker.client(name + "p", props=durable)
        publisher.publish(name, b"first", qos=2, pid=1)
        publisher.expect(PUBREC, pid=1, reason=0)
        publisher.close()
        reader.message(payload="first")
        # A group that did not know the message, and has no room for it.
        with broker.client(name + "m", props=durable) as full:
            full.subscribe(f"$share/g/{name}", f"{name}/fill", qos=2)
            full.disconnect()
        with broker.client(name + "p", clean=False, session_present=True, props=durable) as publisher:
            for _ in range(10):
                publisher.published(f"{name}/fill", b"x", pid=2)
            publisher.publish(name, b"first", qos=2, pid=1, dup=True)
            publisher.expect(PUBREC, pid=1, reason=0x97)
            publisher.publish(name, b"second", qos=2, pid=1)
            publisher.expect(PUBREC, pid=1, reason=0x97)
            reader.message(payload="second")

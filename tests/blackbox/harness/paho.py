"""paho-mqtt (Python) with its callbacks turned into things a test can wait for."""

import queue
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from .wait import DEADLINE_S, until

VERSIONS = {"3.1": mqtt.MQTTv31, "3.1.1": mqtt.MQTTv311, "5.0": mqtt.MQTTv5}


def props(packet: str, **values) -> Properties:
    """Properties of a packet type, named as in the standard: props("PUBLISH", TopicAlias=1)."""
    made = Properties(getattr(PacketTypes, packet))
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Paho:
    """A connected paho client; use as context manager, which disconnects."""

    def __init__(
        self,
        port,
        client_id="",
        version="5.0",
        *,
        clean=True,
        will=None,
        connect=None,
        keepalive=60,
        wait=True,
        manual_ack=False,
        host="127.0.0.1",
        transport="tcp",
        cafile=None,
        certificate=None,
    ):
        five = version == "5.0"
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=VERSIONS[version],
            clean_session=None if five else clean,
            manual_ack=manual_ack,
            reconnect_on_failure=False,
            transport=transport,
        )
        if cafile:
            cert, key = certificate or (None, None)
            self.client.tls_set(cafile, cert, key)
        self.messages: queue.Queue = queue.Queue()
        self.connected: queue.Queue = queue.Queue()
        self.disconnected: queue.Queue = queue.Queue()
        self.acks: dict = {}
        self._lock = threading.Lock()
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_connect = lambda _c, _u, flags, reason, p: self.connected.put((flags, reason, p))
        self.client.on_disconnect = lambda _c, _u, _f, reason, p: self.disconnected.put((reason, p))
        for name in ("subscribe", "unsubscribe", "publish"):
            setattr(self.client, f"on_{name}", lambda _c, _u, mid, reasons, p: self.acks.__setitem__(mid, (reasons, p)))
        if will:
            self.client.will_set(**will)
        self.client.connect(
            host, port, keepalive, **({"clean_start": clean, "properties": connect} if five else {})
        )
        self.client.loop_start()
        if wait:
            self.flags, self.reason, self.props = self.connected.get(timeout=DEADLINE_S)
            assert not self.reason.is_failure, self.reason

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()

    def lose(self):
        """Ends the connection without DISCONNECT."""
        self.client.loop_stop()
        self.client.socket().close()

    def _answer(self, mid):
        return until(lambda: self.acks.get(mid), what=f"the answer to {mid}")

    def subscribe(self, *args, **fields):
        result, mid = self.client.subscribe(*args, **fields)
        assert result == mqtt.MQTT_ERR_SUCCESS
        return self._answer(mid)[0]

    def unsubscribe(self, *args):
        result, mid = self.client.unsubscribe(*args)
        assert result == mqtt.MQTT_ERR_SUCCESS
        return self._answer(mid)[0]

    def publish(self, topic, payload=None, qos=0, retain=False, **properties):
        made = props("PUBLISH", **properties) if properties else None
        info = self.client.publish(topic, payload, qos, retain, properties=made)
        info.wait_for_publish(DEADLINE_S)
        assert info.is_published()
        return info

    def message(self, timeout=DEADLINE_S):
        return self.messages.get(timeout=timeout)

    def until(self, payload: bytes):
        """The messages before the one with this payload."""
        seen = []
        while (got := self.message()).payload != payload:
            seen.append(got)
        return seen

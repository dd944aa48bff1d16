"""What MQTT 5.0 says of a message beside its User Properties, at each target of outlets."""

import time

import pytest

from harness.broker import Broker
from harness.nats import NatsServer
from harness.postgres import OWNER, Postgres, folder_of_programs
from harness.sinks import HttpSink
from harness.wait import until
from test_outlets import configured, figures, lines, outlet, publish, row, running, to_file, to_http

PROPERTIES = {
    "payload_format": 1,
    "message_expiry": 600,
    "content_type": "text/x; q=1",
    "response_topic": "re/ü b",
    "correlation_data": b"\xff\x00\r\n",
}
BASE64 = "/wANCg=="


def publish_with(broker, payload=b"x", topic="plant/a", **changed):
    with broker.client() as client:
        client.published(topic, payload, qos=1, props={**PROPERTIES, **changed})


def near(expires_ms: str) -> bool:
    """Whether a time is the one at which a message of [`PROPERTIES`] expires that was published just now."""
    return abs(int(expires_ms) / 1000 - time.time() - 600) < 60


def test_a_record_of_json_has_them_and_one_without_them_has_none(tmp_path):
    path = tmp_path / "out.ndjson"
    with Broker(config=configured(to_file(path))) as broker:
        running(broker)
        publish_with(broker)
        publish(broker, ["plain"])
        first, second = until(lambda: len(lines(path)) == 2 and lines(path), what=lambda: row(broker))
        assert (first["contentType"], first["responseTopic"], first["correlation"]) == ("text/x; q=1", "re/ü b", BASE64)
        assert not {"contentType", "responseTopic", "correlation"} & second.keys()


def test_templates_and_rules_have_them(tmp_path):
    path = tmp_path / "out.csv"
    record = "${contentType:-none},${responseTopic:-none},${correlation:-none},${payload}"
    config = {**to_file(path, record=record), "where": '.correlation != "AA=="'}
    with Broker(config=configured(config)) as broker:
        running(broker)
        publish_with(broker, correlation_data=b"\0")
        publish_with(broker)
        publish(broker, ["plain"])
        wanted = f"text/x; q=1,re/ü b,{BASE64},x\nnone,none,none,plain\n"
        until(lambda: path.exists() and path.read_text() == wanted, what=lambda: row(broker))


def test_a_new_payload_has_no_content_type(tmp_path):
    path = tmp_path / "out.ndjson"
    config = {**to_file(path), "map": '{type: .content_type, to: .response_topic}'}
    with Broker(config=configured(config)) as broker:
        running(broker)
        publish_with(broker)
        (found,) = until(lambda: lines(path), what=lambda: row(broker))
        assert found["json"] == {"type": "text/x; q=1", "to": "re/ü b"}
        assert "contentType" not in found and found["correlation"] == BASE64


def test_a_raw_request_has_them_as_headers_and_no_client_writes_others(tmp_path):
    with HttpSink() as sink:
        config = {**to_http(sink, body="raw"), "deadLetter": {"topic": "dead/lake"}}
        with Broker(config=configured(config)) as broker:
            running(broker)
            with broker.client() as watcher:
                watcher.subscribe("dead/#", qos=1)
                publish_with(broker)
                publish_with(broker, b"split", content_type="text/ü; a=\"b\"", response_topic="re/x: y")
                publish_with(broker, b"large", correlation_data=b"\xff" * 40_000)
                publish(broker, ["plain"])
                letter = watcher.message(topic="dead/lake", payload=b"large", qos=1)
                assert "bytes as headers" in dict(letter.props["user_property"])["hmq-reason"]
            until(lambda: sink.bodies == [b"x", b"split", b"plain"], what=lambda: row(broker))
            first, split, plain = (headers for _, _, headers, _ in sink.requests)
            assert (first["content-type"], first["x-hmq-response-topic"]) == ("text/x; q=1", "re/%C3%BC%20b")
            assert first["x-hmq-correlation"] == BASE64 and near(first["x-hmq-expires"])
            assert (split["content-type"], split["x-hmq-response-topic"]) == ("application/octet-stream", "re/x:%20y")
            assert plain["content-type"] == "application/octet-stream"
            assert not {"x-hmq-response-topic", "x-hmq-correlation", "x-hmq-expires"} & plain.keys()


def test_a_message_whose_headers_a_server_does_not_take_is_set_aside():
    with HttpSink() as sink:
        sink.answers = [431]
        config = {**to_http(sink, body="raw"), "deadLetter": {"topic": "dead/lake"}}
        with Broker(config=configured(config)) as broker:
            running(broker)
            with broker.client() as watcher:
                watcher.subscribe("dead/#", qos=1)
                publish_with(broker, b"first")
                publish(broker, ["next"])
                watcher.message(topic="dead/lake", payload=b"first", qos=1)
            until(lambda: sink.bodies == [b"next"], what=lambda: row(broker))


def test_another_broker_gets_them_with_what_remains_of_the_expiry():
    with Broker() as other:
        with other.client() as watcher:
            watcher.subscribe("plant/#", qos=1)
            mqtt = {"url": f"mqtt://127.0.0.1:{other.port}"}
            with Broker(config=configured(outlet(target={"mqtt": mqtt}))) as broker:
                running(broker)
                publish_with(broker)
                publish(broker, ["plain"])
                found = watcher.message(topic="plant/a", payload=b"x", qos=1).props
                assert 500 < found.pop("message_expiry") <= 600
                found.pop("user_property")
                assert found == {name: value for name, value in PROPERTIES.items() if name != "message_expiry"}
                plain = watcher.message(topic="plant/a", payload=b"plain", qos=1).props
                assert not PROPERTIES.keys() & plain.keys()


def test_a_dead_letter_keeps_them_and_does_not_expire(tmp_path):
    config = {**to_file(tmp_path / "out", record="${property.none}"), "deadLetter": {"topic": "dead/lake"}}
    with Broker(config=configured(config)) as broker:
        running(broker)
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            publish_with(broker)
            found = watcher.message(topic="dead/lake", payload=b"x", qos=1).props
            found.pop("user_property")
            assert found == {name: value for name, value in PROPERTIES.items() if name != "message_expiry"}


def test_nats_gets_them_as_headers(tmp_path):
    with NatsServer(tmp_path / "nats") as server:
        with server.client() as nats:
            nats.stream("PLANT", "plant.>")
        target = {"nats": {"url": server.url, "timeoutSeconds": 5}}
        with Broker(config=configured(outlet(target=target))) as broker:
            running(broker)
            publish_with(broker, user_property=[("content-type", "text/html"), ("hmq-correlation", "x"), ("unit", "K")])
            publish(broker, ["plain"])
            until(lambda: figures(broker)["delivered"] == 2, what=lambda: row(broker))
            with server.client() as nats:
                first, plain = (message.headers for message in nats.messages("PLANT"))
            assert near(first["hmq-expires"][0])
            assert {name: first[name] for name in first if name not in ("Nats-Msg-Id", "hmq-path", "hmq-position", "hmq-expires")} == {
                "Content-Type": ["text/x; q=1"],
                "hmq-topic": ["plant/a"],
                "hmq-response-topic": ["re/%C3%BC%20b"],
                "hmq-correlation": [BASE64],
                "hmq-payload-format": ["1"],
                "unit": ["K"],
            }
            assert plain.keys() == {"Nats-Msg-Id", "hmq-path", "hmq-position", "hmq-topic"}


@pytest.mark.skipif(not folder_of_programs(), reason="there is no initdb; apt-get install postgresql")
def test_postgresql_gets_them_in_columns():
    with Postgres() as database:
        database.sql("CREATE TABLE state (type text, reply text, correlation bytea)")
        columns = [
            {"name": "type", "value": "${contentType}", "optional": True},
            {"name": "reply", "value": "${responseTopic:-none}"},
            {"name": "correlation", "value": "${correlation}", "optional": True},
        ]
        url = f"postgres://{OWNER}@127.0.0.1:{database.port}/postgres"
        target = {"url": url, "passwordFile": str(database.password_file), "table": "state", "columns": columns}
        with Broker(config=configured(outlet(target={"postgres": target}))) as broker:
            running(broker)
            publish_with(broker)
            publish(broker, ["plain"])
            until(lambda: figures(broker)["delivered"] == 2, what=lambda: row(broker))
        found = database.sql("SELECT type, reply, convert_from(correlation, 'UTF8') FROM state").splitlines()
        assert found == [f"text/x; q=1|re/ü b|{BASE64}", "|none|"]

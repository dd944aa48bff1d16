"""Retained messages that rules end: by age, by number, by bytes; and what `check-config` says of a rule beforehand."""

import signal
import time

import yaml
from harness.broker import BASE, Broker, run
from harness.wait import until

# How long a message is kept: longer than it takes to publish a few.
AGE_S = 4


def config(rules=(), **own):
    return {**BASE, "retain": {"rules": [*rules], **own}}


def put(broker, topics):
    """One after the other, with an acknowledgement each."""
    with broker.client("publisher") as publisher:
        for topic in topics:
            publisher.published(topic, b"x" * 100, qos=1, retain=True)


def kept(broker, name) -> list[str]:
    """What a new subscriber gets."""
    with broker.client(f"{name}-subscriber") as client:
        client.subscribe(f"{name}/#", qos=1)
        client.subscribe(f"{name}-end")
        client.published(f"{name}-end")
        topics = []
        while (topic := client.message().topic) != f"{name}-end":
            topics.append(topic)
        return sorted(topics)


def ended(broker, reason) -> float:
    return broker.metric("heraldmq_retained_removed_total", reason=reason)


def reload(broker, to):
    broker.write_config(yaml.safe_dump(to))
    broker.signal(signal.SIGHUP)


def test_a_message_ends_when_it_is_older_than_its_rule_keeps_it(tmp_path, name):
    rules = [{"topics": f"{name}/keep/#"}, {"topics": f"{name}/+/short", "maxAgeSeconds": AGE_S}]
    to = config(rules, maxAgeSeconds=3_600)
    with Broker(config=to, data_dir=tmp_path / "data") as broker:
        begun = time.time()
        put(broker, [f"{name}/{topic}" for topic in ("keep/short", "a/short", "b/short", "long")])
        rows = broker.api(f"/api/v1/retained?filter={name}/%23")["items"]
        assert len(rows) == 4 and all(row["retained_at"] for row in rows)
        broker.kill()
    with Broker(config=to, data_dir=tmp_path / "data") as broker:
        put(broker, [f"{name}/b/short"])
        again_at = time.time()
        until(lambda: ended(broker, "age") >= 1, what="the first one to end")
        assert time.time() - begun >= AGE_S
        if time.time() - again_at < AGE_S:
            assert kept(broker, name) == [f"{name}/{topic}" for topic in ("b/short", "keep/short", "long")]
        until(lambda: ended(broker, "age") == 2, what="the one that was published again to end")
        assert time.time() - again_at >= AGE_S
        assert kept(broker, name) == [f"{name}/keep/short", f"{name}/long"]
        counts = broker.api("/api/v1/stats")["total"]
        assert (counts["retained_messages"], counts["retained_removed"]) == (2, 2)
    with Broker(config=to, data_dir=tmp_path / "data") as broker:
        assert kept(broker, name) == [f"{name}/keep/short", f"{name}/long"]


def test_a_message_that_expires_by_itself_is_counted_apart(name):
    with Broker(config=config(maxAgeSeconds=3_600)) as broker, broker.client() as client:
        client.published(f"{name}/a", b"1", qos=1, retain=True, props={"message_expiry": 1})
        client.published(f"{name}/b", b"1", qos=1, retain=True)
        until(lambda: ended(broker, "expiry") == 1, what="the end")
        assert kept(broker, name) == [f"{name}/b"]
        assert broker.api("/api/v1/stats")["total"]["retained_expired"] == 1 and ended(broker, "age") == 0


def test_the_oldest_messages_end_when_a_rule_has_too_many(name):
    with Broker(config=config()) as broker:
        put(broker, [f"{name}/{number:02}" for number in reversed(range(20))])
        put(broker, [f"{name}/19"])
        since = {row["topic"]: row["retained_at"] for row in broker.api("/api/v1/retained")["items"]}
        assert len(since) == 20
        # By a reload, while the broker serves.
        reload(broker, config([{"topics": f"{name}/#", "maxMessages": 5}]))
        until(lambda: ended(broker, "messages") == 15, what="the end of fifteen")
        left = kept(broker, name)
        assert len(left) == 5
        if len(broker.api("/api/v1/shards?store=retain")["items"]) == 1:
            # Several may be of one millisecond.
            gone = since.keys() - set(left)
            assert max(since[topic] for topic in gone) <= min(since[topic] for topic in left)
        put(broker, [f"{name}/new"])
        until(lambda: ended(broker, "messages") == 16, what="one that makes room")
        assert f"{name}/new" in kept(broker, name)
        # A message of 100 bytes counts for more than that.
        reload(broker, config([{"topics": f"{name}/#", "maxBytes": 600}]))
        until(lambda: ended(broker, "bytes") >= 1, what="an end by bytes")
        until(lambda: broker.metric("heraldmq_retained_bytes") <= 600, what="fewer bytes")
        assert len(kept(broker, name)) >= 1


def test_half_of_many_messages_end_while_others_are_published(name):
    total, most = 6_000, 3_000
    with Broker(config=config([{"topics": f"{name}/old/#", "maxMessages": most}])) as broker:
        with broker.client("publisher") as publisher:
            for number in range(total):
                publisher.publish(f"{name}/old/{number}", b"x", retain=True)
            publisher.published(f"{name}/end")
        with broker.client("other") as other:
            others = set()

            def is_done():
                others.add(topic := f"{name}/other/{len(others) % 50}")
                other.published(topic, b"y", qos=1, retain=True)
                return broker.metric("heraldmq_retained_messages") <= most + 50

            until(is_done, what="the end of half of them")
        assert ended(broker, "messages") == total - most
        assert kept(broker, f"{name}/other") == sorted(others)


def test_check_config_says_what_a_rule_would_remove(tmp_path, name):
    data, to = tmp_path / "data", tmp_path / "new.yml"
    with Broker(config=config(), data_dir=data) as broker:
        put(broker, [f"{name}/{number}" for number in range(20)])
        checked = run("check-config", to_file(to, config([{"topics": "#", "maxMessages": 5}])), "--data-dir", data)
        assert checked.returncode == 0 and "OK" in checked.stdout
        assert "the retained messages were not looked at" in checked.stderr
        assert broker.stop() == 0
    checked = run("check-config", to, "--data-dir", data)
    assert checked.returncode == 0, checked
    line = "retain: 15 of 20 retained messages would be removed: 0 for their age, 15 as too many\n"
    assert checked.stdout == f"{line}OK\n"
    line = "20 of 20 retained messages would be removed: 20 for their age, 0 as too many"
    to_file(to, config(maxAgeSeconds=1))
    until(lambda: line in run("check-config", to, "--data-dir", data).stdout, what="messages that are older than a second")
    checked = run("check-config", to_file(to, config()), "--data-dir", data)
    assert checked.stdout == "OK\n"


def to_file(path, content):
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_rule_that_is_none_is_refused(tmp_path):
    for rules, why in [
        ([{"maxAgeSeconds": 1}], "expected `topics`, a topic filter, for each rule"),
        ([{"topics": "a/#/b"}], "a/#/b is no topic filter"),
        ([{"topics": "a"}, {"topics": "a"}], "two rules are for a"),
        ([{"topics": str(n)} for n in range(65)], "expected at most 64, found 65"),
    ]:
        checked = run("check-config", to_file(tmp_path / "broker.yml", config(rules)))
        assert checked.returncode == 2 and why in checked.stderr, checked

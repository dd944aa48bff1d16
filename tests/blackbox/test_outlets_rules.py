"""Rules of outlets: which messages go on, as what, and what becomes of a rule that fails or does not end.

Absent on purpose: what jq can do (crates/outlet-rules), and what the node knows of processes that ended (crates/broker/src/outlets/caution.rs).
"""

import json
import pathlib
import signal

import pytest
import yaml

from harness.broker import BASE, Broker, run
from harness.sinks import HttpSink
from harness.wait import until
from test_outlets import configured, drained, figures, lines, numbered, outlet, publish, recipe, row, running, texts, to_file, to_http

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operate"


def dead_letters(watcher, count) -> list[tuple[bytes, dict]]:
    """The payloads of dead letters, and their User Properties, in their order."""
    got = [watcher.message(topic="dead/lake", qos=1) for _ in range(count)]
    return [(letter.payload, dict(letter.props["user_property"])) for letter in got]


def ruled(path, where=None, map=None, **options) -> dict:
    rules = {key: text for key, text in (("where", where), ("map", map)) if text is not None}
    return {**to_file(path), "deadLetter": {"topic": "dead/lake"}, **rules, **options}


def test_where_lets_some_messages_go_on_and_counts_the_others(tmp_path):
    path = tmp_path / "out.ndjson"
    with Broker(config=configured(ruled(path, where=".json.temp > 40"))) as broker:
        running(broker)
        publish(broker, [f'{{"temp": {temp}}}' for temp in (39, 41, 40, 42, 7)])
        until(lambda: len(lines(path)) == 2, what=lambda: row(broker))
        drained(broker)
        assert [line["json"]["temp"] for line in lines(path)] == [41, 42]
        until(lambda: figures(broker)["filtered"] == 3, what=lambda: row(broker))
        assert figures(broker)["delivered"] == 2
        assert broker.metric("heraldmq_outlet_filtered_total", outlet="lake") == 3
        shown = run("outlet", "show", "lake", f"--url=http://127.0.0.1:{broker.http_port}")
        assert any(line.split() == ["filtered", "3"] for line in shown.stdout.splitlines()), shown.stdout


def test_map_says_what_the_target_gets(tmp_path):
    with HttpSink() as sink:
        config = {**to_http(sink, body="raw"), "map": "if .text then .text + .topic else {t: .json.temp, l: .topic_levels[1]} end"}
        with Broker(config=configured(config)) as broker:
            running(broker)
            publish(broker, ['{"temp": 41.50}', "at "], topic="plant/7")
            until(lambda: sink.bodies == [b'{"t":41.50,"l":"7"}', b"at plant/7"], what=lambda: (sink.bodies, row(broker)))


def test_a_rule_that_fails_on_a_message_makes_it_a_dead_letter(tmp_path):
    path, other = tmp_path / "out.ndjson", tmp_path / "other.ndjson"
    without = {**to_file(other), "name": "without", "where": ".text | tonumber"}
    with Broker(config=configured(ruled(path, where=".text[0:1] == \"m\" or error(\"no\")"), without)) as broker:
        running(broker)
        running(broker, "without")
        payloads = numbered(10)
        payloads[4] = "poison"
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            publish(broker, payloads)
            [(payload, properties)] = dead_letters(watcher, 1)
        assert payload == b"poison" and properties["hmq-topic"] == "plant/a"
        assert properties["hmq-reason"] == 'where: "no"' or properties["hmq-reason"] == "where: no", properties
        until(lambda: texts(path) == numbered(4) + numbered(5, 5), what=lambda: row(broker))
        until(lambda: figures(broker)["dead"] == 1)
        # Without a topic for dead letters such messages are dropped, and counted.
        until(lambda: broker.metric("heraldmq_outlet_dropped_total", outlet="without", reason="refused") == 10)
        drained(broker, "without")
        assert texts(other) == []


RULES_WITHOUT_END = {
    "time": "if .text == \"poison\" then (def f: f; f) else true end",
    "memory": "if .text == \"poison\" then [range(infinite)] else true end",
    "stack": "if .text == \"poison\" then (def f: 1 + f; f) else true end",
}


@pytest.mark.parametrize("kind", RULES_WITHOUT_END)
def test_a_rule_that_does_not_end_on_one_message_loses_no_other(tmp_path, kind):
    path, other = tmp_path / "out.ndjson", tmp_path / "other.ndjson"
    with Broker(config=configured(ruled(path, where=RULES_WITHOUT_END[kind]), {**to_file(other), "name": "other"})) as broker:
        running(broker)
        process = running(broker, "other")["figures"]["process"]
        payloads = numbered(20)
        payloads[7] = "poison"
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            publish(broker, payloads)
            # Two processes end on it; the third one refuses it.
            until(lambda: figures(broker)["dead"] == 1, timeout=120, what=lambda: row(broker))
            [(payload, properties)] = dead_letters(watcher, 1)
        assert (payload, properties["hmq-reason"]) == (b"poison", "the rule did not end on it")
        until(lambda: len(texts(path)) == 19, what=lambda: row(broker))
        drained(broker)
        assert texts(path) == numbered(7) + numbered(12, 8)
        assert figures(broker)["starts"] == 3, row(broker)
        if kind == "time":
            assert "too long" in figures(broker)["last_end"]
        # The others went on meanwhile.
        until(lambda: texts(other) == payloads, what=lambda: row(broker, "other"))
        assert figures(broker, "other")["process"] == process


def test_many_messages_that_a_rule_does_not_end_on_are_refused_one_after_the_other(tmp_path):
    path = tmp_path / "out.ndjson"
    with Broker(config=configured(ruled(path, map=RULES_WITHOUT_END["stack"].replace("true", ".text")))) as broker:
        running(broker)
        payloads = numbered(12)
        for at in (0, 1, 2, 7, 11):
            payloads[at] = "poison"
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            publish(broker, payloads)
            until(lambda: figures(broker)["dead"] == 5, timeout=120, what=lambda: row(broker))
            reasons = [properties["hmq-reason"] for _, properties in dead_letters(watcher, 5)]
        assert reasons == ["the rule did not end on it"] * 5
        expected = [text for text in payloads if text != "poison"]
        until(lambda: texts(path) == expected, what=lambda: (texts(path), row(broker)))
        drained(broker)


WRONG = {
    "where": ({"where": ".json. > 1"}, "where: line 1, column"),
    "map": ({"map": "nope"}, "there is no function nope"),
    "template": ({"target": {"file": {"path": "x", "record": "${nothing}"}}}, "a message has no nothing"),
    "headers": ({"target": {"http": {"url": "http://h", "headersFile": "/nonexistent"}}}, "/nonexistent"),
    "events": ({"source": {"events": "client.born"}}, "there are no events client.born"),
    "environment": ({"where": "env.HOME"}, "there is no function env"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_node_does_not_start_with_an_outlet_that_cannot_run(tmp_path, kind):
    options, said = WRONG[kind]
    path = tmp_path / "conf.yml"
    config = {**configured({**to_file(tmp_path / "out"), **options}), "dataDir": str(tmp_path / "data")}
    path.write_text(json.dumps(config))
    for command in (["check-config", path], ["serve", "--config", path]):
        done = run(*command)
        assert done.returncode == 2 and "cannot run outlet lake: " in done.stderr and said in done.stderr, done


def test_a_reload_with_a_wrong_rule_keeps_the_outlet_as_it_was(tmp_path):
    path = tmp_path / "out.ndjson"
    with Broker(config=configured(ruled(path, where=".text != \"no\""))) as broker:
        process = running(broker)["figures"]["process"]
        new = {**to_file(tmp_path / "new"), "name": "new", "map": "("}
        broker.write_config(configured(ruled(path, where=".text =="), new))
        broker.signal(signal.SIGHUP)
        until(lambda: any("stays as it was" in line for line in broker.log_text), what=lambda: broker.log_text)
        until(lambda: any("does not begin" in line for line in broker.log_text), what=lambda: broker.log_text)
        publish(broker, ["yes", "no", "yes"])
        drained(broker)
        until(lambda: texts(path) == ["yes", "yes"], what=lambda: row(broker))
        assert figures(broker)["process"] == process
        assert [outlet["name"] for outlet in broker.api("/api/v1/outlets")["items"]] == ["lake"]


def test_the_recipe_for_rules(tmp_path):
    path = tmp_path / "hot.ndjson"
    config = recipe("outlets-rules.md", path=("/var/lib/heraldmq/hot.ndjson", str(path)))
    with Broker(config={**BASE, **config}) as broker:
        running(broker, "hot")
        publish(broker, ['{"temp": 41.5}', '{"temp": 40}', "x"], topic="plant/7/state")
        until(lambda: figures(broker, "hot")["filtered"] == 2, what=lambda: row(broker, "hot"))
        until(lambda: path.exists() and path.read_text() == '{"device":"7","t":41.5}\n', what=lambda: path.read_text())


def test_the_table_for_those_who_come_from_emqx(tmp_path):
    """Each rule of the table is one."""
    table = (DOCS / "outlets-rules.md").read_text().split("## From EMQX's rule SQL")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `SELECT")]
    assert len(rows) >= 5
    for line in rows:
        rules = line.split("` | ", 1)[1].removesuffix(" |")
        texts = [rule.strip("` ").replace("\\|", "|") for rule in rules.split("<br>")]
        found = yaml.safe_load("\n".join(texts))
        assert set(found) <= {"where", "map"} and found, line
        path = tmp_path / "conf.yml"
        path.write_text(json.dumps({"outlets": [{**outlet(target={"file": {"path": str(tmp_path / "x")}}), **found}]}))
        done = run("check-config", str(path))
        assert done.returncode == 0, (line, done.stderr)

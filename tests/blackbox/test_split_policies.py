"""Split policies as scripts: what a broker does with one that fails, and what SIGHUP mends."""

import pathlib
import signal

import yaml

from harness.broker import Broker, run
from harness.wait import DEADLINE_S, until

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "conf" / "split-policies"


def alarm(broker):
    items = broker.api("/api/v1/alarms")["items"]
    return next((alarm for alarm in items if alarm["name"] == "split_script"), None)


def decision(broker):
    (shard,) = [s for s in broker.api("/api/v1/cluster")["shards"] if s["store"] == "inbox"]
    return shard.get("split") or {}


def failures(broker, cause):
    return broker.metric("heraldmq_split_script_failures_total", store="inbox", cause=cause)


def test_a_script_that_loops_is_an_alarm_until_it_is_mended(tmp_path):
    script = tmp_path / "inbox.rhai"
    script.write_text("// No end.\nloop {}\n")
    sets = {"inbox_store_split_policy": "script", "inbox_store_split_script": str(script)}
    with Broker(sets, data_dir=tmp_path / "data") as broker:
        assert alarm(broker) is None
        # A shard has been measured for ten seconds before the script is asked about it.
        found = until(lambda: alarm(broker), 4 * DEADLINE_S, "the alarm")
        assert found["subject"] == "inbox", found
        assert "`load` decides" in found["detail"] and "line 2" in found["detail"], found
        assert failures(broker, "operations") == 1
        # The shard has nothing to do, and `load` says so.
        until(lambda: decision(broker).get("decision") == "not_busy", what="a decision of `load`")

        script.write_text("let x = ;\n")
        broker.signal(signal.SIGHUP)
        until(lambda: failures(broker, "syntax") == 1, what="the new file is read")
        until(lambda: "line 1" in alarm(broker)["detail"], 4 * DEADLINE_S, "the new reason")

        script.write_text('#{ hold: "it rests" }\n')
        broker.signal(signal.SIGHUP)
        until(lambda: decision(broker).get("decision") == "script", what="a decision of the script")
        assert decision(broker)["reason"] == "it rests"
        until(lambda: alarm(broker) is None, 4 * DEADLINE_S, "the end of the alarm")
        assert failures(broker, "operations") == 1

        # A file that is wrong does not end a script that works.
        script.write_text("(\n")
        broker.signal(signal.SIGHUP)
        found = until(lambda: alarm(broker), 4 * DEADLINE_S, "the alarm")
        assert "the one before stays in force" in found["detail"], found
        assert decision(broker)["reason"] == "it rests"


def test_a_script_that_cannot_be_used_is_said_before_a_start(tmp_path):
    script, config = tmp_path / "inbox.rhai", tmp_path / "config.yml"
    fields = {"dataDir": str(tmp_path / "data"), "inbox_store_split_policy": "script"}
    config.write_text(yaml.safe_dump(fields))
    without = run("check-config", str(config))
    assert without.returncode == 2 and "inbox_store_split_script" in without.stderr, without.stderr
    config.write_text(yaml.safe_dump(fields | {"inbox_store_split_script": str(script)}))
    for command in (("check-config", str(config)), ("serve", "--config", str(config))):
        script.unlink(missing_ok=True)
        done = run(*command)
        assert done.returncode == 2 and str(script) in done.stderr, done.stderr
        script.write_text("let a = 1;\nlet b = a +;\n")
        done = run(*command)
        assert done.returncode == 2 and "line 2" in done.stderr, done.stderr
    script.write_text("()\n")
    done = run("check-config", str(config))
    assert (done.returncode, done.stdout) == (0, "OK\n"), done.stderr


def test_a_script_is_played_without_a_broker(tmp_path):
    table = run("cluster", "split-policy", "test", str(EXAMPLES / "load.rhai"), timeout=10 * DEADLINE_S)
    assert table.returncode == 0, table.stderr
    rows = [line for line in table.stdout.splitlines() if line.startswith("even, three nodes")]
    assert len(rows) == 1 and rows[0].count("6+2 1+1") == 2, table.stdout
    broken = tmp_path / "broken.rhai"
    broken.write_text("#{ at: shard.first_slot }")
    failed = run("cluster", "split-policy", "test", str(broken), timeout=10 * DEADLINE_S)
    assert failed.returncode == 1 and "`load` decided" in failed.stderr, failed.stderr
    broken.write_text("\n(")
    wrong = run("cluster", "split-policy", "test", str(broken))
    assert wrong.returncode == 1 and "line 2" in wrong.stderr and not wrong.stdout, wrong.stderr

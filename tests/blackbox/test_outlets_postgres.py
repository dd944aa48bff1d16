"""Outlets to PostgreSQL: each message is a row, once, whatever is killed.

Absent on purpose: what belongs to outlets of each kind (test_outlets.py); two nodes at one outlet (crates/outlets).
"""

import json
import os
import random
import signal
import subprocess

import pytest

from harness.broker import BASE, Broker, run
from harness.postgres import OWNER, PASSWORD, Postgres, folder_of_programs
from harness.wait import until
from test_outlets import DOCS, configured, drained, figures, kill_if_there, numbered, outlet, publish, recipe, row, running

ROUNDS = int(os.environ.get("HERALD_OUTLET_ROUNDS", "6"))

pytestmark = pytest.mark.skipif(not folder_of_programs(), reason="there is no initdb; apt-get install postgresql")


@pytest.fixture
def database():
    with Postgres() as database:
        database.sql("CREATE TABLE state (number serial, topic text, body text, value int)")
        yield database


def url(database) -> str:
    return f"postgres://{OWNER}@127.0.0.1:{database.port}/postgres"


def target(database, **options) -> dict:
    columns = [
        {"name": "topic", "value": "${topic}"},
        {"name": "body", "value": "${payload}"},
        {"name": "value", "value": "${payload./v}", "optional": True},
    ]
    rows = {} if "statement" in options else {"table": "state", "columns": columns}
    given = {"url": url(database), "passwordFile": str(database.password_file), "timeoutSeconds": 5, **rows, **options}
    return {"postgres": given}


def to_postgres(database, **options) -> dict:
    return outlet(target=target(database), deadLetter={"topic": "dead/lake"}, **options)


def bodies(database) -> list[str]:
    return database.sql("SELECT body FROM state ORDER BY number").splitlines()


def failing(broker, with_words) -> dict:
    """Waits until an attempt has failed with these words."""
    return until(lambda: (f := figures(broker)) and with_words in (f["last_error"] or "") and f, what=lambda: row(broker))


@pytest.mark.parametrize("statement", [None, "INSERT INTO state (topic, body) VALUES (${topic}, ${payload})"])
def test_kills_anywhere_lose_nothing_and_double_nothing(tmp_path, database, statement):
    """In each round the process, the broker or the database is killed while messages go through, at a moment that the seed says."""
    chance = random.Random(int(os.environ.get("HERALD_SEED", "1"), 0))
    given = target(database, **({"statement": statement} if statement else {}))
    config = configured({**outlet(target=given), "batch": {"messages": 20, "lingerMs": 1}})
    data = tmp_path / "data"
    acknowledged = 0
    broker = Broker(config=config, data_dir=data)
    try:
        running(broker)
        for number in range(ROUNDS):
            victim = ["process", "broker", "database"][number % 3]
            process = until(lambda: figures(broker) and figures(broker)["process"], what=lambda: row(broker))
            count = chance.randrange(50, 300)
            at = chance.randrange(count)
            with broker.client() as client:
                for place in range(count):
                    client.published("plant/a", f"m{acknowledged:06}".encode(), qos=1)
                    acknowledged += 1
                    if place == at and victim == "process":
                        kill_if_there(process)
                    if place == at and victim == "database":
                        database.stop()
            if victim == "database":
                database.start()
            if victim == "broker":
                broker.kill()
                broker.wait()
                broker.close()
                broker = Broker(config=config, data_dir=data)
        until(lambda: len(bodies(database)) >= acknowledged, what=lambda: row(broker))
        drained(broker)
        assert bodies(database) == numbered(acknowledged)
        assert database.sql("SELECT count(*) FROM heraldmq_positions WHERE outlet LIKE '%/lake'") == "1"
    finally:
        broker.close()


def test_a_wrong_password_and_a_missing_table_are_waited_for(tmp_path, database):
    password = tmp_path / "password"
    password.write_text("wrong\n")
    database.sql("DROP TABLE state")
    config = {**outlet(target=target(database, passwordFile=str(password)))}
    with Broker(config=configured(config)) as broker:
        failing(broker, "28P01")
        publish(broker, numbered(5))
        password.write_text(PASSWORD)
        failing(broker, "42P01")
        assert figures(broker)["lag_messages"] == 5
        database.sql("CREATE TABLE state (number serial, topic text, body text, value int)")
        until(lambda: bodies(database) == numbered(5), what=lambda: row(broker))
        drained(broker)
        told = json.dumps(row(broker))
        assert PASSWORD not in told and "wrong" not in told
        shown = row(broker)
        assert (shown["target"], shown["place"]) == ("postgres", url(database))


def test_a_database_that_hangs_holds_the_messages_and_doubles_none(tmp_path, database):
    with Broker(config=configured(outlet(target=target(database, timeoutSeconds=1)))) as broker:
        running(broker)
        publish(broker, ["before"])
        drained(broker)
        found = database.sql("SELECT pg_postmaster_start_time() IS NOT NULL, string_agg(pid::text, ' ') FROM pg_stat_activity").split("|")[1]
        postmaster = (database.folder / "data" / "postmaster.pid").read_text().split()[0]
        # The server accepts no connection, and its process for the outlet answers nothing.
        stopped = [int(postmaster), *(int(process) for process in found.split())]
        for process in stopped:
            stop_if_there(process, signal.SIGSTOP)
        try:
            publish(broker, numbered(20))
            failing(broker, "in time")
        finally:
            for process in stopped:
                stop_if_there(process, signal.SIGCONT)
        until(lambda: len(bodies(database)) >= 21, what=lambda: row(broker))
        drained(broker)
        assert bodies(database) == ["before", *numbered(20)]


def stop_if_there(process, which):
    try:
        os.kill(process, which)
    except ProcessLookupError:
        pass


def test_what_the_database_refuses_becomes_a_dead_letter_and_the_rest_goes_on(tmp_path, database):
    database.sql("ALTER TABLE state ADD CHECK (value < 1000)")
    payloads = [json.dumps({"v": number}) for number in range(40)]
    bad = {7: '{"v": 5000}', 13: '{"v": "x"}', 20: "a\0b", 21: "\udcff", 33: '{"v": 99999999999}'}
    for place, payload in bad.items():
        payloads[place] = payload
    config = {**to_postgres(database), "batch": {"messages": 40, "lingerMs": 200}}
    with Broker(config=configured(config)) as broker:
        running(broker)
        with broker.client() as watcher:
            watcher.subscribe("dead/#", qos=1)
            with broker.client() as client:
                for payload in payloads:
                    client.published("plant/a", payload.encode(errors="surrogateescape"), qos=1)
            reasons = []
            for place in bad:
                letter = watcher.message(topic="dead/lake", qos=1)
                assert letter.payload == payloads[place].encode(errors="surrogateescape")
                reasons.append(dict(letter.props["user_property"])["hmq-reason"])
        for reason, words in zip(reasons, ["23514", "22P02", "NUL", "payload of UTF-8", "22003"], strict=True):
            assert words in reason, reasons
        drained(broker)
        assert bodies(database) == [payload for place, payload in enumerate(payloads) if place not in bad]


def test_a_full_disk_loses_nothing(tmp_path, database):
    folder = database.folder / "small"
    folder.mkdir()
    if os.getuid() != 0 or os.system(f"mount -t tmpfs -o size=256k,mode=777 tmpfs {folder}") != 0:
        pytest.skip("only root can make a small disk")
    try:
        os.system(f"chown nobody {folder}")
        database.sql(f"CREATE TABLESPACE small LOCATION '{folder}'")
        database.sql("ALTER TABLE state SET TABLESPACE small")
        with Broker(config=configured(outlet(target=target(database)))) as broker:
            running(broker)
            publish(broker, [f"{text}{'x' * 1500}" for text in numbered(300)])
            failing(broker, "53100")
            os.system(f"mount -o remount,size=8m {folder}")
            until(lambda: len(bodies(database)) >= 300, what=lambda: row(broker))
            drained(broker)
            assert [body[:7] for body in bodies(database)] == numbered(300)
    finally:
        database.stop()
        os.system(f"umount {folder}")


def test_test_says_what_is_there_and_writes_nothing(tmp_path, database):
    with Broker(config=configured(outlet(target=target(database)))) as broker:
        broker.write_config(configured(outlet(name="probed", target=target(database))))
        said = probe(broker.config_path)
        assert "PostgreSQL " in said.stdout and '"state"' in said.stdout, said
        broker.write_config(configured(outlet(name="probed", target=target(database, table="nowhere"))))
        said = probe(broker.config_path)
        assert said.returncode != 0 and "42P01" in said.stderr + said.stdout, said
        assert bodies(database) == []


def probe(config) -> subprocess.CompletedProcess:
    return run("outlet", "test", "probed", "--config", str(config))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": "postgres://a:secret@b/c"}, "a password must be in passwordFile"),
        ({"url": "mysql://a:secret@b/c"}, "begins with postgres:// or postgresql://"),
        ({"table": None}, "either `table` with `columns`, or `statement`"),
        ({"columns": []}, "expected 1 to 1600"),
        ({"columns": [{"name": "a", "value": "${topik}"}]}, "a message has no topik"),
        ({"columns": [{"name": "a"}]}, "`name` and `value` of each"),
        ({"statement": "INSERT INTO t VALUES ($1)", "table": None, "columns": None}, "parameters are written ${…}, not $1"),
        ({"table": "a.b.c"}, "neither TABLE nor SCHEMA.TABLE"),
    ],
)
def test_what_is_wrong_is_said_before_the_start(tmp_path, options, expected):
    given = {"url": "postgres://a@b/c", "table": "t", "columns": [{"name": "a", "value": "${topic}"}], **options}
    given = {key: value for key, value in given.items() if value is not None}
    path = tmp_path / "config.yml"
    path.write_text(json.dumps({**BASE, "outlets": [outlet(target={"postgres": given})]}))
    said = run("check-config", str(path))
    words = said.stdout + said.stderr
    assert said.returncode != 0 and expected in words and "secret" not in words, words


def test_the_recipe(tmp_path, database):
    database.sql((DOCS / "outlets-postgres.md").read_text().split("```sql\n")[1].split("CREATE ROLE")[0].replace("TABLE state", "TABLE plant"))
    config = recipe(
        "outlets-postgres.md",
        url=("postgres://mq@127.0.0.1:5432/plant", url(database)),
        password=("db.password", str(database.password_file)),
        table=("table: state", "table: plant"),
    )
    with Broker(config={**BASE, **config}) as broker:
        running(broker, "history")
        publish(broker, ['{"value": 41.5, "unit": "°C"}', '{"value": 2}'], topic="plant/7/state")
        drained(broker, "history")
        assert database.sql("SELECT device, value, unit, body FROM plant ORDER BY value").splitlines() == ['7|2||{"value": 2}', '7|41.5|°C|{"unit": "°C", "value": 41.5}']


def test_the_recipe_for_a_statement_and_for_bytes(tmp_path, database):
    text = (DOCS / "outlets-postgres.md").read_text()
    block = text.split("        statement: >-\n")[1].split("```")[0]
    statement = " ".join(line.strip() for line in block.splitlines())
    database.sql("CREATE TABLE latest (device text PRIMARY KEY, value float8, at timestamptz); CREATE TABLE raw (body bytea)")
    latest = outlet(target=target(database, statement=statement))
    to_bytes = target(database, statement=text.split("` and `INSERT")[1].split("`")[0].join(["INSERT", ""]))
    rule = text.split("  `map: '")[1].split("'`")[0]
    raw = outlet(name="raw", filter="raw/#", target=to_bytes, map=rule)
    with Broker(config=configured(latest, raw)) as broker:
        running(broker)
        running(broker, "raw")
        publish(broker, [json.dumps({"value": number}) for number in range(5)])
        drained(broker)
        assert database.sql("SELECT device, value, at > now() - interval '1 hour' FROM latest") == "a|4|t"
        with broker.client() as client:
            for payload in (b"\xff\x00", b"a\0b", b'{"a":1}'):
                client.published("raw/x", payload, qos=1)
        drained(broker, "raw")
        assert sorted(database.sql("SELECT encode(body, 'hex') FROM raw").splitlines()) == sorted(["ff00", "610062", b'{"a":1}'.hex()])

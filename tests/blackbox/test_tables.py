"""Tables of commands: long cells, empty lists, and numbers with their nouns."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import pytest

from harness.broker import BINARY, Broker, environment, run

LONG = "long/" + "t" * 1_900


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker, broker.client("first-day") as client:
        client.published(LONG, b"x", qos=1, retain=True)
        broker.url = f"http://127.0.0.1:{broker.http_port}"
        yield broker


def command(broker, *args, code=0):
    done = run(*args, "--url", broker.url)
    assert done.returncode == code, done
    return done


def on_a_terminal(broker, columns, *args) -> list[str]:
    """What a command prints on a terminal of so many columns."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([BINARY, *args, "--url", broker.url], stdout=terminal, env=environment())
    os.close(terminal)
    text = b""
    while True:
        try:
            part = os.read(controller, 65_536)
        except OSError:  # nobody has the terminal any more
            break
        if not part:
            break
        text += part
    os.close(controller)
    assert process.wait() == 0
    return text.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("columns", [60, 100])
def test_a_row_fits_the_terminal(broker, columns):
    lines = on_a_terminal(broker, columns, "retained")
    assert len(lines) == 2 and max(map(len, lines)) == columns, lines
    assert lines[1].startswith("long/ttt") and "…" in lines[1] and lines[1].endswith("1")
    (row,) = on_a_terminal(broker, columns, "retained", "--wide", "--no-header")
    assert row.startswith(LONG + " ")


def test_cells_are_cut_off_a_terminal_too_but_not_wide_ones_nor_json(broker):
    (row,) = command(broker, "retained", "--no-header").stdout.splitlines()
    assert row.split()[0] == LONG[:199] + "…"
    (row,) = command(broker, "retained", "--no-header", "--wide").stdout.splitlines()
    assert row.split()[0] == LONG
    assert json.loads(command(broker, "retained", "--json").stdout)["items"][0]["topic"] == LONG
    assert "--wide" in run("retained", "--help").stdout


@pytest.mark.parametrize(
    "args, sentence",
    [
        (["clients", "nobody-"], "no clients match"),
        (["clients", "nobody-", "--all"], "no clients match"),
        (["sessions"], "there are no sessions"),
        (["subscriptions"], "there are no subscriptions"),
        (["retained", "nothing/#"], "no retained messages match"),
        (["drops"], "there are no dropped messages"),
        (["drops", "--client", "x"], "no dropped messages match"),
        (["alarms", "--ended"], "there are no alarms that have ended"),
        (["failed-logins"], "there are no failed logins"),
        (["queues"], "there are no queues"),
        (["settings", "limits.session"], "nobody has set any of these, and no node differs; --defaults lists them"),
        (["ban", "list"], "there are no bans"),
    ],
)
def test_an_empty_list_says_so(broker, args, sentence):
    done = command(broker, *args)
    assert done.stderr == f"heraldmq: {sentence}\n"
    assert len(done.stdout.splitlines()) == 1, done.stdout
    if args[0] != "ban":
        assert command(broker, *args, "--no-header").stdout == ""
    done = command(broker, *args, "--json")
    assert done.stderr == "" and done.stdout.startswith("{")


def test_a_list_with_rows_says_nothing(broker):
    done = command(broker, "clients")
    assert done.stderr == "" and "first-day" in done.stdout


def test_one_is_singular(broker):
    (line, *_) = command(broker, "top", "--times", "1", "--every", "1").stdout.splitlines()
    assert line.startswith("1 node  in ")


def test_disconnect_says_what_it_does():
    said = " ".join(run("disconnect", "--help").stdout.split())
    for words in ("0x98", "will", "session expiry interval", "--end-session", "Examples:", "Exit codes:"):
        assert words in said

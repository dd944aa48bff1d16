"""`heraldmq passwd`: the file of users, as it is written and as it is left alone."""

import os
import pty
import stat
import subprocess
import termios

import pytest

from harness.broker import BINARY
from harness.wait import until

DEADLINE = 30


def passwd(*args, password="secret\n"):
    return subprocess.run(
        [BINARY, "passwd", *map(str, args)],
        input=password,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def works(*args, **fields):
    got = passwd(*args, **fields)
    assert got.returncode == 0, got.stderr
    assert not got.stdout and not got.stderr


def fails(*args, mentions, **fields):
    got = passwd(*args, **fields)
    assert got.returncode in (1, 2) and mentions in got.stderr, got
    assert "secret" not in got.stderr and "panicked" not in got.stderr


def entries(path):
    return [line.split("$")[:2] for line in path.read_text().splitlines()]


def test_a_file_is_made_for_its_owner_only(tmp_path):
    users = tmp_path / "users"
    works(users, "alice")
    assert entries(users) == [["alice:", "argon2id"]]
    assert "secret" not in users.read_text()
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["users"]


def test_users_are_added_changed_and_deleted(tmp_path):
    users = tmp_path / "users"
    works(users, "alice")
    works(users, "bob", "--scram")
    works(users, "carol")
    before = users.read_text()
    works(users, "alice")
    assert users.read_text() != before
    works(users, "carol", "--delete")
    assert entries(users) == [
        ["alice:", "argon2id"],
        ["bob:", "scram-sha-256"],
        ["bob:", "scram-sha-512"],
    ]
    fails(users, "carol", "--delete", mentions="there is no such user")


def test_comments_permissions_and_links_stay(tmp_path):
    real = tmp_path / "real"
    real.write_text("# who may connect\n")
    real.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(real)
    works(link, "alice")
    assert link.is_symlink()
    assert real.read_text().startswith("# who may connect\nalice:$argon2id$")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_file_of_mosquitto_passwd_is_taken_over(tmp_path):
    users = tmp_path / "users"
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", users, "alice", "secret"], check=True, timeout=DEADLINE
    )
    works(users, "bob")
    assert entries(users) == [["alice:", "7"], ["bob:", "argon2id"]]


def test_a_file_that_is_wrong_is_left_alone(tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:secret\n")
    fails(users, "bob", mentions="line 1: not a hash")
    assert users.read_text() == "alice:secret\n"


@pytest.mark.parametrize("name", ["", "a:b", "#a", "a\nb"])
def test_names_that_a_file_cannot_hold(tmp_path, name):
    fails(tmp_path / "users", name, mentions="a user name must not")
    assert not os.listdir(tmp_path)


def test_passwords_that_cannot_be_used(tmp_path):
    fails(tmp_path / "users", "alice", password="\n", mentions="empty")
    fails(tmp_path / "users", "alice", password="x" * 65_536, mentions="longer than 65535")
    assert not os.listdir(tmp_path)


def test_there_must_be_a_file_to_delete_from(tmp_path):
    fails(tmp_path / "users", "alice", "--delete", mentions="users")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("second, code", [("secret", 0), ("other", 1)])
def test_a_terminal_is_asked_twice_and_shows_nothing(tmp_path, second, code):
    users = tmp_path / "users"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(BINARY, [str(BINARY), "passwd", str(users), "alice"])
    shown = b""
    for prompt, answer in ((b"Password: ", b"secret\n"), (b"Again: ", second.encode() + b"\n")):
        while not shown.endswith(prompt):
            shown += os.read(terminal, 1024)
        until(lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO, what="a terminal without echo")
        os.write(terminal, answer)
    try:
        while more := os.read(terminal, 1024):
            shown += more
    except OSError:
        pass  # The other end is closed.
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    assert b"secret" not in shown and b"other" not in shown
    assert users.exists() == (code == 0)

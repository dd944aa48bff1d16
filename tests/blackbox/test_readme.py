"""README.md and docs/operate/three-nodes.md: their commands, run as they are printed.

Invariant: each command runs in a network and a process tree of its own, because the ports are those of the page, and
`pkill -f 'heraldmq serve'` would end the brokers of other tests. What the page leaves to the reader is done here, at the
speed of a quick reader: the broker of "the broker's terminal" is started, nodes are waited for where the page says
"soon", and a broker that was told to end has ended before the next command.
"""

import fcntl
import os
import pathlib
import re
import subprocess

import pytest

from harness.broker import BINARY, environment
from harness.wait import DEADLINE_S, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = "README.md"
THREE_NODES = "docs/operate/three-nodes.md"
APART = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--net")
SETTLE_S = DEADLINE_S


def may_be_apart() -> bool:
    return os.geteuid() == 0 and subprocess.run([*APART, "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not may_be_apart(), reason="only root has namespaces of its own")


def blocks(page, section, language) -> list[str]:
    """The blocks of a language in a section of a page."""
    text = re.search(rf"^## {section}$(.*?)^## ", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert text, f"{page} has no section {section}"
    found = re.findall(rf"^```{language}\n(.*?)^```", text[1], re.MULTILINE | re.DOTALL)
    assert found, f"section {section} of {page} has no block of {language}"
    return found


def commands(page, section) -> list[str]:
    """The commands of a section: lines, or loops of several lines."""
    found, begun = [], ""
    for line in "".join(blocks(page, section, "sh")).splitlines():
        begun += line + "\n"
        if line and subprocess.run(["sh", "-n"], input=begun, text=True, capture_output=True).returncode == 0:
            found.append(begun)
            begun = ""
    assert not begun.strip(), f"not a command: {begun}"
    return found


class Terminal:
    """A shell in a folder, a network and a process tree of its own, with `heraldmq` in its path."""

    def __init__(self, folder):
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        (programs / "heraldmq").symlink_to(BINARY)
        (folder / "scripts").mkdir()
        serve = folder / "scripts/serve"
        serve.write_text('#!/bin/sh\nexec heraldmq serve "$@"\n')
        serve.chmod(0o755)
        self.shell = subprocess.Popen(
            [*APART, "sh"],
            cwd=folder,
            env={**environment(), "PATH": f"{programs}:{os.environ['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.typed = 0
        self.run("ip link set lo up")

    def try_(self, command) -> tuple[int, str, str]:
        """Exit code, output and errors of a command."""
        self.typed += 1
        out, err = (self.folder / f"{self.typed}.{kind}" for kind in ("out", "err"))
        self.shell.stdin.write(f"{{\n{command}\n}} >{out} 2>{err} </dev/null; echo $?\n")
        self.shell.stdin.flush()
        answer = self.shell.stdout.readline()
        return int(answer), out.read_text(), err.read_text()

    def run(self, command) -> str:
        """The output of a command, which must succeed."""
        code, out, err = self.try_(command)
        assert code == 0, f"exit code {code} of {command}{out}{err}"
        return out

    def serve(self):
        """`scripts/serve` in the broker's terminal, until it is ready."""
        log = self.folder / "serve.log"
        log.write_text("")
        self.run("scripts/serve >serve.log 2>&1 &")
        until(lambda: re.search(r"\bready\b", log.read_text()), SETTLE_S, lambda: f"a broker: {log.read_text()}")

    def runs(self, pattern) -> bool:
        return self.try_(f"pgrep -f '{pattern}'")[0] == 0

    def close(self):
        # Its process tree ends with it.
        self.shell.kill()
        self.shell.wait(DEADLINE_S)


@pytest.fixture
def terminal(tmp_path):
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def type_in(terminal, command):
    """A command of the page, and what its comment says."""
    if command.startswith("heraldmq cluster status"):
        formed(terminal, command)
        return
    out = terminal.run(command)
    expected = re.search(r"# prints: (.*)$", command, re.MULTILINE)
    if expected:
        assert out == expected[1] + "\n", (command, out)
    if command.startswith("pkill"):
        until(lambda: not terminal.runs("heraldmq serve"), SETTLE_S, "the end of the broker")
        # A process that ends has no name any more a moment before its files are closed.
        until(lambda: is_free(terminal.folder / "data" / "LOCK"), SETTLE_S, "the end of its lock")
    if "again: scripts/serve" in command:
        terminal.serve()


def is_free(lock) -> bool:
    """Whether no process holds a lock."""
    if not lock.exists():
        return True
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def formed(terminal, command):
    """Three nodes, and three voters of each shard, which takes a moment."""

    def is_formed():
        code, out, _ = terminal.try_(command)
        nodes = set(re.findall(r"127\.0\.0\.[123]:8899", out))
        voters = [line for line in out.splitlines() if re.match(r"\s*(session|inbox|retain)\b", line)]
        whole = [line for line in voters if len(re.findall(r"\b[0-9a-f]{16}\b", line)) >= 3]
        return code == 0 and len(nodes) == 3 and len(voters) == len(whole) >= 3

    until(is_formed, SETTLE_S, lambda: f"three nodes: {terminal.try_(command)}")


def test_what_survives(terminal):
    terminal.serve()
    typed = commands(README, "What survives")
    for command in typed:
        type_in(terminal, command)
    assert any("# prints: open" in command for command in typed)


def test_three_nodes(terminal):
    (node1,) = blocks(THREE_NODES, "Starting them", "yaml")
    (terminal.folder / "node1.yml").write_text(node1)
    typed = commands(THREE_NODES, "Starting them")
    for command in typed:
        type_in(terminal, command)
    assert any("# prints: open" in command for command in typed)

"""The pages of docs/: their commands, run as they are printed, and their links.

A block of commands with `run=NAME` behind its language is run, all blocks of a NAME of a page in their order, in a folder, a network and a
process tree of their own. A command that runs until it is ended (`heraldmq serve`, `heraldmq sub` without an end) goes on in the background,
as in a terminal of its own. `fails` behind the NAME: the last command of the block does not succeed. The lines of a block of text behind it
are to be printed by what was run, each as part of a line; blanks count as one.
"""

import pathlib
import re
import subprocess

import pytest

from harness.wait import DEADLINE_S, until
from test_readme import Terminal, is_free, may_be_apart

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def stories():
    """Each page and NAME that has blocks to be run."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for name in dict.fromkeys(re.findall(r"^```sh run=([\w-]+)", page.read_text(), re.MULTILINE)):
            yield pytest.param(page, name, id=f"{page.stem}-{name}")


def steps(page, name):
    """Blocks of a NAME: commands, whether the last one fails, and the lines that are printed."""
    found, follows = [], False
    for language, head, text in BLOCK.findall(page.read_text()):
        words = head.split()
        if language == "sh" and words[:1] == [f"run={name}"]:
            found.append((text, "fails" in words, []))
            follows = True
        elif language == "text" and follows:
            found[-1][2].extend(text.splitlines())
            follows = False
        else:
            follows = False
    return found


def split(text):
    """The commands of a block: lines, or loops of several lines."""
    begun = ""
    for line in text.splitlines():
        begun += line + "\n"
        if line and subprocess.run(["sh", "-n"], input=begun, text=True, capture_output=True).returncode == 0:
            yield begun.rstrip("\n")
            begun = ""
    assert not begun.strip(), f"not a command: {begun}"


def goes_on(command) -> bool:
    is_subscriber = command.startswith("heraldmq sub ") and not re.search(r" (-C|-E|-W)\b", command)
    return command.startswith("heraldmq serve") or is_subscriber


class Reader:
    """Who reads a page, and does what it says."""

    def __init__(self, terminal):
        self.terminal = terminal
        self.background = 0

    def printed(self):
        """All that was printed so far, by all terminals."""
        return "\n".join(file.read_text() for pattern in ("*.out", "*.err", "*.log") for file in sorted(self.terminal.folder.glob(pattern)))

    def type_in(self, command, fails):
        if goes_on(command):
            self.background += 1
            log = self.terminal.folder / f"background-{self.background}.log"
            log.touch()
            self.terminal.run(f"{command} >{log} 2>&1 &")
            if command.startswith("heraldmq serve"):
                until(lambda: re.search(r"\bready\b", log.read_text()), DEADLINE_S, lambda: f"a broker: {log.read_text()}")
            else:
                until(self.subscribes, DEADLINE_S, lambda: f"a subscriber: {log.read_text()}")
            return
        code, out, err = self.terminal.try_(command)
        assert (code != 0) == fails, (command, code, out, err)
        expected = re.search(r"# prints: (.*)$", command)
        assert not expected or out == expected[1] + "\n", (command, out)
        if command.startswith("pkill"):
            until(lambda: not self.terminal.runs("heraldmq serve"), DEADLINE_S, "the end of the broker")
            until(lambda: is_free(self.terminal.folder / "data" / "LOCK"), DEADLINE_S, "the end of its lock")

    def subscribes(self) -> bool:
        """Whether the broker has the subscription of a connected client: the tutorials have one such subscriber."""
        code, out, _ = self.terminal.try_("heraldmq subscriptions --no-header")
        return code == 0 and bool(out.strip())


@pytest.mark.skipif(not may_be_apart(), reason="only root has namespaces of its own")
@pytest.mark.parametrize(("page", "name"), [*stories()])
def test_commands_do_what_their_page_says(tmp_path, page, name):
    terminal = Terminal(tmp_path)
    try:
        reader = Reader(terminal)
        for text, fails, expected in steps(page, name):
            commands = list(split(text))
            for number, command in enumerate(commands, 1):
                reader.type_in(command, fails and number == len(commands))
            for line in expected:
                words = " ".join(line.split())
                until(lambda words=words: words in " ".join(reader.printed().split()), DEADLINE_S, lambda line=line: f"{line!r} in {reader.printed()}")
    finally:
        terminal.close()


def test_links_lead_somewhere_and_each_page_is_in_the_menu():
    done = subprocess.run([ROOT / "scripts/docs", "--links"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

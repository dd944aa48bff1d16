"""docs/reference/commands.md: what `--help` of each command prints. `UPDATE_GENERATED=1` writes it."""

import collections
import os
import pathlib
import re
import subprocess

from harness.broker import BINARY

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/commands.md"
HEAD = """\
# Commands

What `heraldmq COMMAND --help` prints, generated from the program. `heraldmq man DIR` writes the same as manual pages.
"""

# An option that so many commands have with the same words is shown once.
COMMON = 20


def helps(words=()):
    """Each command with its help, subcommands behind it."""
    done = subprocess.run([BINARY, *words, "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    yield words, done.stdout
    commands = re.search(r"^Commands:\n(.*?)\n\n", done.stdout, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^  ([a-z][\w-]*)", commands[1], re.MULTILINE) if commands else []
    for name in names:
        if name != "help":
            yield from helps((*words, name))


def options(text):
    """The paragraphs of options, and what is around them."""
    return re.split(r"(^ {2,6}-(?:.*\n)(?: {8,}.*\n|\n(?= {8,}))*)", text, flags=re.MULTILINE)


def words_of(option):
    """An option with single blanks: how it is broken into lines depends on those beside it."""
    return " ".join(option.split())


def page():
    found = dict(helps())
    counts = collections.Counter(option for text in found.values() for option in {words_of(option) for option in options(text)[1::2]})
    common = sorted((option for option, count in counts.items() if count >= COMMON), key=lambda option: option.lstrip("-"))
    parts = [HEAD, "\n## Options of many commands\n\n", *(re.sub(r"^(-\S+(?: <\S+>)?) (.*)", r"- `\1`: \2\n", option) for option in common if "--help" not in option)]
    for words, text in found.items():
        kept = "".join(part for part in options(text) if words_of(part) not in common)
        kept = re.sub(r"^Options:\n+(?=\S|\Z)", "", kept, flags=re.MULTILINE).strip()
        parts.append(f"\n## {' '.join(('heraldmq', *words))}\n\n```text\n{kept}\n```\n")
    return "".join(parts)


def test_commands_are_as_the_program_says():
    made = page()
    if os.environ.get("UPDATE_GENERATED"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "run UPDATE_GENERATED=1 tests/blackbox/run.sh test_reference.py"

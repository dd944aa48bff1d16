"""scripts/measure: which parts of the page it replaces, and what it does with a program that fails. The programs are small scripts."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "internals" / "measurements.md"
BROKER = "#!/bin/sh\necho heraldmq 1.2.3\necho 'commit: abc1234 of 2026-01-02'\n"
COMPARE = "#!/bin/sh\necho 'median: loop 20.00 µs, heraldmq bench 25.00 µs per message, 1.25 times as much'\n"


def sections(text):
    return dict(re.findall(r"<!-- measure: ([a-z-]+) -->\n(.*?)<!-- end -->\n", text, re.DOTALL))


@pytest.fixture
def measure(tmp_path):
    def program(name, text):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
        return tmp_path / name

    def run(*arguments, compare=COMPARE):
        programs = ["--binary", program("heraldmq", BROKER), "--compare", program("herald-compare", compare)]
        return subprocess.run([ROOT / "scripts" / "measure", *programs, *arguments], capture_output=True, text=True)

    return run


def test_one_section_is_made_anew_and_the_others_stay(measure, tmp_path):
    page = tmp_path / "page.md"
    done = measure("--quick", "--page", page, "tool")
    assert done.returncode == 0, done.stderr
    before, after = sections(PAGE.read_text()), sections(page.read_text())
    assert "| 20.00 | 25.00 | 1.25 |" in after["tool"]
    assert "commit abc1234 of 2026-01-02" in after["tool"] and "1 round" in after["tool"]
    assert str(tmp_path) not in after["tool"], "the page names a folder of this machine"
    assert {**after, "tool": before["tool"]} == before


def test_a_section_that_fails_keeps_its_figures_and_is_named(measure, tmp_path):
    page = tmp_path / "page.md"
    for compare in ("#!/bin/sh\nexit 3\n", "#!/bin/sh\necho nothing\n"):
        done = measure("--quick", "--page", page, "tool", compare=compare)
        assert done.returncode == 1
        assert "not measured: tool" in done.stderr
        assert page.read_text() == PAGE.read_text()


def test_the_page_has_all_sections(measure):
    listed = measure("--list").stdout.split()
    assert sorted(listed) == sorted(sections(PAGE.read_text()))


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["no-such"], "there is no section no-such"),
        (["--rounds", "0"], "at least one round"),
        (["--quick", "tool"], "--quick needs --page"),
        (["--quick", "--page", PAGE, "tool"], "--quick needs --page"),
    ],
)
def test_wrong_arguments_are_refused(measure, arguments, said):
    before = PAGE.read_text()
    done = measure(*arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert PAGE.read_text() == before

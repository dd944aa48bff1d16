"""scripts/soak: what becomes of rounds that are kept, violated, without an end or not possible. A copy of the script in a
checkout of its own, with programs that only play what the real ones tell. Absent: the real ones."""

import csv
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from harness.broker import environment
from harness.wait import DEADLINE_S, until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Long enough for a round, and too short for a second one of any kind but `seeds`.
SHORT = "0.01"

FAILS = """#!/bin/sh
echo "node 1 starts" >&2
echo "seed 4711: message 5 is lost" >&2
echo "again: herald-sim run 4711" >&2
exit 1
"""
# The one behind `many N --first`.
FIRST_FAILS = FAILS.replace("4711", "$4")
KEPT = "#!/bin/sh\nexit 0\n"
# Without an end; the shell becomes what sleeps.
HANGS = "#!/bin/sh\necho $$ >{pid}.new\nmv {pid}.new {pid}\nexec sleep 3600\n"

CRASH = """#!/bin/sh
echo "crash-test: 1 rounds of kill, seed 7, broker"
echo "round 1: ..."
echo "2 times: an acknowledged message is lost [Lost]"
exit 1
"""
PYTEST = """#!/bin/sh
echo "HERALD_CHAOS_SEED=$HERALD_CHAOS_SEED"
echo "gaps in company Killed: 6 publishers, min 0.10 s, median 0.20 s, p90 0.30 s, max {gap} s (p1)"
echo "gaps in company Paused: 6 publishers, min 0.10 s, median 0.20 s, p90 0.30 s, max 0.40 s (p1)"
{end}
"""
FAILED_TEST = """echo "E   AssertionError: lost: [b'x']"
echo "FAILED test_random.py::test_random_faults[5] - AssertionError"
exit 1"""
FAILED_SETUP = """echo "______ ERROR at setup of test_random_faults[5] ______"
echo "E   OSError: no loop device"
echo "ERROR test_random.py::test_random_faults[5] - OSError"
exit 1"""
FUZZ = """#!/bin/sh
[ "$1" != 0 ] || exit 0
echo "program: /target/$2"
echo "thread '<unnamed>' panicked at crates/fuzz/src/packet.rs:7:9:"
echo "==1== ERROR: libFuzzer: deadly signal"
echo "artifact_prefix='artifacts/$2/'; Test unit written to artifacts/$2/crash-0123"
exit 77
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Checkout:
    def __init__(self, folder):
        self.root = folder / "checkout"
        self.output = folder / "rounds.csv"
        self.started = []
        self.script = self.root / "scripts/soak"
        self.script.parent.mkdir(parents=True)
        shutil.copy(ROOT / "scripts/soak", self.script)
        self.sim = program(folder / "herald-sim", KEPT)
        self.crash = program(folder / "crash-test", KEPT)
        self.broker = program(folder / "heraldmq", KEPT)
        self.python = program(self.root / "tests/blackbox/.venv/bin/python", PYTEST.format(gap="1.25", end="exit 0"))
        program(self.root / "tests/blackbox/setup.sh", KEPT)
        program(self.root / "fuzz/run.sh", FUZZ)
        (self.root / "fuzz/Cargo.toml").write_text('[[bin]]\nname = "packet"\n')

    def environment(self, **more) -> dict:
        programs = {"HERALD_SIM_BIN": self.sim, "HERALDMQ_BIN": self.broker, "CRASH_TEST_BIN": self.crash}
        return {**environment(), **{name: str(path) for name, path in programs.items()}, **more}

    def start(self, *args, script=(), **more):
        process = subprocess.Popen(
            [sys.executable, *(script or [self.script]), *map(str, args), "--output", self.output],
            env=self.environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def soak(self, *args, **more):
        process = self.start(*args, **more)
        out, err = process.communicate(timeout=2 * DEADLINE_S)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    @property
    def rows(self) -> list[dict]:
        with self.output.open(newline="") as file:
            return list(csv.DictReader(file, delimiter=";"))


@pytest.fixture
def checkout(tmp_path):
    checkout = Checkout(tmp_path)
    yield checkout
    for process in checkout.started:
        if process.poll() is None:
            process.kill()
            process.wait()


def again(out) -> str:
    """The command that a violation printed at once."""
    return re.search(r"^    again: (.*)$", out, re.MULTILINE)[1]


def output_of(row) -> str:
    return pathlib.Path(row["what"].split("; output in ")[1]).read_text()


def test_each_kind_has_a_round_and_a_line(checkout):
    program(checkout.root / "fuzz/run.sh", KEPT)
    done = checkout.soak(SHORT, "--seed", 1)
    assert done.returncode == 0, done
    rows = checkout.rows
    assert {row["kind"] for row in rows} == {"seeds", "chaos", "crash", "moves", "outlets", "fuzz"}
    assert {row["verdict"] for row in rows} == {"kept"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("20")]
    assert len(lines) == len(rows) and all(" kept, " in line for line in lines)
    assert not list(checkout.output.parent.glob("*.log"))


def test_a_seed_that_fails_is_told_with_its_command(checkout):
    program(checkout.sim, FAILS)
    done = checkout.soak(SHORT, "seeds")
    assert done.returncode == 1, done
    row = checkout.rows[0]
    assert (row["kind"], row["seed"], row["verdict"]) == ("seeds", "4711", "violated")
    assert "message 5 is lost" in row["what"] and "node 1 starts" in output_of(row)
    # The very program that failed, by a command that a shell takes.
    assert subprocess.run(again(done.stdout), shell=True).returncode == 1
    assert again(done.stdout) == f"cd {checkout.root} && {checkout.sim} run 4711"
    # Again in the end.
    assert f"    {again(done.stdout)}" in done.stdout.split("longest gap")[1]


def test_rounds_go_on_after_a_violation(checkout):
    program(checkout.sim, FAILS)
    checkout.soak(SHORT, "seeds", "crash")
    assert [row["verdict"] for row in checkout.rows][:2] == ["violated", "kept"]


def test_crashes_and_inputs_are_told_with_their_commands(checkout):
    program(checkout.crash, CRASH)
    done = checkout.soak(SHORT, "crash", "fuzz", "--seed", 5)
    assert done.returncode == 1, done
    crash, fuzz = checkout.rows
    assert crash["verdict"] == "violated" and "2 times: an acknowledged message is lost" in crash["what"]
    assert f"--seed {crash['seed']}" in again(done.stdout) and f"--program {checkout.broker}" in again(done.stdout)
    assert fuzz["verdict"] == "violated" and "packet.rs:7:9" in fuzz["what"]
    assert f"    cd {checkout.root}/fuzz && /target/packet artifacts/packet/crash-0123\n" in done.stdout


def test_a_crash_test_that_cannot_play_is_an_error(checkout):
    program(checkout.crash, "#!/bin/sh\necho 'crash-test: no such file'\nexit 1\n")
    done = checkout.soak(SHORT, "crash")
    assert done.returncode == 0 and checkout.rows[0]["verdict"] == "error", done
    assert "no such file" in output_of(checkout.rows[0])


def test_a_broker_that_does_not_come_back_is_a_violation(checkout):
    told = "crash-test: seed 7: the broker did not start: no answer"
    program(checkout.crash, f"#!/bin/sh\necho '{told}' >&2\necho 'ERROR the log is damaged' >&2\nexit 1\n")
    assert checkout.soak(SHORT, "crash").returncode == 1
    assert checkout.rows[0]["verdict"] == "violated" and "did not start" in checkout.rows[0]["what"]
    program(checkout.crash, f"#!/bin/sh\necho '{told}' >&2\necho 'ERROR Address already in use' >&2\nexit 1\n")
    assert checkout.soak(SHORT, "crash").returncode == 0
    assert checkout.rows[1]["verdict"] == "error"


def test_the_longest_gap_stands_in_the_line(checkout):
    assert checkout.soak(SHORT, "chaos").returncode == 0
    assert checkout.rows[0]["gap"] == "1.25"
    program(checkout.python, PYTEST.format(gap="7.50", end=FAILED_TEST))
    # It adds to the same file.
    done = checkout.soak(SHORT, "chaos")
    assert done.returncode == 1 and done.stdout.count("7.50 s") == 2, done
    row = checkout.rows[1]
    assert (row["verdict"], row["gap"]) == ("violated", "7.50") and "AssertionError: lost" in row["what"]
    assert f"HERALD_CHAOS_SEED={row['seed']}" in again(done.stdout)
    assert f"HERALD_CHAOS_SEED={row['seed']}\n" in output_of(row)


def test_a_cluster_that_cannot_be_set_up_is_an_error(checkout):
    program(checkout.python, PYTEST.format(gap="0.50", end=FAILED_SETUP))
    assert checkout.soak(SHORT, "chaos").returncode == 0
    assert checkout.rows[0]["verdict"] == "error" and "no loop device" in checkout.rows[0]["what"]


DAMAGE = """#!/bin/sh
echo "seed 11: harmless: killed, flip of alive at 3: missing nothing"
echo "seed 12: silent: killed, flip of log/entries/0000000000000001.raftlog at 77: missing 1 messages"
exit {code}
"""


def test_damage_that_nobody_names_is_a_violation(checkout):
    program(checkout.python, DAMAGE.format(code=1))
    done = checkout.soak(SHORT, "damage")
    assert done.returncode == 1, done
    row = checkout.rows[0]
    assert row["verdict"] == "violated" and "seed 12: silent" in row["what"] and "seed 11" not in row["what"]
    assert again(done.stdout).endswith("--round-seed 12") and f"HERALDMQ_BIN={checkout.broker}" in again(done.stdout)


def test_damage_that_cannot_be_played_is_an_error(checkout):
    program(checkout.python, "#!/bin/sh\necho 'AssertionError: there is no program'\nexit 2\n")
    assert checkout.soak(SHORT, "damage").returncode == 0
    assert checkout.rows[0]["verdict"] == "error" and "exit code 2" in checkout.rows[0]["what"]


def test_a_base_seed_repeats_the_plan(checkout):
    def plan(seed):
        checkout.output.unlink(missing_ok=True)
        done = checkout.soak(SHORT, "crash", "chaos", "seeds", *(["--seed", seed] if seed else []))
        # The first of each; how many more there are is a matter of time.
        seeds = [(row["kind"], row["seed"]) for row in checkout.rows][:3]
        return seeds, re.search(r"--seed (\d+)", done.stdout)[1]

    one, base = plan(4711)
    assert base == "4711" and plan(4711)[0] == one
    assert plan(4712)[0] != one
    drawn, base = plan(None)
    assert plan(base)[0] == drawn


def test_wrong_arguments_are_refused(checkout):
    for words, said in [
        ((1, "seed"), "there is no kind seed; there are: seeds, chaos, crash, moves, outlets, fuzz, mutations, damage"),
        ((0, "seeds"), "greater than 0"),
        (("nan",), "greater than 0"),
        (("soon",), "MINUTES"),
    ]:
        done = checkout.soak(*words)
        assert done.returncode == 2 and said in done.stderr, done
    done = checkout.soak(1, "seeds", HERALD_SIM_BIN="/nonexistent")
    assert done.returncode == 2 and "/nonexistent" in done.stderr
    assert not checkout.output.exists() or not checkout.rows


def test_a_build_that_fails_is_told(checkout):
    folder = checkout.root.parent / "programs"
    program(folder / "cargo", "#!/bin/sh\necho 'error: it does not compile' >&2\nexit 101\n")
    done = checkout.soak(1, "seeds", "crash", HERALD_SIM_BIN="", PATH=f"{folder}:{os.environ['PATH']}")
    assert done.returncode == 2, done
    assert "it does not compile" in done.stderr and "-p herald-sim" in done.stderr and "-p heraldmq" not in done.stderr


def test_the_broker_is_not_built_with_the_features_of_the_simulator(checkout, tmp_path):
    programs = {"herald-sim": checkout.sim, "heraldmq": checkout.broker, "crash-test": checkout.crash}
    messages = [
        '{"reason":"compiler-artifact","target":{"name":"%s"},"executable":"%s"}' % made for made in programs.items()
    ]
    folder = tmp_path / "programs"
    script = "\n".join(["#!/bin/sh", f'echo "$*" >>{tmp_path}/built', *(f"echo '{message}'" for message in messages)])
    program(folder / "cargo", script)
    none = dict.fromkeys(("HERALD_SIM_BIN", "HERALDMQ_BIN", "CRASH_TEST_BIN"), "")
    done = checkout.soak(SHORT, "seeds", "chaos", "crash", PATH=f"{folder}:{os.environ['PATH']}", **none)
    assert done.returncode == 0, done
    builds = [line.split(" json-render-diagnostics ")[1] for line in (tmp_path / "built").read_text().splitlines()]
    assert builds == ["-p herald-sim", "-p heraldmq -p herald-crash-test"]


def test_what_is_built_is_copied(checkout):
    folder = checkout.root.parent / "programs"
    message = '{"reason":"compiler-artifact","target":{"name":"herald-sim"},"executable":"%s"}' % checkout.sim
    program(folder / "cargo", f"#!/bin/sh\necho '{message}'\n")
    program(checkout.sim, FAILS)
    done = checkout.soak(SHORT, "seeds", HERALD_SIM_BIN="", PATH=f"{folder}:{os.environ['PATH']}")
    # A later build of the same name.
    program(checkout.sim, KEPT)
    assert done.returncode == 1 and subprocess.run(again(done.stdout), shell=True).returncode == 1, done


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_round_and_gives_the_summary(checkout, tmp_path, number):
    pid = tmp_path / "pid"
    program(checkout.crash, HANGS.format(pid=pid))
    process = checkout.start(60, "seeds", "crash", script=driver(checkout, "Seeds.round_s = 0.1"))
    until(pid.exists)
    process.send_signal(number)
    out, _ = process.communicate(timeout=2 * DEADLINE_S)
    assert process.returncode == 0, out
    assert re.search(r"^seeds +1 +1 +0 +0", out, re.MULTILINE) and re.search(r"^crash +0", out, re.MULTILINE), out
    assert not pathlib.Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_round_without_an_end_is_an_error(checkout, tmp_path):
    pid = tmp_path / "pid"
    program(checkout.crash, HANGS.format(pid=pid))
    process = checkout.start(SHORT, "crash", "chaos", script=driver(checkout, "Crash.margin_s = 0"))
    out, _ = process.communicate(timeout=2 * DEADLINE_S)
    assert process.returncode == 0, out
    assert [row["verdict"] for row in checkout.rows] == ["error", "kept"] and "no end within" in checkout.rows[0]["what"]
    assert not pathlib.Path(f"/proc/{pid.read_text().strip()}").exists()


def driver(checkout, change):
    """The script with another limit than it has."""
    text, last = checkout.script.read_text(), 'if __name__ == "__main__":'
    assert last in text
    path = checkout.script.with_name("changed")
    path.write_text(text.replace(last, f"{change}\n{last}"))
    return [path]


MUTATION = """--- a/sim/code
+++ b/sim/code
@@ -1 +1 @@
-{before}
+broken
"""


# A cargo that builds all, and whose tests of `store` fail.
TEST_FAILS = """#!/bin/sh
case "$*" in
    *--no-run) ;;
    "test --locked -q -p store splits") printf '\\nfailures:\\n\\nfailures:\\n    a::test\\n'; exit 101 ;;
    *) echo '{message}' ;;
esac
"""


def test_a_patch_that_does_not_apply_does_not_end_the_mutations(checkout):
    folder = checkout.root / "sim/mutations"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "sim/mutations/run", folder)
    (folder / "table.csv").write_text("fits;a;b\nmoved;a;b;splits\ntested;a;b;test -p store splits\n")
    (folder / "fits.patch").write_text(MUTATION.format(before="right"))
    (folder / "tested.patch").write_text(MUTATION.format(before="right"))
    (folder / "moved.patch").write_text(MUTATION.format(before="something else"))
    (checkout.root / "sim/code").write_text("right\n")
    (checkout.root / "sim/tests").mkdir()
    (checkout.root / "sim/tests/faults.rs").write_text('const FAIL_TODAY: &str = "";')
    (checkout.root / ".gitignore").write_text("/target\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=checkout.root, check=True)
    program(checkout.sim, FIRST_FAILS)
    message = '{"reason":"compiler-artifact","target":{"name":"herald-sim"},"executable":"%s"}' % checkout.sim
    programs = checkout.root.parent / "programs"
    program(programs / "cargo", TEST_FAILS.format(message=message))
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}

    ran = subprocess.run([folder / "run"], env=checkout.environment(**path), capture_output=True, text=True, timeout=2 * DEADLINE_S)
    assert ran.returncode == 0, ran
    results = {line.split(";")[0]: line.split(";")[2:] for line in (folder / "results.csv").read_text().splitlines()}
    assert results == {
        "fits": ["1", "0", "message 5 is lost"],
        "moved": ["", "", "does not apply"],
        "tested": ["1", "test", "a::test"],
    }

    (folder / "results.csv").unlink()
    told = {}
    # The base seed decides which is the first.
    for seed in range(16):
        done = checkout.soak(SHORT, "mutations", "--seed", seed, **path)
        assert done.returncode == 0, done
        row = checkout.rows[-1]
        told[row["what"].split(":")[0]] = row
        if len(told) == 3:
            break
    fits, moved, tested = told["fits"], told["moved"], told["tested"]
    assert tested["verdict"] == "kept" and tested["what"] == "tested: found by a test: a::test"
    assert moved["verdict"] == "error" and moved["what"].startswith("moved: does not apply")
    assert fits["verdict"] == "kept" and fits["what"] == f"fits: found in 1 seeds (seed {fits['seed']}): message 5 is lost"
    assert not (folder / "results.csv").exists()

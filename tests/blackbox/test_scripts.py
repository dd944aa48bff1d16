"""scripts/serve: which broker it runs, and when it builds one; scripts/before: the brokers of earlier commits. A copy of the
scripts beside sources that are empty, with a cargo that only says what it was asked for."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

from harness.broker import BINARY, environment
from harness.wait import DEADLINE_S

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# A broker that says who it is.
FAKE = """#!/bin/sh
case $1 in
    -V) echo "heraldmq {version}" ;;
    --version) printf 'heraldmq {version}\\ncommit: {commit}\\n' ;;
    *) echo "{name} $*"; [ -z "${{HERALDMQ_BIN+set}}" ] || echo "HERALDMQ_BIN is set" ;;
esac
"""

CARGO = """#!/bin/sh
case $1 in
    --version) echo "cargo 99.0.0" ;;
    metadata) echo '{{"target_directory":"{target}"}}' ;;
    tree) echo "a v1"; echo "b v1"; echo "b v1 (*)" ;;
    build)
        echo "$*" >>{root}/built
        for name in a b; do echo "   Compiling $name v1" >&2; done
        mkdir -p {target}/serve
        cp {root}/new-broker {target}/serve/heraldmq
        echo "{target}/serve/heraldmq: {root}/.git/logs/HEAD {root}/crates {source}" >{target}/serve/heraldmq.d
        [ ! -e {root}/broken ] || {{ echo "error: it does not compile" >&2; exit 101; }}
        ;;
esac
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Checkout:
    def __init__(self, folder):
        self.root = folder / "checkout"
        self.target = self.root / "target"
        self.source = self.root / "crates/a/src/lib.rs"
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "Cargo.toml", self.root)
        shutil.copy(ROOT / "Cargo.lock", self.root)
        self.source.parent.mkdir(parents=True)
        self.source.write_text("")
        self.version = next(
            line.split('"')[1] for line in (ROOT / "Cargo.toml").read_text().splitlines() if line.startswith("version = ")
        )
        self.programs = folder / "programs"
        program(self.programs / "cargo", CARGO.format(root=self.root, target=self.target, source=self.source))
        program(self.programs / "rustc", "#!/bin/sh\necho rustc 99.0.0\n")
        program(self.root / "new-broker", self.broker("built"))

    def broker(self, name, version=None, commit="unknown") -> str:
        return FAKE.format(name=name, version=version or self.version, commit=commit)

    def serve(self, *args, **env):
        # The tests themselves may be built elsewhere.
        inherited = {name: value for name, value in environment().items() if name != "CARGO_TARGET_DIR"}
        return subprocess.run(
            [self.root / "scripts/serve", *args],
            env={**inherited, "PATH": f"{self.programs}:{os.environ['PATH']}", **env},
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
        )

    def runs(self, *args, **env) -> str:
        done = self.serve(*args, **env)
        assert done.returncode == 0, done
        return done.stdout.strip()

    @property
    def builds(self) -> list[str]:
        path = self.root / "built"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_it_builds_quickly_and_once(checkout):
    for path in checkout.root.rglob("*"):
        age(path, 60)
    assert checkout.runs("--set", "log.level=debug") == "built serve --set log.level=debug"
    assert len(checkout.builds) == 1 and "--profile serve" in checkout.builds[0]
    assert (checkout.root / "target/bin/heraldmq").resolve() == checkout.target / "serve/heraldmq"
    assert checkout.runs() == "built serve"
    assert len(checkout.builds) == 1


def test_it_builds_again_when_sources_are_newer(checkout):
    checkout.runs()
    age(checkout.source, -60)
    checkout.runs()
    assert len(checkout.builds) == 2


def test_sources_of_other_programs_do_not_count(checkout):
    checkout.runs()
    other = checkout.root / "crates/b/src/lib.rs"
    other.parent.mkdir(parents=True)
    other.write_text("")
    for path in (other, checkout.root / "crates"):
        age(path, -60)
    checkout.runs()
    assert len(checkout.builds) == 1
    checkout.source.unlink()
    checkout.runs()
    assert len(checkout.builds) == 2


def test_it_says_how_far_a_build_is_and_why_it_fails(checkout):
    said = checkout.serve().stderr
    assert "of 2 crates" in said and "Compiling" not in said
    (checkout.root / "broken").touch()
    age(checkout.source, -60)
    failed = checkout.serve()
    assert failed.returncode != 0 and "it does not compile" in failed.stderr and not failed.stdout


def test_a_released_build_comes_first(checkout):
    for path in checkout.root.rglob("*"):
        age(path, 60)
    program(checkout.target / "release/heraldmq", checkout.broker("released"))
    assert checkout.runs() == "released serve" and not checkout.builds
    program(checkout.target / "release/heraldmq", checkout.broker("released", version="0.0.1"))
    assert checkout.runs() == "built serve" and len(checkout.builds) == 1


def test_a_broker_in_the_path_has_to_be_of_these_sources(checkout):
    def git(*args):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *who, *args], cwd=checkout.root, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("add", "crates", "Cargo.toml", "Cargo.lock")
    git("commit", "-q", "-m", "one")
    commit = git("log", "-1", "--format=%h of %cs").strip()
    program(checkout.programs / "heraldmq", checkout.broker("in the path", commit=commit))
    assert checkout.runs() == "in the path serve"
    program(checkout.programs / "heraldmq", checkout.broker("in the path", commit="0123456 of 2020-01-01"))
    assert checkout.runs() == "built serve"


def test_a_broker_that_is_named_is_run(checkout):
    program(checkout.root / "mine", checkout.broker("mine"))
    assert checkout.runs("-x", HERALDMQ_BIN=str(checkout.root / "mine")) == "mine serve -x"
    assert not checkout.builds
    missing = checkout.serve(HERALDMQ_BIN="/nonexistent")
    assert missing.returncode == 1 and "/nonexistent" in missing.stderr


def test_the_broker_under_test_knows_its_shells_and_pages(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        script = subprocess.run([BINARY, "completions", shell], capture_output=True, text=True, check=True).stdout
        path = tmp_path / shell
        path.write_text(script)
        if shutil.which(shell):
            subprocess.run([shell, "-n", path], check=True)
    subprocess.run([BINARY, "man", tmp_path / "man"], check=True)
    pages = sorted(path.name for path in (tmp_path / "man").iterdir())
    assert "heraldmq.1" in pages and "heraldmq-cluster-status.1" in pages


# Builds a broker that says what its sources are.
CARGO_BEFORE = """#!/bin/sh
[ "$1" != --version ] || { echo "cargo 99.0.0"; exit; }
echo "$* in $PWD" >>BUILT
grep -q broken source && { echo "error: it does not compile" >&2; exit 101; }
mkdir -p "$CARGO_TARGET_DIR/debug"
{ echo "#!/bin/sh"; echo "echo $(cat source)"; } >"$CARGO_TARGET_DIR/debug/heraldmq"
chmod +x "$CARGO_TARGET_DIR/debug/heraldmq"
"""


class Clone:
    """A clone with the commits `one`, `two` and `broken`."""

    def __init__(self, folder):
        self.root, self.cache, self.built = folder / "clone", folder / "cache", folder / "built"
        self.programs = folder / "programs"
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "Cargo.toml", self.root)
        program(self.programs / "cargo", CARGO_BEFORE.replace("BUILT", str(self.built)))
        program(self.programs / "rustc", "#!/bin/sh\necho rustc 99.0.0\n")
        self.git("init", "-q")
        self.commits = {}
        for text in ("one", "two", "broken"):
            (self.root / "source").write_text(text)
            self.git("add", ".")
            self.git("commit", "-q", "-m", text)
            self.commits[text] = self.git("rev-parse", "HEAD").strip()

    def git(self, *args) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *who, *args], cwd=self.root, check=True, capture_output=True, text=True).stdout

    def before(self, *args):
        return subprocess.run(
            [self.root / "scripts/before", *args],
            env={**environment(), "PATH": f"{self.programs}:{os.environ['PATH']}", "HERALD_CACHE": str(self.cache)},
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
        )

    def kept(self, *args) -> str:
        """What the program says that is printed."""
        done = self.before(*args)
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 1, done
        return subprocess.run([done.stdout.strip()], capture_output=True, text=True, check=True).stdout.strip()

    @property
    def builds(self) -> list[str]:
        return self.built.read_text().splitlines() if self.built.exists() else []


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


def test_the_broker_of_a_commit_is_built_once(clone):
    one, two = clone.commits["one"], clone.commits["two"]
    assert clone.before("--kept", one).returncode == 1 and not clone.builds
    assert clone.kept(one[:9]) == "one" and clone.kept(two) == "two"
    assert len(clone.builds) == 2 and all("build --locked" in build and "-p heraldmq" in build for build in clone.builds)
    for commit, text in ((one, "one"), (one[:7], "one"), (two[:9], "two")):
        assert clone.kept(commit) == clone.kept("--kept", commit) == text
    assert len(clone.builds) == 2
    # The sources that it was built from are gone, and those of the clone are as they were.
    assert len(clone.git("worktree", "list").splitlines()) == 1 and not clone.git("status", "--porcelain")
    assert not any(pathlib.Path(build.rsplit(" in ", 1)[1]).exists() for build in clone.builds)


def test_a_broker_of_a_commit_that_does_not_compile_is_not_kept(clone):
    broken = clone.commits["broken"]
    for _ in range(2):
        failed = clone.before(broken)
        assert failed.returncode == 1 and "it does not compile" in failed.stderr and not failed.stdout, failed
    assert clone.before("--kept", broken).returncode == 1
    assert len(clone.git("worktree", "list").splitlines()) == 1


def test_a_copy_without_history_says_so(clone):
    one, two = clone.commits["one"], clone.commits["two"]
    clone.kept(one)
    unknown = clone.before("0123456")
    assert unknown.returncode == 1 and "no commit 0123456" in unknown.stderr
    shutil.rmtree(clone.root / ".git")
    for commit in (two, two[:7]):
        failed = clone.before(commit)
        assert failed.returncode == 1 and "no git history" in failed.stderr and not failed.stdout, failed
        assert clone.before("--kept", commit).returncode == 1
    assert clone.kept(one) == "one"


def test_the_commits_that_are_upgraded_from_are_listed():
    listed = subprocess.run([ROOT / "scripts/before", "--list"], capture_output=True, text=True, check=True).stdout.split()
    lines = [line for line in (ROOT / "tests/before.txt").read_text().splitlines() if not line.startswith("#")]
    assert listed == [line.split()[0] for line in lines] and listed
    if (ROOT / ".git").exists():
        dates = [
            int(subprocess.run(["git", "log", "-1", "--format=%ct", commit], cwd=ROOT, capture_output=True, text=True, check=True).stdout)
            for commit in listed
        ]
        assert dates == sorted(dates), "oldest first"


def test_each_deliberate_bug_can_be_put_in():
    """One that does not apply is found by nobody."""
    patches = sorted((ROOT / "sim/mutations").glob("*.patch"))
    check = ["git", "-C", str(ROOT), "apply", "--check"]
    refused = [patch.name for patch in patches if subprocess.run([*check, patch], capture_output=True).returncode]
    assert patches and not refused

"""`heraldmq secrets`: what a new cluster needs, made once, and used by a broker."""

import os
import re
import stat

import pytest

from harness.broker import BASE, Broker, run

FILES = ["cluster-secret", "demo.password", "passwords", "token"]


def contents(folder):
    return {name: (folder / name).read_text() for name in sorted(os.listdir(folder))}


def test_files_are_made_once_and_for_their_owner_only(tmp_path):
    folder = tmp_path / "new" / "folder"
    made = run("secrets", folder, "--user", "demo")
    assert made.returncode == 0 and not made.stderr, made
    assert sorted(made.stdout.split("\n")[:-1]) == [f"made {folder / name}" for name in FILES]
    before = contents(folder)
    assert list(before) == FILES
    assert all(stat.S_IMODE((folder / name).stat().st_mode) == 0o600 for name in FILES)
    random = [before[name] for name in FILES if name != "passwords"]
    assert all(re.fullmatch("[0-9a-f]{64}\n", text) for text in random) and len(set(random)) == 3
    assert not any(text.strip() in made.stdout for text in random)
    kept = run("secrets", folder, "--user", "demo")
    assert kept.returncode == 0 and sorted(kept.stdout.split("\n")[:-1]) == [f"kept {folder / name}" for name in FILES]
    assert contents(folder) == before


def test_what_is_missing_is_made_and_a_changed_password_stays(tmp_path):
    assert run("secrets", tmp_path, "--user", "demo").returncode == 0
    assert run("passwd", tmp_path / "passwords", "demo", input="another\n").returncode == 0
    (tmp_path / "token").unlink()
    before = contents(tmp_path)
    more = run("secrets", tmp_path, "--user", "other")
    assert more.returncode == 0, more
    after = contents(tmp_path)
    assert set(after) == {*FILES, "other.password"}
    assert after["passwords"].startswith(before["passwords"]) and "\nother:" in after["passwords"]
    assert after["cluster-secret"] == before["cluster-secret"]


def test_a_run_that_was_killed_is_taken_up(tmp_path):
    (tmp_path / "demo.password").write_text("from before\n")
    assert run("secrets", tmp_path, "--user", "demo").returncode == 0
    chain = {"kind": "passwordFile", "file": str(tmp_path / "passwords")}
    config = {**BASE, "allowAnonymous": False, "authentication": {"chain": chain}}
    with Broker(config=config) as broker:
        at = ["-h", "127.0.0.1", "-p", broker.port, "-t", "a", "-m", "x", "-u", "demo"]
        assert run("pub", *at, "-P", "from before").returncode == 0
        assert run("pub", *at, "-P", "another").returncode != 0


@pytest.mark.parametrize("user", ["../demo", ".demo", "a/b"])
def test_a_user_whose_file_would_be_elsewhere_is_refused(tmp_path, user):
    refused = run("secrets", tmp_path, "--user", user)
    assert refused.returncode == 2 and not os.listdir(tmp_path), refused


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    refused = run("secrets", tmp_path / "file" / "folder", "--user", "demo")
    assert refused.returncode == 1 and str(tmp_path / "file") in refused.stderr, refused

"""The workflows of the repository: they run our scripts, with actions that nobody can change and no more rights than they need.
Their form is checked by actionlint, in the stage `lint` of scripts/test."""

import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".github/workflows"
WORKFLOWS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yml"))}
# The job that has rights, and the program of nobody.
PUBLISHING = ("release", "publish")


def jobs():
    return [(name, job, fields) for name, text in WORKFLOWS.items() for job, fields in yaml.safe_load(text)["jobs"].items()]


def steps(fields) -> str:
    return "\n".join(step.get("run", "") for step in fields["steps"])


def test_there_is_one_for_changes_one_for_the_night_and_one_for_releases():
    said = {name: "\n".join(steps(fields) for n, _, fields in jobs() if n == name) for name in WORKFLOWS}
    assert list(said) == ["nightly", "release", "test"]
    assert re.search(r"^scripts/test$", said["test"], re.M)
    assert re.search(r"scripts/test --all$", said["nightly"], re.M)
    assert re.search(r"^scripts/package$", said["release"], re.M) and "xtask -- release" in said["release"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit(name):
    used = re.findall(r"uses: (.*)", WORKFLOWS[name])
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action) for action in used), used
    # An action has the same version wherever it is used.
    everywhere = set(re.findall(r"uses: (.*)", "".join(WORKFLOWS.values())))
    assert len({action.split("@")[0] for action in everywhere}) == len(everywhere)


def test_only_the_publishing_job_may_write_and_somebody_approves_it():
    for name, text in WORKFLOWS.items():
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}, name
    for name, job, fields in jobs():
        if (name, job) == PUBLISHING:
            assert fields["permissions"] == {"attestations": "write", "contents": "write", "id-token": "write"}
            assert fields["environment"] == "release" and fields["needs"] == "package"
            # It has no sources, whose programs would have its rights.
            assert "checkout" not in str(fields["steps"]) and "scripts/" not in steps(fields)
        else:
            assert "permissions" not in fields and "environment" not in fields, (name, job)
            checkouts = [step for step in fields["steps"] if "actions/checkout" in step.get("uses", "")]
            assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_each_architecture_has_a_runner_of_its_own():
    matrix = yaml.safe_load(WORKFLOWS["release"])["jobs"]["package"]["strategy"]["matrix"]["include"]
    assert {row["architecture"]: row["runner"] for row in matrix} == {"amd64": "ubuntu-24.04", "arm64": "ubuntu-24.04-arm"}


def test_nothing_that_others_write_becomes_part_of_a_script():
    for name, job, fields in jobs():
        assert "${{" not in steps(fields), (name, job)

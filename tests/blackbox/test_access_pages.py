"""Pages about the control store: their commands, run as they are printed, with the files that they name.

Invariant: every command of a block of `sh` ends with exit code 0, and every request of curl with a status below 400. What a page leaves to the reader
stands in `INPUT` (what is typed) and `BEFORE` (a record that an example adds again); addresses of the HTTP port become that of the broker, and
the revision 1841 becomes the one that there is.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from harness.broker import BASE, BINARY, Broker, environment, run
from harness.wait import DEADLINE_S, until
from test_access_users import Api

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "crates/control-document/tests/files"
PASSWORD = "correct horse battery staple"
INPUT = {"heraldmq user add ann ": f"{PASSWORD}\n{PASSWORD}\n"}
# Examples that add ann once more.
BEFORE = ('curl -H "Authorization: Bearer $KEY" -H \'Content-Type: application/json\' \\\n     -d \'{"name": "ann"', "grep '^ann:' passwords")
CONFIG = {**BASE, "authentication": {"chain": [{"kind": "control"}]}}


def blocks(page, section=None, without=None) -> list[str]:
    """The blocks of `sh` of a page, or of a section; `without`: a section that is not meant."""
    text = (ROOT / "docs/operate" / page).read_text() + "\n## "
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert section is None or section in dict(sections), f"{page} has no section {section}"
    meant = [body for title, body in sections if section in (None, title) and title != without]
    return re.findall(r"^```sh\n(.*?)^```", "".join(meant), re.MULTILINE | re.DOTALL)


def commands(found) -> list[str]:
    """Commands of blocks: lines, which a backslash continues."""
    return re.findall(r"(?:[^\n]*\\\n)*[^\n]+\n", "".join(found))


class Shell:
    """Runs commands one after the other; what they export stays."""

    def __init__(self, folder, broker, key_file=None):
        programs = folder / "bin"
        programs.mkdir()
        (programs / "heraldmq").symlink_to(BINARY)
        self.folder, self.broker = folder, broker
        self.url = f"http://127.0.0.1:{broker.http_port}"
        self.env = {**environment(), "PATH": f"{programs}:{os.environ['PATH']}", "HERALDMQ_URL": self.url}
        if key_file:
            self.env |= {"HERALDMQ_KEY_FILE": str(key_file), "KEY": key_file.read_text().strip()}

    def run(self, command, given="") -> str:
        script = command.replace("http://127.0.0.1:8091", self.url)
        # A request that is refused is a failure.
        script = script.replace("curl ", "curl --fail-with-body --max-time 20 ")
        variables = self.folder / "variables"
        script = f"set -e\n{script}\nexport -p >'{variables}'\nset | sed -n '/^\\(LOGIN\\|TOKEN\\)=/p' >>'{variables}'\n"
        if variables.exists():
            script = f". '{variables}'\n{script}"
        done = subprocess.run(
            ["sh", "-c", script], cwd=self.folder, env=self.env, input=given, text=True, capture_output=True, timeout=3 * DEADLINE_S
        )
        assert done.returncode == 0, f"exit code {done.returncode} of {command}{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture()
def key(tmp_path):
    file = tmp_path / "admin.key"
    file.write_text(run("api-key", "add", tmp_path / "keys.json", "--name", "admin", "--role", "administrator").stdout)
    return file


@pytest.mark.parametrize(
    "page, files, users",
    [
        (
            "from-mosquitto.md",
            {"passwd": "mosquitto-passwd-2.0", "acl": "mosquitto-acl", "dynamic-security.json": "dynamic-security.json"},
            {"ann", "bob", "carol", "press-17"},
        ),
        ("from-emqx.md", {"users.csv": "emqx-users-pbkdf2-sha256.csv", "acl.conf": "emqx-acl.conf"}, {"ann"}),
    ],
)
def test_the_commands_of_an_import(page, files, users, key, tmp_path):
    for name, file in files.items():
        shutil.copy(FILES / file, tmp_path / name)
    typed = commands(blocks(page, "Import"))
    assert len(typed) == 3
    with Broker({"http.keyFile": tmp_path / "keys.json"}, config=CONFIG) as broker:
        shell = Shell(tmp_path, broker, key)
        for command in typed:
            shell.run(command)
        there = {user["name"] for user in Api(broker, key).done("GET", "/users")["items"]}
        assert users <= there, there


def test_the_commands_about_users_groups_and_rules(key, tmp_path):
    (tmp_path / "password-of-ben").write_text("password of ben\n")
    shutil.copy(FILES / "mosquitto-passwd-2.0", tmp_path / "passwords")
    typed = commands(blocks("access.md", without="People and keys"))
    assert len(typed) > 15
    with Broker({"http.keyFile": tmp_path / "keys.json"}, config=CONFIG) as broker:
        api, shell = Api(broker, key), Shell(tmp_path, broker, key)
        for command in typed:
            if command.startswith(BEFORE):
                api.done("DELETE", "/users/ann")
            if "part.yml" in command:
                shutil.copy(tmp_path / "backup.yml", tmp_path / "part.yml")
            etag = api.ask("GET", "/rules")[2]
            command = command.replace('"r1841"', etag).replace("1841", str(api.done("GET", "/control")["revision"]))
            given = [text for begin, text in INPUT.items() if command.startswith(begin)]
            shell.run(command, *given)
        there = {user["name"] for user in api.done("GET", "/users")["items"]}
        assert there == {"ann", "ben", "meter-17"}
        assert (tmp_path / "meter-17.secret").read_text().strip()


def test_the_commands_about_people_and_keys(tmp_path):
    typed = commands(blocks("access.md", "People and keys"))
    assert typed[0].startswith("heraldmq person first anna")
    with Broker(config=CONFIG) as broker:
        shell = Shell(tmp_path, broker)
        said = until(lambda: [line for line in broker.log_lines if "code" in line and "first administrator" in line["message"]], what="the code")
        typed[0] = typed[0].replace("person first anna", "person first anna --stdin")
        shell.run(typed[0], f"{said[0]['code']}\n{PASSWORD}\n")
        for command in typed[1:]:
            shell.run(command)
        api = Api(broker, tmp_path / "ci.key")
        assert {person["name"]: (person["role"], person["enabled"]) for person in api.done("GET", "/people")["items"]} == {
            "anna": ("administrator", True),
            "ben": ("viewer", False),
        }
        assert {key["name"] for key in api.done("GET", "/keys")["items"]} == {"anna", "ci"}

"""Logins that fail: passwords and SCRAM, as fast as they are answered."""

import subprocess
import time

from harness import raw
from harness.broker import BASE, BINARY
from harness.raw import CONNACK

from . import Attack

# What the broker's own `passwd` writes takes so long to compute: that is what protects the passwords.
HASH_S = 0.15


def with_users(folder, *users) -> dict:
    """A broker that knows users, and lets others in without a name."""
    file = folder / "users"
    for user in users:
        command = [BINARY, "passwd", str(file), user, "--stdin"]
        subprocess.run(command, input="correct horse\n", text=True, check=True, capture_output=True, timeout=60)
    chain = {"kind": "passwordFile", "file": str(file)}
    return {"config": {**BASE, "allowAnonymous": True, "authentication": {"chain": [chain]}}}


class _Login(Attack):
    is_refused = True

    def broker_fields(self, folder):
        return with_users(folder, "alice")


class LoginWrongPasswords(_Login):
    """n wrong passwords for a user that there is, 20 at a time; the computing of hashes is allowed for."""

    n, small = 60, 20

    def sets(self, _folder):
        return {"abuse.failedLogins": 0}

    def run(self, stage):
        for _ in range(0, stage.n, 20):
            lines = [stage.connect(stage.tag, username="alice", password=b"wrong", waits=False) for _ in range(20)]
            stage.until(lambda lines=lines: all(line.counts[CONNACK] or not line.is_open for line in lines), what="all")
        self.hashed = stage.n

    def judge(self, stage, cost):
        cost.cpu = max(cost.cpu - HASH_S * self.hashed, 0)


class LoginWrongPasswordsLimited(_Login):
    """n wrong passwords at once, with the limit of failed logins that is set by default: few of them are computed."""

    n, small = 600, 100
    grows = False

    def sets(self, _folder):
        return {"abuse.includeLoopback": True}

    def run(self, stage):
        lines = [
            stage.connect(f"{stage.tag}{number}", username="alice", password=b"wrong", waits=False)
            for number in range(stage.n)
        ]
        start = time.monotonic()
        stage.until(lambda: time.monotonic() - start > 2, what="what is computed")
        for line in lines:
            line.close()

    def judge(self, stage, cost):
        # The first ones, and those that are under way when the limit is reached.
        cost.cpu = max(cost.cpu - 10 * HASH_S, 0)


class LoginUnknownMethod(_Login):
    """n CONNECT packets with 60 kB of data for a method of authentication that there is not."""

    is_refused = True
    n, small, versions = 200, 40, (5,)

    def run(self, stage):
        props = {"authentication_method": "x", "authentication_data": b"x" * 60_000}
        one = raw.connect(stage.tag, version=5, props=props)
        for _ in range(0, stage.n, 20):
            lines = [stage.dial() for _ in range(20)]
            for line in lines:
                line.send(one)
            stage.until(lambda lines=lines: all(line.counts[CONNACK] or not line.is_open for line in lines), what="all")
            for line in lines:
                line.close()

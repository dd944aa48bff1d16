"""A throw-away PostgreSQL server from the packages of the system.

Invariant: the server is ended and its folder removed with the test, and nothing outside the folder is touched.
Absent on purpose: any table; `sql` makes what a test needs.
"""

import glob
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

START_S = 120

OWNER = "herald"
PASSWORD = "the database's own"

# PostgreSQL refuses to run as root.
UNPRIVILEGED = "nobody"

# Below the ports that the system chooses for connections: none takes it while the server is down.
PORTS = range(21_000, 32_768)


def folder_of_programs() -> pathlib.Path | None:
    """Where initdb, pg_ctl and psql are, if they are installed. Debian keeps them out of the path."""
    found = shutil.which("initdb", path=os.pathsep.join([os.environ["PATH"], *glob.glob("/usr/lib/postgresql/*/bin")]))
    return pathlib.Path(found).resolve().parent if found else None


class Postgres:
    """Context manager around a server, which listens on 127.0.0.1 and in `folder` (Unix socket)."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="heraldmq-postgres-")
        self.folder = pathlib.Path(self._folder.name)
        self.programs = folder_of_programs()
        self.user = UNPRIVILEGED if os.geteuid() == 0 else None
        self.port = free_port()
        self.password_file = self._own("password", PASSWORD)
        if self.user:
            shutil.chown(self.folder, self.user)

    @property
    def connection(self) -> str:
        """For the setting `postgres.connection`; `password_file` is that for `postgres.passwordFile`."""
        return f"host=127.0.0.1 port={self.port} user={OWNER} dbname=postgres"

    def __enter__(self):
        self._run(
            "initdb",
            *("--username", OWNER, "--pwfile", self.password_file, "--auth", "scram-sha-256"),
            *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
        )
        self.start()
        return self

    def __exit__(self, *_):
        self.stop(check=False)
        self._folder.cleanup()

    def start(self):
        """Returns when the server answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "start", "--wait", "--log", self.folder / "log", "--options", options)

    def stop(self, check=True):
        """Ends the server as a crash would; returns when it is gone."""
        self._run("pg_ctl", "stop", "--wait", "--mode", "immediate", check=check)

    def sql(self, text: str) -> str:
        """Runs statements; their output."""
        command = [self.programs / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.connection, "-c", text]
        environment = os.environ | {"PGPASSWORD": PASSWORD}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=START_S
        ).stdout.strip()

    def _run(self, program, *arguments, check=True):
        # Not through pipes: the server would keep them open.
        with open(self.folder / "output", "w+") as output:
            done = subprocess.run(
                [self.programs / program, "--pgdata", self.folder / "data", *arguments],
                cwd=self.folder,
                user=self.user,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=START_S,
            )
            output.seek(0)
            assert not check or done.returncode == 0, f"{program} {arguments}: {output.read()}"

    def _own(self, name: str, content: str) -> pathlib.Path:
        path = self.folder / name
        path.write_text(content)
        if self.user:
            shutil.chown(path, self.user)
        return path


def free_port() -> int:
    """A port that nobody listens on; workers begin at different ones."""
    first = os.getpid() % 1_000 * 10
    for port in PORTS[first:]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no port is free")

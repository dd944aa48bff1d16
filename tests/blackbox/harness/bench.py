"""`heraldmq bench` as a process beside a test."""

import pathlib
import subprocess

from .broker import BINARY, environment
from .wait import DEADLINE_S


class Started:
    """A bench process that goes on while the test does something."""

    def __init__(self, *args, env=None):
        self.process = subprocess.Popen(
            [BINARY, "bench", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(), **(env or {})},
        )

    def workers(self) -> list[int]:
        """Its child processes, of whichever thread, in the order in which they were started."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return sorted(int(pid) for path in threads for pid in path.read_text().split())

    def end(self, timeout=DEADLINE_S) -> subprocess.CompletedProcess:
        out, error = self.process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

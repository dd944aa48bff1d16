"""What survives when the broker is killed, loses power, is stopped, or all its connections break.

The rounds are played by `crash-test` (crates/crash-test), which prints its seed and the history of every
message that was lost, came twice or came in the wrong order.
"""

import os
import pathlib
import random
import signal
import socket
import subprocess

import pytest

from harness.broker import BINARY, environment

TOOL = pathlib.Path(os.environ.get("CRASH_TEST_BIN") or pathlib.Path(BINARY).with_name("crash-test"))
RUN_S = 300

pytestmark = pytest.mark.skipif(
    not TOOL.exists(), reason=f"no {TOOL}; build it (cargo build --release -p herald-crash-test) or set CRASH_TEST_BIN"
)

def free_ports() -> int:
    """A port that is free, as is the next: below those that the kernel gives to clients."""
    while True:
        port = random.randrange(24_000, 25_000, 2)
        with socket.socket() as first, socket.socket() as second:
            if first.connect_ex(("127.0.0.1", port)) and second.connect_ex(("127.0.0.1", port + 1)):
                return port


@pytest.mark.parametrize(
    ("fault", "rounds"),
    [
        ("cut", 10),
        ("stop", 5),
        ("kill", 10),
        ("power", 5),
        ("fsync", 3),
        ("full", 3),
    ],
)
def test_every_promise_is_kept_after(fault, rounds, tmp_path):
    command = [TOOL, "run", "--fault", fault, "--rounds", rounds, "--port", free_ports(), "--program", BINARY]
    out, code = finish([*map(str, command), "--work", str(tmp_path)])
    print(out)
    assert code == 0, f"{fault}: see the output above for the seed and the violations"


def finish(command) -> tuple[str, int]:
    """Output and exit code of a command. If it hangs, it ends together with the brokers that it started."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), start_new_session=True
    )
    try:
        return process.communicate(timeout=RUN_S)[0], process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise

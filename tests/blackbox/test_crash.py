"""What survives when the broker is killed, loses power, is stopped, or all its connections break.

The rounds are played by `crash-test` (crates/crash-test), which draws from the seed HERALD_SEED and prints the history of every
message that was lost, came twice or came in the wrong order.
"""

import os
import pathlib
import random
import signal
import socket
import subprocess

import pytest

from harness import raw
from harness.broker import BINARY, Broker, environment
from harness.disk import SlowDisk

TOOL = pathlib.Path(os.environ.get("CRASH_TEST_BIN") or pathlib.Path(BINARY).with_name("crash-test"))
RUN_S = 300

# Longer than any test.
FOREVER_MS = 3_600_000

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


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "rounds"),
    [
        ("cut", 10),
        ("stop", 5),
        ("kill", 10),
        ("power", 5),
        ("leave", 5),
        ("fsync", 3),
        ("full", 3),
    ],
)
def test_every_promise_is_kept_after(fault, rounds, tmp_path):
    command = [TOOL, "run", "--fault", fault, "--rounds", rounds, "--port", free_ports(), "--program", BINARY]
    command += ["--seed", os.environ.get("HERALD_SEED", "1")]
    out, code = finish([*map(str, command), "--work", str(tmp_path)])
    print(out)
    assert code == 0, f"{fault}: see the output above for the seed and the violations"


@pytest.mark.parametrize("version", [4, 5])
def test_a_connection_is_closed_in_order_when_its_disconnect_is_recorded(version, tmp_path):
    disk = SlowDisk(tmp_path / "shim", tmp_path / "data")
    with Broker(data_dir=tmp_path / "data", prefix=disk.prefix) as broker:
        session = {"session_expiry": 60} if version == 5 else {}
        will = {"topic": "gone", "payload": b"gone", "qos": 1}
        for is_recorded in (True, False):
            client = broker.client("ann", version=version, clean=False, props=session, will=will)
            disk.delay(0 if is_recorded else FOREVER_MS)
            client.send(raw.disconnect())
            # [MQTT-3.14.4-3] A client that sees the end of the stream need not fear its will.
            with pytest.raises(raw.Closed, match="end of stream" if is_recorded else "reset"):
                client.recv()
            assert broker.metric("heraldmq_disconnect_timeouts_total") == (not is_recorded)
        broker.kill()


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

#!/usr/bin/env python3
"""How long devices take to log in while others at their address fail.

Starts a broker with a password file (argon2id, as `heraldmq passwd` writes it), lets guessers fail at a rate from one
address, and connects a thousand devices from the same address, each with the right password. Prints how long they took,
who was refused, and how many guesses were judged.

  bench/failed_logins.py target/release/heraldmq
  bench/failed_logins.py target/release/heraldmq --devices 200 --only shared
"""

import argparse
import asyncio
import base64
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "blackbox"))

from broker import Broker  # noqa: E402
from harness import raw  # noqa: E402

ADDRESS = "127.0.0.2"
SETTINGS = {
    "mqttServerConfig.tcpListener.host": "127.0.0.1",
    "mqttServerConfig.tcpListener.port": 0,
    "http.port": 0,
    "abuse.includeLoopback": "true",
    "authentication.chain.kind": "passwordFile",
}


async def log_in(port, user, password):
    """The code of CONNACK and the seconds until it came; `None`: the connection was closed."""
    began = time.monotonic()
    code = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ADDRESS, 0))
        writer.write(raw.connect("", username=user, password=password))
        head = await reader.readexactly(4)
        code = head[3]
        writer.close()
    except (asyncio.IncompleteReadError, OSError):
        # The broker has closed it: it waited for its turn until the time for its CONNECT was over.
        pass
    return code, time.monotonic() - began


async def guess(port, rate, credentials, codes):
    """Fails at a rate, until it is cancelled."""
    tasks, due = set(), time.monotonic()
    for number in range(10**9):
        await asyncio.sleep(max(0, due - time.monotonic()))
        due += 1 / rate
        task = asyncio.create_task(log_in(port, *credentials(number)))
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or codes.append(done.result()[0]))
        tasks.add(task)


async def devices_come(port, names, per_second):
    """Each device tries until it is in, as devices do; the first answers are counted."""

    async def come(name, at):
        await asyncio.sleep(at)
        began, refused = time.monotonic(), 0
        while (await log_in(port, name, b"right"))[0] != 0:
            refused += 1
            await asyncio.sleep(1)
        return time.monotonic() - began, refused

    return await asyncio.gather(*(come(name, n / per_second) for n, name in enumerate(names)))


def settings_with_users(folder, binary, names, is_cheap):
    """A password file in which all have one password."""
    file = folder / "passwords"
    if is_cheap:
        salt = b"twelve bytes"
        digest = hashlib.pbkdf2_hmac("sha512", b"right", salt, 101)
        code = f"$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    else:
        command = [binary, "passwd", str(file), "device", "--stdin"]
        subprocess.run(command, input=b"right\n", check=True, capture_output=True)
        code = file.read_text().strip().partition(":")[2]
    file.write_text("".join(f"{name}:{code}\n" for name in sorted(set(names))))
    return {**SETTINGS, "authentication.chain.file": str(file)}


async def scenario(given, what, names, rate, credentials, lead_s):
    binary, per_second = given.binary, given.per_second
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_with_users(pathlib.Path(folder), binary, names, given.cheap)
        with Broker(binary, settings, folder) as broker:
            codes, port = [], broker.port("mqtt-tcp")
            guesser = asyncio.create_task(guess(port, rate, credentials, codes))
            await asyncio.sleep(lead_s)
            came = await devices_come(port, names, per_second)
            guesser.cancel()
            times = sorted(seconds for seconds, _ in came)
            judged = sum(code == 0x86 for code in codes)
            at = lambda share: times[min(len(times) - 1, int(share * len(times)))]
            print(
                f"{what:48} p50 {at(0.5):6.2f} s  p99 {at(0.99):6.2f} s  max {times[-1]:6.2f} s"
                f"  refused {sum(refused for _, refused in came):4}  guesses {len(codes):5}, judged {judged}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--per-second", type=int, default=50, help="how fast devices come")
    parser.add_argument("--lead", type=float, default=10, help="seconds that guessers have for themselves")
    parser.add_argument("--only", default="", help="scenarios whose name has this")
    parser.add_argument("--cheap", action="store_true", help="hashes of Mosquitto's with 101 rounds: what is not hashing")
    given = parser.parse_args()
    own = [f"device-{n}" for n in range(given.devices)]
    shared = ["fleet"] * given.devices
    scenarios = [("nobody fails", own, 0.001, lambda n: ("nobody", b"wrong"), 0)]
    for rate in (1, 5, 50):
        wrong = lambda n: ("press", b"outdated")
        scenarios.append((f"one device fails at {rate}/s", own, rate, wrong, given.lead))
        scenarios.append((f"one device fails at {rate}/s, after a restart", own, rate, wrong, 0))
    many = lambda n: (f"account-{n % 1000}", b"guess %d" % n)
    scenarios.append(("1,000 user names are guessed at 50/s", own, 50, many, 3 * given.lead))
    for rate in (5, 50):
        scenarios.append((f"one shared name, one wrong at {rate}/s", shared, rate, lambda n: ("fleet", b"outdated"), given.lead))
        scenarios.append((f"one shared name is guessed at {rate}/s", shared, rate, lambda n: ("fleet", b"guess %d" % n), 1))
    for what, names, rate, credentials, lead_s in scenarios:
        if given.only in what:
            asyncio.run(scenario(given, what, names, rate, credentials, lead_s))


if __name__ == "__main__":
    main()

"""Debian's mosquitto broker with a bridge to a broker under test.

Invariant: every process started here is ended here. `mosquitto` is in the path (`need_mosquitto` of scripts/tools.sh).
"""

import getpass
import pathlib
import re
import signal
import subprocess
import threading

from .postgres import free_port
from .raw import Raw
from .wait import DEADLINE_S, until

# A bridge is told to try again a second after it has lost its connection; everything else is the default of Mosquitto.
CONFIG = """
listener {port} 127.0.0.1
allow_anonymous true
user {user}
log_type all
persistence true
persistence_location {folder}/
connection edge
address {address}
restart_timeout 1
{bridge}
"""


class Mosquitto:
    """Context manager around one mosquitto process, the edge.

    `address` is HOST:PORT of the centre, `bridge` the further lines of the bridge's configuration. A later one with the
    same folder has what this one has saved at its end."""

    def __init__(self, folder: pathlib.Path, address: str, *bridge: str):
        self.port = free_port()
        config = folder / "mosquitto.conf"
        lines = "\n".join(bridge)
        user = getpass.getuser()
        config.write_text(CONFIG.format(port=self.port, user=user, folder=folder, address=address, bridge=lines))
        self.log: list[str] = []
        self.process = subprocess.Popen(["mosquitto", "-c", str(config)], stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        try:
            until(lambda: self.lines("mosquitto version .* running") or self.process.poll() is not None, what=self._log)
            assert self.process.poll() is None, self._log()
        except BaseException:
            self.close()
            raise

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def _log(self) -> str:
        return "mosquitto: " + "\n".join(self.log)

    def lines(self, pattern) -> list[str]:
        """The lines of its log with this pattern."""
        return [line for line in list(self.log) if re.search(pattern, line)]

    def attempts(self) -> int:
        """How often the bridge has sent CONNECT."""
        return len(self.lines("Bridge .* sending CONNECT"))

    def bridged(self, subscriptions: int):
        """Waits until the bridge is connected and the centre has acknowledged its subscriptions."""
        until(lambda: len(self.lines("Received SUBACK from local")) >= subscriptions, what=self._log)

    def client(self, client_id, *, clean=True) -> Raw:
        """A connected client of MQTT 3.1.1."""
        client = Raw(self.port, version=4)
        client.connect(client_id, clean=clean)
        return client

    def stop(self):
        """SIGTERM; returns when it has saved its state and is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)

    def close(self):
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

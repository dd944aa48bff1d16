"""Readings of the broker's process and its data folder, from outside.

Sources: its CPU clock (nanoseconds; clock_getcpuclockid(3)), /proc/PID/status and clear_refs (the peak of resident
memory since the last reset), /proc/PID/task (what each thread used), and the blocks of the files in its folder.
"""

import json
import os
import pathlib
import threading
import time

from harness.broker import Broker


class Silent(Broker):
    """A broker whose log is counted, and kept only as far as tests look at it."""

    KEPT = 2000

    def _read_log(self):
        self.log_bytes = 0
        for line in self.process.stderr:
            self.log_bytes += len(line)
            if len(self.log_text) < self.KEPT or b"panicked" in line:
                self._keep(line)

    def _keep(self, line):
        text = line.decode(errors="replace").rstrip("\n")
        self.log_text.append(text[:4000])
        try:
            self.log_lines.append(json.loads(text))
        except ValueError:
            pass

    def cpu(self) -> float:
        """Seconds that all threads have used, those that ended among them."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def reset_peak(self) -> int:
        """Resident memory now, which is the peak from now on."""
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.rss()

    def peak(self) -> int:
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

    def threads(self) -> dict[str, float]:
        """CPU seconds by the name of the thread."""
        found: dict[str, float] = {}
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            try:
                name = (task / "comm").read_text().strip()
                used = int((task / "schedstat").read_text().split()[0]) / 1e9
            except OSError:
                continue
            found[name] = found.get(name, 0) + used
        return found

    def folder(self) -> int:
        """Bytes that the data folder takes."""
        total = 0
        for path, _, names in os.walk(self.data_dir):
            for name in names:
                try:
                    total += os.lstat(os.path.join(path, name)).st_blocks * 512
                except OSError:
                    pass
        return total


    def link_bytes(self) -> int:
        """Bytes sent to other nodes."""
        return 0


class FolderPeak:
    """The largest size of the data folders while this lives."""

    EVERY_S = 0.1

    def __init__(self, broker):
        self.broker, self.peak = broker, broker.folder()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while not self._over.wait(self.EVERY_S):
            self.peak = max(self.peak, self.broker.folder())

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return max(self.peak, self.broker.folder())

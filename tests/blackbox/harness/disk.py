"""A disk whose syncs take long: the preloaded library of `crash-test`, told by the file that it maps."""

import pathlib
import struct
import subprocess

SOURCE = pathlib.Path(__file__).parents[3] / "crates/crash-test/shim/powerloss.c"

# `struct control` of the library.
SYNC_DELAY_MS, CONTROL_BYTES = 20, 24


class SlowDisk:
    """For the processes that are started behind `prefix`, one at a time, and their folder `watched`."""

    def __init__(self, work: pathlib.Path, watched: pathlib.Path):
        work.mkdir(parents=True, exist_ok=True)
        library = work / "powerloss.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, SOURCE], check=True)
        self.control = work / "control"
        self.control.write_bytes(bytes(CONTROL_BYTES))
        # Not for what starts the process: the library's filter would outlive it.
        self.prefix = (
            "env",
            f"LD_PRELOAD={library}",
            f"CRASH_SHIM_FOLDER={watched.resolve()}",
            f"CRASH_SHIM_SIDE={work.resolve()}",
        )

    def delay(self, ms: int):
        """From now on each sync takes so much longer."""
        with self.control.open("r+b") as control:
            control.seek(SYNC_DELAY_MS)
            control.write(struct.pack("<I", ms))

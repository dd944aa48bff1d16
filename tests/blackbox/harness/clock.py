"""A node's wall clock that jumps: libfaketime, told by a file. The monotonic clock goes on undisturbed."""

import pathlib

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


class Clock:
    """For the processes that are started behind `prefix`."""

    def __init__(self, work: pathlib.Path):
        work.mkdir(parents=True, exist_ok=True)
        self.file = work / "offset"
        self.jump(0)
        self.prefix = (
            "env",
            f"LD_PRELOAD={LIBRARY}",
            f"FAKETIME_TIMESTAMP_FILE={self.file}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )

    def jump(self, seconds: int):
        """From now on the clock is so far from that of the machine."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.replace(self.file)

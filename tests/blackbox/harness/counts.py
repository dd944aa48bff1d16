"""What a broker asks of the C library for one message, counted by a library that is preloaded into it (`budget/count.c`).

Invariant: a step is over when each watched thread waits for something to do, so that a count does not depend on how fast
the machine is, nor on what else runs on it.
Absent on purpose: time.
"""

import collections
import mmap
import os
import pathlib
import struct
import subprocess
import tempfile

from .broker import BINARY, HERE, Broker
from .wait import until

PROGRAM = pathlib.Path(BINARY).parent.parent / "debug" / "examples" / "system-allocator"

# As in count.c.
COUNTED = ("allocations", "allocated", "freed", "clocks", "calls", "copied")
# What a message asks for. Freed bytes are mostly those of an earlier one.
JUDGED = ("allocations", "allocated", "clocks", "calls", "copied")
LARGEST = 4096
_SIZES = LARGEST // 8 + 1
_THREADS_AT = 8
_THREAD = struct.Struct(f"<3q{len(COUNTED)}q")
_LIVE = struct.Struct(f"<{_SIZES}q")
_THREAD_BYTES = _THREAD.size + _LIVE.size
MOST_THREADS = 1024


def compiled(folder: pathlib.Path) -> pathlib.Path:
    """The library, made from its source."""
    made = folder / "count.so"
    flags = ["-O2", "-fPIC", "-shared", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", made, HERE / "budget" / "count.c", "-ldl"], check=True)
    return made


# A file system in memory.
MEMORY = pathlib.Path("/dev/shm")


class CountedBroker(Broker):
    """A broker whose threads are counted. `watched`: how the names of those begin that steps wait for and that count. Its data is in
    memory, so that syncs are quick: which thread writes the log, and what is answered at once, depends on that."""

    def __init__(self, library, folder, sets, watched=("loop-", "store-", "log")):
        self._file = folder / "counts"
        environment = {"LD_PRELOAD": str(library), "HERALD_COUNTS": str(self._file)}
        self._memory = tempfile.TemporaryDirectory(prefix="heraldmq-counted-", dir=MEMORY if MEMORY.is_dir() else None)
        data = pathlib.Path(self._memory.name, "data")
        super().__init__({"sys.intervalSeconds": 0, **sets}, binary=str(PROGRAM), env=environment, data_dir=data)
        with self._file.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # A thread is counted, and has its name, when it has done something.
        wanted = {f"loop-{number}" for number in range(sets["eventLoops"])} | {"store-0", "log"}
        until(lambda: wanted <= set(self._threads().values()), what="threads that have begun")
        self.watched = {slot: name for slot, name in self._threads().items() if name.startswith(watched)}

    def _threads(self) -> dict[int, str]:
        """The names of the threads that run, by their place in the file."""
        (count,) = struct.unpack_from("<q", self._map)
        assert count < MOST_THREADS, "more threads than the library counts"
        names = {}
        for slot in range(count):
            thread = self._thread(slot)[0]
            comm = pathlib.Path(f"/proc/{self.pid}/task/{thread}/comm")
            if comm.exists():
                names[slot] = comm.read_text().strip()
        return names

    def _thread(self, slot):
        return _THREAD.unpack_from(self._map, _THREADS_AT + slot * _THREAD_BYTES)

    def _waits(self):
        return {slot: self._thread(slot)[1] for slot in self.watched}

    def _all_wait(self) -> bool:
        return all(self._thread(slot)[2] for slot in self.watched)

    def totals(self) -> dict[str, tuple[int, ...]]:
        """All counters of the watched threads, those of a kind together: `loop` and `store`. The thread of the log is of the store: which of
        the two writes the log depends on how quick the disk is."""
        kinds = collections.defaultdict(list)
        for slot, name in self.watched.items():
            kinds["store" if name == "log" else name.partition("-")[0]].append(self._thread(slot)[3:])
        return {kind: tuple(map(sum, zip(*counters))) for kind, counters in kinds.items()}

    def live(self) -> dict[int, int]:
        """How many blocks of up to so many bytes event loops have allocated and not freed, by their size in steps of eight
        bytes."""
        places = [_THREADS_AT + slot * _THREAD_BYTES + _THREAD.size for slot in self._loops()]
        counts = map(sum, zip(*(_LIVE.unpack_from(self._map, place) for place in places)))
        return {8 * place: count for place, count in enumerate(counts) if count}

    def held(self) -> int:
        """Bytes that they have allocated and not freed."""
        return sum(allocated - freed for _, allocated, freed, *_ in (self._thread(slot)[3:] for slot in self._loops()))

    def _loops(self):
        return [slot for slot, name in self.watched.items() if name.startswith("loop-")]

    def step(self, action):
        """Does what some watched thread has work from, and waits until all of them have done it."""
        before = self._waits()
        action()
        is_done = lambda: self._all_wait() and any(now > before[slot] for slot, now in self._waits().items())
        until(is_done, what="threads that wait for something to do")

    def quiet(self):
        """Waits until there is nothing to do."""
        until(self._all_wait, what="threads that wait for something to do")

    def cost(self, message, warm=50, count=250) -> dict[str, collections.Counter]:
        """What a message costs the threads of each kind: how many of `count` messages have cost so much. Timers, and what
        is amortised over many messages, are in few of them; a thread that is woken twice or once for what two others have
        done costs now this, now that."""
        seen = collections.defaultdict(collections.Counter)
        for number in range(warm + count):
            before = self.totals()
            message()
            after = self.totals()
            if number >= warm:
                for kind, end in after.items():
                    cost = dict(zip(COUNTED, (e - b for b, e in zip(before[kind], end))))
                    seen[kind][tuple(cost[name] for name in JUDGED)] += 1
        # Threads that have nothing to do with it.
        return {kind: costs for kind, costs in seen.items() if any(costs.most_common(1)[0][0])}


def compiler() -> str:
    """Which compiler has built the program: what it copies by calls depends on it."""
    return subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.strip()


def is_there() -> bool:
    return PROGRAM.exists() and os.uname().sysname == "Linux"

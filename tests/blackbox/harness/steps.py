"""What threads of a broker write while they handle a message, instruction by instruction (`sharing/steps.c`).

Invariant: a step is over when each stepped thread waits for something to do, so that what is seen does not depend on how fast the
machine is. What a message allocates, the allocator's own tables, stacks and thread-locals are no part of it.
Absent on purpose: what the kernel writes; threads that are not stepped.
"""

import bisect
import collections
import contextlib
import os
import pathlib
import platform
import re
import signal
import struct
import subprocess

import capstone
from capstone import x86

from .broker import HERE
from .wait import until

# What the compiler appends to names of functions.
_HASH = re.compile(r"::h[0-9a-f]{16}$")
_RECORD = struct.Struct("<18Q")
_REGISTERS = ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{number}" for number in range(8, 16))]
_RSP, _RSI, _RDI, _RAX, _RCX = (2 + _REGISTERS.index(name) for name in ["rsp", "rsi", "rdi", "rax", "rcx"])
WORD = 8
# Loops have smaller numbers, and addresses of what is theirs are larger ones.
LOOPS_MOST = 1 << 16

# What a call of the C library returns a block of: the bytes it was asked for.
_ALLOCATORS = {
    "malloc": lambda r: r[_RDI],
    "calloc": lambda r: r[_RDI] * r[_RSI],
    "realloc": lambda r: r[_RSI],
    "aligned_alloc": lambda r: r[_RSI],
    "memalign": lambda r: r[_RSI],
    "free": lambda r: 0,
}
_FOLDERS = {folder.name.replace("-", "_") for folder in (HERE.parent.parent / "crates").iterdir()}
_CRATES = _FOLDERS | {f"herald_{name}" for name in _FOLDERS}
# Methods of what belongs to one event loop: their first argument says which. A parked loop is run by another's thread.
# What the first loop's thread does for parked loops: whoever runs a loop does it, and one thread runs both then.
_HOST = "herald_net::parking::"
_OF_LOOP = re.compile(r"herald_net::event_loop::Core<.*>::\w+$")


def is_possible() -> bool:
    """Whether instructions of this machine can be read."""
    return os.uname().sysname == "Linux" and platform.machine() == "x86_64"


def compiled(folder: pathlib.Path) -> pathlib.Path:
    """The program that steps, made from its source."""
    made = folder / "steps"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", made, HERE / "sharing" / "steps.c"], check=True)
    return made


class Message:
    """What handling one message did: words of memory by the functions of the broker that wrote them, in which event loop, words
    that were read or written by event loop, and locked instructions by the functions that executed them."""

    def __init__(self):
        self.written = collections.defaultdict(set)
        self.touched = collections.defaultdict(set)
        self.locked = collections.Counter()
        self.instructions = 0

    def forget(self, block, size):
        """A block is freed: whoever has these words next has nothing to do with who had them."""
        words = set(range(block // WORD, (block + size - 1) // WORD + 1)) if size else set()
        for word in words & self.touched.keys():
            del self.touched[word]
        for key in [key for key in self.written if key[0] in words]:
            del self.written[key]

    def shared(self, messages) -> dict[str, set[int]]:
        """Words that one event loop wrote for this message, and another one read or wrote for any of the messages, by the functions
        that wrote them."""
        # Loops are known by where their `Core` is, which are in one list, or by the number of the thread that begins their turns.
        cores = sorted({loop for message in messages for loops in message.touched.values() for loop in loops if loop >= LOOPS_MOST})
        number = {core: place for place, core in enumerate(cores)}
        touched = collections.defaultdict(set)
        for message in messages:
            for word, loops in message.touched.items():
                touched[word] |= {number.get(loop, loop) for loop in loops}
        found = collections.defaultdict(set)
        for (word, loop), functions in self.written.items():
            if touched[word] - {number.get(loop, loop)}:
                for function in functions:
                    found[function].add(word)
        return found


class _Instruction:
    """What is known of an instruction before it runs."""

    __slots__ = ("function", "is_locked", "operands", "is_call", "is_return", "is_entry")

    def __init__(self, decoded, function, is_entry):
        self.function = function
        # Of a method of what belongs to a loop.
        self.is_entry = is_entry and _OF_LOOP.match(function) is not None
        self.is_locked, self.operands, self.is_call, self.is_return = False, (), False, False
        if decoded is None:
            return
        self.is_call, self.is_return = decoded.group(capstone.CS_GRP_CALL), decoded.group(capstone.CS_GRP_RET)
        if decoded.id in (x86.X86_INS_LEA, x86.X86_INS_NOP, x86.X86_INS_ENDBR64):
            return
        operands = []
        for operand in decoded.operands:
            # What has a segment is a thread's own.
            if operand.type != x86.X86_OP_MEM or operand.mem.segment in (x86.X86_REG_FS, x86.X86_REG_GS):
                continue
            memory, offset = operand.mem, operand.mem.disp
            base, index = decoded.reg_name(memory.base), decoded.reg_name(memory.index)
            if base == "rip":
                base, offset = None, offset + decoded.address + decoded.size
            place = lambda name: 2 + _REGISTERS.index(name) if name in _REGISTERS else None
            is_write = bool(operand.access & capstone.CS_AC_WRITE)
            operands.append((place(base), place(index), memory.scale, offset, operand.size, is_write))
            self.is_locked |= is_write and decoded.mnemonic.startswith(("lock", "xchg"))
        self.operands = tuple(operands)


class Stepper:
    """Steps the threads of a broker's process that are named so."""

    def __init__(self, program, broker, folder, watched="loop-"):
        self._pid, self._broker = broker.pid, broker
        self._file = folder / "steps"
        tasks = pathlib.Path(f"/proc/{self._pid}/task").iterdir()
        self.threads = {int(task.name): (task / "comm").read_text().strip() for task in tasks}
        self.threads = {thread: name for thread, name in self.threads.items() if name.startswith(watched)}
        self._loops = {thread: int(name.rpartition("-")[2]) for thread, name in self.threads.items()}
        self._maps = self._regions()
        self._names = _Symbols(self._maps)
        self._memory = open(f"/proc/{self._pid}/mem", "rb", buffering=0)  # noqa: SIM115
        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._decoder.detail = True
        self._known: dict[int, _Instruction] = {}
        # Blocks that were allocated while threads were stepped, with their bytes.
        self._blocks: dict[int, int] = {}
        command = [program, str(self._pid), str(self._file), *map(str, self.threads)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline() == "attached\n", "the threads of the broker cannot be stepped"
        self._records = self._file.open("rb")

    def close(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._process.stdout.close()
        self._records.close()
        self._memory.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _regions(self):
        regions = []
        for line in pathlib.Path(f"/proc/{self._pid}/maps").read_text().splitlines():
            span, _, offset, _, _, *path = line.split(maxsplit=5)
            begin, end = (int(number, 16) for number in span.split("-"))
            regions.append((begin, end, int(offset, 16), path[0] if path else ""))
        return regions

    def _is_quiet(self) -> bool:
        def state(thread):
            return pathlib.Path(f"/proc/{self._pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]

        return all(state(thread) == "S" for thread in self.threads)

    def message(self, action) -> Message:
        """What the threads do for an action, until all of them wait for something to do."""
        until(self._is_quiet, what="threads that wait for something to do")
        self._mark()
        os.truncate(self._file, 0)
        action()
        until(self._is_quiet, what="threads that wait for something to do")
        self._mark()
        self._records.seek(0)
        return self._examined(self._records.read())

    def _mark(self):
        self._process.send_signal(signal.SIGUSR1)
        assert self._process.stdout.readline() == "mark\n", "the program that steps has ended"

    def _stack(self, pointer):
        """The region that a thread's stack and its thread-locals are in."""
        return next(((begin, end) for begin, end, _, _ in self._maps if begin <= pointer < end), (pointer, pointer))

    def _instruction(self, at):
        known = self._known.get(at)
        if known is None:
            self._memory.seek(at)
            decoded = next(self._decoder.disasm(self._memory.read(15), at, 1), None)
            known = self._known[at] = _Instruction(decoded, *self._names.function(at))
        return known

    def _examined(self, records) -> Message:
        message, fresh = Message(), set()
        # By thread: the functions that called, each with where its return address is, the bytes that it allocates, and the loop that
        # runs from there on.
        calls, stacks = collections.defaultdict(list), {}
        entries = self._names.allocators
        for r in _RECORD.iter_unpack(records):
            thread, at = r[0], r[1]
            if thread == 0:
                continue
            message.instructions += 1
            known, frames = self._instruction(at), calls[thread]
            if at in entries:
                if entries[at] in ("free", "realloc"):
                    message.forget(r[_RDI], self._blocks.pop(r[_RDI], 0))
                frames.append((r[_RSP], None, _ALLOCATORS[entries[at]](r), None))
            if thread not in stacks:
                stacks[thread] = self._stack(r[_RSP])
            begin, end = stacks[thread]
            if known.is_entry and frames:
                # A result that takes memory of the caller's stack comes before the method's own arguments.
                frames[-1] = (*frames[-1][:3], r[_RSI] if begin <= r[_RDI] < end else r[_RDI])
            is_allocator = any(frame[1] is None for frame in frames)
            if known.operands and not is_allocator:
                function, loop = None, next((frame[3] for frame in reversed(frames) if frame[3]), None)
                if loop is None:
                    is_host = known.function.startswith(_HOST) or any(frame[1] and frame[1].startswith(_HOST) for frame in frames)
                    loop = None if is_host else self._loops[thread]
                for base, index, scale, offset, size, is_write in known.operands if loop is not None else ():
                    address = offset
                    if base is not None:
                        address += r[base]
                    if index is not None:
                        address += r[index] * scale
                    address &= (1 << 64) - 1
                    if begin <= address < end:
                        continue
                    words = range(address // WORD, (address + size - 1) // WORD + 1)
                    for word in words:
                        if word not in fresh:
                            message.touched[word].add(loop)
                    if not is_write:
                        continue
                    if function is None:
                        function = self._owner(known.function, frames)
                        message.locked[function] += known.is_locked
                    for word in words:
                        if word not in fresh:
                            message.written[word, loop].add(function)
            if known.is_call:
                frames.append((r[_RSP] - WORD, known.function, 0, None))
            elif known.is_return:
                while frames and frames[-1][0] <= r[_RSP]:
                    _, name, allocated, _ = frames.pop()
                    if name is None and allocated:
                        block = r[_RAX]
                        self._blocks[block] = allocated
                        fresh.update(range(block // WORD, (block + allocated - 1) // WORD + 1))
        return message

    @staticmethod
    def _owner(function, frames):
        """The innermost function of this workspace: what the libraries do, they do for it."""
        if _is_ours(function):
            return function
        for _, name, *_ in reversed(frames):
            if name and _is_ours(name):
                return name
        return function


def _is_ours(function) -> bool:
    return function.lstrip("<&").partition("::")[0] in _CRATES


class _Symbols:
    """Names of functions by their addresses, of the files that a process has mapped."""

    def __init__(self, regions):
        self._starts, self._functions, self.allocators = [], [], {}
        found = {}
        bases = {}
        for begin, _, offset, path in regions:
            if path.startswith("/") and path not in bases:
                bases[path] = begin - offset
        for path, base in bases.items():
            with contextlib.suppress(OSError), open(path, "rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
                for table in ([], ["-D"]):
                    command = ["nm", "-C", "--defined-only", *table, path]
                    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
                        address, kind, name = line.split(maxsplit=2)
                        if kind in "tTwWiV":
                            found[base + int(address, 16)] = _HASH.sub("", name).partition("@")[0]
        for address, name in sorted(found.items()):
            self._starts.append(address)
            self._functions.append(name)
            if name in _ALLOCATORS:
                self.allocators[address] = name

    def function(self, address) -> tuple[str, bool]:
        """Which function an instruction is of, and whether it is the first one."""
        place = bisect.bisect_right(self._starts, address) - 1
        return (self._functions[place], self._starts[place] == address) if place >= 0 else (f"{address:#x}", False)

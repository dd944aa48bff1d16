"""A disk of its own for each node, which can be full, fail and become read-only as real ones do.

Each is an ext4 file system in a file (a loop device). Its errors are those of the kernel: ENOSPC because nothing is
free, EIO because the file system was shut down (what was not synced is lost, as on a disk that went away), EROFS
because an error was found on it.
Invariant: only loop devices are ever told to fail.
"""

import ctypes
import fcntl
import functools
import os
import pathlib
import struct
import subprocess
import tempfile

from harness.wait import until

SIZE = 768 << 20
CLONE_NEWNS = 0x0002_0000
# _IOR('X', 125, __u32) and its argument: nothing that is in memory only is written any more.
EXT4_IOC_SHUTDOWN, WITHOUT_LOG = 0x8004_587D, 2


def _run(*command):
    subprocess.run(command, check=True, capture_output=True)


def keep_mounts_apart():
    """What this process and its children mount, nobody else sees: a mount namespace that somebody makes of that of the
    machine would keep our disks busy. Before anything is mounted; threads that run already are left out."""
    if os.geteuid() == 0 and ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0:
        _run("mount", "--make-rprivate", "/")


class Disks:
    """A folder whose mounts other mount namespaces (each node is in one) learn of, also of their ends."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.disks: list[Disk] = []
        folder.mkdir()
        _run("mount", "--bind", folder, folder)
        _run("mount", "--make-private", folder)
        _run("mount", "--make-shared", folder)

    def add(self, name) -> "Disk":
        disk = Disk(self.folder / name)
        self.disks.append(disk)
        return disk

    def close(self):
        for disk in self.disks:
            disk.unmount()
        _run("umount", self.folder)


class Disk:
    def __init__(self, place: pathlib.Path):
        self.place, self.image = place, place.with_suffix(".img")
        place.mkdir()
        self.format()

    @property
    def data_dir(self) -> pathlib.Path:
        """Below `lost+found`, which is no file of a node."""
        return self.place / "data"

    def format(self):
        """Everything is gone; nobody may use it."""
        self.unmount()
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as image:
            image.truncate(SIZE)
        _run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", self.image)
        self._mount()

    def _mount(self):
        _run("mount", "-o", "loop,errors=remount-ro", self.image, self.place)

    def unmount(self):
        def is_unmounted():
            subprocess.run(["umount", self.place], capture_output=True)
            attached = subprocess.run(["losetup", "-j", self.image], capture_output=True, text=True).stdout
            return not os.path.ismount(self.place) and not attached

        # The device is let go by the kernel some time after the last mount.
        until(is_unmounted, what=f"{self.place} to be unmounted")

    def repair(self):
        """After `fail` or `become_read_only`: what was synced is there, and it can be written to. Nobody may use it."""
        self.unmount()
        checked = subprocess.run(["e2fsck", "-f", "-y", self.image], capture_output=True, text=True)
        assert checked.returncode in (0, 1), checked.stdout
        self._mount()

    # -- faults

    def fill(self):
        """Nothing is free, until `free`."""
        with open(self.place / "filler", "wb", buffering=0) as filler:
            block = 1 << 22
            while block >= 1 << 12:
                try:
                    filler.write(bytes(block))
                except OSError:
                    block >>= 2

    def free(self):
        (self.place / "filler").unlink(missing_ok=True)

    def fail(self):
        """Each write, sync and read of the disk ends with EIO."""
        folder = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(folder)

    def become_read_only(self):
        """The kernel finds an error on it: each write ends with EROFS, what is there can be read."""
        device = subprocess.run(
            ["findmnt", "-no", "SOURCE", self.place], capture_output=True, text=True, check=True
        ).stdout.strip()
        assert device.startswith("/dev/loop"), device
        trigger = pathlib.Path("/sys/fs/ext4") / pathlib.Path(device).name / "trigger_fs_error"
        trigger.write_text("a test")


@functools.cache
def may_mount() -> bool:
    """Whether there are loop devices and ext4: containers may lack both."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory(prefix="heraldmq-trial-") as folder:
        try:
            disks = Disks(pathlib.Path(folder) / "disks")
        except (OSError, subprocess.CalledProcessError):
            return False
        try:
            disks.add("trial")
        except (OSError, subprocess.CalledProcessError):
            return False
        finally:
            disks.close()
    return True

"""A compose file, played without a daemon: each service of the broker's image is a process in a network and a root of its own.

Invariant: command, environment, volumes, names, read-only root, order and health check are those of the file; what an image brings
is `IMAGE` below. Absent on purpose: other images, published ports, and capabilities, of which the user of the image has none.
"""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess

import yaml
from harness.broker import BINARY
from harness.wait import DEADLINE_S, until

# What the image says.
ENTRYPOINT = "/usr/bin/heraldmq"
USER = 65532
DATA = "/var/lib/heraldmq"

# Makes the root in a mount namespace of its own, with what a container has, and goes there. A folder of a volume that is new
# belongs to the user if that of the image does.
ENTER = """
echo {hostname} >/proc/sys/kernel/hostname
mount --bind {root} {root}
for folder in /usr/lib /usr/lib64; do
    [ ! -e $folder ] || {{ mkdir -p {root}$folder; mount --bind -o ro $folder {root}$folder; }}
done
mount --bind {binary} {root}{entrypoint}
mount --rbind /proc {root}/proc
mount --bind /dev/null {root}/dev/null
mount --bind /dev/urandom {root}/dev/urandom
{volumes}
{read_only}
exec setpriv --no-new-privs chroot --userspec={user}:{user} --groups= {root} {command}
"""


def substituted(text: str) -> str:
    """With the defaults of variables such as `${HERALDMQ_VERSION:-0.1.0}`."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


class Container:
    """A service: a root, and the process in it, if any."""

    def __init__(self, played, name, fields, place):
        self.name, self.fields, self.place = name, fields, place
        self.root = played.folder / "roots" / name
        self.log = played.folder / f"{name}.log"
        self.played = played
        self.process = None
        for folder in ("usr/bin", "proc", "dev", "tmp", "etc", DATA[1:]):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        for link, target in (("lib", "usr/lib"), ("lib64", "usr/lib64")):
            (self.root / link).symlink_to(target)
        for file in (ENTRYPOINT[1:], "dev/null", "dev/urandom"):
            (self.root / file).touch()
        (self.root / "etc/nsswitch.conf").write_text("hosts: files\n")
        (self.root / "etc/host.conf").write_text("multi on\n")
        os.chown(self.root / DATA[1:], USER, USER)

    def _volumes(self) -> str:
        lines = []
        for volume in self.fields.get("volumes", []):
            source, target, *options = volume.split(":")
            inside = self.root / target[1:]
            if source.startswith("."):
                path = (self.played.file.parent / source).resolve()
                assert path.exists(), f"{self.name} mounts {path}, which is not there"
            else:
                assert source in self.played.data["volumes"], f"{self.name} mounts {source}, which is no volume"
                path = self.played.folder / "volumes" / source
                if not path.exists():
                    path.mkdir(parents=True)
                    # As a daemon does: a new volume has the owner of the folder that it is mounted over.
                    owner = inside.stat().st_uid if inside.exists() else 0
                    os.chown(path, owner, owner)
            # A daemon makes what it mounts over, also in a root that is read-only.
            (inside if path.is_dir() else inside.parent).mkdir(parents=True, exist_ok=True)
            if path.is_file():
                inside.touch()
            lines.append(f"mount --bind {path} {inside}")
            if "ro" in options:
                lines.append(f"mount -o remount,bind,ro {inside}")
        return "\n".join(lines)

    def command(self, arguments) -> list[str]:
        script = ENTER.format(
            hostname=self.fields.get("hostname", self.name),
            root=self.root,
            binary=BINARY,
            entrypoint=ENTRYPOINT,
            user=USER,
            volumes=self._volumes(),
            read_only=f"mount -o remount,bind,ro {self.root}" if self.fields.get("read_only") else "",
            command=shlex.join(arguments),
        )
        return [*self.place.prefix, "unshare", "--mount", "--uts", "sh", "-euc", script]

    def environment(self) -> dict:
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.fields.get("environment", {})}

    def run(self, *arguments) -> subprocess.CompletedProcess:
        """A program beside the one of the service, to its end, as `docker compose exec`."""
        return subprocess.run(
            self.command(arguments), env=self.environment(), capture_output=True, text=True, timeout=DEADLINE_S
        )

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                self.command([ENTRYPOINT, *self.fields["command"]]), env=self.environment(), stdout=log, stderr=log
            )

    def is_healthy(self) -> bool:
        kind, *test = self.fields["healthcheck"]["test"]
        assert kind == "CMD", "the image has no shell"
        return self.run(*test).returncode == 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(float(self.fields["stop_grace_period"].removesuffix("s")))


class Played:
    """Context manager: the services of the file whose image is the broker's, in their order, until they are healthy."""

    def __init__(self, file: pathlib.Path, folder: pathlib.Path, network):
        self.file, self.folder, self.network = file, folder, network
        self.data = yaml.safe_load(substituted(file.read_text()))
        ours = {n: fields for n, fields in self.data["services"].items() if fields["image"].startswith("heraldmq/")}
        self.containers = {name: Container(self, name, fields, network.add()) for name, fields in ours.items()}
        names = "127.0.0.1 localhost\n" + "".join(
            f"{container.place.address} {alias}\n"
            for container in self.containers.values()
            for alias in self._names(container)
        )
        for container in self.containers.values():
            (container.root / "etc/hosts").write_text(names)

    @staticmethod
    def _names(container) -> list[str]:
        if container.fields.get("network_mode") == "none":
            return []
        return [container.name, *container.fields.get("networks", {}).get("default", {}).get("aliases", [])]

    def __getitem__(self, name) -> Container:
        return self.containers[name]

    @property
    def nodes(self) -> list[Container]:
        return [c for c in self.containers.values() if "healthcheck" in c.fields]

    def up(self):
        """`docker compose up --wait`."""
        started = []
        waiting = list(self.containers.values())
        while waiting:
            container = next(c for c in waiting if set(c.fields.get("depends_on", {})) <= set(started))
            for name, how in container.fields.get("depends_on", {}).items():
                assert how == {"condition": "service_completed_successfully"}
                assert self[name].process.wait(DEADLINE_S) == 0, self[name].log.read_text()
            container.start()
            started.append(container.name)
            waiting.remove(container)
        for node in self.nodes:
            until(node.is_healthy, 2 * DEADLINE_S, lambda: f"{node.name}: {node.log.read_text()[-4000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.ExitStack() as stack:
            stack.callback(self.network.close)
            for container in self.containers.values():
                if container.process and container.process.poll() is None:
                    stack.callback(container.kill)
        assert not any("panicked" in container.log.read_text() for container in self.nodes if container.log.exists())
